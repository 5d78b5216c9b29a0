//! [`Servers`]: the servers of one store, a proxy from each worker to each server, and what is left
//! in them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::postgres::PgFence;
use leasehold::{BoxError, LockManager};
use zookeeper_client::{Acls, Client, CreateMode};

use crate::counter::{REDIS_LOG, REDIS_TIMES, ZK_LOG, ZK_VALUE};
use crate::judge::Entry;
use crate::plan::{KEY, Plan, Resource, StoreKind};
use crate::support::postgres::PgServer;
use crate::support::proxy::Proxy;
use crate::support::redis::RedisServer;
use crate::support::zookeeper::{Ensemble, TICK};

pub struct Servers {
    pub kind: StoreKind,
    pub are: Are,
    /// By worker, then by server.
    pub links: Vec<Vec<Proxy>>,
    /// In them is the directory of the file store, too.
    pub folder: PathBuf,
}

pub enum Are {
    Redis(Vec<RedisServer>),
    ZooKeeper {
        ensemble: Ensemble,
        /// From the first server to the others.
        first: Vec<Proxy>,
    },
    Postgres {
        primary: Box<PgServer>,
        standby: Option<Box<PgServer>>,
        is_promoted: bool,
    },
    Files,
}

impl Servers {
    /// `has_standby`: a synchronous standby, where the store has one.
    pub fn start(kind: StoreKind, workers: usize, folder: &Path, has_standby: bool) -> Self {
        let are = match kind {
            // It remembers what it has confirmed, so that the counter survives a kill.
            StoreKind::Redis => Are::Redis(vec![RedisServer::start_with(&[
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
            ])]),
            // They forget everything, and are trusted again after the longest TTL.
            StoreKind::Redlock => Are::Redis((0..5).map(|_| RedisServer::start()).collect()),
            StoreKind::ZooKeeper => {
                let mut first = Vec::new();
                let ensemble = Ensemble::start_with(TICK, |_, port| {
                    first.push(Proxy::before(port));
                    first[first.len() - 1].port()
                });
                Are::ZooKeeper { ensemble, first }
            }
            StoreKind::Postgres => {
                // The store refuses a server that may forget locks.
                let primary = PgServer::start_with(&["fsync=on"]);
                let standby = has_standby.then(|| Box::new(standby_of(&primary)));
                Are::Postgres {
                    primary: Box::new(primary),
                    standby,
                    is_promoted: false,
                }
            }
            StoreKind::Files => Are::Files,
        };
        let mut servers = Self {
            kind,
            are,
            links: Vec::new(),
            folder: folder.to_owned(),
        };
        let ports = servers.ports();
        let links = |_| ports.iter().map(|port| Proxy::before(*port)).collect();
        servers.links = (0..workers).map(links).collect();
        servers.prepare();
        servers
    }

    fn ports(&self) -> Vec<u16> {
        match &self.are {
            Are::Redis(servers) => servers.iter().map(RedisServer::port).collect(),
            Are::ZooKeeper { ensemble, .. } => {
                ensemble.servers.iter().map(|server| server.port).collect()
            }
            Are::Postgres {
                primary, standby, ..
            } => {
                let standby = standby.iter().map(|standby| standby.port());
                [primary.port()].into_iter().chain(standby).collect()
            }
            Are::Files => Vec::new(),
        }
    }

    /// The store's URL, over these ports.
    fn url(&self, ports: &[u16]) -> String {
        let hosts: Vec<_> = ports
            .iter()
            .map(|port| format!("127.0.0.1:{port}"))
            .collect();
        let hosts = hosts.join(",");
        match self.kind {
            StoreKind::Redis => format!("redis://{hosts}/0"),
            StoreKind::Redlock => format!("redlock://{hosts}"),
            StoreKind::ZooKeeper => format!("zookeeper://{hosts}?tick_time=500ms"),
            StoreKind::Postgres => format!("postgres://postgres@{hosts}/postgres?create=auto"),
            StoreKind::Files => format!("file://{}/locks", self.folder.display()),
        }
    }

    /// The plan of a worker, over its own proxies.
    pub fn plan(&self, seat: usize, resource: Resource, plan: &Plan) -> Plan {
        let ports: Vec<u16> = self.links[seat].iter().map(Proxy::port).collect();
        let url = self.url(&ports);
        let counter_url = match self.kind {
            StoreKind::Postgres => url.replace("create=auto", "target_session_attrs=read-write"),
            _ => url.clone(),
        };
        Plan {
            url,
            counter_url,
            resource,
            ..plan.clone()
        }
    }

    /// Makes the counter in the servers.
    fn prepare(&self) {
        match &self.are {
            Are::Redis(_) | Are::Files => {}
            Are::Postgres { primary, .. } => {
                let url = primary.url();
                wait(async {
                    PgFence::connect(&url).await?.create_schema().await?;
                    Ok(())
                })
                .expect("the fence's schema");
                primary.psql(
                    "CREATE TABLE nemesis_value (number bigint NOT NULL); INSERT INTO nemesis_value VALUES (0);
                     CREATE TABLE nemesis_log (pos bigint GENERATED ALWAYS AS IDENTITY, entry text)",
                );
            }
            Are::ZooKeeper { .. } => wait(async {
                let client = self.client().await?;
                let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
                client.create(ZK_VALUE, b"0", &options).await?;
                client.create(ZK_LOG, b"", &options).await?;
                Ok(())
            })
            .expect("the counter"),
        }
    }

    async fn client(&self) -> Result<Client, BoxError> {
        let ports = self.ports();
        let hosts: Vec<_> = ports
            .iter()
            .map(|port| format!("127.0.0.1:{port}"))
            .collect();
        Ok(Client::connect(&hosts.join(",")).await?)
    }

    /// The counter's writes, in the order in which they were applied.
    pub fn log(&self) -> Vec<Entry> {
        let lines = match &self.are {
            Are::Redis(servers) => redis_log(&servers[0]),
            Are::Postgres { .. } => self
                .postgres()
                .psql("SELECT entry FROM nemesis_log ORDER BY pos"),
            Are::ZooKeeper { .. } => wait(async {
                let client = self.client().await?;
                let mut entries = Vec::new();
                for child in client.list_children(ZK_LOG).await? {
                    let (data, stat) = client.get_data(&format!("{ZK_LOG}/{child}")).await?;
                    entries.push((stat.czxid, String::from_utf8(data)?));
                }
                entries.sort_unstable();
                let lines: Vec<_> = entries.into_iter().map(|(_, line)| line).collect();
                Ok(lines.join("\n"))
            })
            .expect("the log"),
            Are::Files => unreachable!("its counter is in the driver"),
        };
        let lines = lines.lines().filter(|line| !line.is_empty());
        lines
            .map(|line| Entry::parse(line).unwrap_or_else(|| panic!("an entry: {line}")))
            .collect()
    }

    /// The server that is the primary now.
    pub fn postgres(&self) -> &PgServer {
        match &self.are {
            Are::Postgres {
                standby: Some(standby),
                is_promoted: true,
                ..
            } => standby,
            Are::Postgres { primary, .. } => primary,
            _ => unreachable!("not PostgreSQL"),
        }
    }

    /// Whether nobody holds the lock, as an operator sees it.
    pub fn is_free(&self, plan: &Plan) -> bool {
        let url = self.url(&self.ports());
        let settings = plan.settings();
        let inspected = wait(async {
            let locks = LockManager::builder_for_url(&url, settings)
                .await?
                .build()?;
            let info = locks.inspect(KEY).await?;
            locks.shutdown().await;
            Ok(info.is_none())
        });
        inspected.unwrap_or_else(|why: BoxError| {
            eprintln!("{}: {why}", self.kind.name());
            false
        })
    }

    /// Keys of locks and sessions of clients in the servers.
    pub fn left(&self) -> Left {
        let number = |text: &str| text.trim().parse::<u64>().unwrap_or(0);
        match &self.are {
            Are::Redis(servers) => {
                let clients =
                    |server: &RedisServer| server.cli(&["CLIENT", "LIST"]).lines().count();
                Left {
                    keys: servers
                        .iter()
                        .map(|server| number(&server.cli(&["DBSIZE"])))
                        .sum(),
                    // This request is one.
                    sessions: servers
                        .iter()
                        .map(|server| clients(server) as u64 - 1)
                        .sum(),
                }
            }
            Are::ZooKeeper { ensemble, .. } => {
                let value = |server: &crate::support::zookeeper::Server, name: &str| {
                    let text = server.ask("mntr").unwrap_or_default();
                    let line = text.lines().find_map(|line| line.strip_prefix(name));
                    number(line.unwrap_or_else(|| panic!("mntr has no {name}: {text}")))
                };
                Left {
                    keys: value(&ensemble.servers[1], "zk_znode_count"),
                    // A session that nobody has closed counts, with or without a connection.
                    sessions: value(ensemble.leader(), "zk_global_sessions"),
                }
            }
            Are::Postgres { .. } => {
                let server = self.postgres();
                Left {
                    keys: number(&server.psql("SELECT (SELECT count(*) FROM leasehold.claim) + (SELECT count(*) FROM leasehold.withdrawn)")),
                    sessions: number(&server.psql("SELECT count(*) - 1 FROM pg_stat_activity WHERE backend_type = 'client backend'")),
                }
            }
            Are::Files => {
                let entries = std::fs::read_dir(self.folder.join("locks"));
                Left {
                    keys: entries.map_or(0, |entries| entries.count() as u64),
                    sessions: 0,
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Left {
    pub keys: u64,
    pub sessions: u64,
}

/// A standby that every commit waits for.
fn standby_of(primary: &PgServer) -> PgServer {
    // It looks for a primary that was started again, soon.
    let standby = primary.standby_with(&["fsync=on", "wal_retrieve_retry_interval=200ms"]);
    primary.psql("ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.psql("SELECT pg_reload_conf()");
    let is_synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    for _ in 0..6_000 {
        if primary.psql(is_synchronous) == "1" {
            return standby;
        }
        // A server sends no event for it.
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the standby is not synchronous");
}

/// Runs requests of the driver. They have a minute.
pub fn wait<T>(work: impl Future<Output = Result<T, BoxError>>) -> Result<T, BoxError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let clock = Clock::system()?;
        let limit = Duration::from_secs(60);
        let done = clock.timeout(limit, work).await;
        done.ok_or("no answer within a minute")?
    })
}

/// A hash has no order: that of the numbers is the order of the writes, unless one overwrites
/// another, whose number is there twice then.
fn redis_log(server: &RedisServer) -> String {
    let times = server.cli(&["HGETALL", REDIS_TIMES]);
    let times: Vec<&str> = times.lines().collect();
    let times = |txn: &str| {
        let known = times.chunks(2).find(|pair| pair[0] == txn);
        known.map_or(0, |pair| pair[1].parse().expect("a number"))
    };
    let log = server.cli(&["HVALS", REDIS_LOG]);
    let entries = log.lines().filter_map(Entry::parse);
    let mut entries: Vec<Entry> = entries
        .flat_map(|entry| vec![entry.clone(); times(&entry.txn)])
        .collect();
    entries.sort_by_key(|entry| (entry.number, entry.token));
    let lines: Vec<_> = (entries.iter())
        .map(|entry| format!("{} {} {}", entry.txn, entry.token, entry.number))
        .collect();
    lines.join("\n")
}

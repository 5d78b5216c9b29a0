//! A master that Sentinel names, and what a fail-over may have lost. The replica that is promoted
//! has the lock's key taken away, as it would lack it had its copying been behind.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::redis::{RedisFence, RedisStore};
use leasehold::store::{Fencing, Store};
use leasehold::{ErrorKind, LockManager, Settings};

use crate::claims::{claim_for, grant};
use crate::other_holder::{OtherHolder, wait_for};
use crate::server::canary::CANARY;
use crate::server::{LOOKS, RedisServer, cli, free_port, patiently, pause, program};

const SHORT: Duration = Duration::from_millis(200);
/// For what is not about the quarantine, which a server that was just started begins with.
const OFF: &str = "prefix=app&restart_quarantine=off";

/// A sentinel that watches a master by the name of `main`.
pub(crate) struct Sentinel {
    port: u16,
    folder: PathBuf,
    child: Child,
}

impl Sentinel {
    fn watching(master: &RedisServer) -> Self {
        Self::watching_at(master, master.port(), "")
    }

    /// With further settings.
    pub(crate) fn watching_at(master: &RedisServer, master_port: u16, more: &str) -> Self {
        let port = free_port();
        let folder = master.folder().join(format!("sentinel-{port}"));
        std::fs::create_dir_all(&folder).expect("a folder");
        let settings = format!(
            "port {port}\nbind 127.0.0.1\ndir {folder}\n{more}sentinel monitor main 127.0.0.1 {master_port} 2\n\
             sentinel down-after-milliseconds main 60000\nsentinel failover-timeout main 20000\n",
            folder = folder.display(),
        );
        let file = folder.join("sentinel.conf");
        std::fs::write(&file, settings).expect("its settings");
        let child = Command::new(program())
            .arg(&file)
            .arg("--sentinel")
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        Self {
            port,
            folder,
            child,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn cli(&self, arguments: &[&str]) -> String {
        cli(self.port, arguments)
    }

    /// Of one kind: the other sentinels, or the replicas, that it knows.
    fn knows(&self, kind: &str) -> usize {
        let reported = self.cli(&["SENTINEL", kind, "main"]);
        reported
            .lines()
            .filter(|line| line.trim() == "runid")
            .count()
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A master, a replica, and three sentinels that know each other and both.
struct World {
    sentinels: Vec<Sentinel>,
    replica: RedisServer,
    master: RedisServer,
}

impl World {
    fn start() -> Self {
        let master = RedisServer::start();
        let of = master.port().to_string();
        let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &of]);
        let sentinels: Vec<_> = (0..3).map(|_| Sentinel::watching(&master)).collect();
        let world = Self {
            sentinels,
            replica,
            master,
        };
        world.until("the sentinels know all there is to know", |world| {
            let knows = |one: &Sentinel| one.knows("SENTINELS") == 2 && one.knows("REPLICAS") == 1;
            world.sentinels.iter().all(knows)
        });
        world.until("the replica copies", |world| {
            let info = world.replica.cli(&["INFO", "replication"]);
            info.contains("master_link_status:up")
        });
        world
    }

    fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..LOOKS {
            if is_so(self) {
                return;
            }
            pause();
        }
        panic!("in vain: {what}");
    }

    fn url(&self, query: &str) -> String {
        let hosts: Vec<_> = (self.sentinels.iter())
            .map(|one| format!("127.0.0.1:{}", one.port))
            .collect();
        format!(
            "redis+sentinel://{}/main?{}",
            hosts.join(","),
            patiently(query)
        )
    }

    async fn store(&self, query: &str) -> RedisStore {
        RedisStore::connect(&self.url(query))
            .await
            .expect("a master")
    }

    /// kill -9, and the replica takes its place: by an order, since on a busy machine a master may
    /// be silent and not dead.
    fn fail_over(&mut self) {
        self.master.kill();
        self.until("the replica is promoted", |world| {
            world.sentinels[0].cli(&["SENTINEL", "FAILOVER", "main"]);
            let info = world.replica.cli(&["INFO", "replication"]);
            info.contains("role:master")
        });
    }

    /// What the master has written has reached the replica.
    fn copied(&self) {
        assert_eq!(self.master.cli(&["WAIT", "1", "10000"]), "1");
    }
}

/// A holder; the fail-over, which loses its lock and no more; then the next one.
async fn is_next_let_in_after(world: &mut World, ttl: Duration, query: &str) -> bool {
    let asking = world.store(query).await;
    let first = world.store(query).await;
    let holder = OtherHolder::holding(&first, "a", ttl).await;
    drop(first);
    world.fail_over();
    world
        .replica
        .cli(&["DEL", "app:a", "app:{leasehold}:token"]);
    let _next = wait_for(&asking, &claim_for("a", SHORT)).await;
    !holder.is_live()
}

#[tokio::test]
async fn after_a_failover_nobody_is_let_in_before_the_last_lease_has_ended() {
    let mut world = World::start();
    assert!(
        is_next_let_in_after(&mut world, Duration::from_secs(8), "prefix=app&max_ttl=8s").await,
        "granted to a second one while the first held"
    );
}

#[tokio::test]
async fn without_the_quarantine_a_failover_lets_two_in() {
    // The test above can fail: the same, switched off, with a lease that is longer than any
    // fail-over takes.
    let mut world = World::start();
    let query = "prefix=app&max_ttl=1m&restart_quarantine=off";
    assert!(!is_next_let_in_after(&mut world, Duration::from_secs(60), query).await);
}

#[tokio::test]
async fn a_hold_that_was_copied_is_renewed_at_the_new_master() {
    let mut world = World::start();
    let mut settings = Settings::default();
    settings.ttl = Duration::from_secs(30);
    let builder = LockManager::builder_for_url(&world.url(OFF), settings).await;
    let locks = builder.unwrap().build().unwrap();
    let guard = locks.lock("a").acquire().await.unwrap();
    world.copied();
    world.fail_over();
    world.until("it is renewed", |world| {
        let stats = world.replica.cli(&["INFO", "commandstats"]);
        stats.contains("cmdstat_pexpire") || !guard.lease().is_live()
    });
    assert!(guard.lease().is_live());
}

#[tokio::test]
async fn a_minority_of_the_sentinels_may_be_down() {
    let mut world = World::start();
    drop(world.sentinels.pop());
    let dead = format!("127.0.0.1:{}", free_port());
    let url = |query: &str| world.url(query).replace("/main", &format!(",{dead}/main"));
    let store = RedisStore::connect(&url(OFF)).await.unwrap();
    let _held = grant(&store, &claim_for("a", SHORT)).await;

    drop(world.sentinels.pop());
    let alone = world.url(OFF).replace("/main", &format!(",{dead}/main"));
    let error = RedisStore::connect(&alone).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("no majority"), "{error}");
}

#[tokio::test]
async fn sentinels_get_the_user_and_the_password_that_they_ask_for() {
    let world = World::start();
    for sentinel in &world.sentinels {
        let password = format!(">{CANARY}");
        let reported = sentinel.cli(&["ACL", "SETUSER", "me", "on", &password, "+@all"]);
        assert_eq!(reported, "OK");
        assert_eq!(sentinel.cli(&["ACL", "SETUSER", "default", "off"]), "OK");
    }
    let url = world.url(&format!(
        "{OFF}&sentinel_user=me&sentinel_password={CANARY}"
    ));
    let store = RedisStore::connect(&url).await.unwrap();
    let _held = grant(&store, &claim_for("a", SHORT)).await;
    assert!(!format!("{store:?}").contains(CANARY));
    for query in [
        OFF.to_owned(),
        format!("{OFF}&sentinel_password={CANARY}"),
        format!("{OFF}&sentinel_user=me&sentinel_password={CANARY}-not"),
    ] {
        let error = RedisStore::connect(&world.url(&query)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains("no majority"), "{error}");
        assert!(!format!("{error} {error:?}").contains(CANARY));
    }
}

#[tokio::test]
async fn a_name_that_no_sentinel_watches_is_reported() {
    let world = World::start();
    let url = world.url(OFF).replace("/main", "/mian");
    let error = RedisStore::connect(&url).await.unwrap_err();
    assert!(error.to_string().contains("master=mian"), "{error}");
}

#[tokio::test]
async fn a_fence_that_a_failover_could_lower_is_refused() {
    let url = "redis+sentinel://127.0.0.1:1/main?prefix=app";
    let error = RedisFence::connect(url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn tokens_promise_to_grow_only_when_replicas_are_waited_for() {
    let world = World::start();
    let fencing = async |query: &str| world.store(query).await.capability().fencing;
    assert_eq!(fencing("prefix=app").await, Fencing::None);
    assert_eq!(fencing("prefix=app&replicas=1").await, Fencing::Monotonic);
    let store = world
        .store(&format!("{OFF}&replicas=1&replica_wait=10s"))
        .await;
    let _held = wait_for(&store, &claim_for("a", SHORT)).await;
}

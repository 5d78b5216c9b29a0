//! A Redis Cluster: masters that share the slots evenly, and a replica of each if wanted.

use super::{LOOKS, RedisServer, breathe, free_port, is_of_version_6, patiently, pause};

const SLOTS: usize = 16_384;

/// Masters first, then the replica of each, in the same order.
pub(crate) struct RedisCluster {
    pub(crate) nodes: Vec<RedisServer>,
    masters: usize,
}

impl RedisCluster {
    pub(crate) fn of_masters(masters: usize) -> Self {
        Self::start(masters, 0)
    }

    pub(crate) fn with_replicas(masters: usize) -> Self {
        Self::start(masters, masters)
    }

    fn start(masters: usize, replicas: usize) -> Self {
        let start = |_, arguments: &[&str]| RedisServer::start_with(arguments);
        let nodes = (0..masters + replicas)
            .map(|index| node(index, &start))
            .collect();
        Self::form(nodes, masters)
    }

    /// Three masters, each started by hand with these arguments and more.
    pub(crate) fn of_servers(start: impl Fn(usize, &[&str]) -> RedisServer) -> Self {
        Self::form((0..3).map(|index| node(index, &start)).collect(), 3)
    }

    /// Of nodes, each with the port of its bus.
    fn form(nodes: Vec<(RedisServer, u16)>, masters: usize) -> Self {
        let replicas = nodes.len() - masters;
        for (index, (node, _)) in nodes.iter().enumerate() {
            let epoch = (index + 1).to_string();
            assert_eq!(node.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]), "OK");
            if index < masters {
                let slots = SLOTS * index / masters..SLOTS * (index + 1) / masters;
                let slots: Vec<_> = slots.map(|slot| slot.to_string()).collect();
                let add = ["CLUSTER", "ADDSLOTS"].into_iter();
                let add: Vec<_> = add.chain(slots.iter().map(String::as_str)).collect();
                assert_eq!(node.cli(&add), "OK");
            }
        }
        let (nodes, buses): (Vec<_>, Vec<_>) = nodes.into_iter().unzip();
        let cluster = Self { nodes, masters };
        cluster.until("all know all", |cluster| {
            let all = cluster.nodes.iter().zip(&buses);
            let mut is_known = true;
            for node in &cluster.nodes {
                let nodes = node.cli(&["CLUSTER", "NODES"]);
                for (other, bus) in all.clone() {
                    let (port, bus) = (other.port().to_string(), bus.to_string());
                    let knows = |line: &str| {
                        line.contains(&format!(":{port}@")) && !line.contains("handshake")
                    };
                    if !nodes.lines().any(knows) {
                        // Again, if they did not meet within the time that a node waits.
                        node.cli(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
                        is_known = false;
                    }
                }
            }
            is_known
        });
        for index in 0..replicas {
            let of = cluster.id(index);
            let replica = &cluster.nodes[masters + index];
            assert_eq!(replica.cli(&["CLUSTER", "REPLICATE", &of]), "OK");
        }
        cluster.until("the cluster is up", |cluster| {
            let is_up = |node: &RedisServer| {
                node.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok") && slots_are_known(node)
            };
            cluster.nodes.iter().all(is_up)
        });
        cluster.until("the replicas copy", |cluster| {
            let copies = |node: &RedisServer| {
                node.cli(&["INFO", "replication"])
                    .contains("master_link_status:up")
            };
            cluster.nodes[masters..].iter().all(copies)
        });
        cluster.until("all know the replicas", |cluster| {
            let knows = |node: &RedisServer| {
                let nodes = node.cli(&["CLUSTER", "NODES"]);
                nodes.matches("slave").count() == replicas
            };
            cluster.nodes.iter().all(knows)
        });
        cluster
    }

    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..LOOKS {
            if is_so(self) {
                return;
            }
            pause();
        }
        panic!("in vain: {what}");
    }

    /// A URL that names the masters.
    pub(crate) fn url(&self, query: &str) -> String {
        let hosts: Vec<_> = (self.nodes[..self.masters].iter())
            .map(|node| format!("127.0.0.1:{}", node.port()))
            .collect();
        format!("redis+cluster://{}/?{}", hosts.join(","), patiently(query))
    }

    pub(crate) fn masters(&self) -> &[RedisServer] {
        &self.nodes[..self.masters]
    }

    pub(crate) fn id(&self, node: usize) -> String {
        self.nodes[node].cli(&["CLUSTER", "MYID"])
    }

    /// The slot of a name, as the last node counts it, which no test stops.
    pub(crate) fn slot(&self, name: &str) -> usize {
        let last = self.nodes.last().expect("a node");
        let reported = last.cli(&["CLUSTER", "KEYSLOT", name]);
        reported.parse().expect("a slot")
    }

    /// The master that had this slot at first.
    pub(crate) fn home(&self, slot: usize) -> usize {
        (0..self.masters)
            .rfind(|index| SLOTS * index / self.masters <= slot)
            .expect("a master")
    }

    /// Names of locks that are at one master, under the prefix `app`.
    pub(crate) fn names_at(&self, master: usize, count: usize) -> Vec<String> {
        let names = (0..).map(|number| format!("k{number}"));
        names
            .filter(|name| self.home(self.slot(&format!("app:{name}"))) == master)
            .take(count)
            .collect()
    }

    pub(crate) fn name_at(&self, master: usize) -> String {
        self.names_at(master, 1).remove(0)
    }

    /// Opens a slot on both sides, and moves nothing yet.
    pub(crate) fn begin_move(&self, slot: usize, from: usize, to: usize) {
        let slot = slot.to_string();
        let (from_id, to_id) = (self.id(from), self.id(to));
        for (node, how, other) in [(to, "IMPORTING", from_id), (from, "MIGRATING", to_id)] {
            let reported = self.nodes[node].cli(&["CLUSTER", "SETSLOT", &slot, how, &other]);
            assert_eq!(reported, "OK");
        }
    }

    /// Takes some keys of an open slot over.
    pub(crate) fn carry(&self, keys: &[&str], from: usize, to: usize) {
        let port = self.nodes[to].port().to_string();
        let head = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        let reported = self.nodes[from].cli(&[&head[..], keys].concat());
        assert_eq!(reported, "OK");
    }

    /// Takes over what is left of an open slot, and closes it.
    pub(crate) fn end_move(&self, slot: usize, from: usize, to: usize) {
        let number = slot.to_string();
        let left = self.nodes[from].cli(&["CLUSTER", "GETKEYSINSLOT", &number, "1000"]);
        let left: Vec<_> = left.lines().filter(|key| !key.is_empty()).collect();
        if !left.is_empty() {
            self.carry(&left, from, to);
        }
        let to_id = self.id(to);
        for node in [to, from] {
            let reported = self.nodes[node].cli(&["CLUSTER", "SETSLOT", &number, "NODE", &to_id]);
            assert_eq!(reported, "OK");
        }
    }

    /// kill -9 of a master, and its replica takes its place, without waiting for the others to
    /// notice. Which node that is.
    pub(crate) fn fail_over(&mut self, master: usize) -> usize {
        self.nodes[master].kill();
        let replica = self.masters + master;
        let promotion = self.nodes[replica].cli(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
        assert_eq!(promotion, "OK");
        self.until("the replica is promoted", |cluster| {
            let others = (0..cluster.masters).filter(|other| *other != master);
            let mut reported = others.map(|other| cluster.nodes[other].cli(&["CLUSTER", "NODES"]));
            let id = cluster.id(replica);
            let is_master = |nodes: String| {
                nodes
                    .lines()
                    .any(|line| line.starts_with(&id) && line.contains("master"))
            };
            cluster.nodes[replica]
                .cli(&["INFO", "replication"])
                .contains("role:master")
                && reported.all(is_master)
        });
        replica
    }
}

fn slots_are_known(node: &RedisServer) -> bool {
    let slots = node.cli(&["CLUSTER", "INFO"]);
    slots.contains("cluster_slots_ok:16384")
}

/// Asks again until it is so.
pub(crate) async fn when(mut is_so: impl AsyncFnMut() -> bool) {
    while !is_so().await {
        breathe().await;
    }
}

/// A node by itself, and the port of its bus.
fn node(index: usize, start: &impl Fn(usize, &[&str]) -> RedisServer) -> (RedisServer, u16) {
    let bus = free_port();
    let port = bus.to_string();
    let mut arguments = vec![
        "--cluster-enabled",
        "yes",
        "--cluster-config-file",
        "nodes.conf",
        // A busy machine is no reason to promote a replica.
        "--cluster-node-timeout",
        "15000",
        // What is asked here is what the nodes that are left do.
        "--cluster-require-full-coverage",
        "no",
    ];
    // A node of version 6 has its bus ten thousand ports above.
    if is_of_version_6() {
        let node = start(index, &arguments);
        let bus = node.port() + 10_000;
        return (node, bus);
    }
    arguments.extend(["--cluster-port", &port]);
    (start(index, &arguments), bus)
}

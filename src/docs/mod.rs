//! The guide: concepts, guarantees, stores and extensions, in pages that can be read one by one.
//!
//! | page | read it |
//! |---|---|
//! | [`concepts`] | first: the words, the two parts, a first program |
//! | [`choosing`] | to find the kind of lock for a task |
//! | [`guarded`] | before the first run that matters: its phases and its outcomes |
//! | [`leading`] | to do something on one of many hosts, and to move it in order |
//! | [`deployment`] | to do so in a Deployment of Kubernetes: probes, rollouts, lost nodes |
//! | [`shards`] | to divide N pieces of work among processes |
//! | [`once`] | to run a cron job once, on one of many hosts |
//! | [`migrations`] | to migrate a database from several hosts that start at once |
//! | [`safety`] | before you rely on it: guarantees, assumptions, and what is not guaranteed |
//! | [`sql`] | to change data in a SQL database under a lock |
//! | [`proof`] | to see what shows the guarantees, and what does not |
//! | [`stores`] | to choose and configure a store, and to know how it fails |
//! | [`credentials`] | if passwords or tokens change while the program runs |
//! | [`speed`] | to see what an operation costs, and beside what |
//! | [`limitations`] | before you are surprised |
//! | [`observing`] | to see what a process does: logs, spans, metrics, probes |
//! | [`runbook`] | when an alert fires, or the log has a warning or an error |
//! | [`testing`] | to test your code: a lease that ends, a store that is cut off |
//! | [`tool`] | to guard commands and scripts in any language |
//! | [`lease_file`] | to read the lease of a command from any language, without a process |
//! | [`coming_from`] | if you know Redisson, Curator, kazoo, etcd or a Redlock library |
//! | [`writing_a_store`] | to write a store of your own |
//! | [`writing_a_handler`] | to write a handler or an observer |
//!
//! Every Rust example of these pages is compiled, and runs as a test unless it needs a server.
//! Calls of other drivers are plain text.

// The pages link to items of these features. They are checked and published with all features on.
#![cfg_attr(
    not(all(
        feature = "config",
        feature = "flow-control",
        feature = "kubernetes",
        feature = "metrics",
        feature = "object-store",
        feature = "postgres",
        feature = "redis",
        feature = "testing",
        feature = "zookeeper",
        target_os = "linux",
    )),
    allow(rustdoc::broken_intra_doc_links)
)]

#[doc = include_str!("choosing.md")]
pub mod choosing {}

#[doc = include_str!("coming_from.md")]
pub mod coming_from {}

#[doc = include_str!("concepts.md")]
pub mod concepts {}

#[doc = include_str!("credentials.md")]
pub mod credentials {}

#[doc = include_str!("deployment.md")]
pub mod deployment {}

#[doc = include_str!("guarded.md")]
pub mod guarded {}

#[doc = include_str!("leading.md")]
pub mod leading {}

#[doc = include_str!("lease_file.md")]
pub mod lease_file {}

#[doc = include_str!("limitations.md")]
pub mod limitations {}

#[doc = include_str!("migrations.md")]
pub mod migrations {}

#[doc = include_str!("observing.md")]
pub mod observing {}

#[doc = include_str!("once.md")]
pub mod once {}

#[doc = include_str!("proof.md")]
pub mod proof {}

#[doc = include_str!("runbook.md")]
pub mod runbook {}

#[doc = include_str!("safety.md")]
#[doc = ""]
#[doc = include_str!("lost_lease.svg")]
pub mod safety {}

#[doc = include_str!("sql.md")]
pub mod sql {}

#[doc = include_str!("shards.md")]
pub mod shards {}

#[doc = include_str!("speed.md")]
pub mod speed {}

#[doc = include_str!("stores.md")]
pub mod stores {
    #[doc = include_str!("stores/files.md")]
    pub mod files {}

    #[doc = include_str!("stores/kubernetes.md")]
    pub mod kubernetes {}

    #[doc = include_str!("stores/objects.md")]
    pub mod objects {}

    #[doc = include_str!("stores/postgres.md")]
    pub mod postgres {}

    #[doc = include_str!("stores/redis.md")]
    pub mod redis {}

    #[doc = include_str!("stores/redlock.md")]
    pub mod redlock {}

    #[doc = include_str!("stores/zookeeper.md")]
    pub mod zookeeper {}
}

#[doc = include_str!("testing.md")]
pub mod testing {}

#[doc = include_str!("tool.md")]
pub mod tool {}

#[doc = include_str!("writing_a_handler.md")]
pub mod writing_a_handler {}

#[doc = include_str!("writing_a_store.md")]
pub mod writing_a_store {}

//! The guide: what to know, in pages that can be read one by one.
//!
//! | page | read it |
//! |---|---|
//! | [`concepts`] | first: key, hold, lease, run, and how they belong together |
//! | [`choosing`] | with a task in mind: what you have, what to use |
//! | [`guarded`] | before the first run that matters: its steps, and every way out |
//! | [`safety`] | before you rely on it: what is promised, under which assumptions, what is not |
//! | [`stores`] | to choose and set up a store, and to know how it fails |
//! | [`limitations`] | before you are surprised |
//! | [`coming_from`] | coming from Redisson, Curator, kazoo, etcd or a Redlock library |
//! | [`writing_a_store`] | for a store of your own |
//! | [`writing_a_handler`] | for a handler or an observer of your own |
//!
//! Nothing is compiled here but the examples. Every one of them runs as a test, unless it needs a server.

// Links to what a feature brings are held against the code where all features are on, which is how the pages are published.
#![cfg_attr(
    not(all(
        feature = "config",
        feature = "conformance",
        feature = "flow-control",
        feature = "metrics",
        feature = "redis",
        feature = "zookeeper",
    )),
    allow(rustdoc::broken_intra_doc_links)
)]

#[doc = include_str!("choosing.md")]
pub mod choosing {}

#[doc = include_str!("coming_from.md")]
pub mod coming_from {}

#[doc = include_str!("concepts.md")]
pub mod concepts {}

#[doc = include_str!("guarded.md")]
pub mod guarded {}

#[doc = include_str!("limitations.md")]
pub mod limitations {}

#[doc = include_str!("safety.md")]
pub mod safety {}

#[doc = include_str!("stores.md")]
pub mod stores {}

#[doc = include_str!("writing_a_handler.md")]
pub mod writing_a_handler {}

#[doc = include_str!("writing_a_store.md")]
pub mod writing_a_store {}

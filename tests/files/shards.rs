//! Shards on locks in files.

use std::time::Duration;

use leasehold::Settings;

use crate::crew::{Crew, members_come_and_go};
use crate::place::{Place, worker};
use crate::shard_faults::Scene;

pub(crate) fn members_come_and_go_on_files() {
    let place = Place::new();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let crew = Crew::new(None, Settings::default());
    let members = members_come_and_go(crew, async || place.store(), "s");
    runtime.unwrap().block_on(members);
}

pub(crate) fn owners_follow_each_other_whoever_is_killed_or_stopped() {
    let place = Place::new();
    crate::shard_faults::owners_follow_each_other_whoever_is_killed_or_stopped(Scene {
        name: "files",
        url: place.url(""),
        ttl: Duration::from_secs(1),
        program: || worker(&["shards"]),
        // There is no server.
        restart: None::<fn()>,
    });
}

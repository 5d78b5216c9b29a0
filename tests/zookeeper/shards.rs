//! Shards on a ZooKeeper server.

use std::time::Duration;

use leasehold::Settings;

use crate::crew::{Crew, members_come_and_go};
use crate::shard_faults::{Scene, serve_if_asked, this_test};
use crate::zookeeper::{SHORT, Server, short_store};

#[tokio::test]
async fn members_come_and_go_with_their_sessions() {
    let server = Server::shared();
    let mut settings = Settings::default();
    settings.ttl = SHORT;
    let crew = Crew::new(None, settings);
    let open = async || short_store(&server.address(), "/shards").await;
    members_come_and_go(crew, open, "s").await;
}

#[test]
fn owners_follow_each_other_whoever_is_killed_or_stopped() {
    let server = Server::start();
    crate::shard_faults::owners_follow_each_other_whoever_is_killed_or_stopped(Scene {
        name: "zookeeper",
        url: format!(
            "zookeeper://{}/faults?session_timeout=3s&tick_time=500ms",
            server.address()
        ),
        ttl: Duration::from_secs(3),
        program: || this_test("shards::a_process_that_serves"),
        restart: Some(|| {
            server.kill();
            server.start_again();
        }),
    });
}

/// What the test above starts.
#[test]
fn a_process_that_serves() {
    serve_if_asked();
}

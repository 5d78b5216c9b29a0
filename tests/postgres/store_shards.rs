//! Shards on locks in PostgreSQL.

use std::time::Duration;

use leasehold::Settings;

use crate::crew::{Crew, members_come_and_go};
use crate::server::PgServer;
use crate::shard_faults::{Scene, serve_if_asked, this_test};
use crate::store_world::Locks;

#[tokio::test]
async fn members_come_and_go_in_a_database() {
    let locks = Locks::open().await;
    let mut settings = Settings::default();
    settings.ttl = Duration::from_secs(6);
    let crew = Crew::new(None, settings);
    members_come_and_go(crew, async || locks.store("").await, "s").await;
}

#[test]
fn owners_follow_each_other_whoever_is_killed_or_stopped() {
    let mut server = PgServer::start_with(&["fsync=on"]);
    crate::shard_faults::owners_follow_each_other_whoever_is_killed_or_stopped(Scene {
        name: "postgres",
        url: format!("{}?create=auto&max_ttl=4s", server.url()),
        ttl: Duration::from_secs(2),
        program: || this_test("store_shards::a_process_that_serves"),
        restart: Some(|| server.restart()),
    });
}

/// What the test above starts.
#[test]
fn a_process_that_serves() {
    serve_if_asked();
}

/// However many there are: an owner asks for each shard that is to move.
#[tokio::test]
async fn a_question_about_one_key_reads_the_rows_of_that_key_only() {
    let locks = Locks::open().await;
    locks.psql(
        "INSERT INTO leasehold.claim \
         SELECT gen_random_uuid(), 'k/' || n, 0, 'x', n, now() + interval '1 h', \
         interval '1 h', 'other', false, false FROM generate_series(1, 2000) n",
    );
    let read = locks.psql(
        "SELECT key FROM leasehold.look('k/7', false); \
         SELECT seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = 'claim'",
    );
    // An older psql prints the last answer only.
    assert_eq!(read.lines().last(), Some("0"), "{read}");
}

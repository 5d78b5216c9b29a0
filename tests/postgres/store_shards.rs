//! Shards on locks in PostgreSQL.

use std::time::Duration;

use leasehold::Settings;

use crate::crew::{Crew, members_come_and_go};
use crate::store_world::Locks;

#[tokio::test]
async fn members_come_and_go_in_a_database() {
    let locks = Locks::open().await;
    let mut settings = Settings::default();
    settings.ttl = Duration::from_secs(6);
    let crew = Crew::new(None, settings);
    members_come_and_go(crew, async || locks.store("").await, "s").await;
}

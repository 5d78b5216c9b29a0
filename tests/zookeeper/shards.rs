//! Shards on a ZooKeeper server.

use leasehold::Settings;

use crate::crew::{Crew, members_come_and_go};
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

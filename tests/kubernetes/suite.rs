//! The suite for authors of stores.

use crate::kubernetes::fake::FakeApiServer;
use crate::kubernetes::suite::keeps_the_contract;

#[tokio::test]
async fn leases_on_a_fake_api_server_keep_the_contract() {
    let server = FakeApiServer::start().await;
    keeps_the_contract(server.url()).await;
}

//! The suite for authors of stores.

use crate::kubernetes::api_server::ApiServer;
use crate::kubernetes::suite::keeps_the_contract;

#[tokio::test]
async fn leases_on_an_api_server_keep_the_contract() {
    let server = ApiServer::start().await;
    keeps_the_contract(server.url()).await;
}

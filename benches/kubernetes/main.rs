//! What an election in Kubernetes costs, and how long a leader that was killed is missed: ours
//! beside other electors, at a TTL of 15 s, all at once on one API server, counted by its audit
//! log. It takes a quarter of an hour.
//!
//! `cargo bench --profile dev --features kubernetes --bench kubernetes`, after the other electors
//! and the API server were built:
//!
//! ```text
//! tests/kubernetes_server/build-apiserver.sh
//! cargo build --locked --manifest-path benches/electors/Cargo.toml --target-dir target/electors
//! ```
#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]

#[path = "../../tests/support/kubernetes/mod.rs"]
mod kubernetes;

mod candidate;
mod election;

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use leasehold::clock::Clock;

use candidate::Peer;
use election::Election;
use kubernetes::api_server::{ApiServer, NAMESPACE};
use kubernetes::audit;

const PEERS: [Peer; 4] = [
    Peer::Ours,
    Peer::Crate("kube-leader-election"),
    Peer::Crate("kube-coordinate"),
    Peer::ClientGo,
];
/// For how long requests are counted.
const COUNTED: Duration = Duration::from_secs(300);
/// How many leaders of each are killed.
const KILLS: usize = 12;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|word| word == candidate::OURS) {
        return candidate::lead(&arguments[at + 1..]).await;
    }
    let server = ApiServer::start_audited().await;
    let users = PEERS.iter().flat_map(|peer| peer.users());
    let users: Vec<_> = users
        .map(|user| (user.clone(), candidate::token(&user)))
        .collect();
    let users: Vec<_> = (users.iter())
        .map(|(user, token)| (user.as_str(), token.as_str(), "system:masters"))
        .collect();
    server.set_tokens(&users);
    server.kill();
    server.start_again().await;

    let mut elections = Vec::new();
    for peer in PEERS {
        elections.push(Election::begin(&server, peer).await);
    }
    let begun = Timestamp::now();
    Clock::system().unwrap().sleep(COUNTED).await;
    let ended = Timestamp::now();
    let all = audit::read(server.folder(), NAMESPACE);
    println!("requests in an hour, counted for {} s\n", COUNTED.as_secs());
    println!("| elector | of the leader | of the standby |\n|---|---|---|");
    for election in &elections {
        election.print_requests(&all, begun, ended);
    }

    let killing = elections
        .iter_mut()
        .map(|election| election.kill(&server, KILLS));
    futures_util::future::join_all(killing).await;
    println!("\nfrom `kill -9` of the leader to the Lease of the next one, {KILLS} times\n");
    println!("| elector | shortest | median | longest |\n|---|---|---|---|");
    for election in &mut elections {
        election.print_recoveries();
    }
}

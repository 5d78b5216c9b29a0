//! What the kubelet asks this pod.

use std::io;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Router, routing::get};
use leasehold::{Lease, LockManager};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

#[derive(Clone)]
struct Probes {
    locks: LockManager,
    own_term: watch::Receiver<Option<Lease>>,
}

/// Answers `/healthz` and `/readyz` until the task is aborted.
pub(crate) async fn serve(
    address: &str,
    locks: LockManager,
    own_term: watch::Receiver<Option<Lease>>,
) -> io::Result<JoinHandle<()>> {
    let listener = TcpListener::bind(address).await?;
    // Lives: this program answers. A restart would not bring an API server back.
    let routes = Router::new().route("/healthz", get(|| async { "lives\n" }));
    let routes = routes.route("/readyz", get(ready));
    let routes = routes.with_state(Probes { locks, own_term });
    Ok(tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, routes).await {
            eprintln!("{error}");
        }
    }))
}

/// Ready: it leads, or it would lead if the leader ended. A pod that were ready only as the leader
/// would stop every rollout.
async fn ready(State(probes): State<Probes>) -> (StatusCode, String) {
    let health = probes.locks.health();
    let term = probes.own_term.borrow();
    let leads = term.as_ref().is_some_and(Lease::is_live);
    let status = match health.is_store_reachable {
        Some(true) => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, format!("leads={leads}\n"))
}

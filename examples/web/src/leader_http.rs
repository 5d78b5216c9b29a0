//! A service of which one instance leads: `leader_http STORE_URL NAME ADDRESS`. Stop it with ctrl-c
//! or SIGTERM.
//!
//! `GET /health` says whether this instance leads, and is 503 while its store does not answer. When
//! the leader dies, another instance leads within a TTL; when it is stopped, it resigns and another
//! one leads at once.

use std::error::Error;
use std::time::Duration;

use axum::extract::State;
use axum::{Router, http::StatusCode, routing::get};
use leasehold::election::Leadership;
use leasehold::{Lease, LockManager, Settings};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

#[derive(Clone)]
struct App {
    locks: LockManager,
    own_term: watch::Receiver<Option<Lease>>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, name, address] = &arguments[..] else {
        return Err("leader_http STORE_URL NAME ADDRESS".into());
    };
    let settings = Settings {
        ttl: Duration::from_secs(3),
        ..Settings::default()
    };
    let locks = LockManager::builder_for_url(url, settings).await?.build()?;
    let election = locks.election("scheduler");
    let app = App {
        locks: locks.clone(),
        own_term: election.state(),
    };
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    let terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        asked_to_stop(terminate).await;
        stopping.cancel();
    });
    let routes = Router::new().route("/health", get(health)).with_state(app);
    let listener = tokio::net::TcpListener::bind(address).await?;
    let server =
        axum::serve(listener, routes).with_graceful_shutdown(stop.clone().cancelled_owned());
    // A run in progress may end first, so that the next leader need not wait for the TTL.
    let leading = election.while_leader(name, schedule);
    let leading = leading.drain(Duration::from_secs(5)).until(stop);
    let (served, led) = tokio::join!(async { server.await }, leading);
    served?;
    led?;
    locks.shutdown().await;
    Ok(())
}

/// Ctrl-c, or the signal of a service manager: Kubernetes and systemd send SIGTERM and nothing
/// else.
async fn asked_to_stop(mut terminate: Signal) {
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

/// What only the leader does. It is dropped when the leadership is lost.
async fn schedule(leadership: &Leadership) {
    loop {
        let planned = leadership.guarded(|_tx| Ok(println!("term {}: planned", leadership.term())));
        if let Err(error) = planned {
            eprintln!("{error}");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn health(State(app): State<App>) -> (StatusCode, String) {
    let health = app.locks.health();
    let leads = app.own_term.borrow().as_ref().is_some_and(Lease::is_live);
    let is_ready = health.is_store_reachable != Some(false) && health.not_ready_for.is_none();
    let status = match is_ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    (
        status,
        format!(
            "leads={leads} at_risk={} last_answer={:?}\n",
            health.at_risk, health.last_answer
        ),
    )
}

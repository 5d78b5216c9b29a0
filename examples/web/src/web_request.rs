//! A lock for each request: `web_request STORE_URL ADDRESS`. Stop it with ctrl-c or SIGTERM.
//!
//! `GET /orders/{id}` works on one order for half a second. Two requests for one order take turns,
//! on whichever host they are; who waits for too long gets 409 and the holder's name. When the
//! client goes away, the handler's future is dropped: the run is undone and the lock is released,
//! without a line of code for it.

use std::error::Error;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Router, routing::get};
use leasehold::{ErrorKind, LockManager, RunError, Settings};
use tokio::signal::unix::{Signal, SignalKind, signal};

type Answer = (StatusCode, String);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, address] = &arguments[..] else {
        return Err("web_request STORE_URL ADDRESS".into());
    };
    let settings = Settings {
        // A client does not wait for longer than this.
        wait: Duration::from_secs(2),
        ..Settings::default()
    };
    let locks = LockManager::builder_for_url(url, settings).await?.build()?;
    let routes = Router::new().route("/orders/{id}", get(order));
    let routes = routes.with_state(locks.clone());
    let listener = tokio::net::TcpListener::bind(address).await?;
    let stop = asked_to_stop(signal(SignalKind::terminate())?);
    axum::serve(listener, routes)
        .with_graceful_shutdown(stop)
        .await?;
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

async fn order(State(locks): State<LockManager>, Path(id): Path<u64>) -> Answer {
    let lock = locks.lock(format!("orders/{id}"));
    let done = lock.guarded_async(async |tx| {
        // Stands for the work: it ends early if the lease is lost, and its result is not committed
        // then.
        tokio::time::sleep(Duration::from_millis(500)).await;
        tx.check()?;
        Ok(())
    });
    match done.await {
        Ok(done) => (StatusCode::OK, format!("token={}\n", done.token)),
        Err(RunError::NotAcquired { why }) => not_acquired(&why),
        Err(error) if error.was_applied() == Some(false) => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"))
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

fn not_acquired(why: &leasehold::Error) -> Answer {
    let status = match why.kind() {
        // Another request works on this order: the message names its host.
        ErrorKind::Contended => StatusCode::CONFLICT,
        ErrorKind::Invalid => StatusCode::BAD_REQUEST,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, format!("{why}\n"))
}

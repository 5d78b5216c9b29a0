//! [`Watchers`]: one watch for each key for which somebody of this process waits.
//!
//! A watch begins with the current state, at its start and whenever it is resumed, so it needs no
//! version that the server may have forgotten (410), and misses no end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{WatchEvent, WatchParams};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::answer::{Verb, refusal, unanswered};
use super::lease;
use super::link::Link;
use super::names;
use crate::clock::Stamp;
use crate::model::error::Error;
use crate::model::key::Key;
use crate::store::{Hint, State};

/// How long a watch stays when nobody waits: whoever asked in vain waits again soon.
const LINGERS: Duration = Duration::from_secs(5);
/// How long the server lets a watch run, in seconds. A connection that was cut without notice is
/// found by it.
const RUNS: u32 = 120;
/// For so much longer the client waits for the end.
const GRACE: Duration = Duration::from_secs(5);
/// The pause after the first watch that failed; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Watchers(Mutex<HashMap<Key, Arc<watch::Sender<Seen>>>>);

/// What a watch has seen so far.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Whether the server has accepted the watch; its refusal.
    accepted: Option<Result<(), Error>>,
    /// How often the key was seen free.
    free: u64,
    /// The Lease as this watch has shown it last, and when; nothing between two watches.
    newest: Option<(Arc<Lease>, Stamp)>,
}

impl Watchers {
    /// The Lease as the watch of a key has shown it last, and when.
    pub(super) fn newest(&self, key: &Key) -> Option<(Arc<Lease>, Stamp)> {
        self.0.lock().get(key)?.borrow().newest.clone()
    }
}

/// How a watch ended.
enum Ended {
    /// By the server's time-out, or because it has forgotten the version.
    Resume,
    /// By an error.
    Failed(Error),
    /// Because the credentials of this login are no longer accepted.
    LogIn(u64, Error),
}

/// Subscribes to a key, once the server has accepted the watch.
pub(super) async fn subscribe(
    watchers: &Arc<Watchers>,
    link: &Arc<Link>,
    key: &Key,
) -> Result<Hint, Error> {
    let thread = link.thread()?;
    let mut seen = {
        let mut all = watchers.0.lock();
        match all.get(key) {
            Some(sender) => sender.subscribe(),
            None => {
                let sender = Arc::new(watch::Sender::new(Seen::default()));
                let seen = sender.subscribe();
                all.insert(key.clone(), Arc::clone(&sender));
                let (watchers, link) = (Arc::clone(watchers), Arc::clone(link));
                drop(thread.begin(run(watchers, link, key.clone(), sender)));
                seen
            }
        }
    };
    let ended = |_| Error::closed("the store is closed; open another one");
    let now = seen.wait_for(|seen| seen.accepted.is_some()).await;
    let (accepted, before) = now
        .map(|seen| (seen.accepted.clone(), seen.free))
        .map_err(ended)?;
    accepted.unwrap_or(Ok(()))?;
    Ok(Hint::new(async move {
        if seen.wait_for(|seen| seen.free != before).await.is_err() {
            // The store was closed.
            std::future::pending().await
        }
    }))
}

/// Watches a key until nobody waits for it.
async fn run(watchers: Arc<Watchers>, link: Arc<Link>, key: Key, sender: Arc<watch::Sender<Seen>>) {
    let unwanted = async {
        loop {
            sender.closed().await;
            link.clock.sleep(LINGERS).await;
            let mut all = watchers.0.lock();
            if sender.receiver_count() == 0 {
                all.remove(&key);
                return;
            }
        }
    };
    let watching = async {
        let mut pause = FIRST_PAUSE;
        loop {
            link.pace.rested().await;
            let before = sender.borrow().free;
            let begun = link.clock.stamp();
            let limit = Duration::from_secs(RUNS.into()) + GRACE;
            let watched = link.clock.timeout(limit, once(&link, &key, &sender)).await;
            sender.send_if_modified(|seen| seen.newest.take().is_some());
            let error = match watched.unwrap_or(Ended::Resume) {
                // A server, or a proxy before it, that ends each watch at once is not asked without
                // a pause.
                Ended::Resume if link.clock.stamp().since(&begun) < LONGEST_PAUSE => {
                    link.clock.sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    None
                }
                Ended::Resume => {
                    pause = FIRST_PAUSE;
                    None
                }
                Ended::LogIn(refused, error) => {
                    let again = link.log_in_again(refused, &error).await;
                    Some(again.err().unwrap_or(error))
                }
                Ended::Failed(error) => Some(error),
            };
            if sender.borrow().free != before {
                pause = FIRST_PAUSE;
            }
            if let Some(error) = error {
                tracing::debug!(target: "leasehold::kubernetes", %key, %error, "a watch ended");
                sender.send_modify(|seen| seen.accepted = Some(Err(error)));
                link.clock.sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    };
    tokio::select! {
        () = unwanted => {}
        () = watching => {}
    }
}

async fn once(link: &Arc<Link>, key: &Key, sender: &watch::Sender<Seen>) -> Ended {
    let path = super::register::path(&link.namespace, "");
    let now = link.client();
    let failed = |error: kube::Error| match error {
        kube::Error::Api(status) => {
            let error = refusal(status.code, &status.message, Verb::Watch, &path);
            match status.code {
                401 => Ended::LogIn(now.logins, error),
                410 => Ended::Resume,
                429 => {
                    let asked = status.details.as_ref().map(|of| of.retry_after_seconds);
                    let asked = asked.filter(|seconds| *seconds > 0);
                    link.pace
                        .rest(asked.map(|seconds| Duration::from_secs(seconds.into())));
                    Ended::Failed(error)
                }
                _ => Ended::Failed(error),
            }
        }
        error => Ended::Failed(unanswered(Verb::Watch, &path, error)),
    };
    let request = match request(link, key) {
        Ok(request) => request,
        Err(error) => return Ended::Failed(error),
    };
    let events = match now.client.request_events::<Lease>(request).await {
        Ok(events) => events,
        Err(error) => return failed(error),
    };
    link.accepted(now.logins);
    sender.send_modify(|seen| seen.accepted = Some(Ok(())));
    pin_mut!(events);
    while let Some(event) = events.next().await {
        let now = link.clock.stamp();
        let (is_free, newest) = match event {
            Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)) => {
                let record = lease::read(&lease);
                let is_free = record.is_ok_and(|record| record.state == State::Free);
                (is_free, Some((Arc::new(lease), now)))
            }
            Ok(WatchEvent::Deleted(_)) => (true, None),
            Ok(WatchEvent::Bookmark(_)) => continue,
            Ok(WatchEvent::Error(status)) => return failed(kube::Error::Api(status)),
            Err(error) => return failed(error),
        };
        // Together: a waiter that misses the wake-up finds that the key is free.
        sender.send_if_modified(|seen| {
            seen.free += u64::from(is_free);
            seen.newest = newest;
            is_free
        });
    }
    Ended::Resume
}

fn request(link: &Link, key: &Key) -> Result<http::Request<Vec<u8>>, Error> {
    let name = names::of(key)?;
    let params = WatchParams::default()
        .fields(&format!("metadata.name={name}"))
        .timeout(RUNS);
    kube::core::Request::new(super::register::path(&link.namespace, ""))
        .watch(&params, "")
        .map_err(|error| Error::invalid("a watch cannot be written; see the cause").because(error))
}

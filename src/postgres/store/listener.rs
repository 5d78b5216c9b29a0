//! [`Listener`]: the connection that receives the server's messages, as hints.
//!
//! A lost hint costs its waiter one poll, so nothing here is repaired. When the connection ends,
//! every hint resolves at once, the waiters ask again, and the next one that subscribes makes a new
//! connection.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::connection::silent;
use super::fault;
use super::link::Link;
use super::target::Target;
use crate::model::error::Error;
use crate::model::room::make_room;
use crate::store::dial::{self, Pooled, Reconnecting};

/// The listening connection of one runtime. Made on first use.
pub(super) struct Listener {
    target: Arc<Target>,
    inner: Reconnecting<LiveListener>,
}

#[derive(Clone)]
struct LiveListener {
    link: Arc<Link>,
    waiters: HintsByName,
}

/// Who waits for a message, by what the server's messages call them. It ends with the connection's
/// driver, and then every hint resolves.
type HintsByName = Arc<Mutex<HashMap<String, Vec<oneshot::Sender<()>>>>>;

impl dial::Live for LiveListener {
    fn is_dead(&self) -> bool {
        self.link.health.is_dead()
    }

    /// A message that is missed costs one poll, so it is not worth a connection that is made
    /// without a pause. One that lasted longer than the pause is made again at once.
    fn was_useful(&self) -> bool {
        false
    }
}

impl Pooled for Listener {
    type Target = Target;

    fn new(target: Arc<Target>) -> Self {
        Self {
            inner: Reconnecting::new(target.connecting()),
            target,
        }
    }

    fn is_live(&self) -> bool {
        self.inner.is_live()
    }
}

impl Listener {
    /// Returns once it listens. The receiver resolves with the next message of this name, or when
    /// none can arrive any more.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a waiter that is gone is forgotten later.
    pub(super) async fn listen(&self, name: String) -> Result<oneshot::Receiver<()>, Error> {
        Ok(register(&self.waiters().await?, name))
    }

    /// As [`listen`](Self::listen), if it listens already.
    pub(super) fn listen_now(&self, name: String) -> Option<oneshot::Receiver<()>> {
        let live = self.inner.present()?;
        Some(register(&live.waiters, name))
    }

    async fn waiters(&self) -> Result<HintsByName, Error> {
        let connect = || connect(Arc::clone(&self.target));
        let ended = || {
            Error::unavailable(
                "the listening connection to postgresql ended; no wake-up will come, ask again",
            )
        };
        Ok(self.inner.ready(connect, ended).await?.waiters)
    }
}

fn register(waiters: &HintsByName, name: String) -> oneshot::Receiver<()> {
    let (wake, woken) = oneshot::channel();
    let mut waiters = waiters.lock();
    make_room(&mut waiters, |all| all.iter().any(|one| !one.is_closed()));
    let same = waiters.entry(name).or_default();
    same.retain(|one| !one.is_closed());
    same.push(wake);
    woken
}

async fn connect(target: Arc<Target>) -> Result<LiveListener, Error> {
    let options = &target.options;
    let waiters = HintsByName::default();
    let mut to_wake = Wakes(Arc::clone(&waiters));
    let connecting = target.connect(options.listening(), move |name| to_wake.wake(name));
    let link = connecting.await?;
    let listening = link.client.batch_execute("LISTEN leasehold");
    let listening = target.clock.timeout(options.timeout, listening).await;
    let listening = listening.ok_or_else(|| silent(&target))?;
    listening.map_err(|error| fault::not_connected("listen", options, error))?;
    Ok(LiveListener {
        link: Arc::new(link),
        waiters,
    })
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("is_live", &self.is_live())
            .finish_non_exhaustive()
    }
}

/// The end of the waiters that the connection's driver owns.
struct Wakes(HintsByName);

impl Wakes {
    fn wake(&mut self, name: &str) {
        for waiter in self.0.lock().remove(name).unwrap_or_default() {
            // An error says that it stopped waiting.
            let _ = waiter.send(());
        }
    }
}

impl Drop for Wakes {
    /// No message can arrive any more.
    fn drop(&mut self) {
        self.0.lock().clear();
    }
}

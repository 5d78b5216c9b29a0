//! [`Link`]: a connection, with the task that drives it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio_postgres::{AsyncMessage, Client, Error as PgError};

use super::dialer::Driver;
use super::schema::OWNED;
use crate::store::dial::{Health, MarksDead};

const IS_SUPERUSER: &str = "SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname OPERATOR(pg_catalog.=) session_user";

/// A connection to the server. Its socket is closed before the drop of this returns: nothing that another clone of the client sends
/// after that arrives, and the server rolls back what is open.
pub(crate) struct Link {
    pub(crate) client: Arc<Client>,
    pub(super) health: Health,
    /// The server gave up waiting for its standbys: what it acknowledged may be lost in a fail-over.
    is_unreplicated: Arc<AtomicBool>,
    _driven: Driven,
    task: AbortHandle,
    /// A pooler is between.
    pub(super) is_pooled: bool,
}

impl Link {
    /// Drives a connection on the calling runtime. `notified` receives the payload of each of the server's messages.
    pub(crate) fn drive(
        (client, driver): (Client, Driver),
        is_pooled: bool,
        mut notified: impl FnMut(&str) + Send + 'static,
    ) -> Self {
        let health = Health::default();
        let is_unreplicated = Arc::new(AtomicBool::new(false));
        let (ended, gave_up) = (MarksDead(health.clone()), Arc::clone(&is_unreplicated));
        let ours = Arc::new(Mutex::new(Some(driver)));
        let driven = Driven(Arc::clone(&ours));
        let task = tokio::spawn(async move {
            let (_ended, driven) = (ended, driven);
            while let Some(message) = poll_fn(|cx| driven.poll(cx)).await {
                match message {
                    AsyncMessage::Notification(message) => notified(message.payload()),
                    message if gives_up_the_standbys(&message) => {
                        gave_up.store(true, Ordering::Release);
                    }
                    _ => {}
                }
            }
        });
        Self {
            client: Arc::new(client),
            health,
            is_unreplicated,
            _driven: Driven(ours),
            task: task.abort_handle(),
            is_pooled,
        }
    }

    /// Fails with `LH006` if the session is a superuser's, whose rights the functions of another role in the schema would get; and,
    /// where this session `creates` the schema, if that belongs to another role. For a superuser the session's own role counts, and not
    /// the one that it acts as: any function may go back to it.
    pub(crate) async fn trust_owners(&self, creates: bool) -> Result<(), PgError> {
        let row = self.client.query_typed_one(IS_SUPERUSER, &[]).await?;
        if row.try_get(0)? {
            let owned = OWNED.replace("current_user", "session_user");
            return self.client.batch_execute(&owned).await;
        }
        if creates {
            self.client.batch_execute(OWNED).await?;
        }
        Ok(())
    }

    pub(crate) fn is_unreplicated(&self) -> bool {
        self.is_unreplicated.load(Ordering::Acquire)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The connection's driver, which the task and the link share: whichever is dropped first closes the socket. An abort of the task
/// alone takes effect some time later.
struct Driven(Arc<Mutex<Option<Driver>>>);

impl Driven {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<AsyncMessage>> {
        let mut driver = self.0.lock();
        let driver = driver.as_mut();
        driver.map_or(Poll::Ready(None), |driver| driver.poll(cx))
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        let driver = self.0.lock().take();
        drop(driver);
    }
}

/// Whether the server says that it stopped waiting for its standbys. It is known by the server's routine, because its messages are
/// translated.
fn gives_up_the_standbys(message: &AsyncMessage) -> bool {
    matches!(message, AsyncMessage::Notice(notice) if notice.routine() == Some("SyncRepWaitForLSN"))
}

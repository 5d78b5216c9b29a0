//! [`Link`]: a connection, with the task that drives it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Error as PgError};

use super::dialer::Driver;
use super::schema::OWNED;
use crate::store::dial::{Health, MarksDead};

/// An expression: since when the server waits for its standbys before it answers the statement, if
/// it has to. To be checked by [`Link::has_waited`].
macro_rules! waits {
    () => {
        "CASE WHEN pg_catalog.current_setting('synchronous_standby_names') OPERATOR(pg_catalog.<>) ''::pg_catalog.text
           THEN pg_catalog.date_part('epoch'::pg_catalog.text, pg_catalog.clock_timestamp()) END"
    };
}
pub(crate) use waits;

/// The server reads its settings between two requests of a connection.
const HAS_WAITED: &str = "SELECT pg_catalog.date_part('epoch'::pg_catalog.text, pg_catalog.pg_conf_load_time()) OPERATOR(pg_catalog.<=) $1";

const IS_SUPERUSER: &str = "SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname OPERATOR(pg_catalog.=) session_user";

/// A connection to the server. Its socket is closed before the drop of this returns: nothing that
/// another clone of the client sends after that arrives, and the server rolls back what is open.
pub(crate) struct Link {
    pub(crate) client: Arc<Client>,
    pub(super) health: Health,
    /// The server gave up waiting for its standbys: what it acknowledged may be lost in a
    /// fail-over.
    is_unreplicated: Arc<AtomicBool>,
    _driven: Driven,
    task: AbortHandle,
    /// A pooler is between.
    pub(super) is_pooled: bool,
}

impl Link {
    /// Drives a connection on the calling runtime. `notified` receives the payload of each of the
    /// server's messages.
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

    /// Fails with `LH006` if the session is a superuser's, whose rights the functions of another
    /// role in the schema would get; and, where this session `creates` the schema, if that belongs
    /// to another role. For a superuser the session's own role counts, and not the one that it acts
    /// as: any function may go back to it.
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

    /// Whether the server, since that time, did not read its settings: whoever empties
    /// `synchronous_standby_names` ends the wait for the standbys without a notice.
    pub(crate) async fn has_waited(&self, since: f64) -> bool {
        let parameters: [(&(dyn ToSql + Sync), Type); 1] = [(&since, Type::FLOAT8)];
        let asked = self.client.query_typed_one(HAS_WAITED, &parameters).await;
        asked.and_then(|row| row.try_get(0)).unwrap_or(false)
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

/// The connection's driver, which the task and the link share: whichever is dropped first closes
/// the socket. An abort of the task alone takes effect some time later.
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

/// Whether the server says that it stopped waiting for its standbys. It is known by the server's
/// routine, because its messages are translated.
fn gives_up_the_standbys(message: &AsyncMessage) -> bool {
    matches!(message, AsyncMessage::Notice(notice) if notice.routine() == Some("SyncRepWaitForLSN"))
}

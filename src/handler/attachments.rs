//! [`Attachments`]: what handlers have tied to a hold.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use parking_lot::Mutex;
use tokio::runtime::Handle;

pub(crate) type Attachment = Box<dyn Any + Send>;

/// Everything that is tied to one hold. It is dropped once, at the end of the hold; what comes later is dropped at once.
pub(crate) struct Attachments(Mutex<Option<Vec<Attachment>>>);

impl Attachments {
    pub(crate) fn put(&self, more: impl IntoIterator<Item = Attachment>) {
        let late = match &mut *self.0.lock() {
            Some(attached) => {
                attached.extend(more);
                return;
            }
            None => more.into_iter().collect(),
        };
        free(late);
    }

    /// Drops everything on this thread.
    pub(crate) fn end(&self) {
        free(self.0.lock().take().unwrap_or_default());
    }

    /// Drops everything on a thread of its own: what users attach may block as it is dropped, and the manager's thread must
    /// not wait for it.
    pub(crate) fn end_aside(&self, manager: &Handle) {
        let attached = self.0.lock().take().unwrap_or_default();
        if !attached.is_empty() {
            drop(manager.spawn_blocking(move || free(attached)));
        }
    }
}

/// Newest first, as locals are. One that panics does not keep the others.
pub(super) fn free(attached: Vec<Attachment>) {
    for attachment in attached.into_iter().rev() {
        if catch_unwind(AssertUnwindSafe(move || drop(attachment))).is_err() {
            tracing::error!("what a handler had attached to a hold panicked as it was dropped");
        }
    }
}

impl Default for Attachments {
    fn default() -> Self {
        Self(Mutex::new(Some(Vec::new())))
    }
}

impl Drop for Attachments {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for Attachments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.lock().as_ref().map(Vec::len);
        f.debug_tuple("Attachments").field(&count).finish()
    }
}

//! [`Attachments`]: values that handlers have tied to a hold.

use std::any::Any;
use std::fmt;

use parking_lot::Mutex;

use super::user_threads::UserThreads;
use crate::model::caught::drop_caught;

type Attachment = Box<dyn Any + Send>;

/// The values that are tied to one hold. They are dropped once, at the end of the hold; a value
/// that is added later is dropped at once.
pub(crate) struct Attachments(Mutex<Option<Attached>>);

/// Dropped newest first, as locals are. One that panics does not keep the others.
#[derive(Default)]
pub(crate) struct Attached(Vec<Attachment>);

impl Attached {
    pub(super) fn add(&mut self, permit: impl Any + Send) {
        self.0.push(Box::new(permit));
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        while let Some(attachment) = self.0.pop() {
            if drop_caught(attachment).is_err() {
                tracing::error!(target: "leasehold::handler", "what a handler had attached to a hold panicked as it was dropped");
            }
        }
    }
}

impl Attachments {
    pub(crate) fn put(&self, mut more: Attached) {
        // A late value is dropped at the end of this call, when the mutex is unlocked.
        if let Some(attached) = &mut *self.0.lock() {
            attached.0.append(&mut more.0);
        }
    }

    /// Takes all values out, for a hold that continues as another.
    pub(crate) fn take(&self) -> Attached {
        self.0.lock().take().unwrap_or_default()
    }

    /// Drops everything on this thread.
    pub(crate) fn end(&self) {
        drop(self.take());
    }

    /// Drops the values on a thread of its own: a user's value may block while it is dropped, and
    /// the manager's thread must not wait for it.
    pub(crate) fn end_on(&self, user_threads: &UserThreads) {
        let attached = self.take();
        if attached.len() > 0 {
            user_threads.call(move || drop(attached));
        }
    }
}

impl Default for Attachments {
    fn default() -> Self {
        Self(Mutex::new(Some(Attached::default())))
    }
}

impl fmt::Debug for Attachments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.lock().as_ref().map(Attached::len);
        f.debug_tuple("Attachments").field(&count).finish()
    }
}

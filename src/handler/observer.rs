//! [`Observer`]: sees everything, decides nothing.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::event::Event;
use crate::model::caught::caught;

/// Sees every event of a manager. A function of [`&Event`](Event) is an observer.
///
/// ```
/// use leasehold::handler::Event;
/// use leasehold::store::MemoryStore;
/// use leasehold::LockManager;
///
/// let locks = LockManager::builder(MemoryStore::new()?)
///     .observer(|event: &Event<'_>| {
///         if let Event::Lost { key, reason, .. } = event {
///             eprintln!("lost {key}: {reason}");
///         }
///     })
///     .build()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Takes note of an event.
    ///
    /// # Contract
    ///
    /// *When*: on the thread where it happens, which may be the manager's own (renewals, losses):
    /// it returns fast and never blocks. Many threads may call at once.
    /// *Sees*: the content of the event.
    /// *May*: count, note, send on. It decides nothing, and calls no lock of this manager and waits
    /// for it.
    /// *On error*: a panic is caught, and logged the first time; the operation continues.
    fn event(&self, event: &Event<'_>);
}

impl<F: Fn(&Event<'_>) + Send + Sync + 'static> Observer for F {
    fn event(&self, event: &Event<'_>) {
        self(event);
    }
}

/// The observers of a manager, in the order in which they were added. Cloning is cheap.
#[derive(Clone, Default)]
pub(crate) struct Observers(Arc<[Arc<Watching>]>);

struct Watching {
    has_panicked: AtomicBool,
    observer: Box<dyn Observer>,
}

impl Observers {
    pub(crate) fn add(&mut self, observer: impl Observer) {
        let added = Arc::new(Watching {
            has_panicked: AtomicBool::new(false),
            observer: Box::new(observer),
        });
        self.0 = self.0.iter().cloned().chain([added]).collect();
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Calls every observer. A panic of one does not affect the others.
    pub(crate) fn notify(&self, event: &Event<'_>) {
        for watching in &*self.0 {
            let called = caught(|| watching.observer.event(event));
            if called.is_err() && !watching.has_panicked.swap(true, Ordering::Relaxed) {
                tracing::error!(
                    target: "leasehold::handler", "an observer panicked; it still receives later events, and this message is logged once"
                );
            }
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observers").field(&self.0.len()).finish()
    }
}

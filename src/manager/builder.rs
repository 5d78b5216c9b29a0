//! [`LockManagerBuilder`]: how a manager is set up.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::runtime;
use tokio::sync::mpsc;

use super::LockManager;
use super::shared::{Handle, Parts, Shared};
use super::task::Task;
use crate::clock::Clock;
use crate::handler::{Chain, Handler, Observer, Observers};
use crate::model::error::{Error, LostReason};
use crate::model::holder::{Label, OwnerToken};
use crate::settings::Settings;
use crate::store::{AnyStore, Store, erase};

/// Sets a [`LockManager`] up. Settings are data, the store and the clock are objects.
#[derive(Debug)]
#[must_use = "nothing runs until the manager is built"]
pub struct LockManagerBuilder {
    store: AnyStore,
    settings: Settings,
    clock: Option<Clock>,
    label: Option<Label>,
    on_current_runtime: bool,
    chain: Chain,
    observers: Observers,
}

impl LockManagerBuilder {
    pub(super) fn new(store: impl Store) -> Self {
        Self {
            store: erase(store),
            settings: Settings::default(),
            clock: None,
            label: None,
            on_current_runtime: false,
            chain: Chain::default(),
            observers: Observers::default(),
        }
    }

    /// How long, how often, how many.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// The holder's name for people; `host:process id` if it is not given.
    pub fn label(mut self, label: Label) -> Self {
        self.label = Some(label);
        self
    }

    /// The clock of the leases; the machine's clocks if it is not given.
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.clock = Some(clock.into());
        self
    }

    /// Adds a handler, behind those that were added before: it stands around every acquire and release.
    pub fn handler(mut self, handler: impl Handler) -> Self {
        self.chain.add(handler);
        self
    }

    /// Adds an observer: it sees every event, and decides nothing.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.add(observer);
        self
    }

    /// Runs the manager on the tokio runtime that [`build`](Self::build) is called in, in place of a thread of its own.
    ///
    /// A task of that runtime that does not yield then delays heartbeats, and leases may be lost by it. When the runtime ends,
    /// so does the manager, and with it every lease that it still renews; what it holds in the store is left to its TTL.
    pub fn on_current_runtime(mut self) -> Self {
        self.on_current_runtime = true;
        self
    }

    /// Builds the manager and starts its thread.
    ///
    /// # Errors
    ///
    /// `Invalid` if a setting is out of range, or if there is no current runtime to run on; `Unavailable` if the system
    /// gives no thread, no random bytes or no clock.
    pub fn build(self) -> Result<LockManager, Error> {
        self.settings.validate()?;
        let clock = self.clock.map_or_else(Clock::system, Ok)?;
        let (inbox, messages) = mpsc::unbounded_channel();
        let own_runtime = if self.on_current_runtime {
            None
        } else {
            Some(own_runtime()?)
        };
        let handle = match &own_runtime {
            Some(own) => own.handle().clone(),
            None => runtime::Handle::try_current().map_err(|_| {
                Error::invalid("there is no current tokio runtime to run on; build inside one, or leave out on_current_runtime")
            })?,
        };
        let seed = OwnerToken::generate()?.as_bytes()[..8]
            .iter()
            .fold(0, |n, b| n << 8 | u64::from(*b));
        let shared = Shared::new(Parts {
            store: self.store,
            settings: self.settings,
            clock,
            label: self.label.unwrap_or_else(Label::of_this_process),
            handle: handle.clone(),
            inbox,
            seed,
            chain: self.chain,
            observers: self.observers,
        });
        let manager = LockManager {
            handle: Handle::new(&shared),
        };
        let task = supervised(Task::new(shared.clone(), messages), shared);
        match own_runtime {
            None => drop(handle.spawn(task)),
            Some(own) => start(own, task)?,
        }
        Ok(manager)
    }
}

fn own_runtime() -> Result<runtime::Runtime, Error> {
    runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            Error::unavailable("the lock manager's runtime could not be built; free some resources")
                .because(error)
        })
}

fn start(
    own: runtime::Runtime,
    task: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    let run = move || {
        // Spawned: a waker of what a thread blocks on writes to a file each time.
        let task = own.spawn(tokio::task::unconstrained(task));
        let _ = own.block_on(task);
        own.shutdown_background();
    };
    std::thread::Builder::new()
        .name("leasehold".to_owned())
        .spawn(run)
        .map(drop)
        .map_err(|error| {
            Error::unavailable(
                "the lock manager's thread could not be started; free some resources",
            )
            .because(error)
        })
}

fn supervised(task: Task, shared: Arc<Shared>) -> impl Future<Output = ()> + Send + 'static {
    // Before the first poll, which may never be.
    let supervision = Supervision(Some(shared));
    async move {
        match AssertUnwindSafe(task.run()).catch_unwind().await {
            Ok(()) => supervision.end(),
            Err(_) => tracing::error!("the lock manager has panicked"),
        }
    }
}

/// A task that dies takes every lease with it, at once and loudly: nobody would renew them. It dies of a panic, or with the
/// runtime that it was to run on.
struct Supervision(Option<Arc<Shared>>);

impl Supervision {
    /// The task came to its own end.
    fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for Supervision {
    fn drop(&mut self) {
        let Some(shared) = self.0.take() else { return };
        let holds: Vec<_> = {
            let mut book = shared.book.lock();
            book.is_closed = true;
            book.holds().cloned().collect()
        };
        if !holds.is_empty() {
            tracing::error!(
                holds = holds.len(),
                "the lock manager is dead; every lease of it is lost"
            );
        }
        shared.closing.cancel();
        shared.queues.close();
        for hold in holds {
            hold.lease.close();
            hold.lease.revoke(LostReason::Closed);
            hold.tell_lost(LostReason::Closed);
            shared.forget(&hold);
            hold.attachments().end_aside(&shared.handle);
        }
    }
}

//! [`LockManagerBuilder`]: configures and builds a manager.

use std::sync::Arc;

use tokio::runtime;

use super::context::{ManagerContext, Parts};
use super::handle::Handle;
use super::hooks::Hooks;
use super::lock_manager::LockManager;
use super::message::Inbox;
use super::runtime::{OwnRuntime, own_runtime, start};
use super::supervision::supervised;
use super::task::Task;
use crate::clock::Clock;
use crate::handler::{Chain, Handler, Observer, Observers, UserThreads};
use crate::model::error::Error;
use crate::model::holder::{Label, ManagerMark, OwnerToken};
use crate::model::shared_runtime::SharedRuntime;
use crate::settings::Settings;
use crate::store::AnyStore;

/// Configures and builds a [`LockManager`].
#[derive(Debug)]
#[must_use = "nothing runs until the manager is built"]
pub struct LockManagerBuilder {
    store: AnyStore,
    settings: Settings,
    clock: Option<Clock>,
    label: Option<Label>,
    on_current_runtime: bool,
    is_simulated: bool,
    chain: Chain,
    observers: Observers,
}

impl LockManagerBuilder {
    pub(crate) fn over(store: AnyStore) -> Self {
        Self {
            store,
            settings: Settings::default(),
            clock: None,
            label: None,
            on_current_runtime: false,
            is_simulated: false,
            chain: Chain::default(),
            observers: Observers::default(),
        }
    }

    /// The time limits, intervals and counts of the manager.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// The holder's name for people. Default: `host:process id`.
    pub fn label(mut self, label: Label) -> Self {
        self.label = Some(label);
        self
    }

    /// The clock of the leases. Default: the machine's clocks.
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.clock = Some(clock.into());
        self
    }

    /// Adds a handler, behind those that were added before. It wraps every acquire and release.
    pub fn handler(mut self, handler: impl Handler) -> Self {
        self.chain.add(handler);
        self
    }

    /// Adds an observer. It sees every event and decides nothing.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.add(observer);
        self
    }

    /// Runs the manager on the tokio runtime that [`build`](Self::build) is called in, instead of
    /// on a thread of its own.
    ///
    /// A task of that runtime that does not yield then delays heartbeats, and may cost leases. When
    /// the runtime ends, the manager ends too, and every lease that it still renews is lost. In the
    /// store, the TTL ends those holds. Calls of threads outside of any runtime wait for it:
    /// somebody must drive it meanwhile, so [`block_on`](LockManager::block_on) is refused.
    pub fn on_current_runtime(mut self) -> Self {
        self.on_current_runtime = true;
        self
    }

    /// [On the current runtime](Self::on_current_runtime), and what the manager would do on threads
    /// beside it is done there too (feature `testing`): compensations of dropped runs, handlers
    /// around a background release, drops of what handlers attached. So a test on one thread
    /// decides every order of events. None of these may block.
    #[cfg(feature = "testing")]
    pub fn in_simulation(mut self) -> Self {
        self.is_simulated = true;
        self.on_current_runtime()
    }

    /// Builds the manager and starts its thread.
    ///
    /// # Errors
    ///
    /// `Invalid` if a setting is out of range, or if there is no current runtime with timers to run
    /// on; `Unavailable` if the system provides no thread, no random bytes or no clock.
    pub fn build(self) -> Result<LockManager, Error> {
        self.settings.validate()?;
        let clock = self.clock.map_or_else(Clock::system, Ok)?;
        let (inbox, messages) = Inbox::new();
        let own_runtime = if self.on_current_runtime {
            None
        } else {
            Some(own_runtime()?)
        };
        let own = own_runtime.as_ref().and_then(OwnRuntime::handle);
        let handle = own.cloned().map_or_else(|| current_runtime(&clock), Ok)?;
        let runtime = SharedRuntime::new(handle, clock.clone(), own_runtime.is_some());
        let [a, b, c, d, ..] = *OwnerToken::generate()?.as_bytes();
        let mark = ManagerMark([a, b, c, d]);
        let context = ManagerContext::new(Parts {
            store: self.store,
            settings: self.settings,
            clock,
            label: self.label.unwrap_or_else(Label::of_this_process),
            runtime: runtime.clone(),
            user_threads: if self.is_simulated {
                UserThreads::inline(&runtime)
            } else {
                UserThreads::threads(&runtime)
            },
            hooks: Hooks::new(self.chain, self.observers),
            inbox,
            mark,
        });
        let task = supervised(
            Task::new(Arc::clone(&context), messages),
            Arc::clone(&context),
        );
        match own_runtime {
            None => drop(runtime.spawn(task)),
            Some(own) => start(own, runtime, task)?,
        }
        Ok(LockManager {
            handle: Handle::new(context),
        })
    }
}

fn current_runtime(clock: &Clock) -> Result<runtime::Handle, Error> {
    let current = runtime::Handle::try_current().ok();
    current.filter(|_| clock.has_timers()).ok_or_else(|| {
        Error::invalid("there is no current tokio runtime with timers to run on; build inside one (enable_all), or leave out on_current_runtime")
    })
}

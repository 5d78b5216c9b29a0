//! [`UserThreads`]: where code of users runs that may block, so that it does not hold up the
//! manager's thread.

use tokio::task::JoinHandle;

use crate::model::shared_runtime::SharedRuntime;

/// Threads beside the manager's; in a simulation, the manager's own runtime.
#[derive(Clone, Debug)]
pub(crate) struct UserThreads {
    runtime: SharedRuntime,
    is_inline: bool,
}

impl UserThreads {
    /// On the threads of `runtime` that may block.
    pub(crate) fn threads(runtime: &SharedRuntime) -> Self {
        Self {
            runtime: runtime.clone(),
            is_inline: false,
        }
    }

    /// On `runtime` itself.
    pub(crate) fn inline(runtime: &SharedRuntime) -> Self {
        Self {
            runtime: runtime.clone(),
            is_inline: true,
        }
    }

    pub(crate) fn call(&self, work: impl FnOnce() + Send + 'static) {
        if self.is_inline {
            work();
        } else {
            drop(self.runtime.spawn_blocking(work));
        }
    }

    /// Drives `work` to its end, also if the answer is dropped, and if the manager has ended
    /// meanwhile: it keeps its timers.
    pub(crate) fn drive(&self, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        if self.is_inline {
            return self.runtime.spawn(work);
        }
        let driver = self.runtime.clone();
        let in_progress = self.runtime.begin_call();
        self.runtime.spawn_blocking(move || {
            driver.block_on(work);
            drop(in_progress);
        })
    }
}

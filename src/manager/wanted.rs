//! Whether somebody waits for a lock that this process holds.

use super::guard::LockGuard;
use super::lock_manager::LockManager;
use super::runtime::in_runtime;
use crate::model::error::Error;
use crate::store::LockInfo;

impl LockGuard {
    /// Completes when somebody waits for this lock, in this process or in another one. A long job
    /// may then end early and release it.
    ///
    /// It asks the store once in each [`max_poll_interval`](crate::Settings::max_poll_interval), so
    /// it is late by up to that time, and a caller that waits for less may be missed. It says
    /// nothing of the lease: see [`lost`](Self::lost).
    ///
    /// # Errors
    ///
    /// `Unsupported` if the store keeps no [queue](crate::store::Queue), since nobody waits in it;
    /// `Closed` if the manager was shut down. A store that does not answer is asked again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn wanted(&self) -> Result<(), Error> {
        self.waited_for(|info| info.queue.is_some_and(|waiting| waiting > 0).then_some(()))
            .await
    }

    /// Completes with what `is_it` makes of the queue, once that is something. It is asked about
    /// the callers of this process that wait behind this hold too: they have no place in the store
    /// yet.
    pub(crate) async fn waited_for<T>(
        &self,
        is_it: impl Fn(&LockInfo) -> Option<T>,
    ) -> Result<T, Error> {
        let (key, context) = (self.key(), self.context());
        if !context.capability.is_fair() {
            return Err(Error::unsupported(format!(
                "this store does not say who waits: store={} key={key}; use one with a queue",
                context.store.name()
            )));
        }
        let locks = LockManager {
            handle: self.handle.clone(),
        };
        let waiting = async {
            loop {
                context.lifetime.ensure_open()?;
                let mut info = match locks.inspect(key.clone()).await {
                    Ok(Some(info)) => info,
                    _ => LockInfo::of(key.clone()),
                };
                if context.queues.is_waited_for(key) {
                    info.queue = info.queue.max(Some(1));
                }
                if let Some(found) = is_it(&info) {
                    return Ok(found);
                }
                context.pause(context.settings.max_poll_interval).await;
            }
        };
        in_runtime(context.runtime(), waiting).await
    }
}

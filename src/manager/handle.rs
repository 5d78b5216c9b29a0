//! [`Handle`]: one user of a manager. When the last is dropped, the manager shuts down.

use std::sync::Arc;

use super::context::ManagerContext;
use super::message::Message;

/// Part of every manager, lock and guard. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct Handle(Arc<ShutdownOnDrop>);

#[derive(Debug)]
struct ShutdownOnDrop(Arc<ManagerContext>);

impl Handle {
    pub(super) fn new(context: Arc<ManagerContext>) -> Self {
        Self(Arc::new(ShutdownOnDrop(context)))
    }

    pub(crate) fn context(&self) -> &Arc<ManagerContext> {
        &self.0.0
    }
}

impl Drop for ShutdownOnDrop {
    fn drop(&mut self) {
        self.0.inbox.send(Message::Shutdown(None));
    }
}

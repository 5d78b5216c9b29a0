//! The tokio runtime of the caller, which drives the connections that it makes.

use tokio::runtime::{Handle, Id};

use crate::model::error::Error;

/// The calling runtime. `server`: what kind of server is asked, for the message.
pub(crate) fn handle(server: &str) -> Result<Handle, Error> {
    Handle::try_current().map_err(|_| {
        Error::invalid(format!("{server} was asked outside of a tokio runtime; connect within one, which may end afterwards, and ask from a task of it or through LockManager::block_on"))
    })
}

pub(crate) fn id(server: &str) -> Result<Id, Error> {
    Ok(handle(server)?.id())
}

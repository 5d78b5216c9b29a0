//! The tokio runtime of the caller, which drives the connections that it makes.

use tokio::runtime::{Handle, Id};

use crate::model::error::Error;

/// The calling runtime.
pub(super) fn handle() -> Result<Handle, Error> {
    Handle::try_current().map_err(|_| {
        Error::invalid("redis was asked outside of a tokio runtime; connect within one, which may end afterwards, and ask from a task of it or through Lock::blocking")
    })
}

pub(super) fn id() -> Result<Id, Error> {
    Ok(handle()?.id())
}

//! [`Members`]: which server answers at each address of a `redlock://` URL. A server with two
//! addresses would have two votes.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::model::error::Error;

/// The runs of the servers of one quorum, by address. A clone is the same.
#[derive(Clone, Default)]
pub(super) struct Members(Arc<Mutex<HashMap<String, String>>>);

impl Members {
    /// Notes that this run of a server answers at an address.
    ///
    /// # Errors
    ///
    /// `Invalid` if it answers at another address too.
    pub(super) fn note(&self, address: &str, run: &str) -> Result<(), Error> {
        let mut runs = self.0.lock();
        // Whatever answered here before does so no more: servers may exchange their addresses.
        runs.remove(address);
        if let Some((other, _)) = runs.iter().find(|(_, known)| *known == run) {
            return Err(Error::invalid(format!(
                "two addresses of a quorum are one server, which would have two votes: addresses={other},{address}; name each server once"
            )));
        }
        runs.insert(address.to_owned(), run.to_owned());
        Ok(())
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Members")
    }
}

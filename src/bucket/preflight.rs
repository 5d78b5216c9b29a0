//! Whether a service compares versions, before it keeps a lock.

use object_store::ObjectStoreExt;
use object_store::path::Path;
use tracing::info;

use super::answer;
use super::register::BucketRegister;
use crate::model::error::{Error, ErrorKind};
use crate::model::holder::hex;
use crate::model::random::random_bytes;
use crate::store::Swapped;

/// What the name of the probe begins with. No name of a key begins so.
const PROBE: &str = ",probe-";

impl BucketRegister {
    /// Writes an object of its own and removes it.
    ///
    /// # Errors
    ///
    /// `Unsupported` if a write that must fail does not, or the other way round.
    pub(super) async fn check(&self) -> Result<(), Error> {
        let path = self.named(&format!("{PROBE}{}", hex(random_bytes()?)))?;
        let checked = self.check_at(&path).await;
        // Nothing was written where the first request is refused.
        if let Err(error) = self.objects.delete(&path).await
            && checked.is_ok()
        {
            let error = answer::error(&path, false, error);
            info!(%path, %error, "the object of the check at the start stays; allow it to be deleted");
        }
        checked.map_err(|error| match error.kind() {
            // No lock is.
            ErrorKind::InDoubt => {
                Error::unavailable("the object storage failed at the check at the start; try again")
                    .because(error)
            }
            _ => error,
        })
    }

    async fn check_at(&self, path: &Path) -> Result<(), Error> {
        // Without the right to list, an object that does not exist is forbidden.
        if self.get(path).await?.is_some() {
            return Err(unsupported("an object that nobody wrote is there"));
        }
        let write = |beat: &str| format!("leasehold probe {beat}\n");
        let Swapped::Swapped(first) = self.put(path, None, write("1")).await? else {
            return Err(unsupported("a first create is refused"));
        };
        if self.put(path, None, write("2")).await? != Swapped::Moved {
            return Err(unsupported("a second create of one object is not refused"));
        }
        let Swapped::Swapped(second) = self.put(path, Some(&first), write("3")).await? else {
            return Err(unsupported("an update of the current version is refused"));
        };
        if self.put(path, Some(&first), write("4")).await? != Swapped::Moved {
            return Err(unsupported("an update of a former version is not refused"));
        }
        match self.get(path).await? {
            Some((text, version)) if text == write("3") && version == second => Ok(()),
            _ => Err(unsupported("a load does not show the latest write")),
        }
    }
}

fn unsupported(what: &str) -> Error {
    Error::unsupported(format!(
        "this object storage does not compare versions: {what}; use a service with conditional writes (If-Match, If-None-Match)"
    ))
}

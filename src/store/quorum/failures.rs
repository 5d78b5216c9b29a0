//! [`Failures`]: why members gave no answer that counts, and the one error that the caller gets for
//! all of them.

use crate::model::error::{Error, ErrorKind};

/// The failures of one request, one for each member at most.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// How many members refuse, now and later.
    refusals: usize,
    refusal: Option<Error>,
    failure: Option<Error>,
}

impl Failures {
    pub(super) fn note(&mut self, why: Error) {
        if is_refusal(why.kind()) {
            self.refusals += 1;
            self.refusal.get_or_insert(why);
        } else {
            self.failure.get_or_insert(why);
        }
    }

    /// A refusal, if there is no majority without those that refuse. Otherwise a retry may succeed:
    /// what is in doubt at a member is in doubt nowhere else, and is taken back.
    pub(super) fn kind(&self, need: usize, members: usize) -> ErrorKind {
        match &self.refusal {
            Some(refusal) if self.refusals + need > members => refusal.kind(),
            _ => ErrorKind::Unavailable,
        }
    }

    /// Adds the first cause: a refusal before others, because somebody has to act on it.
    pub(super) fn explain(&self, error: Error) -> Error {
        match self.refusal.as_ref().or(self.failure.as_ref()) {
            Some(why) => error.because(why.clone()),
            None => error,
        }
    }
}

/// Whether the same request will be answered in the same way until somebody acts.
fn is_refusal(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Denied
            | ErrorKind::Unsupported
            | ErrorKind::Corrupt
            | ErrorKind::Invalid
            | ErrorKind::Closed
    )
}

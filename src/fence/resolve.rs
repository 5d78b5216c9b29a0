//! [`Resolve`]: finding out what became of a commit in doubt.

use std::fmt::Debug;

use crate::model::doubt::{Doubt, Resolution};
use crate::model::error::Error;

/// A fence that can end a doubt.
///
/// A fenced commit creates a record named by its [`TxnId`](crate::run::TxnId), in one step with its
/// changes, by an operation that fails if the name exists. The resolver creates that name itself,
/// as *void*. If it can, the commit was not applied and never can be, even if its request is still
/// on the wire. If the name exists, the record says which of the two it is.
pub trait Resolve: Debug + Send + Sync + 'static {
    /// Finds out what became of a commit in doubt. If it is not applied, it never will be from now
    /// on.
    ///
    /// # Contract
    ///
    /// Both answers are final, and every later call gives the same one.
    ///
    /// # Errors
    ///
    /// It is not known yet, of whatever kind the error is: call it again.
    /// [`Invalid`](crate::ErrorKind::Invalid) if no later call answers otherwise: the name is too
    /// old and was deleted ([`too_old`]), a part was committed ([`partly_applied`]), or the doubt
    /// has not all locks of the run ([`Doubt::check`]).
    fn resolve(&self, doubt: &Doubt) -> impl Future<Output = Result<Resolution, Error>> + Send;
}

/// For authors of fences: the error of [`Resolve::resolve`] where the record of the name was
/// deleted, or may have been.
#[must_use]
pub fn too_old(doubt: &Doubt) -> Error {
    Error::invalid(format!(
        "what became of the commit can never be known, because its name is too old: txn_id={}; check the data, and resolve earlier next time",
        doubt.txn_id
    ))
}

/// For authors of fences: the error of [`Resolve::resolve`] where a statement of the work committed
/// what came before it, and the rest is not applied. It is an error and no [`Resolution`], because
/// no program can go on from it before somebody has checked the data; and it is final.
#[must_use]
pub fn partly_applied(doubt: &Doubt) -> Error {
    Error::invalid(format!(
        "a part of the commit is applied, and the rest never will be, because a statement of the work committed (DDL, BEGIN, COMMIT): txn_id={}; check the data, and keep such statements out of the work",
        doubt.txn_id
    ))
}

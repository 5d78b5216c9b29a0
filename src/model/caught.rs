//! [`caught`]: a call of code that is not ours, whose panic ends here.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The text of a panic that was caught. It may hold a secret, and is not for a log.
#[derive(Debug, Clone)]
pub(crate) struct Caught(pub(crate) String);

/// Calls `call`, which may panic.
///
/// # Errors
///
/// It panicked.
pub(crate) fn caught<T>(call: impl FnOnce() -> T) -> Result<T, Caught> {
    catch_unwind(AssertUnwindSafe(call)).map_err(Caught::by)
}

/// Drops a value whose drop may panic.
///
/// # Errors
///
/// It panicked.
pub(crate) fn drop_caught<T>(value: T) -> Result<(), Caught> {
    caught(move || drop(value))
}

impl Caught {
    /// Reads what a panic left, and drops it. What that drop panics with is leaked: it may panic
    /// for ever.
    pub(crate) fn by(payload: Box<dyn Any + Send>) -> Self {
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without a message".to_owned());
        if let Err(another) = catch_unwind(AssertUnwindSafe(move || drop(payload))) {
            std::mem::forget(another);
        }
        Self(text)
    }
}

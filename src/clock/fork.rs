//! A fork ends every lease in the child (I9).
//!
//! The child has the parent's memory, deadlines included, but not its manager thread, and the
//! parent still holds the lock. Reading the process id at each check costs over 100 ns. Instead,
//! the C library runs a hook in every child: it raises a generation number, and each lease compares
//! that number with its own.
//!
//! This is the one module that uses `unsafe`. A child made by a bare `clone` system call, without
//! the C library, is not noticed.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::model::error::Error;

static GENERATION: AtomicU64 = AtomicU64::new(0);

/// How many forks have happened since the hook was set. A lease of an older generation is lost.
#[inline]
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Sets the hook, once for a process.
///
/// # Errors
///
/// `Unavailable` if the system has no memory for the hook.
pub(crate) fn watch() -> Result<(), Error> {
    static CODE: OnceLock<i32> = OnceLock::new();
    match *CODE.get_or_init(register) {
        0 => Ok(()),
        code => Err(Error::unavailable(format!(
            "a fork of this process could not be noticed: pthread_atfork={code}; free some memory and start again"
        ))),
    }
}

#[cfg(unix)]
#[allow(unsafe_code)]
fn register() -> i32 {
    extern "C" fn in_child() {
        // An atomic addition is async-signal-safe. A child of a threaded process may do nothing
        // else.
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the hook is a function of this program, is never unloaded, and only touches an
    // atomic.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) }
}

#[cfg(not(unix))]
fn register() -> i32 {
    0
}

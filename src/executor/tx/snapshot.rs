//! [`Snapshot`]: data outside a cell whose value can be restored.

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::SeqCst;

/// Data whose value can be saved and restored through a shared reference.
///
/// Implemented for the mutexes and locks of the standard library and of parking_lot over
/// `T: Clone`, for atomics, and for references and [`Arc`]s of all these.
pub trait Snapshot {
    /// What the run keeps until it ends.
    type Saved: Send;

    /// The value now.
    ///
    /// # Contract
    ///
    /// Changes nothing. A lock that it takes must not be held by the caller of
    /// [`Tx::snapshot`](crate::Tx::snapshot).
    fn save(&self) -> Self::Saved;

    /// Restores a saved value.
    ///
    /// # Contract
    ///
    /// Afterwards [`save`](Self::save) returns an equal value. The work must not still hold a lock
    /// that it takes when it ends.
    fn restore(&self, saved: Self::Saved);
}

impl<S: Snapshot + ?Sized> Snapshot for &S {
    type Saved = S::Saved;

    fn save(&self) -> S::Saved {
        (**self).save()
    }

    fn restore(&self, saved: S::Saved) {
        (**self).restore(saved);
    }
}

impl<S: Snapshot + ?Sized> Snapshot for Arc<S> {
    type Saved = S::Saved;

    fn save(&self) -> S::Saved {
        (**self).save()
    }

    fn restore(&self, saved: S::Saved) {
        (**self).restore(saved);
    }
}

// The whole value is replaced, so a half-done change behind a poisoned lock does not matter.
impl<T: Clone + Send> Snapshot for std::sync::Mutex<T> {
    type Saved = T;

    fn save(&self) -> T {
        self.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn restore(&self, saved: T) {
        *self.lock().unwrap_or_else(PoisonError::into_inner) = saved;
    }
}

impl<T: Clone + Send> Snapshot for std::sync::RwLock<T> {
    type Saved = T;

    fn save(&self) -> T {
        self.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn restore(&self, saved: T) {
        *self.write().unwrap_or_else(PoisonError::into_inner) = saved;
    }
}

impl<T: Clone + Send> Snapshot for parking_lot::Mutex<T> {
    type Saved = T;

    fn save(&self) -> T {
        self.lock().clone()
    }

    fn restore(&self, saved: T) {
        *self.lock() = saved;
    }
}

impl<T: Clone + Send> Snapshot for parking_lot::RwLock<T> {
    type Saved = T;

    fn save(&self) -> T {
        self.read().clone()
    }

    fn restore(&self, saved: T) {
        *self.write() = saved;
    }
}

macro_rules! atomics {
    ($($atomic:ident: $value:ty,)*) => {$(
        impl Snapshot for std::sync::atomic::$atomic {
            type Saved = $value;

            fn save(&self) -> $value {
                self.load(SeqCst)
            }

            fn restore(&self, saved: $value) {
                self.store(saved, SeqCst);
            }
        }
    )*};
}

atomics! {
    AtomicBool: bool,
    AtomicU8: u8,
    AtomicU16: u16,
    AtomicU32: u32,
    AtomicU64: u64,
    AtomicUsize: usize,
    AtomicI8: i8,
    AtomicI16: i16,
    AtomicI32: i32,
    AtomicI64: i64,
    AtomicIsize: isize,
}

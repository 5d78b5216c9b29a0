//! loom's atomics, in the shape of `src/lease/atomics.rs`.
//!
//! loom remembers only the *last* access of each cell when it looks for the next order to try: a
//! thread that loads a cell and then exchanges it hides an earlier load of another thread, and
//! fences it does not count as accesses at all. So each access here takes a turn first, a relaxed
//! addition that all threads share. It orders nothing for the memory model, and it makes loom try
//! every order.

use loom::sync::atomic as inner;
pub(crate) use loom::sync::atomic::Ordering;

loom::lazy_static! {
    static ref TURN: inner::AtomicUsize = inner::AtomicUsize::new(0);
}

fn take_turn() {
    TURN.fetch_add(1, Ordering::Relaxed);
}

/// Before any thread starts, so that the making of the turn orders no two of them.
pub(crate) fn begin() {
    take_turn();
}

/// loom takes `SeqCst` accesses for `AcqRel`; its fence has the total order that the standard gives
/// to both.
pub(crate) fn total_order() {
    take_turn();
    inner::fence(Ordering::SeqCst);
}

macro_rules! in_turn {
    ($name:ident($value:ty) { $($method:ident($($arg:ident: $of:ty),*) -> $answer:ty;)* }) => {
        #[derive(Debug)]
        pub(crate) struct $name(inner::$name);

        #[allow(dead_code, reason = "the shape of the standard's type, whichever of it the sources use")]
        impl $name {
            pub(crate) fn new(value: $value) -> Self {
                Self(inner::$name::new(value))
            }

            $(pub(crate) fn $method(&self, $($arg: $of),*) -> $answer {
                take_turn();
                self.0.$method($($arg),*)
            })*
        }
    };
}

in_turn!(AtomicU64(u64) {
    load(order: Ordering) -> u64;
    store(value: u64, order: Ordering) -> ();
    swap(value: u64, order: Ordering) -> u64;
    compare_exchange(old: u64, new: u64, won: Ordering, lost: Ordering) -> Result<u64, u64>;
});

in_turn!(AtomicUsize(usize) {
    load(order: Ordering) -> usize;
    store(value: usize, order: Ordering) -> ();
    fetch_add(by: usize, order: Ordering) -> usize;
    fetch_sub(by: usize, order: Ordering) -> usize;
});

in_turn!(AtomicBool(bool) {
    load(order: Ordering) -> bool;
    store(value: bool, order: Ordering) -> ();
    swap(value: bool, order: Ordering) -> bool;
});

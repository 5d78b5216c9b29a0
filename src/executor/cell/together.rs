//! [`read_together`]: several cells as one commit left them.

use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard};

use super::guarded::GuardedCell;
use super::terms::CellTerms;

mod sealed {
    pub trait Sealed {}
}

/// Cells that can be read together: a tuple of two to four references, or a slice of cells of one
/// type.
pub trait Together: sealed::Sealed {
    /// The committed values, in the order of the cells.
    type Values;

    #[doc(hidden)]
    fn values(self) -> Self::Values;
}

/// The committed values of several cells at one moment: the reader sees either all or none of what
/// a run wrote to them.
///
/// It waits only while a commit swaps its pointers.
///
/// ```
/// use leasehold::GuardedCell;
/// use leasehold::run::read_together;
///
/// let (stock, orders) = (GuardedCell::new(7), GuardedCell::new(vec!["tea"]));
/// let (stock, orders) = read_together((&stock, &orders));
/// assert_eq!((*stock, orders.len()), (7, 1));
/// ```
pub fn read_together<C: Together>(cells: C) -> C::Values {
    cells.values()
}

/// Locks the cells in the order in which commits do; a cell that is named twice is locked once.
fn lock<'a>(mut terms: Vec<&'a RwLock<CellTerms>>) -> Vec<RwLockReadGuard<'a, CellTerms>> {
    terms.sort_unstable_by_key(|terms| std::ptr::from_ref(*terms).addr());
    terms.dedup_by_key(|terms| std::ptr::from_ref(*terms).addr());
    terms.into_iter().map(RwLock::read).collect()
}

macro_rules! tuples {
    ($(($($name:ident: $at:tt),+))*) => {$(
        impl<$($name),+> sealed::Sealed for ($(&GuardedCell<$name>,)+) {}

        impl<$($name),+> Together for ($(&GuardedCell<$name>,)+) {
            type Values = ($(Arc<$name>,)+);

            fn values(self) -> Self::Values {
                let _locked = lock(vec![$(&self.$at.content.terms),+]);
                ($(self.$at.current(),)+)
            }
        }
    )*};
}

tuples! {
    (A: 0, B: 1)
    (A: 0, B: 1, C: 2)
    (A: 0, B: 1, C: 2, D: 3)
}

impl<T> sealed::Sealed for &[GuardedCell<T>] {}

impl<T> Together for &[GuardedCell<T>] {
    type Values = Vec<Arc<T>>;

    fn values(self) -> Self::Values {
        let _locked = lock(self.iter().map(|cell| &cell.content.terms).collect());
        self.iter().map(GuardedCell::current).collect()
    }
}

//! A lock that is wanted, and an office that passes on, on two managers that share a directory.

use leasehold::LockManager;

use crate::place::Place;

pub(crate) fn a_lock_and_an_office_pass_on() {
    let place = Place::new();
    let manager = || LockManager::new(place.store()).unwrap();
    let (ours, theirs) = (manager(), manager());
    ours.block_on(crate::passing_on::a_lock_and_an_office_pass_on(
        &ours, &theirs,
    ));
}

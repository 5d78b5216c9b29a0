//! A one-time job on two managers that share a directory.

use leasehold::LockManager;

use crate::one_time::each_fire_time_is_done_once;
use crate::place::Place;

pub(crate) fn a_one_time_job_is_done_by_one_of_two_managers() {
    let place = Place::new();
    let manager = || LockManager::new(place.store()).unwrap();
    let (ours, theirs) = (manager(), manager());
    ours.block_on(each_fire_time_is_done_once(&ours, &theirs));
}

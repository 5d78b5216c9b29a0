//! The local queue, where a caller is put back.

use super::*;
use crate::store::LockMode;

fn request() -> LockRequest {
    LockRequest {
        key: Key::parse("a").unwrap(),
        times: HoldTimes {
            ttl: Duration::from_secs(10),
            lock_delay: Duration::ZERO,
            max_hold: None,
            at_least: None,
        },
        mode: LockMode::Exclusive,
        is_fair: false,
        label: None,
        allows_handoff: true,
        is_counted: false,
    }
}

#[tokio::test]
async fn a_caller_put_back_after_the_turn_has_passed_gets_the_turn() {
    let queues = Queues::new(&Settings::default(), Clock::system().unwrap());
    let Ok(Some(Entered::Turn(turn, _))) = queues.enter(&request(), true, 0) else {
        panic!("nobody is there");
    };
    let Ok(Some(Entered::Place(mut place))) = queues.enter(&request(), true, 0) else {
        panic!("somebody has the turn");
    };
    let waiter = queues.next(&request().key).unwrap();
    drop(turn);
    queues.put_back(&request().key, waiter);
    assert!(matches!(place.called().await, Some(Called::Turn(_))));
}

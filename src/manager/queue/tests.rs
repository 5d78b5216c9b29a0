//! The local queue, where a caller is put back.

use super::*;

fn wish() -> Wish {
    Wish::new(Key::parse("a").unwrap(), &Settings::default())
}

#[tokio::test]
async fn a_caller_put_back_after_the_turn_has_passed_gets_the_turn() {
    let queues = Queues::new(&Settings::default(), Clock::system().unwrap());
    let Ok(Some(Entered::Turn(turn, _))) = queues.enter(&wish(), true, 0) else {
        panic!("nobody is there");
    };
    let Ok(Some(Entered::Place(mut place))) = queues.enter(&wish(), true, 0) else {
        panic!("somebody has the turn");
    };
    let waiter = queues.next(&wish().key).unwrap();
    drop(turn);
    queues.put_back(&wish().key, waiter);
    assert!(matches!(place.called().await, Some(Passed::Turn(_))));
}

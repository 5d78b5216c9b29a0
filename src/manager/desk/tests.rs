//! What the desk decides, row by row: the events so far, and what follows.

use std::cell::Cell;
use std::rc::Rc;

use super::*;

/// A caller, by its number.
#[derive(Debug)]
struct Caller {
    number: u32,
    has_left: Rc<Cell<bool>>,
    looks: Rc<Cell<u32>>,
}

impl Waits for Caller {
    fn has_left(&self) -> bool {
        self.looks.update(|looks| looks + 1);
        self.has_left.get()
    }
}

/// The desk, and one key.
struct Scene {
    desk: Desk<Caller, &'static str>,
    key: Key,
    left: Vec<Rc<Cell<bool>>>,
    /// How often the desk asked a caller whether it has left.
    looks: Rc<Cell<u32>>,
}

const SOUND: ReleasedHold = ReleasedHold {
    is_usable: true,
    is_used_up: false,
    gives_way: true,
};

impl Scene {
    fn new() -> Self {
        Self {
            desk: Desk::new(&Settings::default()),
            key: Key::parse("a").unwrap(),
            left: Vec::new(),
            looks: Rc::default(),
        }
    }

    fn enter(&mut self, now: u64) -> Admission {
        self.desk.enter(&self.key, false, now)
    }

    fn turn(&mut self, now: u64) -> u64 {
        let Admission::Turn(turn) = self.enter(now) else {
            panic!("the turn is not free");
        };
        turn
    }

    fn bypass(&mut self) -> u64 {
        let Admission::Turn(turn) = self.desk.enter(&self.key, true, 0) else {
            panic!("the desk is closed");
        };
        turn
    }

    /// So many callers come and wait.
    fn wait(&mut self, callers: u32) {
        for number in 0..callers {
            let has_left = Rc::new(Cell::new(false));
            self.left.push(Rc::clone(&has_left));
            let looks = Rc::clone(&self.looks);
            let caller = Caller {
                number,
                has_left,
                looks,
            };
            self.desk.wait(&self.key, caller);
        }
    }

    fn granted(&mut self, turn: u64) -> bool {
        self.desk.granted(&self.key, turn, |_| true)
    }

    fn ended(&mut self, turn: u64) -> Option<(u32, u64)> {
        let called = self.desk.ended(&self.key, turn, 0)?;
        Some((called.waiter.number, called.turn))
    }

    fn is_forgotten(&self) -> bool {
        self.desk.lines.is_empty() && self.desk.watched.is_empty() && self.desk.is_idle()
    }
}

#[test]
fn a_released_hold_is_handed_off_only_to_a_caller_that_fits_and_as_often_as_it_may() {
    let used_up = ReleasedHold {
        is_used_up: true,
        ..SOUND
    };
    let never = ReleasedHold {
        gives_way: false,
        ..used_up
    };
    let unusable = ReleasedHold {
        is_usable: false,
        ..SOUND
    };
    // (who waits, whether the first fits, how the hold ends) -> (is handed off, the next one gives
    // way)
    let rows = [
        (0, true, SOUND, false, None),
        (1, true, SOUND, true, Some(false)),
        (1, false, SOUND, false, Some(false)),
        (1, true, unusable, false, Some(false)),
        (1, true, used_up, false, Some(true)),
        (1, true, never, false, Some(false)),
    ];
    for (callers, fits, ending, is_handed_off, gives_way) in rows {
        let mut scene = Scene::new();
        let turn = scene.turn(0);
        assert!(scene.granted(turn));
        scene.wait(callers);
        let goes = (scene.desk).hands_off(&scene.key, turn, ending, |_| fits);
        assert_eq!(goes, is_handed_off, "{callers} {fits} {ending:?}");
        // Nobody lost its place by the question.
        let called = scene.desk.ended(&scene.key, turn, 0);
        assert_eq!(called.map(|called| called.gives_way), gives_way);
    }
}

#[test]
fn a_caller_that_was_asked_for_a_handoff_and_left_is_not_called() {
    let mut scene = Scene::new();
    let turn = scene.turn(0);
    scene.wait(2);
    assert!((scene.desk).hands_off(&scene.key, turn, SOUND, |_| true));
    scene.left[0].set(true);
    // The next one does not fit, and keeps its place.
    let next = scene.desk.next(&scene.key, turn, |_| false);
    assert!(next.is_none());
    let next = scene.desk.next(&scene.key, turn, |_| true);
    assert_eq!(next.map(|waiter| waiter.number), Some(1));
}

#[test]
fn a_hold_that_bypasses_the_queue_is_not_handed_off() {
    let mut scene = Scene::new();
    let (bypassing, turn) = (scene.bypass(), scene.turn(0));
    scene.wait(1);
    assert!(!(scene.desk).hands_off(&scene.key, bypassing, SOUND, |_| true));
    assert!((scene.desk).hands_off(&scene.key, turn, SOUND, |_| true));
}

#[test]
fn the_turn_goes_to_the_first_that_still_waits_and_then_to_whoever_comes() {
    let mut scene = Scene::new();
    let turn = scene.turn(0);
    assert_eq!(scene.enter(0), Admission::Wait);
    scene.wait(3);
    scene.left[0].set(true);
    let (number, second) = scene.ended(turn).unwrap();
    assert_eq!(number, 1);
    scene.left[2].set(true);
    assert!(scene.ended(second).is_none());
    assert!(scene.is_forgotten());
    scene.turn(0);
}

#[test]
fn a_turn_whose_caller_does_not_show_itself_passes_and_that_caller_bypasses_the_queue() {
    let mut scene = Scene::new();
    let first = scene.turn(0);
    let passes_at = scene.desk.ask_time;
    scene.wait(2);
    assert!(scene.desk.take_early());
    assert_eq!(scene.desk.plan(), Some(passes_at));
    assert!(scene.desk.unclaimed(passes_at - 1).is_empty());
    let [called] = <[_; 1]>::try_from(scene.desk.unclaimed(passes_at)).unwrap();
    assert_eq!(called.waiter.number, 0);
    assert_eq!(scene.desk.beside(&scene.key, first), 1);
    assert_eq!(scene.desk.beside(&scene.key, called.turn), 0);
    // Its end calls nobody.
    assert!(scene.ended(first).is_none());
    let (number, last) = scene.ended(called.turn).unwrap();
    assert_eq!(number, 1);
    assert!(scene.ended(last).is_none());
    assert!(scene.is_forgotten());
}

#[test]
fn a_key_whose_callers_have_left_is_not_waited_for() {
    let mut scene = Scene::new();
    scene.turn(0);
    scene.wait(2);
    scene.left[0].set(true);
    assert!(scene.desk.is_waited_for(&scene.key));
    scene.left[1].set(true);
    assert!(!scene.desk.is_waited_for(&scene.key));
}

#[test]
fn a_crowd_that_comes_and_leaves_one_by_one_is_not_searched_each_time() {
    const CROWD: u32 = 1_024;
    let mut scene = Scene::new();
    scene.turn(0);
    // As many as fit: the next one makes room.
    scene.wait(CROWD);
    for number in 1..CROWD {
        scene.left[number as usize].set(true);
        scene.wait(1);
    }
    assert!(scene.looks.get() <= 8 * CROWD, "{}", scene.looks.get());
}

#[test]
fn a_turn_passes_neither_while_its_caller_shows_itself_nor_while_a_hold_has_it() {
    let mut scene = Scene::new();
    let turn = scene.turn(0);
    scene.wait(1);
    let passes_at = scene.desk.ask_time;
    scene.desk.shown(&scene.key, turn, Duration::ZERO, 1);
    assert!(scene.desk.unclaimed(passes_at).is_empty());
    assert_eq!(scene.desk.plan(), Some(passes_at + 1));
    assert!(scene.granted(turn));
    assert!(scene.desk.unclaimed(NEVER - 1).is_empty());
    assert_eq!(scene.desk.plan(), None);
}

#[test]
fn whoever_comes_takes_the_turn_of_a_caller_that_stopped() {
    let mut scene = Scene::new();
    let stopped = scene.turn(0);
    let now = scene.desk.ask_time;
    assert_eq!(scene.enter(now - 1), Admission::Wait);
    let turn = scene.turn(now);
    // A grant of the one that comes late is its own, and says nothing about the turn.
    assert!(scene.granted(stopped));
    assert_eq!(scene.enter(2 * now), Admission::Turn(turn + 1));
}

#[test]
fn nothing_is_granted_while_runs_of_a_former_holder_are_left() {
    let mut scene = Scene::new();
    let former = scene.bypass();
    scene.desk.drains(&scene.key, former, "its runs");
    let turn = scene.turn(0);
    assert!(!scene.granted(turn));
    let are_left = |runs: &&str| *runs != "its runs";
    assert!(scene.desk.granted(&scene.key, turn, are_left));
    // The turn of the former holder ends when its runs have.
    assert!(scene.ended(former).is_none());
    assert!(scene.granted(turn));
    assert!(scene.ended(turn).is_none());
    assert!(scene.is_forgotten());
}

#[test]
fn a_withdrawal_is_in_progress_until_the_last_has_ended() {
    let mut scene = Scene::new();
    scene.desk.withdraws(&scene.key);
    scene.desk.withdraws(&scene.key);
    assert!(scene.desk.is_idle());
    scene.desk.withdrawn(&scene.key);
    assert!(scene.desk.is_withdrawing(&scene.key));
    scene.desk.withdrawn(&scene.key);
    assert!(!scene.desk.is_withdrawing(&scene.key));
    assert!(scene.is_forgotten());
}

#[test]
fn a_closed_desk_gives_those_that_wait_and_refuses_those_that_come() {
    let mut scene = Scene::new();
    let turn = scene.turn(0);
    scene.wait(2);
    let waiting = scene.desk.close();
    assert_eq!(waiting.len(), 2);
    assert_eq!(scene.enter(NEVER), Admission::Refused);
    assert!(!scene.desk.is_idle());
    assert!(scene.ended(turn).is_none());
    assert!(scene.is_forgotten());
}

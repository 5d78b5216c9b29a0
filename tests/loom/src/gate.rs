//! Close, drain, release, against a run that begins and commits (I5).

use loom::cell::UnsafeCell;

use crate::runs::{Gate, RunSlot};
use crate::{Arc, beside, every_order};

struct Hold {
    gate: Gate,
    slots: Vec<RunSlot>,
    /// What the lock protects. loom fails the model if two threads touch it without an order
    /// between them.
    resource: UnsafeCell<()>,
}

fn hold(slots: usize) -> Arc<Hold> {
    Arc::new(Hold {
        gate: Gate::open(),
        slots: (0..slots).map(|_| RunSlot::at_rest()).collect(),
        resource: UnsafeCell::new(()),
    })
}

impl Hold {
    /// A run as the executor makes it: enter, work, look at the gate once more, commit, leave.
    /// True if its end may be waited for.
    fn run(&self, slot: usize) -> bool {
        if self.slots[slot].enter(&self.gate) && !self.gate.is_closed() {
            self.resource.with_mut(|_| ());
        }
        self.slots[slot].leave(&self.gate)
    }

    fn is_drained(&self) -> bool {
        self.slots.iter().all(RunSlot::is_at_rest)
    }

    /// The next holder, to whom the release has given the resource.
    fn hand_over(&self) {
        self.resource.with_mut(|_| ());
    }
}

#[test]
fn nothing_commits_after_the_release() {
    every_order(|| {
        let hold = hold(1);
        let worker = beside(&hold, |hold| hold.run(0));
        hold.gate.close();
        if hold.is_drained() {
            hold.hand_over();
        }
        worker.join().unwrap();
    });
}

#[test]
fn no_run_of_any_clone_commits_after_the_release() {
    every_order(|| {
        let hold = hold(2);
        let workers = [0, 1].map(|slot| {
            beside(&hold, move |hold| {
                if hold.slots[slot].enter(&hold.gate) {
                    // A shared look, so that two runs may collide with the release only.
                    assert!(!hold.slots[slot].is_at_rest());
                    hold.resource.with(|_| ());
                }
                hold.slots[slot].leave(&hold.gate);
            })
        });
        hold.gate.close();
        if hold.is_drained() {
            hold.hand_over();
        }
        for worker in workers {
            worker.join().unwrap();
        }
    });
}

#[test]
fn a_run_that_begins_after_the_close_is_refused() {
    every_order(|| {
        let hold = hold(1);
        let ender = beside(&hold, |hold| hold.gate.close());
        let early = hold.slots[0].enter(&hold.gate);
        hold.slots[0].leave(&hold.gate);
        ender.join().unwrap();
        let late = hold.slots[0].enter(&hold.gate);
        hold.slots[0].leave(&hold.gate);
        assert!(!late, "begun after the close; the run before it: {early}");
        assert!(hold.is_drained());
    });
}

#[test]
fn a_caller_that_waits_for_the_drain_is_notified_of_the_last_run() {
    every_order(|| {
        let hold = hold(1);
        let worker = beside(&hold, |hold| hold.run(0));
        hold.gate.close();
        let drained = hold.is_drained();
        let reported = worker.join().unwrap();
        assert!(
            drained || reported,
            "a run is waited for that notifies nobody of its end"
        );
        assert!(hold.is_drained());
    });
}

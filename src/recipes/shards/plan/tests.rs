//! A member's decisions, step by step.

use super::*;

const TTL: Duration = Duration::from_secs(6);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A plan at a time, and what it ordered.
struct Desk {
    plan: Plan,
    now: Duration,
}

impl Desk {
    fn new() -> Self {
        Self {
            plan: Plan::new(TTL),
            now: millis(0),
        }
    }

    fn want(&mut self, target: impl IntoIterator<Item = u32>) -> Vec<Order> {
        let target = target.into_iter().collect();
        let mut orders = self.plan.want(target, self.now);
        orders.extend(self.plan.orders(self.now));
        orders
    }

    /// The rounds of what is asked for now.
    fn asked(&mut self, target: impl IntoIterator<Item = u32>) -> Vec<(u32, u64)> {
        let asked = self.want(target).into_iter().map(|order| match order {
            Order::Ask(shard, round) => (shard, round),
            other => panic!("{other:?}"),
        });
        asked.collect()
    }

    fn owning(target: impl IntoIterator<Item = u32>) -> Self {
        let mut desk = Self::new();
        for (shard, round) in desk.asked(target) {
            assert!(desk.plan.granted(shard, round, desk.now));
        }
        desk
    }

    fn after(&mut self, span: Duration) -> Vec<Order> {
        self.now += span;
        self.plan.orders(self.now)
    }

    fn looked(&mut self, shard: u32, is_waited_for: bool) {
        self.plan.looked(shard, is_waited_for, self.now);
    }

    fn ended(&mut self, shard: u32, how: WorkEnd) -> Option<Order> {
        self.plan.ended(shard, how, self.now)
    }
}

#[test]
fn a_member_asks_for_its_target_and_for_nothing_else() {
    let mut desk = Desk::new();
    assert_eq!(desk.after(TTL), []);
    assert_eq!(desk.asked([3, 5]), [(3, 1), (5, 2)]);
    assert_eq!(desk.after(TTL), [], "it asks once");
    assert_eq!(desk.want([3, 5, 8]), [Order::Ask(8, 3)]);
}

#[test]
fn what_is_not_wanted_any_more_is_withdrawn() {
    let mut desk = Desk::new();
    let asked = desk.asked([1, 2]);
    assert_eq!(desk.want([2]), [Order::Withdraw(1)]);
    assert!(!desk.plan.granted(1, asked[0].1, desk.now), "it comes late");
    assert!(desk.plan.waits(2, asked[1].1));
    assert_eq!(desk.want([]), [Order::Withdraw(2)]);
    // A grant of an earlier round is not one of this round.
    let again = desk.asked([2]);
    assert!(!desk.plan.granted(2, asked[1].1, desk.now));
    assert!(desk.plan.granted(2, again[0].1, desk.now));
}

#[test]
fn few_are_asked_for_at_once_and_those_of_others_take_no_room() {
    let mut desk = Desk::new();
    let first = desk.asked(0..1000);
    assert_eq!(first.len(), MOST_STARTS);
    assert_eq!(desk.after(TTL), []);
    for &(shard, round) in &first {
        assert!(desk.plan.waits(shard, round));
    }
    let next = desk.after(millis(0));
    assert_eq!(next.len(), MOST_STARTS);
    assert_eq!(next[0], Order::Ask(8, 9));
    // What is withdrawn and what fails leaves room.
    assert_eq!(desk.want(128..1000).len(), 3 * MOST_STARTS);
    desk.plan.failed(128, 17, desk.now);
    assert_eq!(desk.after(millis(0)), [Order::Ask(136, 25)]);
    assert_eq!(desk.after(FIRST_PAUSE), [], "no room for what has rested");
}

#[test]
fn a_shard_is_kept_until_another_member_waits_for_it() {
    let mut desk = Desk::owning([1, 2]);
    assert_eq!(desk.want([2]), [Order::Look(1)]);
    assert_eq!(desk.after(TTL), [], "the check is in progress");
    desk.looked(1, false);
    assert_eq!(desk.plan.next_at(), Some(desk.now + FIRST_PAUSE));
    assert_eq!(desk.after(FIRST_PAUSE), [Order::Look(1)]);
    desk.looked(1, false);
    assert_eq!(desk.after(FIRST_PAUSE), [], "the pause grows");
    for _ in 0..20 {
        assert_eq!(desk.after(TTL / 6), [Order::Look(1)]);
        desk.looked(1, false);
    }
    assert_eq!(desk.after(TTL / 6), [Order::Look(1)]);
    desk.looked(1, true);
    assert_eq!(desk.after(millis(0)), [Order::Leave(1)]);
    assert_eq!(desk.after(TTL), []);
    assert_eq!(desk.ended(1, WorkEnd::Left), None);
    assert_eq!(desk.after(TTL), [], "it is not wanted");
}

#[test]
fn a_shard_that_is_wanted_again_stays() {
    let mut desk = Desk::owning([1]);
    assert_eq!(desk.want([]), [Order::Look(1)]);
    assert_eq!(desk.want([1]), []);
    desk.looked(1, true);
    assert_eq!(desk.after(TTL), [], "whoever waits is not up to date");
    // It was asked to leave: then it has to be asked for again.
    assert_eq!(desk.want([]), [Order::Look(1)]);
    desk.looked(1, true);
    assert_eq!(desk.after(millis(0)), [Order::Leave(1)]);
    assert_eq!(desk.want([1]), []);
    desk.ended(1, WorkEnd::Left);
    assert_eq!(desk.after(millis(0)), [Order::Ask(1, 2)]);
}

#[test]
fn few_are_checked_at_once() {
    let mut desk = Desk::owning(0..MOST_STARTS as u32);
    for more in [2, 3] {
        for (shard, round) in desk.asked(0..more * MOST_STARTS as u32) {
            assert!(desk.plan.granted(shard, round, desk.now));
        }
    }
    assert_eq!(desk.want([]).len(), MOST_LOOKS);
    desk.looked(0, false);
    assert_eq!(desk.after(millis(0)), [Order::Look(8)]);
}

#[test]
fn work_that_fails_begins_again_later_and_later() {
    let mut desk = Desk::owning([1]);
    let mut pause = FIRST_PAUSE;
    for round in 2..20 {
        desk.ended(1, WorkEnd::Failed);
        assert_eq!(desk.after(pause - millis(1)), []);
        assert_eq!(desk.after(millis(1)), [Order::Ask(1, round)]);
        assert!(desk.plan.granted(1, round, desk.now));
        pause = (2 * pause).min(TTL);
    }
    desk.now += TTL;
    desk.ended(1, WorkEnd::Failed);
    assert_eq!(desk.after(FIRST_PAUSE), [Order::Ask(1, 20)], "it went well");
    desk.plan.failed(1, 20, desk.now);
    assert_eq!(desk.after(2 * FIRST_PAUSE), [Order::Ask(1, 21)]);
    assert!(desk.plan.granted(1, 21, desk.now));
    desk.ended(1, WorkEnd::Finished);
    assert_eq!(desk.after(TTL - millis(1)), []);
    assert_eq!(desk.after(millis(1)), [Order::Ask(1, 22)]);
}

#[test]
fn a_rest_ends_when_it_is_over_and_not_with_a_check_that_was_due() {
    let mut desk = Desk::owning([1]);
    assert_eq!(desk.want([]), [Order::Look(1)]);
    desk.looked(1, false);
    desk.ended(1, WorkEnd::Finished);
    assert_eq!(desk.want([1]), []);
    assert_eq!(desk.after(TTL - millis(1)), []);
    assert_eq!(desk.after(millis(1)), [Order::Ask(1, 2)]);
}

#[test]
fn a_member_that_leaves_keeps_its_shards_for_one_ttl_at_most() {
    let mut desk = Desk::owning([1, 2]);
    assert_eq!(desk.want([1, 2, 3]), [Order::Ask(3, 3)]);
    assert_eq!(desk.plan.leave(desk.now), [Order::Withdraw(3)]);
    assert_eq!(desk.after(millis(0)), [Order::Look(1), Order::Look(2)]);
    desk.looked(1, true);
    desk.looked(2, false);
    assert_eq!(desk.after(millis(0)), [Order::Leave(1)]);
    desk.ended(1, WorkEnd::Left);
    assert_eq!(desk.want([1, 2]), [], "it has left");
    assert!(!desk.plan.is_done());
    assert_eq!(desk.after(TTL - millis(1)), [Order::Look(2)]);
    desk.looked(2, false);
    assert_eq!(desk.plan.next_at(), Some(desk.now + millis(1)));
    assert_eq!(desk.after(millis(1)), [Order::Leave(2)]);
    assert!(!desk.plan.is_done(), "its work goes on");
    desk.ended(2, WorkEnd::Failed);
    assert!(desk.plan.is_done());
}

#[test]
fn a_member_that_leaves_waits_for_nobody_where_nobody_is() {
    let mut desk = Desk::owning([1]);
    assert_eq!(desk.plan.leave(desk.now), []);
    assert_eq!(desk.after(millis(1)), [Order::Look(1)]);
    desk.plan.is_alone(desk.now);
    assert_eq!(desk.after(millis(0)), [Order::Leave(1)]);
    desk.looked(1, true);
    assert_eq!(desk.after(millis(0)), [], "it was asked to leave");
    desk.ended(1, WorkEnd::Left);
    assert!(desk.plan.is_done());
}

/// What moves, and when: [`Pace`].
#[test]
fn the_next_shards_leave_when_others_have_taken_these() {
    let mut desk = Desk::owning(0..4);
    assert_eq!(desk.want([]).len(), 4);
    (0..4).for_each(|shard| desk.looked(shard, true));
    assert_eq!(desk.after(millis(0)), [Order::Leave(0), Order::Leave(1)]);
    assert_eq!(desk.ended(0, WorkEnd::Left), Some(Order::Follow(0)));
    assert_eq!(desk.after(millis(0)), [], "nobody has taken it");
    // It is not to move any more, so another one does.
    assert_eq!(desk.want([2]), []);
    desk.plan.followed(0);
    assert_eq!(desk.after(millis(0)), [Order::Leave(3)]);
    assert_eq!(desk.ended(1, WorkEnd::Left), None, "no other waits for it");
}

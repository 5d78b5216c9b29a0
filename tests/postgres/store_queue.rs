//! The queue of a key: to whom it is handed over, and for how long.

use std::time::Duration;

use leasehold::postgres::PostgresStore;
use leasehold::store::{Acquired, Claim, Queue, Store};

use crate::claims::{claim, claim_for, grant, is_busy, release};
use crate::server::until;
use crate::store_world::Locks;

/// Longer than any test waits.
const LONG: Duration = Duration::from_secs(600);

fn patient(key: &str) -> Claim {
    let mut claim = claim(key);
    claim.place_ttl = LONG;
    claim
}

/// For how many seconds the places of a key last, in their order.
fn places(locks: &Locks, key: &str) -> Vec<i64> {
    let left = locks.psql(&format!(
        "SELECT ceil(extract(epoch FROM ends - clock_timestamp()))::bigint FROM leasehold.claim \
         WHERE key = '{key}' AND token IS NULL ORDER BY place"
    ));
    left.lines().map(|left| left.parse().unwrap()).collect()
}

/// After which time a claim that has to wait is to ask again.
async fn left(store: &PostgresStore, claim: &Claim) -> Duration {
    match store.acquire(claim).await.unwrap() {
        Acquired::Busy { remaining } => remaining.unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_release_cuts_short_the_place_of_the_next_waiter_alone() {
    let locks = Locks::open().await;
    let store = locks.store("").await;
    assert_eq!(store.capability().queue, Queue::Handover);
    let held = grant(&store, &claim("a")).await;
    for _ in 0..2 {
        assert!(is_busy(&store, &patient("a")).await);
    }
    assert!(places(&locks, "a").iter().all(|left| *left > 60));
    release(&store, &held).await;
    let [next, last] = places(&locks, "a")[..] else {
        panic!("two places");
    };
    assert!(next <= 1 && last > 60, "{next} {last}");
}

/// Who polls may look again much later than a second after the release.
#[tokio::test]
async fn a_release_leaves_the_place_of_a_waiter_that_hears_no_messages() {
    let locks = Locks::open().await;
    let store = locks.store("").await;
    let held = grant(&store, &claim("a")).await;
    let owner = "00000000-0000-0000-0000-000000000001";
    let ask = format!(
        "SELECT answer FROM leasehold.ask('a', '{owner}', 'x', 10000, 600000, 'a poller', false)"
    );
    assert_eq!(locks.psql(&ask), "busy");
    release(&store, &held).await;
    let later = patient("a");
    assert!(is_busy(&store, &later).await);
    assert!(places(&locks, "a").iter().all(|left| *left > 60));
    assert_eq!(locks.psql(&ask), "granted");
}

#[tokio::test]
async fn whoever_asks_first_after_a_holder_died_hands_over_to_the_next() {
    let locks = Locks::open().await;
    let store = locks.store("").await;
    let _dead = grant(&store, &claim_for("a", Duration::from_secs(30))).await;
    let (gone, last) = (patient("a"), patient("a"));
    assert!(is_busy(&store, &gone).await);
    assert!(is_busy(&store, &last).await);
    // The holder's time is over, at a moment that no stall of this machine can move.
    locks.psql("UPDATE leasehold.claim SET ends = clock_timestamp() WHERE token IS NOT NULL");
    // Only its requests move anything: the place of the first lasts for minutes, unless it was cut
    // short.
    until("the dead place is over", async || {
        !is_busy(&store, &last).await
    })
    .await;
}

/// A crowd that checks once a second whether the first has asked would keep it from asking.
#[tokio::test]
async fn whether_the_first_used_its_turn_is_checked_by_one_waiter_after_the_other() {
    let locks = Locks::open().await;
    let store = locks.store("").await;
    let lasting = || {
        let mut claim = claim_for("a", Duration::from_secs(30));
        claim.place_ttl = LONG;
        claim
    };
    let held = grant(&store, &lasting()).await;
    let [first, next, last] = [lasting(), lasting(), lasting()];
    for waits in [&first, &next, &last] {
        assert!(is_busy(&store, waits).await);
    }
    // Its turn lasts, so that no stall of this machine ends it.
    release(&store, &held).await;
    locks
        .psql("UPDATE leasehold.claim SET ends = clock_timestamp() + interval '20 s' WHERE called");
    // The last asks before the next one, so its answer is a later time whatever the machine does.
    let [last, next] = [left(&store, &last).await, left(&store, &next).await];
    assert!(next <= Duration::from_secs(20), "{next:?}");
    assert!(last >= next + Duration::from_secs(1), "{last:?} {next:?}");
    release(&store, &grant(&store, &first).await).await;
}

#[tokio::test]
async fn each_waiter_that_died_delays_those_behind_it_by_a_second() {
    let locks = Locks::open().await;
    let store = locks.store("").await;
    let lasting = || {
        let mut claim = claim_for("a", Duration::from_secs(30));
        claim.place_ttl = LONG;
        claim
    };
    let held = grant(&store, &lasting()).await;
    let [gone, gone_too, last] = [lasting(), lasting(), lasting()];
    for waits in [&gone, &gone_too, &last] {
        assert!(is_busy(&store, waits).await);
    }
    release(&store, &held).await;
    // The time after which it is to ask again passes.
    for dead in [2, 1] {
        let pause = left(&store, &last).await;
        assert!(
            pause < Duration::from_secs(dead + 1),
            "{pause:?} for {dead}"
        );
        locks.psql("UPDATE leasehold.claim SET ends = clock_timestamp() WHERE called");
    }
    release(&store, &grant(&store, &last).await).await;
}

/// Whoever is far behind is called, and asks rarely. Of those before it who died, nobody asks when
/// the holder's time is over.
#[tokio::test]
async fn waiters_that_died_are_not_counted_among_those_who_are_before() {
    let locks = Locks::open().await;
    let store = locks.store("").await;
    let _held = grant(&store, &claim_for("a", Duration::from_secs(30))).await;
    let crowd = |first: u32, last: u32, ends: &str| {
        locks.psql(&format!(
            "INSERT INTO leasehold.claim SELECT gen_random_uuid(), 'a', n, 'x', NULL, clock_timestamp() + interval '{ends}', '10 s',
               'a', true, false FROM generate_series({first}, {last}) AS n"
        ));
    };
    let asked = async || match store.acquire(&patient("a")).await.unwrap() {
        Acquired::Busy { remaining } => remaining,
        other => panic!("{other:?}"),
    };
    crowd(1, 500, "-1 s");
    // Each attempt deletes some.
    let dead = "SELECT count(*) FROM leasehold.claim WHERE ends < clock_timestamp()";
    let mut last = 500;
    while last > 0 {
        assert_ne!(asked().await, None);
        let left = locks.psql(dead).parse().unwrap();
        assert!(left < last, "{left} of {last}");
        last = left;
    }
    crowd(600, 630, "1 h");
    assert_eq!(asked().await, None);
}

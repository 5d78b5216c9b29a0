//! A server's wall clock that is set back or ahead: what it grants, for how long, by which token.

use std::cell::Cell;
use std::time::Duration;

use leasehold::fence::Fence;
use leasehold::postgres::{PgFence, PostgresStore};
use leasehold::store::{Acquired, Claim, Grant, LockMode, Renewed, Revoke, Share, Store};

use crate::claims::{claim_for, grant, is_busy, key, release};
use crate::server::{PgServer, breathe, until};
use crate::world::{ACCOUNTS, hold_of, take_ten};

const HOUR: Duration = Duration::from_secs(3_600);
/// Of any client of these servers: what nobody ends is over within this time.
const MOST: Duration = Duration::from_secs(3);
const TTL: Duration = Duration::from_secs(2);

struct World {
    server: PgServer,
    store: PostgresStore,
}

impl World {
    async fn start() -> Self {
        let server = PgServer::start_with_clock(&["fsync=on"]);
        let store = connect(&server).await;
        Self { server, store }
    }

    /// The grant. Whoever has to wait for it is never said to wait for longer than any lease lasts.
    async fn is_free_in_time(&self, ours: &Claim) -> Grant {
        let granted = Cell::new(None);
        until("it is free", async || {
            match self.store.acquire(ours).await.unwrap() {
                Acquired::Granted(held) => {
                    granted.set(Some(held));
                    return true;
                }
                Acquired::Busy { remaining } => {
                    assert!(remaining.is_none_or(|left| left <= MOST), "{remaining:?}");
                }
                Acquired::NotReady { retry_after } => {
                    assert!(retry_after <= MOST, "{retry_after:?}");
                }
                other => panic!("{other:?}"),
            }
            false
        })
        .await;
        granted.take().unwrap()
    }
}

async fn connect(server: &PgServer) -> PostgresStore {
    let query = "create=auto&max_ttl=3s&timeout_millis=20000";
    PostgresStore::connect(&format!("{}?{query}", server.url()))
        .await
        .unwrap()
}

fn short(name: &str, mode: LockMode) -> Claim {
    let mut claim = claim_for(name, TTL);
    claim.mode = mode;
    claim
}

#[tokio::test]
async fn a_hold_is_renewed_and_ended_after_the_clock_was_set_back_and_tokens_grow() {
    let world = World::start().await;
    let (old, first) = (
        &world.store,
        grant(&world.store, &claim_for("a", TTL)).await,
    );
    world.server.clock().behind(HOUR);
    let new = connect(&world.server).await;
    let mut last = first;
    for store in [old, &new, old] {
        let renewed = store.renew(std::slice::from_ref(&last)).await;
        assert!(
            matches!(&renewed[..], [Renewed::Extended(proof)] if proof.ttl <= TTL),
            "{renewed:?}"
        );
        let again = grant(store, &last.claim).await;
        assert!(
            again.token == last.token && again.proof.ttl <= TTL,
            "{again:?}"
        );
        release(store, &last).await;
        let next = grant(store, &claim_for("a", TTL)).await;
        assert!(next.token > last.token);
        last = next;
    }
}

/// A step forward ends leases early, which no store can prevent that counts by its clock.
#[tokio::test]
async fn a_clock_that_was_set_ahead_ends_holds_and_tokens_grow_when_it_is_right_again() {
    let world = World::start().await;
    let first = grant(&world.store, &claim_for("a", TTL)).await;
    world.server.clock().ahead(HOUR);
    let renewed = world.store.renew(std::slice::from_ref(&first)).await;
    assert!(matches!(renewed[..], [Renewed::Gone]), "{renewed:?}");
    let second = grant(&world.store, &claim_for("a", TTL)).await;
    assert!(second.token > first.token && second.proof.ttl <= TTL);
    world.server.clock().right();
    let third = world.is_free_in_time(&claim_for("a", TTL)).await;
    assert!(third.token > second.token);
}

#[tokio::test]
async fn a_holder_that_died_keeps_a_key_for_max_ttl_at_most_after_the_clock_was_set_back() {
    for mode in [LockMode::Exclusive, LockMode::Write, LockMode::Read] {
        let world = World::start().await;
        let _dead = grant(&world.store, &short("a", mode)).await;
        world.server.clock().behind(HOUR);
        let _held = world.is_free_in_time(&short("a", LockMode::Write)).await;
    }
}

#[tokio::test]
async fn a_waiter_that_died_keeps_a_key_for_ten_minutes_at_most_after_the_clock_was_set_back() {
    // One that hears messages, and one that hears none and so keeps its place when it is called.
    for hears in [true, false] {
        let world = World::start().await;
        let held = grant(&world.store, &claim_for("a", TTL)).await;
        for _ in 0..2 {
            let ask = format!(
                "SELECT answer \
                 FROM leasehold.ask('a', gen_random_uuid(), 'x', 2000, 2000, 'dead', {hears})"
            );
            assert_eq!(world.server.psql(&ask), "busy");
        }
        world.server.clock().behind(HOUR);
        release(&world.store, &held).await;
        assert!(is_busy(&world.store, &claim_for("a", TTL)).await);
        let ends = "clock_timestamp() + interval '10 min' FROM leasehold.claim";
        let longest = format!("SELECT max(ends) <= {ends}");
        let first = format!("SELECT ends <= {ends} ORDER BY place LIMIT 1");
        for question in [&first, &longest] {
            // The second of those that hear is called when the first is over.
            if !hears || *question == first {
                assert_eq!(world.server.psql(question), "t", "{hears}");
            }
        }
    }
}

#[tokio::test]
async fn a_key_that_was_revoked_is_free_within_its_ttl_after_the_clock_was_set_back() {
    for is_set_first in [true, false] {
        let world = World::start().await;
        let _held = grant(&world.store, &claim_for("a", TTL)).await;
        if is_set_first {
            world.server.clock().behind(HOUR);
        }
        let revoked = world.store.revoke(&key("a"), Revoke::AfterTtl).await;
        let text = format!("{revoked:?}");
        assert!(!text.contains("360"), "{text}");
        world.server.clock().behind(HOUR);
        let _held = world.is_free_in_time(&claim_for("a", TTL)).await;
    }
}

#[tokio::test]
async fn a_rest_is_no_longer_than_it_was_asked_for_after_the_clock_was_set_back() {
    let world = World::start().await;
    let held = grant(&world.store, &claim_for("a", TTL)).await;
    drop(world.store.rest(&held, Duration::from_secs(1)).await);
    world.server.clock().behind(HOUR);
    let _held = world.is_free_in_time(&claim_for("a", TTL)).await;
    // A long one stays what it was.
    let held = grant(&world.store, &claim_for("b", TTL)).await;
    drop(world.store.rest(&held, 10 * HOUR).await);
    world.server.clock().right();
    assert!(is_busy(&world.store, &claim_for("b", TTL)).await);
    let info = world.store.inspect(&key("b")).await.unwrap().unwrap();
    let left = info.remaining.unwrap();
    assert!(left > 8 * HOUR, "{left:?}");
}

#[tokio::test]
async fn a_downgrade_after_the_clock_was_set_back_is_no_longer_than_its_ttl() {
    let world = World::start().await;
    let held = grant(&world.store, &short("a", LockMode::Write)).await;
    world.server.clock().behind(HOUR);
    let read = world.store.downgrade(&held).await.unwrap();
    assert!(read.proof.ttl <= TTL, "{read:?}");
}

#[tokio::test]
async fn a_quarantine_that_was_begun_by_a_clock_that_was_ahead_lasts_no_longer_than_max_ttl() {
    let world = World::start().await;
    world.server.clock().ahead(HOUR);
    // As after a promotion.
    world
        .server
        .psql("UPDATE leasehold.lock_meta SET timeline = 'FFFFFFFF'");
    assert!(is_busy(&world.store, &claim_for("a", TTL)).await);
    world.server.clock().right();
    let _held = world.is_free_in_time(&claim_for("a", TTL)).await;
}

#[tokio::test]
async fn a_fence_goes_on_with_newer_tokens_wherever_the_clock_goes() {
    let world = World::start().await;
    world.server.psql(ACCOUNTS);
    let fence = PgFence::connect(&world.server.url()).await.unwrap();
    fence.create_schema().await.unwrap();
    let mut left = 100;
    for step in 0..3 {
        match step {
            1 => world.server.clock().behind(HOUR),
            2 => world.server.clock().ahead(HOUR),
            _ => {}
        }
        let held = grant(&world.store, &claim_for("a", TTL)).await;
        fence.raise(&key("a"), held.token).await.unwrap();
        left -= 10;
        let taken = take_ten(&hold_of(held.token).executor(), &fence).await;
        assert_eq!(taken.unwrap(), left);
        release(&world.store, &held).await;
    }
}

/// The first of several shares is renewed, so it does not show that the clock was put back.
#[tokio::test]
async fn a_dead_share_beside_one_that_is_renewed_keeps_its_permits_for_max_ttl_at_most() {
    let world = World::start().await;
    let share = |permits| {
        let mut claim = short("a", LockMode::Read);
        claim.share = Some(Share { permits, of: 3 });
        claim
    };
    let kept = grant(&world.store, &share(1)).await;
    let _dead = grant(&world.store, &share(2)).await;
    world.server.clock().behind(HOUR);
    let renewals = async {
        loop {
            world.store.renew(std::slice::from_ref(&kept)).await;
            breathe().await;
        }
    };
    let next = share(2);
    tokio::select! {
        _ = world.is_free_in_time(&next) => {}
        () = renewals => {}
    }
}

//! Locks in a real PostgreSQL: what they leave behind, how waiters are woken, and how tokens grow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::postgres::PostgresStore;
use leasehold::store::{Acquired, LockMode, Renewed, Store};

use crate::claims::{claim, grant, is_busy, queued, release};
use crate::server::PgBouncer;
use crate::store_world::{Locks, manager};

#[tokio::test]
async fn a_free_key_leaves_no_row() {
    let locks = Locks::open().await;
    let before = locks.psql("SELECT count(*) FROM leasehold.token");
    let ours = manager(&locks.url(""), |_| {}).await;
    for number in 0..20 {
        let guard = ours.lock(format!("k{number}")).acquire().await.unwrap();
        let _ = guard.release().await;
    }
    let left = "SELECT (SELECT count(*) FROM leasehold.claim) + (SELECT count(*) FROM leasehold.withdrawn)";
    assert_eq!(locks.psql(left), "0");
    assert_eq!(locks.psql("SELECT count(*) FROM leasehold.token"), before);
}

#[tokio::test]
async fn what_is_over_and_not_asked_for_again_is_deleted() {
    let locks = Locks::open().await;
    let store = locks.store("").await;
    let _dead = grant(&store, &claim("a")).await;
    store.withdraw(&claim("b")).await.unwrap();
    locks.psql("UPDATE leasehold.claim SET ends = '-infinity'; UPDATE leasehold.withdrawn SET until = '-infinity'");
    // It was done less than an hour ago.
    locks.store("").await;
    assert_eq!(locks.psql("SELECT count(*) FROM leasehold.claim"), "1");
    locks.psql("UPDATE leasehold.lock_meta SET swept_at = '-infinity'");
    locks.store("").await;
    assert_eq!(locks.psql("SELECT count(*) FROM leasehold.claim"), "0");
    assert_eq!(locks.psql("SELECT count(*) FROM leasehold.withdrawn"), "0");
}

/// Without a message the waiter would look again when the holder's time is over, and its patience
/// ends before that.
#[tokio::test]
async fn a_waiter_is_woken_by_the_release() {
    let locks = Locks::open().await;
    let pooler = PgBouncer::before(locks.server());
    let listen = format!("listen=127.0.0.1:{}", locks.server().port());
    for url in [locks.url(""), locks.url_at(pooler.port(), &listen)] {
        let patient = |settings: &mut leasehold::Settings| {
            settings.ttl = Duration::from_secs(30);
            settings.max_poll_interval = Duration::from_secs(60);
            settings.wait = Duration::from_secs(20);
        };
        let [ours, theirs] = [manager(&url, patient).await, manager(&url, patient).await];
        assert!(ours.capability().wakes);
        let held = ours.lock("a").acquire().await.unwrap();
        let waiting = tokio::spawn(async move { theirs.lock("a").acquire().await.map(drop) });
        let places = "SELECT count(*) FROM leasehold.claim WHERE token IS NULL";
        while locks.psql(places) == "0" {
            crate::server::breathe().await;
        }
        let _ = held.release().await;
        waiting.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn behind_a_pooler_no_message_arrives_and_callers_poll() {
    let locks = Locks::open().await;
    let pooler = PgBouncer::before(locks.server());
    let url = locks.url_at(pooler.port(), "");
    let inside = Arc::new(AtomicU32::new(0));
    let mut callers = Vec::new();
    for _ in 0..2 {
        let locks = manager(&url, |settings| {
            settings.max_poll_interval = Duration::from_millis(20);
        })
        .await;
        assert!(!locks.capability().wakes);
        for _ in 0..2 {
            let (locks, inside) = (locks.clone(), Arc::clone(&inside));
            callers.push(tokio::spawn(async move {
                for _ in 0..5 {
                    let guard = locks.lock("turns").acquire().await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    let _ = guard.release().await;
                }
            }));
        }
    }
    for caller in callers {
        caller.await.unwrap();
    }
}

#[tokio::test]
async fn tokens_grow_while_the_servers_clock_is_put_back_and_after_the_table_was_lost() {
    let locks = Locks::open().await;
    let store = locks.store("").await;
    let first = grant(&store, &claim("a")).await;
    release(&store, &first).await;
    // As if the clock had been two hours ahead when the last token was given.
    locks.psql("UPDATE leasehold.token SET last = last + 7200000000");
    let mut last = first.token.number() + 7_200_000_000;
    for _ in 0..3 {
        let held = grant(&store, &claim("a")).await;
        assert_eq!(held.token.number(), last + 1);
        last = held.token.number();
        release(&store, &held).await;
    }
    locks.psql("UPDATE leasehold.token SET last = 0");
    let held = grant(&store, &claim("a")).await;
    assert!(held.token > first.token);
}

#[tokio::test]
async fn many_holds_are_renewed_in_one_statement_and_those_that_are_gone_are_named() {
    let locks = Locks::open().await;
    let store = locks.store("").await;
    let mut held = Vec::new();
    for number in 0..30 {
        held.push(grant(&store, &claim(&format!("k{number}"))).await);
    }
    release(&store, &held[7]).await;
    locks.psql("UPDATE leasehold.claim SET ends = clock_timestamp() WHERE key = 'k9'");
    let before = locks.psql("SELECT min(ends) FROM leasehold.claim WHERE key NOT IN ('k9')");
    let answers = store.renew(&held).await;
    for (number, answer) in answers.iter().enumerate() {
        let is_gone = matches!(answer, Renewed::Gone);
        let is_extended =
            matches!(answer, Renewed::Extended(proof) if proof.ttl == held[0].claim.ttl);
        assert_eq!(
            (is_gone, is_extended),
            ([7, 9].contains(&number), ![7, 9].contains(&number))
        );
    }
    let shortest =
        format!("SELECT min(ends) > '{before}' FROM leasehold.claim WHERE key NOT IN ('k9')");
    assert_eq!(locks.psql(&shortest), "t");
}

/// The first of those who wait is notified, and only it; where readers wait at the head, all of
/// these.
#[tokio::test]
async fn a_release_notifies_only_those_who_can_enter() {
    let locks = Locks::open().await;
    let store = locks.store("").await;
    let held = grant(&store, &claim("a")).await;
    let waiters = [
        queued("a", LockMode::Read),
        queued("a", LockMode::Read),
        queued("a", LockMode::Write),
        claim("a"),
    ];
    let mut hints = Vec::new();
    for waiter in &waiters {
        assert!(is_busy(&store, waiter).await);
        hints.push(store.subscribe(waiter).await.unwrap());
    }
    release(&store, &held).await;
    let writer = hints.split_off(2);
    for hint in hints {
        hint.await;
    }
    // Messages come in the order in which they were sent, so the last of the readers would be
    // behind theirs.
    for hint in writer {
        assert!(futures_util::FutureExt::now_or_never(hint).is_none());
    }
    for reader in &waiters[..2] {
        let _held = grant(&store, reader).await;
    }
    for later in &waiters[2..] {
        assert!(is_busy(&store, later).await);
    }
}

#[tokio::test]
async fn a_renewal_that_hangs_delays_nobody_and_keeps_its_hold() {
    let locks = Locks::open().await;
    let store = locks.store("").await;
    let held = grant(&store, &claim("a")).await;
    locks.psql("UPDATE leasehold.claim SET ends = clock_timestamp()");
    // A batch of renewals locks the row of a hold whose time is just over.
    let renewing = crate::world::connect(&locks.url("").replace('?', "")).await;
    renewing
        .batch_execute("BEGIN; SELECT FROM leasehold.claim FOR NO KEY UPDATE")
        .await
        .unwrap();
    for _ in 0..3 {
        let asked = store.acquire(&claim("a")).await.unwrap();
        assert!(matches!(asked, Acquired::Busy { .. }), "{asked:?}");
    }
    renewing.batch_execute("ROLLBACK").await.unwrap();
    let waiters = PostgresStore::list(&store, "").await.unwrap();
    assert_eq!(waiters, [], "its time is over");
    assert!(matches!(store.renew(&[held]).await[..], [Renewed::Gone]));
}

/// A claim that is answered that the server grants nothing yet has no place, and listens all the
/// same.
#[tokio::test]
async fn a_claim_that_listened_before_it_had_a_place_holds_under_its_label() {
    let locks = Locks::open().await;
    let store = locks.store("").await;
    locks.psql("UPDATE leasehold.lock_meta SET closed_until = now() + interval '1 h'");
    let ours = claim("a");
    assert!(is_busy(&store, &ours).await);
    let _hint = store.subscribe(&ours).await.unwrap();
    locks.psql("UPDATE leasehold.lock_meta SET closed_until = '-infinity'");
    let held = grant(&store, &ours).await;
    let waits = claim("a");
    let _hint = store.subscribe(&waits).await.unwrap();
    assert!(is_busy(&store, &waits).await);
    let label = async || store.inspect(&ours.key).await.unwrap().unwrap().label;
    assert_eq!(label().await, Some(ours.label.clone()));
    assert_eq!(store.list("").await.unwrap().len(), 1);
    release(&store, &held).await;
    let _held = grant(&store, &waits).await;
    assert_eq!(label().await, Some(waits.label));
}

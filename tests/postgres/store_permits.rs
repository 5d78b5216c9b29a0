//! Permits in PostgreSQL.

use leasehold::ErrorKind;
use leasehold::store::{Claim, Label, LockMode, Share, Store};

use crate::claims::{claim, grant, is_busy, queued, release};
use crate::pool::callers_have_together_at_most_the_size;
use crate::store_world::{Locks, manager};
use crate::world::connect;

fn share(permits: u32, of: u32) -> Claim {
    let mut claim = queued("a", LockMode::Read);
    claim.share = Some(Share { permits, of });
    claim
}

#[tokio::test]
async fn callers_of_two_processes_have_together_at_most_the_size() {
    let locks = Locks::open().await;
    let ours = manager(&locks.url(""), |_| {}).await;
    let theirs = manager(&locks.url(""), |_| {}).await;
    callers_have_together_at_most_the_size(&ours, &theirs).await;
}

/// Whoever is called may ask late, and a later one first.
#[tokio::test]
async fn a_share_that_was_called_is_not_passed_by_one_that_leaves_it_no_room() {
    let locks = Locks::open().await;
    let owner = |number: u32| format!("00000000-0000-0000-0000-00000000000{number}");
    // No message shortens its place.
    let ask = |number, mode: &str, label: &str| {
        locks.psql(&format!(
            "SELECT answer FROM leasehold.ask('a', '{}', '{mode}', 20000, 60000, '{label}', false)",
            owner(number)
        ))
    };
    assert_eq!(ask(0, "x", "alone"), "granted");
    assert_eq!(ask(1, "s", "1/3 few"), "busy");
    assert_eq!(ask(2, "s", "4/7 many"), "busy");
    locks.psql(&format!(
        "SELECT leasehold.leave('a', '{}', false)",
        owner(0)
    ));
    assert_eq!(ask(2, "s", "4/7 many"), "busy");
    assert_eq!(ask(1, "s", "1/3 few"), "granted");
    // Now it has all that it says there is, and leaves room by what the other says.
    assert_eq!(ask(2, "s", "4/7 many"), "granted");
}

/// A renewal is one call among many, and its new end is not seen before its commit.
#[tokio::test]
async fn a_share_that_is_being_renewed_counts() {
    let locks = Locks::open().await;
    let store = locks.store("").await;
    let (kept, renewed) = (
        grant(&store, &share(1, 3)).await,
        grant(&store, &share(2, 3)).await,
    );
    let next = share(2, 3);
    locks.psql("UPDATE leasehold.claim SET ends = now() - interval '1 s' WHERE label LIKE '2/3 %'");
    let client = connect(locks.url("").trim_end_matches('?')).await;
    let renewal = "BEGIN; UPDATE leasehold.claim SET ends = now() + interval '9 s'
        WHERE label LIKE '2/3 %' AND token IS NOT NULL";
    client.batch_execute(renewal).await.unwrap();
    assert!(is_busy(&store, &next).await);
    client.batch_execute("COMMIT").await.unwrap();
    assert!(is_busy(&store, &next).await);
    release(&store, &renewed).await;
    let held = grant(&store, &next).await;
    release(&store, &held).await;
    release(&store, &kept).await;
}

#[tokio::test]
async fn people_see_the_labels_of_shares_and_not_their_numbers() {
    let locks = Locks::open().await;
    let store = locks.store("").await;
    let mut named = share(2, 2);
    named.label = Label::parse("3/4 of us").unwrap();
    let held = grant(&store, &named).await;
    assert!(is_busy(&store, &share(1, 2)).await);
    let info = store.inspect(&named.key).await.unwrap().unwrap();
    assert_eq!(info.labels, [named.label.clone()]);
    assert_eq!((info.mode, info.holders), (Some(LockMode::Read), 1));
    let waiter = &info.waiters[0];
    assert_eq!(waiter.label.as_ref(), Some(&claim("a").label));
    assert_eq!(waiter.mode, Some(LockMode::Read));
    release(&store, &held).await;
}

/// One that was made before permits were, and was not run again.
#[tokio::test]
async fn an_earlier_schema_has_no_permits() {
    let locks = Locks::open().await;
    locks.psql("DROP FUNCTION leasehold.taken(text, boolean)");
    let ours = manager(&locks.url(""), |_| {}).await;
    let refused = ours.permits("a", 3).acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    drop(ours.lock("a").acquire().await.unwrap());
}

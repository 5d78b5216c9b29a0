//! The queue on a real ZooKeeper: who gets the lock, in which order, and what stays in the tree.

use std::sync::Arc;
use std::time::Duration;

use crate::zookeeper::{
    Server, children, claim, granted, is_busy, raw, rest, short_store, simple_store, store, until,
    wait_for,
};
use futures_util::future::join_all;
use leasehold::ErrorKind;
use leasehold::clock::Clock;
use leasehold::store::{Acquired, Released, Renewed, Store};
use zookeeper_client::{Acls, CreateMode};

#[tokio::test]
async fn one_claim_holds_and_a_release_passes_the_lock_on() {
    let server = Server::shared();
    let (a, b) = (
        store(&server, "/basic").await,
        store(&server, "/basic").await,
    );
    let (first, second) = (claim("accounts/7"), claim("accounts/7"));
    let grant = granted(&a, &first).await;
    assert!(is_busy(&b, &second).await);
    assert!(matches!(
        a.renew(std::slice::from_ref(&grant)).await[0],
        Renewed::Extended(_)
    ));
    assert!(matches!(a.release(&grant).await, Released::Released));
    assert!(matches!(a.release(&grant).await, Released::AlreadyGone));
    let next = wait_for(&b, &second).await;
    assert!(next.token > grant.token);
    assert!(matches!(a.renew(&[grant]).await[0], Renewed::Gone));
}

#[tokio::test]
async fn an_acquire_asked_again_is_granted_again_with_the_same_token() {
    let server = Server::shared();
    for store in [
        store(&server, "/again").await,
        simple_store(&server, "/again-simple").await,
    ] {
        let claim = claim("k");
        let grant = granted(&store, &claim).await;
        assert_eq!(granted(&store, &claim).await.token, grant.token);
        assert!(matches!(store.release(&grant).await, Released::Released));
    }
}

#[tokio::test]
async fn turns_come_in_the_order_of_the_first_asking() {
    let server = Server::shared();
    let stores: Vec<_> = join_all((0..5).map(|_| store(&server, "/order"))).await;
    let claims: Vec<_> = stores.iter().map(|_| claim("k")).collect();
    let mut grant = granted(&stores[0], &claims[0]).await;
    for (store, claim) in stores.iter().zip(&claims).skip(1) {
        assert!(is_busy(store, claim).await);
    }
    for turn in 1..5 {
        // The later ones look as often as they like.
        for later in (turn..5).rev() {
            assert!(is_busy(&stores[later], &claims[later]).await);
        }
        assert!(matches!(
            stores[turn - 1].release(&grant).await,
            Released::Released
        ));
        for later in (turn + 1..5).rev() {
            assert!(
                is_busy(&stores[later], &claims[later]).await,
                "{later} overtook {turn}"
            );
        }
        let next = wait_for(&stores[turn], &claims[turn]).await;
        assert!(next.token > grant.token);
        grant = next;
    }
}

#[tokio::test]
async fn a_predecessor_that_gives_up_is_no_grant() {
    let server = Server::shared();
    let stores: Vec<_> = join_all((0..3).map(|_| store(&server, "/giveup"))).await;
    let claims: Vec<_> = stores.iter().map(|_| claim("k")).collect();
    let grant = granted(&stores[0], &claims[0]).await;
    assert!(is_busy(&stores[1], &claims[1]).await);
    assert!(is_busy(&stores[2], &claims[2]).await);
    let hint = stores[2].subscribe(&claims[2]).await.unwrap();
    stores[1].withdraw(&claims[1]).await.unwrap();
    hint.await;
    assert!(is_busy(&stores[2], &claims[2]).await);
    assert!(matches!(
        stores[0].release(&grant).await,
        Released::Released
    ));
    let _held = wait_for(&stores[2], &claims[2]).await;
}

#[tokio::test]
async fn a_withdrawn_claim_leaves_no_node_and_is_never_granted() {
    let server = Server::shared();
    let store = store(&server, "/withdraw").await;
    let client = raw(&server).await;
    let (held, waiting) = (claim("k"), claim("k"));
    let grant = granted(&store, &held).await;
    assert!(is_busy(&store, &waiting).await);
    assert_eq!(children(&client, "/withdraw/k").await.len(), 2);
    store.withdraw(&waiting).await.unwrap();
    store.withdraw(&waiting).await.unwrap();
    assert_eq!(children(&client, "/withdraw/k").await.len(), 1);
    let _ = store.release(&grant).await;
    assert_eq!(
        store.acquire(&waiting).await.unwrap_err().kind(),
        ErrorKind::Invalid
    );
    assert_eq!(children(&client, "/withdraw/k").await.len(), 0);
}

#[tokio::test]
async fn a_hundred_cancelled_acquires_leave_no_node() {
    let server = Server::shared();
    let client = raw(&server).await;
    for (store, chroot) in [
        (store(&server, "/cancel").await, "/cancel"),
        (simple_store(&server, "/cancel-s").await, "/cancel-s"),
    ] {
        let path = format!("{chroot}/k");
        // With the key's node there, and without it.
        for n in 0..100_u32 {
            let claim = claim(if n % 2 == 0 { "k" } else { "k/fresh" });
            // Dropped at its n-th poll: before its answer came, between two requests, or after the
            // last.
            let mut acquire = Box::pin(store.acquire(&claim));
            let mut polls = 0;
            std::future::poll_fn(|cx| {
                polls += 1;
                if acquire.as_mut().poll(cx).is_ready() || polls > n % 6 {
                    return std::task::Poll::Ready(());
                }
                std::task::Poll::Pending
            })
            .await;
            drop(acquire);
            store.withdraw(&claim).await.unwrap();
        }
        let left = children(&client, &path).await;
        let left: Vec<_> = left.into_iter().filter(|name| name != "fresh").collect();
        assert_eq!(left, [""; 0]);
        assert_eq!(children(&client, &format!("{path}/fresh")).await, [""; 0]);
        let fresh = claim("k");
        let grant = granted(&store, &fresh).await;
        let _ = store.release(&grant).await;
    }
}

#[tokio::test]
async fn every_child_with_a_sequence_number_is_waited_for_and_no_other() {
    let server = Server::shared();
    let store = store(&server, "/garbage").await;
    let client = raw(&server).await;
    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client.mkdir("/garbage/k", &persistent).await.unwrap();
    for name in ["config", "README", "x-123", "lock-", "~other"] {
        client
            .create(&format!("/garbage/k/{name}"), b"\xff\x00", &persistent)
            .await
            .unwrap();
    }
    let mine = claim("k");
    let grant = granted(&store, &mine).await;
    let _ = store.release(&grant).await;

    let foreign = "/garbage/k/foreign0000000000";
    client
        .create(foreign, b"\xff\x00", &persistent)
        .await
        .unwrap();
    let mine = claim("k");
    assert!(is_busy(&store, &mine).await);
    let record = store.inspect(&mine.key).await.unwrap().unwrap();
    assert_eq!(record.label, None);
    client.delete(foreign, None).await.unwrap();
    let _held = wait_for(&store, &mine).await;
    assert_eq!(
        store
            .inspect(&mine.key)
            .await
            .unwrap()
            .unwrap()
            .label
            .unwrap()
            .as_str(),
        "tester"
    );
}

/// Waits until more has passed on this clock than a time that is rounded to a millisecond may lack.
async fn some_time(clock: &Clock) {
    let from = clock.stamp();
    while clock.stamp().since(&from) < 2 * SOME_TIME {
        rest(SOME_TIME).await;
    }
}

const SOME_TIME: Duration = Duration::from_millis(100);

#[tokio::test]
async fn a_queue_says_how_long_ago_a_holder_asked_and_not_how_long_it_holds() {
    let server = Server::shared();
    let store = store(&server, "/asked").await;
    let clock = Clock::system().unwrap();
    let held = granted(&store, &claim("k")).await;
    let next = claim("k");
    assert!(is_busy(&store, &next).await);
    some_time(&clock).await;
    let _ = store.release(&held).await;
    let held = wait_for(&store, &next).await;
    let record = store.inspect(&next.key).await.unwrap().unwrap();
    // It holds since just now, and nobody but itself knows that.
    assert!(record.asked_ago.unwrap() >= SOME_TIME, "{record:?}");
    assert_eq!((record.held_for, record.token), (None, Some(held.token)));
    let _ = store.release(&held).await;
}

#[tokio::test]
async fn a_simple_lock_says_how_long_it_has_been_held() {
    let server = Server::shared();
    let store = simple_store(&server, "/held-for").await;
    let clock = Clock::system().unwrap();
    let held = granted(&store, &claim("k")).await;
    some_time(&clock).await;
    let record = store.inspect(&held.claim.key).await.unwrap().unwrap();
    assert!(record.held_for.unwrap() >= SOME_TIME, "{record:?}");
    assert_eq!(record.asked_ago, None);
    let _ = store.release(&held).await;
}

#[tokio::test]
async fn near_the_end_of_the_sequence_numbers_nothing_is_granted() {
    let server = Server::shared();
    let store = store(&server, "/overflow").await;
    let client = raw(&server).await;
    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client.mkdir("/overflow/k", &persistent).await.unwrap();
    client
        .create("/overflow/k/x-2147483647", b"", &persistent)
        .await
        .unwrap();
    let claim = claim("k");
    assert_eq!(
        store.acquire(&claim).await.unwrap_err().kind(),
        ErrorKind::Corrupt
    );
    store.withdraw(&claim).await.unwrap();
    assert_eq!(children(&client, "/overflow/k").await.len(), 1);
}

#[tokio::test]
async fn a_key_that_looks_like_a_contender_is_invalid() {
    let server = Server::shared();
    let store = store(&server, "/keys").await;
    let error = store
        .acquire(&claim("jobs/run-0000000007"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_missing_chroot_is_made_on_first_use() {
    let server = Server::shared();
    let store = store(&server, "/missing/deep").await;
    let claim = claim("a/b/c");
    let grant = granted(&store, &claim).await;
    assert_eq!(
        children(&raw(&server).await, "/missing/deep/a/b/c")
            .await
            .len(),
        1
    );
    let _ = store.release(&grant).await;
}

#[tokio::test]
async fn a_list_shows_what_is_held_by_key_and_nothing_else() {
    let server = Server::shared();
    let store = store(&server, "/list").await;
    let mut grants = Vec::new();
    for key in ["b", "a/2", "a/1", "a", "c/x/y"] {
        grants.push(granted(&store, &claim(key)).await);
    }
    assert!(is_busy(&store, &claim("a")).await);
    let keys = |records: Vec<leasehold::store::LockInfo>| -> Vec<String> {
        records.iter().map(|r| r.key.to_string()).collect()
    };
    assert_eq!(
        keys(store.list("").await.unwrap()),
        ["a", "a/1", "a/2", "b", "c/x/y"]
    );
    assert_eq!(keys(store.list("a/").await.unwrap()), ["a/1", "a/2"]);
    assert_eq!(keys(store.list("c/x").await.unwrap()), ["c/x/y"]);
    assert_eq!(keys(store.list("none").await.unwrap()), [""; 0]);
    let record = store.list("b").await.unwrap().remove(0);
    assert_eq!(record.token, Some(grants[0].token));
}

#[tokio::test]
async fn the_two_modes_exclude_each_other() {
    let server = Server::shared();
    let (queue, simple) = (
        store(&server, "/mixed").await,
        simple_store(&server, "/mixed").await,
    );
    let (a, b) = (claim("k"), claim("k"));
    let grant = granted(&queue, &a).await;
    assert!(is_busy(&simple, &b).await);
    assert!(matches!(queue.release(&grant).await, Released::Released));
    let grant = wait_for(&simple, &b).await;
    let c = claim("k");
    assert!(is_busy(&queue, &c).await);
    assert!(matches!(simple.release(&grant).await, Released::Released));
    let _held = wait_for(&queue, &c).await;
}

#[tokio::test]
async fn a_simple_lock_whose_path_is_used_again_is_not_renewed_or_released_by_its_old_holder() {
    let server = Server::shared();
    let (a, b) = (
        simple_store(&server, "/reuse").await,
        simple_store(&server, "/reuse").await,
    );
    let (first, second) = (claim("k"), claim("k"));
    let old = granted(&a, &first).await;
    // An operator takes the lock away, and another client makes it again at once.
    raw(&server)
        .await
        .delete("/reuse/k/~lock", None)
        .await
        .unwrap();
    let new = granted(&b, &second).await;
    assert!(new.token > old.token);
    assert!(matches!(
        a.renew(std::slice::from_ref(&old)).await[0],
        Renewed::Gone
    ));
    assert!(matches!(a.release(&old).await, Released::AlreadyGone));
    assert!(matches!(
        b.renew(std::slice::from_ref(&new)).await[0],
        Renewed::Extended(_)
    ));
}

#[tokio::test]
async fn a_simple_lock_of_another_session_is_never_deleted() {
    let server = Server::shared();
    let store = simple_store(&server, "/owner").await;
    let client = raw(&server).await;
    let path = "/owner/k/~lock";
    let old = granted(&store, &claim("k")).await;
    // What a reconnected session of ours would find: the same data, and another owner.
    let (data, _) = client.get_data(path).await.unwrap();
    client.delete(path, None).await.unwrap();
    let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    let (made, _) = client.create(path, &data, &ephemeral).await.unwrap();

    assert!(!matches!(
        store.acquire(&old.claim).await,
        Ok(Acquired::Granted(_))
    ));
    assert!(matches!(store.release(&old).await, Released::AlreadyGone));
    store.withdraw(&old.claim).await.unwrap();
    let (_, left) = client.get_data(path).await.unwrap();
    assert_eq!(left.czxid, made.czxid);
}

#[tokio::test]
async fn a_hold_whose_node_was_deleted_is_gone_and_the_others_of_its_batch_stay() {
    let server = Server::shared();
    let store = Arc::new(store(&server, "/batch").await);
    let keys: Vec<_> = (0..1_200).map(|n| format!("k/{n}")).collect();
    let claims: Vec<_> = keys.iter().map(|key| claim(key)).collect();
    let grants = join_all(claims.iter().map(|c| granted(&store, c))).await;
    let client = raw(&server).await;
    for n in [1, 7, 501, 1_199] {
        let path = format!("/batch/k/{n}");
        let child = children(&client, &path).await.remove(0);
        client
            .delete(&format!("{path}/{child}"), None)
            .await
            .unwrap();
    }
    let answers = store.renew(&grants).await;
    for (n, answer) in answers.iter().enumerate() {
        let is_gone = [1, 7, 501, 1_199].contains(&n);
        assert_eq!(matches!(answer, Renewed::Gone), is_gone, "{n}: {answer:?}");
        assert_eq!(
            matches!(answer, Renewed::Extended(_)),
            !is_gone,
            "{n}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn a_closed_store_leaves_no_waiter_and_answers_closed() {
    let server = Server::shared();
    let one = store(&server, "/closed").await;
    let client = raw(&server).await;
    let (mine, waiting) = (claim("k"), claim("k"));
    let grant = granted(&one, &mine).await;
    assert!(is_busy(&one, &waiting).await);
    let _ = one.release(&grant).await;
    one.close().await.unwrap();
    // The server deletes the nodes of a closed session in its own time.
    until("the closed store's session ends", || async {
        children(&client, "/closed/k").await.is_empty()
    })
    .await;
    assert_eq!(
        one.acquire(&claim("k")).await.unwrap_err().kind(),
        ErrorKind::Closed
    );
    assert!(matches!(one.renew(&[grant]).await[0], Renewed::Gone));
}

#[tokio::test]
async fn a_hold_that_nobody_released_outlives_its_store_for_its_time_and_its_waiters_do_not() {
    let server = Server::shared();
    let client = raw(&server).await;
    let clock = leasehold::clock::Clock::system().unwrap();
    for is_closed in [true, false] {
        let store = short_store(&server.address(), "/left").await;
        let grant = granted(&store, &claim("k")).await;
        assert!(is_busy(&store, &claim("k")).await);
        if is_closed {
            store.close().await.unwrap();
        }
        drop(store);
        until("the waiter's node is deleted", || async {
            children(&client, "/left/k").await.len() == 1
        })
        .await;
        until("the server ends the session", || async {
            children(&client, "/left/k").await.is_empty()
        })
        .await;
        let lasted = clock.stamp().since(&grant.proof.sent_at.unwrap());
        assert!(lasted >= grant.proof.ttl, "{lasted:?}");
    }
}

#[tokio::test]
async fn a_grant_counts_from_before_its_asking_for_the_time_that_was_negotiated() {
    let server = Server::shared();
    let clock = leasehold::clock::Clock::system().unwrap();
    let store = store(&server, "/proof").await;
    let mut mine = claim("k");
    mine.ttl = Duration::from_secs(3_600);
    let before = clock.stamp();
    let Acquired::Granted(grant) = store.acquire(&mine).await.unwrap() else {
        panic!("not granted");
    };
    assert_eq!(grant.proof.ttl, Duration::from_secs(10));
    let base = grant
        .proof
        .sent_at
        .expect("a session store says from when it counts");
    assert!(before.since(&base) > Duration::ZERO);
}

/// How often the children of a key's node have changed.
async fn changes(server: &Server, path: &str) -> i32 {
    let stat = raw(server).await.check_stat(path).await.unwrap();
    stat.unwrap().cversion
}

#[tokio::test]
async fn a_single_attempt_at_a_busy_key_costs_no_write() {
    let server = Server::shared();
    let (a, b) = (
        store(&server, "/single").await,
        store(&server, "/single").await,
    );
    let held = granted(&a, &claim("k")).await;
    let before = changes(&server, "/single/k").await;
    let mut single = claim("k");
    single.place_ttl = Duration::ZERO;
    assert!(is_busy(&b, &single).await);
    b.withdraw(&single).await.unwrap();
    assert_eq!(changes(&server, "/single/k").await, before);

    // It is not behind what has ended.
    assert!(matches!(a.release(&held).await, Released::Released));
    let mut single = claim("k");
    single.place_ttl = Duration::ZERO;
    let grant = granted(&b, &single).await;
    assert!(grant.token > held.token);
}

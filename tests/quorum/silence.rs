//! Members that give no answer: nobody waits for them, and they cost nothing.

use std::time::Duration;

use leasehold::Key;
use leasehold::store::quorum::Quorum;
use leasehold::store::{Acquired, Released, Renewed, Store};
use leasehold::testing::Operation;
use tokio::runtime::Handle;

use crate::world::{TTL, World, claim, granted, settle};

/// Longer than anybody waits for a member that is slower than a majority.
const PATIENCE: Duration = Duration::from_millis(100);
/// At least as long as all pauses between the attempts of one request over three members.
const PAUSES: u64 = 32;

/// A client that knows that the stopped member is silent.
async fn client_that_knows<S>(world: &World, take: impl Fn(&World) -> S) -> S
where
    S: Store + Clone,
{
    let store = take(world);
    let grant = granted(store.acquire(&claim()).await);
    let _ = store.release(&grant).await;
    settle().await;
    store
}

/// Drives a request while a few milliseconds pass, fewer than anybody waits for a slow member.
async fn within_the_pauses<T: Send + 'static>(
    world: &World,
    request: impl Future<Output = T> + Send + 'static,
) -> T {
    let task = tokio::spawn(request);
    settle().await;
    for _ in 0..PAUSES {
        world.pass(Duration::from_millis(1)).await;
    }
    assert!(task.is_finished(), "it waits for more than its own pauses");
    task.await.unwrap()
}

#[tokio::test]
async fn votes_split_over_a_silent_member_are_not_waited_for() {
    let world = World::new(3);
    world.stop(2);
    let store = client_that_knows(&world, World::client).await;
    world.pass(PATIENCE).await;
    let other = claim();
    let _vote = granted(world.members[0].data.acquire(&other).await);
    let asking = store.clone();
    let busy = within_the_pauses(&world, async move { asking.acquire(&claim()).await }).await;
    assert!(matches!(busy, Ok(Acquired::Busy { .. })), "{busy:?}");
    settle().await;
    assert_eq!(world.keepers().await, [0], "our vote was given back");
}

#[tokio::test]
async fn two_that_split_the_votes_never_hold_at_once() {
    for _ in 0..20 {
        let world = World::new(3);
        world.stop(2);
        let first = client_that_knows(&world, World::client).await;
        let second = client_that_knows(&world, World::client).await;
        world.pass(PATIENCE).await;
        let ask = |store: &Quorum<_>| {
            let store = store.clone();
            async move { store.acquire(&claim()).await.unwrap() }
        };
        let both = futures_util::future::join(ask(&first), ask(&second));
        let (one, two) = within_the_pauses(&world, both).await;
        let holds = |acquired: &Acquired| matches!(acquired, Acquired::Granted(_));
        assert!(
            !(holds(&one) && holds(&two)),
            "two hold: {one:?} and {two:?}"
        );
    }
}

#[tokio::test]
async fn a_silent_member_gets_one_vote_at_a_time() {
    let world = World::new(3);
    world.stop(2);
    let store = client_that_knows(&world, World::client).await;
    world.pass(PATIENCE).await;
    for _ in 0..20 {
        let grant = granted(store.acquire(&claim()).await);
        assert!(matches!(store.release(&grant).await, Released::Released));
    }
    settle().await;
    let asked = world.members[2].network.counts(Operation::Acquire).asked;
    assert_eq!(asked, 2, "the vote that was not answered, and a probe");
}

#[tokio::test]
async fn a_member_that_answers_again_counts_again() {
    let world = World::new(3);
    world.stop(2);
    let store = client_that_knows(&world, World::client).await;
    world.pass(PATIENCE).await;
    world.go_on(2);
    settle().await;
    world.stop(0);
    let grant = granted(store.acquire(&claim()).await);
    settle().await;
    assert_eq!(world.keepers().await, [1, 2]);
    let _ = store.release(&grant).await;
}

#[tokio::test]
async fn nobody_asks_a_member_to_release_what_it_gave_to_another() {
    let world = World::new(3);
    let other = claim();
    let _vote = granted(world.members[0].data.acquire(&other).await);
    let store = world.client();
    let grant = granted(store.acquire(&claim()).await);
    settle().await;
    assert!(matches!(store.release(&grant).await, Released::Released));
    settle().await;
    let asked = |operation| world.members[0].network.counts(operation).asked;
    assert_eq!(asked(Operation::Release) + asked(Operation::Withdraw), 0);
    assert_eq!(world.keepers().await, [0]);
}

#[tokio::test]
async fn tasks_do_not_pile_up_behind_a_member_that_is_down() {
    for is_stopped in [false, true] {
        let world = World::new(3);
        if is_stopped {
            world.stop(2);
        } else {
            for operation in Operation::ALL {
                world.members[2].network.block(operation);
            }
        }
        let store = client_that_knows(&world, World::client).await;
        world.pass(PATIENCE).await;
        for _ in 0..200 {
            let grant = granted(store.acquire(&claim()).await);
            let _ = store.release(&grant).await;
        }
        settle().await;
        let alive = Handle::current().metrics().num_alive_tasks();
        assert!(alive <= 10, "{alive} tasks, stopped: {is_stopped}");
    }
}

#[tokio::test]
async fn what_a_member_could_not_withdraw_is_withdrawn_when_it_answers() {
    let world = World::new(3);
    world.members[2].network.block(Operation::Release);
    world.members[2].network.block(Operation::Withdraw);
    let store = world.client();
    for _ in 0..3 {
        let grant = granted(store.acquire(&claim()).await);
        assert!(matches!(store.release(&grant).await, Released::Released));
        settle().await;
    }
    assert_eq!(world.keepers().await, [2]);
    world.go_on(2);
    world.pass(TTL / 6).await;
    assert_eq!(world.keepers().await, [0; 0]);
}

fn requests_to(world: &World, member: usize) -> u64 {
    let network = &world.members[member].network;
    let asked = |operation| network.counts(operation).asked;
    asked(Operation::Acquire) + asked(Operation::Release) + asked(Operation::Withdraw)
}

#[tokio::test]
async fn a_vote_that_cannot_be_sent_before_its_attempt_is_decided_is_never_sent() {
    let world = World::new(3);
    world.connect(2, false);
    let store = world.client();
    let grant = granted(store.acquire(&claim()).await);
    world.connect(2, true);
    settle().await;
    assert_eq!(world.keepers().await, [0, 1]);
    assert!(matches!(store.release(&grant).await, Released::Released));
    settle().await;
    assert_eq!(requests_to(&world, 2), 0);
    assert_eq!(world.keepers().await, [0; 0]);
}

#[tokio::test]
async fn a_withdrawn_claim_sends_no_vote_that_was_not_sent_before() {
    let world = World::new(3);
    world.connect(1, false);
    world.connect(2, false);
    let (store, claim) = (world.client(), claim());
    let asking = (store.clone(), claim.clone());
    let attempt = tokio::spawn(async move { asking.0.acquire(&asking.1).await });
    settle().await;
    store.withdraw(&claim).await.unwrap();
    world.connect(1, true);
    world.connect(2, true);
    let answer = attempt.await.unwrap();
    assert!(!matches!(answer, Ok(Acquired::Granted(_))), "{answer:?}");
    settle().await;
    assert_eq!(requests_to(&world, 1) + requests_to(&world, 2), 0);
    assert_eq!(world.keepers().await, [0; 0]);
}

#[tokio::test]
async fn a_dropped_acquire_sends_no_vote_that_was_not_sent_before() {
    let world = World::new(3);
    world.connect(1, false);
    world.connect(2, false);
    let store = world.client();
    let attempt = tokio::spawn(async move { store.acquire(&claim()).await });
    settle().await;
    attempt.abort();
    settle().await;
    world.connect(1, true);
    world.connect(2, true);
    settle().await;
    assert_eq!(requests_to(&world, 1) + requests_to(&world, 2), 0);
    assert_eq!(world.keepers().await, [0; 0]);
}

#[tokio::test]
async fn a_release_does_not_wait_for_a_member_that_is_silent() {
    let world = World::new(3);
    let _vote = granted(world.members[2].data.acquire(&claim()).await);
    let store = world.client();
    let grant = granted(store.acquire(&claim()).await);
    settle().await;
    world.stop(1);
    // Another lock finds out that the member is silent.
    let mut other = claim();
    other.key = Key::parse("other").unwrap();
    let _other = granted(store.acquire(&other).await);
    world.pass(PATIENCE).await;
    let releasing = tokio::spawn(async move { store.release(&grant).await });
    settle().await;
    assert!(releasing.is_finished(), "it waits for a silent member");
    assert!(matches!(releasing.await.unwrap(), Released::Released));
}

#[tokio::test]
async fn a_renewal_waits_for_a_slow_member_although_another_fails_at_once() {
    let world = World::new(3);
    let store = world.client();
    let grant = granted(store.acquire(&claim()).await);
    settle().await;
    world.members[2].network.block(Operation::Renew);
    world.members[1].network.stall(Operation::Renew);
    let renewing = tokio::spawn(async move { store.renew(&[grant]).await });
    settle().await;
    world.pass(2 * PATIENCE).await;
    world.members[1].network.unblock(Operation::Renew);
    let answers = renewing.await.unwrap();
    assert!(matches!(answers[..], [Renewed::Extended(_)]), "{answers:?}");
}

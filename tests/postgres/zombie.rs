//! A process that is stopped in the midst of its transaction, and goes on when another holds the
//! lock.

use std::time::Duration;

use leasehold::fence::{Fence, Resolve};
use leasehold::postgres::PgFence;
use leasehold::run::{Doubt, HeldKey, Resolution, TxnId};

use crate::proxy::{Fate, Proxy};
use crate::stopped::{Stopped, in_the_process, is_at, report, stop_at};
use crate::world::{Bank, TAKE, hold, hold_for, key, take_ten, token, until};

/// Not a test, except for the one that starts it: the process that the next tests stop.
#[test]
fn zombie() {
    in_the_process(async |url| {
        let fence = PgFence::connect(&url).await.unwrap();
        let call = fence.transaction(async |t| {
            t.execute(TAKE, &[&10_i64]).await?;
            stop_at("work");
            if is_at("await") {
                std::future::pending::<()>().await;
            }
            t.done(())
        });
        let held = hold_for(1, Duration::from_secs(6));
        let executor = held.executor();
        let run = executor.commit(move |permit| {
            // The lease was found live just now.
            stop_at("enter");
            call(permit)
        });
        report(run.await.map(|done| done.proof));
    });
}

#[tokio::test]
async fn a_zombie_that_was_stopped_before_it_entered_is_fenced() {
    let bank = Bank::open().await;
    let zombie = Stopped::start("zombie::zombie", "enter", &bank.url());
    let fence = bank.fence().await;
    fence.raise(&key("a"), token(2)).await.unwrap();
    // Raised, and nothing written under it yet: the zombie comes between the first read and the
    // first write.
    assert_eq!(zombie.finish(), "ended fenced 2");
    assert_eq!(bank.cents(), 100);
}

#[tokio::test]
async fn a_zombie_that_was_stopped_between_its_work_and_commit_is_rolled_back() {
    let bank = Bank::open().await;
    let zombie = Stopped::start("zombie::zombie", "work", &bank.url());
    let fence = bank.fence().await;
    // The server ends the zombie's transaction a second after its lease; then the fence is raised.
    fence.raise(&key("a"), token(2)).await.unwrap();
    assert_eq!(take_ten(&hold(2).executor(), &fence).await.unwrap(), 90);
    assert_eq!(zombie.finish(), "ended rolled back");
    assert_eq!(bank.cents(), 90);
}

/// Its executor finds the lease over before the fence does, and does not poll it again.
#[tokio::test]
async fn a_zombie_that_was_stopped_while_its_work_was_awaited_is_rolled_back() {
    let bank = Bank::open().await;
    let zombie = Stopped::start("zombie::zombie", "await", &bank.url());
    let fence = bank.fence().await;
    fence.raise(&key("a"), token(2)).await.unwrap();
    assert_eq!(take_ten(&hold(2).executor(), &fence).await.unwrap(), 90);
    assert_eq!(zombie.finish(), "ended rolled back");
    assert_eq!(bank.cents(), 90);
}

/// Not a test: a process that says how its commit is called just before it sends `COMMIT`.
#[test]
fn committer() {
    in_the_process(async |url| {
        let fence = PgFence::connect(&url).await.unwrap();
        // Longer than a busy machine needs to stop it once more.
        let held = hold_for(1, Duration::from_secs(12));
        let executor = held.executor();
        let run = executor.commit(move |permit| {
            let name = permit.txn_id;
            let call = fence.transaction(async move |t| {
                t.execute(TAKE, &[&10_i64]).await?;
                stop_at("work");
                println!("name {name}");
                t.done(())
            });
            call(permit)
        });
        report(run.await.map(|done| done.proof));
    });
}

/// A process that is stopped between `COMMIT` sent and answered. Its messages suffer a fate from
/// `COMMIT` on.
struct Committing {
    zombie: Stopped,
    proxy: Proxy,
    doubt: Doubt,
}

impl Committing {
    /// `is_under_way`: whether it has sent `COMMIT`, and the test may go on.
    async fn start(bank: &Bank, fate: Fate, is_under_way: impl Fn(&Proxy) -> bool) -> Self {
        let proxy = Proxy::before(bank.server().port());
        let url = bank.url_at(proxy.port());
        let mut zombie = Stopped::start("zombie::committer", "work", &url);
        proxy.wires()[0].set(fate);
        zombie.go();
        let name = zombie.next("name ");
        until("COMMIT was sent", || is_under_way(&proxy)).await;
        zombie.signal("-STOP");
        let name: TxnId = name["name ".len()..].parse().unwrap();
        let lock = HeldKey {
            key: key("a"),
            token: token(1),
        };
        Self {
            zombie,
            proxy,
            doubt: Doubt::new(vec![lock], name),
        }
    }
}

#[tokio::test]
async fn a_commit_of_a_zombie_that_another_process_resolved_is_refused_when_it_arrives() {
    let bank = Bank::open().await;
    let held = Fate {
        hold_up: true,
        ..Fate::KIND
    };
    let is_sent = |proxy: &Proxy| proxy.wires()[0].came() > proxy.wires()[0].carried().0;
    let commits = Committing::start(&bank, held, is_sent).await;
    // This process is another one. It waits until the server has ended the transaction of the
    // client that hangs.
    let fence = bank.fence().await;
    let resolved = fence.resolve(&commits.doubt).await;
    assert_eq!(resolved.unwrap(), Resolution::NotApplied);
    assert_eq!(take_ten(&hold(2).executor(), &fence).await.unwrap(), 90);
    let wire = commits.proxy.wires().remove(0);
    let before = wire.carried().0;
    wire.set(Fate::KIND);
    until("the late COMMIT arrives", || wire.carried().0 > before).await;
    let resolved = fence.resolve(&commits.doubt).await;
    assert_eq!(resolved.unwrap(), Resolution::NotApplied);
    // Its lease is over, so it may say that it does not know.
    let ended = commits.zombie.finish();
    let is_true = ended == "ended rolled back" || ended.contains("InDoubt");
    assert!(is_true, "{ended}");
    assert_eq!(bank.cents(), 90);
}

#[tokio::test]
async fn a_commit_of_a_zombie_that_was_applied_stays_applied_for_every_process() {
    let bank = Bank::open().await;
    let unanswered = Fate {
        swallow_down: true,
        ..Fate::KIND
    };
    let commits = Committing::start(&bank, unanswered, |_| bank.cents() == 90).await;
    let fence = bank.fence().await;
    let resolved = fence.resolve(&commits.doubt).await;
    assert_eq!(resolved.unwrap(), Resolution::Applied);
    assert_eq!(take_ten(&hold(2).executor(), &fence).await.unwrap(), 80);
    let ended = commits.zombie.finish();
    let is_true = ended == "ended committed Fenced" || ended.contains("InDoubt");
    assert!(is_true, "{ended}");
    let resolved = fence.resolve(&commits.doubt).await;
    assert_eq!(resolved.unwrap(), Resolution::Applied);
    assert_eq!(bank.cents(), 80);
}

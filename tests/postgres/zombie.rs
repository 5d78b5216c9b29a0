//! A process that is stopped in the midst of its transaction, and goes on when another holds the lock.

use std::time::Duration;

use leasehold::fence::{Fence, PgFence};

use crate::stopped::{Stopped, in_the_process, report, stop_at};
use crate::world::{Bank, TAKE, hold, hold_for, key, take_ten, token};

/// Not a test, except for the one that starts it: the process that the next tests stop.
#[test]
fn zombie() {
    in_the_process(async |url| {
        let fence = PgFence::connect(&url).await.unwrap();
        let call = fence.transaction(async |t| {
            t.execute(TAKE, &[&10_i64]).await?;
            stop_at("work");
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
    // Raised, and nothing written under it yet: the zombie comes between the first read and the first write.
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

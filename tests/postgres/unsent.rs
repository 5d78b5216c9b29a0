//! A run that is dropped before its fence has sent `COMMIT` is not in doubt.

use std::sync::Arc;

use leasehold::postgres::PgFence;
use leasehold::testing::TestHold;
use tokio::sync::Notify;

use crate::proxy::{Fate, Proxy};
use crate::world::{Bank, TAKE, hold, take_ten, until};

/// A commit whose work has taken ten and then waits for ever; the run is dropped there. With
/// `is_wrapped` the call is a future around that of the fence.
async fn dropped_while_it_works(held: &TestHold, fence: &PgFence, is_wrapped: bool) {
    let has_worked = Arc::new(Notify::new());
    let works = Arc::clone(&has_worked);
    let call = fence.transaction(async move |t| {
        t.execute(TAKE, &[&10_i64]).await?;
        works.notify_one();
        std::future::pending::<()>().await;
        t.done(())
    });
    let executor = held.executor();
    let run = async {
        if is_wrapped {
            let run = executor.commit(|permit| async { call(permit).await });
            run.await.map(|_| ())
        } else {
            executor.commit(call).await.map(|_| ())
        }
    };
    tokio::select! {
        end = run => panic!("{end:?}"),
        () = has_worked.notified() => {}
    }
}

#[tokio::test]
async fn a_run_that_is_dropped_during_the_work_of_its_transaction_is_not_in_doubt() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    let held = hold(1);
    dropped_while_it_works(&held, &fence, false).await;
    assert!(!held.lease().is_in_doubt());
    assert_eq!(take_ten(&held.executor(), &fence).await.unwrap(), 90);
}

/// The executor cannot know what else such a future does.
#[tokio::test]
async fn a_call_around_that_of_the_fence_that_is_dropped_is_in_doubt() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    let held = hold(1);
    dropped_while_it_works(&held, &fence, true).await;
    assert!(held.lease().is_in_doubt());
}

#[tokio::test]
async fn a_run_that_is_dropped_once_commit_was_sent_is_in_doubt() {
    let bank = Bank::open().await;
    let proxy = Proxy::before(bank.server().port());
    let fence = PgFence::connect(&bank.url_at(proxy.port())).await.unwrap();
    let wire = proxy.wires().remove(0);
    let held = hold(1);
    let executor = held.executor();
    let call = fence.transaction(async move |t| {
        t.execute(TAKE, &[&10_i64]).await?;
        wire.set(Fate {
            swallow_down: true,
            ..Fate::KIND
        });
        t.done(())
    });
    tokio::select! {
        end = executor.commit(call) => panic!("{:?}", end.map(|_| ())),
        () = until("COMMIT is applied", || bank.cents() == 90) => {}
    }
    assert!(held.lease().is_in_doubt());
}

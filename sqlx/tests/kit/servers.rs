//! Cases of a database that is a server: what the wire does to a commit, and several keys.

use std::pin::pin;

use leasehold::fence::{Fence, Resolve};
use leasehold::run::{CommitPermit, CommitProof, Resolution};
use leasehold::{LockManager, RunError};

use crate::kit::{Bank, Committing, LONG, Work, hold, key, token};
use crate::proxy::{Fate, Proxy};

/// A commit call that takes ten over a connection of its own through the proxy.
type Through<'a> = &'a dyn Fn(&Proxy) -> Box<dyn FnOnce(CommitPermit) -> Committing + Send>;

/// The connection is cut after each few bytes of a fenced transaction, either way: each outcome is
/// what happened, and each doubt is resolved as it was.
pub(crate) async fn every_cut_of_the_connection<B: Bank>(bank: &B, port: u16, take: Through<'_>) {
    let executor = || hold("cut", 1, LONG).executor();
    let whole = Proxy::before(port);
    executor().commit(take(&whole)).await.expect("applied");
    let (up, down) = whole.wires()[0].carried();
    let fates = (0..up + 40).step_by(13).map(|cut_up| Fate {
        cut_up,
        ..Fate::KIND
    });
    let back = (0..down + 40).step_by(13).map(|cut_down| Fate {
        cut_down,
        ..Fate::KIND
    });
    let (mut committed, mut not) = (0, 0);
    for fate in fates.chain(back) {
        let proxy = Proxy::before(port);
        proxy.next(fate);
        let before = bank.cents().await;
        let executor = executor();
        let through_the_cut = async {
            // Once the run has its connection, or has failed to get it, others are good.
            let mut run = pin!(executor.commit(take(&proxy)));
            let is_cut = async {
                while proxy.wires().is_empty() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                ended = &mut run => return ended,
                () = is_cut => proxy.next(Fate::KIND),
            }
            run.await
        };
        let applied = match through_the_cut.await {
            Ok(_) => true,
            Err(RunError::RolledBack { .. }) => false,
            Err(in_doubt @ RunError::InDoubt { .. }) => {
                let named = in_doubt.doubt().expect("a doubt");
                let resolution = bank.fence().resolve(&named).await.expect("an answer");
                resolution == Resolution::Applied
            }
            Err(other) => panic!("{fate:?}: {other:?}"),
        };
        *(if applied { &mut committed } else { &mut not }) += 1;
        let expected = if applied { before - 10 } else { before };
        assert_eq!(bank.cents().await, expected, "{fate:?}");
    }
    assert!(committed > 0 && not > 0, "{committed} {not}");
}

/// A run under several locks enters the fence of each.
pub(crate) async fn several_locks<B: Bank>(bank: &B) {
    let before = bank.cents().await;
    let locks = LockManager::connect("memory:").await.expect("a store");
    let both = locks.lock_all(["b", "a"]).fence(bank.fence().clone());
    let guard = both.acquire().await.expect("free");
    let done = guard.executor().commit(bank.commit(Work::Take)).await;
    assert_eq!(done.expect("applied").proof, CommitProof::Fenced);
    let raised = bank.fence().raise(&key("b"), token(1 << 52)).await;
    raised.expect("newer");
    let fenced = guard.executor().commit(bank.commit(Work::Take)).await;
    assert!(matches!(fenced, Err(RunError::Fenced { .. })), "{fenced:?}");
    assert_eq!(bank.cents().await, before - 10);
}

//! What a run under several locks leaves behind names all of them: its events, intents and debts,
//! and who settles them finds each token.

use std::sync::{Arc, Mutex};

use leasehold::handler::{Event, Intent};
use leasehold::multi::MultiGuard;
use leasehold::run::{Debt, EffectError, HeldKey, Locks};
use leasehold::{Abort, ErrorKind, Executor, FencingToken, RunError, Settings};

use crate::support::{World, poll_once, secs};

#[derive(Clone, Debug)]
enum Seen {
    Run(Vec<HeldKey>),
    Intent(Intent),
    Debt(Debt),
}

type Notes = Arc<Mutex<Vec<Seen>>>;

/// A world whose observer notes what runs do.
fn observed() -> (World, Notes) {
    let notes = Notes::default();
    let kept = Arc::clone(&notes);
    let world = World::built(Settings::default(), |builder| {
        builder.observer(move |event: &Event<'_>| {
            kept.lock().unwrap().push(match event {
                Event::Run {
                    key, token, locks, ..
                } => {
                    assert_eq!((&locks[0].key, locks[0].token), (*key, *token));
                    Seen::Run(locks.to_vec())
                }
                Event::Intent { intent, .. } => Seen::Intent((*intent).clone()),
                Event::Debt { debt, .. } => Seen::Debt((*debt).clone()),
                _ => return,
            });
        })
    });
    (world, notes)
}

async fn hold(world: &World) -> (MultiGuard, Executor, Vec<(String, FencingToken)>) {
    let guard = world.ours.lock_all(["b", "a"]).acquire().await.unwrap();
    let held = ["a", "b"].map(|key| (key.to_owned(), guard.token(key).unwrap()));
    let executor = guard.executor();
    (guard, executor, held.into())
}

fn named(locks: &[HeldKey]) -> Vec<(String, FencingToken)> {
    let named = |lock: &HeldKey| (lock.key.to_string(), lock.token);
    locks.iter().map(named).collect()
}

fn debts(notes: &Notes) -> Vec<Debt> {
    let debt = |seen: &Seen| match seen {
        Seen::Debt(debt) => Some(debt.clone()),
        _ => None,
    };
    notes.lock().unwrap().iter().filter_map(debt).collect()
}

/// An effect that happened and cannot be taken back.
async fn leave_a_debt(executor: &Executor, how: Left) {
    let run = executor.guarded_async(async |tx| {
        let sent = tx.step(
            "debit a",
            async {
                match how {
                    Left::Failed => Ok(()),
                    Left::InDoubt => Err(EffectError::unknown("no answer")),
                    Left::Dropped => std::future::pending().await,
                }
            },
            |_| async { Err::<(), _>("refused") },
        );
        let _ = sent.await;
        Err::<(), Abort>("changed my mind".into())
    });
    if how == Left::Dropped {
        assert!(poll_once(Box::pin(run)).await.is_pending());
        return;
    }
    let Err(RunError::Incomplete { undo, .. }) = run.await else {
        panic!("an effect is left");
    };
    let debts = undo.debts();
    assert_eq!(debts.len(), 1);
    assert_eq!(debts[0].locks.len(), 2, "{:?}", debts[0]);
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Left {
    Failed,
    InDoubt,
    Dropped,
}

#[tokio::test]
async fn events_intents_and_debts_name_every_lock_of_the_run() {
    for how in [Left::Failed, Left::InDoubt, Left::Dropped] {
        let (world, notes) = observed();
        let (_guard, executor, held) = hold(&world).await;
        leave_a_debt(&executor, how).await;
        world.settled().await;
        let seen = notes.lock().unwrap().clone();
        assert!(seen.len() >= 3, "{how:?}: {seen:?}");
        for seen in seen {
            let locks = match &seen {
                Seen::Run(locks) => named(locks),
                Seen::Intent(intent) => named(&intent.locks),
                Seen::Debt(debt) => named(&debt.locks),
            };
            assert_eq!(locks, held, "{how:?}: {seen:?}");
        }
        let debts = debts(&notes);
        assert_eq!(debts.len(), 1, "{how:?}");
        let [(_, a), (_, b)] = &held[..] else {
            unreachable!("two keys")
        };
        let text = debts[0].to_string();
        assert!(text.contains(&format!("key=a,b token={a},{b} ")), "{text}");
    }
}

#[tokio::test]
async fn a_commit_in_doubt_is_a_debt_of_every_lock_and_none_is_free_before_its_ttl() {
    let (world, notes) = observed();
    let (guard, executor, held) = hold(&world).await;
    let outcome = executor.guarded(|tx| {
        tx.commit_with(|_| Err::<(), _>(EffectError::unknown("no answer")));
        Ok(())
    });
    let Err(RunError::InDoubt { locks, .. }) = outcome else {
        panic!("the commit had no answer");
    };
    assert_eq!(named(&locks), held);
    let debts = debts(&notes);
    assert_eq!(debts.len(), 1);
    assert_eq!(named(&debts[0].locks), held);
    drop(guard);
    world.settled().await;
    for key in ["a", "b"] {
        assert!(!world.is_free(key).await, "{key}");
    }
    world.clock.advance(secs(11));
    for key in ["a", "b"] {
        assert!(world.is_free(key).await, "{key}");
    }
}

#[tokio::test]
async fn a_run_knows_the_token_of_each_of_its_keys_and_of_no_other() {
    let (world, _) = observed();
    let (_guard, executor, held) = hold(&world).await;
    let run = executor.guarded(|tx| {
        for (key, token) in &held {
            assert_eq!(tx.locks().token_of(key)?, *token);
        }
        assert_eq!((tx.key().as_str(), tx.token()), ("a", held[0].1));
        let refused = tx.locks().token_of("c").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.to_string().contains("keys=a b"), "{refused}");
        Ok(())
    });
    run.unwrap().into_value();
    let alone = world.ours.lock("c").acquire().await.unwrap();
    let run = alone.executor().guarded(|tx| {
        assert_eq!(tx.locks().token_of("c")?, tx.token());
        assert!(tx.locks().token_of("a").is_err());
        Ok(())
    });
    run.unwrap().into_value();
}

/// What the locks of an outcome say about the keys of a run, and about another one.
fn assert_names(held: &[(String, FencingToken)], locks: &Locks) {
    assert_eq!(named(locks), held);
    for (key, token) in held {
        assert_eq!(locks.token_of(key).unwrap(), *token);
    }
    assert_eq!(locks.token_of("c").unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn an_outcome_and_its_receipt_know_the_token_of_each_key() {
    let (world, _) = observed();
    let (_guard, executor, held) = hold(&world).await;
    let seen = Mutex::new(None);
    let with_a_hook = executor.guarded(|tx| {
        tx.on_committed(|receipt| *seen.lock().unwrap() = Some(receipt.clone()));
        Ok(())
    });
    let receipt = seen.lock().unwrap().take().unwrap();
    assert_names(&held, &receipt.locks);
    let with_a_call = executor.commit(async |_| Ok(())).await;
    let with_nothing = executor.guarded(|_| Ok(()));
    for done in [with_a_hook, with_nothing] {
        let done = done.unwrap();
        assert_names(&held, &done.locks);
    }
    let done = with_a_call.unwrap();
    assert_names(&held, &done.locks);

    let alone = world.ours.lock("d").acquire().await.unwrap();
    let done = alone.executor().guarded(|_| Ok(())).unwrap();
    let held = [("d".to_owned(), alone.token())];
    assert_names(&held, &done.locks);
}

#[tokio::test]
async fn a_compensation_knows_the_token_of_each_key() {
    let (world, _) = observed();
    let (_guard, executor, held) = hold(&world).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&seen);
    let run = executor.guarded(|tx| {
        tx.step(
            "debit b",
            || Ok(()),
            move |given| kept.lock().unwrap().push(given),
        )?;
        Err::<(), _>(Abort::stop())
    });
    assert!(matches!(run, Err(RunError::RolledBack { .. })), "{run:?}");
    let kept = Arc::clone(&seen);
    let run = executor.guarded_async(async |tx| {
        let undo = move |given| async move { kept.lock().unwrap().push(given) };
        tx.step("debit b", async { Ok(()) }, undo).await?;
        Err::<(), _>(Abort::stop())
    });
    let run = run.await;
    assert!(matches!(run, Err(RunError::RolledBack { .. })), "{run:?}");
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 2);
    for given in &*seen {
        assert_names(&held, &given.locks);
    }
}

#[tokio::test]
async fn a_late_commit_names_every_lock() {
    let (world, _) = observed();
    let (_guard, executor, held) = hold(&world).await;
    let clock = world.clock.clone();
    let late = executor.guarded(|tx| {
        tx.commit_with(move |permit| {
            clock.advance(permit.remaining);
            Ok::<_, EffectError>(())
        });
        Ok(())
    });
    let Err(RunError::CommittedLate { locks, token, .. }) = late else {
        panic!("the lease was over: {late:?}");
    };
    assert_eq!(named(&locks), held);
    assert_eq!(token, held[0].1);
}

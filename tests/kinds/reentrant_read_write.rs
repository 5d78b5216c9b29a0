//! Read/write locks that a scope may acquire again.

use leasehold::reentrant::Scope;
use leasehold::store::Released;
use leasehold::{ErrorKind, GuardedCell};

use crate::support::{World, poll_and_drop, poll_once, secs, while_time_passes};
use crate::yielding::yielding;

#[tokio::test]
async fn a_writer_writes_and_reads_again_without_asking_the_store() {
    let world = World::new();
    let lock = world.ours.read_write("a").reentrant();
    let scope = Scope::new();
    let writer = lock.write(&scope).await.unwrap();
    // The store could not answer: it has lost the lock.
    world.store.forget();
    let again = lock.write(&scope).await.unwrap();
    let reader = lock.read(&scope).await.unwrap();
    assert_eq!(
        (again.token(), reader.token()),
        (writer.token(), writer.token())
    );
    assert_eq!(reader.read(|_| 7).unwrap(), 7);
    assert_eq!(world.ours.held().len(), 1);
}

#[tokio::test]
async fn a_reader_reads_again_and_does_not_write() {
    let world = World::new();
    let lock = world.ours.read_write("a").reentrant();
    let scope = Scope::new();
    let outer = lock.read(&scope).await.unwrap();
    let inner = lock.read(&scope).await.unwrap();
    assert_eq!(world.ours.held().len(), 1);
    let refused = lock.write(&scope).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(
        refused
            .to_string()
            .contains("a reader cannot become a writer"),
        "{refused}"
    );
    assert!(inner.release().await.unwrap().is_none());
    assert!(matches!(
        outer.release().await,
        Ok(Some(Released::Released))
    ));
    assert!(world.is_free("a").await);
    assert!(lock.write(&scope).await.is_ok());
}

#[tokio::test]
async fn a_writer_that_leaves_readers_becomes_a_reader_without_a_gap() {
    let world = World::new();
    let lock = world.ours.read_write("a").reentrant();
    let cell = GuardedCell::new(1);
    let scope = Scope::new();
    let outer = lock.write(&scope).await.unwrap();
    let inner = lock.write(&scope).await.unwrap();
    let reader = lock.read(&scope).await.unwrap();
    let executor = outer.executor();
    let theirs = world.theirs.read_write("a");
    let mut writing = Box::pin(theirs.write());
    assert!(poll_once(&mut writing).await.is_pending());

    // Another writer of the scope is left, so nothing changes in the store.
    assert!(inner.release().await.unwrap().is_none());
    let write = |to: i32| {
        executor.guarded(|tx| {
            *tx.write(&cell) = to;
            Ok(())
        })
    };
    write(2).unwrap();
    let token = outer.token();
    assert!(outer.release().await.unwrap().is_none());
    assert_eq!(reader.token(), token);
    assert_eq!(reader.read(|_| *cell.read()).unwrap(), 2);
    // It writes no more, and cannot again.
    assert!(write(3).is_err());
    assert_eq!(
        lock.write(&scope).await.unwrap_err().kind(),
        ErrorKind::Invalid
    );
    // In our process a reader enters ahead of nobody: the writer that waits in the other one is
    // before it.
    assert!(poll_once(&mut writing).await.is_pending());
    assert!(matches!(
        reader.release().await,
        Ok(Some(Released::Released))
    ));
    let writer = while_time_passes(&world, secs(5), writing).await.unwrap();
    assert!(writer.token() > token);
}

#[tokio::test]
async fn a_writer_whose_readers_leave_during_its_release_gets_the_result() {
    let world = World::new();
    let lock = world.ours.read_write("a").reentrant();
    let scope = Scope::new();
    let writer = lock.write(&scope).await.unwrap();
    let reader = lock.read(&scope).await.unwrap();
    let executor = writer.executor();
    let (end, ended) = tokio::sync::oneshot::channel();
    let mut run = Box::pin(executor.guarded_async(async |_| Ok(ended.await?)));
    assert!(poll_once(&mut run).await.is_pending());

    // It waits for the run before it becomes a reader.
    let mut releasing = Box::pin(writer.release());
    assert!(poll_once(&mut releasing).await.is_pending());
    assert!(reader.release().await.unwrap().is_none());
    end.send(()).unwrap();
    let _ = run.await;
    assert!(matches!(releasing.await, Ok(Some(Released::Released))));
    assert!(world.is_free("a").await);
}

#[tokio::test]
async fn other_readers_enter_when_the_last_writer_of_a_scope_has_left() {
    let world = World::new();
    let lock = world.ours.read_write("a").reentrant();
    let scope = Scope::new();
    let writer = lock.write(&scope).await.unwrap();
    let reader = lock.read(&scope).await.unwrap();
    let theirs = world.theirs.read_write("a");
    assert!(theirs.try_read().await.unwrap().is_none());
    writer.release().await.unwrap();
    let other = theirs.try_read().await.unwrap();
    assert!(other.is_some());
    // A read hold like every other: renewed, and alone in its end.
    world.pass(secs(30)).await;
    assert!(reader.lease().is_live());
    assert!(matches!(
        reader.release().await,
        Ok(Some(Released::Released))
    ));
    assert!(!world.is_free("a").await);
}

#[tokio::test]
async fn a_writer_that_is_dropped_leaves_its_readers_the_write_hold() {
    let world = World::new();
    let lock = world.ours.read_write("a").reentrant();
    let scope = Scope::new();
    let writer = lock.write(&scope).await.unwrap();
    let reader = lock.read(&scope).await.unwrap();
    drop(writer);
    assert!(
        world
            .theirs
            .read_write("a")
            .try_read()
            .await
            .unwrap()
            .is_none()
    );
    let writer = lock.write(&scope).await.unwrap();
    drop(writer);
    assert!(matches!(
        reader.release().await,
        Ok(Some(Released::Released))
    ));
    assert!(world.is_free("a").await);
}

#[tokio::test]
async fn readers_learn_from_their_lease_that_the_hold_was_lost() {
    let world = World::new();
    let lock = world.ours.read_write("a").reentrant();
    let scope = Scope::new();
    let writer = lock.write(&scope).await.unwrap();
    let reader = lock.read(&scope).await.unwrap();
    world.clock.advance(secs(11));
    assert!(reader.read(|_| ()).is_err());
    assert!(matches!(
        lock.read(&scope).await.unwrap_err().kind(),
        ErrorKind::Lost(_)
    ));
    assert!(matches!(
        lock.write(&scope).await.unwrap_err().kind(),
        ErrorKind::Lost(_)
    ));
    let refused = writer.release().await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Lost(_)), "{refused}");
    assert!(reader.release().await.unwrap().is_none());
    world.settled().await;
    assert!(lock.write(&scope).await.is_ok());
}

#[tokio::test]
async fn another_scope_waits() {
    let world = World::new();
    let lock = world.ours.read_write("a").reentrant();
    let writer = lock.write(&Scope::new()).await.unwrap();
    let other = Scope::new();
    assert!(lock.try_read(&other).await.unwrap().is_none());
    assert!(lock.try_write(&other).await.unwrap().is_none());
    let mut waiting = Box::pin(lock.read(&other));
    assert!(poll_once(&mut waiting).await.is_pending());
    assert!(matches!(
        writer.release().await,
        Ok(Some(Released::Released))
    ));
    let reader = while_time_passes(&world, secs(1), waiting).await.unwrap();
    assert!(reader.lease().is_live());
}

#[tokio::test]
async fn an_acquire_or_a_release_that_is_dropped_at_any_await_leaks_nothing() {
    let (_clock, locks) = yielding();
    let lock = locks.read_write("a").reentrant();
    let scope = Scope::new();
    for times in 0.. {
        let work = async {
            let writer = lock.write(&scope).await.unwrap();
            let reader = lock.read(&scope).await.unwrap();
            writer.release().await.unwrap();
            reader.release().await.unwrap();
        };
        let completed = poll_and_drop(times, work);
        locks.settled().await;
        assert!(
            locks.inspect("a").await.unwrap().is_none(),
            "dropped after {times} polls"
        );
        if completed {
            assert!(times >= 4, "the store was never pending");
            return;
        }
    }
}

#[tokio::test]
async fn a_task_that_nobody_polls_keeps_no_other_task_of_its_scope_waiting() {
    let world = World::new();
    let lock = world.ours.read_write("a").reentrant();
    for is_writer in [true, false] {
        let theirs = world.theirs.lock("a").acquire().await.unwrap();
        let scope = Scope::new();
        let mut unpolled = Box::pin(lock.write(&scope));
        let mut unpolled_reader = Box::pin(lock.read(&scope));
        if is_writer {
            assert!(poll_once(&mut unpolled).await.is_pending());
        } else {
            assert!(poll_once(&mut unpolled_reader).await.is_pending());
        }
        theirs.release().await.unwrap();
        let held = while_time_passes(&world, secs(10), lock.write(&scope)).await;
        let held = held.unwrap();
        // When it is polled again, it enters the hold.
        let token = if is_writer {
            let inner = while_time_passes(&world, secs(1), unpolled).await;
            inner.unwrap().token()
        } else {
            let inner = while_time_passes(&world, secs(1), unpolled_reader).await;
            inner.unwrap().token()
        };
        assert_eq!(token, held.token());
        assert_eq!(world.ours.held().len(), 1);
    }
}

#[tokio::test]
async fn readers_of_one_scope_that_are_granted_at_once_share_one_hold() {
    let world = World::new();
    let theirs = world.theirs.lock("a").acquire().await.unwrap();
    let (lock, scope) = (world.ours.read_write("a").reentrant(), Scope::new());
    let both = async { tokio::join!(lock.read(&scope), lock.read(&scope)) };
    let mut both = Box::pin(both);
    assert!(poll_once(&mut both).await.is_pending());
    theirs.release().await.unwrap();
    let (one, other) = while_time_passes(&world, secs(10), both).await;
    let (one, other) = (one.unwrap(), other.unwrap());
    assert_eq!(one.token(), other.token());
    assert!(one.release().await.unwrap().is_none());
    assert!(other.release().await.unwrap().is_some());
}

//! tokio's paused clock jumps to the next timer as soon as nothing else is ready. A lease is
//! counted by the machine's clocks, and so is a wait: a paused clock ends neither.

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold::clock::Clock;
    use leasehold::store::MemoryStore;
    use leasehold::{LockManager, Settings};

    /// A real wait: what is shown is that the wait is real.
    const WAIT: Duration = Duration::from_millis(150);

    fn manager() -> LockManager {
        let settings = Settings {
            ttl: Duration::from_secs(3),
            ..Settings::default()
        };
        LockManager::builder(MemoryStore::new().unwrap())
            .settings(settings)
            .build()
            .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_in_the_local_queue_lasts_for_its_whole_time() {
        let locks = manager();
        let held = locks.lock("a").acquire().await.unwrap();
        let clock = Clock::system().unwrap();
        let began = clock.stamp();
        let second = locks.lock("a").acquire_within(WAIT).await.unwrap();
        assert!(second.is_none());
        assert!(clock.stamp().since(&began) >= WAIT);
        assert!(held.lease().is_live());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_for_another_process_lasts_for_its_whole_time() {
        let store = MemoryStore::new().unwrap();
        let [ours, theirs] = [(); 2].map(|()| LockManager::new(store.clone()).unwrap());
        let held = theirs.lock("a").acquire().await.unwrap();
        let clock = Clock::system().unwrap();
        let began = clock.stamp();
        assert!(ours.lock("a").acquire_within(WAIT).await.unwrap().is_none());
        assert!(clock.stamp().since(&began) >= WAIT);
        assert!(held.lease().is_live());
    }

    #[tokio::test(start_paused = true)]
    async fn a_commit_has_the_whole_time_of_its_lease() {
        let locks = manager();
        let guard = locks.lock("a").acquire().await.unwrap();
        let executor = guard.executor();
        let answered = executor.commit(async |_permit| {
            Clock::system().unwrap().sleep(WAIT).await;
            Ok::<_, leasehold::run::EffectError>(())
        });
        answered.await.unwrap().into_value();
    }
}

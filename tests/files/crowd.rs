//! A crowd on one key that fills its file: whoever has a place is served, and one more is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::store::Label;
use leasehold::{ErrorKind, LockManager, Settings};
use tokio::task::JoinSet;

use crate::place::{Place, pause};

/// More than there are places with labels of the greatest length, which make the fewest.
const CROWD: usize = 420;
const MANAGERS: usize = 4;

/// How often this process has written, to files and to whatever else.
fn writes() -> usize {
    let counts = std::fs::read_to_string("/proc/self/io").unwrap();
    let count = counts.lines().find_map(|line| line.strip_prefix("syscw: "));
    count.unwrap().parse().unwrap()
}

fn managers(place: &Place) -> Vec<LockManager> {
    let mut settings = Settings::default();
    settings.wait = Duration::from_secs(3_600);
    let label = Label::parse(&"l".repeat(Label::MAX_LEN)).unwrap();
    let store = place.store();
    let manager = |_| {
        let builder = LockManager::builder(store.clone()).settings(settings.clone());
        builder.label(label.clone()).build().unwrap()
    };
    (0..MANAGERS).map(manager).collect()
}

/// Waits for the lock, and has it alone. False if there is no place.
async fn pass(locks: LockManager, inside: Arc<AtomicUsize>, refused: Arc<AtomicUsize>) -> bool {
    let guard = match locks.lock("a").fair().acquire().await {
        Ok(guard) => guard,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
            refused.fetch_add(1, Ordering::SeqCst);
            return false;
        }
    };
    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
    tokio::task::yield_now().await;
    inside.fetch_sub(1, Ordering::SeqCst);
    // On a slow machine it may be in doubt, and is sent again.
    let _ = guard.release().await;
    true
}

pub(crate) fn a_crowd_that_fills_the_queue_is_served_and_the_others_are_refused() {
    let place = Place::new();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_time().build().unwrap();
    let [served, refused, writes] = runtime.block_on(async {
        let managers = managers(&place);
        let first = managers[0].lock("a").acquire().await.unwrap();
        let (inside, refused) = (Arc::default(), Arc::<AtomicUsize>::default());
        let mut crowd = JoinSet::new();
        for number in 0..CROWD {
            let locks = managers[number % MANAGERS].clone();
            crowd.spawn(pass(locks, Arc::clone(&inside), Arc::clone(&refused)));
        }
        let have_asked = async || {
            let info = managers[0].inspect("a").await.ok().flatten();
            let waiting = info.and_then(|info| info.queue).unwrap_or_default();
            waiting + refused.load(Ordering::SeqCst) >= CROWD
        };
        while !have_asked().await {
            pause(Duration::from_millis(3));
        }
        let before = writes();
        first.release().await.unwrap();
        let mut served = 0;
        while let Some(one) = crowd.join_next().await {
            served += usize::from(one.unwrap());
        }
        let writes = writes() - before;
        for locks in managers {
            locks.shutdown().await;
        }
        [served, refused.load(Ordering::SeqCst), writes]
    });
    println!("{served} served, {refused} refused, {writes} writes");
    assert!(served >= 370 && served + refused == CROWD, "{served}");
    // Each confirms its handover and releases. Now and then one keeps the places of all.
    assert!(writes <= 4 * served, "{writes} writes for {served}");
}

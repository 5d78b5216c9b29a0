//! Leases that are lost although nothing fails: beside 64 busy threads per core, at three TTLs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::Options;
use crate::crew::Crew;
use crate::event::What;
use crate::fault::pause;
use crate::plan::{Plan, Resource, StoreKind, Work};
use crate::register::Register;
use crate::series::{Folder, blank};
use crate::servers::Servers;

const LOCKS: u32 = 10;
const THREADS_PER_CORE: usize = 64;

/// In seconds. A session of ZooKeeper has four ticks at least, and the servers' tick is half a
/// second.
fn ttls(kind: StoreKind) -> [u64; 3] {
    match kind {
        StoreKind::ZooKeeper => [2, 3, 10],
        _ => [1, 3, 10],
    }
}

pub fn run(kind: StoreKind, options: Options) -> bool {
    let seconds = options.seconds.unwrap_or(30);
    let folder = Folder::new(kind);
    let register = Register::serve(&folder.0);
    let ttls = ttls(kind);
    let servers = Servers::start(kind, ttls.len(), &folder.0, false);
    let plans = ttls.iter().enumerate().map(|(seat, ttl)| {
        let plan = Plan {
            ttl: Duration::from_secs(*ttl),
            work: Work::Hold { locks: LOCKS },
            ..blank(kind, &register)
        };
        servers.plan(seat, Resource::Open, &plan)
    });
    let mut crew = Crew::start(plans.collect());
    pause(Duration::from_secs(2));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let ends = Arc::new(AtomicBool::new(false));
    let from = crew.events.len();
    let busy: Vec<_> = (0..cores * THREADS_PER_CORE)
        .map(|_| {
            let ends = Arc::clone(&ends);
            std::thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    pause(Duration::from_secs(seconds));
    let until = crew.events.len();
    ends.store(true, Ordering::Relaxed);
    for thread in busy {
        thread.join().expect("no thread panics");
    }
    println!(
        "{}: {LOCKS} locks held for {seconds} s at each TTL, beside {} busy threads on {cores} cores",
        kind.name(),
        cores * THREADS_PER_CORE
    );
    let events = crew.events.all();
    for ttl in ttls {
        let lost = events[from..until].iter().filter(
            |event| matches!(&event.what, What::Lost { ttl_ms, .. } if *ttl_ms == ttl * 1_000),
        );
        let lost = lost.count();
        let hours = f64::from(LOCKS) * seconds as f64 / 3_600.0;
        println!(
            "  ttl {ttl} s: {lost} leases lost, extrapolated {:.0} an hour of one held lock",
            lost as f64 / hours
        );
    }
    crew.end().is_empty()
}

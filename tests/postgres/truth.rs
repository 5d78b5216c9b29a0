//! Runs under random faults: each outcome is compared with the table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use leasehold::RunError;
use leasehold::fence::Resolve;
use leasehold::postgres::{PgFence, tokio_postgres};
use leasehold::run::Resolution;
use tokio_postgres::types::Type;

use crate::proxy::{Fate, Proxy};
use crate::server::{self, PgServer, breathe};
use crate::world::hold_for;

/// How many runs; `LEASEHOLD_TRUTH_RUNS` sets another number.
const RUNS: u32 = 100;
const TTL: Duration = Duration::from_millis(1_200);
const AT_ONCE: u32 = 4;

/// The same numbers for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn fate(&mut self, carried: (usize, usize)) -> Fate {
        let near = |from: usize, limit, dice: &mut Self| {
            from + usize::try_from(dice.below(limit)).unwrap()
        };
        match self.below(8) {
            0 | 1 => Fate {
                cut_up: near(carried.0, 600, self),
                ..Fate::KIND
            },
            2 | 3 => Fate {
                cut_down: near(carried.1, 400, self),
                ..Fate::KIND
            },
            4 => Fate {
                swallow_down: true,
                ..Fate::KIND
            },
            5 => Fate {
                hold_up: true,
                ..Fate::KIND
            },
            _ => Fate::KIND,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Claim {
    Applied,
    NotApplied,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_outcome_is_what_the_table_shows() {
    let runs = std::env::var("LEASEHOLD_TRUTH_RUNS").map_or(RUNS, |runs| runs.parse().unwrap());
    let seed =
        std::env::var("LEASEHOLD_TRUTH_SEED").map_or(0x1ea5_e401d, |seed| seed.parse().unwrap());
    println!("seed {seed} runs {runs}");
    let mut server = PgServer::start();
    let fence = PgFence::connect(&server.url()).await.unwrap();
    fence.create_schema().await.unwrap();
    server.psql("CREATE TABLE done (run int PRIMARY KEY)");
    let next = Arc::new(AtomicU32::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let port = server.port();

    let killer = {
        let is_over = Arc::clone(&is_over);
        tokio::task::spawn_blocking(move || {
            let mut dice = Dice(seed ^ 0xdead);
            let mut kills = 0;
            while !is_over.load(Ordering::Acquire) {
                for _ in 0..100 + dice.below(300) {
                    server::pause();
                }
                server.restart();
                kills += 1;
            }
            (server, kills)
        })
    };
    let workers = (0..AT_ONCE).map(|worker| {
        let (next, fence) = (Arc::clone(&next), fence.clone());
        tokio::spawn(async move {
            let mut dice = Dice(seed + u64::from(worker) + 1);
            let mut claims = Vec::new();
            loop {
                let run = next.fetch_add(1, Ordering::Relaxed);
                if run >= runs {
                    return claims;
                }
                claims.push((run, one(run, port, &fence, &mut dice).await));
            }
        })
    });
    let workers: Vec<_> = workers.collect();
    let mut claims = Vec::new();
    for worker in workers {
        claims.extend(worker.await.unwrap());
    }
    is_over.store(true, Ordering::Release);
    let (server, kills) = killer.await.unwrap();

    let there = server.psql("SELECT run FROM done");
    let there: std::collections::BTreeSet<u32> =
        there.lines().map(|run| run.parse().unwrap()).collect();
    let mut counts = std::collections::BTreeMap::new();
    for (run, (how, claim)) in claims {
        *counts.entry(format!("{how} {claim:?}")).or_insert(0) += 1;
        assert_eq!(
            there.contains(&run),
            claim == Claim::Applied,
            "run {run}: {how} {claim:?}"
        );
    }
    println!("kills {kills} {counts:?}");
}

/// One run and what it, or the resolver after it, claims.
async fn one(run: u32, port: u16, resolver: &PgFence, dice: &mut Dice) -> (&'static str, Claim) {
    let proxy = Proxy::before(port);
    let url = server::url(proxy.port());
    let fence = loop {
        match PgFence::connect(&url).await {
            Ok(fence) => break fence,
            Err(_) => breathe().await,
        }
    };
    // Half of them send their first statement with the fence's.
    let fence = match run % 2 {
        0 => fence,
        _ => {
            let fence = fence.pipelined();
            // It has connections of its own.
            let nothing = || fence.transaction(async |t| t.done(()));
            while hold_for(1, TTL).executor().commit(nothing()).await.is_err() {
                breathe().await;
            }
            fence
        }
    };
    let wire = proxy.wires().pop().unwrap();
    let when = dice.below(2);
    let first = dice.fate(wire.carried());
    let mut late = Dice(dice.below(u64::MAX) + 1);
    if when == 0 {
        wire.set(first);
    }
    let number = i32::try_from(run).unwrap();
    let call = fence.transaction(async move |t| {
        let insert = "INSERT INTO done VALUES ($1)";
        t.execute_typed(insert, &[(&number, Type::INT4)]).await?;
        if when == 1 {
            wire.set(late.fate(wire.carried()));
        }
        t.done(())
    });
    // One token for all: runs of one holder do not shut each other out.
    match hold_for(1, TTL).executor().commit(call).await {
        Ok(_) => ("committed", Claim::Applied),
        Err(
            RunError::RolledBack { .. } | RunError::Fenced { .. } | RunError::NotStarted { .. },
        ) => ("rolled back", Claim::NotApplied),
        Err(error) => {
            let doubt = error.doubt().unwrap_or_else(|| panic!("{error:?}"));
            loop {
                match resolver.resolve(&doubt).await {
                    Ok(Resolution::Applied) => return ("in doubt, resolved:", Claim::Applied),
                    Ok(Resolution::NotApplied) => {
                        return ("in doubt, resolved:", Claim::NotApplied);
                    }
                    Err(_) => breathe().await,
                }
            }
        }
    }
}

//! Each store's suite runs once, whoever asks for it first: the store's own test, or the table.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use futures_util::future::LocalBoxFuture;
use leasehold::testing::conformance::{Clause, Report, Table};
use tokio::runtime::Builder;
use tokio::sync::OnceCell;

use crate::{in_process, on_files, on_postgres, on_redis, on_zookeeper};

struct Listed {
    name: &'static str,
    suite: fn() -> LocalBoxFuture<'static, Report>,
    report: OnceCell<Report>,
}

impl Listed {
    async fn report(&self) -> &Report {
        self.report.get_or_init(|| (self.suite)()).await
    }
}

/// Every store has a row in the table, and a test of its own that prints all that it found.
macro_rules! listed {
    ($($test:ident, $name:literal, $suite:path;)*) => {
        static LISTED: [Listed; [$($name),*].len()] = [$(Listed {
            name: $name,
            suite: || Box::pin($suite()),
            report: OnceCell::const_new(),
        }),*];

        $(#[tokio::test]
        async fn $test() {
            let listed = LISTED.iter().find(|listed| listed.name == $name).unwrap();
            let report = listed.report().await;
            println!("{report}");
            report.assert_passed();
        })*
    };
}

listed! {
    memory, "memory", in_process::memory;
    memory_that_could_fail, "faulty(memory), no faults", in_process::faulty;
    quorum_of_memory, "quorum(3 memory)", in_process::quorum;
    observed_memory, "observed(memory)", in_process::observed;
    files, "file", on_files::plain;
    redis, "redis", on_redis::plain;
    redis_that_persists_every_write, "redis, every write on disk", on_redis::durable;
    redis_with_a_replica, "redis, one replica", on_redis::replicated;
    redis_cluster, "redis cluster, 3 masters", on_redis::cluster;
    quorum_of_three_redis, "quorum(3 redis)", on_redis::quorum_of_3;
    quorum_of_five_redis, "quorum(5 redis)", on_redis::quorum_of_5;
    postgres, "postgres", on_postgres::plain;
    postgres_through_a_pooler, "postgres, pgbouncer", on_postgres::through_a_pooler;
    zookeeper, "zookeeper", on_zookeeper::queue;
    zookeeper_simple, "zookeeper, simple", on_zookeeper::simple;
    zookeeper_by_the_second_driver, "zookeeper-async", on_zookeeper::queue_by_the_second_driver;
    zookeeper_simple_by_the_second_driver, "zookeeper-async, simple", on_zookeeper::simple_by_the_second_driver;
}

/// How many suites the table runs beside each other: they mostly wait for leases to end.
const BESIDE: usize = 3;

/// The report of a suite, on a runtime of its own. `None` if the suite panicked.
fn report_of(listed: &Listed) -> Option<Report> {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let run = || runtime.block_on(listed.report()).clone();
    catch_unwind(AssertUnwindSafe(run)).ok()
}

/// The table also goes to a file, from which the script that runs all tests prints it.
#[test]
fn every_listed_store_runs_and_passes() {
    let next = AtomicUsize::new(0);
    let reports: Vec<OnceLock<Option<Report>>> = LISTED.iter().map(|_| OnceLock::new()).collect();
    let work = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(listed) = LISTED.get(place) else {
                return;
            };
            reports[place].set(report_of(listed)).unwrap();
        }
    };
    thread::scope(|scope| {
        for _ in 0..BESIDE {
            scope.spawn(work);
        }
    });
    let mut table = Table::default();
    for (listed, report) in LISTED.iter().zip(reports) {
        match report.into_inner().unwrap() {
            Some(report) => table.add(listed.name, report),
            None => table.add_missing(listed.name, "its suite panicked"),
        }
    }
    println!("{table}");
    let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/conformance.txt");
    std::fs::write(file, table.to_string()).unwrap();
    table.assert_passed();
}

#[tokio::test]
async fn a_store_without_servers_lacks_only_what_a_quorum_cannot_claim() {
    for listed in LISTED
        .iter()
        .filter(|listed| listed.name.contains("memory"))
    {
        let report = listed.report().await;
        let lacks: Vec<Clause> = (Clause::ALL.into_iter())
            .filter(|clause| report.sum(*clause).did_not_apply > 0)
            .collect();
        let expected: &[Clause] = match listed.name {
            "quorum(3 memory)" => &[
                Clause::Order,
                Clause::Handover,
                Clause::ReadWrite,
                Clause::Shares,
                Clause::Revocation,
                Clause::Rest,
            ],
            "observed(memory)" => &[
                Clause::Order,
                Clause::Handover,
                Clause::ReadWrite,
                Clause::Shares,
                Clause::Rest,
            ],
            _ => &[],
        };
        assert_eq!(lacks, expected, "{}", listed.name);
    }
}

//! A process that is stopped in the midst of its transaction, and goes on when another holds the lock.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::RunError;
use leasehold::fence::{Fence, PgFence};

use crate::world::{Bank, TAKE, hold, hold_for, key, take_ten, token};

/// Of the process below: where its server is, and at which point it waits.
const CHILD: &str = "LEASEHOLD_TEST_PG_ZOMBIE";
const POINT: &str = "LEASEHOLD_TEST_PG_POINT";

fn wait_for_a_line(point: &str) {
    if std::env::var(POINT).unwrap() == point {
        println!("waiting");
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
    }
}

/// Not a test, except for the one that starts it: the process that the next tests stop.
#[test]
fn zombie() {
    let Ok(url) = std::env::var(CHILD) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let fence = PgFence::connect(&url).await.unwrap();
        let call = fence.transaction(async |t| {
            t.execute(TAKE, &[&10_i64]).await?;
            wait_for_a_line("work");
            t.done(())
        });
        let held = hold_for(1, Duration::from_secs(3));
        let executor = held.executor();
        let run = executor.commit(move |permit| {
            // The lease was found live just now.
            wait_for_a_line("enter");
            call(permit)
        });
        match run.await {
            Ok(done) => println!("ended committed {:?}", done.proof),
            Err(RunError::Fenced { seen, .. }) => println!("ended fenced {}", seen.unwrap()),
            Err(RunError::RolledBack { .. }) => println!("ended rolled back"),
            Err(other) => println!("ended {other:?}"),
        }
    });
}

struct Zombie {
    child: Child,
    told: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Zombie {
    fn stopped_at(bank: &Bank, point: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "zombie::zombie", "--nocapture"])
            .env(CHILD, bank.url())
            .env(POINT, point)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let told = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut zombie = Self { child, told };
        zombie.next("waiting");
        zombie.signal("-STOP");
        zombie
    }

    fn next(&mut self, start: &str) -> String {
        let line = self
            .told
            .by_ref()
            .map(Result::unwrap)
            .find(|line| line.starts_with(start));
        line.unwrap_or_else(|| panic!("it ended before {start}"))
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &id])
                .status()
                .unwrap()
                .success()
        );
    }

    fn end(mut self) -> String {
        self.signal("-CONT");
        self.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let end = self.next("ended");
        assert!(self.child.wait().unwrap().success());
        end
    }
}

#[tokio::test]
async fn a_zombie_that_was_stopped_before_it_entered_is_fenced() {
    let bank = Bank::open().await;
    let zombie = Zombie::stopped_at(&bank, "enter");
    let fence = bank.fence().await;
    fence.raise(&key("a"), token(2)).await.unwrap();
    // Raised, and nothing written under it yet: the zombie comes between the first read and the first write.
    assert_eq!(zombie.end(), "ended fenced 2");
    assert_eq!(bank.cents(), 100);
}

#[tokio::test]
async fn a_zombie_that_was_stopped_between_its_work_and_commit_is_rolled_back() {
    let bank = Bank::open().await;
    let zombie = Zombie::stopped_at(&bank, "work");
    let fence = bank.fence().await;
    // The server ends the zombie's transaction a second after its lease; then the fence is raised.
    fence.raise(&key("a"), token(2)).await.unwrap();
    assert_eq!(take_ten(&hold(2).executor(), &fence).await.unwrap(), 90);
    assert_eq!(zombie.end(), "ended rolled back");
    assert_eq!(bank.cents(), 90);
}

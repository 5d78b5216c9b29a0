//! Several processes, one lock, no server: the locks are files of this machine.
//!
//! Each process counts in a file that nothing else protects. No update is lost, and a process that
//! is killed while it holds the lock delays the others only for a moment, because its holds end
//! with it (`on_death=now`).
//!
//! Run it with `cargo run --example two_processes`.

use std::error::Error;
use std::path::Path;
use std::process::{Child, Command};

use leasehold::LockManager;

const PROCESSES: usize = 2;
const ROUNDS: u64 = 50;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("count"), Some(directory)) => count(Path::new(&directory)).await,
        _ => start().await,
    }
}

/// The work of one process.
async fn count(directory: &Path) -> Result<(), Box<dyn Error + Send + Sync>> {
    let locks = LockManager::connect(&url(directory)).await?;
    let counter = directory.join("counter");
    for _ in 0..ROUNDS {
        let guard = locks.lock("counter").acquire().await?;
        let path = counter.clone();
        let executor = guard.executor();
        let run = executor.guarded_async(async move |tx| {
            let before: u64 = std::fs::read_to_string(&path)?.parse()?;
            tx.check()?;
            std::fs::write(&path, (before + 1).to_string())?;
            Ok(())
        });
        run.await?;
        guard.release().await?;
    }
    locks.shutdown().await;
    Ok(())
}

async fn start() -> Result<(), Box<dyn Error + Send + Sync>> {
    let name = format!("leasehold-two-processes-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir(&directory)?;
    std::fs::write(directory.join("counter"), "0")?;
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        processes.push(worker(&directory)?);
    }
    for process in &mut processes {
        let status = process.wait()?;
        assert!(status.success(), "a process failed: {status}");
    }
    let counted = std::fs::read_to_string(directory.join("counter"))?;
    println!("{PROCESSES} processes counted to {counted}");
    assert_eq!(counted.parse::<u64>()?, PROCESSES as u64 * ROUNDS);
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}

fn worker(directory: &Path) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .arg("count")
        .arg(directory)
        .spawn()
}

fn url(directory: &Path) -> String {
    format!("file://{}/locks?on_death=now", directory.display())
}

//! Three processes share one list of jobs. Each job is done once, whoever comes first.
//!
//! `cargo run --example worker_pool --features redis --
//! redis://127.0.0.1:6379/0?restart_quarantine=off`
//!
//! A job is a file in `todo/`. A worker takes the lock of the job, checks *under the lock* that the
//! job is still to do, and moves the file to `done/` in a guarded run: a worker that lost its lease
//! moves nothing.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use leasehold::LockManager;

const JOBS: usize = 12;
const WORKERS: usize = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [url] => start_workers(url),
        [url, folder] => work(url, Path::new(folder)).await,
        _ => Err("worker_pool STORE_URL".into()),
    }
}

async fn work(url: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let locks = LockManager::connect(url).await?;
    let (todo, done) = (folder.join("todo"), folder.join("done"));
    for entry in fs::read_dir(&todo)? {
        let name = entry?.file_name().into_string().map_err(|_| "not UTF-8")?;
        let lock = locks.lock(format!("jobs/{name}"));
        let Some(guard) = lock.try_acquire().await? else {
            continue; // another worker does it now
        };
        let job = todo.join(&name);
        if job.exists() {
            // The long part of a job belongs here; `tx.check()?` in between stops it early.
            let ran = guard.guarded(|tx| {
                tx.check()?;
                Ok(fs::rename(&job, done.join(&name))?)
            });
            match ran {
                Ok(_) => println!("worker {} did {name}", std::process::id()),
                Err(error) => eprintln!("{name}: {error}"),
            }
        }
        guard.release().await?;
    }
    locks.shutdown().await;
    Ok(())
}

fn start_workers(url: &str) -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("worker-pool-{}", std::process::id()));
    let (todo, done) = (folder.join("todo"), folder.join("done"));
    fs::create_dir_all(&todo)?;
    fs::create_dir_all(&done)?;
    for number in 0..JOBS {
        fs::write(todo.join(format!("job-{number}")), "")?;
    }
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        let mut worker = Command::new(std::env::current_exe()?);
        worker.arg(url).arg(&folder).stdout(Stdio::piped());
        workers.push(worker.spawn()?);
    }
    let mut lines = 0;
    for worker in workers {
        let output = String::from_utf8(worker.wait_with_output()?.stdout)?;
        print!("{output}");
        lines += output.lines().count();
    }
    assert_eq!(lines, JOBS, "each job once");
    assert_eq!(fs::read_dir(&done)?.count(), JOBS);
    Ok(fs::remove_dir_all(&folder)?)
}

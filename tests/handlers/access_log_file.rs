//! The access log in files of its own, of which a new one is begun when its time has come.
#![cfg(feature = "access-log-file")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::LockManager;
use leasehold::handler::{AccessLogFile, Rotation};
use leasehold::store::MemoryStore;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("leasehold-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// The names of the files and what is in them, in order.
    fn files(&self) -> Vec<(String, String)> {
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        let mut files: Vec<_> = std::fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                (
                    entry.file_name().into_string().unwrap(),
                    read(&entry.path()),
                )
            })
            .collect();
        files.sort();
        files
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn locks(folder: &Folder, rotation: Rotation) -> LockManager {
    let log = AccessLogFile::create(folder.0.join("locks.log"), rotation).unwrap();
    let builder = LockManager::builder(MemoryStore::new().unwrap()).observer(log);
    builder.build().unwrap()
}

async fn use_lock(locks: &LockManager) {
    let guard = locks.lock("orders/7").acquire().await.unwrap();
    guard.release().await.unwrap();
}

/// A real pause: another thread writes the files, and the rotation follows the wall clock.
#[allow(clippy::disallowed_methods, reason = "see above")]
async fn pause() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

#[tokio::test]
async fn the_name_of_a_rotated_log_has_its_date() {
    for (rotation, parts) in [(Rotation::DAILY, 3), (Rotation::HOURLY, 4)] {
        let folder = Folder::new(&format!("rotated-{parts}"));
        let locks = locks(&folder, rotation);
        use_lock(&locks).await;
        locks.shutdown().await;
        drop(locks);
        let mut looks = 0;
        while !folder
            .files()
            .iter()
            .any(|(_, text)| text.contains("event=\"release\""))
        {
            assert!(looks < 1_000, "nothing was written: {:?}", folder.files());
            looks += 1;
            pause().await;
        }
        for (name, _) in folder.files() {
            let date = name.strip_prefix("locks.log.").unwrap();
            let numbers: Vec<u32> = date.split('-').map(|part| part.parse().unwrap()).collect();
            assert_eq!(numbers.len(), parts, "{name}");
        }
    }
}

/// The shortest rotation is a minute, so this takes up to one, and it ends when the second file is there.
#[tokio::test]
async fn a_new_file_is_begun_when_its_time_has_come_and_no_line_is_lost() {
    let folder = Folder::new("rotation");
    let locks = locks(&folder, Rotation::MINUTELY);
    let (mut used, mut looks) = (0, 0);
    while folder.files().len() < 2 {
        assert!(looks < 2_400, "still one file: {:?}", folder.files());
        looks += 1;
        use_lock(&locks).await;
        used += 1;
        pause().await;
    }
    locks.shutdown().await;
    drop(locks);
    let lines = || -> usize {
        let releases = |text: &str| text.matches("event=\"release\"").count();
        (folder.files().iter())
            .map(|(_, text)| releases(text))
            .sum()
    };
    let mut looks = 0;
    while lines() < used {
        assert!(looks < 1_000, "{} of {used} lines", lines());
        looks += 1;
        pause().await;
    }
    assert_eq!(lines(), used);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_costs_the_lines_and_nothing_else() {
    let log = AccessLogFile::create("/dev/full", Rotation::NEVER).unwrap();
    let builder = LockManager::builder(MemoryStore::new().unwrap()).observer(log);
    let locks = builder.build().unwrap();
    for _ in 0..1_000 {
        use_lock(&locks).await;
    }
    locks.shutdown().await;
}

//! Files of this machine. Each client is a store of its own, as another process would have.

use std::path::PathBuf;
use std::time::Duration;

use leasehold::Error;
use leasehold::clock::Clock;
use leasehold::store::{FileOptions, FileStore};
use leasehold::testing::conformance;
use leasehold::testing::conformance::{Harness, Report};

struct InDirectory(PathBuf);

impl Harness for InDirectory {
    type Store = FileStore;

    async fn client(&self) -> Result<FileStore, Error> {
        FileStore::open(&FileOptions::new(&self.0))
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(1_200)
    }

    fn clock(&self) -> Clock {
        Clock::system().unwrap()
    }
}

pub(crate) async fn plain() -> Report {
    let name = format!("leasehold-conformance-{}", std::process::id());
    let harness = InDirectory(std::env::temp_dir().join(name));
    let report = conformance::run(&harness).await;
    std::fs::remove_dir_all(&harness.0).unwrap();
    report
}

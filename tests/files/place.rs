//! A directory of a test's own, and the words for its locks.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::Key;
use leasehold::store::{
    Acquired, Claim, FileOptions, FileStore, Grant, Label, OwnerToken, Renewed, Store,
};

/// For as long as a busy machine may need: a minute and more.
const LOOKS: u32 = 20_000;

/// Deleted at the end.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("leasehold-files-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    pub(crate) fn url(&self, options: &str) -> String {
        format!("file://{}/locks{options}", self.0.display())
    }

    pub(crate) fn store(&self) -> FileStore {
        open(&self.url(""))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn open(url: &str) -> FileStore {
    FileStore::open(&FileOptions::parse(url).unwrap()).unwrap()
}

/// This program as another process.
pub(crate) fn worker(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("worker").args(words);
    command
}

/// A claim that keeps its place for as long as it would hold.
pub(crate) fn claim(key: &str, ttl: Duration) -> Claim {
    let owner = OwnerToken::generate().unwrap();
    let key = Key::parse(key).unwrap();
    let mut claim = Claim::new(key, owner, Label::parse("test").unwrap(), ttl);
    claim.place_ttl = ttl;
    claim
}

/// Asks once.
pub(crate) fn try_once(store: &FileStore, key: &str, ttl: Duration) -> Option<Grant> {
    let mut claim = claim(key, ttl);
    claim.place_ttl = Duration::ZERO;
    match wait(store.acquire(&claim)).unwrap() {
        Acquired::Granted(grant) => Some(grant),
        _ => None,
    }
}

pub(crate) fn is_held(store: &FileStore, grant: &Grant) -> bool {
    let renewed = wait(store.renew(std::slice::from_ref(grant)));
    matches!(renewed[..], [Renewed::Extended(_)])
}

pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().build().unwrap().block_on(future)
}

/// Real time: other processes work.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if is_so() {
            return;
        }
        pause(Duration::from_millis(3));
    }
    panic!("never came: {what}");
}

#[allow(clippy::disallowed_methods, reason = "other processes work meanwhile")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A shell in which file systems can be mounted that nobody else sees. `None` where the system does
/// not allow that.
pub(crate) fn shell_that_mounts(script: &str) -> Option<Command> {
    let mut words = vec!["--mount"];
    if !is_root() {
        words.push("--map-root-user");
    }
    let tried = Command::new("unshare").args(&words).arg("true").output();
    if !tried.is_ok_and(|output| output.status.success()) {
        println!("did not run: this system lets nobody but root mount file systems");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(&words).args(["sh", "-ec", script]);
    command.arg(std::env::current_exe().unwrap());
    Some(command)
}

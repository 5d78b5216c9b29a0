//! [`Wakeups`]: datagrams that wake the process whose waiter is next.
//!
//! A process that waits binds a socket `w/<process>`; whoever hands a key over to one of its claims
//! sends the claim there. A message proves nothing: the waiter asks again.
//!
//! The queue of a socket is short (10 messages, if `net.unix.max_dgram_qlen` is the kernel's own),
//! and what does not fit is lost, since nobody waits for a process that may be stopped. A process
//! that reads as many as fit, one after the other, may have lost some. Then all its waiters ask.

use std::collections::HashMap;
use std::io::ErrorKind as IoKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::AtFlags;

use super::directory::Directory;
use super::peers::{Peers, Sent, address};
use super::process::name;
use crate::model::holder::OwnerToken;
use crate::model::key::Key;
use crate::model::room::make_room;
use crate::store::{Hint, Line, Waiters, Wakes, Woken};

/// The owner token and the longest key.
const LONGEST: usize = 16 + Key::MAX_LEN;

/// Where the system says how many messages the queue of a socket holds, less one.
const QUEUE: &str = "/proc/sys/net/unix/max_dgram_qlen";
/// A longer queue may lose messages too: each sender has memory for some two hundred.
const MOST_UNREAD: usize = 64;

/// The hints of this process, and its socket.
#[derive(Debug)]
pub(super) struct Wakeups {
    waiting: Arc<Mutex<HashMap<Key, Waiting>>>,
    peers: Peers,
    process: u64,
    /// Whether this process receives. Set by the first waiter.
    receives: OnceLock<bool>,
}

/// Those of this process that wait for a key.
#[derive(Debug, Default)]
struct Waiting {
    waiters: Waiters,
    /// Who was woken last.
    called: Option<OwnerToken>,
}

impl Waiting {
    fn call(&mut self, owner: &OwnerToken) -> Option<Woken> {
        let woken = self.waiters.take_one(owner)?;
        self.called = Some(*owner);
        Some(woken)
    }
}

impl Wakeups {
    pub(super) fn new(process: u64) -> Self {
        Self {
            waiting: Arc::default(),
            peers: Peers::default(),
            process,
            receives: OnceLock::new(),
        }
    }

    /// Whether messages reach this process. The first call binds its socket and starts the thread
    /// that reads it.
    pub(super) fn receives(&self, directory: &Directory) -> bool {
        *self.receives.get_or_init(|| {
            let listened = listen(directory, self.process, &self.waiting);
            if let Err(error) = &listened {
                tracing::debug!(target: "leasehold::file", %error, "no socket for wake-ups: waiters of this process poll");
            }
            listened.is_ok()
        })
    }

    pub(super) fn subscribe(&self, key: &Key, owner: OwnerToken, now: Duration) -> Hint {
        let mut waiting = self.waiting.lock();
        make_room(&mut waiting, |waiting| !waiting.waiters.is_empty());
        let of_key = waiting.entry(key.clone()).or_default();
        of_key.waiters.subscribe(owner, now)
    }

    /// Subscribes if messages reach this process already.
    pub(super) fn listen(&self, key: &Key, owner: OwnerToken, now: Duration) -> Option<Hint> {
        (self.receives.get() == Some(&true)).then(|| self.subscribe(key, owner, now))
    }

    /// Keeps the places of those that wait for a message and still ask.
    pub(super) fn keep_places(&self, key: &Key, line: &mut Line, now: Duration) {
        let waiting = self.waiting.lock();
        if let Some(Waiting { waiters, .. }) = waiting.get(key) {
            line.keep_places(self.process, now, |owner| waiters.last_asked(owner));
        }
    }

    /// Notes that a claim asks. True if it was woken, and no other of its key after it.
    pub(super) fn asks(
        &self,
        key: &Key,
        owner: &OwnerToken,
        now: impl FnOnce() -> Duration,
    ) -> bool {
        let mut waiting = self.waiting.lock();
        let Some(Waiting { waiters, called }) = waiting.get_mut(key) else {
            return false;
        };
        waiters.asks(owner, now());
        called.as_ref() == Some(owner)
    }

    /// Wakes the waiters of this process.
    pub(super) fn wake(&self, key: &Key, wakes: &Wakes) {
        let woken = (self.waiting.lock().get_mut(key)).map(|waiting| {
            let called = wakes.handed_over.iter();
            let mut woken: Vec<_> = called
                .filter_map(|(owner, _)| waiting.call(owner))
                .collect();
            woken.extend(waiting.waiters.take(wakes));
            woken
        });
        drop(woken);
    }

    /// Wakes a waiter of another process.
    pub(super) fn send(
        &self,
        directory: &Directory,
        process: u64,
        key: &Key,
        owner: &OwnerToken,
    ) -> Sent {
        let message = [owner.as_bytes().as_slice(), key.as_str().as_bytes()].concat();
        self.peers.send(directory, process, &message)
    }

    /// Ends the thread and deletes the socket.
    pub(super) fn end(&self, directory: &Directory) {
        if self.receives.get() != Some(&true) {
            return;
        }
        let _ = self.peers.send(directory, self.process, &[]);
        let name = name(self.process);
        let _ = rustix::fs::unlinkat(directory.sockets(), &*name, AtFlags::empty());
    }
}

/// With so many messages the queue of a new socket is full.
fn full_queue() -> usize {
    let text = std::fs::read_to_string(QUEUE).unwrap_or_default();
    let most = text.trim().parse().unwrap_or(10_usize);
    most.saturating_add(1).min(MOST_UNREAD)
}

/// Whether nobody reads a socket.
pub(super) fn is_abandoned(directory: &Directory, name: &str) -> bool {
    let Ok(probe) = UnixDatagram::unbound() else {
        return false;
    };
    let connected = probe.connect(address(directory, name));
    connected.is_err_and(|error| error.kind() == IoKind::ConnectionRefused)
}

fn listen(
    directory: &Directory,
    process: u64,
    waiting: &Arc<Mutex<HashMap<Key, Waiting>>>,
) -> std::io::Result<()> {
    let address = address(directory, &name(process));
    let socket = UnixDatagram::bind(&address)?;
    let mode = std::fs::Permissions::from_mode(directory.file_mode().as_raw_mode());
    std::fs::set_permissions(&address, mode)?;
    let (waiting, full) = (Arc::clone(waiting), full_queue());
    let thread = std::thread::Builder::new().name("leasehold-file".to_owned());
    thread.spawn(move || receive(&socket, &waiting, full))?;
    Ok(())
}

/// Reads messages until an empty one arrives. `full`: with so many the queue loses others.
fn receive(socket: &UnixDatagram, waiting: &Mutex<HashMap<Key, Waiting>>, full: usize) {
    let mut message = [0; LONGEST];
    // How many were there at once, at least.
    let mut unread = 0_usize;
    loop {
        let len = match socket.recv(&mut message) {
            Ok(0) => return,
            Ok(len) => len,
            Err(error) if error.kind() == IoKind::Interrupted => continue,
            Err(error) => {
                tracing::warn!(target: "leasehold::file", %error, "the socket for wake-ups failed: waiters of this process are woken late");
                return;
            }
        };
        let parsed = message[..len]
            .split_first_chunk::<16>()
            .and_then(|(owner, key)| {
                let key = Key::parse(std::str::from_utf8(key).ok()?).ok()?;
                Some((OwnerToken::from_bytes(*owner), key))
            });
        let woken = parsed.and_then(|(owner, key)| waiting.lock().get_mut(&key)?.call(&owner));
        // Outside of the lock, which whoever wakes up needs first.
        drop(woken);
        unread = unread.saturating_add(1);
        // The length of the next message, if there is one.
        if rustix::io::ioctl_fionread(socket).is_ok_and(|next| next > 0) {
            continue;
        }
        if std::mem::take(&mut unread) >= full {
            let mut waiting = waiting.lock();
            let of_all = waiting.values_mut().map(|one| one.waiters.take_all());
            let woken: Vec<_> = of_all.collect();
            drop(waiting);
            drop(woken);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::super::tests::{Temporary, claim};
    use super::*;

    /// More than any queue holds.
    const MANY: usize = 2_000;
    const LOOKS: usize = 2_000;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "another thread reads")]
    fn a_waiter_whose_message_did_not_fit_into_the_queue_is_woken_all_the_same() {
        let temporary = Temporary::new();
        let store = temporary.store();
        let directory = &store.inner().directory;
        let wakeups = Wakeups::new(7);
        assert!(wakeups.receives(directory));
        let claims: Vec<_> = (0..MANY).map(|n| claim(&format!("a/{n}"))).collect();
        let hints = claims
            .iter()
            .map(|claim| wakeups.subscribe(&claim.key, claim.owner, Duration::ZERO));
        let mut hints: Vec<_> = hints.collect();
        // Whoever reads has to wait for this.
        let waiting = wakeups.waiting.lock();
        for claim in &claims {
            let sent = wakeups.send(directory, 7, &claim.key, &claim.owner);
            assert_eq!(sent, Sent::Sent);
        }
        drop(waiting);
        for _ in 0..LOOKS {
            hints.retain_mut(|hint| hint.now_or_never().is_none());
            if hints.is_empty() {
                return wakeups.end(directory);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{} of {MANY} were not woken", hints.len());
    }
}

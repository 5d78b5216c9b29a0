//! [`Wakeups`]: datagrams that wake the process whose waiter is next.
//!
//! A process that waits binds a socket `w/<process>`; whoever hands a key over to one of its claims
//! sends the claim there. A message proves nothing: the waiter asks again.

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
    let waiting = Arc::clone(waiting);
    let thread = std::thread::Builder::new().name("leasehold-file".to_owned());
    thread.spawn(move || receive(&socket, &waiting))?;
    Ok(())
}

/// Reads messages until an empty one arrives.
fn receive(socket: &UnixDatagram, waiting: &Mutex<HashMap<Key, Waiting>>) {
    let mut message = [0; LONGEST];
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
    }
}

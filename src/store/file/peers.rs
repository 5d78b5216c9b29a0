//! [`Peers`]: sends messages to other processes, each through a socket that stays connected to it.
//!
//! To look up the path of a socket for each message takes twice as long as all the rest of sending
//! it.

use std::io::{ErrorKind as IoKind, Result as IoResult};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use parking_lot::Mutex;

use super::directory::Directory;
use super::process::name;

/// How many processes stay connected.
const MOST: usize = 16;

/// The connected sockets, the oldest first. The name of a process is never used again, so none
/// leads to another one.
#[derive(Debug, Default)]
pub(super) struct Peers(Mutex<Vec<(u64, Arc<UnixDatagram>)>>);

/// What became of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    /// It arrived, or its process polls.
    Sent,
    /// Its process is dead.
    Refused,
}

impl Peers {
    pub(super) fn send(&self, directory: &Directory, process: u64, message: &[u8]) -> Sent {
        let peer = self.connected(directory, process);
        match peer.and_then(|peer| peer.send(message)) {
            Err(error) if error.kind() == IoKind::ConnectionRefused => {
                self.0.lock().retain(|(known, _)| *known != process);
                Sent::Refused
            }
            // A full queue belongs to a process that is stopped or very slow: the handover time
            // decides.
            _ => Sent::Sent,
        }
    }

    /// Connected by the first message. If that fails, the next one tries again.
    fn connected(&self, directory: &Directory, process: u64) -> IoResult<Arc<UnixDatagram>> {
        let mut peers = self.0.lock();
        if let Some((_, peer)) = peers.iter().find(|(known, _)| *known == process) {
            return Ok(Arc::clone(peer));
        }
        if peers.len() == MOST {
            peers.remove(0);
        }
        let socket = UnixDatagram::unbound().or_else(|_| {
            // No descriptor may be left (`EMFILE`).
            peers.clear();
            UnixDatagram::unbound()
        })?;
        socket.set_nonblocking(true)?;
        socket.connect(address(directory, &name(process)))?;
        let peer = Arc::new(socket);
        peers.push((process, Arc::clone(&peer)));
        Ok(peer)
    }
}

/// A path that is short enough for the address of a socket, however long the directory's is.
pub(super) fn address(directory: &Directory, name: &str) -> String {
    format!("/proc/self/fd/{}/{name}", directory.sockets().as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::super::tests::Temporary;
    use super::*;

    fn socket(directory: &Directory, process: u64) -> UnixDatagram {
        UnixDatagram::bind(address(directory, &name(process))).unwrap()
    }

    #[test]
    fn a_process_that_dies_after_a_message_is_noticed_by_the_next() {
        let temporary = Temporary::new();
        let store = temporary.store();
        let directory = &store.inner().directory;
        let peers = Peers::default();
        assert_eq!(peers.send(directory, 7, b"a"), Sent::Sent, "it polls");
        let socket = socket(directory, 7);
        for message in [b"b", b"c"] {
            assert_eq!(peers.send(directory, 7, message), Sent::Sent);
            let mut received = [0; 9];
            assert_eq!(socket.recv(&mut received).unwrap(), 1);
            assert_eq!(received[..1], *message);
        }
        drop(socket);
        for message in [b"d", b"e"] {
            assert_eq!(peers.send(directory, 7, message), Sent::Refused);
        }
    }

    #[test]
    fn few_processes_stay_connected_and_all_get_their_messages() {
        let temporary = Temporary::new();
        let store = temporary.store();
        let directory = &store.inner().directory;
        let peers = Peers::default();
        let processes = 0..MOST as u64 + 3;
        let sockets: Vec<_> = processes
            .map(|process| socket(directory, process))
            .collect();
        for message in [b"a", b"b"] {
            for (process, socket) in (0..).zip(&sockets) {
                assert_eq!(peers.send(directory, process, message), Sent::Sent);
                let mut received = [0; 9];
                assert_eq!(socket.recv(&mut received).unwrap(), 1);
                assert_eq!(received[..1], *message, "{process}");
            }
        }
        assert_eq!(peers.0.lock().len(), MOST);
    }
}

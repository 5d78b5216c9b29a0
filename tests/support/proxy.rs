//! A TCP proxy of our own, that fails as networks do: it cuts after so many bytes, is slow,
//! swallows answers, and holds back what was sent, to deliver it when nobody waits for it any more.

#![allow(dead_code)] // Each test file uses a part of it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread;
use std::time::Duration;

/// What one connection suffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fate {
    /// Cut both ways after so many bytes towards the server.
    pub(crate) cut_up: usize,
    /// Cut both ways after so many bytes towards the client.
    pub(crate) cut_down: usize,
    /// Keep back what goes towards the server, also after the client has gone.
    pub(crate) hold_up: bool,
    /// Throw away what goes towards the client.
    pub(crate) swallow_down: bool,
    /// For how long each piece is on its way, one way.
    pub(crate) delay: Duration,
    /// Deliver messages of Redis twice.
    pub(crate) doubles_messages: bool,
}

impl Fate {
    pub(crate) const KIND: Self = Self {
        cut_up: usize::MAX,
        cut_down: usize::MAX,
        hold_up: false,
        swallow_down: false,
        delay: Duration::ZERO,
        doubles_messages: false,
    };
}

/// One connection through the proxy.
pub(crate) struct Wire {
    fate: Mutex<Fate>,
    changed: Condvar,
    up: Mutex<usize>,
    down: Mutex<usize>,
    /// Bytes that came from the client, passed on or not.
    came: Mutex<usize>,
    doubled: AtomicUsize,
    /// Of the client and of the server, until both directions have ended: a proxy remembers all its
    /// wires.
    ends: Weak<[TcpStream; 2]>,
}

impl Wire {
    pub(crate) fn set(&self, fate: Fate) {
        *self.fate.lock().unwrap() = fate;
        self.changed.notify_all();
    }

    /// Bytes that went to the server and to the client.
    pub(crate) fn carried(&self) -> (usize, usize) {
        (*self.up.lock().unwrap(), *self.down.lock().unwrap())
    }

    /// Bytes that the client has sent, also those that are kept back.
    pub(crate) fn came(&self) -> usize {
        *self.came.lock().unwrap()
    }

    /// How many pieces of messages were delivered twice.
    pub(crate) fn doubled(&self) -> usize {
        self.doubled.load(Ordering::SeqCst)
    }

    pub(crate) fn cut(&self) {
        for end in self.ends.upgrade().iter().flat_map(|ends| ends.iter()) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    /// For connections to come.
    next: Mutex<Fate>,
    wires: Mutex<Vec<Arc<Wire>>>,
}

impl Proxy {
    /// A proxy in front of a loopback port. Its threads end with the test's process.
    pub(crate) fn before(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            next: Mutex::new(Fate::KIND),
            wires: Mutex::default(),
        });
        let proxy = Self {
            port,
            shared: Arc::clone(&shared),
        };
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                // A server that is down refuses: so does the proxy, by closing.
                if let Ok(server) = TcpStream::connect(("127.0.0.1", server)) {
                    shared.carry(client, server);
                }
            }
        });
        proxy
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self, query: &str) -> String {
        format!("redis://127.0.0.1:{}/0?{query}", self.port)
    }

    /// What connections to come will suffer.
    pub(crate) fn next(&self, fate: Fate) {
        *self.shared.next.lock().unwrap() = fate;
    }

    pub(crate) fn wires(&self) -> Vec<Arc<Wire>> {
        self.shared.wires.lock().unwrap().clone()
    }

    /// What connections that stand, and those to come, suffer from now.
    pub(crate) fn all(&self, fate: Fate) {
        self.next(fate);
        for wire in self.wires() {
            wire.set(fate);
        }
    }
}

impl Shared {
    fn carry(&self, client: TcpStream, server: TcpStream) {
        for end in [&client, &server] {
            end.set_nodelay(true).unwrap();
        }
        let ends = Arc::new([client, server]);
        let wire = Arc::new(Wire {
            fate: Mutex::new(*self.next.lock().unwrap()),
            changed: Condvar::new(),
            up: Mutex::new(0),
            down: Mutex::new(0),
            came: Mutex::new(0),
            doubled: AtomicUsize::new(0),
            ends: Arc::downgrade(&ends),
        });
        self.wires.lock().unwrap().push(Arc::clone(&wire));
        let (up, up_ends) = (Arc::clone(&wire), Arc::clone(&ends));
        thread::spawn(move || pump(&up, &up_ends[0], &up_ends[1], true));
        thread::spawn(move || pump(&wire, &ends[1], &ends[0], false));
    }
}

/// A slow line: no clock of ours moves it.
#[allow(clippy::disallowed_methods)]
fn linger(delay: Duration) {
    if !delay.is_zero() {
        thread::sleep(delay);
    }
}

/// Whether these are whole messages of Redis to a subscriber, and nothing else.
fn are_messages(mut bytes: &[u8]) -> bool {
    let is_empty = bytes.is_empty();
    while let Some(rest) = bytes.strip_prefix(b">3\r\n$7\r\nmessage\r\n") {
        bytes = rest;
        for _ in 0..2 {
            let Some(rest) = bytes.strip_prefix(b"$") else {
                return false;
            };
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let length: usize =
                str::from_utf8(&rest[..digits]).map_or(0, |digits| digits.parse().unwrap_or(0));
            let Some(rest) = rest.get(digits + 2 + length + 2..) else {
                return false;
            };
            bytes = rest;
        }
    }
    bytes.is_empty() && !is_empty
}

fn pump(wire: &Wire, mut from: &TcpStream, mut to: &TcpStream, is_up: bool) {
    let mut buffer = [0; 16 * 1024];
    loop {
        let length = from.read(&mut buffer).unwrap_or(0);
        if is_up {
            *wire.came.lock().unwrap() += length;
        }
        let fate = {
            let fate = wire.fate.lock().unwrap();
            let is_held = |fate: &mut Fate| is_up && fate.hold_up;
            *wire.changed.wait_while(fate, is_held).unwrap()
        };
        if length == 0 {
            break;
        }
        let mut carried = if is_up {
            wire.up.lock().unwrap()
        } else {
            wire.down.lock().unwrap()
        };
        let limit = if is_up { fate.cut_up } else { fate.cut_down };
        let passes = length.min(limit.saturating_sub(*carried));
        *carried += passes;
        drop(carried);
        linger(fate.delay);
        let is_swallowed = !is_up && fate.swallow_down;
        if !is_swallowed && to.write_all(&buffer[..passes]).is_err() {
            break;
        }
        if !is_up && fate.doubles_messages && are_messages(&buffer[..passes]) {
            wire.doubled.fetch_add(1, Ordering::SeqCst);
            if to.write_all(&buffer[..passes]).is_err() {
                break;
            }
        }
        if passes < length {
            wire.cut();
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

//! A TCP proxy that stalls, resets, or cuts after so many bytes, for tests on ZooKeeper.

#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// Forwards a port of its own to another one, until a test changes that. Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_stalled: bool,
    is_closed: bool,
    /// Bytes that still pass, by way, before everything is reset.
    budget: [Option<usize>; 2],
    streams: Vec<TcpStream>,
    passed: [usize; 2],
}

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    ToServer = 0,
    ToClient = 1,
}

impl Proxy {
    pub(crate) fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { continue };
                if accepting.state.lock().unwrap().is_closed {
                    return;
                }
                // A target that is down refuses, and so do we, by closing.
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else {
                    continue;
                };
                let _ = client.set_nodelay(true);
                let _ = server.set_nodelay(true);
                forward(&accepting, &client, &server, Way::ToServer);
                forward(&accepting, &server, &client, Way::ToClient);
            }
        });
        Self { port, shared }
    }

    /// Holds everything back, without closing: neither side is notified.
    pub(crate) fn stall(&self) {
        self.shared.state.lock().unwrap().is_stalled = true;
    }

    /// Lets everything that was held back pass.
    pub(crate) fn resume(&self) {
        self.shared.state.lock().unwrap().is_stalled = false;
        self.shared.changed.notify_all();
    }

    /// Closes every connection.
    pub(crate) fn reset(&self) {
        let mut state = self.shared.state.lock().unwrap();
        close(&mut state);
    }

    /// Closes every connection as soon as so many more bytes have passed one way.
    pub(crate) fn cut_after(&self, way: Way, bytes: usize) {
        self.shared.state.lock().unwrap().budget[way as usize] = Some(bytes);
    }

    /// Whether a cut is still to come.
    pub(crate) fn cut_is_pending(&self) -> bool {
        self.shared
            .state
            .lock()
            .unwrap()
            .budget
            .iter()
            .any(Option::is_some)
    }

    pub(crate) fn never_mind(&self) {
        self.shared.state.lock().unwrap().budget = [None; 2];
    }

    /// How many bytes have passed one way.
    pub(crate) fn passed(&self, way: Way) -> usize {
        self.shared.state.lock().unwrap().passed[way as usize]
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock().unwrap();
        state.is_closed = true;
        state.is_stalled = false;
        close(&mut state);
        self.shared.changed.notify_all();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn close(state: &mut State) {
    for stream in state.streams.drain(..) {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn forward(shared: &Arc<Shared>, from: &TcpStream, to: &TcpStream, way: Way) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    let shared = Arc::clone(shared);
    shared
        .state
        .lock()
        .unwrap()
        .streams
        .push(from.try_clone().unwrap());
    thread::spawn(move || {
        let mut buffer = [0; 16 * 1024];
        loop {
            let read = match from.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(read) => read,
            };
            let mut state = shared.state.lock().unwrap();
            while state.is_stalled {
                state = shared.changed.wait(state).unwrap();
            }
            let mut passing = read;
            let mut is_cut = false;
            if let Some(budget) = &mut state.budget[way as usize] {
                passing = passing.min(*budget);
                *budget -= passing;
                is_cut = *budget == 0;
            }
            state.passed[way as usize] += passing;
            let sent = to.write_all(&buffer[..passing]);
            if is_cut {
                state.budget[way as usize] = None;
                close(&mut state);
            }
            if is_cut || sent.is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}

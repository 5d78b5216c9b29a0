//! Ports for servers.

use std::net::TcpListener;
use std::sync::Mutex;

use leasehold::store::OwnerToken;

/// A port that was free just now, and is not given to two callers of this process.
pub(crate) fn free_port() -> u16 {
    static GIVEN: Mutex<Vec<u16>> = Mutex::new(Vec::new());
    loop {
        let random = OwnerToken::generate().expect("random bytes");
        // Below the ports that the system gives to who connects: a server that is started again
        // finds its own one free, and nobody connects to itself where no server listens yet.
        let port =
            10_000 + u16::from_be_bytes([random.as_bytes()[0], random.as_bytes()[1]]) % 20_000;
        let mut given = GIVEN.lock().expect("no caller panics");
        if !given.contains(&port) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            given.push(port);
            return port;
        }
    }
}

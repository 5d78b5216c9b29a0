//! A command is started only with enough left of the lease.

use std::time::Duration;

use crate::command::{Mark, Running, code, printed, until, until_marked};
use crate::proxy::{Fate, Proxy};
use crate::zookeeper::Server;

/// Shorter than the four seconds that the client gives one attempt to connect for a session of ten.
const SLOW: Duration = Duration::from_millis(3_500);
/// How often a machine may be so busy that there is no session within the ten seconds that the
/// store waits for one.
const TRIES: usize = 5;

const HELD_UP: Fate = Fate {
    hold_up: true,
    ..Fate::KIND
};

/// The network keeps this from us for so long: no clock of ours moves it.
#[allow(clippy::disallowed_methods)]
fn linger(span: Duration) {
    std::thread::sleep(span);
}

/// One attempt to connect is never answered, and the next one late. The servers may have counted
/// the new session from the first: as it is, its locks would be over before a heartbeat could renew
/// them.
#[test]
fn after_slow_connects_a_command_runs_under_the_default_session() {
    let server = Server::start();
    for _ in 0..TRIES {
        let proxy = Proxy::before(server.port);
        proxy.next(HELD_UP);
        let url = format!("zookeeper://127.0.0.1:{}/slow", proxy.port());
        let (begun, ends) = (Mark::new(), Mark::new());
        let options = ["--lock", "k", "--wait", "1m"];
        let mut tool = Running::run(&url, &options, &until_marked(&begun, &ends));
        until("a second attempt to connect", || proxy.wires().len() >= 2);
        linger(SLOW);
        proxy.all(Fate::KIND);
        until("a command, or the end of the tool", || {
            begun.is_there() || tool.0.try_wait().unwrap().is_some()
        });
        std::fs::write(ends.path(), "").unwrap();
        let output = tool.output();
        let said = printed(&output);
        if said.contains("no zookeeper session within") {
            continue;
        }
        assert!(!said.contains("cannot be renewed"), "{said}");
        assert_eq!(code(&output), 0, "{said}");
        return;
    }
    panic!("there was no session {TRIES} times");
}

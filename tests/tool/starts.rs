//! A command is started only with enough left of the lease.

use std::time::Duration;

use crate::command::{Mark, Running, code, printed, until};
use crate::proxy::{Fate, Proxy};
use crate::zookeeper::Server;

/// The client gives one attempt to connect two fifths of this.
const SESSION: Duration = Duration::from_secs(20);
/// Shorter than that.
const SLOW: Duration = Duration::from_secs(6);
/// How often a machine may be so busy that the lease is lost before its renewal.
const TRIES: usize = 3;

const HELD_UP: Fate = Fate {
    hold_up: true,
    ..Fate::KIND
};

/// The network keeps this from us for so long: no clock of ours moves it.
#[allow(clippy::disallowed_methods)]
fn linger(span: Duration) {
    std::thread::sleep(span);
}

/// One attempt to connect is never answered, and the next one late: when the lock is held, less is left of the lease than the
/// command's grace. The lease is renewed at once, and then the command is started.
#[test]
fn after_slow_connects_a_command_waits_for_a_renewal_and_is_not_signalled() {
    let server = Server::start();
    for _ in 0..TRIES {
        let proxy = Proxy::before(server.port);
        proxy.next(HELD_UP);
        let url = format!(
            "zookeeper://127.0.0.1:{}/slow?session_timeout={}s&tick_time=500ms",
            proxy.port(),
            SESSION.as_secs()
        );
        let (begun, ends) = (Mark::new(), Mark::new());
        let script = format!(
            "echo > {}; until [ -e {} ]; do sleep 0.01; done",
            begun.path(),
            ends.path()
        );
        // The longest grace that fits into a lease of this session: with less left, its countdown has begun.
        let options = ["--lock", "k", "--kill-grace", "4500ms", "--wait", "1m"];
        let mut tool = Running::run(&url, &options, &script);
        until("a second attempt to connect", || proxy.wires().len() >= 2);
        linger(SLOW);
        proxy.all(Fate::KIND);
        until("a command, or the end of the tool", || {
            begun.is_there() || tool.0.try_wait().unwrap().is_some()
        });
        let was_started = begun.is_there();
        std::fs::write(ends.path(), "").unwrap();
        let output = tool.output();
        let said = printed(&output);
        if !was_started && said.contains("lost before the command was started") {
            continue;
        }
        assert!(!said.contains("cannot be renewed"), "{said}");
        assert_eq!(code(&output), 0, "{said}");
        return;
    }
    panic!("the lease was lost {TRIES} times before its renewal");
}

//! On a real terminal: who stands in its foreground, and what its keys do. `script` gives the tool a terminal of its own.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use crate::command::{Mark, TOOL, server};

const CTRL_C: &[u8] = b"\x03";
const CTRL_Z: &[u8] = b"\x1a";

/// A shell line on a terminal of its own.
struct Terminal(Child);

impl Terminal {
    fn new(line: &str) -> Self {
        let child = Command::new("script")
            .args(["--quiet", "--return", "--command", line, "/dev/null"])
            .env_remove("LEASEHOLD_STORE")
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        Self(child.expect("script is installed (util-linux)"))
    }

    fn types(&mut self, keys: &[u8]) {
        let stdin = self.0.stdin.as_mut().unwrap();
        stdin.write_all(keys).unwrap();
        stdin.flush().unwrap();
    }

    /// Its exit code, and all that was shown.
    fn ends(mut self) -> (i32, String) {
        let mut shown = Vec::new();
        self.0
            .stdout
            .take()
            .unwrap()
            .read_to_end(&mut shown)
            .unwrap();
        let status = self.0.wait().unwrap();
        (
            status.code().unwrap(),
            String::from_utf8_lossy(&shown).into_owned(),
        )
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Fails if it has ended, which is what we want.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(url: &str, script: &str) -> String {
    format!("{TOOL} run --store '{url}' --lock k -- sh -c '{script}'")
}

#[test]
fn ctrl_c_ends_the_command_and_the_lock_is_free_at_once() {
    let (server, url) = server();
    let begun = Mark::new();
    let mut terminal = Terminal::new(&run(&url, &format!("echo > {}; sleep 1000", begun.path())));
    begun.line();
    assert_eq!(server.cli(&["EXISTS", "k"]), "1");
    terminal.types(CTRL_C);
    let (code, shown) = terminal.ends();
    assert_eq!(code, 130, "{shown}");
    assert_eq!(server.cli(&["EXISTS", "k"]), "0");
}

#[test]
fn ctrl_c_reaches_a_command_that_answers_it() {
    let (_server, url) = server();
    let begun = Mark::new();
    let script = format!(
        "trap \"exit 9\" INT; echo > {}; while :; do sleep 0.01; done",
        begun.path()
    );
    let mut terminal = Terminal::new(&run(&url, &script));
    begun.line();
    terminal.types(CTRL_C);
    let (code, shown) = terminal.ends();
    assert_eq!(code, 9, "{shown}");
}

#[test]
fn the_command_reads_from_the_terminal_and_the_shell_after_it() {
    let (_server, url) = server();
    let [begun, first, second] = [Mark::new(), Mark::new(), Mark::new()];
    let script = format!(
        "echo > {}; read line; echo got $line > {}",
        begun.path(),
        first.path()
    );
    let line = format!(
        "{}; read line; echo then $line > {}",
        run(&url, &script),
        second.path()
    );
    let mut terminal = Terminal::new(&line);
    begun.line();
    terminal.types(b"one\n");
    assert_eq!(first.line(), "got one");
    terminal.types(b"two\n");
    assert_eq!(second.line(), "then two");
    let (code, shown) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
}

#[test]
fn a_command_is_not_suspended_from_the_terminal() {
    let (_server, url) = server();
    let [begun, ended] = [Mark::new(), Mark::new()];
    let script = format!(
        "echo > {}; read line; echo got $line > {}",
        begun.path(),
        ended.path()
    );
    let mut terminal = Terminal::new(&run(&url, &script));
    begun.line();
    terminal.types(CTRL_Z);
    terminal.types(b"one\n");
    assert_eq!(ended.line(), "got one");
    let (code, shown) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
}

#[test]
fn progress_is_shown_on_a_terminal() {
    let (_server, url) = server();
    let line = format!("{TOOL} counter --store '{url}' --processes 2 --rounds 10 --wait 1m");
    let (code, shown) = Terminal::new(&line).ends();
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("########] 20/20"), "{shown}");
    assert!(shown.contains("0 updates lost"), "{shown}");
}

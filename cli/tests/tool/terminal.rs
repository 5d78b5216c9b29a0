//! On a real terminal: who stands in its foreground, and what its keys do. `script` gives the tool
//! a terminal of its own.

use std::io::Write;
use std::process::{Child, Stdio};

use crate::command::{
    Mark, TOOL, all_of, lines, runs, server, until, until_it_ends, with_default_signals,
};
use crate::counter::{ENDLESS, is_alone};

const CTRL_C: &[u8] = b"\x03";
const CTRL_Z: &[u8] = b"\x1a";

/// A shell line on a terminal of its own.
struct Terminal(Child);

impl Terminal {
    fn new(line: &str) -> Self {
        let child = with_default_signals("script")
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
        let shown = all_of(self.0.stdout.take().unwrap());
        let status = until_it_ends(&mut self.0);
        (
            status.code().unwrap(),
            String::from_utf8_lossy(&shown.join().unwrap()).into_owned(),
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

/// A command that only sleeps, and leaves its id in the mark. The shell itself becomes the sleep: a
/// signal that meets a shell between its fork and the new program is lost.
#[cfg(target_os = "linux")]
fn sleeps(begun: &Mark) -> String {
    format!("echo $$ > {}; exec sleep 1000", begun.path())
}

#[cfg(target_os = "linux")]
fn until_asleep(begun: &Mark) {
    let name = format!("/proc/{}/comm", begun.line());
    until("the sleep", || {
        std::fs::read_to_string(&name).is_ok_and(|name| name == "sleep\n")
    });
}

#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_ends_the_command_and_the_lock_is_free_at_once() {
    let (server, url) = server();
    let begun = Mark::new();
    let mut terminal = Terminal::new(&run(&url, &sleeps(&begun)));
    until_asleep(&begun);
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
fn ctrl_c_at_a_command_that_does_not_end_by_it_leaves_it_its_lock() {
    let (server, url) = server();
    let [begun, heard, ends] = [Mark::new(), Mark::new(), Mark::new()];
    let script = format!(
        "trap \"echo > {}\" INT; echo $$ > {}; until [ -e {} ]; do sleep 0.01; done; exit 4",
        heard.path(),
        begun.path(),
        ends.path()
    );
    let mut terminal = Terminal::new(&run(&url, &script));
    let id = begun.line();
    terminal.types(CTRL_C);
    heard.line();
    assert!(runs(&id));
    assert_eq!(server.cli(&["EXISTS", "k"]), "1");
    std::fs::write(ends.path(), "").unwrap();
    let (code, shown) = terminal.ends();
    assert_eq!(code, 4, "{shown}");
    assert_eq!(server.cli(&["EXISTS", "k"]), "0");
}

#[cfg(target_os = "linux")]
#[test]
fn the_command_is_in_the_foreground_in_a_group_of_its_own() {
    let (_server, url) = server();
    let printed = Mark::new();
    // Process, its group, the foreground group of its terminal.
    let script = format!("cut -d\" \" -f1,5,8 /proc/$$/stat > {}", printed.path());
    let (code, shown) = Terminal::new(&run(&url, &script)).ends();
    assert_eq!(code, 0, "{shown}");
    let line = printed.line();
    let ids: Vec<&str> = line.split(' ').collect();
    assert_eq!(ids, [ids[0]; 3], "{line}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_command_in_a_pipeline_does_not_take_the_foreground_from_its_peers() {
    let (_server, url) = server();
    let seen = Mark::new();
    let script = format!("cut -d\" \" -f1,5,8 /proc/$$/stat > {}", seen.path());
    let line = format!("{} | cat", run(&url, &script));
    let (code, shown) = Terminal::new(&line).ends();
    assert_eq!(code, 0, "{shown}");
    let line = seen.line();
    let ids: Vec<&str> = line.split(' ').collect();
    assert_eq!(ids[0], ids[1], "a group of its own: {line}");
    assert_ne!(ids[2], ids[1], "not in the foreground: {line}");
}

#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_ends_a_shell_loop_around_the_tool() {
    let (server, url) = server();
    let [begun, second] = [Mark::new(), Mark::new()];
    let line = format!(
        "for turn in 1 2; do {}; echo > {}; done",
        run(&url, &sleeps(&begun)),
        second.path()
    );
    let mut terminal = Terminal::new(&line);
    until_asleep(&begun);
    terminal.types(CTRL_C);
    let (code, shown) = terminal.ends();
    assert_eq!(code, 130, "{shown}");
    assert!(!second.is_there(), "{shown}");
    assert_eq!(server.cli(&["EXISTS", "k"]), "0");
}

#[test]
fn ctrl_c_ends_a_counter_with_its_processes_and_nothing_is_left() {
    let (server, url) = server();
    let folder = Mark::new();
    std::fs::create_dir(folder.path()).unwrap();
    let line = format!(
        "TMPDIR={} exec {TOOL} counter --store '{url}' --lock k {ENDLESS}",
        folder.path()
    );
    let mut terminal = Terminal::new(&line);
    until("a round", || server.cli(&["EXISTS", "k"]) == "1");
    terminal.types(CTRL_C);
    let (code, shown) = terminal.ends();
    assert_eq!(code, 130, "{shown}");
    assert!(shown.contains("ended by SIGINT"), "{shown}");
    assert_eq!(server.cli(&["EXISTS", "k"]), "0", "{shown}");
    until("the end of its processes", || is_alone(&server));
    // Fails if the counter's file is still in it.
    std::fs::remove_dir(folder.path()).unwrap();
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

#[test]
fn scripts_get_nothing_but_lines_of_json_on_a_terminal_too() {
    let (_server, url) = server();
    let line = format!("{TOOL} --json counter --store '{url}' --processes 2 --rounds 10 --wait 1m");
    let (code, shown) = Terminal::new(&line).ends();
    assert_eq!(code, 0, "{shown}");
    let answers = lines(shown.replace('\r', "").as_bytes());
    assert_eq!(answers.len(), 1, "{shown}");
}

//! How a command ends that does not end by itself: signals, a lost lease, a tool that is killed.

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write, pipe};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use rustix::fs::{OFlags, fcntl_setfl};

use crate::command::{
    Mark, Running, TOOL, all_of, code, lines, printed, runs, send, server, tool, until,
    until_it_ends, until_subscribed,
};

/// Prints its process id, then waits without an end, except for what `traps` says.
fn endless(begun: &Mark, traps: &str) -> String {
    format!(
        "{traps}; echo $$ > {}; while :; do sleep 0.01; done",
        begun.path()
    )
}

/// The tool with such a command, and the id of the command.
fn endless_tool(url: &str, options: &[&str], traps: &str) -> (Running, String) {
    let begun = Mark::new();
    let tool = Running::run(url, options, &endless(&begun, traps));
    let id = begun.line();
    (tool, id)
}

#[test]
fn a_signal_to_the_tool_is_the_commands_business() {
    let (server, url) = server();
    for (signal, status) in [("-TERM", 41), ("-INT", 42), ("-HUP", 43), ("-USR1", 44)] {
        let traps =
            "trap 'exit 41' TERM; trap 'exit 42' INT; trap 'exit 43' HUP; trap 'exit 44' USR1";
        let (tool, _) = endless_tool(&url, &["--lock", "k"], traps);
        tool.signal(signal);
        assert_eq!(code(&tool.output()), status, "{signal}");
        assert_eq!(server.cli(&["EXISTS", "k"]), "0", "{signal}");
    }
}

#[test]
fn the_tool_dies_by_the_signal_that_ended_its_command() {
    let (server, url) = server();
    let (tool, _) = endless_tool(&url, &["--lock", "k"], ":");
    tool.signal("-INT");
    let output = tool.output();
    assert_eq!(output.status.signal(), Some(2), "{output:?}");
    assert_eq!(server.cli(&["EXISTS", "k"]), "0");
}

/// As `nohup` does it.
#[cfg(target_os = "linux")]
#[test]
fn a_signal_that_is_ignored_stays_ignored_for_the_tool_and_its_command() {
    let (server, url) = server();
    let begun = Mark::new();
    let line = format!(
        "trap '' HUP; exec {TOOL} run --store '{url}' --lock k -- sh -c '{}'",
        endless(&begun, ":")
    );
    let tool = Running::shell(&line);
    let id = begun.line();
    for who in [&tool.0.id().to_string(), &id] {
        let status = std::fs::read_to_string(format!("/proc/{who}/status")).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let mask = u64::from_str_radix(mask.unwrap().trim(), 16).unwrap();
        assert_eq!(mask & 1, 1, "SIGHUP is ignored by {who}: {mask:x}");
    }
    tool.signal("-HUP");
    tool.signal("-TERM");
    assert_eq!(code(&tool.output()), 143);
    assert_eq!(server.cli(&["EXISTS", "k"]), "0");
}

#[test]
fn a_stopped_command_that_is_asked_to_end_is_continued() {
    let (server, url) = server();
    let (tool, id) = endless_tool(&url, &["--lock", "k"], ":");
    send("-STOP", &id);
    tool.signal("-TERM");
    assert_eq!(code(&tool.output()), 143);
    assert_eq!(server.cli(&["EXISTS", "k"]), "0");
}

/// A real wait of a few seconds: a lease runs out.
#[test]
fn a_leader_that_was_asked_to_end_while_the_store_hung_starts_no_other_term() {
    let (server, url) = server();
    let begun = Mark::new();
    let script = format!(
        "trap '' TERM; echo $$ >> {}; while :; do sleep 0.01; done",
        begun.path()
    );
    let tool = Running::start(&[
        "leader",
        "--store",
        &url,
        "--election",
        "k",
        "--label",
        "a",
        "--ttl",
        "3s",
        "--",
        "sh",
        "-c",
        &script,
    ]);
    let id = begun.line();
    server.pause();
    tool.signal("-TERM");
    until("the end of the command", || !runs(&id));
    server.resume();
    assert_eq!(code(&tool.output()), 143);
    assert_eq!(begun.line(), id, "no other term was started");
}

#[cfg(target_os = "linux")]
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

/// A tool of another user, and its command, which runs as root.
#[cfg(target_os = "linux")]
struct CommandOfRoot {
    tool: Running,
    id: String,
    lease_file: String,
    folder: Mark,
}

#[cfg(target_os = "linux")]
impl CommandOfRoot {
    fn start(url: &str) -> Self {
        let folder = Mark::new();
        std::fs::create_dir(folder.path()).unwrap();
        // A copy of setpriv that is setuid: what it starts is root's, as with sudo.
        let become_root = format!("{}/become-root", folder.path());
        let tool_copy = format!("{}/leasehold", folder.path());
        let root = root();
        let set_up = format!(
            "{root}install -m 4755 -o root $(command -v setpriv) {become_root} && {root}install -m 755 {TOOL} {tool_copy} && chmod 777 {}",
            folder.path()
        );
        let set_up = Command::new("sh").args(["-c", &set_up]).status().unwrap();
        assert!(set_up.success(), "needs root, or sudo without a password");
        let begun = format!("{}/begun", folder.path());
        let line = format!(
            "exec {root}setpriv --reuid=65534 --regid=65534 --clear-groups {tool_copy} run --store '{url}' --lock k --ttl 3s -- \
             {become_root} --reuid=0 --regid=0 --clear-groups \
             sh -c 'exec > /dev/null 2>&1; echo $$ $LEASEHOLD_LEASE > {begun}; sleep 1000'"
        );
        let tool = Running::shell(&line);
        let mut line = String::new();
        until("the command", || {
            line = std::fs::read_to_string(&begun).unwrap_or_default();
            line.ends_with('\n')
        });
        let (id, lease_file) = line.trim().split_once(' ').unwrap();
        Self {
            tool,
            id: id.to_owned(),
            lease_file: lease_file.to_owned(),
            folder,
        }
    }

    fn until_reported(self) {
        let output = self.tool.output();
        assert_eq!(code(&output), 76, "{}", printed(&output));
        assert!(
            printed(&output).contains("does not let us signal it"),
            "{}",
            printed(&output)
        );
        assert!(runs(&self.id), "the command is still there");
        let end = format!("{}kill -9 {}", root(), self.id);
        let ended = Command::new("sh").args(["-c", &end]).status().unwrap();
        assert!(ended.success());
        let _ = std::fs::remove_dir_all(self.folder.path());
    }
}

/// What makes a command root's.
#[cfg(target_os = "linux")]
fn root() -> &'static str {
    if is_root() { "" } else { "sudo -n " }
}

/// A real wait of a few seconds: a lease runs out.
#[cfg(target_os = "linux")]
#[test]
fn a_lost_command_that_may_not_be_signalled_until_reported() {
    let (server, url) = server();
    let command = CommandOfRoot::start(&url);
    assert_eq!(server.cli(&["DEL", "k"]), "1");
    command.until_reported();
}

/// A real wait of a second or two: a lease is renewed.
#[cfg(target_os = "linux")]
#[test]
fn a_command_that_found_its_lease_over_and_may_not_be_signalled_is_not_waited_for() {
    let (_server, url) = server();
    let command = CommandOfRoot::start(&url);
    crate::check::mark(&command.lease_file, root());
    command.until_reported();
}

#[test]
fn the_command_has_a_process_group_of_its_own() {
    let (_server, url) = server();
    let (tool, id) = endless_tool(&url, &["--lock", "k"], ":");
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    assert_eq!(fields[2], id, "its group is {}", fields[2]);
    tool.signal("-TERM");
    assert_eq!(code(&tool.output()), 143);
}

#[test]
fn a_signal_while_it_waits_ends_the_tool_and_leaves_no_claim() {
    let (server, url) = server();
    let (holder, _) = endless_tool(&url, &["--lock", "k"], ":");
    let never = Mark::new();
    let script = format!("echo > {}", never.path());
    let waiter = Running::run(&url, &["--lock", "k", "--wait", "1m"], &script);
    until_subscribed(&server);
    waiter.signal("-TERM");
    assert_eq!(code(&waiter.output()), 143);
    holder.signal("-TERM");
    assert_eq!(code(&holder.output()), 143);
    assert_eq!(server.cli(&["EXISTS", "k"]), "0");
    assert!(!never.is_there());
}

/// A real wait: the tool would take the ttl to put away what it asked a silent store.
#[test]
fn one_more_signal_ends_a_tool_that_puts_away_what_it_asked() {
    for subcommand in [
        &["run", "--lock", "k", "--wait", "1m"][..],
        &["leader", "--election", "k", "--label", "a"],
    ] {
        let (server, url) = server();
        let _holder = endless_tool(&url, &["--lock", "k", "--ttl", "30s"], ":");
        let head = [subcommand[0], "--store", &url, "--ttl", "30s"];
        let tail = ["--", "true"];
        let arguments = [&head[..], &subcommand[1..], &tail].concat();
        let waiter = Running::start(&arguments);
        until_subscribed(&server);
        server.pause();
        let clock = leasehold::clock::Clock::system().unwrap();
        let began = clock.stamp();
        waiter.signal("-TERM");
        let id = waiter.0.id().to_string();
        let mut since = clock.stamp();
        until("the end of the tool", || {
            if clock.stamp().since(&since).as_millis() > 1_000 {
                since = clock.stamp();
                waiter.signal("-TERM");
            }
            !runs(&id)
        });
        let took = clock.stamp().since(&began);
        assert_eq!(code(&waiter.output()), 143, "{subcommand:?}");
        assert!(took.as_secs() < 15, "{subcommand:?}: {took:?}");
        server.resume();
    }
}

/// A real wait of a few seconds: a lease runs out.
#[test]
fn a_command_whose_lease_cannot_be_renewed_is_signalled_and_has_ended_before_the_store_frees_the_lock()
 {
    let (server, url) = server();
    let begun = Mark::new();
    let told_to_end = Mark::new();
    // It takes the signal for a hint and goes on.
    let traps = format!("trap 'echo > {}' TERM", told_to_end.path());
    let options = ["--json", "--lock", "k", "--ttl", "6s", "--kill-grace", "1s"];
    let tool = Running::run(&url, &options, &endless(&begun, &traps));
    let id = begun.line();
    server.pause();
    told_to_end.line();
    assert!(runs(&id), "it has a second after SIGTERM");
    until("the end of the command", || !runs(&id));
    // The server counts on while it is stopped, and looks at what has run out before it does what
    // we asked for meanwhile: if nothing ran out, the lock was there when the command had ended.
    server.resume();
    let output = tool.output();
    assert_eq!(code(&output), 76, "{}", printed(&output));
    assert_eq!(server.cli(&["EXISTS", "k"]), "0");
    let stats = server.cli(&["INFO", "stats"]);
    assert!(stats.contains("expired_keys:0\r\n"), "{stats}");
    // The shell has its say about its children on the same stream.
    let ours: Vec<&str> = std::str::from_utf8(&output.stderr)
        .unwrap()
        .lines()
        .filter(|line| line.starts_with('{'))
        .collect();
    let events: Vec<_> = lines(ours.join("\n").as_bytes())
        .iter()
        .filter_map(|line| Some(line["event"].as_str()?.to_owned()))
        .collect();
    assert!(
        events.contains(&"at_risk".to_owned()) && events.contains(&"lost".to_owned()),
        "{events:?}"
    );
}

/// A pipe whose next writer waits for its reader.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'.'; 1024]).is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (reader, writer)
}

/// By its end its script learns that the lease is over.
#[test]
fn a_hold_that_is_lost_ends_although_nobody_reads_what_the_tool_says() {
    let (server, url) = server();
    let (_reader, writer) = full_pipe();
    let mut holder = tool(&["hold", "--store", &url, "--lock", "k", "--ttl", "1s"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(writer)
        .spawn()
        .map(Running)
        .unwrap();
    let mut token = String::new();
    let mut stdout = BufReader::new(holder.0.stdout.take().unwrap());
    assert!(stdout.read_line(&mut token).unwrap() > 0);
    server.cli(&["DEL", "k"]);
    assert_eq!(until_it_ends(&mut holder.0).code(), Some(76));
}

/// A pager that shows an earlier page reads nothing.
#[test]
fn a_command_is_ended_with_its_lease_although_nobody_reads_what_the_tool_says() {
    let (server, url) = server();
    let (reader, writer) = full_pipe();
    let begun = Mark::new();
    let script = endless(&begun, "exec 2> /dev/null; trap '' TERM");
    let options = ["--ttl", "6s", "--kill-grace", "1s", "--lock", "k"];
    let tool = tool(&["run", "--store", &url])
        .args(options)
        .args(["--", "sh", "-c", &script])
        .stderr(writer)
        .spawn();
    let mut tool = Running(tool.unwrap());
    let id = begun.line();
    server.pause();
    until("the end of the command", || !runs(&id));
    server.resume();
    let said = all_of(reader);
    assert_eq!(until_it_ends(&mut tool.0).code(), Some(76));
    let said = String::from_utf8(said.join().unwrap()).unwrap();
    assert!(said.contains("the command gets SIGTERM"), "{said}");
    assert!(said.contains("the command has ended"), "{said}");
}

/// A real wait of a second or two: a lease is renewed.
#[test]
fn a_command_whose_lock_was_deleted_is_ended_with_all_its_children() {
    let (server, url) = server();
    let begun = Mark::new();
    let script = format!(
        "trap '' TERM; sleep 1000 & echo $$ $! > {}; wait",
        begun.path()
    );
    let tool = Running::run(&url, &["--lock", "k", "--ttl", "3s"], &script);
    let ids = begun.line();
    let (id, child) = ids.split_once(' ').unwrap();
    assert_eq!(server.cli(&["DEL", "k"]), "1");
    let output = tool.output();
    assert_eq!(code(&output), 76, "{}", printed(&output));
    assert!(!runs(id));
    until("the end of the command's child", || !runs(child));
}

#[cfg(target_os = "linux")]
#[test]
fn a_command_does_not_outlive_a_tool_that_was_killed() {
    let (_server, url) = server();
    let (tool, id) = endless_tool(&url, &["--lock", "k"], "trap '' TERM HUP INT");
    assert!(runs(&id));
    tool.signal("-KILL");
    until("the end of the command", || !runs(&id));
}

#[test]
fn a_tool_that_was_stopped_beyond_its_lease_kills_its_command_when_it_goes_on() {
    let (server, url) = server();
    let (tool, id) = endless_tool(&url, &["--lock", "k", "--ttl", "1s"], "trap '' TERM");
    tool.signal("-STOP");
    until("the end of the lock", || {
        server.cli(&["EXISTS", "k"]) == "0"
    });
    tool.signal("-CONT");
    assert_eq!(code(&tool.output()), 76);
    assert!(!runs(&id));
}

#[test]
fn a_command_that_was_stopped_on_purpose_keeps_its_lock_and_goes_on_when_it_may() {
    let (server, url) = server();
    let (tool, id) = endless_tool(&url, &["--lock", "k", "--ttl", "1s"], "trap 'exit 5' USR1");
    send("-STOP", &id);
    let token = server.cli(&["GET", "k"]);
    // Renewed at least once since then: a lock that nobody renews is gone by its ttl.
    let mut fell = false;
    let mut last = u64::MAX;
    until("a renewal", || {
        let left: u64 = server.cli(&["PTTL", "k"]).parse().unwrap();
        fell |= left < last;
        let rose = left > last;
        last = left;
        fell && rose
    });
    assert_eq!(server.cli(&["GET", "k"]), token);
    tool.signal("-USR1");
    send("-CONT", &id);
    assert_eq!(code(&tool.output()), 5);
}

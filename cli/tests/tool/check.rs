//! `leasehold check`: a command in any language asks whether its lease is live.

use std::process::{Command, Output, Stdio};

use crate::command::{
    Mark, Running, TOOL, code, leasehold, printed, runs, send, server, tool, tool_that_runs, until,
    with_default_signals,
};

/// Prints the exit codes of `leasehold check` with these options, one a line, when `go` is there.
fn checks(begun: &Mark, go: &Mark, answers: &Mark) -> String {
    format!(
        "echo $$ $LEASEHOLD_LEASE > {}; until [ -e {} ]; do sleep 0.01; done; \
         {TOOL} check; a=$?; {TOOL} check --remaining 1h; b=$?; {TOOL} --json check; echo $a $b $? > {}; sleep 1000",
        begun.path(),
        go.path(),
        answers.path()
    )
}

fn check_of(lease_file: &str, options: &[&str]) -> Output {
    Command::new(TOOL)
        .arg("check")
        .args(options)
        .env("LEASEHOLD_LEASE", lease_file)
        .output()
        .unwrap()
}

/// The line of a record, with the sum of its text.
pub(crate) fn sealed(text: &str) -> String {
    let sum = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{text} sum={sum:016x}\n")
}

/// Marks the record as a check does that finds the lease over. `root` comes before a command that
/// only root may run.
pub(crate) fn mark(file: &str, root: &str) {
    let line = std::fs::read_to_string(file).unwrap();
    let (text, _) = line.trim_end().rsplit_once(" sum=").unwrap();
    let line = sealed(&text.replace("state=live", "state=over"));
    // Under its lock, and in one write.
    let mark =
        format!("printf '{line}' | {root}flock {file} dd of={file} conv=notrunc status=none");
    let marked = Command::new("sh").args(["-c", &mark]).status().unwrap();
    assert!(marked.success(), "{mark}");
}

#[test]
fn a_check_answers_by_its_exit_code() {
    let (_server, url) = server();
    let [begun, go, answers] = [Mark::new(), Mark::new(), Mark::new()];
    std::fs::write(go.path(), "").unwrap();
    let tool = Running::run(&url, &["--lock", "k"], &checks(&begun, &go, &answers));
    assert_eq!(answers.line(), "0 1 0");
    let file = begun.line().split_once(' ').unwrap().1.to_owned();
    tool.signal("-TERM");
    assert_eq!(code(&tool.output()), 143);
    assert!(!std::path::Path::new(&file).exists());
    let after = check_of(&file, &[]);
    assert_eq!(code(&after), 76, "{}", printed(&after));
}

/// A shared library costs time before the tool has done anything, and a script may check in a loop.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn the_tool_loads_no_library_for_unwinding() {
    let loaded = Command::new(TOOL)
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .output()
        .unwrap();
    let loaded = printed(&loaded);
    assert!(loaded.contains("libc.so"), "{loaded}");
    assert!(!loaded.contains("libgcc_s"), "{loaded}");
}

/// A real wait of a few seconds: a lease is renewed.
#[test]
fn a_renewal_moves_the_deadline_of_the_file() {
    let (_server, url) = server();
    let [begun, go, answers] = [Mark::new(), Mark::new(), Mark::new()];
    let script = checks(&begun, &go, &answers);
    let tool = Running::run(&url, &["--lock", "k", "--ttl", "1s"], &script);
    let file = begun.line().split_once(' ').unwrap().1.to_owned();
    let first = std::fs::read_to_string(&file).unwrap();
    // Later than any deadline of the first lease, so only renewals keep it live.
    let mut changes = 0;
    let mut last = first;
    until("renewals", || {
        let now = std::fs::read_to_string(&file).unwrap();
        changes += u32::from(now != last);
        last = now;
        changes >= 6
    });
    std::fs::write(go.path(), "").unwrap();
    assert_eq!(answers.line(), "0 1 0");
    tool.signal("-TERM");
    assert_eq!(code(&tool.output()), 143);
}

/// A real wait of a second or two: a lease runs out while the tool is stopped.
#[test]
fn a_lapse_that_a_check_has_reported_is_final() {
    let (server, url) = server();
    let [begun, go, answers] = [Mark::new(), Mark::new(), Mark::new()];
    let script = checks(&begun, &go, &answers);
    let tool = Running::run(&url, &["--lock", "k", "--ttl", "1s"], &script);
    let line = begun.line();
    let (id, file) = line.split_once(' ').unwrap();
    tool.signal("-STOP");
    until("the end of the lock", || {
        server.cli(&["EXISTS", "k"]) == "0"
    });
    std::fs::write(go.path(), "").unwrap();
    assert_eq!(answers.line(), "76 76 76");
    assert!(
        std::fs::read_to_string(file)
            .unwrap()
            .contains("state=over")
    );
    tool.signal("-CONT");
    assert_eq!(code(&tool.output()), 76);
    assert!(!runs(id));
}

/// The mark alone, while the lease is live for the tool: as if the check had been quicker than a
/// renewal.
#[test]
fn the_tool_treats_a_marked_lease_as_lost() {
    let (server, url) = server();
    let [begun, go, answers] = [Mark::new(), Mark::new(), Mark::new()];
    let script = checks(&begun, &go, &answers);
    let tool = Running::run(&url, &["--lock", "k", "--ttl", "3s"], &script);
    let line = begun.line();
    let (id, file) = line.split_once(' ').unwrap();
    tool.signal("-STOP");
    mark(file, "");
    tool.signal("-CONT");
    let output = tool.output();
    assert_eq!(code(&output), 76, "{}", printed(&output));
    assert!(!runs(id));
    until("the release", || server.cli(&["EXISTS", "k"]) == "0");
}

/// The lease files in a folder.
fn lease_files(folder: &Place) -> Vec<String> {
    let names = std::fs::read_dir(folder.0.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// A folder of the test's own, for lease files.
struct Place(Mark);

impl Place {
    fn new() -> Self {
        let place = Self(Mark::new());
        std::fs::create_dir(place.0.path()).unwrap();
        place
    }

    /// A tool whose lease file is here.
    fn tool(&self, url: &str, options: &[&str], script: &str) -> Command {
        let mut command = tool(&["run", "--store", url]);
        command.args(options).args(["--", "sh", "-c", script]);
        command.env("XDG_RUNTIME_DIR", self.0.path());
        command
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.path());
    }
}

/// A real wait of a second or two: a lease runs out after its tool was killed.
#[test]
fn the_next_tool_removes_the_lease_file_of_one_that_was_killed() {
    let (_server, url) = server();
    let place = Place::new();
    let others = [
        "leasehold-notes",
        "leasehold-1-2-3-4",
        "leasehold-999999999-1-1",
    ];
    for name in others {
        std::fs::write(format!("{}/{name}", place.0.path()), "mine").unwrap();
    }
    // Of a tool that was killed before it wrote a record.
    std::fs::write(format!("{}/leasehold-999999999-2-1", place.0.path()), "").unwrap();
    let begun = Mark::new();
    let script = format!("echo $LEASEHOLD_LEASE > {}; exec sleep 1000", begun.path());
    let live = Running(
        place
            .tool(&url, &["--lock", "live"], &script)
            .spawn()
            .unwrap(),
    );
    let live_file = begun.line();
    std::fs::remove_file(begun.path()).unwrap();
    let options = ["--lock", "k", "--ttl", "1s"];
    let mut killed = place.tool(&url, &options, &script).spawn().unwrap();
    let file = begun.line();
    killed.kill().unwrap();
    killed.wait().unwrap();
    until("the end of the lease", || code(&check_of(&file, &[])) == 76);
    assert_eq!(lease_files(&place).len(), others.len() + 3);
    // It may be looked at.
    for name in lease_files(&place) {
        let path = format!("{}/{name}", place.0.path());
        let old = Command::new("touch")
            .args(["-d", "2 minutes ago", &path])
            .status();
        assert!(old.unwrap().success());
    }
    let next = place.tool(&url, &["--lock", "next"], "true").output();
    assert_eq!(code(&next.unwrap()), 0);
    assert!(!std::path::Path::new(&file).exists());
    assert_eq!(code(&check_of(&file, &[])), 76);
    assert_eq!(lease_files(&place).len(), others.len() + 1);
    assert_eq!(code(&check_of(&live_file, &[])), 0);
    drop(live);
}

/// The signals that the tool sends have no effect here, as if the command were in a system call
/// that takes long.
#[cfg(target_os = "linux")]
#[test]
fn a_tool_that_cannot_write_its_lease_file_keeps_the_lock_until_its_command_has_ended() {
    let (server, url) = server();
    let [begun, ends, looked, trace] = [Mark::new(), Mark::new(), Mark::new(), Mark::new()];
    let script = format!(
        ": > $LEASEHOLD_LEASE; echo $PPID > {}; until [ -e {} ]; do sleep 0.01; done; \
         {TOOL} inspect --store '{url}' k > /dev/null; echo $? > {}",
        begun.path(),
        ends.path(),
        looked.path()
    );
    let mut command = with_default_signals("strace");
    command.args(["-qq", "-o", trace.path(), "-e", "trace=kill"]);
    command.args(["-e", "inject=kill:retval=0", TOOL]);
    command.args(["run", "--store", &url, "--lock", "k", "--ttl", "30s"]);
    command.args(["--", "sh", "-c", &script]);
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = Running(command.spawn().unwrap());
    // It writes its file again after each signal.
    send("-WINCH", &begun.line());
    until("the end that the tool gives its command", || {
        std::fs::read_to_string(trace.path()).is_ok_and(|calls| calls.contains("SIGKILL"))
    });
    std::fs::write(ends.path(), "").unwrap();
    let output = running.output();
    assert_eq!(code(&output), 71, "{}", printed(&output));
    assert!(looked.is_there(), "the tool did not wait for its command");
    assert_eq!(looked.line(), "0", "the lock was free");
    until("the release", || server.cli(&["EXISTS", "k"]) == "0");
}

/// A script may take the file for something to lock.
#[test]
fn a_command_that_locks_its_lease_file_is_ended_with_its_lease() {
    let (server, url) = server();
    let locked = Mark::new();
    let script = format!(
        "exec 9< $LEASEHOLD_LEASE; flock 9; echo $$ > {}; exec sleep 1000",
        locked.path()
    );
    let tool = Running::run(&url, &["--lock", "k", "--ttl", "1s"], &script);
    let command = locked.line();
    server.cli(&["DEL", "k"]);
    let output = tool.output();
    assert_eq!(code(&output), 76, "{}", printed(&output));
    assert!(!runs(&command));
}

#[test]
fn a_file_that_is_no_record_counts_as_over() {
    let file = Mark::new();
    for text in ["", "garbage\n", "leasehold-lease 1 state=live\n"] {
        std::fs::write(file.path(), text).unwrap();
        let output = check_of(file.path(), &[]);
        assert_eq!(code(&output), 65, "{text:?}: {}", printed(&output));
    }
    let output = leasehold(&["check"]);
    assert_eq!(code(&output), 64, "{}", printed(&output));
    assert!(printed(&output).contains("LEASEHOLD_LEASE is not set"));
    let output = check_of(file.path(), &["--remaining", "soon"]);
    assert_eq!(code(&output), 64, "{}", printed(&output));
}

#[test]
fn the_examples_in_other_languages_check_their_lease() {
    let (_server, url) = server();
    let folder = std::path::Path::new(TOOL).parent().unwrap().display();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap());
    for example in ["backup.sh", "backup.py"] {
        let example = format!("{}/../examples/tool/{example}", env!("CARGO_MANIFEST_DIR"));
        let result = Mark::new();
        let output = tool_that_runs(&url, &[&example, result.path()])
            .env("PATH", &path)
            .output()
            .unwrap();
        assert_eq!(code(&output), 0, "{example}: {}", printed(&output));
        assert!(result.is_there(), "{example}");
    }
    // Without a tool around them they do nothing.
    let result = Mark::new();
    let example = format!("{}/../examples/tool/backup.sh", env!("CARGO_MANIFEST_DIR"));
    let alone = Command::new(example)
        .arg(result.path())
        .env("PATH", &path)
        .output();
    assert_eq!(code(&alone.unwrap()), 64);
    assert!(!result.is_there());
}

/// A folder is named from the root of the file system, or it is another one after `cd`.
#[test]
fn a_check_finds_its_lease_from_every_directory() {
    let (_server, url) = server();
    let script = format!("cd /; {TOOL} check");
    let output = tool_that_runs(&url, &["sh", "-c", &script])
        .env("XDG_RUNTIME_DIR", ".")
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", printed(&output));
}

#[test]
fn a_variable_without_a_value_names_no_lease() {
    let output = check_of("", &[]);
    assert_eq!(code(&output), 64, "{}", printed(&output));
}

//! What a service manager, a container or a login does to a process: the tool as process 1, with
//! signals blocked, and started before its store.

use std::process::{Command, Stdio};

use crate::command::{
    Mark, Running, TOOL, code, leasehold, printed, run_script, server, until, with_default_signals,
};
use crate::files::{Directory, is_root};

/// The tool as the first process of a container.
fn first_process(arguments: &[&str]) -> Running {
    let mut command = with_default_signals("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child", TOOL]);
    command.args(arguments).env_remove("LEASEHOLD_STORE");
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Running(command.spawn().unwrap())
}

/// Sends SIGTERM to the child of a program until the program has ended: a first process that does
/// not listen yet gets none.
fn terminate_the_child(program: &mut Running) {
    let parent = program.0.id().to_string();
    until("the end of the first process", || {
        let sent = Command::new("pkill")
            .args(["-TERM", "-P", &parent])
            .status();
        // There is no child before it begins, and after it has ended.
        sent.unwrap();
        program.0.try_wait().unwrap().is_some()
    });
}

#[test]
fn the_first_process_of_a_container_ends_with_128_and_the_number_of_the_signal() {
    if !is_root() {
        println!("did not run: only root can make a container");
        return;
    }
    let directory = Directory::new();
    let url = directory.url();
    let nowhere = format!("redis://127.0.0.1:{}", crate::redis::free_port());
    let held = format!("file://{}/held", directory.path("locks"));
    let _holder = {
        let up = Mark::new();
        let script = format!("echo > {}; sleep 1000", up.path());
        let holder = Running::run(&held, &["--lock", "k"], &script);
        up.line();
        holder
    };
    let command = ["--", "sleep", "1000"];
    let with_command = |words: &[&'static str]| [words, &command].concat();
    for (store, words) in [
        (&url, with_command(&["run", "--lock", "k"])),
        (&url, vec!["hold", "--lock", "h"]),
        (
            &url,
            with_command(&["leader", "--election", "e", "--label", "a"]),
        ),
        (&held, with_command(&["run", "--lock", "k"])),
        (&nowhere, with_command(&["run", "--lock", "k"])),
        (&nowhere, vec!["hold", "--lock", "k"]),
        (
            &nowhere,
            with_command(&["leader", "--election", "e", "--label", "a"]),
        ),
    ] {
        let arguments = [&[words[0], "--store", store], &words[1..]].concat();
        let mut tool = first_process(&arguments);
        terminate_the_child(&mut tool);
        let output = tool.output();
        assert_eq!(
            output.status.code(),
            Some(143),
            "{words:?} {}",
            printed(&output)
        );
    }
    let url = directory.url();
    for (signal, status) in [("USR1", 138), ("KILL", 137)] {
        let script = format!("kill -{signal} $$; sleep 1000");
        let tool = first_process(&[
            "run", "--store", &url, "--lock", "k", "--", "sh", "-c", &script,
        ]);
        let output = tool.output();
        assert_eq!(
            output.status.code(),
            Some(status),
            "{signal} {}",
            printed(&output)
        );
    }
}

/// What it runs has every signal blocked.
const BLOCKS: &str = "import os, signal, sys; \
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); \
    os.execvp(sys.argv[1], sys.argv[1:])";

#[test]
fn a_tool_whose_parent_blocked_all_signals_sees_the_end_of_its_command() {
    let directory = Directory::new();
    let url = directory.url();
    for words in [
        vec!["run", "--lock", "k"],
        vec!["leader", "--election", "e", "--label", "a"],
    ] {
        let mut command = with_default_signals("python3");
        command.args(["-c", BLOCKS, TOOL]);
        command.args([words[0], "--store", &url]).args(&words[1..]);
        command.args(["--", "grep", "SigBlk", "/proc/self/status"]);
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = Running(command.spawn().unwrap()).output();
        let said = printed(&output);
        assert_eq!(code(&output), 0, "{said}");
        assert_eq!(
            said.trim(),
            "SigBlk:\t0000000000000000",
            "none is blocked in the command"
        );
    }
}

#[test]
fn signals_of_timers_and_of_power_are_the_commands_business_and_the_terminal_stops_no_tool() {
    let directory = Directory::new();
    for (signal, status) in [
        ("ALRM", 41),
        ("VTALRM", 42),
        ("PROF", 43),
        ("XCPU", 44),
        ("IO", 45),
        ("PWR", 46),
    ] {
        let begun = Mark::new();
        let script = format!(
            "trap 'exit {status}' {signal}; echo > {}; while :; do sleep 0.01; done",
            begun.path()
        );
        let tool = Running::run(&directory.url(), &["--lock", "k"], &script);
        begun.line();
        for stops in ["-TTIN", "-TTOU", "-TSTP"] {
            tool.signal(stops);
        }
        tool.signal(&format!("-{signal}"));
        let output = tool.output();
        assert_eq!(code(&output), status, "{signal} {}", printed(&output));
    }
}

/// Such a signal has no name, only a number.
#[test]
fn a_command_or_what_it_left_behind_may_end_by_a_real_time_signal() {
    let directory = Directory::new();
    let output = run_script(&directory.url(), "kill -34 $$");
    assert_eq!(code(&output), 128 + 34, "{}", printed(&output));
    let script = "sh -c 'sleep 0.2; kill -35 $$' & exit 3";
    let words = ["--lock", "k", "--wait-children"];
    let output = Running::run(&directory.url(), &words, script).output();
    assert_eq!(code(&output), 3, "{}", printed(&output));
}

/// `strace` sends the signal at the system call that takes the lock: the first write to the file of
/// the key. It counts the calls of each thread by itself, so it is shown no other file, and the
/// number of the call is the same in every thread.
#[test]
fn a_tool_that_gets_sigterm_as_it_takes_its_lock_starts_nothing() {
    let directory = Directory::new();
    let url = directory.url();
    for words in [
        vec!["run", "--lock", "k", "--", "true"],
        vec!["leader", "--election", "k", "--label", "a", "--", "true"],
        // The script around it goes on when it reads the token.
        vec!["hold", "--lock", "k"],
    ] {
        let traced = |more: &[&str]| {
            let trace = Mark::new();
            let mut command = with_default_signals("strace");
            command.args(["-f", "-qq", "-y", "-o", trace.path()]);
            command
                .args(["-e", "trace=pwrite64,execve"])
                .args(more)
                .arg(TOOL);
            command.args([words[0], "--store", &url]).args(&words[1..]);
            let output = command.stdin(Stdio::null()).output().unwrap();
            (output, std::fs::read_to_string(trace.path()).unwrap())
        };
        let (_, trace) = traced(&[]);
        let of_the_key = trace.lines().find_map(|line| {
            let (file, _) = line.split_once('<')?.1.split_once('>')?;
            file.ends_with("/k").then(|| file.to_owned())
        });
        let key = of_the_key.unwrap();
        let of_the_command = trace.lines().find_map(|line| {
            let (_, program) = line.split_once("execve(\"")?;
            let (program, words) = program.split_once('"')?;
            words.contains("__exec").then(|| program.to_owned())
        });
        let program = of_the_command.unwrap_or_else(|| TOOL.to_owned());
        let only = ["-P", &key, "-P", &program];
        for is_ended in [false, true] {
            let inject = ["-e", "inject=pwrite64:signal=TERM:when=1"];
            let inject: &[&str] = if is_ended { &inject } else { &[] };
            let (output, trace) = traced(&[&only, inject].concat());
            let has_begun = !output.stdout.is_empty() || trace.contains("__exec");
            assert_eq!(has_begun, !is_ended, "{words:?}: {trace}");
            let expected = if is_ended { 143 } else { 0 };
            assert_eq!(code(&output), expected, "{}", printed(&output));
        }
    }
}

#[test]
fn a_tool_that_starts_before_its_store_waits_for_it() {
    let (mut server, url) = server();
    server.kill();
    let at_once = leasehold(&[
        "run", "--store", &url, "--lock", "k", "--wait", "0", "--", "true",
    ]);
    assert_eq!(code(&at_once), 69, "{}", printed(&at_once));
    let in_time = leasehold(&[
        "run", "--store", &url, "--lock", "k", "--wait", "300ms", "--", "true",
    ]);
    assert_eq!(code(&in_time), 69, "{}", printed(&in_time));
    let waiters = [
        vec!["run", "--lock", "a", "--wait", "10m", "--", "true"],
        vec!["run", "--lock", "b", "--wait", "forever", "--", "true"],
        vec!["hold", "--lock", "c", "--wait", "10m"],
        vec!["leader", "--election", "d", "--label", "a", "--", "true"],
    ];
    let waiters = waiters.map(|words| {
        let said = Mark::new();
        let mut command = with_default_signals(TOOL);
        command.args([words[0], "--store", &url]).args(&words[1..]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(std::fs::File::create(said.path()).unwrap());
        (Running(command.spawn().unwrap()), said)
    });
    for (_, said) in &waiters {
        assert!(said.line().contains("trying again"), "{}", said.line());
    }
    server.restart();
    for (mut waiter, said) in waiters {
        until("the end of the tool", || {
            waiter.0.try_wait().unwrap().is_some()
        });
        assert!(
            waiter.0.wait().unwrap().success(),
            "{}",
            std::fs::read_to_string(said.path()).unwrap()
        );
    }
}

/// The key is there still, so the tool has not waited for the end of its TTL.
#[test]
fn a_tool_whose_store_hangs_leaves_soon_after_its_command_has_ended() {
    let (server, url) = server();
    let [begun, ends] = [Mark::new(), Mark::new()];
    let script = crate::command::until_marked(&begun, &ends);
    let tool = Running::run(&url, &["--lock", "k", "--ttl", "30s"], &script);
    begun.line();
    server.pause();
    std::fs::write(ends.path(), "").unwrap();
    let output = tool.output();
    server.resume();
    assert_eq!(code(&output), 0, "{}", printed(&output));
    assert!(printed(&output).contains("ends with its ttl"));
    assert_eq!(server.cli(&["EXISTS", "k"]), "1");
}

#[test]
fn a_variable_without_a_value_names_no_store() {
    let mut leader = with_default_signals(TOOL);
    leader.args(["leader", "--election", "k", "--label", "a", "--", "true"]);
    let output = leader.env("LEASEHOLD_STORE", "").output().unwrap();
    assert_eq!(code(&output), 64);
    assert!(
        printed(&output).contains("no store was named"),
        "{}",
        printed(&output)
    );
    // On the command line it is a mistake: the variable of a script is not set.
    let output = leasehold(&["run", "--store", "", "--lock", "k", "--", "true"]);
    assert_eq!(code(&output), 64, "{}", printed(&output));
}

#[test]
fn the_tool_prints_what_the_library_does_if_it_is_asked_to() {
    let directory = Directory::new();
    let url = directory.url();
    let run = |options: &[&str], log: &str| {
        let mut command = with_default_signals(TOOL);
        command.args(options);
        command.args(["run", "--store", &url, "-l", "k", "--", "true"]);
        let output = command.env("RUST_LOG", log).output().unwrap();
        assert_eq!(code(&output), 0, "{}", printed(&output));
        printed(&output)
    };
    assert_eq!(run(&[], ""), "");
    for said in [run(&["-v"], ""), run(&[], "leasehold=info")] {
        assert!(said.contains("event=\"acquire\" key=k"), "{said:?}");
    }
    assert_eq!(run(&[], "other=trace"), "");
}

#[test]
fn a_log_variable_without_a_value_hides_no_warning() {
    let server = crate::redis::RedisServer::start_with(&[
        "--maxmemory",
        "100mb",
        "--maxmemory-policy",
        "allkeys-lru",
    ]);
    let url = server.url("restart_quarantine=off&eviction=accept");
    let mut command = with_default_signals(TOOL);
    command.args(["run", "--store", &url, "-l", "k", "--", "true"]);
    let output = command.env("RUST_LOG", "").output().unwrap();
    assert!(printed(&output).contains("WARN"), "{}", printed(&output));
}

#[test]
fn the_help_names_a_default_store_only_where_there_is_one() {
    for (words, has_default) in [
        (["run", "--help"], true),
        (["hold", "--help"], true),
        (["leader", "--help"], false),
        (["conform", "--help"], false),
        (["resolve", "--help"], false),
    ] {
        let said = printed(&leasehold(&words));
        assert_eq!(said.contains("default: file:"), has_default, "{said}");
        assert!(said.contains("LEASEHOLD_STORE"), "{said}");
    }
}

#[test]
fn a_setting_in_a_url_is_refused_with_the_place_where_it_belongs() {
    for url in [
        "file:///tmp/leasehold-no?ttl=3s",
        "redis://127.0.0.1:1?ttl=3s",
        "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3?ttl=3s",
        "postgres://127.0.0.1:1/x?ttl=3s",
        "zookeeper://127.0.0.1:1?wait=3s",
    ] {
        let output = leasehold(&["run", "--store", url, "--lock", "k", "--", "true"]);
        assert_eq!(code(&output), 64, "{}", printed(&output));
        assert!(
            printed(&output).contains("is a setting"),
            "{url}: {}",
            printed(&output)
        );
    }
}

//! The options that say which lock is held, and how; `leasehold hold`; processes that a command
//! leaves behind.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};

use crate::command::{
    Mark, Running, code, leasehold, printed, run, run_script, runs, server, tool, until,
};

fn hold(url: &str, options: &[&str]) -> Child {
    let mut arguments = vec!["hold", "--store", url];
    arguments.extend(options);
    let mut command = tool(&arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

/// The first line that a holder prints: its tokens.
fn tokens(holder: &mut Child) -> String {
    let mut line = String::new();
    let mut out = BufReader::new(holder.stdout.as_mut().unwrap());
    out.read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// Ends a holder as a script does: by closing its stdin.
fn close(mut holder: Child) -> i32 {
    drop(holder.stdin.take());
    holder.wait().unwrap().code().unwrap()
}

fn try_run(url: &str, options: &[&str]) -> i32 {
    let mut arguments = vec!["run", "--store", url, "--wait", "0"];
    arguments.extend(options);
    arguments.extend(["--", "true"]);
    code(&leasehold(&arguments))
}

#[test]
fn hold_prints_its_token_and_holds_until_stdin_closes() {
    let (server, url) = server();
    let mut holder = hold(&url, &["--lock", "k"]);
    let token: u64 = tokens(&mut holder).parse().unwrap();
    assert!(token > 0);
    assert_eq!(server.cli(&["EXISTS", "k"]), "1");
    assert_eq!(try_run(&url, &["--lock", "k"]), 75);
    assert_eq!(close(holder), 0);
    assert_eq!(server.cli(&["EXISTS", "k"]), "0");
}

/// A real wait of a second or two: the next renewal finds that the lock is gone.
#[test]
fn hold_exits_when_its_lease_is_lost() {
    let (server, url) = server();
    let mut holder = hold(&url, &["--lock", "k", "--ttl", "3s"]);
    tokens(&mut holder);
    assert_eq!(server.cli(&["DEL", "k"]), "1");
    let mut ended = None;
    // Not `wait`, which closes stdin.
    until("the end of the tool", || {
        ended = holder.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().code(), Some(76));
}

/// A real wait of a second: a lease runs out.
#[test]
fn a_hold_whose_lease_ran_out_before_stdin_closed_is_lost() {
    let (server, url) = server();
    let mut holder = hold(&url, &["--lock", "k", "--ttl", "1s"]);
    tokens(&mut holder);
    let id = holder.id().to_string();
    crate::command::send("-STOP", &id);
    until("the end of the lock", || {
        server.cli(&["EXISTS", "k"]) == "0"
    });
    drop(holder.stdin.take());
    crate::command::send("-CONT", &id);
    assert_eq!(holder.wait().unwrap().code(), Some(76));
}

#[test]
fn the_exit_code_of_a_lock_that_was_not_acquired_can_be_chosen() {
    let (_server, url) = server();
    let mut holder = hold(&url, &["--lock", "k"]);
    tokens(&mut holder);
    assert_eq!(try_run(&url, &["-E", "9", "--lock", "k"]), 9);
    close(holder);
    assert_eq!(try_run(&url, &["-E", "9", "--lock", "k"]), 0);
}

#[test]
fn the_exit_code_of_a_lease_that_was_lost_can_be_chosen() {
    let (server, url) = server();
    let begun = Mark::new();
    let script = format!("echo $$ > {}; sleep 1000", begun.path());
    let options = ["-E", "9", "--lock", "a", "--ttl", "3s"];
    let command = Running::run(&url, &options, &script);
    begun.line();
    let mut holder = hold(&url, &["-E", "9", "--lock", "b", "--ttl", "3s"]);
    tokens(&mut holder);
    assert_eq!(server.cli(&["DEL", "a", "b"]), "2");
    let output = command.output();
    assert_eq!(code(&output), 9, "{}", printed(&output));
    until("the end of the tool", || {
        holder.try_wait().unwrap().is_some()
    });
    assert_eq!(close(holder), 9);
}

#[test]
fn hold_ends_by_a_signal_and_its_lock_is_free() {
    let (server, url) = server();
    let mut holder = hold(&url, &["--lock", "k"]);
    tokens(&mut holder);
    crate::command::send("-TERM", &holder.id().to_string());
    until("the end of the tool", || {
        holder.try_wait().unwrap().is_some()
    });
    let signal = holder.wait().unwrap().signal();
    assert_eq!(signal, Some(15));
    assert_eq!(server.cli(&["EXISTS", "k"]), "0");
}

#[test]
fn a_busy_lock_is_reported_with_its_holder_and_what_is_left() {
    let (_server, url) = server();
    let mut holder = hold(&url, &["--lock", "k", "--label", "web-3:4502"]);
    tokens(&mut holder);
    // Whoever waited in vain is not among those that wait.
    for options in ["--lock k --wait 0", "--lock a --lock k --wait 5s"] {
        let busy = run(&url, &format!("{options} -- true"));
        assert_eq!(code(&busy), 75, "{}", printed(&busy));
        for part in [
            "key=k; held by web-3:4502 for about ",
            " s left unless it is renewed; try later",
        ] {
            assert!(printed(&busy).contains(part), "{}", printed(&busy));
        }
    }
    close(holder);
}

#[test]
fn a_writer_excludes_readers_and_writers() {
    let (_server, url) = server();
    let mut writer = hold(&url, &["--lock", "k", "--write"]);
    tokens(&mut writer);
    assert_eq!(try_run(&url, &["--lock", "k", "--shared"]), 75);
    assert_eq!(try_run(&url, &["--lock", "k", "--write"]), 75);
    close(writer);
    let mut reader = hold(&url, &["--lock", "k", "--shared"]);
    tokens(&mut reader);
    assert_eq!(try_run(&url, &["--lock", "k", "--shared"]), 0);
    assert_eq!(try_run(&url, &["--lock", "k", "--write"]), 75);
    close(reader);
}

#[test]
fn as_many_hold_a_lock_with_slots_as_it_has_slots() {
    let (_server, url) = server();
    let options = ["--lock", "k", "--slots", "2"];
    let mut holders: Vec<Child> = (0..2).map(|_| hold(&url, &options)).collect();
    for holder in &mut holders {
        tokens(holder);
    }
    assert_eq!(try_run(&url, &options), 75);
    close(holders.pop().unwrap());
    assert_eq!(try_run(&url, &options), 0);
    close(holders.pop().unwrap());
}

#[test]
fn several_locks_are_acquired_all_or_none() {
    let (server, url) = server();
    let both = ["--lock", "b", "--lock", "a"];
    let mut one = hold(&url, &["--lock", "b"]);
    tokens(&mut one);
    assert_eq!(try_run(&url, &both), 75);
    assert_eq!(server.cli(&["EXISTS", "a", "b"]), "1");
    close(one);
    let mut holder = hold(&url, &both);
    assert_eq!(tokens(&mut holder).split(',').count(), 2);
    assert_eq!(server.cli(&["EXISTS", "a", "b"]), "2");
    close(holder);
    let output = leasehold(&[
        "run",
        "--store",
        &url,
        "--lock",
        "b",
        "--lock",
        "a",
        "--",
        "sh",
        "-c",
        "echo $LEASEHOLD_KEY $LEASEHOLD_TOKEN",
    ]);
    let out = String::from_utf8(output.stdout).unwrap();
    let (keys, tokens) = out.trim().split_once(' ').unwrap();
    assert_eq!((keys, tokens.split(',').count()), ("a,b", 2));
    let refused = leasehold(&[
        "run", "--store", &url, "--lock", "a", "--lock", "b", "--write", "--", "true",
    ]);
    assert_eq!(code(&refused), 64, "{}", printed(&refused));
}

#[test]
fn a_wait_is_given_in_seconds_or_as_a_span_or_forever() {
    let (_server, url) = server();
    let mut holder = hold(&url, &["--lock", "k"]);
    tokens(&mut holder);
    let begun = Mark::new();
    let script = format!("echo > {}", begun.path());
    let waiter = Running::run(&url, &["--lock", "k", "--wait", "forever"], &script);
    for wait in ["1", "1s", "500ms"] {
        let output = leasehold(&[
            "run", "--store", &url, "--lock", "k", "--wait", wait, "--", "true",
        ]);
        assert_eq!(code(&output), 75, "{}", printed(&output));
    }
    assert!(!begun.is_there());
    close(holder);
    assert_eq!(code(&waiter.output()), 0);
    let refused = run(&url, "--lock k --wait soon -- true");
    assert_eq!(code(&refused), 64);
    assert!(
        printed(&refused).contains("forever"),
        "{}",
        printed(&refused)
    );
}

#[test]
fn the_url_of_the_store_is_not_given_to_the_command() {
    let (_server, url) = server();
    let mut command = tool(&[
        "run",
        "--lock",
        "k",
        "--",
        "sh",
        "-c",
        "echo [$LEASEHOLD_STORE]",
    ]);
    let output = command.env("LEASEHOLD_STORE", &url).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "[]\n",
        "{}",
        printed(&output)
    );
}

#[cfg(target_os = "linux")]
#[test]
fn processes_that_a_command_leaves_behind_are_reported() {
    let (server, url) = server();
    let left = Mark::new();
    let script = format!(
        "setsid sleep 1000 > /dev/null 2>&1 & a=$!; sleep 1000 > /dev/null 2>&1 & echo $a $! > {}",
        left.path()
    );
    let output = run_script(&url, &script);
    assert_eq!(code(&output), 0, "{}", printed(&output));
    assert!(
        printed(&output).contains("2 of its processes run on without the lock"),
        "{}",
        printed(&output)
    );
    assert_eq!(server.cli(&["EXISTS", "k"]), "0");
    let end = format!("kill {}", left.line());
    assert!(
        std::process::Command::new("sh")
            .args(["-c", &end])
            .status()
            .unwrap()
            .success()
    );
}

#[cfg(target_os = "linux")]
#[test]
fn with_wait_children_the_lock_is_kept_until_they_have_ended() {
    let (server, url) = server();
    let [left, ends] = [Mark::new(), Mark::new()];
    let script = format!(
        "setsid sh -c 'echo $$ > {}; until [ -e {} ]; do sleep 0.01; done' > /dev/null 2>&1 & exit 3",
        left.path(),
        ends.path()
    );
    let tool = Running::run(&url, &["--lock", "k", "--wait-children"], &script);
    let id = left.line();
    assert!(runs(&id));
    assert_eq!(server.cli(&["EXISTS", "k"]), "1");
    std::fs::write(ends.path(), "").unwrap();
    let output = tool.output();
    assert_eq!(code(&output), 3, "{}", printed(&output));
    assert!(!printed(&output).contains("run on"), "{}", printed(&output));
    assert_eq!(server.cli(&["EXISTS", "k"]), "0");
    until("the end of the child", || !runs(&id));
}

/// A real wait of a second or two: a lease is renewed.
#[cfg(target_os = "linux")]
#[test]
fn what_a_lost_command_leaves_behind_is_not_waited_for() {
    let (server, url) = server();
    let left = Mark::new();
    let script = format!(
        "setsid sh -c 'exec > /dev/null 2>&1; echo $$ > {}; exec sleep 1000' & exec sleep 1000",
        left.path()
    );
    let options = ["--lock", "k", "--ttl", "3s", "--wait-children"];
    let tool = Running::run(&url, &options, &script);
    let id = left.line();
    assert_eq!(server.cli(&["DEL", "k"]), "1");
    let output = tool.output();
    assert_eq!(code(&output), 76, "{}", printed(&output));
    assert!(runs(&id), "it has a session of its own");
    crate::command::send("-KILL", &id);
}

//! What `leasehold run` gives a command, and how it leaves.

use std::process::{Command, Stdio};

use crate::command::{
    Mark, Running, TOOL, code, leasehold, lines, printed, run, run_command, server, until_marked,
    until_subscribed,
};
use crate::redis::RedisServer;
use crate::redis::canary::CANARY;

fn exit_of(url: &str, command: &[&str]) -> i32 {
    let mut arguments = vec!["run", "--store", url, "--lock", "k", "--"];
    arguments.extend(command);
    code(&leasehold(&arguments))
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    let (_server, url) = server();
    assert_eq!(exit_of(&url, &["true"]), 0);
    assert_eq!(exit_of(&url, &["sh", "-c", "exit 7"]), 7);
    assert_eq!(exit_of(&url, &["sh", "-c", "kill -TERM $$"]), 128 + 15);
    assert_eq!(exit_of(&url, &["leasehold-no-such-command"]), 127);
    assert_eq!(exit_of(&url, &["/"]), 126);
}

/// As an upgrade of its package takes it away.
#[cfg(target_os = "linux")]
#[test]
fn a_tool_whose_file_is_gone_runs_its_command() {
    let (server, url) = server();
    let copy = Mark::new();
    std::fs::copy(TOOL, copy.path()).unwrap();
    server.cli(&["SET", "k", "another", "PX", "60000"]);
    let waiter = Command::new(copy.path())
        .args([
            "run", "--store", &url, "--lock", "k", "--", "sh", "-c", "exit 7",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let waiter = Running(waiter.unwrap());
    until_subscribed(&server);
    std::fs::remove_file(copy.path()).unwrap();
    server.cli(&["DEL", "k"]);
    let output = waiter.output();
    assert_eq!(code(&output), 7, "{}", printed(&output));
}

#[test]
fn the_command_knows_its_key_and_its_token_and_they_grow() {
    let (_server, url) = server();
    let token = || {
        let script = "echo $LEASEHOLD_KEY $LEASEHOLD_TOKEN";
        let output = leasehold(&[
            "run", "--store", &url, "--lock", "a/b", "--", "sh", "-c", script,
        ]);
        let out = String::from_utf8(output.stdout).unwrap();
        let (key, token) = out.trim().split_once(' ').unwrap();
        assert_eq!(key, "a/b");
        token.parse::<u64>().unwrap()
    };
    let first = token();
    assert!(token() > first);
}

#[test]
fn arguments_and_streams_are_the_commands_own() {
    let (_server, url) = server();
    let script = "echo \"$1\"; echo err >&2";
    let output = run_command(&url, &["sh", "-c", script, "sh", "--json a  b"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "--json a  b\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "err\n");
}

#[test]
fn the_lock_is_held_while_the_command_runs_and_free_at_once_when_it_has_ended() {
    let (server, url) = server();
    let begun = Mark::new();
    let ends = Mark::new();
    let script = until_marked(&begun, &ends);
    let holder = Running::run(&url, &["--lock", "k", "--label", "nightly job"], &script);
    begun.line();

    let busy = run(&url, "--lock k --wait 0s -- true");
    assert_eq!(code(&busy), 75, "{}", printed(&busy));
    assert!(
        printed(&busy).contains("held by nightly job"),
        "{}",
        printed(&busy)
    );
    let busy = run(&url, "--lock k --wait 100ms -- true");
    assert_eq!(code(&busy), 75, "{}", printed(&busy));

    std::fs::write(ends.path(), "").unwrap();
    assert_eq!(code(&holder.output()), 0);
    assert_eq!(server.cli(&["EXISTS", "k"]), "0");
}

#[test]
fn who_waits_gets_the_lock_when_it_is_free() {
    let (server, url) = server();
    let begun = Mark::new();
    let ends = Mark::new();
    let script = until_marked(&begun, &ends);
    let holder = Running::run(&url, &["--lock", "k"], &script);
    begun.line();
    let waiter = Running::run(&url, &["--lock", "k", "--wait", "1m"], "exit 9");
    // It has asked for the lock, and listens for its end.
    until_subscribed(&server);
    std::fs::write(ends.path(), "").unwrap();
    assert_eq!(code(&holder.output()), 0);
    assert_eq!(code(&waiter.output()), 9);
}

#[test]
fn bad_usage_is_64_before_anything_is_run() {
    let (_server, url) = server();
    let mark = Mark::new();
    let run = |options: &[&str]| {
        let mut arguments = vec!["run"];
        arguments.extend(options);
        arguments.extend(["--", "touch", mark.path()]);
        let output = leasehold(&arguments);
        assert_eq!(code(&output), 64, "{options:?}: {}", printed(&output));
        printed(&output)
    };
    run(&["--store", &url]);
    run(&["--store", &url, "--lock", "a//b"]);
    run(&["--store", &url, "--lock", "k", "--ttl", "soon"]);
    run(&["--store", "mysql://host", "--lock", "k"]);
    let printed = run(&["--store", &url, "--lock", "k", "--slots", "65"]);
    assert!(printed.contains("1..=64"), "{printed}");
    let printed = run(&["--store", "memory:", "--lock", "k"]);
    assert!(printed.contains("lives in one process"), "{printed}");
    let printed = run(&[
        "--store",
        &url,
        "--lock",
        "k",
        "--ttl",
        "3s",
        "--kill-grace",
        "2s",
    ]);
    assert!(
        printed.contains("--kill-grace 2s does not fit"),
        "{printed}"
    );
    let printed = run(&["--store", &url, "--lock", "k", "--ttl", "40s"]);
    assert!(printed.contains("ttl=40s"), "{printed}");
    assert!(!mark.is_there());
}

#[test]
fn a_store_that_cannot_be_reached_is_69() {
    let mut server = RedisServer::start();
    let url = server.url("");
    server.kill();
    let output = run(&url, "--lock k --wait 100ms -- true");
    assert_eq!(code(&output), 69, "{}", printed(&output));
}

#[test]
fn a_store_that_refuses_us_is_77_and_no_password_is_printed() {
    let server = RedisServer::start_with(&["--requirepass", CANARY]);
    let url = format!("redis://:{CANARY}-not@127.0.0.1:{}/0", server.port());
    for arguments in [
        &["run", "--lock", "k", "--", "true"][..],
        &["inspect", "k"],
        &["list"],
        &["counter"],
    ] {
        let mut arguments = arguments.to_vec();
        arguments.insert(1, "--store");
        arguments.insert(2, &url);
        let output = leasehold(&arguments);
        assert_eq!(code(&output), 77, "{}", printed(&output));
        assert!(!printed(&output).contains(CANARY), "{}", printed(&output));
    }
}

#[test]
fn the_store_may_stand_in_the_environment() {
    let (_server, url) = server();
    let output = crate::command::tool(&["run", "--lock", "k", "--", "true"])
        .env("LEASEHOLD_STORE", &url)
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", printed(&output));
}

#[test]
fn scripts_get_json() {
    let (_server, url) = server();
    let output = leasehold(&[
        "--json", "run", "--store", &url, "--lock", "k", "--", "sh", "-c", "exit 3",
    ]);
    let events = lines(&output.stderr);
    assert_eq!(events[0]["event"], "acquired");
    assert_eq!(events[0]["key"], "k");
    assert!(events[0]["token"].as_u64().unwrap() > 0);
    assert_eq!(events[1]["event"], "ended");
    assert_eq!(events[1]["exit"], 3);

    let output = leasehold(&[
        "--json", "run", "--store", "memory:", "--lock", "k", "--", "true",
    ]);
    assert_eq!(lines(&output.stderr)[0]["exit"], 64);
    // What cannot be understood is reported the same way; the command's own words say nothing to
    // us.
    let output = leasehold(&["run", "--json", "--store", &url]);
    assert_eq!(code(&output), 64);
    assert_eq!(lines(&output.stderr)[0]["exit"], 64);
    let output = leasehold(&["run", "--store", &url, "--", "cat", "--json"]);
    assert_eq!(code(&output), 64);
    assert!(!output.stderr.starts_with(b"{"), "{}", printed(&output));
}

#[test]
fn a_store_that_grants_nothing_yet_is_75_with_for_how_long() {
    let server = RedisServer::start();
    let url = server.url("");
    let output = run(&url, "--lock k --wait 0s -- true");
    assert_eq!(code(&output), 75, "{}", printed(&output));
    let text = printed(&output);
    assert!(
        text.contains("not ready: the store grants nothing for another"),
        "{text}"
    );
}

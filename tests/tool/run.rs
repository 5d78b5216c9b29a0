//! What `leasehold run` gives a command, and how it leaves.

use std::process::{Command, Stdio};

use crate::command::{Mark, Running, TOOL, code, leasehold, lines, server, told, until};
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
    until("a subscription", || {
        !server.cli(&["PUBSUB", "CHANNELS"]).is_empty() || server.cli(&["PUBSUB", "NUMPAT"]) != "0"
    });
    std::fs::remove_file(copy.path()).unwrap();
    server.cli(&["DEL", "k"]);
    let output = waiter.output();
    assert_eq!(code(&output), 7, "{}", told(&output));
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
    let output = leasehold(&[
        "run",
        "--store",
        &url,
        "--lock",
        "k",
        "--",
        "sh",
        "-c",
        "echo \"$1\"; echo err >&2",
        "sh",
        "--json a  b",
    ]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "--json a  b\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "err\n");
}

#[test]
fn the_lock_is_held_while_the_command_runs_and_free_at_once_when_it_has_ended() {
    let (server, url) = server();
    let begun = Mark::new();
    let ends = Mark::new();
    let script = format!(
        "echo > {}; until [ -e {} ]; do sleep 0.01; done",
        begun.path(),
        ends.path()
    );
    let holder = Running::run(&url, &["--lock", "k", "--label", "nightly job"], &script);
    begun.line();

    let busy = leasehold(&[
        "run", "--store", &url, "--lock", "k", "--wait", "0s", "--", "true",
    ]);
    assert_eq!(code(&busy), 75, "{}", told(&busy));
    assert!(
        told(&busy).contains("holder=nightly job"),
        "{}",
        told(&busy)
    );
    let busy = leasehold(&[
        "run", "--store", &url, "--lock", "k", "--wait", "100ms", "--", "true",
    ]);
    assert_eq!(code(&busy), 75, "{}", told(&busy));

    std::fs::write(ends.path(), "").unwrap();
    assert_eq!(code(&holder.output()), 0);
    assert_eq!(server.cli(&["EXISTS", "k"]), "0");
}

#[test]
fn who_waits_gets_the_lock_when_it_is_free() {
    let (server, url) = server();
    let begun = Mark::new();
    let ends = Mark::new();
    let script = format!(
        "echo > {}; until [ -e {} ]; do sleep 0.01; done",
        begun.path(),
        ends.path()
    );
    let holder = Running::run(&url, &["--lock", "k"], &script);
    begun.line();
    let waiter = Running::run(&url, &["--lock", "k", "--wait", "1m"], "exit 9");
    // It has asked for the lock, and listens for its end.
    until("a subscription", || {
        server.cli(&["PUBSUB", "NUMPAT"]) != "0" || !server.cli(&["PUBSUB", "CHANNELS"]).is_empty()
    });
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
        assert_eq!(code(&output), 64, "{options:?}: {}", told(&output));
        told(&output)
    };
    run(&["--lock", "k"]);
    run(&["--store", &url]);
    run(&["--store", &url, "--lock", "a//b"]);
    run(&["--store", &url, "--lock", "k", "--ttl", "soon"]);
    run(&["--store", "mysql://host", "--lock", "k"]);
    let told = run(&["--store", "memory:", "--lock", "k"]);
    assert!(told.contains("lives in one process"), "{told}");
    let told = run(&[
        "--store",
        &url,
        "--lock",
        "k",
        "--ttl",
        "3s",
        "--kill-grace",
        "2s",
    ]);
    assert!(told.contains("--kill-grace 2s does not fit"), "{told}");
    let told = run(&["--store", &url, "--lock", "k", "--ttl", "40s"]);
    assert!(told.contains("ttl=40s"), "{told}");
    assert!(!mark.is_there());
}

#[test]
fn a_store_that_cannot_be_reached_is_69() {
    let mut server = RedisServer::start();
    let url = server.url("");
    server.kill();
    let output = leasehold(&[
        "run", "--store", &url, "--lock", "k", "--wait", "100ms", "--", "true",
    ]);
    assert_eq!(code(&output), 69, "{}", told(&output));
}

#[test]
fn a_store_that_refuses_us_is_77_and_no_password_is_told() {
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
        assert_eq!(code(&output), 77, "{}", told(&output));
        assert!(!told(&output).contains(CANARY), "{}", told(&output));
    }
}

#[test]
fn the_store_may_stand_in_the_environment() {
    let (_server, url) = server();
    let output = crate::command::tool(&["run", "--lock", "k", "--", "true"])
        .env("LEASEHOLD_STORE", &url)
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", told(&output));
}

#[test]
fn scripts_are_told_in_json() {
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
    // What cannot be understood is told the same way; the command's own words say nothing to us.
    let output = leasehold(&["run", "--json", "--store", &url]);
    assert_eq!(code(&output), 64);
    assert_eq!(lines(&output.stderr)[0]["exit"], 64);
    let output = leasehold(&["run", "--store", &url, "--", "cat", "--json"]);
    assert_eq!(code(&output), 64);
    assert!(!output.stderr.starts_with(b"{"), "{}", told(&output));
}

//! Streams that cannot be written: a full disk, a reader that has gone.

use std::fs::File;
use std::io::pipe;
use std::process::{Output, Stdio};

use crate::command::{
    code, leasehold, lines, printed, run, server, tool, tool_that_runs, until_it_ends,
};
use crate::redis::RedisServer;

/// As a file on a full disk.
fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

fn to_a_full_disk(arguments: &[&str]) -> Output {
    tool(arguments).stdout(full()).output().unwrap()
}

#[test]
fn an_answer_that_cannot_be_written_is_71() {
    let (_server, url) = server();
    for arguments in [
        &["sql", "postgres"][..],
        &["sql", "sqlite", "--json"],
        &["generate", "bash"],
        &["generate", "man"],
        &["list", "--store", &url],
        &["inspect", "--store", &url, "k"],
        &["inspect", "--json", "--store", &url, "k"],
        &["revoke", "--store", &url, "k"],
        &["--help"],
    ] {
        let output = to_a_full_disk(arguments);
        assert_eq!(code(&output), 71, "{arguments:?}: {}", printed(&output));
        let said = printed(&output);
        assert!(said.contains("could not be written"), "{said}");
    }
}

#[test]
fn an_answer_whose_reader_has_gone_is_not_missed() {
    for arguments in [&["sql", "postgres"][..], &["generate", "bash"], &["--help"]] {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let output = tool(arguments).stdout(writer).output().unwrap();
        assert_eq!(code(&output), 0, "{arguments:?}: {}", printed(&output));
    }
}

#[test]
fn a_hold_whose_token_cannot_be_written_ends() {
    let (server, url) = server();
    let mut holder = tool(&["hold", "--store", &url, "--lock", "k"])
        .stdin(Stdio::piped())
        .stdout(full())
        .spawn()
        .unwrap();
    let stdin = holder.stdin.take();
    assert_eq!(until_it_ends(&mut holder).code(), Some(71));
    drop(stdin);
    assert_eq!(server.cli(&["EXISTS", "k"]), "0");
}

#[test]
fn what_the_tool_says_in_vain_changes_nothing() {
    // It grants nothing yet, and the library logs that.
    let server = RedisServer::start();
    let url = server.url("");
    let logged = run(&url, "--lock k --wait 0s -- true");
    assert!(printed(&logged).contains("WARN"), "{}", printed(&logged));
    let refused = tool(&[
        "run", "--store", &url, "--lock", "k", "--wait", "0s", "--", "true",
    ])
    .stderr(full())
    .output()
    .unwrap();
    assert_eq!((code(&logged), code(&refused)), (75, 75), "{refused:?}");

    let (_server, url) = crate::command::server();
    let mut missing = tool_that_runs(&url, &["no-such-command"]);
    let missing = missing.stderr(full()).output().unwrap();
    assert_eq!(code(&missing), 127, "{missing:?}");
}

#[test]
fn a_command_that_cannot_be_run_is_reported_to_scripts_as_json() {
    let (_server, url) = server();
    for (command, exit) in [("leasehold-no-such-command", 127), ("/", 126)] {
        let arguments = [
            "--json", "run", "--store", &url, "--lock", "k", "--", command,
        ];
        let output = leasehold(&arguments);
        assert_eq!(code(&output), exit, "{}", printed(&output));
        let said = lines(&output.stderr);
        let refusal = said.iter().find(|line| line["error"].is_string());
        let refusal = refusal.unwrap_or_else(|| panic!("{}", printed(&output)));
        assert_eq!(refusal["exit"], exit);
        assert!(refusal["error"].as_str().unwrap().starts_with(command));
    }
}

//! `leader`, `revoke`, `--shared` and `--mode`: the kinds of lock, on stores that have them and on
//! stores that do not.

use std::process::Stdio;

use crate::command::{
    Mark, Running, code, counter, leasehold, lines, printed, server, tool, until,
};
use crate::zookeeper::Server;

fn candidate(url: &str, label: &str, script: &str) -> Running {
    let arguments = [
        "leader",
        "--store",
        url,
        "--election",
        "office",
        "--label",
        label,
        "--ttl",
        "2s",
        "--",
        "sh",
        "-c",
        script,
    ];
    let child = tool(&arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    Running(child.unwrap())
}

fn until_killed(begun: &Mark) -> String {
    format!(
        "echo $LEASEHOLD_TOKEN > {}; while :; do sleep 0.01; done",
        begun.path()
    )
}

/// A real wait of a ttl: the first leader is killed without a farewell.
#[test]
fn the_next_candidate_leads_when_the_leader_is_gone_in_a_term_with_a_larger_token() {
    let (server, url) = server();
    let [first_begun, second_begun] = [Mark::new(), Mark::new()];
    let first = candidate(&url, "host-a", &until_killed(&first_begun));
    let first_term: u64 = first_begun.line().parse().unwrap();
    let second = candidate(&url, "host-b", &until_killed(&second_begun));
    let seen = leasehold(&["inspect", "--store", &url, "--json", "office"]);
    assert_eq!(lines(&seen.stdout)[0]["holder"], "host-a");
    assert!(!second_begun.is_there());
    first.signal("-KILL");
    let second_term: u64 = second_begun.line().parse().unwrap();
    assert!(second_term > first_term);
    second.signal("-TERM");
    assert_eq!(code(&second.output()), 143);
    assert_eq!(server.cli(&["EXISTS", "office"]), "0");
}

#[test]
fn a_candidate_whose_term_was_lost_stands_for_the_next() {
    let (server, url) = server();
    let begun = Mark::new();
    let script = format!(
        "echo $LEASEHOLD_TOKEN >> {}; while :; do sleep 0.01; done",
        begun.path()
    );
    let leader = candidate(&url, "host-a", &script);
    begun.line();
    assert_eq!(server.cli(&["DEL", "office"]), "1");
    until("a second term", || begun.line().lines().count() == 2);
    leader.signal("-INT");
    assert_eq!(code(&leader.output()), 130);
}

#[test]
fn a_command_that_ends_by_itself_ends_the_leader_with_its_status() {
    let (server, url) = server();
    assert_eq!(code(&candidate(&url, "host-a", "exit 6").output()), 6);
    assert_eq!(server.cli(&["EXISTS", "office"]), "0");
}

#[test]
fn a_candidate_that_waits_ends_with_a_signal() {
    let (_server, url) = server();
    let begun = Mark::new();
    let leader = candidate(&url, "host-a", &until_killed(&begun));
    begun.line();
    let never = Mark::new();
    let waiting = candidate(&url, "host-b", &until_killed(&never));
    // It listens for signals before it asks for anything.
    let caught = format!("/proc/{}/status", waiting.0.id());
    until("a handler of SIGTERM", || {
        let status = std::fs::read_to_string(&caught).unwrap();
        let mask = status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:"))
            .unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << 14) != 0
    });
    waiting.signal("-TERM");
    assert_eq!(code(&waiting.output()), 143);
    assert!(!never.is_there());
    leader.signal("-TERM");
}

#[test]
fn revoking_on_a_store_of_one_process_is_a_usage_error() {
    let output = leasehold(&["revoke", "--store", "memory:", "k"]);
    assert_eq!(code(&output), 64);
    assert!(
        printed(&output).contains("lives in one process"),
        "{}",
        printed(&output)
    );
}

fn until_there(begun: &Mark, ends: &Mark) -> String {
    format!(
        "echo $LEASEHOLD_TOKEN > {}; until [ -e {} ]; do sleep 0.01; done",
        begun.path(),
        ends.path()
    )
}

#[test]
fn commands_that_share_a_lock_run_together_and_who_wants_it_alone_waits_for_both() {
    let (server, url) = server();
    let ends = Mark::new();
    let begun = [Mark::new(), Mark::new()];
    let [first, second] = begun.each_ref().map(|begun| {
        let options = ["--lock", "k", "--shared", "--label", "reader"];
        Running::run(&url, &options, &until_there(begun, &ends))
    });
    let tokens = begun.each_ref().map(|begun| begun.line());
    assert_ne!(tokens[0], tokens[1]);
    let held = leasehold(&["inspect", "--json", "--store", &url, "k"]);
    let held = &lines(&held.stdout)[0];
    assert_eq!(
        (&held["mode"], &held["holder"]),
        (&"read".into(), &"reader".into())
    );
    assert_eq!(held["holders"], 2, "{held}");
    let alone = [
        "run", "--store", &url, "--lock", "k", "--wait", "0s", "--", "true",
    ];
    assert_eq!(code(&leasehold(&alone)), 75);
    // Another client, of any language.
    assert_eq!(server.cli(&["SET", "k", "theirs", "NX", "PX", "1000"]), "");

    std::fs::write(ends.path(), "").unwrap();
    for reader in [first, second] {
        assert_eq!(code(&reader.output()), 0);
    }
    assert_eq!(code(&leasehold(&alone)), 0);
}

/// A real wait of a ttl of four seconds.
#[test]
fn a_lock_taken_by_force_ends_its_holders_command_and_is_free_when_the_old_time_is_over() {
    let (server, url) = server();
    let [begun, never] = [Mark::new(), Mark::new()];
    let options = ["--lock", "k", "--ttl", "4s"];
    let holder = Running::run(&url, &options, &until_there(&begun, &never));
    let first: u64 = begun.line().parse().unwrap();
    let forced = leasehold(&["revoke", "--store", &url, "--json", "k"]);
    assert_eq!(code(&forced), 0, "{}", printed(&forced));
    let answer = &lines(&forced.stdout)[0];
    assert_eq!(answer["was_held"], true);
    assert!((1..=4_000).contains(&answer["free_in_ms"].as_u64().unwrap()));
    let warned = &lines(&forced.stderr)[0];
    assert_eq!(
        (&warned["level"], &warned["key"]),
        (&"warn".into(), &"k".into())
    );
    let message = warned["message"].as_str().unwrap();
    assert!(message.contains("was taken away"), "{message}");
    // Nobody enters before: the key stands, for other clients too.
    assert_eq!(server.cli(&["SET", "k", "theirs", "NX", "PX", "1000"]), "");
    let next = Running::run(
        &url,
        &["--lock", "k", "--wait", "1m"],
        "echo $LEASEHOLD_TOKEN",
    );
    assert_eq!(code(&holder.output()), 76);
    let next = next.output();
    assert_eq!(code(&next), 0, "{}", printed(&next));
    let second = String::from_utf8(next.stdout).unwrap();
    assert!(second.trim().parse::<u64>().unwrap() > first);
    let free = leasehold(&["revoke", "--store", &url, "k"]);
    assert_eq!(code(&free), 1, "{}", printed(&free));
    assert_eq!(
        printed(&free),
        "k is free\n",
        "nothing was taken from anybody"
    );
}

/// A real wait of a heartbeat: the old holder hears of it then.
#[test]
fn a_lock_taken_now_is_free_at_once_and_the_log_says_that_two_may_act() {
    let (_server, url) = server();
    let [begun, never] = [Mark::new(), Mark::new()];
    let holder = Running::run(
        &url,
        &["--lock", "k", "--ttl", "4s"],
        &until_there(&begun, &never),
    );
    begun.line();
    let forced = leasehold(&["revoke", "--now", "--store", &url, "k"]);
    assert_eq!(code(&forced), 0, "{}", printed(&forced));
    assert!(
        printed(&forced).contains("two may act"),
        "{}",
        printed(&forced)
    );
    let next = [
        "run", "--store", &url, "--lock", "k", "--wait", "0s", "--", "true",
    ];
    let next = leasehold(&next);
    assert_eq!(code(&next), 0, "{}", printed(&next));
    assert_eq!(code(&holder.output()), 76);
}

#[test]
fn no_update_is_lost_in_redis_by_turns_in_order_or_by_writers() {
    let (_server, url) = server();
    for mode in ["fair", "write"] {
        let output = leasehold(&[
            "counter",
            "--store",
            &url,
            "--processes",
            "3",
            "--rounds",
            "20",
            "--wait",
            "1m",
            "--mode",
            mode,
            "--json",
        ]);
        assert_eq!(code(&output), 0, "{mode}: {}", printed(&output));
        assert_eq!(lines(&output.stdout)[0]["counter"], 60, "{mode}");
    }
}

/// Real waits: sessions of two seconds run out.
#[test]
fn locks_in_zookeeper_are_fair_counted_without_loss_and_conform() {
    let server = Server::start();
    let url = format!(
        "zookeeper://{}/locks?session_timeout=4s&tick_time=500ms",
        server.address()
    );
    let output = leasehold(&[
        "run", "--store", &url, "--lock", "k", "--", "sh", "-c", "exit 4",
    ]);
    assert_eq!(code(&output), 4, "{}", printed(&output));
    let output = counter(&url, "--rounds 20 --wait 1m --mode fair --json");
    assert_eq!(code(&output), 0, "{}", printed(&output));
    assert_eq!(lines(&output.stdout)[0]["counter"], 60);
    let output = leasehold(&[
        "run", "--store", &url, "--lock", "k", "--ttl", "5s", "--", "true",
    ]);
    assert_eq!(code(&output), 64, "the URL says 4s: {}", printed(&output));
}

/// Real waits: sessions of two seconds run out.
#[test]
fn our_own_zookeeper_store_conforms() {
    let server = Server::start();
    let url = format!(
        "zookeeper://{}/conform?session_timeout=2s&tick_time=500ms",
        server.address()
    );
    let output = leasehold(&["conform", "--store", &url]);
    assert_eq!(code(&output), 0, "{}", printed(&output));
}

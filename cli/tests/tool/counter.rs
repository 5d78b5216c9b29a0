//! `leasehold counter`: what it counts, and that it finds a lock that does not lock.

use std::process::{Command, Stdio};

use crate::command::{Running, code, counter, leasehold, lines, printed, server, tool, until};
use crate::redis::RedisServer;
use crate::zookeeper::Server;

/// Counts without an end that a test would wait for.
pub(crate) const ENDLESS: &str = "--processes 2 --rounds 1000000 --hold 20ms --wait 1m";

/// Whether nobody is connected but who asks.
pub(crate) fn is_alone(server: &RedisServer) -> bool {
    server.cli(&["CLIENT", "LIST"]).lines().count() == 1
}

#[test]
fn no_update_is_lost_under_a_lock() {
    let (_server, url) = server();
    let output = counter(&url, "--processes 3 --tasks 2 --rounds 20 --wait 1m --json");
    assert_eq!(code(&output), 0, "{}", printed(&output));
    let report = &lines(&output.stdout)[0];
    assert_eq!(report["counter"], 120);
    assert_eq!(report["counted"], 120);
    assert_eq!(report["lost"], 0);
    assert_eq!(report["processes"].as_array().unwrap().len(), 3);
    assert_eq!(report["processes"][2]["counted"], 40);
    assert!(report["rounds_per_second"].as_f64().unwrap() > 0.0);
    let wait = |what: &str| report[what].as_f64().unwrap();
    assert!(wait("wait_p50_ms") <= wait("wait_p99_ms"), "{report}");
    assert!(report["turns_changed_percent"].as_u64().unwrap() <= 100);
    assert!((1..=40).contains(&report["longest_row"].as_u64().unwrap()));
    assert!(
        output.stderr.is_empty(),
        "no progress bar in a pipe: {}",
        printed(&output)
    );
}

/// Real time: what is shown is that nobody goes without a turn while it passes.
fn every_task_is_served_and_no_update_is_lost(url: &str) {
    let output = counter(url, "--processes 4 --tasks 8 --for 5s --wait 30s --json");
    assert_eq!(code(&output), 0, "{}", printed(&output));
    let report = &lines(&output.stdout)[0];
    let count = |what: &str| report[what].as_u64().unwrap();
    assert_eq!(count("lost"), 0, "{report}");
    assert_eq!((count("tasks"), count("served")), (32, 32), "{report}");
    assert_eq!(count("counter"), count("counted"), "{report}");
    // A grant is handed on 64 times at most, so that the other processes get theirs.
    assert!(count("most_of_a_grant") <= 65, "{report}");
    println!("{report}");
}

#[test]
fn four_processes_of_eight_tasks_share_one_lock_in_redis() {
    let (_server, url) = server();
    every_task_is_served_and_no_update_is_lost(&url);
}

#[test]
fn four_processes_of_eight_tasks_share_one_lock_in_zookeeper() {
    let server = Server::shared();
    every_task_is_served_and_no_update_is_lost(&format!("zookeeper://{}/hot", server.address()));
}

#[test]
fn rounds_and_a_time_exclude_each_other() {
    let output = counter("redis://127.0.0.1:1", "--rounds 3 --for 5s");
    assert_eq!(code(&output), 64, "{}", printed(&output));
}

#[test]
fn the_report_for_people_has_every_number() {
    let (_server, url) = server();
    let output = counter(&url, "--processes 2 --rounds 3 --wait 1m");
    assert_eq!(code(&output), 0, "{}", printed(&output));
    let text = printed(&output);
    for words in [
        "process 0: 3 counted, 0 failed",
        "process 1: 3 counted, 0 failed",
        "counter   6 of 6 counted, 0 updates lost",
        "rounds a second",
        "wait      p50 ",
        ", p99 ",
        "fairness  ",
    ] {
        assert!(text.contains(words), "nothing of {words:?} in {text}");
    }
}

#[test]
fn a_lock_that_is_deleted_under_its_holders_loses_updates_and_is_found_out() {
    let (server, url) = server();
    let port = server.port().to_string();
    let mut saboteur = Command::new("redis-cli")
        .args(["-p", &port, "-r", "-1", "-i", "0.001", "DEL", "k"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // On a busy machine the lock may be deleted at moments that harm nobody.
    let count = || {
        counter(
            &url,
            "--lock k --processes 3 --rounds 40 --hold 10ms --json",
        )
    };
    let mut outputs = std::iter::repeat_with(count).take(20);
    let output = outputs.find(|output| code(output) != 0);
    saboteur.kill().unwrap();
    saboteur.wait().unwrap();
    let output = output.expect("an update that was lost");
    assert_eq!(code(&output), 1, "{}", printed(&output));
    assert!(lines(&output.stdout)[0]["lost"].as_u64().unwrap() > 0);
}

#[test]
fn who_does_not_get_the_lock_in_time_is_counted_as_failed() {
    let (_server, url) = server();
    let output = counter(
        &url,
        "--processes 2 --rounds 3 --hold 300ms --wait 1ms --json",
    );
    assert_eq!(code(&output), 0, "{}", printed(&output));
    let report = &lines(&output.stdout)[0];
    let count = |what: &str| report[what].as_u64().unwrap();
    assert_eq!(count("counted") + count("failed"), 6);
    assert_eq!(count("counter"), count("counted"));
    assert!(count("failed") > 0, "{report}");
}

#[test]
fn one_process_cannot_be_many() {
    let output = leasehold(&["counter", "--store", "memory:"]);
    assert_eq!(code(&output), 64);
    assert!(printed(&output).contains("lives in one process"));
    assert_eq!(code(&counter("memory:", "--processes 0")), 64);
}

/// Real waits: processes are stopped for longer than their ttl of a second.
#[test]
fn no_update_is_lost_behind_a_fence_while_holders_are_stopped_beyond_their_ttl() {
    let (server, url) = server();
    let output = counter(
        &url,
        "--processes 3 --rounds 30 --hold 20ms --wait 10s --nemesis pause --json",
    );
    assert_eq!(code(&output), 0, "{}", printed(&output));
    let report = &lines(&output.stdout)[0];
    let count = |what: &str| report[what].as_u64().unwrap();
    assert_eq!(count("lost"), 0, "{report}");
    assert!(count("pauses") > 0, "{report}");
    assert!(count("counter") >= count("counted"), "{report}");
    assert!(
        count("counter") <= count("counted") + count("unknown"),
        "{report}"
    );
    // Nothing is left behind but the fence itself.
    let keys = server.cli(&["KEYS", "leasehold-counter-*"]);
    assert_eq!(keys, "");
}

#[test]
fn a_nemesis_needs_a_fence() {
    let (server, _) = server();
    let url = format!(
        "redlock://127.0.0.1:{}/0?restart_quarantine=off",
        server.port()
    );
    let output = counter(&url, "--nemesis pause");
    assert_eq!(code(&output), 64, "{}", printed(&output));
    assert!(
        printed(&output).contains("store=redlock has none"),
        "{}",
        printed(&output)
    );
}

/// Real waits: processes are stopped for longer than their session of two seconds.
#[test]
fn no_update_is_lost_behind_a_fence_in_zookeeper_while_holders_are_stopped() {
    let server = Server::start();
    let url = format!(
        "zookeeper://{}/locks?session_timeout=2s&tick_time=500ms",
        server.address()
    );
    let output = counter(
        &url,
        "--processes 3 --rounds 30 --hold 50ms --wait 20s --nemesis pause --json",
    );
    assert_eq!(code(&output), 0, "{}", printed(&output));
    let report = &lines(&output.stdout)[0];
    let count = |what: &str| report[what].as_u64().unwrap();
    assert_eq!(count("lost"), 0, "{report}");
    assert!(count("pauses") > 0, "{report}");
    assert!(count("counted") > 0, "{report}");
    assert!(count("counter") >= count("counted"), "{report}");
    assert!(
        count("counter") <= count("counted") + count("unknown"),
        "{report}"
    );
}

#[test]
fn over_tls_to_postgresql_there_is_no_nemesis() {
    let url = "postgres://127.0.0.1:1/a?sslmode=verify-full";
    let output = counter(url, "--nemesis pause");
    assert_eq!(code(&output), 64, "{}", printed(&output));
    assert!(
        printed(&output).contains("leave sslmode out"),
        "{}",
        printed(&output)
    );
}

#[test]
fn a_driver_that_cannot_fence_has_no_nemesis() {
    let url = "zookeeper://127.0.0.1:1/locks?driver=zookeeper-async";
    let output = counter(url, "--nemesis pause");
    assert_eq!(code(&output), 64, "{}", printed(&output));
    assert!(
        printed(&output).contains("cannot send a fenced write"),
        "{}",
        printed(&output)
    );
}

#[cfg(target_os = "linux")]
#[test]
fn counting_processes_do_not_outlive_a_tool_that_was_killed() {
    let (server, url) = server();
    let mut arguments = vec!["counter", "--store", &url, "--lock", "k"];
    arguments.extend(ENDLESS.split(' '));
    let child = tool(&arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let counting = Running(child.unwrap());
    until("a round", || server.cli(&["EXISTS", "k"]) == "1");
    assert!(!is_alone(&server));
    counting.signal("-KILL");
    until("the end of its processes", || is_alone(&server));
}

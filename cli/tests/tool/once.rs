//! `--once`: each fire time of a job is done once.

use crate::command::{
    Mark, Running, code, leasehold, lines, printed, server, tool, until, until_marked,
    until_subscribed,
};

const THREE: &str = "nightly@2026-11-26T03:00Z";

/// `leasehold run --once`, with a script for the shell.
fn once(url: &str, fire: &str, options: &[&str], script: &str) -> std::process::Output {
    let mut arguments = vec!["run", "--store", url, "--once", fire];
    arguments.extend(options);
    arguments.extend(["--", "sh", "-c", script]);
    leasehold(&arguments)
}

/// Two hosts start a job, one after the other.
pub(crate) fn each_fire_time_is_done_once(url: &str) {
    let first = once(url, THREE, &[], "echo $LEASEHOLD_KEY");
    assert_eq!(code(&first), 0);
    assert_eq!(printed(&first), "nightly/2026-11-26T03:00:00Z\n");
    // Quietly, also to the second.
    for fire in [
        THREE,
        "nightly@2026-11-26T03Z",
        "nightly@2026-11-26T03:00:00Z",
    ] {
        let second = once(url, fire, &[], "echo again");
        assert_eq!((code(&second), printed(&second).as_str()), (0, ""));
    }
    let coded = once(url, THREE, &["-E", "3"], "echo again");
    assert_eq!((code(&coded), printed(&coded).as_str()), (3, ""));
    let reported = once(url, THREE, &["-v"], "echo again");
    let says = "the job is done already key=nightly/2026-11-26T03:00:00Z";
    assert_eq!(code(&reported), 0);
    let said = printed(&reported);
    assert_eq!(said.matches(says).count(), 1, "{said}");
    let scripted = once(url, THREE, &["--json"], "echo again");
    let event = &lines(&scripted.stderr)[0];
    assert_eq!(event["event"], "already_done", "{event}");

    for another in ["nightly@2026-11-27T03:00Z", "weekly@2026-11-26T03:00Z"] {
        let next = once(url, another, &[], "echo next");
        assert_eq!((code(&next), printed(&next).as_str()), (0, "next\n"));
    }
    // It is done for as long as the rest is kept: an operator can end it.
    let key = "nightly/2026-11-26T03:00:00Z";
    let ended = leasehold(&["revoke", "--store", url, "--now", key]);
    assert_eq!(code(&ended), 0, "{}", printed(&ended));
    let again = once(url, THREE, &["--keep", "1ms"], "echo again");
    assert_eq!((code(&again), printed(&again).as_str()), (0, "again\n"));
}

#[test]
fn each_fire_time_is_done_once_in_redis() {
    let (_server, url) = server();
    each_fire_time_is_done_once(&url);
}

/// Under cron the variable of the shell's profile is not set.
#[test]
fn a_job_without_a_store_is_refused_and_the_variable_names_one() {
    let job = ["run", "--once", THREE, "--", "echo", "ran"];
    let with = |url: Option<&str>| {
        let mut job = tool(&job);
        if let Some(url) = url {
            job.env("LEASEHOLD_STORE", url);
        }
        job.output().unwrap()
    };
    for nothing in [None, Some("")] {
        let refused = with(nothing);
        let said = printed(&refused);
        assert_eq!(code(&refused), 64, "{said}");
        assert!(
            said.contains("--once needs a store that all hosts share"),
            "{said}"
        );
        assert!(!said.contains("ran\n"), "{said}");
    }
    let (_server, url) = server();
    let ran = with(Some(&url));
    assert_eq!((code(&ran), printed(&ran).as_str()), (0, "ran\n"));
}

#[test]
fn a_failed_command_is_run_by_the_next_host_unless_its_failure_counts() {
    let (_server, url) = server();
    for _ in 0..2 {
        assert_eq!(code(&once(&url, THREE, &[], "exit 7")), 7);
    }
    assert_eq!(code(&once(&url, THREE, &[], "kill -TERM $$")), 143);
    let counted = once(&url, THREE, &["--failure-counts"], "exit 7");
    assert_eq!(code(&counted), 7);
    assert_eq!(code(&once(&url, THREE, &[], "exit 7")), 0);
    // A command that was not found has not run.
    let absent = ["run", "--store", &url, "--once", "a@2026-11-26T03Z"];
    let absent = [&absent[..], &["--failure-counts", "--", "/no/such"]].concat();
    for _ in 0..2 {
        assert_eq!(code(&leasehold(&absent)), 127);
    }
}

#[test]
fn a_host_that_waits_stops_when_the_job_is_done() {
    let (server, url) = server();
    let (begun, ends) = (Mark::new(), Mark::new());
    let first = Running::run(&url, &["--once", THREE], &until_marked(&begun, &ends));
    begun.line();
    let busy = once(&url, THREE, &["--wait", "0"], "echo again");
    assert_eq!(code(&busy), 75, "{}", printed(&busy));
    assert!(printed(&busy).contains("held by "), "{}", printed(&busy));
    let second = Running::run(&url, &["--once", THREE, "--wait", "forever"], "echo again");
    until_subscribed(&server);
    // A signal ends a tool that only waits.
    let third = Running::run(&url, &["--once", THREE], "echo again");
    third.signal("-TERM");
    assert_eq!(code(&third.output()), 143);
    std::fs::write(ends.path(), "").unwrap();
    assert_eq!(code(&first.output()), 0);
    let second = second.output();
    assert_eq!((code(&second), printed(&second).as_str()), (0, ""));
}

/// A real wait of a second or two, for the TTL of the host that died.
#[test]
fn another_host_repeats_or_skips_the_job_of_one_that_died() {
    let (_server, url) = server();
    for (how, says) in [
        ("retry", "again\n"),
        (
            "skip",
            "leasehold: the job had begun before and is not done, and is not run again: key=skip/2026-11-26T03:00:00Z; its host died, or it failed\n",
        ),
    ] {
        let fire = format!("{how}@2026-11-26T03:00Z");
        let (begun, ends) = (Mark::new(), Mark::new());
        let options = ["--once", &fire, "--on-death", how, "--ttl", "2s"];
        let dying = Running::run(&url, &options, &until_marked(&begun, &ends));
        begun.line();
        dying.signal("-KILL");
        assert_eq!(code(&dying.output()), 137);
        let next = once(&url, &fire, &["--on-death", how], "echo again");
        assert_eq!((code(&next), printed(&next).as_str()), (0, says));
    }
}

#[test]
fn a_signal_is_the_commands_from_its_begin_on_and_leaves_the_job_undone() {
    let (_server, url) = server();
    let (begun, ends) = (Mark::new(), Mark::new());
    let first = Running::run(&url, &["--once", THREE], &until_marked(&begun, &ends));
    begun.line();
    first.signal("-TERM");
    assert_eq!(code(&first.output()), 143);
    let next = once(&url, THREE, &[], "echo again");
    assert_eq!((code(&next), printed(&next).as_str()), (0, "again\n"));
}

/// A real wait of a second or two: the next renewal finds that the lock is gone.
#[test]
fn a_command_whose_lease_is_lost_is_not_done() {
    let (server, url) = server();
    let (begun, ends) = (Mark::new(), Mark::new());
    let options = ["--once", THREE, "--ttl", "3s"];
    let first = Running::run(&url, &options, &until_marked(&begun, &ends));
    begun.line();
    server.cli(&["DEL", "nightly/2026-11-26T03:00:00Z"]);
    assert_eq!(code(&first.output()), 76);
    until("the next host runs it", || {
        let next = once(&url, THREE, &["--wait", "0"], "echo again");
        printed(&next) == "again\n"
    });
}

#[test]
fn what_does_not_go_together_is_bad_usage() {
    let url = "redis://127.0.0.1:1";
    let refused = |options: &[&str]| {
        let arguments = [&["run", "--store", url], options, &["--", "true"]].concat();
        let refused = leasehold(&arguments);
        assert_eq!(code(&refused), 64, "{options:?}: {}", printed(&refused));
        printed(&refused)
    };
    for with in [
        &["--lock", "a"][..],
        &["--shared"],
        &["--write"],
        &["--slots", "2"],
        &["--at-least", "5m"],
        &["--on-death", "panic"],
    ] {
        refused(&[&["--once", THREE], with].concat());
    }
    for alone in [
        &["--keep", "1d"][..],
        &["--on-death", "skip"],
        &["--failure-counts"],
    ] {
        refused(&[&["--lock", "a"], alone].concat());
    }
    let neither = refused(&[]);
    assert!(neither.contains("--lock"), "{neither}");
    let local = refused(&["--once", "nightly@2026-11-26T03:00"]);
    assert!(local.contains("write the time in UTC"), "{local}");
}

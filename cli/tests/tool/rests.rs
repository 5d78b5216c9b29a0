//! `--at-least`: the key rests after a command, so that a job runs once.

use crate::command::{code, leasehold, lines, printed, server};

/// Two hosts start a job, one after the other.
pub(crate) fn runs_once(url: &str) {
    let once = |at_least: &str| {
        leasehold(&[
            "run",
            "--store",
            url,
            "--lock",
            "nightly",
            "--wait",
            "0",
            "--at-least",
            at_least,
            "--",
            "true",
        ])
    };
    assert_eq!(code(&once("5m")), 0);
    let second = once("5m");
    assert_eq!(code(&second), 75, "{}", printed(&second));
    assert!(
        printed(&second).contains("it rests for another "),
        "{}",
        printed(&second)
    );

    let seen = leasehold(&["inspect", "--store", url, "--json", "nightly"]);
    assert_eq!(code(&seen), 0, "{}", printed(&seen));
    let seen = &lines(&seen.stdout)[0];
    assert_eq!(
        (&seen["is_held"], &seen["is_resting"]),
        (&false.into(), &true.into())
    );
    let table = leasehold(&["list", "--store", url]);
    assert!(printed(&table).contains("(resting)"), "{}", printed(&table));

    let kept = leasehold(&["revoke", "--store", url, "nightly"]);
    assert_eq!(code(&kept), 1, "{}", printed(&kept));
    let says = "nobody holds nightly, and it rests for another ";
    assert!(printed(&kept).contains(says), "{}", printed(&kept));
    assert_eq!(code(&once("5m")), 75);
    let ended = leasehold(&["revoke", "--store", url, "--now", "nightly"]);
    assert_eq!(code(&ended), 0, "{}", printed(&ended));
    assert_eq!(code(&once("1ms")), 0);
}

#[test]
fn a_job_that_two_hosts_start_a_little_apart_runs_once_in_redis() {
    let (server, url) = server();
    runs_once(&url);
    // A client that knows nothing of rests finds the key taken.
    let at_least = [
        "run",
        "--store",
        &url,
        "--lock",
        "k",
        "--at-least",
        "5m",
        "--",
        "true",
    ];
    assert_eq!(code(&leasehold(&at_least)), 0);
    assert_eq!(server.cli(&["SET", "k", "other", "NX", "PX", "1000"]), "");
}

#[test]
fn several_locks_and_shares_leave_no_rest() {
    let (_server, url) = server();
    for options in [&["--lock", "b"][..], &["--shared"], &["--slots", "2"]] {
        let mut arguments = vec!["run", "--store", &url, "--lock", "a", "--at-least", "5m"];
        arguments.extend(options);
        arguments.extend(["--", "true"]);
        assert_eq!(code(&leasehold(&arguments)), 64, "{options:?}");
    }
}

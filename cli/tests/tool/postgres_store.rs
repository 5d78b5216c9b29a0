//! The tool on locks in PostgreSQL: its schema, commands, the counter, and holders that die.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::command::{Mark, Running, code, counter, leasehold, lines, printed};
use crate::once::each_fire_time_is_done_once;
use crate::postgres::PgServer;
use crate::rests::runs_once;

/// With the schema that the tool prints.
pub(crate) fn server() -> (PgServer, String) {
    let server = PgServer::start_with(&["fsync=on"]);
    let sql = leasehold(&["sql", "postgres"]);
    assert_eq!(code(&sql), 0, "{}", printed(&sql));
    let mut psql = Command::new("psql")
        .args(["-X", "-q", "-1", "-v", "ON_ERROR_STOP=1"])
        .arg(server.url())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = psql.stdin.take().unwrap();
    stdin.write_all(&sql.stdout).unwrap();
    drop(stdin);
    assert!(psql.wait().unwrap().success());
    let url = server.url();
    (server, url)
}

#[test]
fn a_command_runs_under_a_lock_in_postgresql_and_is_seen() {
    let (_server, url) = server();
    let begun = Mark::new();
    let script = format!(
        "echo $LEASEHOLD_TOKEN > {}; while :; do sleep 0.01; done",
        begun.path()
    );
    let running = Running::run(&url, &["--lock", "nightly", "--label", "host-a"], &script);
    let token: u64 = begun.line().parse().unwrap();
    for words in [vec!["inspect", "nightly"], vec!["list", "night"]] {
        let mut arguments = vec![words[0], "--store", &url, "--json"];
        arguments.extend(&words[1..]);
        let seen = leasehold(&arguments);
        assert_eq!(code(&seen), 0, "{}", printed(&seen));
        let seen = &lines(&seen.stdout)[0];
        let seen = seen.get(0).unwrap_or(seen);
        assert_eq!(
            (&seen["holder"], &seen["token"]),
            (&"host-a".into(), &token.into())
        );
    }
    let busy = leasehold(&[
        "run", "--store", &url, "--lock", "nightly", "--wait", "0s", "--", "true",
    ]);
    assert_eq!(code(&busy), 75, "{}", printed(&busy));
    running.signal("-TERM");
    assert_eq!(code(&running.output()), 143);
    let free = leasehold(&[
        "run", "--store", &url, "--lock", "nightly", "--wait", "0s", "--", "true",
    ]);
    assert_eq!(code(&free), 0, "{}", printed(&free));
}

#[test]
fn no_update_is_lost_under_a_lock_in_postgresql() {
    let (_server, url) = server();
    let output = counter(&url, "--processes 3 --tasks 2 --rounds 10 --wait 1m --json");
    assert_eq!(code(&output), 0, "{}", printed(&output));
    let report = &lines(&output.stdout)[0];
    assert_eq!(
        (&report["counter"], &report["lost"]),
        (&60.into(), &0.into())
    );
}

/// Real waits: processes are stopped for longer than their ttl.
#[test]
fn no_update_is_lost_behind_a_fence_in_postgresql_while_holders_are_stopped() {
    let (server, url) = server();
    let words = "--processes 3 --rounds 20 --hold 50ms --wait 20s --nemesis pause --json";
    // The first server of the list is not there.
    let url = url.replace('@', "@127.0.0.1:1,");
    let output = counter(&format!("{url}?max_ttl=30s"), words);
    assert_eq!(code(&output), 0, "{}", printed(&output));
    let report = &lines(&output.stdout)[0];
    let count = |what: &str| report[what].as_u64().unwrap();
    assert_eq!(count("lost"), 0, "{report}");
    assert!(count("pauses") > 0 && count("counted") > 0, "{report}");
    assert!(count("counter") >= count("counted"), "{report}");
    assert!(
        count("counter") <= count("counted") + count("unknown"),
        "{report}"
    );
    assert_eq!(server.psql("SELECT count(*) FROM leasehold_counter"), "0");
}

/// Real waits: the ttl of each holder that died. Each section writes its token when it begins and
/// when it ends.
#[test]
fn six_processes_with_holders_that_die_never_overlap_and_tokens_grow() {
    const PROCESSES: usize = 6;
    const ROUNDS: usize = 4;
    let (_server, url) = server();
    let log = Mark::new();
    fs::write(log.path(), "").unwrap();
    let script = |mark: &Mark| {
        format!(
            "echo \"+$LEASEHOLD_TOKEN\" >> {log}; echo in > {mark}; sleep 0.02; echo \"-$LEASEHOLD_TOKEN\" >> {log}",
            log = log.path(),
            mark = mark.path()
        )
    };
    std::thread::scope(|scope| {
        for process in 0..PROCESSES {
            let (url, script) = (&url, &script);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let begun = Mark::new();
                    let options = ["--lock", "k", "--ttl", "1s", "--wait", "1m"];
                    let running = Running::run(url, &options, &script(&begun));
                    if (process + round) % 3 == 0 {
                        begun.line();
                        running.signal("-KILL");
                    }
                    running.output();
                }
            });
        }
    });
    let text = fs::read_to_string(log.path()).unwrap();
    let (mut inside, mut last, mut begun, mut dead) = (None, 0, 0, 0);
    for line in text.lines() {
        let token: u64 = line[1..].parse().unwrap();
        if line.starts_with('+') {
            // Whoever is still inside died there.
            dead += u32::from(inside.is_some());
            assert!(token > last, "tokens did not grow:\n{text}");
            (inside, last, begun) = (Some(token), token, begun + 1);
        } else {
            assert_eq!(inside, Some(token), "two were inside:\n{text}");
            inside = None;
        }
    }
    assert_eq!(begun, PROCESSES * ROUNDS, "{text}");
    assert!(dead > 0, "nobody died inside:\n{text}");
}

#[test]
fn a_job_that_two_hosts_start_a_little_apart_runs_once_in_postgresql() {
    let (_server, url) = server();
    runs_once(&url);
    each_fire_time_is_done_once(&url);
}

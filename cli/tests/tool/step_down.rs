//! A leader that is asked to leave ends its command, and the next candidate leads.

use crate::command::{Mark, Running, code, leasehold, runs, server, until};

/// A leader whose command writes its process id, and runs on.
fn leader(url: &str, name: &str, prefer: &str, begun: &Mark) -> Running {
    let script = format!("echo $$ >> {}; exec sleep 600", begun.path());
    let named = ["leader", "--store", url, "--election", "k", "--label", name];
    let command = ["--prefer", prefer, "--", "sh", "-c", &script];
    Running::start(&[&named[..], &command].concat())
}

fn end(tools: [Running; 2]) {
    for tool in tools {
        tool.signal("-TERM");
        assert_eq!(code(&tool.output()), 143);
    }
}

fn step_down(url: &str) -> i32 {
    spoken(&["step-down"], url)
}

fn spoken(words: &[&str], url: &str) -> i32 {
    code(&leasehold(
        &[words, &["--store", url, "--election", "k"]].concat(),
    ))
}

#[test]
fn it_may_be_asked_of_the_leader_too() {
    let (_server, url) = server();
    for words in [
        &["leader", "step-down"][..],
        &["--json", "leader", "step-down"],
        &["-v", "leader", "step-down"],
    ] {
        assert_eq!(spoken(words, &url), 1, "nobody leads: {words:?}");
    }
}

#[test]
fn the_next_candidate_leads_after_the_command_of_the_leader_has_ended() {
    let (_server, url) = server();
    assert_eq!(step_down(&url), 1, "nobody leads");
    let (ours, theirs) = (Mark::new(), Mark::new());
    let first = leader(&url, "a", "0", &ours);
    let id = ours.line();
    let second = leader(&url, "b", "0", &theirs);
    assert_eq!(step_down(&url), 0);
    let next = theirs.line();
    assert!(!runs(&id), "two commands at once");
    assert!(runs(&next));
    end([first, second]);
}

#[test]
fn a_candidate_that_is_preferred_takes_over() {
    let (_server, url) = server();
    let (ours, theirs) = (Mark::new(), Mark::new());
    let plain = leader(&url, "a", "0", &ours);
    let id = ours.line();
    let better = leader(&url, "b", "3", &theirs);
    let next = theirs.line();
    assert!(!runs(&id), "two commands at once");
    until("the preferred one stays", || runs(&next));
    end([plain, better]);
}

/// To a daemon SIGHUP says to read its configuration again.
#[test]
fn a_leader_that_got_sighup_before_campaigns_again() {
    let (_server, url) = server();
    let (begun, reloaded) = (Mark::new(), Mark::new());
    let script = format!(
        "trap 'echo reloaded > {}' HUP; echo $$ >> {}; while :; do sleep 0.1; done",
        reloaded.path(),
        begun.path()
    );
    let named = ["leader", "--store", &url, "--election", "k", "--label", "a"];
    let command = ["--ttl", "2s", "--", "sh", "-c", &script];
    let tool = Running::start(&[&named[..], &command].concat());
    begun.line();
    tool.signal("-HUP");
    reloaded.line();
    assert_eq!(step_down(&url), 0);
    until("the next term", || begun.line().lines().count() == 2);
    tool.signal("-TERM");
    assert_eq!(code(&tool.output()), 143);
}

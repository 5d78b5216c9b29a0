//! One script with `flock` and with `leasehold run`: what the table in the docs says is the same,
//! is the same.

use std::path::Path;
use std::process::Command;

use crate::command::{Mark, TOOL, printed};

/// Each line: a behaviour and its answer, as an exit code or as text.
fn behaviours(which: &str) -> Vec<String> {
    let directory = format!("{}-{which}", Mark::new().path());
    std::fs::create_dir(&directory).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tool/flock.sh");
    let output = Command::new("sh")
        .arg(script)
        .args([&directory, TOOL, which])
        .env_remove("LEASEHOLD_STORE")
        .output()
        .unwrap();
    let _ = std::fs::remove_dir_all(&directory);
    assert!(output.status.success(), "{which}: {}", printed(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_script_for_flock_behaves_the_same_but_for_children_that_a_command_leaves_behind() {
    let (theirs, ours) = (behaviours("flock"), behaviours("leasehold"));
    let same = [
        "exit code 0: 0",
        "exit code 7: 7",
        "exit code 7 with -E: 7",
        "stdout: out",
        "stdin: in",
        "busy, -n -E 9: 9",
        "busy, -w 1 -E 9: 9",
        "after kill -9 of the command: 0",
        "shared beside shared: 0",
        "exclusive beside shared: 9",
        "tool killed, a child lives: 9",
        "the child has ended too: 0",
    ];
    let with_last = |last: &str| {
        let mut all = same.map(str::to_owned).to_vec();
        all.push(format!("command ended, a child lives: {last}"));
        all
    };
    assert_eq!(theirs, with_last("9"), "flock(1)");
    assert_eq!(ours, with_last("0"), "leasehold run");
}

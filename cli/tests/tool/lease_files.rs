//! A lease file that something else deletes or replaces.

use std::process::{Command, Stdio};

use crate::command::{Mark, Running, TOOL, code, printed, with_default_signals};
use crate::files::{Directory, is_root};

/// The place of a user's lease file is not one that is removed when the user logs out.
#[test]
fn a_lease_file_is_not_in_a_folder_that_ends_with_a_login() {
    if !is_root() {
        println!("did not run: only root can mount");
        return;
    }
    let directory = Directory::new();
    let script = format!(
        "set -e; mount -t tmpfs none /run; mkdir -p /run/user/7
        XDG_RUNTIME_DIR=/run/user/7 {TOOL} run --store {} --lock k -- sh -c 'echo file $LEASEHOLD_LEASE; {TOOL} check'",
        directory.url()
    );
    let mut unshare = Command::new("unshare");
    let output = unshare.args(["-m", "sh", "-c", &script]).output().unwrap();
    let said = printed(&output);
    assert_eq!(code(&output), 0, "{said}");
    assert!(
        said.contains("file /") && !said.contains("/run/user"),
        "{said}"
    );
}

#[test]
fn a_lease_file_that_is_deleted_under_a_live_lease_is_made_again() {
    let directory = Directory::new();
    let script = format!(
        "set -e; rm $LEASEHOLD_LEASE; {TOOL} check; {TOOL} check --remaining 1s; test -e $LEASEHOLD_LEASE"
    );
    let output = crate::command::run_script(&directory.url(), &script);
    assert_eq!(code(&output), 0, "{}", printed(&output));
}

/// Such a check does not see the process of the tool.
#[test]
fn a_check_in_another_process_namespace_waits_for_a_deleted_file_too() {
    if !is_root() {
        println!("did not run: only root can make a namespace");
        return;
    }
    let directory = Directory::new();
    let script = format!("rm $LEASEHOLD_LEASE; {TOOL} check");
    let script = format!("unshare --pid --fork --mount-proc sh -c '{script}'");
    let output = crate::command::run_script(&directory.url(), &script);
    assert_eq!(code(&output), 0, "{}", printed(&output));
}

/// The names of lease files can be listed, and when the tool has deleted its own, everybody may
/// make one of that name.
#[test]
fn a_check_believes_no_file_of_another_user() {
    if !is_root() {
        println!("did not run: only root can act for another user");
        return;
    }
    let directory = Directory::new();
    let script = format!(
        "cp $LEASEHOLD_LEASE $LEASEHOLD_LEASE.x; chown 65534 $LEASEHOLD_LEASE.x
        LEASEHOLD_LEASE=$LEASEHOLD_LEASE.x {TOOL} check; code=$?; rm $LEASEHOLD_LEASE.x; exit $code"
    );
    let output = crate::command::run_script(&directory.url(), &script);
    assert_eq!(code(&output), 65, "{}", printed(&output));
    // Whoever is not root believes root.
    let script = format!(
        "cp {TOOL} {0}; setpriv --reuid=65534 --regid=65534 --clear-groups {0} check",
        directory.path("leasehold")
    );
    let output = crate::command::run_script(&directory.url(), &script);
    assert_eq!(code(&output), 0, "{}", printed(&output));
}

/// While the tool is stopped, so that it cannot make it again.
#[test]
fn a_tool_whose_lease_file_was_missed_by_a_check_ends_its_command() {
    let directory = Directory::new();
    let begun = Mark::new();
    let script = format!("echo $LEASEHOLD_LEASE > {}; sleep 1000", begun.path());
    let options = ["--lock", "k", "--ttl", "30s"];
    let tool = Running::run(&directory.url(), &options, &script);
    let file = begun.line();
    let check = || {
        let mut command = Command::new(TOOL);
        code(
            &(command.arg("check").env("LEASEHOLD_LEASE", &file))
                .output()
                .unwrap(),
        )
    };
    tool.signal("-STOP");
    std::fs::remove_file(&file).unwrap();
    assert_eq!([check(), check()], [76, 76]);
    tool.signal("-CONT");
    let output = tool.output();
    assert_eq!(code(&output), 76, "{}", printed(&output));
    assert_eq!(check(), 76);
}

#[test]
fn a_tool_whose_lease_file_cannot_be_made_again_ends_its_command() {
    let [directory, place] = [Directory::new(), Directory::new()];
    let url = directory.url();
    let begun = Mark::new();
    let script = format!("echo $$ > {}; exec sleep 1000", begun.path());
    let mut command = with_default_signals(TOOL);
    command.args(["run", "--store", &url, "--lock", "k", "--", "sh", "-c"]);
    command.arg(&script).env("XDG_RUNTIME_DIR", &place.0);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let tool = Running(command.spawn().unwrap());
    let id = begun.line();
    std::fs::remove_dir_all(&place.0).unwrap();
    let output = tool.output();
    assert_eq!(code(&output), 71, "{}", printed(&output));
    assert!(!crate::command::runs(&id));
}

#[test]
fn a_check_waits_for_no_pipe() {
    let pipe = Mark::new();
    let made = Command::new("mkfifo").arg(pipe.path()).status().unwrap();
    assert!(made.success());
    let mut command = Command::new(TOOL);
    command.arg("check").env("LEASEHOLD_LEASE", pipe.path());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let check = Running(command.spawn().unwrap());
    let output = check.output();
    assert_eq!(code(&output), 65, "{}", printed(&output));
}

//! Two users of a group that share a directory of locks.

use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::command::{Mark, TOOL, until, until_it_ends};
use crate::files::{Directory, is_root};

/// A group of the system that is not root's: its name and its number.
fn group() -> (String, u32) {
    let groups = std::fs::read_to_string("/etc/group").unwrap();
    let mut groups = groups.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        Some((name, fields.nth(1)?.parse().ok()?))
    });
    groups.find(|(_, number)| *number != 0).unwrap()
}

/// The TTL is longer than the wait of the second user, so only the death of the first one's processes frees the lock in time.
#[test]
fn a_user_of_the_group_gets_the_lock_of_another_users_killed_tool() {
    if !is_root() {
        println!("did not run: only root can become another user");
        return;
    }
    let (name, number) = group();
    let directory = Directory::new();
    std::fs::set_permissions(&directory.0, PermissionsExt::from_mode(0o1777)).unwrap();
    let copy = directory.path("leasehold");
    std::fs::copy(TOOL, &copy).unwrap();
    let url = format!("{}?group={name}", directory.url());
    // Whatever a user's umask is, the group may use what this user makes.
    let tool = |user: u32, words: &str| -> Child {
        let mut command = Command::new("setpriv");
        command.arg(format!("--reuid={user}"));
        command.arg(format!("--regid={user}"));
        command.arg(format!("--groups={number}"));
        let script = format!("umask 077; {words}");
        command
            .args(["sh", "-c", &script])
            .env("LEASEHOLD_STORE", &url)
            .env("TOOL", &copy);
        command.spawn().unwrap()
    };
    let up = Mark::new();
    let mut first = tool(
        65533,
        &format!(
            "exec $TOOL run --lock k --ttl 30s -- sh -c 'echo > {}; exec sleep 1000'",
            up.path()
        ),
    );
    until("the first user holds", || up.is_there());
    let mut second = tool(65534, "exec $TOOL run --lock k --wait 25s -- true");
    until("the second user waits", || {
        let mut inspect = tool(65534, "$TOOL inspect --json k | grep -q '\"queue\":1'");
        inspect.wait().unwrap().success()
    });
    kill(Pid::from_raw(first.id() as i32), Signal::SIGKILL).unwrap();
    first.wait().unwrap();
    assert!(until_it_ends(&mut second).success());
}

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

/// The TTL is longer than the wait of the second user, so only the death of the first one's
/// processes frees the lock in time.
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

/// A user database of the test's own, as a directory server is one: it knows one user, with this
/// home, and one group.
const DATABASE: &str = r#"
#include <nss.h>
#include <pwd.h>
#include <grp.h>
#include <errno.h>
enum nss_status _nss_leasehold_getpwuid_r(uid_t uid, struct passwd *user, char *text, size_t length, int *error) {
#ifdef DOWN
    *error = EIO;
    return NSS_STATUS_UNAVAIL;
#endif
    if (uid != 65533) return NSS_STATUS_NOTFOUND;
    *user = (struct passwd){"someone", "x", uid, uid, "", HOME, "/bin/sh"};
    return NSS_STATUS_SUCCESS;
}
enum nss_status _nss_leasehold_getgrnam_r(const char *name, struct group *group, char *text, size_t length, int *error) {
    static char *nobody[] = {0};
    if (name[0] != 'o' || name[1] != 'f') return NSS_STATUS_NOTFOUND;
    *group = (struct group){"office", "x", 65530, nobody};
    return NSS_STATUS_SUCCESS;
}
"#;

/// In a mount namespace, so that the machine's own files are left alone.
#[test]
fn a_user_has_one_directory_whatever_its_environment_is_and_however_the_system_knows_it() {
    if !is_root() {
        println!("did not run: only root can mount and become another user");
        return;
    }
    let directory = Directory::new();
    std::fs::write(directory.path("nss.c"), DATABASE).unwrap();
    let script = format!(
        r#"set -e
        cd {place}; chmod 755 .; cp {TOOL} leasehold; mkdir home other up down
        chown 65533 home other
        cc -w -shared -fPIC -DHOME='"{place}/home"' -o up/libnss_leasehold.so.2 nss.c
        cc -w -shared -fPIC -DDOWN -DHOME='""' -o down/libnss_leasehold.so.2 nss.c
        printf 'passwd: files leasehold\ngroup: files leasehold\n' > nsswitch.conf
        mount --bind nsswitch.conf /etc/nsswitch.conf
        mount -t tmpfs none /var/lib
        printf 'root:x:0:0::/root:/bin/sh\nservice:x:65531:65531::{place}:/bin/sh\n' > passwd
        mount --bind passwd /etc/passwd
        unset LEASEHOLD_STORE; LD_LIBRARY_PATH={place}/up; export LD_LIBRARY_PATH
        as() {{ user=$1; shift; setpriv --reuid=$user --regid=$user --clear-groups env "$@"; }}

        as 65533 HOME={place}/other ./leasehold run --lock k -- \
            env HOME={place}/home ./leasehold list --store file:
        test -d home/.local/state/leasehold; test ! -e other/.local
        as 65533 HOME={place}/other LD_LIBRARY_PATH={place}/down ./leasehold run --lock k --wait 0 -- true || echo down $?
        test ! -e other/.local

        ./leasehold run --store 'file://{place}/shared?group=office' --lock k -- true
        echo group $(stat -c %g shared)

        for user in 65531 65532; do
            said=$(as $user HOME={place}/other ./leasehold run --lock k -- true 2>&1) || echo refused $user $?
            echo "$said"
            eval "$(echo "$said" | sed -n 's/.*as root, \(install .*\); then use .*/\1/p')"
            url=$(echo "$said" | sed -n 's/.*then use \(file:[^;]*\).*/\1/p')
            as $user ./leasehold run --store "$url" --lock k -- echo holds $user
        done"#,
        place = directory.0.display(),
    );
    let mut unshare = Command::new("unshare");
    let output = unshare.args(["-m", "sh", "-c", &script]).output().unwrap();
    let said = crate::command::printed(&output);
    assert!(output.status.success(), "{said}");
    for line in [
        "down 69",
        "group 65530",
        "refused 65531 77",
        "holds 65531",
        "refused 65532 64",
        "holds 65532",
    ] {
        assert!(said.lines().any(|found| found == line), "{line}: {said}");
    }
    assert!(said.contains("\nk "), "the lock is not listed: {said}");
}

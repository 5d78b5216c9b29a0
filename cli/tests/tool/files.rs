//! Locks in files: the tool on a machine without a server.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::command::{
    code, counter, leasehold, lines, printed, run, run_script, tool, with_default_signals,
};
use crate::once::each_fire_time_is_done_once;
use crate::redis::pause;
use crate::rests::runs_once;

/// For as long as a busy machine may need.
const LOOKS: u32 = 12_000;

/// A directory for the locks and for the files of one test.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("leasehold-files-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn url(&self) -> String {
        format!("file://{}/locks", self.0.display())
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Runs a shell script under the lock `k`.
    fn run(&self, script: &str) -> Child {
        let url = self.url();
        let mut command = tool(&[
            "run", "--store", &url, "--lock", "k", "--", "sh", "-c", script,
        ]);
        command.stderr(Stdio::null()).spawn().unwrap()
    }

    /// Whether the lock `k` is free.
    fn is_free(&self) -> bool {
        let inspected = leasehold(&["inspect", "--store", &self.url(), "k"]);
        match code(&inspected) {
            0 => false,
            1 => true,
            _ => panic!("{}", printed(&inspected)),
        }
    }

    fn until(&self, what: &str, mut happened: impl FnMut() -> bool) {
        for _ in 0..LOOKS {
            if happened() {
                return;
            }
            // A real pause: other processes work.
            pause();
        }
        panic!("never: {what}");
    }

    /// Waits until a file has text, which is a number.
    fn number(&self, name: &str) -> i32 {
        let path = self.path(name);
        let read = || std::fs::read_to_string(&path).ok()?.trim().parse().ok();
        self.until(name, || read().is_some());
        read().unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

fn kill_9(process: i32) {
    kill(Pid::from_raw(process), Signal::SIGKILL).unwrap();
}

#[test]
fn a_machine_without_a_server_needs_no_store() {
    let home = Directory::new();
    // As root the default is a directory of the machine, which a test leaves alone.
    let mut command = tool(&[
        "run",
        "--lock",
        "k",
        "--",
        "sh",
        "-c",
        "echo $LEASEHOLD_KEY",
    ]);
    if is_root() {
        command.env("LEASEHOLD_STORE", home.url());
    }
    let output = command.output().unwrap();
    assert_eq!(code(&output), 0, "{}", printed(&output));
    assert_eq!(printed(&output), "k\n");
}

#[test]
fn a_busy_lock_is_reported_with_its_directory() {
    let directory = Directory::new();
    let url = directory.url();
    let script = format!("echo $$ > {}; sleep 1000", directory.path("up"));
    let mut first = directory.run(&script);
    directory.number("up");
    let second = run(&url, "--lock k --wait 0 -- true");
    assert_eq!(code(&second), 75);
    assert!(
        printed(&second).contains(&directory.path("locks")),
        "{}",
        printed(&second)
    );
    let listed = leasehold(&["list", "--store", &url]);
    assert!(printed(&listed).contains("\nk "), "{}", printed(&listed));
    kill(Pid::from_raw(first.id() as i32), Signal::SIGTERM).unwrap();
    first.wait().unwrap();
    assert!(directory.is_free());
}

#[test]
fn a_command_inside_has_no_store_by_default() {
    let directory = Directory::new();
    let nested = format!("{} run --lock other -- true", crate::command::TOOL);
    let url = directory.url();
    let output = run_script(&url, &nested);
    assert_eq!(code(&output), 64, "{}", printed(&output));
}

/// Those that other tests of this file leave out.
#[test]
fn the_other_commands_work_on_files_too() {
    let directory = Directory::new();
    let url = directory.url();
    let words = ["hold", "--store", &url, "--lock", "k"];
    let mut hold = tool(&words);
    hold.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = hold.spawn().unwrap();
    // Its end would end the hold.
    let _stdin = holder.stdin.take();
    let mut line = String::new();
    let mut printed_by_it = BufReader::new(holder.stdout.take().unwrap());
    printed_by_it.read_line(&mut line).unwrap();
    assert!(line.trim().parse::<u64>().is_ok(), "its token: {line}");
    let revoked = leasehold(&["revoke", "--now", "--store", &url, "k"]);
    assert_eq!(code(&revoked), 0, "{}", printed(&revoked));
    assert_eq!(holder.wait().unwrap().code(), Some(76), "it lost the lock");
    assert!(directory.is_free());
    let output = counter(&url, "--processes 2 --rounds 10 --wait 1m --json");
    assert_eq!(code(&output), 0, "{}", printed(&output));
    let report = &lines(&output.stdout)[0];
    assert_eq!(
        (&report["counter"], &report["lost"]),
        (&20.into(), &0.into())
    );
}

#[test]
fn a_leader_names_its_store() {
    let output = leasehold(&["leader", "--election", "e", "--label", "a", "--", "true"]);
    assert_eq!(code(&output), 64, "{}", printed(&output));
    assert!(printed(&output).contains("--store"), "{}", printed(&output));
}

/// The command's own process dies with the tool, and the lock with the last of the processes that
/// it started.
#[test]
fn a_killed_tool_leaves_the_lock_to_the_last_of_its_children() {
    let directory = Directory::new();
    let script = format!("sleep 1000 & echo $! > {}; wait", directory.path("child"));
    let mut tool = directory.run(&script);
    let child = directory.number("child");
    kill_9(tool.id() as i32);
    tool.wait().unwrap();
    assert!(!directory.is_free(), "the child lives");
    kill_9(child);
    // Long before the TTL of 10 s, but no test depends on how long.
    directory.until("the lock is free", || directory.is_free());
}

#[test]
fn whoever_waits_for_a_killed_process_gets_the_lock() {
    let directory = Directory::new();
    let mut first = directory.run(&format!(
        "echo $$ > {}; exec sleep 1000",
        directory.path("up")
    ));
    directory.number("up");
    let mut second = directory.run(&format!("echo 1 > {}", directory.path("second")));
    directory.until("a waiter", || {
        let inspected = leasehold(&["inspect", "--json", "--store", &directory.url(), "k"]);
        printed(&inspected).contains("\"queue\":1")
    });
    kill_9(first.id() as i32);
    first.wait().unwrap();
    directory.number("second");
    assert!(second.wait().unwrap().success());
}

/// Counts with eight processes while they are killed and stopped at random moments: no update is
/// lost, and none is doubled.
#[test]
fn no_update_is_lost_whoever_is_killed() {
    let directory = Directory::new();
    let counter = directory.path("counter");
    std::fs::write(&counter, "0").unwrap();
    let log = directory.path("log");
    // The update is one rename, which nobody sees half done; the log has a line for each that was
    // made.
    let script = format!(
        "n=$(cat {counter}); echo $((n + 1)) > {counter}.$$; mv {counter}.$$ {counter} && echo $n >> {log}"
    );
    let round = || directory.run(&script);
    let mut workers: Vec<Child> = (0..8).map(|_| round()).collect();
    for number in 0..120_usize {
        let index = number % workers.len();
        if number % 3 == 0 {
            // The tool, and with it the shell.
            let _ = workers[index].kill();
        }
        workers[index].wait().unwrap();
        workers[index] = round();
    }
    for worker in &mut workers {
        worker.wait().unwrap();
    }
    let text = std::fs::read_to_string(&log).unwrap();
    let mut seen: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
    let made = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), made, "two processes made the same update");
    assert!(directory.is_free());
}

/// `strace` kills the tool at the n-th system call of a kind, for every n. Whatever happened
/// before, the next caller gets the lock.
#[test]
fn a_tool_that_is_killed_at_any_system_call_leaves_a_lock_that_can_be_taken() {
    let directory = Directory::new();
    let url = directory.url();
    let run = ["run", "--store", &url, "--lock", "k", "--", "true"];
    let calls = ["flock", "pwrite64", "renameat2", "unlinkat", "openat"];
    for call in calls {
        let mut killed = 0;
        for when in 1.. {
            let mut command = with_default_signals("strace");
            command.args([
                "-f",
                "-qq",
                "-o",
                "/dev/null",
                "-e",
                &format!("trace={call}"),
            ]);
            command.args(["-e", &format!("inject={call}:signal=KILL:when={when}")]);
            let output = command
                .arg(crate::command::TOOL)
                .args(run)
                .output()
                .unwrap();
            if output.status.success() {
                break;
            }
            killed = when;
            let next = leasehold(&run);
            assert_eq!(code(&next), 0, "{call} {when}: {}", printed(&next));
        }
        assert!(killed > 0, "{call} was never made");
    }
    assert!(directory.is_free());
}

#[test]
fn a_full_disk_refuses_and_leaves_the_lock_as_it_is() {
    if !is_root() {
        println!("did not run: only root can mount a small file system");
        return;
    }
    let directory = Directory::new();
    let script = format!(
        "set -e
        mount -t tmpfs -o size=256k none {place}
        {tool} run --store file://{place}/locks --lock k -- \\
            sh -c 'cat /dev/zero > {place}/full 2> /dev/null || true; \\
                {tool} run --store file://{place}/locks --lock other -- true; echo other $?'
        rm {place}/full
        {tool} run --store file://{place}/locks --lock k -- echo again",
        place = directory.path("full"),
        tool = crate::command::TOOL,
    );
    std::fs::create_dir(directory.0.join("full")).unwrap();
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .output()
        .unwrap();
    assert!(
        printed(&output).contains("other 69"),
        "{}",
        printed(&output)
    );
    assert!(printed(&output).contains("again"), "{}", printed(&output));
}

/// In a mount namespace, so that the machine's own directory is left alone, with a user database of
/// the test's own.
#[test]
fn without_a_store_root_and_others_have_a_directory_each() {
    if !is_root() {
        println!("did not run: only root can mount and become another user");
        return;
    }
    let directory = Directory::new();
    let script = format!(
        "set -e
        cd {place}; mkdir home; chmod 755 .; chown 65534 home; cp {tool} leasehold
        echo other:x:65534:65534::{place}/home:/bin/sh > passwd
        mount -t tmpfs none /run/lock; mount --bind passwd /etc/passwd
        unset LEASEHOLD_STORE HOME
        ./leasehold run --lock k -- true
        stat -c '%a %u %n' /run/lock/leasehold
        setpriv --reuid=65534 --regid=65534 --clear-groups ./leasehold run --lock k -- \
            sh -c './leasehold list --store file:; echo one user, one directory'
        stat -c '%a %u %n' home/.local/state/leasehold",
        place = directory.0.display(),
        tool = crate::command::TOOL,
    );
    let mut unshare = Command::new("unshare");
    let output = unshare.args(["-m", "sh", "-c", &script]).output().unwrap();
    let text = printed(&output);
    assert_eq!(code(&output), 0, "{text}");
    for line in [
        "700 0 /run/lock/leasehold",
        "one user, one directory",
        "700 65534 home/.local/state/leasehold",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert!(text.contains("\nk "), "the lock is not listed: {text}");
}

#[test]
fn another_user_is_refused_unless_both_name_a_group() {
    if !is_root() {
        println!("did not run: only root can become another user");
        return;
    }
    let directory = Directory::new();
    let tool = directory.path("leasehold");
    std::fs::copy(crate::command::TOOL, &tool).unwrap();
    std::fs::set_permissions(
        &directory.0,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let as_other = |url: &str, group: &str| {
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid=65534",
            "--regid=65534",
            &format!("--groups={group}"),
            &tool,
        ]);
        command.args([
            "run", "--store", url, "--lock", "k", "--wait", "0", "--", "true",
        ]);
        command.env_remove("LEASEHOLD_STORE").output().unwrap()
    };
    let own = directory.url();
    assert_eq!(
        code(&leasehold(&[
            "run", "--store", &own, "--lock", "k", "--", "true"
        ])),
        0
    );
    let refused = as_other(&own, "65534");
    assert_eq!(code(&refused), 77, "{}", printed(&refused));
    let shared = format!("file://{}?group=4", directory.path("shared"));
    let script = format!("echo $$ > {}; sleep 1000", directory.path("up"));
    let mut holder = crate::command::tool(&[
        "run", "--store", &shared, "--lock", "k", "--", "sh", "-c", &script,
    ])
    .spawn()
    .unwrap();
    directory.number("up");
    let busy = as_other(&shared, "4");
    assert_eq!(code(&busy), 75, "{}", printed(&busy));
    kill(Pid::from_raw(holder.id() as i32), Signal::SIGTERM).unwrap();
    holder.wait().unwrap();
    let served = as_other(&shared, "4");
    assert_eq!(code(&served), 0, "{}", printed(&served));
    let stranger = as_other(&shared, "65534");
    assert_eq!(code(&stranger), 77, "{}", printed(&stranger));
}

/// The tool is stopped, so it cannot end its command when the lease is over. A resource that
/// compares tokens refuses the command.
#[test]
fn a_fence_refuses_the_command_of_a_tool_that_was_stopped() {
    let directory = Directory::new();
    let path = |name: &str| directory.path(name);
    std::fs::write(path("counter"), "0").unwrap();
    std::fs::write(path("largest"), "0").unwrap();
    // The fence: the resource raises its largest token before it is read, and compares it before it
    // is written.
    let script = |before_the_write: &str, done: &str| {
        format!(
            "set -e; cd {place}
            flock gate sh -c 'test $LEASEHOLD_TOKEN -ge $(cat largest) && echo $LEASEHOLD_TOKEN > largest'
            n=$(cat counter)
            {before_the_write}
            flock gate sh -c \"test $LEASEHOLD_TOKEN -eq \\$(cat largest) && echo $((n + 1)) > counter\" && echo 1 > {done} || echo 0 > {done}",
            place = directory.0.display(),
        )
    };
    let run = |script: &str| {
        let url = directory.url();
        let words = [
            "run", "--store", &url, "--lock", "k", "--ttl", "1s", "--", "sh", "-c", script,
        ];
        tool(&words).stderr(Stdio::null()).spawn().unwrap()
    };
    let wait = format!(
        "echo 1 > {}; while ! test -e late; do sleep 0.01; done",
        path("up")
    );
    let mut stopped = run(&script(&wait, "first"));
    directory.number("up");
    let stopped_id = Pid::from_raw(stopped.id() as i32);
    kill(stopped_id, Signal::SIGSTOP).unwrap();
    // Its TTL ends the lock: the process lives.
    let mut next = run(&script("true", "second"));
    assert_eq!(directory.number("second"), 1);
    next.wait().unwrap();
    std::fs::write(path("late"), "").unwrap();
    assert_eq!(directory.number("first"), 0, "a late write was accepted");
    kill(stopped_id, Signal::SIGCONT).unwrap();
    stopped.wait().unwrap();
    assert_eq!(
        std::fs::read_to_string(path("counter")).unwrap().trim(),
        "1"
    );
}

#[test]
fn a_job_that_two_timers_start_a_little_apart_runs_once() {
    let directory = Directory::new();
    runs_once(&directory.url());
    each_fire_time_is_done_once(&directory.url());
}

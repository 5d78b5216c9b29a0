//! The readers of `examples/lease_file`, in five languages: beside the tool, and on records that
//! they have to refuse.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;

use rustix::time::{ClockId, clock_gettime};

use crate::check::sealed;
use crate::command::{
    Mark, Running, code, leasehold, printed, run_script, runs, send, until, with_default_signals,
};
use crate::files::{Directory, is_root};
use crate::redis::pause;

const LANGUAGES: [&str; 5] = ["c", "go", "java", "js", "py"];
const HOUR: u64 = 3_600_000_000_000;
/// As of a lease file that holds something else.
const REFUSED: i32 = 65;

/// Where the readers are compiled, once for all tests.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lease_readers");
        let script = format!(
            "set -e; rm -rf {0}; mkdir -p {0}/go/lease; cd {0}
            cc -O2 -Wall -Wextra -Werror -I {1} {2}/drive.c -o c
            javac -Xlint:all -Werror -d java {1}/Lease.java {2}/Drive.java
            cp {1}/lease.go go/lease/; cp {2}/drive.go go/main.go
            printf 'module drive\\n\\ngo 1.19\\n' > go/go.mod
            cd go; GOCACHE={0}/cache GOFLAGS= GOTOOLCHAIN=local go build -o ../go-reader .",
            folder.display(),
            examples(),
            drivers()
        );
        let made = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert!(made.status.success(), "{}", printed(&made));
        folder
    })
}

fn examples() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/lease_file").to_owned()
}

fn drivers() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tool/lease_readers").to_owned()
}

/// A line for the shell that becomes the reader: it reads the lease as often as a line of its input
/// says, and prints what is left in nanoseconds and how long a read took.
fn line_of(language: &str) -> String {
    let [built, examples, drivers] = [built().display().to_string(), examples(), drivers()];
    match language {
        "c" => format!("exec {built}/c"),
        "go" => format!("exec {built}/go-reader"),
        "java" => format!("exec java -cp {built}/java Drive"),
        "js" => format!("exec node {drivers}/drive.js {examples}/lease.js"),
        "py" => format!(
            "PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={examples} exec python3 {drivers}/drive.py"
        ),
        _ => panic!("{language}"),
    }
}

/// A reader of a lease file that runs beside the test.
struct Reader {
    language: &'static str,
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Reader {
    fn start(language: &'static str, file: &str) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &line_of(language)]);
        command.env("LEASEHOLD_LEASE", file);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // One that is ended by a signal prints its stack.
        command.stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        Self {
            language,
            to: child.stdin.take().unwrap(),
            from: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// One of each language, each of which has read the record once.
    fn all(file: &str) -> Vec<Self> {
        let readers = LANGUAGES.map(|language| Self::start(language, file));
        let mut readers = Vec::from(readers);
        for reader in &mut readers {
            assert!(reader.left() > 0, "{}", reader.language);
        }
        readers
    }

    /// What it prints for one read; `None` if it has ended.
    fn answer(&mut self) -> Option<u64> {
        // It may have ended.
        let _ = self.to.write_all(b"1\n");
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        let (left, _) = line.split_once(' ')?;
        Some(left.parse().unwrap())
    }

    /// What is left of the lease, in nanoseconds.
    fn left(&mut self) -> u64 {
        let left = self.answer();
        left.unwrap_or_else(|| panic!("the reader in {} has ended", self.language))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Fails if it has ended, which is what we want.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn boot_now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

/// The text of a record of this boot, without its sum.
fn text(state: &str, deadline: u64) -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let timens = std::fs::read_link("/proc/self/ns/time").unwrap();
    let timens = timens
        .to_str()
        .unwrap()
        .trim_matches(|c: char| !c.is_ascii_digit());
    format!(
        "leasehold-lease 1 state={state} deadline={deadline:020} token=17,18 \
         boot={} timens={timens}",
        boot.trim()
    )
}

fn field<'a>(record: &'a str, name: &str) -> &'a str {
    let rest = record.split_once(&format!("{name}=")).unwrap().1;
    rest.split(' ').next().unwrap()
}

/// What an open file says now, under whichever name.
fn read_again(mut file: &File) -> String {
    let mut record = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut record).unwrap();
    record
}

/// A command that waits, under a lease; its lease file comes with it.
fn tool_that_waits(url: &str, ttl: &str) -> (Running, String) {
    let begun = Mark::new();
    let script = format!("echo $LEASEHOLD_LEASE > {}; exec sleep 1000", begun.path());
    let tool = Running::run(url, &["--lock", "k", "--ttl", ttl], &script);
    let file = begun.line();
    (tool, file)
}

#[test]
fn a_command_in_any_language_reads_its_lease() {
    let directory = Directory::new();
    for language in LANGUAGES {
        let output = run_script(
            &directory.url(),
            &format!("echo 1 | ( {} )", line_of(language)),
        );
        assert_eq!(code(&output), 0, "{language}: {}", printed(&output));
        let line = printed(&output);
        let left: u64 = line.split(' ').next().unwrap().parse().unwrap();
        let ttl = HOUR / 360;
        assert!(0 < left && left < ttl, "{language}: {line}");
    }
}

#[test]
fn a_reader_never_reports_more_than_is_left() {
    let file = Mark::new();
    let deadline = boot_now() + HOUR;
    std::fs::write(file.path(), sealed(&text("live", deadline))).unwrap();
    for mut reader in Reader::all(file.path()) {
        let before = boot_now();
        let left = reader.left();
        assert!(left <= deadline - before, "{}: {left}", reader.language);
        assert!(left > HOUR / 2, "{}: {left}", reader.language);
    }
}

#[test]
fn a_reader_sees_a_renewal_and_believes_no_record_after_a_lapse() {
    let file = Mark::new();
    let write = |state, deadline| {
        let line = sealed(&text(state, deadline));
        let mut options = File::options();
        let options = options.write(true).create(true).truncate(false);
        let opened = options.open(file.path()).unwrap();
        opened.write_all_at(line.as_bytes(), 0).unwrap();
        // A reader may use a record for a millisecond.
        pause();
    };
    write("live", boot_now() + HOUR);
    let mut readers = Reader::all(file.path());
    write("live", boot_now() + 3 * HOUR);
    for reader in &mut readers {
        assert!(reader.left() > 2 * HOUR, "{}", reader.language);
    }
    write("over", boot_now() + 3 * HOUR);
    for reader in &mut readers {
        assert_eq!(reader.left(), 0, "{}", reader.language);
    }
    write("live", boot_now() + 3 * HOUR);
    for reader in &mut readers {
        assert_eq!(reader.left(), 0, "{}", reader.language);
    }
}

/// A real wait of a second or two: the holder notices with its next renewal.
#[test]
fn a_reader_sees_that_the_lock_was_revoked() {
    let directory = Directory::new();
    let (tool, file) = tool_that_waits(&directory.url(), "3s");
    let mut readers = Reader::all(&file);
    let mapped = File::open(&file).unwrap();
    let revoked = leasehold(&["revoke", "--now", "--store", &directory.url(), "k"]);
    assert_eq!(code(&revoked), 0, "{}", printed(&revoked));
    until("the mark", || {
        field(&read_again(&mapped), "state") == "over"
    });
    pause();
    for reader in &mut readers {
        assert_eq!(reader.left(), 0, "{}", reader.language);
    }
    assert_eq!(code(&tool.output()), 76);
}

/// A real wait of a second or two: a lease runs out.
#[test]
fn a_reader_sees_the_deadline_of_a_tool_that_was_killed() {
    let directory = Directory::new();
    let (mut tool, file) = tool_that_waits(&directory.url(), "2s");
    let mut readers = Reader::all(&file);
    tool.0.kill().unwrap();
    tool.0.wait().unwrap();
    let record = std::fs::read_to_string(&file).unwrap();
    assert_eq!(field(&record, "state"), "live");
    let deadline: u64 = field(&record, "deadline").parse().unwrap();
    for reader in &mut readers {
        until("the end of the lease", || {
            let before = boot_now();
            let left = reader.left();
            assert!(
                left <= deadline.saturating_sub(before),
                "{}",
                reader.language
            );
            left == 0
        });
    }
    std::fs::remove_file(file).unwrap();
}

/// The signal is not sent, as if the command were in a system call that takes long.
#[test]
fn a_reader_sees_the_loss_before_the_command_has_ended() {
    let directory = Directory::new();
    let [begun, trace] = [Mark::new(), Mark::new()];
    let mut command = with_default_signals("strace");
    command.args(["-qq", "-o", trace.path(), "-e", "trace=kill"]);
    command.args([
        "-e",
        "inject=kill:retval=0",
        env!("CARGO_BIN_EXE_leasehold"),
    ]);
    command.args([
        "run",
        "--store",
        &directory.url(),
        "--lock",
        "k",
        "--ttl",
        "3s",
    ]);
    let script = format!(
        "echo $$ $LEASEHOLD_LEASE > {}; exec sleep 1000",
        begun.path()
    );
    command
        .args(["--", "sh", "-c", &script])
        .stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let tool = Running(command.spawn().unwrap());
    let line = begun.line();
    let (id, file) = line.split_once(' ').unwrap();
    let mapped = File::open(file).unwrap();
    let revoked = leasehold(&["revoke", "--now", "--store", &directory.url(), "k"]);
    assert_eq!(code(&revoked), 0, "{}", printed(&revoked));
    until("the end that the tool gives its command", || {
        std::fs::read_to_string(trace.path()).is_ok_and(|calls| calls.contains("SIGKILL"))
    });
    assert!(runs(id));
    assert_eq!(field(&read_again(&mapped), "state"), "over");
    send("-KILL", id);
    assert_eq!(code(&tool.output()), 76);
}

#[test]
fn a_reader_follows_a_lease_file_that_was_deleted_to_the_new_one() {
    let directory = Directory::new();
    let (tool, file) = tool_that_waits(&directory.url(), "30s");
    let mut readers = Reader::all(&file);
    let mapped = File::open(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    until("the mark of the old file", || {
        field(&read_again(&mapped), "state") == "over"
    });
    pause();
    for reader in &mut readers {
        assert!(reader.left() > 0, "{}", reader.language);
    }
    tool.signal("-TERM");
    assert_eq!(code(&tool.output()), 143);
    for reader in &mut readers {
        assert_eq!(reader.left(), 0, "{}", reader.language);
    }
}

#[test]
fn a_reader_refuses_what_is_no_record_of_this_boot() {
    let file = Mark::new();
    let live = text("live", boot_now() + HOUR);
    let boot = field(&live, "boot").to_owned();
    let timens = field(&live, "timens").to_owned();
    let whole = sealed(&live);
    let bad = [
        (
            "another boot",
            sealed(&live.replace(&boot, &boot.replace('-', "+"))),
        ),
        (
            "another time namespace",
            sealed(&live.replace(&timens, "4026530000")),
        ),
        ("a longer namespace", sealed(&format!("{live}1"))),
        ("a later version", sealed(&live.replacen("1 ", "2 ", 1))),
        ("version 12", sealed(&live.replacen("1 ", "12 ", 1))),
        (
            "another head",
            sealed(&live.replacen("leasehold-lease", "leasehold-least", 1)),
        ),
        ("a wrong sum", whole.replace("token=17", "token=18")),
        ("no sum", format!("{live}\n")),
        ("a part", whole[..whole.len() - 2].to_owned()),
        ("a first half", whole[..whole.len() / 2].to_owned()),
        ("nothing", String::new()),
    ];
    for (what, record) in bad {
        std::fs::write(file.path(), &record).unwrap();
        for language in LANGUAGES {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("echo 1 | ( {} )", line_of(language))]);
            let output = command
                .env("LEASEHOLD_LEASE", file.path())
                .output()
                .unwrap();
            let said = printed(&output);
            assert_eq!(code(&output), REFUSED, "{language}, {what}: {said}");
            assert!(output.stdout.is_empty(), "{language}, {what}: {said}");
        }
    }
}

/// What a reader of each language prints for one read, in a mount namespace in which the shell that
/// becomes the reader has run this line.
fn read_after(line: &str, file: &Mark) -> Vec<(&'static str, Output)> {
    let outputs = LANGUAGES.map(|language| {
        let reader = line_of(language);
        let script = format!("set -e\n{line}\nexec 0<<END\n1\nEND\n{reader}");
        let mut unshare = Command::new("unshare");
        unshare.args(["-m", "sh", "-c", &script]);
        let output = unshare.env("LEASEHOLD_LEASE", file.path()).output();
        (language, output.unwrap())
    });
    Vec::from(outputs)
}

/// As in a container with lxcfs. The others ask the system for its boot clock.
#[test]
fn a_reader_that_needs_the_uptime_refuses_one_that_is_not_the_machines() {
    if !is_root() {
        println!("did not run: only root can mount");
        return;
    }
    let [file, uptime] = [Mark::new(), Mark::new()];
    std::fs::write(file.path(), sealed(&text("live", boot_now() + HOUR))).unwrap();
    std::fs::write(uptime.path(), "1.00 1.00\n").unwrap();
    let line = format!("mount --bind {} /proc/uptime", uptime.path());
    for (language, output) in read_after(&line, &file) {
        let said = printed(&output);
        if ["java", "js"].contains(&language) {
            assert_eq!(code(&output), REFUSED, "{language}: {said}");
            assert!(
                said.contains("uptime is not the machine's"),
                "{language}: {said}"
            );
        } else {
            assert_eq!(code(&output), 0, "{language}: {said}");
            assert!(!said.starts_with("0 "), "{language}: {said}");
        }
    }
}

/// As before Linux 5.6, which has no time namespaces.
#[test]
fn a_reader_without_a_time_namespace_reads_the_record_of_a_tool_without_one() {
    if !is_root() {
        println!("did not run: only root can mount");
        return;
    }
    let file = Mark::new();
    let live = text("live", boot_now() + HOUR);
    let live = live.replace(field(&live, "timens"), "0");
    std::fs::write(file.path(), sealed(&live)).unwrap();
    for (language, output) in read_after("mount -t tmpfs none /proc/$$/ns", &file) {
        let said = printed(&output);
        assert_eq!(code(&output), 0, "{language}: {said}");
        assert!(!said.starts_with("0 "), "{language}: {said}");
    }
}

#[test]
fn a_reader_ignores_a_field_that_it_does_not_know() {
    let file = Mark::new();
    let text = text("live", boot_now() + HOUR);
    std::fs::write(file.path(), sealed(&format!("{text} more=1"))).unwrap();
    Reader::all(file.path());
}

/// Somebody else truncates it: the tool never does. Those that map it may be ended by the system.
#[test]
fn a_file_that_is_truncated_meanwhile_is_live_for_no_reader() {
    for length in [40, 0] {
        let file = Mark::new();
        std::fs::write(file.path(), sealed(&text("live", boot_now() + HOUR))).unwrap();
        let mut readers = Reader::all(file.path());
        let open = File::options().write(true).open(file.path()).unwrap();
        open.set_len(length).unwrap();
        pause();
        for reader in &mut readers {
            let left = reader.answer();
            assert!(
                matches!(left, None | Some(0)),
                "{}: {left:?}",
                reader.language
            );
        }
    }
}

//! What is too short for the tool: a queue of files that is full, the limit of a file's size,
//! descriptors.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use leasehold::Key;
use leasehold::store::{Acquired, Claim, FileOptions, FileStore, Label, OwnerToken, Store};

use crate::command::{TOOL, code, leasehold, printed, server, with_default_signals};
use crate::files::Directory;

/// A lock that is held, and others wait for it until its queue takes no more.
async fn fill(store: &FileStore, key: &str) {
    let (key, long) = (Key::parse(key).unwrap(), Duration::from_secs(1_000));
    let label = Label::parse(&"l".repeat(Label::MAX_LEN)).unwrap();
    loop {
        let owner = OwnerToken::generate().unwrap();
        let mut claim = Claim::new(key.clone(), owner, label.clone(), long);
        claim.place_ttl = long;
        match store.acquire(&claim).await {
            Ok(Acquired::Granted(_) | Acquired::Busy { .. }) => {}
            Ok(other) => panic!("{other:?}"),
            Err(full) => {
                assert!(full.to_string().contains("is full"), "{full}");
                return;
            }
        }
    }
}

/// Ended after 3 s. A request opens the file of its key up to three times: it asks, withdraws, and
/// looks who holds.
#[test]
fn whoever_finds_a_queue_full_asks_again_once_a_second() {
    const MOST: usize = 4 * 3;
    let directory = Directory::new();
    let url = directory.url();
    let store = FileStore::open(&FileOptions::parse(&url).unwrap()).unwrap();
    let fire = "j@2026-11-26T03:00Z";
    let waits = [
        ("k", "run --lock k --wait forever --"),
        ("l", "run --lock l --wait 1m --"),
        ("e", "leader --election e --label me --"),
        (
            "j/2026-11-26T03:00:00Z",
            &format!("run --once {fire} --wait forever --"),
        ),
    ];
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.unwrap();
    for (key, _) in waits {
        runtime.block_on(fill(&store, key));
    }
    let began = waits.map(|(key, words)| {
        let trace = directory.path(&format!("trace-{}", &key[..1]));
        let mut words = words.split(' ');
        let mut strace = with_default_signals("strace");
        strace.args(["-f", "-qq", "-e", "trace=openat", "-o", &trace]);
        strace.args(["timeout", "3", TOOL, words.next().unwrap()]);
        strace.args(["--store", &url]).args(words).arg("true");
        strace.stdin(Stdio::null()).stdout(Stdio::piped());
        let child = strace.stderr(Stdio::piped()).spawn().unwrap();
        (key, trace, child)
    });
    for (key, trace, child) in began {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(124), "{}", printed(&output));
        let file = format!("\"{}\", O_RDWR", key.replace('/', ","));
        let trace = std::fs::read_to_string(trace).unwrap();
        let opened = trace.lines().filter(|line| line.contains(&file)).count();
        assert!((1..=MOST).contains(&opened), "{key}: {opened} times");
    }
}

/// In blocks of the shell.
fn with_file_size(limit: u32, url: &str, command: &str) -> Output {
    let line =
        format!("ulimit -f {limit}; exec {TOOL} run --json --store '{url}' --lock k -- {command}");
    let mut bash = with_default_signals("bash");
    let bash = bash.args(["-c", &line]).env_remove("LEASEHOLD_STORE");
    bash.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_limit_of_a_files_size_is_reported_and_ends_no_tool() {
    let directory = Directory::new();
    for limit in [0, 64] {
        let refused = with_file_size(limit, &directory.url(), "true");
        assert_eq!(code(&refused), 77, "{}", printed(&refused));
        assert!(printed(&refused).contains("ulimit -f"));
    }
    let (_server, url) = server();
    let ran = with_file_size(0, &url, "sh -c 'grep SigIgn /proc/self/status; echo ran'");
    let text = printed(&ran);
    assert_eq!(code(&ran), 0, "{text}");
    assert!(
        text.contains("ran\n") && text.contains("no_lease_file"),
        "{text}"
    );
    // 25: SIGXFSZ is not ignored in the command.
    let ignored = text.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.unwrap().trim(), 16).unwrap();
    assert_eq!(ignored & (1 << 24), 0, "{text}");
    let free = leasehold(&["inspect", "--store", &url, "k"]);
    assert_eq!(code(&free), 1, "{}", printed(&free));
}

#[test]
fn a_tool_without_descriptors_says_so() {
    let directory = Directory::new();
    let url = directory.url();
    for limit in 4..32 {
        for words in ["run --lock k -- true", "inspect k", "list"] {
            let mut words = words.split(' ');
            let mut tool = Command::new("prlimit");
            tool.args([&format!("--nofile={limit}"), TOOL, words.next().unwrap()]);
            tool.args(["--store", &url])
                .args(words)
                .stdin(Stdio::null());
            let output = tool.output().unwrap();
            let text = printed(&output);
            assert!(!text.contains("panicked"), "{limit}: {text}");
            assert_ne!(code(&output), 101, "{limit}: {text}");
            if (6..8).contains(&limit) {
                assert_eq!(code(&output), 71, "{limit}: {text}");
            }
        }
    }
}

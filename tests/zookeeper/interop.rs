//! Another client in another language contends on the same path: both get their turns, never two
//! holders at once.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::zookeeper::{Server, claim, rest, store, wait_for};
use leasehold::store::{Released, Store};

const TURNS: usize = 25;
const KAZOO: &str = "kazoo==2.11.0";

/// A Python with kazoo: that of the repository's venv if it has one, else one in a venv that is
/// made here once.
pub(crate) fn python() -> PathBuf {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv/bin/python");
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kazoo");
    let own = venv.join("bin/python");
    let has_kazoo = |python: &Path| {
        let import = Command::new(python)
            .args(["-c", "import kazoo"])
            .stderr(Stdio::null())
            .status();
        import.is_ok_and(|status| status.success())
    };
    if has_kazoo(&shared) {
        return shared;
    }
    if !has_kazoo(&own) {
        let made = Command::new("python3")
            .args(["-m", "venv"])
            .arg(&venv)
            .status();
        assert!(
            made.is_ok_and(|status| status.success()),
            "python3 -m venv: install python3-venv"
        );
        let installed = Command::new(&own)
            .args(["-m", "pip", "install", "--quiet", KAZOO])
            .status();
        assert!(
            installed.is_ok_and(|status| status.success()),
            "pip install {KAZOO}"
        );
    }
    own
}

#[tokio::test]
async fn a_python_client_and_ours_take_turns_and_never_hold_at_once() {
    let server = Server::start();
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("interop-{}.log", server.port));
    fs::write(&log, "").unwrap();
    let start_contender = || {
        Command::new(python())
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/contender.py"))
            .args([&server.address(), "/interop/accounts/7", &TURNS.to_string()])
            .arg(&log)
            .spawn()
            .unwrap()
    };
    let mut contenders = [start_contender(), start_contender()];
    let store = store(&server, "/interop").await;
    let mut note = fs::File::options().append(true).open(&log).unwrap();
    for _ in 0..TURNS {
        let turn = claim("accounts/7");
        let grant = wait_for(&store, &turn).await;
        note.write_all(b"begin ours\n").unwrap();
        // Work that takes a while, in which another holder would show.
        rest(Duration::from_millis(20)).await;
        note.write_all(b"end ours\n").unwrap();
        assert!(matches!(store.release(&grant).await, Released::Released));
    }
    for contender in &mut contenders {
        assert!(contender.wait().unwrap().success());
    }

    let text = fs::read_to_string(&log).unwrap();
    fs::remove_file(&log).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2 * 3 * TURNS);
    let mut changes = 0;
    for (n, turn) in lines.chunks(2).enumerate() {
        let who = turn[0]
            .strip_prefix("begin ")
            .expect("a turn begins before the next one");
        assert_eq!(
            turn[1],
            format!("end {who}"),
            "turn {n} was not alone:\n{text}"
        );
        changes += usize::from(n > 0 && lines[2 * n - 1] != format!("end {who}"));
    }
    assert!(
        changes >= TURNS / 2,
        "they took turns only {changes} times:\n{text}"
    );
}

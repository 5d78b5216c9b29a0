//! Other libraries' clients of ZooKeeper, each in a process of its own: Apache Curator from
//! Debian's packages, and what else speaks the same lines.

#![allow(dead_code, reason = "each test file uses its part")]

use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::zookeeper::Server;

/// Where Debian puts the libraries of Java: packages `libcurator-recipes-java` and
/// `default-jdk-headless`.
const JARS: &str = "/usr/share/java";

/// Another library's client, in a process of its own.
pub(crate) struct Peer {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut peer = Self {
            input: process.stdin.take().unwrap(),
            output: BufReader::new(process.stdout.take().unwrap()).lines(),
            process,
        };
        assert_eq!(peer.answer(), "up");
        peer
    }

    pub(crate) fn curator(server: &Server) -> Self {
        let classes = compiled();
        let mut command = Command::new("java");
        command.args(["-cp", &classes, "Peer", &server.address()]);
        Self::start(command)
    }

    pub(crate) fn ask(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    pub(crate) fn answer(&mut self) -> String {
        self.output.next().expect("the peer answers").unwrap()
    }

    pub(crate) fn takes(&mut self, kind: &str, path: &str, millis: u32) -> bool {
        self.ask(&format!("take {kind} {path} {millis}"));
        self.answer() == "taken"
    }

    pub(crate) fn free(&mut self) {
        self.ask("free");
        assert_eq!(self.answer(), "free");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn source(name: &str) -> PathBuf {
    // The package of the tool, whose tests need it too, is one folder below.
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let found = folders.find_map(|folder| {
        let source = folder.join("tests/support/peers").join(name);
        source.exists().then_some(source)
    });
    found.expect("the repository has it")
}

/// Compiles the Java peer. Gives the class path.
fn compiled() -> String {
    let wanted = |name: &str| {
        let is_one_of = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        name.ends_with(".jar")
            && is_one_of(&[
                "curator-client.",
                "curator-framework.",
                "curator-recipes.",
                "zookeeper",
                "guava.",
                "failureaccess.",
                "slf4j-api.",
                "slf4j-nop.",
                "netty-",
                "snappy-java.",
                "metrics-core.",
                "jackson-",
            ])
    };
    let jars: Vec<_> = fs::read_dir(JARS)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| wanted(&path.file_name().unwrap().to_string_lossy()))
        .map(|path| path.display().to_string())
        .collect();
    assert!(
        jars.iter().any(|jar| jar.contains("curator-recipes")),
        "install libcurator-recipes-java"
    );
    let unique = leasehold::store::OwnerToken::generate().unwrap().expose();
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("peer-{unique}"));
    fs::create_dir_all(&out).unwrap();
    let jars = jars.join(":");
    let status = Command::new("javac")
        .args(["-cp", &jars, "-d"])
        .arg(&out)
        .arg(source("Peer.java"))
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "javac: install default-jdk-headless"
    );
    format!("{}:{jars}", out.display())
}

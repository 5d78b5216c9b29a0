//! A wall clock of a server that a test sets: a library for `LD_PRELOAD`, compiled by the test,
//! which reads the shift from a file.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SOURCE: &str = include_str!("clock_shim.c");

/// The clock of one server, over all its restarts.
pub(crate) struct WallClock {
    library: PathBuf,
    shift: PathBuf,
}

impl WallClock {
    /// Right, until it is set.
    pub(crate) fn in_folder(folder: &Path) -> Self {
        let clock = Self {
            library: folder.join("clock_shim.so"),
            shift: folder.join("clock_shift"),
        };
        let source = folder.join("clock_shim.c");
        std::fs::write(&source, SOURCE).expect("a file");
        let compiled = Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-o"])
            .args([&clock.library, &source])
            .status()
            .expect("cc is installed (apt-get install gcc libc6-dev)");
        assert!(compiled.success(), "the clock is not compiled");
        std::fs::write(&clock.shift, 0_i64.to_ne_bytes()).expect("a file");
        clock
    }

    pub(crate) fn ahead(&self, of_the_truth: Duration) {
        self.write(i64::try_from(of_the_truth.as_millis()).expect("a few days"));
    }

    pub(crate) fn behind(&self, the_truth: Duration) {
        self.write(-i64::try_from(the_truth.as_millis()).expect("a few days"));
    }

    pub(crate) fn right(&self) {
        self.write(0);
    }

    /// Into the file that is mapped, without a moment in which it is empty.
    fn write(&self, millis: i64) {
        let file = std::fs::OpenOptions::new().write(true).open(&self.shift);
        let file = file.expect("its file");
        file.write_all_at(&millis.to_ne_bytes(), 0)
            .expect("it is set");
    }

    pub(crate) fn of(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("CLOCK_SHIM", &self.shift);
    }
}

//! [`CounterFile`]: a number that nothing protects.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use leasehold::{Clock, Lane};

use crate::exit::Failure;

/// A file of ours with a number in it, gone with this value.
#[derive(Debug)]
pub(super) struct CounterFile(PathBuf);

impl CounterFile {
    pub(super) fn create() -> Result<Self, Failure> {
        let now = Clock::system()?.stamp().on(Lane::Boot);
        let name = format!("leasehold-counter-{}-{now:x}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let made = File::create_new(&path).and_then(|mut file| file.write_all(&digits(0)));
        made.map_err(|why| Failure::system("the counter's file could not be made", &why))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn read(&self) -> Result<u64, Failure> {
        read(&self.0).map_err(|why| Failure::system("the counter could not be read", &why))
    }
}

impl Drop for CounterFile {
    fn drop(&mut self) {
        // A file that is left in the temporary folder harms nobody.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Always as long, so that a write is one write.
fn digits(number: u64) -> [u8; 20] {
    let mut digits = [b'0'; 20];
    let text = format!("{number:020}");
    digits.copy_from_slice(text.as_bytes());
    digits
}

pub(super) fn read(path: &Path) -> std::io::Result<u64> {
    let mut text = String::new();
    File::open(path)?.read_to_string(&mut text)?;
    text.parse()
        .map_err(|why| std::io::Error::new(std::io::ErrorKind::InvalidData, why))
}

pub(super) fn write(path: &Path, number: u64) -> std::io::Result<()> {
    let mut file = File::options().write(true).open(path)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&digits(number))
}

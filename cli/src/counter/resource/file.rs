//! The counter in a file, which nothing protects but the lock.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use leasehold::BoxError;
use leasehold::run::EffectError;

pub(super) fn make(name: &str) -> std::result::Result<PathBuf, BoxError> {
    let path = std::env::temp_dir().join(name);
    File::create_new(&path)?.write_all(&digits(0))?;
    Ok(path)
}

pub(super) fn read(path: &Path) -> Result<u64> {
    let mut text = String::new();
    File::open(path)?.read_to_string(&mut text)?;
    text.parse()
        .map_err(|why| Error::new(ErrorKind::InvalidData, why))
}

pub(super) async fn commit(path: PathBuf, number: u64) -> std::result::Result<(), EffectError> {
    write(&path, number).map_err(EffectError::unknown)
}

fn write(path: &Path, number: u64) -> Result<()> {
    let mut file = File::options().write(true).open(path)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&digits(number))
}

/// Of fixed length, so that a change is one write.
fn digits(number: u64) -> [u8; 20] {
    let mut digits = [b'0'; 20];
    let text = format!("{number:020}");
    digits.copy_from_slice(text.as_bytes());
    digits
}

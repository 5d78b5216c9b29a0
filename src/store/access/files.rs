//! Files that are read at each connect, since they change while the program runs: passwords and
//! certificates.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::model::error::Error;

/// A longer file is no password and no certificate.
const LONGEST: u64 = 1 << 20;

/// The file that an option names. A relative path is one of the folder in which the program is now.
pub(crate) fn path(text: &str) -> Result<PathBuf, Error> {
    std::path::absolute(text).map_err(|_| Error::invalid("it names no file; write the path of one"))
}

/// The bytes of a file. A file system may hang for longer than the runtime lives, so a thread of
/// its own reads it.
///
/// # Errors
///
/// `Unavailable`, with the path: the file may be there a moment later.
///
/// # Cancel safety
///
/// Cancel safe.
pub(crate) async fn read(
    option: &str,
    path: &Path,
    (clock, limit): (&Clock, Duration),
) -> Result<Vec<u8>, Error> {
    let ours = path.to_owned();
    let (answer, reading) = oneshot::channel();
    let begun = std::thread::Builder::new().spawn(move || {
        let _ = answer.send(bytes(&ours));
    });
    if let Err(error) = begun {
        return Err(unusable(option, path, &error.to_string()));
    }
    let why = match clock.timeout(limit, reading).await {
        Some(Ok(Ok(bytes))) if bytes.is_empty() => "it is empty".to_owned(),
        Some(Ok(Ok(bytes))) => return Ok(bytes),
        Some(Ok(Err(error))) => match error.kind() {
            io::ErrorKind::Other | io::ErrorKind::InvalidInput => error.to_string(),
            kind => format!("{kind:?}"),
        },
        Some(Err(_)) => "it could not be read".to_owned(),
        None => format!("no answer of the file system within {limit:?}"),
    };
    Err(unusable(option, path, &why))
}

/// The error of a file whose content is of no use. `why` quotes nothing of it.
pub(crate) fn unusable(option: &str, path: &Path, why: &str) -> Error {
    Error::unavailable(format!(
        "a file that the connect needs cannot be used: option={option} path={path:?} reason={why:?}; check that it is there, that this process may read it, and what it contains"
    ))
}

fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    // The open of a pipe would wait for its writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?
        .take(LONGEST + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(io::Error::other("it is longer than 1 MiB"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    const LIMIT: Duration = Duration::from_secs(60);

    async fn refused(path: &Path) -> String {
        let clock = Clock::system().unwrap();
        let read = read("password_file", path, (&clock, LIMIT)).await;
        read.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_used_is_named_with_the_reason() {
        let folder = std::env::temp_dir().join(format!("leasehold-files-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("secret");
        let message = refused(&file).await;
        assert!(message.contains("reason=\"NotFound\""), "{message}");
        assert!(message.contains("option=password_file"), "{message}");
        assert!(message.contains(&file.display().to_string()), "{message}");
        assert!(refused(&folder).await.contains("no regular file"));
        std::fs::write(&file, "").unwrap();
        assert!(refused(&file).await.contains("it is empty"));
        std::fs::write(&file, vec![b'x'; (1 << 20) + 1]).unwrap();
        let message = refused(&file).await;
        assert!(message.contains("longer than 1 MiB"), "{message}");
        std::fs::write(&file, vec![b'x'; 1 << 20]).unwrap();
        let clock = Clock::system().unwrap();
        read("ca", &file, (&clock, LIMIT)).await.unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

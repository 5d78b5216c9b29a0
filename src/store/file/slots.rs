//! Two slots in a file: each write goes to the older one, in one `pwrite`, so that a write that was
//! cut off leaves the newer.
//!
//! A slot is `[length, checksum, sequence, boot, payload]`. Nothing in a file is believed without
//! its checksum. A damaged slot is ignored only where a killed writer explains it: a write of more
//! than one page, which the system may cut off between pages, and whose first page came through.
//! Anything else is `Corrupt`.

use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::io::Errno;

use super::errors::{no_effect, of_write};
use crate::model::error::Error;

/// The size of a slot.
const SLOT: u64 = 64 * 1024;
const HEADER: usize = 4 + 4 + 8 + 16;
/// The largest payload.
pub(super) const MOST: usize = SLOT as usize - HEADER;
pub(super) const LARGEST_FILE: u64 = 2 * SLOT;
/// A write within one page is not cut off.
const PAGE: usize = 4096;

/// The newer of the two slots.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Slot {
    pub(super) sequence: u64,
    pub(super) payload: Vec<u8>,
    /// `None` for one of a page, which is read anew each time.
    pub(super) mark: Option<Mark>,
}

/// Which write of more than a page the newer slot has: its first page.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Mark {
    pub(super) sequence: u64,
    page: Vec<u8>,
}

impl Mark {
    fn of(sequence: u64, bytes: &[u8]) -> Option<Self> {
        let page = (bytes.len() > PAGE).then(|| bytes[..PAGE].to_vec())?;
        Some(Self { sequence, page })
    }

    /// Whether the newer slot is still that of this write.
    pub(super) fn is_newest(&self, file: BorrowedFd<'_>) -> bool {
        let mut page = [0; PAGE];
        let mut next = [0; HEADER];
        let is_read = |bytes: &mut [u8], sequence| {
            read_all(file, bytes, offset(sequence)).is_ok_and(|len| len == bytes.len())
        };
        is_read(&mut page, self.sequence)
            && page[..] == self.page[..]
            && is_read(&mut next, self.sequence + 1)
            && sequence_of(&next) == self.sequence - 1
    }
}

enum Read {
    /// Never written.
    Empty,
    Whole(Slot),
    /// It does not have its checksum. The sequence, if the write may have been cut off.
    Damaged(Option<u64>),
}

/// The state that a file of this size has.
pub(super) fn read(
    file: BorrowedFd<'_>,
    size: u64,
    boot: &[u8; 16],
    directory: &Path,
) -> Result<Slot, Error> {
    let slots = [0, SLOT].map(|offset| read_slot(file, size, offset, boot));
    let [first, second] = slots
        .map(|slot| slot.map_err(|errno| no_effect("read the state of a lock", directory, errno)));
    newest(first?, second?).ok_or_else(|| {
        Error::corrupt(format!(
            "the file of a lock is damaged: directory={}; nothing was changed; if no process uses the lock, delete the file",
            directory.display()
        ))
    })
}

fn newest(first: Read, second: Read) -> Option<Slot> {
    match (first, second) {
        (Read::Whole(a), Read::Whole(b)) if a.sequence == b.sequence + 1 => Some(a),
        (Read::Whole(a), Read::Whole(b)) if b.sequence == a.sequence + 1 => Some(b),
        // The second is written after the first.
        (Read::Whole(a), Read::Empty) => (a.sequence == 1).then_some(a),
        (Read::Whole(whole), Read::Damaged(cut_off))
        | (Read::Damaged(cut_off), Read::Whole(whole)) => {
            (cut_off == Some(whole.sequence + 1)).then_some(whole)
        }
        _ => None,
    }
}

/// Odd sequences are in the first slot.
fn offset(sequence: u64) -> u64 {
    if sequence % 2 == 1 { 0 } else { SLOT }
}

fn read_slot(
    file: BorrowedFd<'_>,
    end: u64,
    offset: u64,
    boot: &[u8; 16],
) -> rustix::io::Result<Read> {
    // To the end of the file and not beyond, which would be one more call.
    let mut bytes = vec![0; end.saturating_sub(offset).min(PAGE as u64) as usize];
    let mut len = read_all(file, &mut bytes, offset)?;
    if bytes[..len].iter().all(|byte| *byte == 0) {
        return Ok(Read::Empty);
    }
    let Some((header, _)) = bytes[..len].split_at_checked(HEADER) else {
        return Ok(Read::Damaged(None));
    };
    let size = u32::from_le_bytes(array(header, 0)) as usize;
    let checksum = u32::from_le_bytes(array(header, 4));
    let sequence = sequence_of(header);
    if size > MOST || sequence == 0 || offset != self::offset(sequence) || header[16..] != boot[..]
    {
        return Ok(Read::Damaged(None));
    }
    let cut_off = (HEADER + size > PAGE).then_some(sequence);
    if HEADER + size > PAGE {
        bytes.resize(HEADER + size, 0);
        len = PAGE.min(len) + read_all(file, &mut bytes[PAGE..], offset + PAGE as u64)?;
    }
    if len < HEADER + size || crc(&bytes[8..HEADER + size]) != checksum {
        return Ok(Read::Damaged(cut_off));
    }
    let mark = Mark::of(sequence, &bytes[..HEADER + size]);
    let payload = bytes[HEADER..HEADER + size].to_vec();
    Ok(Read::Whole(Slot {
        sequence,
        payload,
        mark,
    }))
}

fn sequence_of(header: &[u8]) -> u64 {
    u64::from_le_bytes(array(header, 8))
}

fn read_all(file: BorrowedFd<'_>, bytes: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
    let mut len = 0;
    while len < bytes.len() {
        match rustix::io::pread(file, &mut bytes[len..], offset + len as u64) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(len)
}

/// Writes a state under the next sequence.
pub(super) fn write(
    file: BorrowedFd<'_>,
    sequence: u64,
    boot: &[u8; 16],
    payload: &[u8],
    directory: &Path,
) -> Result<Option<Mark>, Error> {
    let mut bytes = Vec::with_capacity(HEADER + payload.len());
    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&sequence.to_le_bytes());
    bytes.extend_from_slice(boot);
    bytes.extend_from_slice(payload);
    let checksum = crc(&bytes[8..]);
    bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
    loop {
        match rustix::io::pwrite(file, &bytes, offset(sequence)) {
            Ok(written) if written == bytes.len() => return Ok(Mark::of(sequence, &bytes)),
            // Cut off by a full disk: the slot has no valid checksum.
            Ok(_) => return Err(of_write(directory, Errno::NOSPC)),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(of_write(directory, errno)),
        }
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

/// What a byte makes of a checksum, with so many bytes of zero after it.
const TABLES: [[u32; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut index = 0;
    while index < 8 * 256 {
        let (after, byte) = (index / 256, index % 256);
        let mut value = if after == 0 {
            byte as u32
        } else {
            tables[after - 1][byte]
        };
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 {
                0xEDB8_8320 ^ (value >> 1)
            } else {
                value >> 1
            };
            bit += 1;
        }
        tables[after][byte] = value;
        index += 1;
    }
    tables
};

/// CRC-32, as in zip and Ethernet; eight bytes at a time, because a full queue is 64 KB.
fn crc(bytes: &[u8]) -> u32 {
    let of_eight = |crc: u32, eight: &[u8; 8]| {
        let mixed = u64::from_le_bytes(*eight) ^ u64::from(crc);
        let parts = mixed.to_le_bytes();
        let of_part = |part: usize| TABLES[7 - part][usize::from(parts[part])];
        (0..8).fold(0, |crc, part| crc ^ of_part(part))
    };
    let of_one =
        |crc: u32, byte: &u8| TABLES[0][((crc ^ u32::from(*byte)) & 0xFF) as usize] ^ (crc >> 8);
    let (eights, rest) = bytes.as_chunks();
    let crc = eights.iter().fold(!0, of_eight);
    !rest.iter().fold(crc, of_one)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use super::*;

    const BOOT: [u8; 16] = *b"0123456789abcdef";

    fn file(name: &str) -> File {
        let path =
            std::env::temp_dir().join(format!("leasehold-slots-{name}-{}", std::process::id()));
        let mut options = File::options();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path);
        std::fs::remove_file(path).unwrap();
        file.unwrap()
    }

    fn written(name: &str, payloads: &[&[u8]]) -> File {
        let file = file(name);
        for (n, payload) in payloads.iter().enumerate() {
            write(file.as_fd(), n as u64 + 1, &BOOT, payload, Path::new("d")).unwrap();
        }
        file
    }

    fn state(file: &File) -> Result<(u64, Vec<u8>), crate::ErrorKind> {
        let size = file.metadata().unwrap().len();
        read(file.as_fd(), size, &BOOT, Path::new("d"))
            .map(|slot| (slot.sequence, slot.payload))
            .map_err(|error| error.kind())
    }

    #[test]
    fn the_checksum_is_that_of_zip() {
        assert_eq!(crc(b"123456789"), 0xCBF4_3926);
        assert_eq!(
            crc(b"The quick brown fox jumps over the lazy dog"),
            0x414F_A339
        );
    }

    #[test]
    fn a_mark_is_the_newest_until_another_write_begins() {
        let long = vec![7; 20_000];
        let mut marks = Vec::new();
        let file = file("mark");
        for sequence in 1..4 {
            let mark = write(file.as_fd(), sequence, &BOOT, &long, Path::new("d"));
            marks.push(mark.unwrap().unwrap());
        }
        let size = file.metadata().unwrap().len();
        let read = read(file.as_fd(), size, &BOOT, Path::new("d")).unwrap();
        assert_eq!(read.mark.as_ref(), Some(&marks[2]));
        let newest = marks.iter().map(|mark| mark.is_newest(file.as_fd()));
        assert!(newest.eq([false, false, true]));
        // Another process was killed within the write of another state: its header came through.
        let other = written("other", &[&long, &long, &long, &vec![8; 30_000]]);
        let mut page = vec![0; PAGE];
        other.read_exact_at(&mut page, SLOT).unwrap();
        file.write_all_at(&page, SLOT).unwrap();
        assert!(!marks[2].is_newest(file.as_fd()));
        assert_eq!(state(&file), Ok((3, long.clone())));
        // And the next process wrote under the same sequence.
        let again = write(file.as_fd(), 4, &BOOT, &long, Path::new("d"));
        assert!(!marks[2].is_newest(file.as_fd()));
        assert!(again.unwrap().unwrap().is_newest(file.as_fd()));
        // Another life of the file has come as far.
        let other = written("life", &[&long, &long, b"short", &[8; 30_000]]);
        let before = write(other.as_fd(), 4, &BOOT, &long, Path::new("d"))
            .unwrap()
            .unwrap();
        other.write_all_at(&[0; PAGE], SLOT).unwrap();
        write(other.as_fd(), 4, &BOOT, &vec![9; 30_000], Path::new("d")).unwrap();
        assert!(!before.is_newest(other.as_fd()));
    }

    #[test]
    fn the_last_write_is_read() {
        let all: Vec<Vec<u8>> = (1..6).map(|n| vec![n; usize::from(n) * 3000]).collect();
        for n in 1..=all.len() {
            let payloads: Vec<&[u8]> = all[..n].iter().map(Vec::as_slice).collect();
            let file = written("last", &payloads);
            assert_eq!(state(&file), Ok((n as u64, all[n - 1].clone())));
        }
    }

    #[test]
    fn a_long_write_that_was_cut_off_leaves_the_state_before() {
        let long = vec![7; 20_000];
        let file = written("cut", &[b"one", b"two"]);
        let whole = written("whole", &[&long, &long, &long]);
        let mut page = vec![0; PAGE];
        whole.read_exact_at(&mut page, 0).unwrap();
        file.write_all_at(&page, 0).unwrap();
        assert_eq!(state(&file), Ok((2, b"two".to_vec())));
    }

    #[test]
    fn any_other_damage_is_reported() {
        let damaged = Err(crate::ErrorKind::Corrupt);
        let one = written("flip-one", &[b"one"]);
        one.write_all_at(b"x", HEADER as u64).unwrap();
        assert_eq!(state(&one), damaged);
        for slot in [0, SLOT] {
            let file = written("flip", &[b"one", b"two", b"three"]);
            file.write_all_at(b"x", slot + HEADER as u64).unwrap();
            assert_eq!(state(&file), damaged, "slot at {slot}");
        }
        for len in [0, 10, PAGE as u64] {
            let file = written("short", &[b"one", b"two", b"three"]);
            file.set_len(len).unwrap();
            assert_eq!(state(&file), damaged, "truncated to {len}");
        }
        let foreign = file("foreign");
        foreign.write_all_at(b"12345\n", 0).unwrap();
        assert_eq!(state(&foreign), damaged);
        let other = written("boot", &[b"one"]);
        let other = read(
            other.as_fd(),
            other.metadata().unwrap().len(),
            b"another boot....",
            Path::new("d"),
        );
        assert!(other.is_err());
    }
}

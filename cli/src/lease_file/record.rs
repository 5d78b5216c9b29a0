//! [`LeaseRecord`]: one line of text with a checksum.
//!
//! ```text
//! leasehold-lease 1 state=live deadline=00000123456789012345 token=17 boot=<boot id> timens=<time namespace> sum=<16 hex digits>
//! ```
//!
//! `deadline` is in nanoseconds of `CLOCK_BOOTTIME`. The line has the same length at each write.

use std::io;

use rustix::time::{ClockId, clock_gettime};

/// The version changes with everything but a new field before the sum: readers ignore those.
const HEAD: &str = "leasehold-lease 1 ";

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LeaseRecord {
    pub(crate) state: LeaseState,
    pub(crate) deadline: u64,
    pub(crate) tokens: String,
    pub(crate) machine: Machine,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LeaseState {
    Live,
    /// A check has reported that the lease is over.
    Lapsed,
}

/// Where a deadline has a meaning: one boot of one machine, in one time namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Machine {
    boot: String,
    time_namespace: String,
}

impl Machine {
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn this() -> io::Result<Self> {
        // The file lies in a folder that does not outlive the boot.
        Ok(Self {
            boot: "-".to_owned(),
            time_namespace: "0".to_owned(),
        })
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn this() -> io::Result<Self> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        Ok(Self {
            boot: boot.trim().to_owned(),
            // A kernel without time namespaces has one time.
            time_namespace: namespace("time"),
        })
    }
}

/// The number of a namespace of this process.
pub(super) fn namespace(kind: &str) -> String {
    let path = std::fs::read_link(format!("/proc/self/ns/{kind}"));
    path.map_or_else(
        |_| "0".to_owned(),
        |path| {
            let text = path.to_string_lossy();
            text.chars().filter(char::is_ascii_digit).collect()
        },
    )
}

impl LeaseRecord {
    pub(crate) fn is_over(&self) -> bool {
        self.state == LeaseState::Lapsed || boot_now() >= self.deadline
    }

    pub(super) fn to_line(&self) -> String {
        let state = match self.state {
            LeaseState::Live => "live",
            LeaseState::Lapsed => "over",
        };
        let Machine {
            boot,
            time_namespace,
        } = &self.machine;
        let text = format!(
            "{HEAD}state={state} deadline={:020} token={} boot={boot} timens={time_namespace}",
            self.deadline, self.tokens
        );
        format!("{text} sum={:016x}\n", checksum(&text))
    }

    /// `None` if the line is not a whole record.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (text, sum) = line.strip_suffix('\n')?.rsplit_once(" sum=")?;
        if u64::from_str_radix(sum, 16).ok()? != checksum(text) {
            return None;
        }
        let mut fields = text.strip_prefix(HEAD)?.split_whitespace();
        let mut field = |name: &str| fields.next()?.strip_prefix(name)?.strip_prefix('=');
        let state = match field("state")? {
            "live" => LeaseState::Live,
            "over" => LeaseState::Lapsed,
            _ => return None,
        };
        Some(Self {
            state,
            deadline: field("deadline")?.parse().ok()?,
            tokens: field("token")?.to_owned(),
            machine: Machine {
                boot: field("boot")?.to_owned(),
                time_namespace: field("timens")?.to_owned(),
            },
        })
    }
}

/// Nanoseconds of the clock that counts while the machine sleeps.
pub(crate) fn boot_now() -> u64 {
    #[cfg(target_os = "linux")]
    let now = clock_gettime(ClockId::Boottime);
    // It counts sleep on macOS.
    #[cfg(not(target_os = "linux"))]
    let now = clock_gettime(ClockId::Monotonic);
    // The clock starts at zero with the machine.
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// FNV-1a: it finds torn writes, and protects against no attacker.
fn checksum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> LeaseRecord {
        LeaseRecord {
            state: LeaseState::Live,
            deadline: 12_345,
            tokens: "17,18".to_owned(),
            machine: Machine {
                boot: "b-1".to_owned(),
                time_namespace: "4026531834".to_owned(),
            },
        }
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let record = record();
        assert_eq!(LeaseRecord::parse(&record.to_line()), Some(record));
    }

    #[test]
    fn a_mark_does_not_change_the_length_of_a_record() {
        let mut lapsed = record();
        lapsed.state = LeaseState::Lapsed;
        lapsed.deadline = u64::MAX;
        assert_eq!(lapsed.to_line().len(), record().to_line().len());
    }

    /// Programs of others read it: this line never changes.
    const GOLDEN: &str = "leasehold-lease 1 state=live deadline=00000000000000012345 token=17,18 \
        boot=b-1 timens=4026531834 sum=5246c782c6cc6ba7\n";

    #[test]
    fn a_record_is_the_line_that_the_page_describes() {
        assert_eq!(record().to_line(), GOLDEN);
    }

    #[test]
    fn a_field_that_a_reader_does_not_know_is_ignored() {
        let (text, _) = GOLDEN.split_once(" sum=").unwrap();
        let more = format!("{text} more=1");
        let line = format!("{more} sum={:016x}\n", checksum(&more));
        assert_eq!(LeaseRecord::parse(&line), Some(record()));
    }

    #[test]
    fn a_record_of_another_version_is_none() {
        let (text, _) = GOLDEN.split_once(" sum=").unwrap();
        for version in ["2 ", "12 ", "1", "0 "] {
            let text = text.replacen("1 ", version, 1);
            let line = format!("{text} sum={:016x}\n", checksum(&text));
            assert_eq!(LeaseRecord::parse(&line), None, "{version}");
        }
    }

    #[test]
    fn a_torn_or_changed_record_is_none() {
        let line = record().to_line();
        for length in 0..line.len() {
            assert_eq!(LeaseRecord::parse(&line[..length]), None, "{length}");
        }
        assert_eq!(LeaseRecord::parse(&line.replace("12345", "92345")), None);
        assert_eq!(LeaseRecord::parse(&line.replace("live", "over")), None);
    }
}

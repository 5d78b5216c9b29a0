//! Names of nodes: where a key lives, what a contender looks like, who is first.

use crate::error::Error;
use crate::holder::{hex, random_bytes};
use crate::key::Key;

/// Under the chroot: one node for each session, which its heartbeats write. No key has a `~`.
const SESSIONS: &str = "~leasehold";
/// Under the key's node: the one node of a simple lock.
pub(crate) const SIMPLE: &str = "~lock";
/// Under the key's node: the token that its fence was raised to.
pub(crate) const FENCE: &str = "~fence";
/// How many digits the server adds to the name of a sequential node.
const DIGITS: usize = 10;
/// Sequence numbers are signed and 32 bits wide, and go on below zero after the largest. Nobody can tell the order across
/// that edge, so that near it, on either side, nothing is granted (I9).
const LAST_SEQUENCE: u64 = 2_000_000_000;

/// The node of a key.
///
/// # Errors
///
/// `Invalid` where the key would look like something else in this tree.
pub(crate) fn key_path(chroot: &str, key: &Key) -> Result<String, Error> {
    let refuse = |why: &str| {
        Err(Error::invalid(format!(
            "{why}: key={key}; choose another key"
        )))
    };
    if key
        .as_str()
        .split('/')
        .any(|segment| sequence(segment).is_some())
    {
        return refuse(
            "on zookeeper a segment of a key may not end in ten digits, as a contender does",
        );
    }
    if chroot.is_empty() && key.as_str().split('/').next() == Some("zookeeper") {
        return refuse("without a chroot, the node /zookeeper is zookeeper's own");
    }
    Ok(format!("{chroot}/{key}"))
}

/// A session's own node.
pub(crate) fn session_path(chroot: &str, guid: &str) -> String {
    format!("{chroot}/{SESSIONS}/{guid}")
}

/// The parent of a node, unless that is the root.
pub(crate) fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/')
        .map(|(parent, _)| parent)
        .filter(|parent| !parent.is_empty())
}

/// A new name by which the nodes of one claim are found again: a random UUID, as Curator's are.
pub(crate) fn new_guid() -> Result<String, Error> {
    let mut bytes = random_bytes()?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = hex(bytes);
    Ok(format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    ))
}

/// What the server adds ten digits to: the layout of Curator's `InterProcessMutex`.
pub(crate) fn queue_prefix(guid: &str) -> String {
    format!("_c_{guid}-lock-")
}

/// The sequence number of a name that ends in one, whoever made it.
fn sequence(name: &str) -> Option<u64> {
    let digits = name
        .len()
        .checked_sub(DIGITS)
        .and_then(|at| name.get(at..))?;
    digits
        .bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| digits.parse().ok())?
}

/// One that holds the lock or waits for it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Contender {
    /// `None`, which is before every number, for a simple lock.
    sequence: Option<u64>,
    pub(crate) name: String,
}

/// The contenders among the children of a key's node, first come first.
///
/// # Errors
///
/// `Corrupt` where their order cannot be told.
pub(crate) fn contenders(children: Vec<String>) -> Result<Vec<Contender>, Error> {
    let mut contenders = Vec::with_capacity(children.len());
    for name in children {
        let sequence = sequence(&name);
        if sequence.is_some_and(|number| number >= LAST_SEQUENCE) {
            return Err(Error::corrupt(
                "the sequence numbers of this lock's node are used up; when nobody holds it, delete the node, so that \
                 they begin again",
            ));
        }
        if sequence.is_some() || name == SIMPLE {
            contenders.push(Contender { sequence, name });
        }
    }
    contenders.sort_unstable();
    Ok(contenders)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(children: &[&str]) -> Vec<String> {
        let children = children.iter().map(|&c| c.to_owned()).collect();
        contenders(children)
            .unwrap()
            .into_iter()
            .map(|c| c.name)
            .collect()
    }

    #[test]
    fn every_child_that_ends_in_a_sequence_number_contends_by_that_number() {
        let children = [
            "_c_b-lock-0000000012",
            "0123456789abcdef0123456789abcdef__lock__0000000009",
            "_c_a-__WRIT__0000000010",
            "0000000011",
            "subkey",
            "short-123456789",
        ];
        assert_eq!(
            order(&children),
            [children[1], children[2], children[3], children[0]]
        );
    }

    #[test]
    fn a_simple_lock_is_before_every_number() {
        assert_eq!(order(&["x-0000000000", SIMPLE]), [SIMPLE, "x-0000000000"]);
    }

    #[test]
    fn nobody_is_first_near_the_end_of_the_sequence_numbers() {
        for name in [
            "_c_a-lock-2000000000",
            "_c_a-lock--2147483648",
            "a__lock__-2000000001",
        ] {
            let error = contenders(vec![name.to_owned()]).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Corrupt, "{name}");
        }
    }

    #[test]
    fn a_key_that_looks_like_a_contender_is_refused() {
        for key in ["jobs-0000000001", "a/1234567890", "1234567890/a"] {
            let error = key_path("/x", &Key::parse(key).unwrap()).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{key}");
        }
        assert_eq!(
            key_path("/x", &Key::parse("a/123456789").unwrap()).unwrap(),
            "/x/a/123456789"
        );
    }

    #[test]
    fn the_system_node_is_nobodys_key() {
        assert!(key_path("", &Key::parse("zookeeper/config").unwrap()).is_err());
        assert!(key_path("/x", &Key::parse("zookeeper/config").unwrap()).is_ok());
    }

    #[test]
    fn a_guid_has_the_form_of_a_random_uuid() {
        let guid = new_guid().unwrap();
        assert_eq!(guid.len(), 36);
        assert_eq!(&guid[14..15], "4");
        assert!(guid.split('-').map(str::len).eq([8, 4, 4, 4, 12]));
        assert_ne!(guid, new_guid().unwrap());
    }
}

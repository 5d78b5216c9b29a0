//! The names of nodes: the path of a key, the names of its contenders, and their order.

use crate::model::error::Error;
use crate::model::holder::hex;
use crate::model::key::Key;
use crate::model::random::random_bytes;
use crate::store::{Claim, LockMode, Share};

/// Under the chroot: one node for each session, which its heartbeats write. No key has a `~`.
const SESSIONS: &str = "~leasehold";
/// Under the key's node: the one node of a simple lock.
pub(crate) const SIMPLE: &str = "~lock";
/// Under the key's node: the token that its fence was raised to.
pub(crate) const FENCE: &str = "~fence";
/// Before a segment of a nested key whose name would sort before the contenders of the key above
/// it. It sorts after all of them.
const NESTED: char = '~';
/// How many digits the server adds to the name of a sequential node.
const DIGITS: usize = 10;
/// Sequence numbers are signed and 32 bits wide, and after the largest the server continues below
/// zero. The order across that edge is not known, so nothing is granted near it, on either side
/// (I9). Below this limit every number begins with a zero.
const LAST_SEQUENCE: u64 = 1_000_000_000;
/// What the server adds ten digits to: the layouts of Curator's `InterProcessMutex` and
/// `InterProcessReadWriteLock`.
const EXCLUSIVE: &str = "-lock-";
const READ: &str = "-__READ__";
const WRITE: &str = "-__WRIT__";
/// Before the guid of a claim, as in Curator.
const OWN: &str = "_c_";
/// The layout of kazoo and others.
const OTHERS: &str = "__lock__";
/// In the name of a revocation barrier. The name ends like that of a contender, so other clients of
/// the path wait for it.
const BARRIER: &str = "-bar";

/// The node of a key.
///
/// # Errors
///
/// `Invalid` if the key would look like something else in this tree.
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
            "on zookeeper a segment of a key may not end in ten digits, or as another contender does",
        );
    }
    if chroot.is_empty() && key.as_str().split('/').next() == Some("zookeeper") {
        return refuse("without a chroot, the node /zookeeper is zookeeper's own");
    }
    let mut path = chroot.to_owned();
    for (depth, segment) in key.as_str().split('/').enumerate() {
        path.push('/');
        if depth > 0 && sorts_before_contenders(segment) {
            path.push(NESTED);
        }
        path.push_str(segment);
    }
    Ok(path)
}

/// The segment of a key whose node, below another key's, has this name.
pub(crate) fn nested_segment(node: &str) -> &str {
    match node.strip_prefix(NESTED) {
        Some(segment) if sorts_before_contenders(segment) => segment,
        _ => node,
    }
}

/// Curator compares its sequence numbers, which begin with a zero, with the whole names of all
/// other children. A child that sorts before them keeps its locks out for ever.
fn sorts_before_contenders(segment: &str) -> bool {
    segment.as_bytes().first().is_some_and(|&byte| byte <= b'0')
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

/// A new name, by which the nodes of one claim are found again: a random UUID, as Curator's are.
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

/// What the server adds ten digits to for a claim of this kind. To other clients a share is a
/// reader.
pub(crate) fn queue_prefix(guid: &str, claim: &Claim) -> String {
    let own = own_prefix(guid);
    match (claim.mode, claim.share) {
        (_, Some(Share { permits, of })) => format!("{own}-{permits}of{of}{READ}"),
        (LockMode::Exclusive, None) => format!("{own}{EXCLUSIVE}"),
        (LockMode::Read, None) => format!("{own}{READ}"),
        (LockMode::Write, None) => format!("{own}{WRITE}"),
    }
}

/// The share in the name of a reader's node, if it has one. No part of a guid looks like one.
fn share(name: &str) -> Option<Share> {
    let stem = name.get(..name.len().checked_sub(DIGITS)?)?;
    let (_, share) = stem.strip_suffix(READ)?.rsplit_once('-')?;
    let (permits, of) = share.split_once("of")?;
    Some(Share {
        permits: permits.parse().ok()?,
        of: of.parse().ok()?,
    })
}

/// What every node of a claim begins with, and no other.
pub(crate) fn own_prefix(guid: &str) -> String {
    format!("{OWN}{guid}")
}

/// Whether no other node ever has this name.
pub(crate) fn has_guid(name: &str) -> bool {
    name.starts_with(OWN)
}

/// The name of a revocation barrier: with the number of the holder that it replaces. So whoever
/// waited for the holder waits for the barrier, also a client that does not know barriers.
pub(crate) fn barrier(guid: &str, holder: &Contender) -> String {
    let suffix = match holder.kind {
        Kind::Read | Kind::Write => WRITE,
        Kind::Barrier | Kind::Exclusive => EXCLUSIVE,
    };
    let sequence = holder.sequence.unwrap_or(0);
    format!("{}{BARRIER}{suffix}{sequence:010}", own_prefix(guid))
}

/// The sequence number of a name that ends in one, whichever client made it.
fn sequence(name: &str) -> Option<u64> {
    let (stem, number) = name.split_at_checked(name.len().checked_sub(DIGITS)?)?;
    let is_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if is_digits(number) {
        return number.parse().ok();
    }
    // The last billion below zero has nine digits, as other children may have.
    let contends = [EXCLUSIVE, READ, WRITE, OTHERS].map(|layout| stem.ends_with(layout));
    let is_below_zero = number.strip_prefix('-').is_some_and(is_digits);
    (is_below_zero && contends.contains(&true)).then_some(LAST_SEQUENCE)
}

/// What a contender wants, by its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// Nothing: it only keeps the others out.
    Barrier,
    /// To be alone. So does every name that does not say what it wants.
    Exclusive,
    /// To write, alone.
    Write,
    /// To read, with others.
    Read,
}

impl Kind {
    fn of(name: &str) -> Self {
        let at = name.len().checked_sub(DIGITS);
        let stem = at.and_then(|at| name.get(..at)).unwrap_or_default();
        let is_bar = |suffix: &str| {
            stem.strip_suffix(suffix)
                .is_some_and(|stem| stem.ends_with(BARRIER))
        };
        if is_bar(EXCLUSIVE) || is_bar(WRITE) {
            Self::Barrier
        } else if stem.ends_with(READ) {
            Self::Read
        } else if stem.ends_with(WRITE) {
            Self::Write
        } else {
            Self::Exclusive
        }
    }

    /// How a node of this kind holds the lock.
    pub(crate) fn mode(self) -> LockMode {
        match self {
            Self::Read => LockMode::Read,
            Self::Write => LockMode::Write,
            Self::Barrier | Self::Exclusive => LockMode::Exclusive,
        }
    }
}

/// A node that holds the lock or waits for it, or a barrier.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Contender {
    /// `None`, which is before every number, for a simple lock.
    pub(crate) sequence: Option<u64>,
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) share: Option<Share>,
}

impl Contender {
    /// `None` if a child of this name does not contend.
    pub(super) fn named(name: String) -> Option<Self> {
        let sequence = sequence(&name);
        let kind = match sequence {
            Some(_) => Kind::of(&name),
            None if name == SIMPLE => Kind::Exclusive,
            None => return None,
        };
        Some(Self {
            sequence,
            kind,
            share: share(&name),
            name,
        })
    }
}

/// The contenders among the children of a key's node, first come first.
///
/// # Errors
///
/// `Corrupt` if their order is not known.
pub(crate) fn contenders(children: Vec<String>) -> Result<Vec<Contender>, Error> {
    let mut contenders = Vec::with_capacity(children.len());
    for name in children {
        let Some(contender) = Contender::named(name) else {
            continue;
        };
        if contender.sequence >= Some(LAST_SEQUENCE) {
            return Err(Error::corrupt(
                "the sequence numbers of this lock's node are used up; when nobody holds it, delete the node, so that \
                 they begin again",
            ));
        }
        contenders.push(contender);
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
    fn a_contender_that_does_not_say_that_it_reads_wants_to_be_alone() {
        let kinds = [
            ("_c_a-__READ__0000000001", Kind::Read),
            ("_c_a-__WRIT__0000000001", Kind::Write),
            ("_c_a-lock-0000000001", Kind::Exclusive),
            ("a__lock__0000000001", Kind::Exclusive),
            ("__READ__x0000000001", Kind::Exclusive),
            ("é000000001", Kind::Exclusive),
        ];
        for (name, kind) in kinds {
            assert_eq!(Kind::of(name), kind, "{name}");
        }
    }

    #[test]
    fn a_bar_has_the_place_of_its_holder_and_the_name_of_one_that_is_waited_for() {
        for (holder, ends) in [
            ("_c_a-__READ__0000000007", "-__WRIT__0000000007"),
            ("_c_a-__WRIT__0000000007", "-__WRIT__0000000007"),
            ("_c_a-lock-0000000007", "-lock-0000000007"),
            ("a__lock__0000000007", "-lock-0000000007"),
            (SIMPLE, "-lock-0000000000"),
        ] {
            let found = contenders(vec![holder.to_owned()]).unwrap();
            let bar = barrier("0b", &found[0]);
            assert!(bar.starts_with("_c_0b") && bar.ends_with(ends), "{bar}");
            assert_eq!(Kind::of(&bar), Kind::Barrier);
            if holder != SIMPLE {
                assert_eq!(order(&[holder, &bar]), [&*bar, holder]);
            }
        }
    }

    #[test]
    fn nobody_is_first_near_the_end_of_the_sequence_numbers() {
        for name in [
            "_c_a-lock-1000000000",
            "_c_a-lock--2147483648",
            "a__lock__-2000000001",
            "_c_a-lock--999999999",
            "_c_a-__READ__-000000001",
            "_c_a-__WRIT__-000000001",
            "a__lock__-000000001",
        ] {
            let error = contenders(vec![name.to_owned()]).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Corrupt, "{name}");
        }
    }

    #[test]
    fn a_key_that_looks_like_a_contender_is_refused() {
        for key in [
            "jobs-0000000001",
            "a/1234567890",
            "1234567890/a",
            "a/b-lock--000000001",
        ] {
            let error = key_path("/x", &Key::parse(key).unwrap()).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{key}");
        }
        assert_eq!(
            key_path("/x", &Key::parse("a/123456789").unwrap()).unwrap(),
            "/x/a/123456789"
        );
    }

    #[test]
    fn a_nested_key_sorts_after_every_contender_of_the_key_above_it() {
        for (key, path) in [
            ("a/0", "/x/a/~0"),
            ("a/007/-b", "/x/a/~007/~-b"),
            ("a/.b", "/x/a/~.b"),
            ("0/1", "/x/0/1"),
            ("accounts/7", "/x/accounts/7"),
        ] {
            let key = Key::parse(key).unwrap();
            assert_eq!(key_path("/x", &key).unwrap(), path);
            let nodes = path.trim_start_matches("/x/").split('/');
            let first = nodes.clone().take(1);
            let segments: Vec<_> = first.chain(nodes.skip(1).map(nested_segment)).collect();
            assert_eq!(segments.join("/"), key.as_str());
        }
        assert_eq!(nested_segment("~lock"), "~lock");
        assert!("1" > "0999999999" && "~0" > "1999999999");
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

//! [`ZooKeeperAcl`]: who may use the nodes that we make.

use std::ops::BitOr;

use crate::model::error::Error;

/// Who may use the nodes that we make (feature `zookeeper`): `acl=` in a URL.
///
/// All clients of a chroot must admit each other. Clients with different credentials therefore need
/// the same list.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ZooKeeperAcl {
    /// `acl=creator`: only clients with our credentials. The default with credentials.
    Creator,
    /// `acl=open`: everybody. The default without credentials.
    Open,
    /// `acl=digest:alice:HASH:cdrwa,digest:bob:HASH:cdrwa`: these entries, and nobody else. We must
    /// be one of them.
    Entries(Vec<AclEntry>),
}

/// One entry of an access list: `scheme:id:permissions` (feature `zookeeper`).
///
/// The permissions are letters: `c`reate, `d`elete, `r`ead, `w`rite, `a`dminister. A client of the
/// locks needs `cdrw`. For the scheme `digest` the id is `user:HASH`, where `HASH` is the Base64
/// form of the SHA-1 of `user:password`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AclEntry {
    pub(crate) scheme: String,
    pub(crate) id: String,
    pub(crate) permissions: u8,
}

/// The permissions and their bits in ZooKeeper's protocol.
const PERMISSIONS: [(char, u8); 5] = [('r', 1), ('w', 2), ('c', 4), ('d', 8), ('a', 16)];
const ALL: u8 = 31;

impl AclEntry {
    /// Parses `scheme:id:permissions`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if a part is missing or a permission is
    /// unknown.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let invalid = || {
            Error::invalid(
                "an entry of a zookeeper acl is not scheme:id:permissions; write acl=creator, acl=open, or entries like \
                 digest:alice:HASH:cdrwa with commas between them",
            )
        };
        let (scheme, rest) = text.split_once(':').ok_or_else(invalid)?;
        let (id, letters) = rest.rsplit_once(':').ok_or_else(invalid)?;
        let mut permissions = 0;
        for letter in letters.chars() {
            let known = PERMISSIONS.iter().find(|(known, _)| *known == letter);
            permissions |= known.ok_or_else(invalid)?.1;
        }
        if scheme.is_empty() || permissions == 0 {
            return Err(invalid());
        }
        Ok(Self::new(scheme, id, permissions))
    }

    /// The permissions as a client names them: `bits` in the order of the protocol.
    pub(super) fn granted<P: BitOr<Output = P>>(&self, bits: [P; 5], none: P) -> P {
        (bits.into_iter().enumerate())
            .filter(|(bit, _)| self.permissions & (1 << bit) != 0)
            .fold(none, |all, (_, one)| all | one)
    }

    fn new(scheme: &str, id: &str, permissions: u8) -> Self {
        Self {
            scheme: scheme.to_owned(),
            id: id.to_owned(),
            permissions,
        }
    }
}

impl ZooKeeperAcl {
    /// Parses the value of `acl=`.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        match text {
            "creator" => Ok(Self::Creator),
            "open" => Ok(Self::Open),
            _ => {
                let entries: Result<_, _> = text.split(',').map(AclEntry::parse).collect();
                Ok(Self::Entries(entries?))
            }
        }
    }

    /// The entries as the protocol has them.
    pub(crate) fn entries(&self) -> Vec<AclEntry> {
        match self {
            Self::Creator => vec![AclEntry::new("auth", "", ALL)],
            Self::Open => vec![AclEntry::new("world", "anyone", ALL)],
            Self::Entries(entries) => entries.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acl_is_a_word_or_a_list_of_entries() {
        assert_eq!(
            ZooKeeperAcl::parse("creator").unwrap(),
            ZooKeeperAcl::Creator
        );
        assert_eq!(ZooKeeperAcl::parse("open").unwrap(), ZooKeeperAcl::Open);
        let list = ZooKeeperAcl::parse("digest:alice:a+/b=:cdrwa,ip:10.0.0.0/8:r").unwrap();
        let expected = [
            AclEntry::new("digest", "alice:a+/b=", ALL),
            AclEntry::new("ip", "10.0.0.0/8", 1),
        ];
        assert_eq!(list.entries(), expected);
        for wrong in [
            "",
            "closed",
            "digest:alice",
            "digest:alice:x:",
            "digest:a:b:cdx",
            ":a:r",
        ] {
            assert!(ZooKeeperAcl::parse(wrong).is_err(), "{wrong}");
        }
    }
}

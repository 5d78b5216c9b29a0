//! A [`Line`] as bytes, with its key and its last token.

use std::time::Duration;

use crate::model::holder::{Label, OwnerToken};
use crate::model::key::Key;
use crate::model::span::nanos;
use crate::model::token::FencingToken;
use crate::store::{Claim, Held, Line, LockMode, Origin, Place, Row, Share};

/// What the file of a key says.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Record {
    /// The last token of the key that was issued.
    pub(super) last_token: u64,
    pub(super) line: Line,
}

/// By how many bytes a place grows when it becomes a hold.
pub(super) const GROWS: usize = 17;

/// The mode of a reader with a share, which follows.
const SHARE: u8 = 3;

pub(super) fn encode(key: &Key, record: &Record) -> Vec<u8> {
    let mut to = Vec::with_capacity(256);
    put_text(&mut to, key.as_str());
    put(&mut to, record.last_token);
    let Line {
        holders,
        places,
        barred,
        rests,
        revoked,
    } = &record.line;
    put(&mut to, holders.len() as u64);
    for held in holders.iter() {
        put_claim(&mut to, &held.claim);
        put(&mut to, held.token.number());
        put_time(&mut to, held.since);
        put_time(&mut to, held.ends);
        put_origin(&mut to, held.origin);
        to.push(u8::from(held.is_handover));
    }
    put(&mut to, places.len() as u64);
    for place in places.iter() {
        put_claim(&mut to, &place.claim);
        put_time(&mut to, place.ends);
        put_origin(&mut to, place.origin);
    }
    for until in [barred, rests] {
        to.push(u8::from(until.is_some()));
        put_time(&mut to, until.unwrap_or_default());
    }
    put(&mut to, revoked.len() as u64);
    for (owner, until) in revoked {
        to.extend_from_slice(owner.as_bytes());
        put_time(&mut to, *until);
    }
    to
}

/// `None` if these are not the bytes of this key.
pub(super) fn decode(key: &Key, bytes: &[u8]) -> Option<Record> {
    let mut from = Reader(bytes);
    if from.text()? != key.as_str() {
        return None;
    }
    let last_token = from.number()?;
    let holders = from.list(|from| {
        Some(Held {
            claim: from.claim(key)?,
            token: FencingToken::new(from.number()?).ok()?,
            since: from.time()?,
            ends: from.time()?,
            origin: from.origin()?,
            is_handover: from.flag()?,
        })
    })?;
    let places = from.list(|from| {
        Some(Place {
            claim: from.claim(key)?,
            ends: from.time()?,
            origin: from.origin()?,
        })
    })?;
    let (barred, rests) = (from.until()?, from.until()?);
    let revoked = from.list(|from| Some((OwnerToken::from_bytes(from.bytes()?), from.time()?)))?;
    let line = Line {
        holders: Row::from_iter(holders),
        places: Row::from_iter(places),
        barred,
        rests,
        revoked,
    };
    from.0.is_empty().then_some(Record { last_token, line })
}

fn put(to: &mut Vec<u8>, number: u64) {
    to.extend_from_slice(&number.to_le_bytes());
}

/// A time that is too long for the format, 584 years, is cut off.
fn put_time(to: &mut Vec<u8>, time: Duration) {
    put(to, nanos(time));
}

fn put_text(to: &mut Vec<u8>, text: &str) {
    put(to, text.len() as u64);
    to.extend_from_slice(text.as_bytes());
}

fn put_origin(to: &mut Vec<u8>, origin: Origin) {
    put(to, origin.process);
    to.push(u8::from(origin.ends_with_process));
}

fn put_claim(to: &mut Vec<u8>, claim: &Claim) {
    to.extend_from_slice(claim.owner.as_bytes());
    put_text(to, claim.label.record());
    put_time(to, claim.ttl);
    put_time(to, claim.place_ttl);
    to.push(match (claim.mode, claim.share) {
        (_, Some(_)) => SHARE,
        (LockMode::Exclusive, None) => 0,
        (LockMode::Read, None) => 1,
        (LockMode::Write, None) => 2,
    });
    if let Some(Share { permits, of }) = claim.share {
        put(to, permits.into());
        put(to, of.into());
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn number(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn time(&mut self) -> Option<Duration> {
        self.number().map(Duration::from_nanos)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.bytes()? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    /// A time, if there is one.
    fn until(&mut self) -> Option<Option<Duration>> {
        let (is_set, until) = (self.flag()?, self.time()?);
        Some(is_set.then_some(until))
    }

    fn text(&mut self) -> Option<&'a str> {
        let len = usize::try_from(self.number()?).ok()?;
        std::str::from_utf8(self.take(len)?).ok()
    }

    fn origin(&mut self) -> Option<Origin> {
        Some(Origin {
            process: self.number()?,
            ends_with_process: self.flag()?,
        })
    }

    fn claim(&mut self, key: &Key) -> Option<Claim> {
        let owner = OwnerToken::from_bytes(self.bytes()?);
        let label = Label::from_record(self.text()?).ok()?;
        let mut claim = Claim::new(key.clone(), owner, label, self.time()?);
        claim.place_ttl = self.time()?;
        let mode = self.bytes()?;
        if mode == [SHARE] {
            let mut number = || u32::try_from(self.number()?).ok();
            let (permits, of) = (number()?, number()?);
            claim.share = Some(Share { permits, of });
        }
        claim.mode = match mode {
            [0] => LockMode::Exclusive,
            [1] => LockMode::Read,
            [2] => LockMode::Write,
            [SHARE] => LockMode::Read,
            _ => return None,
        };
        Some(claim)
    }

    fn list<T>(&mut self, one: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.number()?;
        (0..count).map(|_| one(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(key: &Key, mode: LockMode) -> Claim {
        let owner = OwnerToken::generate().unwrap();
        let label = Label::parse("host:7, märz").unwrap();
        let label = label.with_purpose("a report").unwrap();
        let mut claim = Claim::new(key.clone(), owner, label, Duration::from_secs(10));
        claim.mode = mode;
        claim
    }

    fn record(key: &Key) -> Record {
        let origin = Origin {
            process: u64::MAX,
            ends_with_process: true,
        };
        let modes = [LockMode::Exclusive, LockMode::Read, LockMode::Write];
        let share = |claim: Claim| Claim {
            share: (claim.mode == LockMode::Read).then_some(Share {
                permits: 3,
                of: u32::MAX,
            }),
            ..claim
        };
        Record {
            last_token: 9,
            line: Line {
                holders: Row::from_iter(modes.map(|mode| Held {
                    claim: claim(key, mode),
                    token: FencingToken::MAX,
                    since: Duration::from_secs(1),
                    ends: Duration::from_nanos(u64::MAX),
                    origin,
                    is_handover: true,
                })),
                places: Row::from_iter(modes.map(|mode| Place {
                    claim: share(claim(key, mode)),
                    ends: Duration::from_secs(3),
                    origin: Origin::default(),
                })),
                barred: Some(Duration::from_secs(4)),
                rests: Some(Duration::from_secs(6)),
                revoked: vec![(OwnerToken::generate().unwrap(), Duration::from_secs(5))],
            },
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let key = Key::parse("a/b").unwrap();
        for record in [Record::default(), record(&key)] {
            assert_eq!(decode(&key, &encode(&key, &record)), Some(record));
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        let key = Key::parse("a/b").unwrap();
        let bytes = encode(&key, &record(&key));
        for len in 0..bytes.len() {
            assert_eq!(decode(&key, &bytes[..len]), None, "cut to {len}");
        }
        let other = Key::parse("a/c").unwrap();
        assert_eq!(decode(&other, &bytes), None);
        assert_eq!(decode(&key, &[&bytes[..], b"x"].concat()), None);
        assert_eq!(decode(&key, &[0xFF; 200]), None);
    }
}

//! [`Holds`]: what the judges know of the holds in the server: read from its keys, and from what it
//! forgot.

use std::collections::BTreeMap;

use leasehold::{FencingToken, Key};

use super::keys::{Keys, Value};
use super::resp::Reply;
use super::{EPOCH, Redis};
use crate::net::Op;
use crate::state::State;
use crate::truth::{Owner, in_truth, on_clock};

/// The last hold of each lock that the server granted, and what it has forgotten.
#[derive(Default)]
pub(super) struct Holds {
    /// The token of the newest grant, and when it was granted.
    granted: BTreeMap<(String, u64), u64>,
    /// Until which millisecond the server would have kept a hold that it lost with its data.
    forgotten: BTreeMap<(String, u64), i64>,
    /// The same for locks that nobody could be granted.
    barred: BTreeMap<String, i64>,
}

const READERS: &[u8] = b"leasehold:readers";
const BARRED: &[u8] = b"leasehold:barred";

/// What a lock's key says.
enum Held {
    By(Vec<u64>),
    Barred,
}

fn number(bytes: &[u8]) -> Option<u64> {
    let digits = bytes.split(|byte| *byte == b' ').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

impl Keys {
    /// Whether somebody holds the lock of this name, and under which tokens.
    fn held(&self, name: &str, now: i64) -> Option<(Held, i64)> {
        let entry = self.get(name.as_bytes(), now)?;
        let Value::Text(text) = &entry.value else {
            return None;
        };
        let end = entry.end.unwrap_or(i64::MAX / 4);
        if text == BARRED {
            return Some((Held::Barred, end));
        }
        if text == READERS {
            let grants = self.get(format!("{name}{{{name}}}:grants").as_bytes(), now);
            let Some(Value::Hash(fields)) = grants.map(|entry| &entry.value) else {
                return Some((Held::By(Vec::new()), end));
            };
            // Beside the grants, by owner, is the sum of all shares.
            let grants = fields.iter().filter(|(owner, _)| owner.len() == 32);
            let tokens = grants.filter_map(|(_, grant)| number(grant)).collect();
            return Some((Held::By(tokens), end));
        }
        let token = (text.len() > 33).then(|| number(&text[33..])).flatten()?;
        Some((Held::By(vec![token]), end))
    }

    /// Until when the hold of a reader lasts.
    fn reads_until(&self, name: &str, token: u64, now: i64) -> Option<i64> {
        let grants = self.get(format!("{name}{{{name}}}:grants").as_bytes(), now)?;
        let readers = self.get(format!("{name}{{{name}}}:readers").as_bytes(), now)?;
        let (Value::Hash(fields), Value::Sorted(members)) = (&grants.value, &readers.value) else {
            return None;
        };
        let is_its = |grant: &[u8]| number(grant) == Some(token);
        let (owner, _) = fields.iter().find(|(_, grant)| is_its(grant))?;
        let (end, _) = members.iter().find(|(_, member)| member == owner)?;
        // A score is the first millisecond after the hold.
        Some(*end as i64 - 1)
    }

    /// The last millisecond in which nobody else is granted what a hold keeps.
    fn end_of(&self, name: &str, token: u64, now: i64) -> i64 {
        match self.held(name, now) {
            Some((Held::Barred, end)) => end,
            Some((Held::By(tokens), end)) if tokens.contains(&token) => {
                let shared = self.get(name.as_bytes(), now).is_some_and(
                    |entry| matches!(&entry.value, Value::Text(text) if text == READERS),
                );
                if shared {
                    self.reads_until(name, token, now).unwrap_or(0)
                } else {
                    end
                }
            }
            _ => 0,
        }
    }

    /// The lock that a claim holds, and whether others may hold it too.
    fn lock_of(&self, owner: &[u8], now: i64) -> Option<(String, bool)> {
        self.locks(now).into_iter().find_map(|name| {
            let entry = self.get(name.as_bytes(), now)?;
            if matches!(&entry.value, Value::Text(text) if text.starts_with(owner)) {
                return Some((name, false));
            }
            let grants = self.get(format!("{name}{{{name}}}:grants").as_bytes(), now)?;
            let Value::Hash(fields) = &grants.value else {
                return None;
            };
            let is_reader = fields.iter().any(|(field, _)| field == owner);
            is_reader.then_some((name, true))
        })
    }

    /// The locks whose keys are there.
    fn locks(&self, now: i64) -> Vec<String> {
        let names = self
            .live(now)
            .map(|(name, _)| String::from_utf8_lossy(name).into_owned());
        names.filter(|name| !name.contains('{')).collect()
    }
}

impl Redis {
    fn millis(&self, now: u64) -> i64 {
        (self.micros(now) / 1_000) as i64
    }

    /// For how much true time nobody else is granted what the hold with a token keeps.
    pub(crate) fn kept(&self, key: &Key, token: u64, now: u64) -> u64 {
        let (name, keys) = (key.as_str(), &self.server.database.keys);
        let known = (name.to_owned(), token);
        let forgotten = self.holds.forgotten.get(&known).copied().unwrap_or(0);
        let barred = self.holds.barred.get(name).copied().unwrap_or(0);
        let end = keys.end_of(name, token, self.millis(now));
        let end = u64::try_from(end.max(forgotten).max(barred) + 1).unwrap_or_default();
        let left = (end * 1_000_000).saturating_sub(EPOCH * 1_000 + on_clock(now, self.ppm));
        in_truth(left, self.ppm)
    }

    /// A hold that was granted a while ago, for which `is_known` knows no token.
    pub(crate) fn unclaimed(&self, now: u64, is_known: impl Fn(&Key, u64) -> bool) -> Option<Key> {
        let (keys, millis) = (&self.server.database.keys, self.millis(now));
        for name in keys.locks(millis) {
            let Some((Held::By(tokens), _)) = keys.held(&name, millis) else {
                continue;
            };
            let key = Key::parse(&name).ok()?;
            let is_old = |token: u64| {
                let since = self.holds.granted.get(&(name.clone(), token));
                since.is_some_and(|since| since + 1_500_000_000 < now)
            };
            let is_lost = |token: u64| is_old(token) && !is_known(&key, token);
            if tokens.into_iter().any(is_lost) {
                return Some(key);
            }
        }
        None
    }

    /// The data are replaced by `change`. True if what was held is forgotten, or kept for a shorter
    /// time.
    pub(super) fn lose(&mut self, now: u64, change: impl FnOnce(&mut Self)) -> bool {
        let millis = self.millis(now);
        let keys = &self.server.database.keys;
        let mut before = Vec::new();
        for name in keys.locks(millis) {
            match keys.held(&name, millis) {
                Some((Held::By(tokens), _)) => {
                    let ends = tokens
                        .iter()
                        .map(|&token| (token, keys.end_of(&name, token, millis)));
                    before.extend(ends.map(|(token, end)| (name.clone(), token, end)));
                }
                Some((Held::Barred, end)) => {
                    let known = self.holds.barred.entry(name).or_default();
                    *known = end.max(*known);
                }
                None => {}
            }
        }
        change(self);
        let keys = &self.server.database.keys;
        before.retain(|(name, token, end)| keys.end_of(name, *token, millis) < *end);
        let has_lost = !before.is_empty();
        for (name, token, end) in before {
            // A snapshot may have brought it back for a shorter time.
            let known = self.holds.forgotten.entry((name, token)).or_default();
            *known = end.max(*known);
        }
        has_lost
    }
}

impl State {
    /// What a judge learns from what the command of a process published: the next in line may have
    /// been granted by it.
    pub(super) fn redis_published(&mut self, node: usize) {
        let now = self.now;
        for (_, message) in std::mem::take(&mut self.redis().server.published) {
            let Some((digits, token)) = called(&message) else {
                continue;
            };
            let redis = self.redis();
            let millis = redis.millis(now);
            let held = redis.server.database.keys.lock_of(digits, millis);
            let lock = held.and_then(|(name, shared)| Some((Key::parse(&name).ok()?, shared)));
            if let (Some(owner), Some((key, is_shared))) = (owner_of(digits), lock) {
                self.coverage.sometimes("a message granted");
                self.redis_granted(node, owner, &key, token, is_shared);
            }
        }
    }

    fn redis_granted(
        &mut self,
        node: usize,
        owner: Owner,
        key: &Key,
        token: FencingToken,
        is_shared: bool,
    ) {
        let (now, number) = (self.now, token.number());
        let place = (key.as_str().to_owned(), number);
        self.redis().holds.granted.entry(place).or_insert(now);
        self.log.note(now, "grant", [node as u64, number, 0]);
        // Several readers may be granted at once, and learn of it in any order.
        if let Err(why) = self.truth.granted(owner, key, token)
            && !is_shared
        {
            self.fail("O9 tokens grow", || why);
        }
    }

    /// What a judge learns from the answer to a command of a process.
    pub(super) fn redis_answered(&mut self, node: usize, words: &[Vec<u8>], reply: &Reply) {
        if let Some((owner, key, token, is_shared)) = granted(words, reply) {
            self.redis_granted(node, owner, &key, token, is_shared);
        }
        if let Some(op) = effect(reply) {
            self.aim(node, op);
        }
    }
}

/// Whether a process will believe in something, or no longer.
fn effect(reply: &Reply) -> Option<Op> {
    match reply {
        Reply::Bulk(text) if text.starts_with(b"granted ") => Some(Op::Acquire),
        Reply::Bulk(text) if !text.is_empty() && text.iter().all(|byte| b"01!?".contains(byte)) => {
            Some(Op::Renew)
        }
        Reply::Int(1) => Some(Op::Release),
        _ => None,
    }
}

/// The claim, its lock and its token if a script has granted it, and whether others may hold too.
fn granted(words: &[Vec<u8>], reply: &Reply) -> Option<(Owner, Key, FencingToken, bool)> {
    let (Reply::Bulk(text), [_, _, count, lock, ..]) = (reply, words) else {
        return None;
    };
    let token = number(text.strip_prefix(b"granted ")?)?;
    let args = 3 + usize::try_from(number(count)?).ok()?;
    let claim = words.get(args)?;
    let owner = owner_of(claim.get(..32)?)?;
    let key = Key::parse(std::str::from_utf8(lock).ok()?).ok()?;
    Some((
        owner,
        key,
        FencingToken::new(token).ok()?,
        claim.get(33) == Some(&b'r'),
    ))
}

/// The digits of the claim and its token, if this message grants.
fn called(message: &[u8]) -> Option<(&[u8], FencingToken)> {
    let token = FencingToken::new(number(message.get(33..)?)?).ok()?;
    Some((message.get(..32)?, token))
}

fn owner_of(digits: &[u8]) -> Option<Owner> {
    let digits = std::str::from_utf8(digits).ok()?;
    Some(u128::from_str_radix(digits, 16).ok()?.to_be_bytes())
}

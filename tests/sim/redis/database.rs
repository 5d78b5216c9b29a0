//! [`Database`]: the commands that read and write keys, and those that tell about the server. A
//! script may ask them all.

use super::keys::{Field, Keys, Value};
use super::resp::Reply;

/// The keys, the time at which a command or a whole script is executed, and what it publishes.
#[derive(Clone, Default, Debug)]
pub(crate) struct Database {
    pub(crate) keys: Keys,
    /// Since 1970, by the clock of the server.
    pub(crate) micros: u64,
    pub(crate) published: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) about: About,
}

/// What a server says about itself.
#[derive(Clone, Default, Debug)]
pub(crate) struct About {
    pub(crate) run_id: String,
    /// Of its data: new with each start.
    pub(crate) data_id: String,
    pub(crate) started: u64,
}

type Answer = Result<Reply, String>;

fn wrong_type() -> String {
    "WRONGTYPE Operation against a key holding the wrong kind of value".to_owned()
}

fn syntax() -> String {
    "ERR syntax error".to_owned()
}

fn word(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).to_ascii_uppercase()
}

fn int(bytes: &[u8]) -> Result<i64, String> {
    let text = std::str::from_utf8(bytes).ok();
    let number = text.and_then(|text| text.parse().ok());
    number.ok_or_else(|| "ERR value is not an integer or out of range".to_owned())
}

fn score(bytes: &[u8]) -> Result<f64, String> {
    let text = std::str::from_utf8(bytes).ok();
    let number = text.and_then(|text| text.parse().ok());
    number.ok_or_else(|| "ERR value is not a valid float".to_owned())
}

/// A score as a server writes it.
fn shown(score: f64) -> Reply {
    Reply::text(format!("{score}"))
}

/// A bound of a range, and whether it is left out.
fn bound(bytes: &[u8]) -> Result<(f64, bool), String> {
    match bytes {
        b"-inf" => Ok((f64::NEG_INFINITY, false)),
        b"+inf" => Ok((f64::INFINITY, false)),
        [b'(', rest @ ..] => Ok((score(rest)?, true)),
        all => Ok((score(all)?, false)),
    }
}

impl Database {
    /// In milliseconds.
    pub(crate) fn now(&self) -> i64 {
        (self.micros / 1_000) as i64
    }

    /// Executes one command.
    pub(crate) fn call(&mut self, words: &[Vec<u8>]) -> Reply {
        self.answer(words).unwrap_or_else(Reply::Error)
    }

    fn answer(&mut self, words: &[Vec<u8>]) -> Answer {
        let [name, args @ ..] = words else {
            return Err("ERR no command".to_owned());
        };
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        match (word(name).as_str(), args.as_slice()) {
            ("PING", []) => Ok(Reply::Status("PONG")),
            ("TIME", []) => {
                let (seconds, micros) = (self.micros / 1_000_000, self.micros % 1_000_000);
                let parts = [seconds, micros].map(|part| Reply::text(part.to_string()));
                Ok(Reply::Array(parts.into()))
            }
            ("INFO", sections) => Ok(Reply::text(self.info(sections))),
            ("PUBLISH", [channel, message]) => {
                self.published.push((channel.to_vec(), message.to_vec()));
                Ok(Reply::Int(0))
            }
            ("GET", [key]) => self.get(key),
            ("SET", [key, value, how @ ..]) => self.set(key, value, how),
            ("DEL", keys) => Ok(self.delete(keys)),
            ("INCR", [key]) => self.increment(key),
            ("EXISTS", keys) => {
                let present = keys
                    .iter()
                    .filter(|key| self.keys.get(key, self.now()).is_some());
                Ok(Reply::Int(present.count() as i64))
            }
            ("PTTL", [key]) => Ok(Reply::Int(self.left(key))),
            ("PEXPIRE", [key, span]) => {
                let end = self.now() + int(span)?;
                Ok(self.expire(key, end))
            }
            ("PEXPIREAT", [key, end]) => {
                let end = int(end)?;
                Ok(self.expire(key, end))
            }
            (command, [key, rest @ ..]) if command.starts_with('H') => {
                self.of_hash(command, key, rest)
            }
            (command, [key, rest @ ..]) if command.starts_with('Z') => {
                self.of_sorted(command, key, rest)
            }
            (command, _) => Err(format!(
                "ERR unknown command '{command}' of a simulated server"
            )),
        }
    }

    fn info(&self, sections: &[&[u8]]) -> String {
        let About {
            run_id,
            data_id,
            started,
        } = &self.about;
        let uptime = self.micros / 1_000_000 - started / 1_000_000;
        let none = "0".repeat(40);
        let server = format!(
            "# Server\r\nredis_version:7.0.15\r\nrun_id:{run_id}\r\nuptime_in_seconds:{uptime}\r\n"
        );
        let replication = format!(
            "# Replication\r\nrole:master\r\nconnected_slaves:0\r\nmaster_replid:{data_id}\r\nmaster_replid2:{none}\r\n"
        );
        let persistence = "# Persistence\r\nloading:0\r\n".to_owned();
        let memory = "# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n".to_owned();
        match sections {
            [b"server"] => server,
            [b"replication"] => replication,
            _ => server + &replication + &persistence + &memory,
        }
    }

    fn get(&self, key: &[u8]) -> Answer {
        match self.keys.get(key, self.now()).map(|entry| &entry.value) {
            None => Ok(Reply::Nil),
            Some(Value::Text(text)) => Ok(Reply::Bulk(text.clone())),
            Some(_) => Err(wrong_type()),
        }
    }

    fn set(&mut self, key: &[u8], value: &[u8], how: &[&[u8]]) -> Answer {
        let present = self.keys.get(key, self.now());
        let (mut end, mut rest) = (None, how.iter());
        let mut is_met = true;
        while let Some(how) = rest.next() {
            match word(how).as_str() {
                "NX" => is_met &= present.is_none(),
                "XX" => is_met &= present.is_some(),
                "KEEPTTL" => end = present.and_then(|entry| entry.end),
                "PX" => {
                    let span = int(rest.next().ok_or_else(syntax)?)?;
                    if span <= 0 {
                        return Err("ERR invalid expire time in 'set' command".to_owned());
                    }
                    end = Some(self.now() + span);
                }
                _ => return Err(syntax()),
            }
        }
        if !is_met {
            return Ok(Reply::Nil);
        }
        self.keys.put(key, Value::Text(value.to_vec()), end);
        Ok(Reply::Status("OK"))
    }

    fn increment(&mut self, key: &[u8]) -> Answer {
        let number = match self.get(key)? {
            Reply::Bulk(text) => int(&text)?,
            _ => 0,
        };
        let end = self.keys.get(key, self.now()).and_then(|entry| entry.end);
        let text = (number + 1).to_string().into_bytes();
        self.keys.put(key, Value::Text(text), end);
        Ok(Reply::Int(number + 1))
    }

    fn delete(&mut self, keys: &[&[u8]]) -> Reply {
        let now = self.now();
        let gone = keys.iter().filter(|key| self.keys.remove(key, now));
        Reply::Int(gone.count() as i64)
    }

    fn left(&self, key: &[u8]) -> i64 {
        match self.keys.get(key, self.now()) {
            None => -2,
            Some(entry) => entry.end.map_or(-1, |end| end - self.now()),
        }
    }

    fn expire(&mut self, key: &[u8], end: i64) -> Reply {
        let now = self.now();
        let Some(entry) = self.keys.get_mut(key, now) else {
            return Reply::Int(0);
        };
        entry.end = Some(end);
        if end <= now {
            self.keys.remove(key, now);
        }
        Reply::Int(1)
    }

    fn hash(&self, key: &[u8]) -> Result<&[Field], String> {
        match self.keys.get(key, self.now()).map(|entry| &entry.value) {
            None => Ok(&[]),
            Some(Value::Hash(fields)) => Ok(fields),
            Some(_) => Err(wrong_type()),
        }
    }

    fn field(&self, key: &[u8], field: &[u8]) -> Result<Option<&Vec<u8>>, String> {
        let fields = self.hash(key)?;
        Ok(fields
            .iter()
            .find(|(name, _)| name == field)
            .map(|(_, value)| value))
    }

    /// Changes a hash; one without fields is gone. Returns what the change returns.
    fn change_hash<T>(&mut self, key: &[u8], change: impl FnOnce(&mut Vec<Field>) -> T) -> T {
        let now = self.now();
        let end = self.keys.get(key, now).and_then(|entry| entry.end);
        let mut fields = self.hash(key).map(<[_]>::to_vec).unwrap_or_default();
        let changed = change(&mut fields);
        if fields.is_empty() {
            self.keys.remove(key, now);
        } else {
            self.keys.put(key, Value::Hash(fields), end);
        }
        changed
    }

    fn of_hash(&mut self, command: &str, key: &[u8], args: &[&[u8]]) -> Answer {
        self.hash(key)?;
        match (command, args) {
            ("HGET", [field]) => {
                let value = self.field(key, field)?;
                Ok(value.map_or(Reply::Nil, |value| Reply::Bulk(value.clone())))
            }
            ("HLEN", []) => Ok(Reply::Int(self.hash(key)?.len() as i64)),
            ("HGETALL", []) => {
                let fields = self.hash(key)?.iter();
                let both = fields.flat_map(|(name, value)| [name, value]);
                Ok(Reply::Array(
                    both.map(|text| Reply::Bulk(text.clone())).collect(),
                ))
            }
            ("HSET", pairs) if !pairs.is_empty() && pairs.len() % 2 == 0 => {
                let new = pairs
                    .chunks(2)
                    .filter(|pair| self.put_field(key, pair[0], pair[1]));
                let new: Vec<_> = new.collect();
                Ok(Reply::Int(new.len() as i64))
            }
            ("HDEL", fields) => {
                let gone = self.change_hash(key, |known| {
                    let before = known.len();
                    known.retain(|(name, _)| !fields.contains(&name.as_slice()));
                    before - known.len()
                });
                Ok(Reply::Int(gone as i64))
            }
            _ => Err(format!(
                "ERR unknown command '{command}' of a simulated server"
            )),
        }
    }

    /// True if it is new.
    fn put_field(&mut self, key: &[u8], field: &[u8], value: &[u8]) -> bool {
        self.change_hash(key, |fields| {
            let known = fields.iter_mut().find(|(name, _)| name == field);
            let is_new = known.is_none();
            match known {
                Some((_, known)) => *known = value.to_vec(),
                None => fields.push((field.to_vec(), value.to_vec())),
            }
            is_new
        })
    }

    fn sorted(&self, key: &[u8]) -> Result<&[(f64, Vec<u8>)], String> {
        match self.keys.get(key, self.now()).map(|entry| &entry.value) {
            None => Ok(&[]),
            Some(Value::Sorted(members)) => Ok(members),
            Some(_) => Err(wrong_type()),
        }
    }

    fn of_sorted(&mut self, command: &str, key: &[u8], args: &[&[u8]]) -> Answer {
        self.sorted(key)?;
        match (command, args) {
            ("ZSCORE", [member]) => {
                let mut members = self.sorted(key)?.iter();
                let known = members.find(|(_, known)| known == member);
                Ok(known.map_or(Reply::Nil, |(score, _)| shown(*score)))
            }
            ("ZCARD", []) => Ok(Reply::Int(self.sorted(key)?.len() as i64)),
            ("ZCOUNT", [least, most]) => {
                Ok(Reply::Int(self.between(key, least, most)?.len() as i64))
            }
            ("ZADD", [number, member]) => {
                let number = score(number)?;
                let is_new = self.change_sorted(key, |members| {
                    let before = members.len();
                    members.retain(|(_, known)| known != member);
                    let is_new = members.len() == before;
                    members.push((number, member.to_vec()));
                    is_new
                });
                Ok(Reply::Int(is_new.into()))
            }
            ("ZREM", gone) if !gone.is_empty() => {
                let gone = self.change_sorted(key, |members| {
                    let before = members.len();
                    members.retain(|(_, known)| !gone.contains(&known.as_slice()));
                    before - members.len()
                });
                Ok(Reply::Int(gone as i64))
            }
            ("ZRANGE", [first, last, how @ ..]) => {
                let members = self.sorted(key)?;
                let count = members.len() as i64;
                let place = |at: i64| if at < 0 { at + count } else { at };
                let (first, last) = (place(int(first)?).max(0), place(int(last)?).min(count - 1));
                let range = members.iter().enumerate();
                let range = range.filter(|(at, _)| (first..=last).contains(&(*at as i64)));
                listed(range.map(|(_, member)| member), how)
            }
            ("ZRANGEBYSCORE", [least, most, how @ ..]) => {
                let found = self.between(key, least, most)?;
                match how {
                    [limit, first, count] if word(limit) == "LIMIT" => {
                        let (first, count) = (int(first)? as usize, int(count)? as usize);
                        listed(found.iter().skip(first).take(count), &[])
                    }
                    how => listed(found.iter(), how),
                }
            }
            _ => Err(format!(
                "ERR unknown command '{command}' of a simulated server"
            )),
        }
    }

    fn between(
        &self,
        key: &[u8],
        least: &[u8],
        most: &[u8],
    ) -> Result<Vec<(f64, Vec<u8>)>, String> {
        let ((least, no_least), (most, no_most)) = (bound(least)?, bound(most)?);
        let is_in = |score: f64| {
            let is_enough = score > least || score == least && !no_least;
            is_enough && (score < most || score == most && !no_most)
        };
        let members = self.sorted(key)?.iter();
        Ok(members
            .filter(|(score, _)| is_in(*score))
            .cloned()
            .collect())
    }

    fn change_sorted<T>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut Vec<(f64, Vec<u8>)>) -> T,
    ) -> T {
        let now = self.now();
        let end = self.keys.get(key, now).and_then(|entry| entry.end);
        let mut members = self.sorted(key).map(<[_]>::to_vec).unwrap_or_default();
        let changed = change(&mut members);
        members.sort_by(|(a, one), (b, other)| a.total_cmp(b).then_with(|| one.cmp(other)));
        if members.is_empty() {
            self.keys.remove(key, now);
        } else {
            self.keys.put(key, Value::Sorted(members), end);
        }
        changed
    }
}

fn listed<'a>(members: impl Iterator<Item = &'a (f64, Vec<u8>)>, how: &[&[u8]]) -> Answer {
    let with_scores = match how {
        [] => false,
        [how] if word(how) == "WITHSCORES" => true,
        _ => return Err(syntax()),
    };
    let mut parts = Vec::new();
    for (score, member) in members {
        parts.push(Reply::Bulk(member.clone()));
        if with_scores {
            parts.push(shown(*score));
        }
    }
    Ok(Reply::Array(parts))
}

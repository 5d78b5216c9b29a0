//! [`Server`]: one run of a server: its database, the scripts that it knows, and who is subscribed
//! to what.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::database::Database;
use super::lua;
use super::resp::Reply;

/// One process.
#[derive(Default, Debug)]
pub(crate) struct Server {
    pub(crate) database: Database,
    /// By hash. Neither copied nor persisted.
    scripts: BTreeMap<String, Arc<[u8]>>,
    channels: BTreeMap<Vec<u8>, BTreeSet<u64>>,
    /// What was published by the last command, whether or not anybody hears it.
    pub(crate) published: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Server {
    /// Executes one command of a connection. Returns what is sent to whom, in this order.
    pub(crate) fn execute(&mut self, connection: u64, words: &[Vec<u8>]) -> Vec<(u64, Reply)> {
        let [name, args @ ..] = words else {
            return Vec::new();
        };
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        match (name.as_str(), args) {
            ("SUBSCRIBE", channels) => return self.subscribe(connection, channels),
            ("UNSUBSCRIBE", channels) => return self.unsubscribe(connection, channels),
            _ => {}
        }
        let reply = match (name.as_str(), args) {
            ("HELLO", _) => hello(),
            ("CLIENT" | "SELECT", _) => Reply::Status("OK"),
            ("CONFIG", _) => self.settings(),
            ("SCRIPT", [how, text]) if how.eq_ignore_ascii_case(b"load") => {
                Reply::Bulk(self.learn(text).into_bytes())
            }
            ("SCRIPT", [how, hashes @ ..]) if how.eq_ignore_ascii_case(b"exists") => {
                let is_known = |one: &Vec<u8>| {
                    let hash = String::from_utf8_lossy(one).to_ascii_lowercase();
                    self.scripts.contains_key(&hash)
                };
                let known = hashes.iter().map(|one| Reply::Int(is_known(one).into()));
                Reply::Array(known.collect())
            }
            ("SCRIPT", [how]) if how.eq_ignore_ascii_case(b"flush") => {
                self.forget_scripts();
                Reply::Status("OK")
            }
            ("EVALSHA", [hash, rest @ ..]) => {
                let hash = String::from_utf8_lossy(hash).to_ascii_lowercase();
                match self.scripts.get(&hash).cloned() {
                    Some(text) => self.evaluate(&hash, &text, rest),
                    None => {
                        Reply::Error("NOSCRIPT No matching script. Please use EVAL.".to_owned())
                    }
                }
            }
            ("EVAL", [text, rest @ ..]) => {
                let hash = self.learn(text);
                self.evaluate(&hash, text, rest)
            }
            _ => self.database.call(words),
        };
        let mut said = self.publish();
        said.push((connection, reply));
        said
    }

    /// The hash of a script that the server knows from now on.
    fn learn(&mut self, text: &[u8]) -> String {
        let hash = sha1_smol::Sha1::from(text).digest().to_string();
        self.scripts.insert(hash.clone(), Arc::from(text));
        hash
    }

    fn evaluate(&mut self, hash: &str, text: &[u8], rest: &[Vec<u8>]) -> Reply {
        let [count, rest @ ..] = rest else {
            return Reply::Error("ERR wrong number of arguments".to_owned());
        };
        let count = String::from_utf8_lossy(count)
            .parse::<usize>()
            .unwrap_or_default();
        let (keys, args) = rest.split_at(count.min(rest.len()));
        lua::run(&mut self.database, hash, text, keys, args)
    }

    fn settings(&self) -> Reply {
        let pairs = [("repl-backlog-ttl", "3600")];
        let pair = |(name, value): (&str, &str)| (Reply::text(name), Reply::text(value));
        Reply::Map(pairs.map(pair).into())
    }

    pub(crate) fn forget_scripts(&mut self) {
        self.scripts.clear();
    }

    /// A connection has ended.
    pub(crate) fn forget(&mut self, connection: u64) {
        for subscribed in self.channels.values_mut() {
            subscribed.remove(&connection);
        }
    }

    fn subscribe(&mut self, connection: u64, channels: &[Vec<u8>]) -> Vec<(u64, Reply)> {
        let mut said = Vec::new();
        for channel in channels {
            let subscribed = self.channels.entry(channel.clone()).or_default();
            subscribed.insert(connection);
            said.push((connection, self.confirmed("subscribe", connection, channel)));
        }
        said
    }

    fn unsubscribe(&mut self, connection: u64, channels: &[Vec<u8>]) -> Vec<(u64, Reply)> {
        let mut said = Vec::new();
        for channel in channels {
            if let Some(subscribed) = self.channels.get_mut(channel) {
                subscribed.remove(&connection);
            }
            said.push((
                connection,
                self.confirmed("unsubscribe", connection, channel),
            ));
        }
        said
    }

    fn confirmed(&self, what: &str, connection: u64, channel: &[u8]) -> Reply {
        let all = self.channels.values();
        let count = all
            .filter(|subscribed| subscribed.contains(&connection))
            .count();
        let parts = vec![
            Reply::text(what),
            Reply::text(channel),
            Reply::Int(count as i64),
        ];
        Reply::Push(parts)
    }

    fn publish(&mut self) -> Vec<(u64, Reply)> {
        let mut said = Vec::new();
        self.published = std::mem::take(&mut self.database.published);
        for (channel, message) in &self.published {
            let Some(subscribed) = self.channels.get(channel) else {
                continue;
            };
            let parts = vec![
                Reply::text("message"),
                Reply::Bulk(channel.clone()),
                Reply::Bulk(message.clone()),
            ];
            let push = Reply::Push(parts);
            said.extend(
                subscribed
                    .iter()
                    .map(|connection| (*connection, push.clone())),
            );
        }
        said
    }
}

fn hello() -> Reply {
    let pairs = [
        ("server", "redis"),
        ("version", "7.0.15"),
        ("mode", "standalone"),
        ("role", "master"),
    ];
    let mut pairs: Vec<_> = pairs
        .map(|(name, value)| (Reply::text(name), Reply::text(value)))
        .into();
    pairs.push((Reply::text("proto"), Reply::Int(3)));
    Reply::Map(pairs)
}

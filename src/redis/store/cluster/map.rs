//! [`Map`]: which node has which slot, as a node reports it. Reads `CLUSTER SLOTS`, without side
//! effects.

use std::fmt;

use ::redis::Value;

use super::slot::{SLOTS, Slot};

/// Where a node is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(in super::super) struct Address {
    pub(in super::super) host: String,
    pub(in super::super) port: u16,
}

impl Address {
    /// Reads `host:port`. Without a host it is that of the node that reports it. An IPv6 address
    /// has no brackets there.
    pub(super) fn parse(text: &str, reported_by: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Self::read(
            Some(host),
            i64::from(port.parse::<u16>().ok()?),
            reported_by,
        )
    }

    fn read(host: Option<&str>, port: i64, reported_by: &Self) -> Option<Self> {
        let host = match host {
            // The node has no name, although it should announce one.
            Some("?") => return None,
            Some(host) if !host.is_empty() => host.trim_matches(['[', ']']),
            _ => &reported_by.host,
        };
        let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
        Some(Self {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            return write!(f, "[{}]:{}", self.host, self.port);
        }
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Which master has which slot.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Map {
    pub(super) masters: Vec<Address>,
    /// For each slot the master's index.
    pub(super) owners: Vec<Option<usize>>,
    /// Whether a master has a copy.
    pub(super) has_replicas: bool,
}

impl Map {
    /// `None` for any other answer, and for one in which no slot has a node.
    pub(super) fn read(answer: &Value, reported_by: &Address) -> Option<Self> {
        let Value::Array(ranges) = answer else {
            return None;
        };
        let mut map = Self {
            masters: Vec::new(),
            owners: vec![None; usize::from(SLOTS)],
            has_replicas: false,
        };
        for range in ranges {
            map.read_range(range, reported_by)?;
        }
        map.owners.iter().any(Option::is_some).then_some(map)
    }

    /// `None` for a range that cannot be read. A range whose master has no address is skipped.
    fn read_range(&mut self, range: &Value, reported_by: &Address) -> Option<()> {
        let Value::Array(parts) = range else {
            return None;
        };
        let [
            Value::Int(first),
            Value::Int(last),
            Value::Array(master),
            replicas @ ..,
        ] = parts.as_slice()
        else {
            return None;
        };
        let slot = |number: i64| Slot::new(u16::try_from(number).ok()?);
        let (first, last) = (slot(*first)?, slot(*last)?);
        self.has_replicas |= !replicas.is_empty();
        let [host, Value::Int(port), ..] = master.as_slice() else {
            return None;
        };
        let host = match host {
            Value::BulkString(host) => Some(std::str::from_utf8(host).ok()?),
            Value::SimpleString(host) => Some(host.as_str()),
            Value::Nil => None,
            _ => return None,
        };
        let Some(address) = Address::read(host, *port, reported_by) else {
            return Some(());
        };
        let known = self.masters.iter().position(|other| *other == address);
        let index = known.unwrap_or_else(|| {
            self.masters.push(address);
            self.masters.len() - 1
        });
        let span = usize::from(first.number())..=usize::from(last.number());
        for owner in self.owners.get_mut(span)? {
            *owner = Some(index);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported_by() -> Address {
        address("asked", 7_000)
    }

    fn address(host: &str, port: u16) -> Address {
        Address {
            host: host.into(),
            port,
        }
    }

    fn node(host: &str, port: i64) -> Value {
        Value::Array(vec![
            Value::BulkString(host.into()),
            Value::Int(port),
            Value::BulkString("id".into()),
            Value::Array(vec![]),
        ])
    }

    fn range(first: i64, last: i64, nodes: Vec<Value>) -> Value {
        let ends = [Value::Int(first), Value::Int(last)];
        Value::Array(ends.into_iter().chain(nodes).collect())
    }

    #[test]
    fn a_map_has_the_master_of_each_slot() {
        let answer = Value::Array(vec![
            range(0, 99, vec![node("a", 1), node("b", 2)]),
            range(100, 100, vec![node("c", 3)]),
            range(200, 16_383, vec![node("a", 1)]),
        ]);
        let map = Map::read(&answer, &reported_by()).unwrap();
        assert_eq!(map.masters, [address("a", 1), address("c", 3)]);
        assert_eq!(map.owners[..2], [Some(0), Some(0)]);
        assert_eq!(map.owners[99..102], [Some(0), Some(1), None]);
        assert_eq!(map.owners[16_383], Some(0));
        assert!(map.has_replicas);
    }

    #[test]
    fn a_node_without_a_host_has_the_host_of_the_node_that_was_asked() {
        for host in [Value::BulkString("".into()), Value::Nil] {
            let node = Value::Array(vec![host, Value::Int(5)]);
            let answer = Value::Array(vec![range(0, 9, vec![node])]);
            let map = Map::read(&answer, &reported_by()).unwrap();
            assert_eq!(map.masters, [address("asked", 5)]);
        }
        assert_eq!(
            Address::parse(":6381", &reported_by()),
            Some(address("asked", 6_381))
        );
    }

    #[test]
    fn an_address_may_have_colons() {
        let parsed = Address::parse("::1:7000", &reported_by()).unwrap();
        assert_eq!(parsed, address("::1", 7_000));
        assert_eq!(parsed.to_string(), "[::1]:7000");
        assert_eq!(Address::parse("a", &reported_by()), None);
        assert_eq!(Address::parse("a:0", &reported_by()), None);
        assert_eq!(Address::parse("?:7000", &reported_by()), None);
    }

    #[test]
    fn any_other_answer_is_none() {
        for answer in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(0, 16_384, vec![node("a", 1)])]),
            Value::Array(vec![range(5, 4, vec![node("a", 1)])]),
            Value::Array(vec![range(0, 1, vec![])]),
            Value::Array(vec![range(0, 1, vec![node("?", 1)])]),
        ] {
            assert_eq!(Map::read(&answer, &reported_by()), None, "{answer:?}");
        }
    }
}

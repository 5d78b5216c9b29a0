//! [`NodeData`]: the data of a contender's node: a label for people, and what our other clients
//! must know.
//!
//! The first line is the label; each further line is one word. Other libraries write other data.

use std::time::Duration;

use crate::model::holder::Label;

const TTL: &str = "ttl_millis=";
const READS: &str = "reads";
/// The largest time that is read from a node. None of our clients asks for a session of more than
/// ten minutes.
const LONGEST: Duration = Duration::from_secs(3_600);

/// The data of a contender's node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct NodeData {
    /// The first line.
    pub(crate) head: String,
    /// The longest that a lease of the node's session runs; of a barrier, how long it keeps the
    /// others out.
    pub(crate) ttl: Option<Duration>,
    /// It was made by a writer that has become a reader.
    pub(crate) reads: bool,
}

impl NodeData {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut text = self.head.clone();
        if let Some(ttl) = self.ttl {
            text.push_str(&format!("\n{TTL}{}", ttl.as_millis()));
        }
        if self.reads {
            text.push('\n');
            text.push_str(READS);
        }
        text.into_bytes()
    }

    pub(crate) fn decode(data: &[u8]) -> Self {
        let text = String::from_utf8_lossy(data);
        let mut lines = text.lines();
        let mut data = Self {
            head: lines.next().unwrap_or_default().to_owned(),
            ..Self::default()
        };
        for line in lines {
            if let Some(millis) = line.strip_prefix(TTL) {
                let ttl = millis.parse().ok().map(Duration::from_millis);
                data.ttl = ttl.map(|ttl| ttl.min(LONGEST));
            }
            data.reads |= line == READS;
        }
        // Our clients always write the time too; another client's data may contain the same word by
        // chance.
        data.reads &= data.ttl.is_some();
        data
    }

    /// The holder's label. Another client's node may contain anything, or nothing.
    pub(crate) fn label(&self, is_simple: bool) -> Option<Label> {
        let text = if is_simple {
            self.head.split_once(' ')?.1
        } else {
            &self.head
        };
        Label::from_record(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_is_read() {
        for (ttl, reads) in [(None, false), (Some(10_000), false), (Some(1), true)] {
            let data = NodeData {
                head: "a host:1".to_owned(),
                ttl: ttl.map(Duration::from_millis),
                reads,
            };
            assert_eq!(NodeData::decode(&data.encode()), data);
        }
    }

    #[test]
    fn what_another_client_says_is_no_more_than_a_label() {
        for data in [
            &b""[..],
            b"\xff\xfe",
            b"10.0.0.1",
            b"ttl_millis=5",
            b"x\nttl_millis=-1\nreads",
        ] {
            let data = NodeData::decode(data);
            assert_eq!((data.ttl, data.reads), (None, false), "{data:?}");
        }
        let label = NodeData::decode(b"10.0.0.1").label(false).unwrap();
        assert_eq!(label.as_str(), "10.0.0.1");
        assert_eq!(NodeData::decode(b"").label(false), None);
    }

    #[test]
    fn a_time_beyond_reason_is_cut() {
        let data = NodeData::decode(b"x\nttl_millis=99999999999999");
        assert_eq!(data.ttl, Some(LONGEST));
    }
}

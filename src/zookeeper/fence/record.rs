//! [`Record`]: what the node of a fence contains.

use crate::model::error::Error;
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::model::txn::TxnId;

/// The token of a fence and, after a space, the newest name that was deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub(super) token: FencingToken,
    /// All names up to this one count as deleted: none of them is made again.
    pub(super) forgotten: Option<TxnId>,
}

impl Record {
    pub(super) fn new(token: FencingToken) -> Self {
        Self {
            token,
            forgotten: None,
        }
    }

    pub(super) fn parse(key: &Key, data: &[u8]) -> Result<Self, Error> {
        let parsed = || {
            let text = std::str::from_utf8(data).ok()?;
            let (number, forgotten) = match text.split_once(' ') {
                Some((number, name)) => (number, Some(name.parse().ok()?)),
                None => (text, None),
            };
            let token = FencingToken::new(number.parse().ok()?).ok()?;
            Some(Self { token, forgotten })
        };
        parsed().ok_or_else(|| {
            Error::corrupt(format!(
                "the fence's node has a foreign value: key={key}; it was not changed, check who wrote it"
            ))
        })
    }

    pub(super) fn data(&self) -> Vec<u8> {
        let mut text = self.token.number().to_string();
        if let Some(name) = self.forgotten {
            text.push(' ');
            text.push_str(&name.to_string());
        }
        text.into_bytes()
    }

    pub(super) fn has_forgotten(&self, name: TxnId) -> bool {
        self.forgotten.is_some_and(|last| name <= last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_is_written() {
        let key = Key::parse("a").unwrap();
        let token = FencingToken::new(7).unwrap();
        let mut record = Record::new(token);
        assert_eq!(record.data(), b"7");
        let name = TxnId::first_at(5);
        for forgotten in [None, Some(name)] {
            record.forgotten = forgotten;
            assert_eq!(Record::parse(&key, &record.data()).unwrap(), record);
        }
        assert!(record.has_forgotten(name) && !record.has_forgotten(TxnId::first_at(6)));
        for foreign in ["", "x", "7 x", " 7", "7 "] {
            assert!(
                Record::parse(&key, foreign.as_bytes()).is_err(),
                "{foreign}"
            );
        }
    }
}

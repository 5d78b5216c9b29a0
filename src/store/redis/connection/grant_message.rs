//! [`GrantMessage`]: what a server says when it grants a lock to a claim that waits.

use crate::clock::Stamp;

/// What a server said in the message by which it granted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in super::super) struct GrantMessage {
    pub(in super::super) token: u64,
    /// The server's time when it granted, in microseconds.
    pub(in super::super) micros: u64,
    /// The counter that the token is from.
    pub(in super::super) counter: String,
    /// When it arrived.
    pub(in super::super) heard_at: Stamp,
}

impl GrantMessage {
    /// Reads what follows the owner in a message; `None` if it calls the claim without a grant.
    pub(in super::super) fn read(text: &[u8], heard_at: Stamp) -> Option<Self> {
        let mut words = str::from_utf8(text).ok()?.split(' ');
        let (token, micros) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let counter = words.next()?.to_owned();
        words.next().is_none().then_some(Self {
            token,
            micros,
            counter,
            heard_at,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_whole_or_not_at_all() {
        let heard_at = Stamp::from_nanos([1; 3]);
        let read = |text: &str| GrantMessage::read(text.as_bytes(), heard_at);
        let whole = read("2000000000000000 1000300000 run:7").unwrap();
        assert_eq!(
            (
                whole.token,
                whole.micros,
                whole.counter.as_str(),
                whole.heard_at
            ),
            (2_000_000_000_000_000, 1_000_300_000, "run:7", heard_at)
        );
        for part in [
            "",
            "1",
            "1 2",
            "x 2 run:7",
            "1 y run:7",
            "1 2 run:7 more",
            "-1 2 run:7",
        ] {
            assert_eq!(read(part), None, "{part}");
        }
    }
}

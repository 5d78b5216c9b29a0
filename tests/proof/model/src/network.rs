//! The messages between clients, store and resource.

/// At most so many messages are on their way at once.
pub const IN_FLIGHT: usize = 2;

/// A message. `grant` numbers the grants of the store in their order; the parties see only `token`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Message {
    Acquire {
        client: u8,
        attempt: u8,
        sent_at: u8,
    },
    Granted {
        client: u8,
        attempt: u8,
        sent_at: u8,
        grant: u8,
    },
    Renew {
        client: u8,
        grant: u8,
        sent_at: u8,
    },
    Renewed {
        client: u8,
        grant: u8,
        sent_at: u8,
    },
    Release {
        grant: u8,
    },
    Raise {
        client: u8,
        grant: u8,
    },
    Raised {
        client: u8,
        grant: u8,
    },
    Read {
        client: u8,
        grant: u8,
    },
    WasRead {
        client: u8,
        grant: u8,
    },
    Write {
        client: u8,
        grant: u8,
    },
    /// The answer to a write, whether it was applied or refused.
    Answered {
        client: u8,
        grant: u8,
    },
}

impl Message {
    /// Whether it asks for a change. An answer that comes twice changes nothing.
    pub(crate) fn is_request(self) -> bool {
        matches!(
            self,
            Self::Acquire { .. }
                | Self::Renew { .. }
                | Self::Release { .. }
                | Self::Raise { .. }
                | Self::Write { .. }
        )
    }
}

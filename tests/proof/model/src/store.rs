//! The store and the resource.

use crate::rules::{Fence, Rules};
use crate::{Message, TTL};

/// Who holds the lock, and until when.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Store {
    /// The grant that holds the lock, and when the store ends it.
    held: Option<(u8, u8)>,
    grants: u8,
}

impl Store {
    /// Executes a request at `now`. Returns the answer, if there is one.
    pub(crate) fn execute(&mut self, message: Message, now: u8, rules: &Rules) -> Option<Message> {
        self.held = self.held.filter(|(_, end)| now < *end);
        match message {
            Message::Acquire {
                client,
                attempt,
                sent_at,
            } if self.held.is_none() => {
                self.grants += 1;
                self.held = Some((self.grants, now + TTL));
                Some(Message::Granted {
                    client,
                    attempt,
                    sent_at,
                    grant: self.grants,
                })
            }
            Message::Renew {
                client,
                grant,
                sent_at,
            } if self.held.is_some_and(|(held, _)| held == grant) => {
                self.held = Some((grant, now + TTL));
                Some(Message::Renewed {
                    client,
                    grant,
                    sent_at,
                })
            }
            Message::Release { grant } => {
                if !rules.release_compares || self.held.is_some_and(|(held, _)| held == grant) {
                    self.held = None;
                }
                None
            }
            _ => None,
        }
    }
}

/// What the lock protects.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Resource {
    fence: u8,
    newest_read: u8,
    /// A write was applied after a later holder had read.
    pub has_stale_write: bool,
    /// How many writes were applied: that the model does anything at all.
    pub writes: u8,
}

impl Resource {
    /// Executes a request. Returns the answer.
    pub(crate) fn execute(&mut self, message: Message, rules: &Rules) -> Option<Message> {
        let token = |grant: u8| if rules.tokens_grow { grant } else { 1 };
        match message {
            Message::Raise { client, grant } => {
                // A smaller token is refused without an answer: its holder never gets its guard.
                if token(grant) < self.fence {
                    return None;
                }
                self.fence = token(grant);
                Some(Message::Raised { client, grant })
            }
            Message::Read { client, grant } => {
                self.newest_read = self.newest_read.max(grant);
                Some(Message::WasRead { client, grant })
            }
            Message::Write { client, grant } => {
                if rules.fence == Fence::None || token(grant) >= self.fence {
                    self.has_stale_write |= grant < self.newest_read;
                    self.writes = (self.writes + 1).min(2);
                    if rules.fence != Fence::None {
                        self.fence = token(grant);
                    }
                }
                Some(Message::Answered { client, grant })
            }
            _ => None,
        }
    }
}

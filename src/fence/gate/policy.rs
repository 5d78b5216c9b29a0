//! [`Policy`]: which tokens a gate admits, given the one that it has seen.

use super::refusal::Refusal;
use crate::model::token::FencingToken;

/// Which tokens a gate admits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Policy {
    /// The largest token that was seen, and any larger one: a holder that was not announced is
    /// admitted, and earlier holders are refused from then on.
    #[default]
    Monotone,
    /// Only the token that the fence was raised to: each holder must be announced.
    Equal,
}

/// What a gate compares a token with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub(super) policy: Policy,
    pub(super) max_jump: u64,
}

impl Rule {
    /// Whether a change may be made under `token`.
    pub(super) fn admits(
        self,
        token: FencingToken,
        seen: Option<FencingToken>,
    ) -> Result<(), Refusal> {
        match (self.policy, seen) {
            (Policy::Monotone, _) => self.raises(token, seen),
            (Policy::Equal, Some(raised)) if raised == token => Ok(()),
            (Policy::Equal, Some(raised)) if raised > token => {
                Err(Refusal::Fenced { seen: raised })
            }
            (Policy::Equal, raised) => Err(Refusal::NotRaised { raised }),
        }
    }

    /// Whether the fence may be raised to `token`.
    pub(super) fn raises(
        self,
        token: FencingToken,
        seen: Option<FencingToken>,
    ) -> Result<(), Refusal> {
        match seen {
            Some(seen) if token < seen => Err(Refusal::Fenced { seen }),
            Some(seen) if token.number() - seen.number() > self.max_jump => {
                Err(Refusal::Implausible { seen })
            }
            _ => Ok(()),
        }
    }
}

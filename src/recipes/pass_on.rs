//! Who asks a leader to pass its office on: a candidate that is preferred, or an operator.
//!
//! Both wait in the queue of the office, and their labels say what they want. So no store has to
//! know of elections.

use crate::model::error::Error;
use crate::model::holder::Label;
use crate::model::token::FencingToken;
use crate::store::{LockInfo, Waiter};

/// What the label of a claim for an office says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wanted<'a> {
    /// It is a candidate.
    Office { name: &'a str, preference: u8 },
    /// The leader of this term is to pass the office on.
    StepDown { term: u64 },
}

/// Why a leader passes its office on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    Preferred,
    AskedTo,
}

const PREFER: &str = " (prefer ";
const STEP_DOWN: &str = "step down from term ";

impl<'a> Wanted<'a> {
    pub(super) fn of(label: &'a Label) -> Self {
        let text = label.as_str();
        if let Some(term) = text
            .strip_prefix(STEP_DOWN)
            .and_then(|term| term.parse().ok())
        {
            return Self::StepDown { term };
        }
        let preferred = text.strip_suffix(')').and_then(|text| {
            let (name, preference) = text.rsplit_once(PREFER)?;
            Some((name, preference.parse().ok()?))
        });
        let preferred = preferred.filter(|(name, _)| !name.is_empty());
        let (name, preference) = preferred.unwrap_or((text, 0));
        Self::Office { name, preference }
    }
}

/// The label of a candidate.
///
/// # Errors
///
/// `Invalid` if the name is no label, or would be read as another one.
pub(super) fn candidate(name: &str, preference: u8) -> Result<Label, Error> {
    let label = match (Label::parse(name)?, preference) {
        (name, 0) => name,
        (_, _) => Label::parse(&format!("{name}{PREFER}{preference})"))?,
    };
    if Wanted::of(&label) == (Wanted::Office { name, preference }) {
        return Ok(label);
    }
    Err(Error::invalid(format!(
        "the name of a candidate is read as a request to a leader: name={name}; use another name"
    )))
}

/// The label of a request to the leader of a term.
///
/// # Errors
///
/// None: it is short.
pub(super) fn step_down(term: FencingToken) -> Result<Label, Error> {
    Label::parse(&format!("{STEP_DOWN}{}", term.number()))
}

/// Why the leader of `term` passes its office on; `None` if nobody wants it to.
pub(super) fn why(info: &LockInfo, term: FencingToken, own: u8) -> Option<Why> {
    let labels = || {
        info.waiters
            .iter()
            .filter_map(|Waiter { label, .. }| label.as_ref())
    };
    let asks = |label| {
        Wanted::of(label)
            == Wanted::StepDown {
                term: term.number(),
            }
    };
    let is_preferred =
        |label| matches!(Wanted::of(label), Wanted::Office { preference, .. } if preference > own);
    if labels().any(asks) {
        Some(Why::AskedTo)
    } else {
        labels().any(is_preferred).then_some(Why::Preferred)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> FencingToken {
        FencingToken::new(number).unwrap()
    }

    fn info(labels: &[Label]) -> LockInfo {
        let mut info = LockInfo::of("office".parse().unwrap());
        info.waiters = labels
            .iter()
            .map(|label| Waiter::new(Some(label.clone()), None))
            .collect();
        info
    }

    #[test]
    fn a_leader_yields_to_a_better_candidate_and_to_whoever_asks_its_own_term() {
        let [plain, better, asked] = [
            candidate("host-b", 0).unwrap(),
            candidate("host-c", 3).unwrap(),
            step_down(token(7)).unwrap(),
        ];
        let own = |labels: &[Label], own| why(&info(labels), token(7), own);
        assert_eq!(own(std::slice::from_ref(&plain), 0), None);
        assert_eq!(
            own(&[plain.clone(), better.clone()], 0),
            Some(Why::Preferred)
        );
        assert_eq!(
            own(std::slice::from_ref(&better), 3),
            None,
            "it is no better"
        );
        assert_eq!(own(&[better, asked.clone()], 9), Some(Why::AskedTo));
        assert_eq!(why(&info(&[asked]), token(8), 0), None, "the next term");
    }

    #[test]
    fn a_name_that_would_be_read_as_another_one_is_refused() {
        for name in ["step down from term 7", "host (prefer 9)", "", "x\ny"] {
            assert!(candidate(name, 0).is_err(), "{name}");
        }
        assert!(candidate("", 3).is_err());
        let lock = Label::parse(" (prefer 3)").unwrap();
        let wanted = Wanted::Office {
            name: " (prefer 3)",
            preference: 0,
        };
        assert_eq!(Wanted::of(&lock), wanted, "no name");
        let label = candidate("host (prefer 9)", 2).unwrap();
        let wanted = Wanted::Office {
            name: "host (prefer 9)",
            preference: 2,
        };
        assert_eq!(Wanted::of(&label), wanted);
        assert!(
            candidate("host (prefer 900)", 0).is_ok(),
            "no number of a preference"
        );
    }
}

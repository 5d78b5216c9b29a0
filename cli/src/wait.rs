//! `--wait`: how long to wait for a busy lock, and for a store that is not up yet.

use std::time::Duration;

use crate::run::Patience;

/// A wait without an end is made of these. Between two of them the place in a queue is lost, once a
/// day.
const LONG_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// How long to wait for a busy lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    Within(Duration),
    Forever,
}

impl Wait {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text == "forever" {
            return Ok(Self::Forever);
        }
        if let Ok(seconds) = text.parse() {
            return Ok(Self::Within(Duration::from_secs(seconds)));
        }
        humantime::parse_duration(text)
            .map(Self::Within)
            .map_err(|error| format!("{error}; write 10, 10s, 1m30s or forever"))
    }

    /// One without an end is made of many.
    pub(crate) fn span(self) -> Duration {
        match self {
            Self::Within(wait) => wait,
            Self::Forever => LONG_WAIT,
        }
    }

    /// How long to try to reach the store.
    pub(crate) fn patience(self) -> Patience {
        match self {
            Self::Within(_) => Patience::AsTheWait,
            Self::Forever => Patience::Endless,
        }
    }
}

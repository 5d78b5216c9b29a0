//! [`Budget`]: the time that one acquire may take.

use std::time::Duration;

use super::context::ManagerContext;
use super::request::Patience;

/// One budget for everything that an acquire waits for.
pub(super) struct Budget<'a> {
    context: &'a ManagerContext,
    /// By the boot clock, in nanoseconds.
    started: u64,
    patience: Patience,
}

impl<'a> Budget<'a> {
    pub(super) fn begin(context: &'a ManagerContext, patience: Patience) -> Self {
        Self {
            context,
            started: context.clock.boot(),
            patience,
        }
    }

    /// When the acquire began, in nanoseconds of the boot clock.
    pub(super) fn started(&self) -> u64 {
        self.started
    }

    /// Whether the caller waits, and its time is over.
    pub(super) fn is_over(&self) -> bool {
        self.waits() && self.left().is_zero()
    }

    pub(super) fn waits(&self) -> bool {
        self.patience != Patience::Once
    }

    /// The limit of one request.
    pub(super) fn request_limit(&self) -> Duration {
        let most = self.context.settings.request_timeout;
        if self.waits() {
            most.min(self.left())
        } else {
            most
        }
    }

    pub(super) fn left(&self) -> Duration {
        match self.patience {
            Patience::Once => Duration::ZERO,
            Patience::Within(span) => {
                let passed = self.context.clock.boot().saturating_sub(self.started);
                span.saturating_sub(Duration::from_nanos(passed))
            }
        }
    }
}

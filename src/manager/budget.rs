//! [`Budget`]: the time that one acquire may take.

use std::time::Duration;

use super::context::ManagerContext;
use super::request::Patience;
use crate::clock::Stamp;

/// One budget for everything that an acquire waits for.
pub(super) struct Budget<'a> {
    context: &'a ManagerContext,
    started: Stamp,
    patience: Patience,
}

impl<'a> Budget<'a> {
    pub(super) fn begin(context: &'a ManagerContext, patience: Patience) -> Self {
        Self {
            context,
            started: context.clock.stamp(),
            patience,
        }
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
                span.saturating_sub(self.context.clock.stamp().since(&self.started))
            }
        }
    }
}

//! [`ReleaseStep`]: the release itself, which the end of a chain asks for.

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::model::error::Error;
use crate::store::Released;

/// The chain's end of the release: asks for it, and learns how it went.
#[derive(Debug)]
pub(super) struct ReleaseStep {
    pub(super) go: CancellationToken,
    pub(super) answer: watch::Receiver<Option<Released>>,
}

impl ReleaseStep {
    pub(super) async fn go_on(&self) -> Released {
        self.go.cancel();
        let mut answer = self.answer.clone();
        let known = answer.wait_for(Option::is_some).await;
        known
            .ok()
            .and_then(|known| known.clone())
            .unwrap_or_else(|| {
                Released::Unknown(Error::closed("the release was left to the background"))
            })
    }
}

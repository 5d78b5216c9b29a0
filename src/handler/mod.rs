//! The chain of handlers, and the observers.
//!
//! ```text
//!  acquire ──► first ──► second ──► (local queue, store)
//!  answer  ◄── first ◄── second ◄──┘
//! ```
//!
//! Renewals pass through no handler.
//!
//! A [`Handler`] *wraps* acquire and release: it may refuse, delay or shorten an acquire, and
//! decorate a release. An [`Observer`] *sees* everything and decides nothing. If you only need to
//! know, write an observer: it costs less and can do no harm.
//!
//! - The handler that was [added first](crate::LockManagerBuilder::handler) is outermost: first on
//!   the way in, last on the way out. Each sees only the next one's answer, so adding or removing
//!   one changes nothing for the others.
//! - All of them share the one wait budget of the call: [`AcquireRequest::remaining`].
//! - No handler can make a grant: [`AcquireResponse::Granted`] comes only from the store, through
//!   [`Next`].
//! - A handler that needs a value for the time of the hold ties it to the request or the grant
//!   ([`AcquireRequest::attach`], [`Granted::attach`]). It is dropped when the hold ends, for any
//!   reason, or when the call ends without a hold.
//! - A handler that panics or does not answer fails its own call and nothing else: the store's
//!   grant is released, the manager lives on, no renewal waits.
//!
//! ```
//! use leasehold::handler::{AcquireRequest, AcquireResponse, Handler, Next};
//! use leasehold::store::MemoryStore;
//! use leasehold::{Error, ErrorKind, LockManager};
//!
//! /// Nobody takes a lock of the archive.
//! struct ArchiveIsClosed;
//!
//! impl Handler for ArchiveIsClosed {
//!     async fn acquire(
//!         &self,
//!         request: &mut AcquireRequest,
//!         next: Next<'_>,
//!     ) -> Result<AcquireResponse, Error> {
//!         if request.key().as_str().starts_with("archive/") {
//!             let message = "the archive is closed; ask again tomorrow";
//!             return Err(Error::new(ErrorKind::Denied, message));
//!         }
//!         next.run(request).await
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! let builder = LockManager::builder(MemoryStore::new()?);
//! let locks = builder.handler(ArchiveIsClosed).build()?;
//! assert!(locks.lock("orders/7").acquire().await.is_ok());
//! let refused = locks.lock("archive/7").acquire().await.unwrap_err();
//! assert_eq!(refused.kind(), ErrorKind::Denied);
//! # Ok(())
//! # }
//! ```

mod access_log;
mod attachments;
mod chain;
mod event;
#[cfg(feature = "flow-control")]
mod flow_control;
mod granted;
mod hooks;
#[cfg(feature = "metrics")]
pub mod metrics;
mod next;
mod observer;
mod release;
mod request;
mod step;
mod user_threads;

pub use access_log::{ACCESS_LOG_TARGET, AccessLog};
pub(crate) use attachments::Attachments;
pub(crate) use chain::Chain;
pub use event::{AcquireOutcome, Event};
#[cfg(feature = "flow-control")]
pub use flow_control::{FlowControl, Rate};
pub use granted::{AcquireResponse, Granted};
pub use hooks::Handler;
#[cfg(feature = "metrics")]
#[doc(inline)]
pub use metrics::Metrics;
pub(crate) use next::Last;
pub use next::{Next, NextRelease};
pub use observer::Observer;
pub(crate) use observer::Observers;
pub(crate) use release::Around;
pub use request::{AcquireRequest, ReleaseRequest};
pub(crate) use user_threads::UserThreads;

pub use crate::model::run_event::RunEvent;
pub use crate::model::run_sink::Intent;

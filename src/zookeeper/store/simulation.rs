//! [`Servers`]: the seam at which a test puts a model of an ensemble in the place of the servers
//! (feature `testing`).
//!
//! A model implements [`Driver`] for one session and [`Servers`] for what opens them. Everything
//! above it is the shipped code.

use std::fmt::Debug;
use std::time::Duration;

use futures_util::future::BoxFuture;

pub use super::drivers::{
    Change, Driver, Ending, Fault, Kind, LeaderTime, Made, Missing, Node, Refused,
};

/// What opens sessions with a model of an ensemble.
pub trait Servers: Debug + Send + Sync + 'static {
    /// Opens a session with this time-out, which must be granted as it is. Dropped, it opens none,
    /// or one that ends with its time-out.
    fn connect(
        &self,
        timeout: Duration,
        ending: Ending,
    ) -> BoxFuture<'_, Result<Box<dyn Driver>, Fault>>;

    /// Ends every connection that it made without a word, as the end of their runtime does. The
    /// sessions are left to their time-outs.
    fn disconnect(&self);
}

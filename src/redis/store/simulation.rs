//! [`Dial`]: the seam at which a test puts a simulated server in the place of Redis, at the bytes
//! of a connection (feature `testing`).
//!
//! Everything above it is the shipped code, the client of the crate `redis` included.

use std::fmt::Debug;
use std::io;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

/// What a connection reads from and writes to.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

/// What makes connections to a simulated server.
pub trait Dial: Debug + Send + Sync + 'static {
    /// Makes a connection. A dial that waits for ever is given up after the time-out of the
    /// options, by the clock of the store.
    fn dial(&self) -> BoxFuture<'static, io::Result<Box<dyn Stream>>>;
}

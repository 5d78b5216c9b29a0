//! [`SimDial`] and the client's end of a connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::{fmt, io};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold::redis::simulation::{Dial, Stream};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use crate::net::Net;

/// What one life of one process connects by.
pub(crate) struct SimDial(pub(crate) Net);

impl fmt::Debug for SimDial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDial({})", self.0.node)
    }
}

impl Dial for SimDial {
    fn dial(&self) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        let net = self.0.clone();
        async move {
            let (answer, answered) = oneshot::channel();
            let inbox = Arc::new(Inbox::default());
            let number = {
                let mut state = net.shared.lock();
                state.dial(net.node, net.life, Arc::clone(&inbox), answer)
            };
            let stream = SimStream { net, number, inbox };
            match answered.await {
                Ok(true) => Ok(Box::new(stream) as Box<dyn Stream>),
                _ => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        }
        .boxed()
    }
}

/// How a connection ended for its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Closed,
    Reset,
}

/// What has arrived at the client.
#[derive(Default)]
pub(super) struct Inbox(Mutex<Received>);

#[derive(Default)]
struct Received {
    bytes: Vec<u8>,
    end: Option<End>,
    reader: Option<Waker>,
}

impl Inbox {
    pub(super) fn put(&self, bytes: &[u8], end: Option<End>) {
        let mut received = self.0.lock();
        if received.end.is_none() {
            received.bytes.extend_from_slice(bytes);
            received.end = end;
        }
        if let Some(reader) = received.reader.take() {
            reader.wake();
        }
    }
}

struct SimStream {
    net: Net,
    number: u64,
    inbox: Arc<Inbox>,
}

impl AsyncRead for SimStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut received = self.inbox.0.lock();
        if !received.bytes.is_empty() {
            let count = received.bytes.len().min(buffer.remaining());
            buffer.put_slice(&received.bytes[..count]);
            received.bytes.drain(..count);
            return Poll::Ready(Ok(()));
        }
        match received.end {
            Some(End::Closed) => Poll::Ready(Ok(())),
            Some(End::Reset) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            None => {
                received.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.inbox.0.lock().end == Some(End::Reset) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let mut state = self.net.shared.lock();
        if state.lives[self.net.node] == self.net.life {
            state.send_to_redis(self.number, Some(bytes.to_vec()));
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        let mut state = self.net.shared.lock();
        if state.lives[self.net.node] == self.net.life {
            state.send_to_redis(self.number, None);
        }
    }
}

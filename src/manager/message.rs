//! [`Message`]: what the manager's task is asked to do.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::hold::Hold;
use super::queue::{Turn, Withdrawal};
use crate::lease::Lease;
use crate::model::error::Ended;

/// A request to the task.
#[derive(Debug)]
pub(super) enum Message {
    /// End a hold whose guard is gone.
    End(Arc<Hold>, Ended),
    /// Withdraw an attempt whose result is unknown, or that has a place in the store's queue.
    Withdraw(Withdrawal),
    /// Pass the turn of an ended hold once no run is in progress under its lease.
    PassTurn(Lease, Turn),
    /// Repeat a release that was not answered.
    Release(Arc<Hold>),
    /// End every hold, then the store, then the task.
    Shutdown(Option<oneshot::Sender<()>>),
    /// Answer when there is nothing left to do until time passes or the store answers.
    #[cfg(feature = "testing")]
    Settle(oneshot::Sender<()>),
}

/// The way to the task.
#[derive(Debug)]
pub(super) struct Inbox(mpsc::UnboundedSender<Message>);

impl Inbox {
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<Message>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    /// After a shutdown nobody reads the message: leases are over, and TTLs end the rest.
    pub(super) fn send(&self, message: Message) {
        let _ = self.0.send(message);
    }
}

//! The rarely used part of a lease: its listeners, and the runs under it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Lease;
use super::error::LeaseError;
use super::runs::RunSlot;
use crate::model::error::Ended;

const STEADY: u8 = 0;
const AT_RISK: u8 = 1;
const LOST: u8 = 2;

/// Small, because every held lock has one.
#[derive(Debug, Default)]
pub(super) struct Signals {
    reason: OnceLock<Ended>,
    state: AtomicU8,
    in_doubt: AtomicBool,
    /// One for each executor; made with the first.
    slots: Mutex<Option<Box<Slots>>>,
    /// Notified when the state changes, and when the last run under a closed gate has ended.
    moved: Notify,
    /// Locked by the `in_turn` run that is in progress; made when first needed.
    turn: OnceLock<Arc<tokio::sync::Mutex<()>>>,
    /// Made when a caller asks for one.
    tokens: Mutex<Option<Box<Tokens>>>,
}

/// Tokens that are cancelled when the lease ends.
#[derive(Debug, Default)]
struct Tokens {
    own: Option<CancellationToken>,
    /// The tokens of the joint leases that this lease is a member of.
    of_joint: Vec<CancellationToken>,
}

type Slots = HashMap<usize, Arc<RunSlot>>;

impl Signals {
    pub(super) fn reason(&self) -> Option<Ended> {
        self.reason.get().copied()
    }

    /// The lease is about to be ended for this reason, unless it has ended already.
    pub(super) fn will_end(&self, reason: Ended) {
        let _ = self.reason.set(reason);
    }

    /// The lease has ended. The first reason wins; the caller that ended the lease wakes the
    /// listeners.
    pub(super) fn ended(&self, first: bool, reason: Ended) -> Ended {
        let reason = *self.reason.get_or_init(|| reason);
        if first {
            self.state.store(LOST, Ordering::SeqCst);
            self.moved.notify_waiters();
            self.cancel_tokens();
        }
        reason
    }

    /// The lease's own token, and whether this call made it.
    pub(super) fn token(&self) -> (CancellationToken, bool) {
        let (token, is_new) = {
            let mut tokens = self.tokens.lock();
            let own = &mut tokens.get_or_insert_default().own;
            let is_new = own.is_none();
            (own.get_or_insert_default().clone(), is_new)
        };
        self.cancel_tokens();
        (token, is_new)
    }

    /// Cancels `token` when the lease ends.
    pub(super) fn cancel_with(&self, token: CancellationToken) {
        let mut tokens = self.tokens.lock();
        tokens.get_or_insert_default().of_joint.push(token);
        drop(tokens);
        self.cancel_tokens();
    }

    /// Called after each change of the state and of the tokens, so that none is missed.
    fn cancel_tokens(&self) {
        if self.state() != LOST {
            return;
        }
        let tokens = self.tokens.lock().take();
        // Cancelled after the mutex is unlocked, because it wakes tasks.
        for token in tokens
            .into_iter()
            .flat_map(|tokens| tokens.of_joint.into_iter().chain(tokens.own))
        {
            token.cancel();
        }
    }

    pub(super) fn turn(&self) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(self.turn.get_or_init(Arc::default))
    }

    pub(super) async fn lost(&self) -> Ended {
        self.until(|| self.state() == LOST).await;
        self.reason().unwrap_or(Ended::Lapsed)
    }

    pub(super) fn is_at_risk(&self) -> bool {
        self.state() == AT_RISK
    }

    pub(super) async fn at_risk(&self) {
        self.until(|| self.state() != STEADY).await;
    }

    fn state(&self) -> u8 {
        self.state.load(Ordering::SeqCst)
    }

    /// Completes when `is_so` returns true. It is called again after each change.
    async fn until(&self, is_so: impl Fn() -> bool) {
        while !is_so() {
            let mut moved = std::pin::pin!(self.moved.notified());
            // Registered before the check, so that a change in between is not missed.
            moved.as_mut().enable();
            if is_so() {
                return;
            }
            moved.await;
        }
    }

    pub(super) fn set_at_risk(&self, is_at_risk: bool) {
        let (from, to) = if is_at_risk {
            (STEADY, AT_RISK)
        } else {
            (AT_RISK, STEADY)
        };
        let moves = (self.state).compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
        if moves.is_ok() {
            self.moved.notify_waiters();
        }
    }

    pub(super) fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::SeqCst)
    }

    pub(super) fn mark_in_doubt(&self) {
        self.in_doubt.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_drained(&self) -> bool {
        match &*self.slots.lock() {
            Some(slots) => slots.values().all(|slot| slot.is_at_rest()),
            None => true,
        }
    }

    pub(super) async fn drained(&self) {
        self.until(|| self.is_drained()).await;
    }
}

/// The right of one executor to begin runs under a lease, and the count of its runs in progress.
#[derive(Debug)]
pub(crate) struct Running {
    lease: Lease,
    slot: Arc<RunSlot>,
    /// Under a joint lease, the right under each member.
    members: Box<[Running]>,
}

impl Running {
    pub(super) fn new(lease: Lease) -> Self {
        let slot = Arc::new(RunSlot::at_rest());
        lease
            .cell
            .signals
            .slots
            .lock()
            .get_or_insert_default()
            .insert(Arc::as_ptr(&slot) as usize, Arc::clone(&slot));
        let members = lease.members().iter().cloned().map(Self::new).collect();
        Self {
            lease,
            slot,
            members,
        }
    }

    #[inline]
    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Begins a run; it is in progress until the answer is dropped.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Ending`] if the hold is ending, or its own reason if it has ended.
    #[inline]
    pub(crate) fn enter(&self) -> Result<InProgress<'_>, LeaseError> {
        // Checked before the run is counted: otherwise callers that keep trying under a closed gate
        // would delay the end of the hold.
        if self.lease.is_closed() {
            return Err(self.refusal());
        }
        let open = self.raise();
        let in_progress = InProgress { running: self };
        if open {
            Ok(in_progress)
        } else {
            Err(self.refusal())
        }
    }

    /// True if every gate is open. Each call is followed by one [`lower`](Self::lower).
    #[inline]
    fn raise(&self) -> bool {
        let open = self.slot.enter(&self.lease.cell.hot.gate);
        // Every member is raised, open or not, because every member is lowered.
        self.members
            .iter()
            .fold(open, |open, member| member.raise() && open)
    }

    #[inline]
    fn lower(&self) {
        self.members.iter().for_each(Self::lower);
        if self.slot.leave(&self.lease.cell.hot.gate) {
            self.lease.cell.signals.moved.notify_waiters();
        }
    }

    #[cold]
    fn refusal(&self) -> LeaseError {
        self.lease
            .lost_reason()
            .map_or(LeaseError::Ending, LeaseError::Lost)
    }
}

impl Clone for Running {
    fn clone(&self) -> Self {
        Self::new(self.lease.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(slots) = &mut *self.lease.cell.signals.slots.lock() {
            slots.remove(&(Arc::as_ptr(&self.slot) as usize));
        }
    }
}

/// A run in progress: the end of the hold waits until it is dropped.
#[derive(Debug)]
#[must_use = "the run is in progress only while this lives"]
pub(crate) struct InProgress<'a> {
    running: &'a Running,
}

impl Drop for InProgress<'_> {
    #[inline]
    fn drop(&mut self) {
        self.running.lower();
    }
}

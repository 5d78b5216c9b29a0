//! A joint lease: live while every one of several leases is.
//!
//! It has no deadline of its own: each check checks all members, and returns the smallest remaining
//! time. The lapse of one member is the lapse of the joint lease, and is as final (I2). A run under
//! it is a run under each member, so the end of any of their holds waits for it (I5); doubt under
//! it is doubt under each.

use std::sync::Arc;

use futures_util::future::select_all;

use super::runs::Gate;
use super::signal::Signals;
use super::words::Words;
use super::{Cell, Hot, Lease, LeaseError};
use crate::clock::{Reading, fork};
use crate::model::commit::{HeldKey, Locks};
use crate::model::error::Ended;

impl Lease {
    /// Key and token of this lease; live while all `members` are.
    pub(crate) fn joint(&self, members: Vec<Self>) -> Self {
        let is_fencing = members.iter().all(Self::is_fencing);
        let hot = Hot {
            words: Words::new([u64::MAX; 3]),
            generation: fork::generation(),
            clock: self.clock().clone(),
            members: members.into(),
            gate: Gate::open(),
        };
        Self {
            cell: Arc::new(Cell {
                hot,
                key: self.cell.key.clone(),
                token: self.cell.token,
                is_fencing,
                signals: Signals::default(),
            }),
        }
    }

    /// The key and token of this lease, or of each member of a joint one, sorted by key.
    pub(crate) fn held_keys(&self) -> Locks {
        let held = |lease: &Self| HeldKey {
            key: lease.key().clone(),
            token: lease.token(),
        };
        if self.members().is_empty() {
            return Locks(Arc::new([held(self)]));
        }
        let mut keys: Vec<HeldKey> = self.members().iter().map(held).collect();
        keys.sort_unstable();
        Locks(keys.into())
    }

    /// The mutexes of `in_turn` runs of this lease, locked while such a run is in progress: one for
    /// each lock, in the order of the keys.
    pub(crate) fn turns(&self) -> Vec<Arc<tokio::sync::Mutex<()>>> {
        if self.members().is_empty() {
            return vec![self.cell.signals.turn()];
        }
        let mut members: Vec<&Self> = self.members().iter().collect();
        members.sort_unstable_by_key(|member| member.key());
        members
            .iter()
            .map(|member| member.cell.signals.turn())
            .collect()
    }

    pub(super) fn members(&self) -> &[Self] {
        &self.cell.hot.members
    }

    #[cold]
    pub(super) fn look_at_members(&self, reading: Reading) -> Result<u64, LeaseError> {
        let mut least = u64::MAX;
        for member in self.members() {
            least = least.min(member.look(reading)?);
        }
        Ok(least)
    }

    /// Completes when the first member has ended.
    pub(super) async fn member_lost(&self) -> Ended {
        let each = self.members().iter().map(|member| Box::pin(member.lost()));
        select_all(each).await.0
    }

    /// Completes when renewals of any member have begun to fail, or one has ended.
    pub(super) async fn member_at_risk(&self) {
        let each = self
            .members()
            .iter()
            .map(|member| Box::pin(member.at_risk()));
        select_all(each).await;
    }
}

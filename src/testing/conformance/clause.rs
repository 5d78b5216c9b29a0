//! [`Clause`]: the parts of the contract of a store.

/// A clause of the contract that a store keeps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Clause {
    /// One claim holds a key at a time.
    Exclusion,
    /// A grant ends with its TTL, and not before.
    Expiry,
    /// A renewal compares and extends; it never creates.
    Renewal,
    /// A release compares and deletes.
    Release,
    /// Tokens grow.
    Fencing,
    /// The end of a hold wakes the waiters.
    WakeUp,
    /// A withdrawn claim does not hold, and never will.
    Uncertainty,
    /// The store reports what is held.
    Inspection,
    /// Claims that queue are served in the order in which they came.
    Order,
    /// Whoever ends a hold grants the key to the next waiter, and wakes only that one.
    Handover,
    /// Readers hold together, a writer alone.
    ReadWrite,
    /// Readers hold a key in parts, as many together as they say that there are.
    Shares,
    /// A lock that an operator revoked does not come back.
    Revocation,
    /// A release can let the key rest.
    Rest,
    /// A vote's token is near the member's time, and only the holder raises it. For a
    /// [`Member`](crate::store::quorum::Member) only.
    Membership,
}

impl Clause {
    /// The clauses of every store, in the order of the report.
    pub const ALL: [Self; 14] = [
        Self::Exclusion,
        Self::Expiry,
        Self::Renewal,
        Self::Release,
        Self::Fencing,
        Self::WakeUp,
        Self::Uncertainty,
        Self::Inspection,
        Self::Order,
        Self::Handover,
        Self::ReadWrite,
        Self::Shares,
        Self::Revocation,
        Self::Rest,
    ];
}

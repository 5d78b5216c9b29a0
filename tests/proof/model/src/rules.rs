//! The rules of safety, each of which can be switched off.

/// Which rules are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// I1: a deadline counts from the sending of the request, not from its answer.
    pub deadline_from_sending: bool,
    /// I2: a renewal that arrives after the deadline changes nothing.
    pub lapse_is_final: bool,
    /// I8: each grant has a larger token than all before it.
    pub tokens_grow: bool,
    /// A release compares the grant.
    pub release_compares: bool,
    /// What the resource compares.
    pub fence: Fence,
    /// How often each client asks for the lock: a bound of the model, not a rule.
    pub tries: u8,
}

/// The fence of the resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fence {
    /// None: every write is applied.
    None,
    /// A write raises it, and an older write is refused.
    RaisedByTheFirstWrite,
    /// It is raised before the holder gets its guard.
    RaisedBeforeTheGuard,
}

impl Rules {
    /// All rules.
    pub const ALL: Self = Self {
        deadline_from_sending: true,
        lapse_is_final: true,
        tokens_grow: true,
        release_compares: true,
        fence: Fence::RaisedBeforeTheGuard,
        tries: 1,
    };
}

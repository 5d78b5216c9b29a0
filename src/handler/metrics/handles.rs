//! The handles of every metric: registered once, so that an event costs no look-up.

use ::metrics::{Counter, Gauge, Histogram, Label, Unit};

/// A set of handles that differ in the value of one label.
macro_rules! by_label {
    ($name:ident: $handle:ty, $register:ident, $label:literal, $($value:ident),*) => {
        pub(super) struct $name {
            $(pub(super) $value: $handle,)*
        }

        impl $name {
            fn register(name: &'static str, labels: &[Label]) -> Self {
                Self {
                    $($value: {
                        let mut labels = labels.to_vec();
                        labels.push(Label::from_static_parts($label, stringify!($value)));
                        ::metrics::$register!(name, labels)
                    },)*
                }
            }
        }
    };
}

by_label!(Acquire: Histogram, histogram, "outcome", held, busy, failed, abandoned);
by_label!(Hold: Histogram, histogram, "reason", released, dropped, lost, closed);
by_label!(Renewals: Counter, counter, "answer", extended, gone, unknown);
by_label!(
    Runs: Counter,
    counter,
    "end",
    committed,
    late,
    rolled_back,
    incomplete,
    fenced,
    in_doubt,
    not_started,
    panicked,
    dropped
);
by_label!(Debts: Counter, counter, "state", in_doubt, owed, undecided, failed);
by_label!(
    Lost: Counter,
    counter,
    "reason",
    lapsed,
    gone,
    max_hold,
    clock_fault,
    closed,
    other
);

pub(super) struct Handles {
    pub(super) acquire: Acquire,
    pub(super) hold: Hold,
    pub(super) held: Gauge,
    pub(super) waiting: Gauge,
    pub(super) round_trip: Histogram,
    pub(super) timer_lag: Histogram,
    pub(super) renewals: Renewals,
    pub(super) runs: Runs,
    pub(super) commit_slack: Histogram,
    pub(super) near_misses: Counter,
    pub(super) in_doubt: Counter,
    pub(super) debts: Debts,
    pub(super) lost: Lost,
}

impl Handles {
    pub(super) fn register(labels: &[Label]) -> Self {
        let own = || labels.to_vec();
        describe();
        Self {
            acquire: Acquire::register("leasehold_acquire_seconds", labels),
            hold: Hold::register("leasehold_hold_seconds", labels),
            held: ::metrics::gauge!("leasehold_held", own()),
            waiting: ::metrics::gauge!("leasehold_waiting", own()),
            round_trip: ::metrics::histogram!("leasehold_renewal_round_trip_seconds", own()),
            timer_lag: ::metrics::histogram!("leasehold_renewal_timer_lag_seconds", own()),
            renewals: Renewals::register("leasehold_renewals_total", labels),
            runs: Runs::register("leasehold_runs_total", labels),
            commit_slack: ::metrics::histogram!("leasehold_commit_slack_seconds", own()),
            near_misses: ::metrics::counter!("leasehold_near_misses_total", own()),
            in_doubt: ::metrics::counter!("leasehold_in_doubt_total", own()),
            debts: Debts::register("leasehold_debts_total", labels),
            lost: Lost::register("leasehold_lost_total", labels),
        }
    }
}

fn describe() {
    for (name, what) in [
        (
            "leasehold_acquire_seconds",
            "how long a call for a lock took",
        ),
        ("leasehold_hold_seconds", "how long a lock was held"),
        (
            "leasehold_renewal_round_trip_seconds",
            "one call of the store to renew what is due",
        ),
        (
            "leasehold_renewal_timer_lag_seconds",
            "how late the manager's timer fired before a renewal",
        ),
        (
            "leasehold_commit_slack_seconds",
            "what was left of the lease when a commit began",
        ),
    ] {
        ::metrics::describe_histogram!(name, Unit::Seconds, what);
    }
    for (name, what) in [
        ("leasehold_held", "locks that are held now"),
        ("leasehold_waiting", "callers that wait for a lock now"),
    ] {
        ::metrics::describe_gauge!(name, Unit::Count, what);
    }
    for (name, what) in [
        (
            "leasehold_renewals_total",
            "answers to renewals, for each hold",
        ),
        ("leasehold_runs_total", "guarded runs, by how they ended"),
        (
            "leasehold_near_misses_total",
            "commits that began with little left of the lease, or came late",
        ),
        (
            "leasehold_in_doubt_total",
            "commits that may or may not have been applied",
        ),
        (
            "leasehold_debts_total",
            "effects that could not be undone safely",
        ),
        ("leasehold_lost_total", "leases that were lost"),
    ] {
        ::metrics::describe_counter!(name, Unit::Count, what);
    }
}

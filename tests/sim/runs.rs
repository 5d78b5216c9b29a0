//! [`Runs`]: the record of every guarded run, written by the work itself, and judged when no
//! message is under way any more.

use std::collections::BTreeSet;

use leasehold::RunError;
use leasehold::run::{CommitProof, DebtState, TxnId, UndoResult};

use crate::state::State;

/// How a run ended, as its caller saw it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum End {
    NotStarted,
    RolledBack,
    Incomplete,
    Fenced,
    InDoubt,
    CommittedLate { published: bool },
    Committed(CommitProof),
    Panicked,
    Dropped,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hook {
    Local,
    Step(u64),
}

#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) node: usize,
    pub(crate) life: u64,
    pub(crate) leases: Vec<usize>,
    pub(crate) entered: bool,
    /// In the order of their registration.
    pub(crate) hooks: Vec<Hook>,
    /// The hooks that were called, in this order.
    pub(crate) called: Vec<usize>,
    /// Steps that were sent.
    pub(crate) steps: Vec<u64>,
    /// Sent, and not answered yet.
    pub(crate) is_open: bool,
    pub(crate) txn: Option<TxnId>,
    /// The value that the cell got, if the run wrote one.
    pub(crate) wrote_cell: Option<leasehold::Key>,
    pub(crate) end: Option<End>,
    /// Its caller has dropped it, or is about to.
    pub(crate) is_dropped: bool,
    /// A run in turn that was not undone yet when the turn of this one came.
    pub(crate) came_before_undo_of: Option<usize>,
    /// Texts of the effects that are left, as the outcome says.
    pub(crate) debts: Vec<String>,
}

#[derive(Default)]
pub(crate) struct Runs {
    pub(crate) all: Vec<Run>,
    /// Runs in turn whose caller waits.
    pub(crate) in_turn: BTreeSet<usize>,
    /// Texts of debts that observers saw.
    pub(crate) observed: Vec<String>,
    pub(crate) entered: Vec<(usize, u64)>,
    pub(crate) ended: Vec<(usize, u64)>,
    pub(crate) held: u64,
    pub(crate) released: u64,
}

pub(crate) fn step_name(step: u64) -> String {
    format!("step {step}")
}

impl State {
    pub(crate) fn new_run(&mut self, node: usize, life: u64, leases: &[usize]) -> usize {
        self.runs.all.push(Run {
            node,
            life,
            leases: leases.to_vec(),
            entered: false,
            hooks: Vec::new(),
            called: Vec::new(),
            steps: Vec::new(),
            is_open: false,
            txn: None,
            wrote_cell: None,
            end: None,
            is_dropped: false,
            came_before_undo_of: None,
            debts: Vec::new(),
        });
        self.runs.all.len() - 1
    }

    /// The caller got its outcome, or dropped the run.
    pub(crate) fn run_ended(&mut self, run: usize, end: End) {
        self.log
            .note(self.now, "run", [run as u64, end_number(&end), 0]);
        self.coverage.sometimes(end_name(&end));
        let is_open = self.runs.all[run].is_open;
        let leases = self.runs.all[run].leases.clone();
        if end == End::InDoubt || (end == End::Dropped && is_open) {
            self.are_in_doubt(&leases);
        }
        self.records_outcome(run, &end);
        // O4: what is claimed to be within the lease was so when the claim was made.
        let has_cell = self.runs.all[run].wrote_cell.is_some();
        let claims = match end {
            End::Committed(CommitProof::Fenced) => has_cell,
            End::Committed(_) => true,
            _ => false,
        };
        if claims && let Some(over) = leases.iter().find(|&&number| !self.is_believed(number)) {
            let known = &self.leases.all[*over];
            let what = format!(
                "run {run} claims {end:?} under {} {}, whose lease is over",
                known.key, known.token
            );
            self.fail("O4 outcomes", || what);
        }
        self.runs.all[run].end = Some(end);
        self.runs.in_turn.remove(&run);
    }

    /// An effect under these leases is in doubt.
    pub(crate) fn are_in_doubt(&mut self, leases: &[usize]) {
        for &number in leases {
            self.leases.all[number].is_in_doubt = true;
        }
        self.records_doubt(leases);
    }

    pub(crate) fn run_failed<T, E: 'static>(&mut self, run: usize, error: &RunError<T, E>) {
        let record = &mut self.runs.all[run];
        record.debts = error
            .debts()
            .iter()
            .map(|debt| debt.intent.to_string())
            .collect();
        let may_be_applied = matches!(
            error,
            RunError::Incomplete { .. } | RunError::InDoubt { .. } | RunError::CommittedLate { .. }
        );
        if may_be_applied && error.is_retryable() {
            return self.fail("O4 outcomes", || {
                format!("run {run} may be applied, and its caller is told to repeat it")
            });
        }
        let end = match error {
            RunError::NotAcquired { .. } | RunError::NotStarted { .. } => End::NotStarted,
            RunError::RolledBack { .. } => End::RolledBack,
            RunError::Incomplete { .. } => End::Incomplete,
            RunError::Fenced { .. } => End::Fenced,
            RunError::InDoubt { .. } => End::InDoubt,
            RunError::CommittedLate { published, .. } => End::CommittedLate {
                published: *published,
            },
            _ => return self.fail("O4 outcomes", || "an outcome without a name".to_owned()),
        };
        if let Some(undo) = error.undo() {
            let not_tried = undo
                .results()
                .iter()
                .any(|undone| matches!(undone.result, UndoResult::NotTried(DebtState::Owed)));
            if not_tried {
                self.coverage.sometimes("compensation not tried");
            }
        }
        let in_doubt = |debt: &leasehold::run::Debt| matches!(debt.state, DebtState::InDoubt);
        if error.debts().iter().any(in_doubt) {
            let leases = self.runs.all[run].leases.clone();
            self.are_in_doubt(&leases);
        }
        self.run_ended(run, end);
    }

    /// O4 and O6, when nothing is under way any more.
    pub(crate) fn judge_runs(&mut self) {
        for number in 0..self.runs.all.len() {
            let run = self.runs.all[number].clone();
            let applied = run.txn.map_or(0, |txn| {
                self.resource.commits.get(&txn).copied().unwrap_or(0)
            });
            let wrong = self.judge_run(&run, applied);
            if let Some((oracle, what)) = wrong {
                self.fail(oracle, || {
                    format!("run {number} ({:?}): {what}; {run:?}", run.end)
                });
            }
        }
    }

    fn judge_run(&self, run: &Run, applied: u32) -> Option<(&'static str, String)> {
        let o4 = |what: String| Some(("O4 outcomes", what));
        if applied > 1 {
            return o4(format!("its commit was applied {applied} times"));
        }
        // The process died: nobody received an outcome.
        let end = run
            .end
            .as_ref()
            .filter(|_| self.lives[run.node] == run.life)?;
        let done = |step: &u64| self.resource.steps.contains(step);
        let left = |step: &&u64| done(step) && !self.resource.undone.contains(*step);
        let is_owed = |step: &u64| run.debts.contains(&step_name(*step));
        match end {
            End::NotStarted if run.entered => return o4("its work was begun".to_owned()),
            End::NotStarted | End::RolledBack | End::Fenced => {
                if applied != 0 {
                    return o4("its commit was applied".to_owned());
                }
                if let Some(step) = run.steps.iter().find(left) {
                    return o4(format!("step {step} is left"));
                }
            }
            End::Incomplete => {
                if applied != 0 {
                    return o4("its commit was applied".to_owned());
                }
                if let Some(step) = run.steps.iter().find(|step| left(step) && !is_owed(step)) {
                    return o4(format!("step {step} is left and is no debt"));
                }
            }
            End::InDoubt => {
                if let Some(step) = run.steps.iter().find(|step| left(step) && !is_owed(step)) {
                    return o4(format!("step {step} is left and is no debt"));
                }
            }
            End::Committed(_) | End::CommittedLate { .. } => {
                if run.txn.is_some() && applied != 1 {
                    return o4("its commit was not applied".to_owned());
                }
                if !run.called.is_empty() {
                    return Some(("O6 undo", "it was committed and undone".to_owned()));
                }
            }
            End::Panicked | End::Dropped => {
                let is_owed = |step: &u64| self.runs.observed.contains(&step_name(*step));
                if self.setup.observed
                    && let Some(step) = run.steps.iter().find(|step| left(step) && !is_owed(step))
                {
                    // A commit in doubt keeps the steps that belong to it, and says so by its own
                    // debt.
                    return o4(format!("step {step} is left and no observer saw a debt"));
                }
            }
        }
        if let End::Committed(proof) = end
            && let Some(txn) = run.txn
        {
            let deed = crate::resource::Deed::Committed(txn);
            let entry = self
                .resource
                .entries
                .iter()
                .find(|entry| entry.deed == deed);
            let is_true = entry.is_some_and(|entry| match proof {
                CommitProof::Fenced => entry.is_fenced,
                _ => entry.is_covered,
            });
            if !is_true {
                return o4(format!(
                    "it claims {proof:?}, and the log of the resource does not: {entry:?}"
                ));
            }
        }
        self.judge_undo(run, end)
    }

    fn judge_undo(&self, run: &Run, end: &End) -> Option<(&'static str, String)> {
        let is_local = |&&hook: &&usize| run.hooks[hook] == Hook::Local;
        let called: Vec<_> = run.called.iter().filter(is_local).copied().collect();
        let due: Vec<_> = match end {
            End::Committed(_) | End::CommittedLate { .. } | End::NotStarted => Vec::new(),
            _ => (0..run.hooks.len())
                .rev()
                .filter(|&hook| run.hooks[hook] == Hook::Local)
                .collect(),
        };
        let in_order = run.called.windows(2).all(|two| two[0] > two[1]);
        if called != due {
            return Some((
                "O6 undo",
                format!("local hooks {called:?} were called, and {due:?} were due"),
            ));
        }
        if !in_order && *end != End::Dropped {
            return Some((
                "O6 undo",
                format!("hooks were called in the order {:?}", run.called),
            ));
        }
        None
    }
}

fn end_number(end: &End) -> u64 {
    match end {
        End::NotStarted => 0,
        End::RolledBack => 1,
        End::Incomplete => 2,
        End::Fenced => 3,
        End::InDoubt => 4,
        End::CommittedLate { .. } => 5,
        End::Committed(_) => 6,
        End::Panicked => 7,
        End::Dropped => 8,
    }
}

fn end_name(end: &End) -> &'static str {
    match end {
        End::NotStarted => "run not started",
        End::RolledBack => "run rolled back",
        End::Incomplete => "run incomplete",
        End::Fenced => "run fenced",
        End::InDoubt => "run in doubt",
        End::CommittedLate { .. } => "run committed late",
        End::Committed(CommitProof::Fenced) => "run committed behind a fence",
        End::Committed(CommitProof::Local) => "run committed its cells",
        End::Committed(_) => "run committed within its lease",
        End::Panicked => "run panicked",
        End::Dropped => "run dropped",
    }
}

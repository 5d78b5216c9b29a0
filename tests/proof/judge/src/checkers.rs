//! [`check`]: asks the two checkers of other people.

use std::time::Duration;

use porcupine_rs::{CheckResult, Model};
use todc_utils::linearizability::history::Action as Part;
use todc_utils::{History as TodcHistory, Specification, WGLChecker};

use crate::operation::Operation;
use crate::spec::{Action, State, step};

/// The specification, as both want it.
#[derive(Clone, Debug)]
pub struct FencedLock;

impl Model for FencedLock {
    type State = State;
    type Op = Action;
    type Metadata = ();

    fn init() -> State {
        State::default()
    }

    fn step(state: &State, action: &Action) -> (bool, State) {
        stepped(state, action)
    }
}

impl Specification for FencedLock {
    type State = State;
    type Operation = Action;

    fn init() -> State {
        State::default()
    }

    fn apply(action: &Action, state: &State) -> (bool, State) {
        stepped(state, action)
    }
}

fn stepped(state: &State, action: &Action) -> (bool, State) {
    match step(state, action) {
        Some(next) => (true, next),
        None => (false, state.clone()),
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// There is an order that the specification allows.
    Right,
    /// There is none. The longest order that `porcupine-rs` found leaves this operation out.
    Wrong(String),
    /// A checker found no answer in time, or the two disagree.
    Unknown(String),
}

/// How long `porcupine-rs` may search for one key.
pub const LIMIT: Duration = Duration::from_secs(60);

/// `todc-utils` takes the square of the length, and has no limit of its own: of a longer history
/// it gets no part.
pub const MOST_FOR_TODC: usize = 4_000;

/// The operations of one key.
pub fn check(operations: &[Operation]) -> Verdict {
    if operations.is_empty() {
        return Verdict::Right;
    }
    let by_porcupine = porcupine_says(operations);
    if operations.len() > MOST_FOR_TODC || matches!(by_porcupine, Verdict::Unknown(_)) {
        return by_porcupine;
    }
    match (todc_says(operations), &by_porcupine) {
        (true, Verdict::Right) | (false, Verdict::Wrong(_)) => by_porcupine,
        (is_right, _) => Verdict::Unknown(format!(
            "porcupine-rs says {by_porcupine:?}, and todc-utils says right={is_right}"
        )),
    }
}

fn times(operation: &Operation) -> (i64, i64) {
    let time = |nanos: u64| i64::try_from(nanos).expect("a time of less than 292 years");
    (time(operation.call), operation.end.map_or(i64::MAX, time))
}

/// What `porcupine-rs` says alone.
pub fn porcupine_says(operations: &[Operation]) -> Verdict {
    let history: Vec<porcupine_rs::Operation<FencedLock>> = operations
        .iter()
        .map(|operation| {
            let (call_time, return_time) = times(operation);
            porcupine_rs::Operation {
                client_id: u32::try_from(operation.process).ok(),
                call_time,
                return_time,
                op: operation.action.clone(),
                metadata: None,
            }
        })
        .collect();
    match porcupine_rs::check_operations_timeout(&history, LIMIT) {
        CheckResult::Ok => Verdict::Right,
        CheckResult::Unknown => Verdict::Unknown(format!("no answer in {LIMIT:?}")),
        CheckResult::Illegal => Verdict::Wrong(first_left_out(&history, operations)),
    }
}

/// The first to end of those that the longest order leaves out.
fn first_left_out(
    history: &[porcupine_rs::Operation<FencedLock>],
    operations: &[Operation],
) -> String {
    let (_, info) = porcupine_rs::check_operations_info_timeout(history, LIMIT);
    let longest = info.partial_linearizations.iter().flatten();
    let longest = longest.max_by_key(|order| order.len());
    let is_out = |number: &usize| longest.is_none_or(|order| !order.contains(number));
    let out = (0..operations.len()).filter(is_out);
    let first = out.min_by_key(|&number| times(&operations[number]).1);
    first.map_or_else(String::new, |number| {
        let Operation {
            process,
            call,
            end,
            action,
        } = &operations[number];
        format!("process {process} from {call} to {end:?}: {action:?}")
    })
}

/// What `todc-utils` says alone.
pub fn todc_says(operations: &[Operation]) -> bool {
    let mut parts = Vec::new();
    for (number, operation) in operations.iter().enumerate() {
        let (call, end) = times(operation);
        let action = &operation.action;
        parts.push((call, 0, number, Part::Call(action.clone())));
        parts.push((end, 1, number, Part::Response(action.clone())));
    }
    parts.sort_by_key(|(time, part, number, _)| (*time, *part, *number));
    // Each operation is a process of its own, since its answers belong to its calls by their order.
    let parts = parts.into_iter().map(|(_, _, number, part)| (number, part));
    WGLChecker::<FencedLock>::is_linearizable(TodcHistory::from_actions(parts.collect()))
}

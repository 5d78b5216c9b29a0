//! [`explore_lapses`]: a run of a user's test, once for every point at which its lease can end.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::outcome::{Committed, RunError};
use super::test_hold::{TestHold, WatchEvent};
use crate::clock::ManualClock;
use crate::model::key::Key;
use crate::model::run_event::RunEvent;
use crate::model::token::FencingToken;
use crate::settings::Settings;

const TTL: Duration = Duration::from_secs(10);

/// The most points of one test: each is a whole run.
const MOST_POINTS: u64 = 100_000;

/// Runs `test` once for every point at which its lease can end, and checks the state that each run
/// leaves (feature `testing`).
///
/// The lease ends right before each look at its deadline, one after the other: before the run, at
/// each `tx.check()`, before and during each step, before the commit, after it. What happens
/// between two looks is seen at the second one, so no other moment makes a difference. Time does
/// not pass; a test of ten looks is eleven runs and takes milliseconds.
///
/// `test` makes its data anew, runs *one* guarded run under
/// [`hold.executor()`](TestHold::executor), and returns the outcome and the state. The state is
/// judged by the outcome ([`RunError::was_applied`]):
///
/// | the outcome says | the state must be |
/// |---|---|
/// | not applied | that before the run: **otherwise an undo hook is missing** |
/// | applied, perhaps late | that after a run under a live lease |
/// | incomplete, in doubt | not judged; [`Explored::unclear`] counts them |
///
/// ```
/// use leasehold::testing::explore_lapses;
/// use std::sync::Mutex;
///
/// let explored = explore_lapses(|hold| {
///     let stock = Mutex::new(12);
///     let executor = hold.executor();
///     let ran = executor.guarded(|tx| {
///         *stock.lock().unwrap() -= 5;
///         // Without this line: "the state is 7 instead of 12".
///         tx.undo(|| *stock.lock().unwrap() += 5);
///         tx.check()?;
///         Ok(())
///     });
///     (ran, stock.into_inner().unwrap())
/// })?;
/// assert_eq!((explored.points, explored.unclear), (3, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// The first point at which the state is wrong, in words. Also if `test` does not do the same each
/// time.
pub fn explore_lapses<T, E, S: PartialEq + Debug>(
    mut test: impl FnMut(&TestHold) -> (Result<Committed<T>, RunError<T, E>>, S),
) -> Result<Explored, MissedUndo> {
    let mut search = Search::default();
    while let Some(point) = search.next()? {
        let (outcome, state) = test(&point.hold);
        search.judge(&point, End::of(&outcome), state)?;
    }
    Ok(search.explored)
}

/// [`explore_lapses`] for a run that is awaited.
///
/// ```
/// use leasehold::testing::explore_lapses_async;
/// use std::sync::{Arc, Mutex};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let explored = explore_lapses_async(async |hold| {
///     let stock = Arc::new(Mutex::new(12));
///     let executor = hold.executor();
///     let ran = executor.guarded_async(async |tx| {
///         *stock.lock().unwrap() -= 5;
///         let back = Arc::clone(&stock);
///         tx.undo(move || *back.lock().unwrap() += 5);
///         Ok(())
///     });
///     let ran = ran.await;
///     let left = *stock.lock().unwrap();
///     (ran, left)
/// });
/// assert_eq!(explored.await?.unclear, 0);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// As [`explore_lapses`].
///
/// # Cancel safety
///
/// Cancel safe: nothing is left of what was explored.
pub async fn explore_lapses_async<T, E, S: PartialEq + Debug>(
    mut test: impl AsyncFnMut(&TestHold) -> (Result<Committed<T>, RunError<T, E>>, S),
) -> Result<Explored, MissedUndo> {
    let mut search = Search::default();
    while let Some(point) = search.next()? {
        let (outcome, state) = test(&point.hold).await;
        search.judge(&point, End::of(&outcome), state)?;
    }
    Ok(search.explored)
}

/// What [`explore_lapses`] has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Explored {
    /// At how many points the lease ended.
    pub points: u64,
    /// At how many of them the run was [incomplete](RunError::Incomplete) or [in
    /// doubt](RunError::InDoubt), so that its state was not judged.
    pub unclear: u64,
}

/// A point at which the end of the lease leaves a wrong state.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct MissedUndo(String);

/// How a run ended, as far as its state depends on it.
#[derive(Clone, Copy)]
struct End {
    was_applied: Option<bool>,
    word: &'static str,
}

impl End {
    fn of<T, E>(outcome: &Result<Committed<T>, RunError<T, E>>) -> Self {
        let (was_applied, word) = match outcome {
            Ok(_) => (Some(true), "committed"),
            Err(error) => (error.was_applied(), error.word()),
        };
        Self { was_applied, word }
    }
}

/// One run: the lease ends before the look with this number. The first run of all has the number
/// zero, and a live lease.
struct Point {
    number: u64,
    hold: TestHold,
    clock: ManualClock,
    stages: Arc<Mutex<Vec<(u64, Stage)>>>,
}

/// What a run came to, in words.
type Stage = String;

impl Point {
    fn new(number: u64) -> Result<Self, MissedUndo> {
        let clock = ManualClock::new();
        clock.jump_before(number);
        let stages = Arc::new(Mutex::new(Vec::new()));
        let (watched, noted, checks) = (clock.clone(), Arc::clone(&stages), AtomicU64::new(0));
        let watch = move |seen: WatchEvent<'_>| {
            let stage = match seen {
                WatchEvent::Ran(RunEvent::Entered) => "the begin of the run".to_owned(),
                WatchEvent::Ran(RunEvent::Checked { .. }) => {
                    format!("check {}", checks.fetch_add(1, Ordering::Relaxed) + 1)
                }
                WatchEvent::Ran(event) if event.is_end() => "the end of the run".to_owned(),
                WatchEvent::Ran(_) => return,
                WatchEvent::Sent(intent) => format!("the step \"{intent}\""),
            };
            noted.lock().push((watched.looks(), stage));
        };
        let parsed = Key::parse("explored").and_then(|key| Ok((key, FencingToken::new(1)?)));
        let (key, token) = parsed.map_err(|error| MissedUndo(error.to_string()))?;
        let hold = TestHold::new(clock.clone(), &Settings::default(), key, token, TTL);
        Ok(Self {
            number,
            hold: hold.watched(Box::new(watch)),
            clock,
            stages,
        })
    }
}

struct Search<S> {
    next: u64,
    /// The looks of a run under a live lease.
    looks: u64,
    /// After how many looks such a run came to each stage.
    stages: Vec<(u64, Stage)>,
    /// How such a run ended, and its state.
    whole: Option<(End, S)>,
    /// The state under a lease that is over before the run.
    before: Option<S>,
    explored: Explored,
}

impl<S> Default for Search<S> {
    fn default() -> Self {
        Self {
            next: 0,
            looks: 0,
            stages: Vec::new(),
            whole: None,
            before: None,
            explored: Explored::default(),
        }
    }
}

impl<S: PartialEq + Debug> Search<S> {
    fn next(&mut self) -> Result<Option<Point>, MissedUndo> {
        let number = self.next;
        if number > self.looks {
            return Ok(None);
        }
        self.next += 1;
        Point::new(number).map(Some)
    }

    fn judge(&mut self, point: &Point, end: End, state: S) -> Result<(), MissedUndo> {
        if point.number == 0 {
            self.looks = point.clock.looks();
            self.stages = point.stages.lock().clone();
            self.whole = Some((end, state));
            return match self.looks {
                0 => Err(MissedUndo(
                    "the test ran nothing under the hold that it was given; use hold.executor()"
                        .to_owned(),
                )),
                1..=MOST_POINTS => Ok(()),
                looks => Err(MissedUndo(format!(
                    "the run looks at its lease {looks} times, of which {MOST_POINTS} are explored at most; make it shorter"
                ))),
            };
        }
        let name = self.name(point.number);
        self.explored.points += 1;
        if point.clock.looks() < point.number {
            return Err(MissedUndo(format!(
                "a run ended before {name}; do the same in each run of the test"
            )));
        }
        if self.before.is_none() {
            if let Some((end, whole)) = &self.whole
                && end.was_applied == Some(false)
            {
                same("under a live lease", *end, whole, &state)?;
            }
            self.before = Some(state);
            return Ok(());
        }
        let expected = match end.was_applied {
            Some(false) => self.before.as_ref(),
            Some(true) => self.whole.as_ref().map(|(_, state)| state),
            None => {
                self.explored.unclear += 1;
                None
            }
        };
        match expected {
            Some(expected) => same(
                &format!("when the lease ended at {name}"),
                end,
                &state,
                expected,
            ),
            None => Ok(()),
        }
    }

    /// A look, by what comes next in a run under a live lease, and what came before.
    fn name(&self, look: u64) -> String {
        let total = self.looks;
        let is_before = |(looks, _): &&(u64, Stage)| *looks < look;
        let last = self.stages.iter().rfind(is_before);
        let next = self.stages.iter().find(|stage| !is_before(stage));
        let mut name = format!("look {look} of {total}");
        if let Some((_, next)) = next {
            name += &format!(", {next}");
        }
        if let Some((_, last)) = last {
            name += &format!(", after {last}");
        }
        name
    }
}

fn same<S: PartialEq + Debug>(
    when: &str,
    end: End,
    state: &S,
    expected: &S,
) -> Result<(), MissedUndo> {
    if state == expected {
        return Ok(());
    }
    let word = end.word;
    Err(MissedUndo(format!(
        "{when}: the run is {word}, and the state is {state:?} instead of {expected:?}; undo in a hook what the work changes"
    )))
}

//! The shrinker: leaves out faults, and then single events, for as long as the same judge still
//! finds a fault.

use crate::nemesis::acts;
use crate::setup::Setup;

/// Each try is a whole world.
const MOST_TRIES: usize = 300;

/// The name of the judge in the text of a failure.
pub(crate) fn oracle(failure: &str) -> &str {
    failure.split(" at ").next().unwrap_or_default()
}

/// The smallest setup that was found; `failure_of` runs one.
pub(crate) fn shrink(
    setup: &Setup,
    failure: &str,
    failure_of: impl Fn(&Setup) -> Option<String>,
) -> Setup {
    let mut tries = 0;
    let mut still_fails = |smaller: &Setup| {
        tries += 1;
        let found = (tries <= MOST_TRIES).then(|| failure_of(smaller)).flatten();
        found.is_some_and(|found| oracle(&found) == oracle(failure))
    };
    let mut best = setup.clone();
    for fault in setup.faults.clone() {
        let mut smaller = best.clone();
        smaller.without(fault);
        if still_fails(&smaller) {
            best = smaller;
        }
    }
    let struck = |setup: &Setup| -> Vec<usize> {
        let acts = acts(setup).into_iter().enumerate();
        let on = acts.filter(|(_, act)| setup.has(act.deed.fault()));
        let on = on.map(|(number, _)| number);
        on.filter(|number| !setup.skip.contains(number)).collect()
    };
    let mut size = struck(&best).len();
    while size > 0 {
        for chunk in struck(&best).chunks(size) {
            let mut smaller = best.clone();
            smaller.skip.extend(chunk);
            if still_fails(&smaller) {
                best = smaller;
            }
        }
        size /= 2;
    }
    best
}

//! [`operations`]: pairs the lines of a history, and takes apart what belongs to different keys.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use crate::history::{History, Line, Type};
use crate::spec::{Action, Hold, How, Said, Write};

/// An operation with its span. What is open ends after everything else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    pub process: u64,
    pub call: u64,
    pub end: Option<u64>,
    pub action: Action,
}

/// The operations of each key, in the order of their begins.
///
/// # Errors
///
/// A line that does not fit to those before, or whose value is not understood.
pub fn operations(history: &History) -> Result<BTreeMap<String, Vec<Operation>>, String> {
    let places = places(history)?;
    let mut owners = HashMap::new();
    let mut begun: HashMap<u64, &Line> = HashMap::new();
    let mut all: BTreeMap<String, Vec<Operation>> = BTreeMap::new();
    for line in &history.lines {
        let place = |id: &str| places.get(&(line.key.as_str(), id)).copied();
        let mut add = |asked: &Line, answer: Option<&Line>| {
            let action = action(asked, answer, &place, &mut owners)
                .ok_or_else(|| format!("a value is not understood: {line:?}"))?;
            let is_open = answer.is_none_or(|answer| answer.kind == Type::Info);
            let operation = action.map(|action| Operation {
                process: asked.process,
                call: asked.time,
                end: answer.filter(|_| !is_open).map(|answer| answer.time),
                action,
            });
            all.entry(asked.key.clone()).or_default().extend(operation);
            Ok::<(), String>(())
        };
        if line.kind == Type::Invoke {
            if begun.insert(line.process, line).is_some() {
                return Err(format!("it has not ended what it did before: {line:?}"));
            }
            continue;
        }
        let asked = begun.remove(&line.process);
        let asked = asked.filter(|asked| (&asked.f, &asked.key) == (&line.f, &line.key));
        let asked = asked.ok_or_else(|| format!("it has not begun: {line:?}"))?;
        if line.time < asked.time {
            return Err(format!("it ends before it begins: {line:?}"));
        }
        add(asked, Some(line))?;
    }
    let mut left: Vec<_> = begun.into_values().collect();
    left.sort_by_key(|line| line.process);
    for line in left {
        let place = |id: &str| places.get(&(line.key.as_str(), id)).copied();
        let action = action(line, None, &place, &mut owners);
        let action = action.ok_or_else(|| format!("a value is not understood: {line:?}"))?;
        let operation = action.map(|action| Operation {
            process: line.process,
            call: line.time,
            end: None,
            action,
        });
        all.entry(line.key.clone()).or_default().extend(operation);
    }
    for operations in all.values_mut() {
        operations.sort_by_key(|operation| (operation.call, operation.process));
        leave_out_what_says_nothing(operations);
    }
    Ok(all)
}

/// The search tries all orders of what happens at one time, so what cannot change a verdict is left
/// out: looks that another look within their span implies, and raises without an answer that no
/// refusal needs. One that is not needed may as well come last.
fn leave_out_what_says_nothing(operations: &mut Vec<Operation>) {
    let mut looks: HashMap<Action, Vec<(u64, u64)>> = HashMap::new();
    // The shortest first: the longer ones may contain them.
    let span = |operation: &Operation| operation.end.map_or(u64::MAX, |end| end - operation.call);
    let mut order: Vec<usize> = (0..operations.len()).collect();
    order.sort_by_key(|&number| (span(&operations[number]), number));
    let mut is_out = vec![false; operations.len()];
    for number in order {
        let Operation {
            call, end, action, ..
        } = &operations[number];
        let (call, end) = (*call, end.unwrap_or(u64::MAX));
        use Action::{Check, Commit, Doubt, Enter, Renew};
        if matches!(
            action,
            Check(_) | Commit(_) | Doubt(_) | Enter(_) | Renew(_)
        ) {
            let seen = looks.entry(action.clone()).or_default();
            is_out[number] = seen.iter().any(|look| call <= look.0 && look.1 <= end);
            if !is_out[number] {
                seen.push((call, end));
            }
        }
    }
    let refused = operations
        .iter()
        .filter_map(|operation| match &operation.action {
            Action::Raise(token, Some(false)) => Some(*token),
            Action::Write(write) if write.said == Said::Fenced => Some(write.token),
            _ => None,
        });
    let least = refused.min();
    let mut outs = is_out.into_iter();
    operations.retain(|operation| {
        let is_needed = match operation.action {
            Action::Raise(token, None) => least.is_some_and(|least| least < token),
            _ => true,
        };
        !outs.next().expect("one for each") && is_needed
    });
}

/// The place of each write of each key, by the last `read`. Every write is in it once at most.
fn places(history: &History) -> Result<HashMap<(&str, &str), u64>, String> {
    let mut reads: BTreeMap<&str, &Line> = BTreeMap::new();
    for line in &history.lines {
        if (line.f.as_str(), line.kind) == ("read", Type::Ok) {
            reads.insert(&line.key, line);
        }
    }
    let mut places = HashMap::new();
    for (key, read) in reads {
        let ids = read.value.as_array();
        let ids = ids.ok_or_else(|| format!("a read returns a list: {read:?}"))?;
        for (place, id) in (0..).zip(ids) {
            let id = id
                .as_str()
                .ok_or_else(|| format!("an id is a text: {read:?}"))?;
            // One that is there twice leaves a place without a write, which no order explains.
            places.entry((key, id)).or_insert(place);
        }
    }
    Ok(places)
}

type Parsed = Option<Option<Action>>;

/// `Some(None)` is an operation that says nothing: a request that failed, or a write that was never
/// applied and that nobody got an answer to.
fn action(
    asked: &Line,
    answer: Option<&Line>,
    place: &dyn Fn(&str) -> Option<u64>,
    owners: &mut HashMap<String, u64>,
) -> Parsed {
    let kind = answer.map_or(Type::Info, |answer| answer.kind);
    let result = answer.map_or(&Value::Null, |answer| &answer.value);
    let number = |name: &str| asked.value[name].as_u64();
    let text = |name: &str| asked.value[name].as_str();
    if kind != Type::Ok && !["release", "raise", "write"].contains(&asked.f.as_str()) {
        return Some(None);
    }
    Some(Some(match asked.f.as_str() {
        "acquire" => {
            let next = owners.len() as u64;
            let owner = result["owner"].as_str()?.to_owned();
            Action::Acquire(Hold {
                id: result["hold"].as_u64()?,
                token: result["token"].as_u64()?,
                owner: *owners.entry(owner).or_insert(next),
                handoff: result["handoff"].as_bool()?,
            })
        }
        "renew" => Action::Renew(number("hold")?),
        "check" => Action::Check(number("hold")?),
        "enter" => Action::Enter(number("hold")?),
        "commit" => Action::Commit(number("hold")?),
        "close" => Action::Close(number("hold")?),
        "doubt" => Action::Doubt(number("hold")?),
        "release" => {
            let how = match text("how")? {
                "release" => How::Release,
                "drop" => How::Drop,
                "lapse" => How::Lapse,
                "death" => How::Death,
                _ => return None,
            };
            Action::Release(number("hold")?, how)
        }
        "raise" => {
            let answer = match kind {
                Type::Ok => Some(true),
                Type::Fail => Some(false),
                _ => None,
            };
            Action::Raise(number("token")?, answer)
        }
        "write" => {
            let place = place(text("id")?);
            let said = match (kind, result["proof"].as_str()) {
                (Type::Ok, Some("fence")) => Said::Fence,
                (Type::Ok, Some("lease")) => Said::Lease,
                (Type::Ok, Some("none")) => Said::Applied,
                (Type::Fail, Some("fenced")) => Said::Fenced,
                (Type::Fail, _) => Said::Refused,
                (Type::Info | Type::Invoke, _) => Said::Nothing,
                (Type::Ok, _) => return None,
            };
            if place.is_none() && said == Said::Nothing {
                return Some(None);
            }
            Action::Write(Write {
                hold: number("hold"),
                token: number("token")?,
                fenced: asked.value["fenced"].as_bool()?,
                place,
                number: number("number"),
                said,
            })
        }
        "resolve" => Action::Resolve {
            applied: asked.value["applied"].as_bool()?,
            place: place(text("id")?),
        },
        "get" => Action::Get(result["number"].as_u64()?),
        "read" => {
            let ids = result.as_array()?;
            let is_in_place = |(at, id): (u64, &Value)| id.as_str().and_then(place) == Some(at);
            // What an earlier read returned stays where it was. No count is so large.
            let is_beginning = (0..).zip(ids).all(is_in_place);
            Action::Read(if is_beginning { ids.len() as u64 } else { u64::MAX })
        }
        _ => return None,
    }))
}

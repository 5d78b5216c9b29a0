//! `leasehold check`: whether the lease of the command that calls it is live. By its exit code
//! alone, and fast: it parses its arguments itself and starts no runtime.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::args::CheckArgs;
use crate::exit::{Failure, code};
use crate::lease_file::{LeaseState, Machine, VARIABLE, boot_now, look};
use crate::output::{Output, span};

/// The words of a plain `leasehold check [--remaining SPAN]`; `None` for anything else, which goes
/// the long way.
pub(crate) fn fast(mut words: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let remaining = match words.next() {
        None => Duration::ZERO,
        Some(word) if word == "--remaining" => {
            humantime::parse_duration(words.next()?.to_str()?).ok()?
        }
        Some(_) => return None,
    };
    if words.next().is_some() {
        return None;
    }
    let output = Output { json: false };
    let code = check(&CheckArgs { remaining }, output).unwrap_or_else(|failure| {
        output.failure(&failure);
        failure.code
    });
    Some(ExitCode::from(code))
}

/// 0 if the lease is live with as much left as asked for, 1 if it is live with less, 76 if it is
/// over.
pub(crate) fn check(args: &CheckArgs, output: Output) -> Result<u8, Failure> {
    let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let Some(path) = path else {
        return Err(Failure::usage(format!(
            "{VARIABLE} is not set: a check works in a command of leasehold run or leasehold leader"
        )));
    };
    let failed = |why: &dyn std::fmt::Display| {
        Failure::system("the lease file could not be read or marked", why)
    };
    let record = match look(Path::new(&path)) {
        Ok(record) => record,
        // The tool removes it when the command has ended or was lost.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(over(output, "the tool that held it has ended"));
        }
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            return Err(Failure {
                code: code::DATA,
                message: format!(
                    "{}: {error}; the lease counts as over",
                    path.to_string_lossy()
                ),
            });
        }
        Err(error) => return Err(failed(&error)),
    };
    let machine = Machine::this().map_err(|error| failed(&error))?;
    if record.machine != machine {
        return Ok(over(
            output,
            "it is of another boot or another time namespace of this machine",
        ));
    }
    let left = record.deadline.saturating_sub(boot_now());
    if record.state == LeaseState::Lapsed || left == 0 {
        return Ok(over(
            output,
            "its deadline has passed, or its file was deleted",
        ));
    }
    let left = Duration::from_nanos(left);
    if left < args.remaining {
        output.event(
            format!(
                "less is left of the lease than asked for: remaining={} asked={}",
                span(left),
                span(args.remaining)
            ),
            &serde_json::json!({ "event": "short", "remaining_ms": crate::output::millis(left) }),
        );
        return Ok(code::NO);
    }
    Ok(code::DONE)
}

fn over(output: Output, why: &str) -> u8 {
    output.event(
        format!("the lease is over: {why}"),
        &serde_json::json!({ "event": "lost", "why": why }),
    );
    code::LOST
}

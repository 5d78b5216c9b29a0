//! Output for people and for scripts: answers go to stdout, everything else to stderr. With
//! `--json` each line is one JSON object.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use serde_json::{Value, json};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::exit::Failure;
use crate::log::{ForScripts, wanted};
use crate::stderr;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
}

impl Output {
    /// The result of the subcommand.
    pub(crate) fn answer(self, people: impl Display, scripts: &Value) -> Result<(), Failure> {
        print(&if self.json {
            format!("{scripts}\n")
        } else {
            format!("{people}\n")
        })
    }

    /// An event on the way. It goes to stderr, because stdout belongs to the command.
    pub(crate) fn event(self, people: impl Display, scripts: &Value) {
        let line = if self.json {
            format!("{scripts}\n")
        } else {
            format!("leasehold: {people}\n")
        };
        stderr::say(line.as_bytes());
    }

    /// An event that only scripts need.
    pub(crate) fn quiet_event(self, scripts: &Value) {
        if self.json {
            stderr::say(format!("{scripts}\n").as_bytes());
        }
    }

    /// Prints on stderr from now on what the library logs: its warnings, or what `RUST_LOG` and the
    /// number of `-v` ask for.
    pub(crate) fn listen(self, verbose: u8) {
        let filter = wanted(verbose);
        let log = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::TRACE)
            .with_writer(|| stderr::Lines)
            // It would report a stream that cannot be written to the same stream, and panic.
            .log_internal_errors(false)
            .with_ansi(false)
            .with_target(false)
            .without_time();
        if self.json {
            log.event_format(ForScripts).finish().with(filter).init();
        } else {
            log.finish().with(filter).init();
        }
    }

    pub(crate) fn failure(self, failure: &Failure) {
        self.event(
            &failure.message,
            &json!({ "error": failure.message, "exit": failure.code }),
        );
    }
}

/// Writes a text to stdout as it is.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    printed(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// What came of a write to stdout.
pub(crate) fn printed(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        // A reader that has gone away (`| head`) wants no more.
        Err(why) if why.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(why) => Err(Failure::system("the answer could not be written", &why)),
        Ok(()) => Ok(()),
    }
}

/// Milliseconds, for scripts.
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A span as people write it, to the millisecond.
pub(crate) fn span(span: Duration) -> String {
    humantime::format_duration(Duration::from_millis(millis(span))).to_string()
}

//! The log: what of it is printed, and [`ForScripts`], a line of it as a JSON object, as every
//! other line on stderr is with `--json`.

use std::fmt;

use leasehold::handler::ACCESS_LOG_TARGET;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::{FilterFn, LevelFilter, Targets, filter_fn};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// What is printed: of the library what `RUST_LOG` asks for, or the number of `-v`; of others
/// warnings at most, because what their details contain is not ours to judge.
pub(crate) fn wanted(verbose: u8) -> FilterFn<impl Fn(&Metadata<'_>) -> bool> {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let asked = std::env::var("RUST_LOG").ok();
    // Without a value it asks for nothing: by its own reading, for errors alone.
    let asked = asked.filter(|asked| verbose == 0 && !asked.trim().is_empty());
    // In another notation it is for another program.
    let targets = asked.and_then(|asked| asked.parse::<Targets>().ok());
    let targets = targets.unwrap_or_else(|| {
        let targets = Targets::new().with_default(level);
        match verbose {
            // The tool itself reports a lease that was lost.
            0 => targets.with_target(ACCESS_LOG_TARGET, LevelFilter::OFF),
            _ => targets,
        }
    });
    filter_fn(move |metadata| {
        let (target, level) = (metadata.target(), metadata.level());
        let is_ours = target.split("::").next() == Some("leasehold");
        targets.would_enable(target, level) && (is_ours || *level <= Level::WARN)
    })
}

/// `{"event":"log","level":"warn","message":"...",...}`, with the fields of what was logged.
#[derive(Debug)]
pub(crate) struct ForScripts;

impl<S, N> FormatEvent<S, N> for ForScripts
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        let level = event.metadata().level().as_str().to_lowercase();
        let Fields(mut line) = fields;
        line.insert("event".to_owned(), "log".into());
        line.insert("level".to_owned(), level.into());
        writeln!(writer, "{}", Value::Object(line))
    }
}

struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0
            .insert(field.name().to_owned(), format!("{value:?}").into());
    }
}

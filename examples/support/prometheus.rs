//! A recorder that prints Prometheus text. In a service use `metrics-exporter-prometheus` instead.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

/// What was recorded, by name and labels.
#[derive(Clone, Default)]
pub(crate) struct Prometheus(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    help: BTreeMap<String, String>,
    values: BTreeMap<(String, String), Value>,
}

#[derive(Clone)]
enum Value {
    Counter(Arc<AtomicU64>),
    /// The bits of an `f64`.
    Gauge(Arc<AtomicU64>),
    Summary(Arc<Summary>),
}

#[derive(Default)]
struct Summary(Mutex<(u64, f64)>);

impl HistogramFn for Summary {
    fn record(&self, value: f64) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = (seen.0 + 1, seen.1 + value);
    }
}

impl Prometheus {
    /// Everything, in the text format of Prometheus.
    pub(crate) fn dump(&self) -> String {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut text, mut last) = (String::new(), "");
        for ((name, labels), value) in &state.values {
            if last != name {
                let help = state.help.get(name).map_or("", String::as_str);
                let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {}", value.kind());
                last = name;
            }
            let _ = match value {
                Value::Counter(n) => {
                    writeln!(text, "{name}{labels} {}", n.load(Ordering::Relaxed))
                }
                Value::Gauge(bits) => {
                    let value = f64::from_bits(bits.load(Ordering::Relaxed));
                    writeln!(text, "{name}{labels} {value}")
                }
                Value::Summary(seen) => {
                    let (count, sum) = *seen.0.lock().unwrap_or_else(PoisonError::into_inner);
                    writeln!(
                        text,
                        "{name}_sum{labels} {sum}\n{name}_count{labels} {count}"
                    )
                }
            };
        }
        text
    }

    fn register(&self, key: &Key, new: impl FnOnce() -> Value) -> Value {
        let labels: Vec<_> = key
            .labels()
            .map(|label| format!("{}={:?}", label.key(), label.value()))
            .collect();
        let labels = if labels.is_empty() {
            String::new()
        } else {
            format!("{{{}}}", labels.join(","))
        };
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = (key.name().to_owned(), labels);
        state.values.entry(at).or_insert_with(new).clone()
    }

    fn describe(&self, name: &KeyName, help: &SharedString) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state
            .help
            .insert(name.as_str().to_owned(), help.to_string());
    }
}

impl Value {
    fn kind(&self) -> &'static str {
        match self {
            Self::Counter(_) => "counter",
            Self::Gauge(_) => "gauge",
            Self::Summary(_) => "summary",
        }
    }
}

impl Recorder for Prometheus {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match self.register(key, || Value::Counter(Arc::default())) {
            Value::Counter(n) => Counter::from_arc(n),
            _ => Counter::noop(),
        }
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        match self.register(key, || Value::Gauge(Arc::default())) {
            Value::Gauge(bits) => Gauge::from_arc(bits),
            _ => Gauge::noop(),
        }
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match self.register(key, || Value::Summary(Arc::default())) {
            Value::Summary(seen) => Histogram::from_arc(seen),
            _ => Histogram::noop(),
        }
    }
}

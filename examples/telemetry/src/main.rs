//! The spans of a lock in OpenTelemetry: `cargo run --manifest-path examples/telemetry/Cargo.toml`.
//!
//! Four spans follow a lock: `lock.acquire`, `lock.hold`, `lock.run` and `lock.commit`, each with
//! `key`, `token` and `outcome`. They are children of the caller's span, so a trace shows who
//! waited for what. Your program takes the exporter of its backend (OTLP) instead of the one in
//! memory; here the spans are read back and checked.

use std::error::Error;

use leasehold::LockManager;
use leasehold::store::MemoryStore;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tracing::Instrument;
use tracing_subscriber::layer::SubscriberExt;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(exporter.clone())
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("shop"));
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::set_global_default(subscriber)?;

    let locks = LockManager::new(MemoryStore::new()?)?;
    let request = tracing::info_span!("request");
    let token = nightly(&locks).instrument(request).await?;
    locks.shutdown().await;
    provider.force_flush()?;

    let spans = exporter.get_finished_spans()?;
    let request = spans.iter().find(|span| span.name == "request");
    let trace = request.ok_or("no span of the request")?.span_context.trace_id();
    for (name, outcome) in [
        ("lock.acquire", "held"),
        ("lock.run", "committed"),
        ("lock.commit", "applied"),
        ("lock.hold", "released"),
    ] {
        let span = spans.iter().find(|span| span.name == name);
        let span = span.ok_or_else(|| format!("no span {name}"))?;
        let [key, of, end] = ["key", "token", "outcome"].map(|name| attribute(span, name));
        println!("{name}: key={key} token={of} outcome={end}");
        assert_eq!((key.as_str(), of, end.as_str()), ("nightly", token.clone(), outcome));
        assert_eq!(span.span_context.trace_id(), trace, "{name} is in the trace");
    }
    Ok(())
}

/// Work under a lock, as any request does it. Returns the token.
async fn nightly(locks: &LockManager) -> Result<String, Box<dyn Error>> {
    let guard = locks.lock("nightly").acquire().await?;
    let token = guard.token().to_string();
    guard.commit(async |_permit| Ok(())).await?;
    guard.release().await?;
    Ok(token)
}

fn attribute(span: &SpanData, name: &str) -> String {
    let mut attributes = span.attributes.iter();
    let found = attributes.find(|attribute| attribute.key.as_str() == name);
    found.map_or_else(String::new, |found| found.value.to_string())
}

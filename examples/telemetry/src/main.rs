//! The spans of a lock in OpenTelemetry: `cargo run --manifest-path examples/telemetry/Cargo.toml`.
//!
//! Four spans follow a lock: `lock.acquire`, `lock.hold`, `lock.run` and `lock.commit`, each with
//! `key`, `token` and `outcome`. They are children of the caller's span, so a trace shows who
//! waited for what. Your program takes the exporter of its backend (OTLP) instead of the one in
//! memory; here the spans are read back and checked.
//!
//! A wait can be followed into another process too. Each holder says its `traceparent` as the
//! purpose of its hold, and whoever waits links its own span to that of the holder.

use std::collections::HashMap;
use std::error::Error;

use leasehold::store::MemoryStore;
use leasehold::{LockGuard, LockManager};
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tracing::{Instrument, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
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

    let store = MemoryStore::new()?;
    let locks = LockManager::new(store.clone())?;
    let request = tracing::info_span!("request");
    let token = nightly(&locks).instrument(request).await?;
    // As if it was another process.
    let others = LockManager::new(store)?;
    let (first, next) = (tracing::info_span!("first"), tracing::info_span!("next"));
    let held = traced(&locks, "report").instrument(first).await?;
    let waits = traced(&others, "report").instrument(next);
    let gives_way = async {
        held.wanted().await?;
        Ok(held.release().await?)
    };
    let (_, held) = tokio::try_join!(gives_way, waits)?;
    held.release().await?;
    locks.shutdown().await;
    others.shutdown().await;
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
    let [first, next] = ["first", "next"].map(|name| spans.iter().find(|span| span.name == name));
    let (first, next) = (first.ok_or("no holder")?, next.ok_or("nobody waited")?);
    let linked = next.links.iter().map(|link| link.span_context.span_id());
    let linked: Vec<_> = linked.collect();
    println!("next: linked to {linked:?}");
    assert_eq!(linked, [first.span_context.span_id()]);
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

/// Holds a lock in the caller's span. If it has to wait, it links the span to that of the holder.
async fn traced(locks: &LockManager, key: &str) -> Result<LockGuard, Box<dyn Error>> {
    let propagator = TraceContextPropagator::new();
    let mut ours = HashMap::new();
    propagator.inject_context(&Span::current().context(), &mut ours);
    let traceparent = ours.get("traceparent").ok_or("the span is not traced")?;
    let lock = locks.lock(key).purpose(traceparent);
    if let Some(guard) = lock.try_acquire().await? {
        return Ok(guard);
    }
    let holder = locks.inspect(key).await?.and_then(|info| info.label);
    if let Some(traceparent) = holder.as_ref().and_then(|label| label.purpose()) {
        let theirs = HashMap::from([("traceparent".to_owned(), traceparent.to_owned())]);
        // Without a valid one there is no link.
        let context = propagator.extract(&theirs);
        Span::current().add_link(context.span().span_context().clone());
    }
    Ok(lock.acquire().await?)
}

fn attribute(span: &SpanData, name: &str) -> String {
    let mut attributes = span.attributes.iter();
    let found = attributes.find(|attribute| attribute.key.as_str() == name);
    found.map_or_else(String::new, |found| found.value.to_string())
}

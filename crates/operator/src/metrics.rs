//! Metrics (`quarry_*`) and the small HTTP listener that serves them and the probes.

use axum::{Router, http::StatusCode, routing::get};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reconciled {
    controller: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Wrote {
    kind: String,
    verb: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Of {
    controller: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct InPhase {
    phase: &'static str,
}

pub struct Metrics {
    registry: Registry,
    reconciles: Family<Reconciled, Counter>,
    seconds: Family<Of, Histogram>,
    writes: Family<Wrote, Counter>,
    volumes: Family<InPhase, Gauge>,
    leading: Gauge,
    ready: AtomicBool,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("quarry");
        let reconciles = Family::default();
        let seconds = Family::<Of, Histogram>::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 14)));
        let (writes, volumes, leading) = (Family::default(), Family::default(), Gauge::default());
        registry.register("reconciles", "Reconciles by controller and outcome", reconciles.clone());
        registry.register("reconcile_seconds", "How long a reconcile took", seconds.clone());
        registry.register("api_writes", "Writes to the API by kind and verb", writes.clone());
        registry.register("volumes", "Volumes by phase", volumes.clone());
        registry.register("leader", "1 while this operator leads", leading.clone());
        Metrics { registry, reconciles, seconds, writes, volumes, leading, ready: AtomicBool::new(false) }
    }
}

impl Metrics {
    pub fn count_reconcile(&self, controller: &'static str, outcome: &'static str, took: Duration) {
        self.reconciles.get_or_create(&Reconciled { controller, outcome }).inc();
        self.seconds.get_or_create(&Of { controller }).observe(took.as_secs_f64());
    }

    pub fn count_write(&self, kind: &str, verb: &'static str) {
        self.writes.get_or_create(&Wrote { kind: kind.to_owned(), verb }).inc();
    }

    pub fn set_volumes(&self, phase: &'static str, count: usize) {
        self.volumes.get_or_create(&InPhase { phase }).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub fn set_leading(&self, leading: bool) {
        self.leading.set(i64::from(leading));
    }

    /// Ready: the caches are filled and the loop runs.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// Serves /metrics, /healthz and /readyz until told to stop.
pub async fn serve(metrics: Arc<Metrics>, listener: TcpListener, stop: CancellationToken) -> std::io::Result<()> {
    let for_ready = metrics.clone();
    let router = Router::new()
        .route(
            "/metrics",
            get(move || {
                let metrics = metrics.clone();
                async move { metrics.text().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR) }
            }),
        )
        .route("/healthz", get(|| async { "ok" }))
        .route(
            "/readyz",
            get(move || {
                let ready = for_ready.ready.load(Ordering::Acquire);
                async move { if ready { (StatusCode::OK, "ok") } else { (StatusCode::SERVICE_UNAVAILABLE, "waiting for the lease or the first lists") } }
            }),
        );
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
}

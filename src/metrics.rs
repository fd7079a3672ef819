//! What is counted, for Prometheus. A value that is passed around; a tool's name is never a label.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::Registry,
};

/// The media type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The name of the code with which calls end that went well.
const OK: &str = "OK";

/// Timers have milliseconds; from 3 s on probes are so late that windows may be stretched.
const LATENESS_SECONDS: [f64; 12] = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 3.0, 10.0, 30.0];

/// The counts of one server. Copies are one.
#[derive(Clone)]
pub struct Metrics {
    inner: Arc<Inner>,
}

struct Inner {
    registry: Registry,
    tools: Family<ToolLabels, Gauge>,
    probe_results: Family<ProbeLabels, Counter>,
    rpcs: Family<RpcLabels, Counter>,
    watchers: Gauge,
    watch_encodings: Counter,
    prober_overloaded: Gauge,
    prober_suspect: Gauge,
    probe_lateness: Family<LaneLabels, Histogram, fn() -> Histogram>,
    tls_reloads: Family<ResultLabels, Counter>,
    tls_handshake_failures: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaneLabels {
    lane: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToolLabels {
    verdict: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProbeLabels {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RpcLabels {
    method: Arc<String>,
    code: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All counts at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("toolpulse");
        let tools = Family::default();
        let probe_results = Family::default();
        let rpcs = Family::default();
        let watchers = Gauge::default();
        let watch_encodings = Counter::default();
        let prober_overloaded = Gauge::default();
        let prober_suspect = Gauge::default();
        registry.register("tools", "Registered tools by verdict", tools.clone());
        registry.register("probe_results", "Finished probe runs by kind and outcome", probe_results.clone());
        registry.register("rpcs", "Finished calls by method and status code", rpcs.clone());
        registry.register("watchers", "Open watch streams", watchers.clone());
        let help = "Messages encoded for watches of tools: each is sent to all watchers that need the same";
        registry.register("watch_encodings", help, watch_encodings.clone());
        let help = "1 while probes wait so long for a free slot that windows are stretched";
        registry.register("prober_overloaded", help, prober_overloaded.clone());
        let help = "1 while so much stopped answering at once that the prober suspects its own network";
        registry.register("prober_suspect", help, prober_suspect.clone());
        let probe_lateness: Family<LaneLabels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(LATENESS_SECONDS));
        let help = "How long after they were due probes started, by the lane they waited in";
        let seconds = prometheus_client::registry::Unit::Seconds;
        registry.register_with_unit("probe_lateness", help, seconds, probe_lateness.clone());
        let tls_reloads = Family::default();
        let help = "Changes of the files of TLS, by result: ok, or failed, where the old ones stay in force";
        registry.register("tls_reloads", help, tls_reloads.clone());
        let tls_handshake_failures = Counter::default();
        let help = "Connections that were closed as their TLS handshake failed";
        registry.register("tls_handshake_failures", help, tls_handshake_failures.clone());
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The running version", version);
        let metrics = Self {
            inner: Arc::new(Inner {
                registry,
                tools,
                probe_results,
                rpcs,
                watchers,
                watch_encodings,
                prober_overloaded,
                prober_suspect,
                probe_lateness,
                tls_reloads,
                tls_handshake_failures,
            }),
        };
        metrics.set_tools(0, 0, 0);
        metrics
    }

    /// How many tools there are of each verdict.
    pub fn set_tools(&self, available: usize, unavailable: usize, pending: usize) {
        let counts = [("available", available), ("unavailable", unavailable), ("pending", pending)];
        for (verdict, count) in counts {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.inner.tools.get_or_create(&ToolLabels { verdict }).set(count);
        }
    }

    /// Whether probes wait so long for a free slot that windows are stretched.
    pub fn set_prober_overloaded(&self, overloaded: bool) {
        self.inner.prober_overloaded.set(i64::from(overloaded));
    }

    /// Whether the prober suspects its own network.
    pub fn set_prober_suspect(&self, suspect: bool) {
        self.inner.prober_suspect.set(i64::from(suspect));
    }

    /// One probe run of this kind ended so.
    pub fn probe_result(&self, kind: &'static str, outcome: &'static str) {
        self.inner.probe_results.get_or_create(&ProbeLabels { kind, outcome }).inc();
    }

    /// A probe run started, so long after it was due.
    pub fn probe_lateness(&self, lane: &'static str, lateness: Duration) {
        self.inner.probe_lateness.get_or_create(&LaneLabels { lane }).observe(lateness.as_secs_f64());
    }

    /// The calls of a method. It must come from a fixed set: clients choose what they call.
    pub fn calls(&self, method: &str) -> Calls {
        Calls(Arc::new(OfMethod {
            metrics: self.clone(),
            method: Arc::new(method.to_owned()),
            ok: OnceLock::new(),
        }))
    }

    fn ended(&self, method: &Arc<String>, code: &'static str) -> Counter {
        self.inner.rpcs.get_or_create(&RpcLabels { method: Arc::clone(method), code }).clone()
    }

    /// Counts one open watch for as long as the value lives.
    #[must_use]
    pub fn watcher(&self) -> Watcher {
        self.inner.watchers.inc();
        Watcher { open: self.inner.watchers.clone() }
    }

    /// A message of a watch was encoded.
    pub fn watch_encoding(&self) {
        self.inner.watch_encodings.inc();
    }

    /// The files of TLS changed: `ok` or `failed`.
    pub fn tls_reload(&self, result: &'static str) {
        self.inner.tls_reloads.get_or_create(&ResultLabels { result }).inc();
    }

    /// A TLS handshake failed.
    pub fn tls_handshake_failed(&self) {
        self.inner.tls_handshake_failures.inc();
    }

    /// Everything, as OpenMetrics text.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.inner.registry)?;
        Ok(out)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// The calls of one method. Copies are one.
#[derive(Clone, Debug)]
pub struct Calls(Arc<OfMethod>);

#[derive(Debug)]
struct OfMethod {
    metrics: Metrics,
    method: Arc<String>,
    /// Found once: nearly all calls end well, and to look a counter up takes a lock.
    ok: OnceLock<Counter>,
}

impl Calls {
    /// One of them ended.
    pub fn ended(&self, code: &'static str) {
        let OfMethod { metrics, method, ok } = &*self.0;
        match code {
            OK => ok.get_or_init(|| metrics.ended(method, OK)).inc(),
            code => metrics.ended(method, code).inc(),
        };
    }

    /// The method.
    pub fn method(&self) -> &str {
        &self.0.method
    }
}

/// One open watch.
#[derive(Debug)]
pub struct Watcher {
    open: Gauge,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.open.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_is_printed_under_its_name() {
        let metrics = Metrics::new();
        metrics.set_tools(3, 2, 1);
        metrics.probe_result("http", "pass");
        metrics.probe_result("http", "pass");
        metrics.probe_lateness("live", Duration::from_millis(30));
        let calls = metrics.calls("a.B/C");
        ["OK", "OK", "CANCELLED"].into_iter().for_each(|code| calls.ended(code));
        let open = metrics.watcher();
        let closed = metrics.watcher();
        drop(closed);
        let text = metrics.encode().unwrap();
        let version = env!("CARGO_PKG_VERSION");
        for line in [
            "toolpulse_tools{verdict=\"available\"} 3",
            "toolpulse_tools{verdict=\"unavailable\"} 2",
            "toolpulse_tools{verdict=\"pending\"} 1",
            "toolpulse_probe_results_total{kind=\"http\",outcome=\"pass\"} 2",
            "toolpulse_rpcs_total{method=\"a.B/C\",code=\"OK\"} 2",
            "toolpulse_rpcs_total{method=\"a.B/C\",code=\"CANCELLED\"} 1",
            "toolpulse_probe_lateness_seconds_bucket{le=\"0.025\",lane=\"live\"} 0",
            "toolpulse_probe_lateness_seconds_bucket{le=\"0.05\",lane=\"live\"} 1",
            "toolpulse_watchers 1",
            "toolpulse_prober_suspect 0",
            &format!("toolpulse_build_info{{version=\"{version}\"}} 1"),
            "# EOF",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        drop(open);
        assert!(metrics.encode().unwrap().contains("toolpulse_watchers 0\n"));
    }
}

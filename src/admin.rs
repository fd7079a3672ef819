//! The admin port: liveness, readiness, status and metrics over plain HTTP, and gRPC health for probes that speak it.
//!
//! Plaintext whatever the main port does, since Kubernetes' own probes are.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::UNIX_EPOCH,
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tonic::{Status, body::Body, service::Routes};

use crate::{
    catalog::Reader,
    clock::Clock,
    core::availability::Verdict,
    metrics::{CONTENT_TYPE, Metrics},
    service::{health::HealthState, rpc::is_grpc},
};

/// What must be done before the server is ready. Copies are one.
///
/// Ready is what remains when nothing is pending, so a part that is not done cannot be forgotten.
#[derive(Clone, Debug)]
pub struct Readiness {
    pending: Arc<Mutex<BTreeMap<&'static str, usize>>>,
    health: HealthState,
}

/// Something that is not done yet: dropping it says that it is.
#[derive(Debug)]
#[must_use = "dropping it at once says that it is done"]
pub struct Pending {
    name: &'static str,
    readiness: Readiness,
}

impl Readiness {
    /// Not ready until the returned guard, `start`, and all others are dropped.
    pub fn new(health: HealthState) -> (Self, Pending) {
        let readiness = Self { pending: Arc::default(), health };
        let start = readiness.pending("start");
        (readiness, start)
    }

    /// Makes the server not ready until the guard is dropped.
    pub fn pending(&self, name: &'static str) -> Pending {
        self.update(|pending| *pending.entry(name).or_default() += 1);
        Pending { name, readiness: self.clone() }
    }

    /// What is pending, sorted.
    pub fn list(&self) -> Vec<&'static str> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }

    /// Changes the set and the health under one lock, so that they cannot disagree.
    fn update(&self, change: impl FnOnce(&mut BTreeMap<&'static str, usize>)) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut pending);
        self.health.set_ready(pending.is_empty());
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.readiness.update(|pending| {
            if let Some(count) = pending.get_mut(self.name) {
                *count -= 1;
                if *count == 0 {
                    pending.remove(self.name);
                }
            }
        });
    }
}

/// The routes of the admin port.
pub fn routes(readiness: Readiness, metrics: Metrics, reader: Reader, clock: Clock) -> Routes {
    let health = Routes::new(readiness.health.service()).into_axum_router().reset_fallback();
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/statusz", get(statusz).with_state((readiness.clone(), reader, clock)))
        .route("/readyz", get(readyz).with_state(readiness))
        .route("/metrics", get(print_metrics).with_state(metrics))
        .merge(health)
        .fallback(unknown)
        .into()
}

async fn readyz(State(readiness): State<Readiness>) -> Response {
    if readiness.health.is_draining() {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response();
    }
    match readiness.list() {
        pending if pending.is_empty() => "ok\n".into_response(),
        pending => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("pending: {}\n", pending.join(", "))).into_response()
        }
    }
}

/// What an operator asks first, in words: ready or not, how many tools, and whether the prober trusts itself.
async fn statusz(State((readiness, reader, clock)): State<(Readiness, Reader, Clock)>) -> String {
    let catalog = reader.load();
    let ready = match readiness.list() {
        _ if readiness.health.is_draining() => "no: draining".to_owned(),
        pending if pending.is_empty() => "yes".to_owned(),
        pending => format!("no: pending: {}", pending.join(", ")),
    };
    let [available, unavailable, pending] =
        [Verdict::Available, Verdict::Unavailable, Verdict::Pending].map(|verdict| catalog.count(verdict));
    let prober = match &catalog.prober_suspicion {
        None => "ok".to_owned(),
        Some(suspicion) => {
            let since = humantime::format_rfc3339_seconds(clock.wall(suspicion.since).max(UNIX_EPOCH));
            format!("suspects its own network since {since}: {}", suspicion.text)
        }
    };
    format!(
        "ready: {ready}\ntools: {available} available, {unavailable} unavailable, {pending} pending\nprober: {prober}\n"
    )
}

async fn print_metrics(State(metrics): State<Metrics>) -> Response {
    match metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "cannot print the metrics\n").into_response(),
    }
}

async fn unknown(headers: HeaderMap) -> Response {
    if is_grpc(&headers) {
        return Status::unimplemented("").into_http::<Body>().into_response();
    }
    (StatusCode::NOT_FOUND, "not found: there are /livez, /readyz, /statusz and /metrics\n").into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_when_nothing_is_pending() {
        let health = HealthState::default();
        let (readiness, start) = Readiness::new(health.clone());
        let store = readiness.pending("store");
        let other_store = readiness.pending("store");
        assert_eq!(readiness.list(), ["start", "store"]);
        drop((start, store));
        assert_eq!(readiness.list(), ["store"]);
        assert!(!health.is_serving());
        drop(other_store);
        assert!(health.is_serving() && readiness.list().is_empty());
        let again = readiness.pending("settling");
        assert!(!health.is_serving());
        drop(again);
        assert!(health.is_serving());
        health.drain();
        drop(readiness.pending("late"));
        assert!(!health.is_serving() && health.is_draining());
    }
}

//! `grpc.health.v1`, by its contract.
//!
//! Health says whether this server takes requests. It never depends on the tools: a registry whose tools are all down is as
//! useful as ever, and restarting it would mend nothing. For the same reason a probe that restarts what does not answer must
//! not ask whether the server is ready: it asks for `liveness`, which is SERVING as long as anything answers.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::sync::watch;
use tokio_stream::{Stream, wrappers::WatchStream};
use tonic::{Code, Request, Response, Status};

use super::error;
use crate::{
    core::refusal::Refusal,
    proto::health::{
        HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse,
        health_check_response::ServingStatus,
        health_server::{Health, HealthServer},
    },
};

/// SERVING whatever the others are: that it answers is what it says.
const LIVENESS: &str = "liveness";
/// What else can be asked about. All are up or down together; the empty name is the server as a whole.
const SERVICES: [&str; 3] = ["", "toolpulse.v1.ToolRegistryService", "toolpulse.v1.GatewayStatusService"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    NotReady,
    Ready,
    /// Latched: nothing leads out of it.
    Draining,
}

/// The handle that sets the server's health. Starts with NOT_SERVING. Copies are one.
#[derive(Clone, Debug)]
pub struct HealthState {
    phase: Arc<watch::Sender<Phase>>,
}

impl Default for HealthState {
    fn default() -> Self {
        Self { phase: Arc::new(watch::Sender::new(Phase::NotReady)) }
    }
}

impl HealthState {
    /// SERVING or NOT_SERVING from now on. Without effect once the drain began.
    pub fn set_ready(&self, ready: bool) {
        let next = if ready { Phase::Ready } else { Phase::NotReady };
        self.phase.send_if_modified(|phase| {
            let changes = *phase != next && *phase != Phase::Draining;
            if changes {
                *phase = next;
            }
            changes
        });
    }

    /// NOT_SERVING for good; the watches hear of it and end.
    pub fn drain(&self) {
        self.phase.send_replace(Phase::Draining);
    }

    /// Whether the answer is SERVING.
    pub fn is_serving(&self) -> bool {
        *self.phase.borrow() == Phase::Ready
    }

    /// Whether the drain began.
    pub fn is_draining(&self) -> bool {
        *self.phase.borrow() == Phase::Draining
    }

    /// The service that tells this state.
    pub fn service(&self) -> HealthServer<HealthService> {
        HealthServer::new(HealthService { state: self.clone() })
    }
}

/// Answers Check, Watch and List from a [`HealthState`].
#[derive(Clone, Debug)]
pub struct HealthService {
    state: HealthState,
}

#[tonic::async_trait]
impl Health for HealthService {
    type WatchStream = Statuses;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        if !is_known(&service) {
            let message = format!("no service '{}'", error::cut(&service));
            return Err(error::status(Code::NotFound, "SERVICE_NOT_FOUND", message, [("service", service)]));
        }
        Ok(Response::new(reply(status_of(&service, *self.state.phase.borrow()))))
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        Ok(Response::new(Statuses {
            phases: WatchStream::new(self.state.phase.subscribe()),
            service: request.into_inner().service,
            last: None,
            ends: false,
            done: false,
        }))
    }

    async fn list(&self, _: Request<HealthListRequest>) -> Result<Response<HealthListResponse>, Status> {
        let phase = *self.state.phase.borrow();
        let names = SERVICES.into_iter().chain([LIVENESS]);
        let statuses = names.map(|name| (name.to_owned(), reply(status_of(name, phase)))).collect();
        Ok(Response::new(HealthListResponse { statuses }))
    }
}

/// One watch: the status now, then only its changes; at the drain NOT_SERVING, and the end.
#[derive(Debug)]
pub struct Statuses {
    phases: WatchStream<Phase>,
    service: String,
    last: Option<ServingStatus>,
    ends: bool,
    done: bool,
}

impl Stream for Statuses {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if self.done {
                return Poll::Ready(None);
            }
            if self.ends {
                self.done = true;
                return Poll::Ready(Some(Err(Refusal::Draining.into())));
            }
            let Some(phase) = ready!(Pin::new(&mut self.phases).poll_next(cx)) else {
                return Poll::Ready(None);
            };
            self.ends = phase == Phase::Draining;
            let status = status_of(&self.service, phase);
            if self.last.replace(status) != Some(status) {
                return Poll::Ready(Some(Ok(reply(status))));
            }
        }
    }
}

fn is_known(service: &str) -> bool {
    SERVICES.contains(&service) || service == LIVENESS
}

fn status_of(service: &str, phase: Phase) -> ServingStatus {
    match phase {
        _ if !is_known(service) => ServingStatus::ServiceUnknown,
        _ if service == LIVENESS => ServingStatus::Serving,
        Phase::Ready => ServingStatus::Serving,
        Phase::NotReady | Phase::Draining => ServingStatus::NotServing,
    }
}

fn reply(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

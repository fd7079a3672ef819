//! ToolRegistryService: parse, ask the owner or the catalog, reply.

use std::{sync::Arc, time::Duration};

use tonic::{Request, Response, Status};

use self::watch::{AgentFeed, Hidden, OperatorFeed};
use super::{error::refusal_to_status, prepared::Prepared, watch::Watches};
use crate::{
    catalog::Reader,
    clock::Clock,
    core::{
        name::ToolKey,
        refusal::{Fault, Refusal},
    },
    metrics::Metrics,
    owner::Handle,
    proto::v1::{self, tool_registry_service_server::ToolRegistryService},
};

mod available;
mod explain;
mod probe;
mod read;
mod register;
mod search;
mod shortcut;
mod watch;

pub(super) use read::MAX_PAGE_BYTES;
pub use register::{Judge, Manner};
pub use shortcut::Shortcut;

/// What the service is made of.
#[derive(Clone, Debug)]
pub struct ToolService {
    handle: Handle,
    reader: Reader,
    clock: Clock,
    judge: Judge,
    watches: Watches,
    agents: Arc<AgentFeed>,
    operators: Arc<OperatorFeed>,
}

impl ToolService {
    /// A service that asks `handle` for changes and answers reads from `reader`. `watches` are those of the whole server.
    pub fn new(
        handle: Handle,
        reader: Reader,
        clock: Clock,
        judge: Judge,
        watches: Watches,
        metrics: &Metrics,
    ) -> Self {
        let agents = Arc::new(AgentFeed::new(reader.clone(), metrics.clone()));
        let operators = Arc::new(OperatorFeed::new(reader.clone(), clock.clone(), metrics.clone()));
        Self { handle, reader, clock, judge, watches, agents, operators }
    }

    fn epoch(&self) -> String {
        self.reader.load().epoch.to_string()
    }
}

/// Fails with all faults, if there are any.
fn check(faults: Vec<Fault>) -> Result<(), Refusal> {
    if faults.is_empty() { Ok(()) } else { Err(Refusal::Invalid(faults)) }
}

/// Namespace and name of one tool.
fn key(namespace: &str, name: &str) -> Result<ToolKey, Refusal> {
    let namespace = super::convert::namespace(namespace);
    let name = super::convert::tool_name("name", name);
    match (namespace, name) {
        (Ok(namespace), Ok(name)) => Ok(ToolKey { namespace, name }),
        (namespace, name) => Err(Refusal::Invalid(namespace.err().into_iter().chain(name.err()).collect())),
    }
}

/// How long a handler may wait for something: what was asked for, but so that the answer still arrives in time.
fn patience(asked: Duration, deadline: Option<Duration>) -> Duration {
    /// Time for the reply to travel.
    const RESERVE: Duration = Duration::from_millis(100);
    deadline.map_or(asked, |deadline| asked.min(deadline.saturating_sub(RESERVE)))
}

fn reply<T>(answer: Result<T, Refusal>) -> Result<Response<T>, Status> {
    answer.map(Response::new).map_err(|refusal| refusal_to_status(&refusal))
}

#[tonic::async_trait]
impl ToolRegistryService for ToolService {
    async fn register_tool(
        &self,
        request: Request<v1::RegisterToolRequest>,
    ) -> Result<Response<v1::RegisterToolResponse>, Status> {
        let deadline = super::deadline::grpc_timeout(request.metadata());
        reply(self.register_one(request.into_inner(), deadline).await)
    }

    async fn register_tools(
        &self,
        request: Request<v1::RegisterToolsRequest>,
    ) -> Result<Response<v1::RegisterToolsResponse>, Status> {
        let deadline = super::deadline::grpc_timeout(request.metadata());
        reply(self.register_many(request.into_inner(), deadline).await)
    }

    async fn unregister_tools(
        &self,
        request: Request<v1::UnregisterToolsRequest>,
    ) -> Result<Response<v1::UnregisterToolsResponse>, Status> {
        reply(self.unregister(request.into_inner()).await)
    }

    async fn clear_tools(
        &self,
        request: Request<v1::ClearToolsRequest>,
    ) -> Result<Response<v1::ClearToolsResponse>, Status> {
        reply(self.clear(request.into_inner()).await)
    }

    async fn get_tool(
        &self,
        request: Request<v1::GetToolRequest>,
    ) -> Result<Response<v1::GetToolResponse>, Status> {
        reply(self.get(&request.into_inner()))
    }

    async fn list_tools(
        &self,
        request: Request<v1::ListToolsRequest>,
    ) -> Result<Response<v1::ListToolsResponse>, Status> {
        reply(self.list(&request.into_inner()))
    }

    async fn list_namespaces(
        &self,
        request: Request<v1::ListNamespacesRequest>,
    ) -> Result<Response<v1::ListNamespacesResponse>, Status> {
        reply(self.namespaces(&request.into_inner()))
    }

    async fn list_available_tools(
        &self,
        request: Request<v1::ListAvailableToolsRequest>,
    ) -> Result<Response<v1::ListAvailableToolsResponse>, Status> {
        let deadline = super::deadline::grpc_timeout(request.metadata());
        let answer = self.available(request.into_inner(), deadline).await;
        answer.map(Prepared::into_response).map_err(|refusal| refusal_to_status(&refusal))
    }

    type WatchAvailableToolsStream = Hidden<v1::WatchAvailableToolsResponse>;

    async fn watch_available_tools(
        &self,
        request: Request<v1::WatchAvailableToolsRequest>,
    ) -> Result<Response<Self::WatchAvailableToolsStream>, Status> {
        self.watch_available(request).map_err(|refusal| refusal_to_status(&refusal))
    }

    type WatchToolsStream = Hidden<v1::WatchToolsResponse>;

    async fn watch_tools(
        &self,
        request: Request<v1::WatchToolsRequest>,
    ) -> Result<Response<Self::WatchToolsStream>, Status> {
        self.watch_all(request).map_err(|refusal| refusal_to_status(&refusal))
    }

    async fn search_tools(
        &self,
        request: Request<v1::SearchToolsRequest>,
    ) -> Result<Response<v1::SearchToolsResponse>, Status> {
        let deadline = super::deadline::grpc_timeout(request.metadata());
        reply(self.search(request.into_inner(), deadline).await)
    }

    async fn explain_tool(
        &self,
        request: Request<v1::ExplainToolRequest>,
    ) -> Result<Response<v1::ExplainToolResponse>, Status> {
        reply(self.explain(&request.into_inner()))
    }

    async fn set_tool_enabled(
        &self,
        request: Request<v1::SetToolEnabledRequest>,
    ) -> Result<Response<v1::SetToolEnabledResponse>, Status> {
        reply(self.set_enabled(request.into_inner()).await)
    }

    async fn approve_tool_labels(
        &self,
        request: Request<v1::ApproveToolLabelsRequest>,
    ) -> Result<Response<v1::ApproveToolLabelsResponse>, Status> {
        reply(self.approve_labels(&request.into_inner()).await)
    }

    async fn probe_tool(
        &self,
        request: Request<v1::ProbeToolRequest>,
    ) -> Result<Response<v1::ProbeToolResponse>, Status> {
        reply(self.probe(&request.into_inner()).await)
    }

    async fn report_probe_result(
        &self,
        request: Request<v1::ReportProbeResultRequest>,
    ) -> Result<Response<v1::ReportProbeResultResponse>, Status> {
        reply(self.report(request.into_inner()).await)
    }

    async fn get_allowlist_diagnostics(
        &self,
        request: Request<v1::GetAllowlistDiagnosticsRequest>,
    ) -> Result<Response<v1::GetAllowlistDiagnosticsResponse>, Status> {
        reply(self.diagnostics(&request.into_inner()))
    }
}

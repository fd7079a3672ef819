//! The whole server inside the test's own runtime, so that a paused clock is everybody's: server, clients and targets.
//!
//! Sleep to let time pass; `tokio::time::advance` would look like a process that stood still. A call takes no virtual time.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tonic::{
    Request, Status,
    transport::{Channel, Endpoint},
};
use tonic_types::{ErrorDetails, StatusExt};
use toolpulse::{
    app::{self, Running},
    clock::Clock,
    config::{Environment, Layers, Settings},
    proto::{
        health::health_client::HealthClient,
        v1::{
            GetToolRequest, HiddenTool, HttpProbe, ListAvailableToolsRequest, ListAvailableToolsResponse,
            ProbeOutcome, ProbeSpec, ProbeToolRequest, ProbeToolResponse, RegisterToolRequest,
            RegisterToolResponse, RegisterToolsRequest, RegisterToolsResponse, ReportProbe,
            ReportProbeResultRequest, Tool, ToolSpec, ToolStatus, Verdict, probe_spec::Kind,
            tool_registry_service_client::ToolRegistryServiceClient,
        },
    },
};

/// A server on loopback, its store in memory.
#[derive(Debug)]
pub(crate) struct InProc {
    running: Running,
    channel: Channel,
}

impl InProc {
    /// A server that has settled.
    pub(crate) async fn start() -> Self {
        let server = Self::start_with(|_| {}).await;
        server.list().await;
        server
    }

    /// A server with other settings, right after its start.
    pub(crate) async fn start_with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::start_on(Clock::start(), change).await
    }

    /// A server with a clock of the test's.
    pub(crate) async fn start_on(clock: Clock, change: impl FnOnce(&mut Settings)) -> Self {
        let flags = [
            ("store", "memory"),
            ("listen", "127.0.0.1:0"),
            ("admin_listen", "127.0.0.1:0"),
            ("probe_allow", "127.0.0.0/8"),
        ];
        let environment = Environment::from_pairs::<&str, &str>([]);
        let mut settings = Layers::read(&flags, None, &environment).unwrap().server().unwrap();
        change(&mut settings);
        let running = app::start_with(settings, clock).await.unwrap();
        let channel = Endpoint::from_shared(format!("http://{}", running.address)).unwrap();
        let channel = channel.connect().await.unwrap();
        Self { running, channel }
    }

    pub(crate) fn tools(&self) -> ToolRegistryServiceClient<Channel> {
        ToolRegistryServiceClient::new(self.channel.clone()).max_decoding_message_size(64 << 20)
    }

    /// A client on a connection of its own.
    pub(crate) async fn other_client(&self) -> ToolRegistryServiceClient<Channel> {
        let channel = Endpoint::from_shared(format!("http://{}", self.running.address)).unwrap();
        ToolRegistryServiceClient::new(channel.connect().await.unwrap())
    }

    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    pub(crate) fn health(&self) -> HealthClient<Channel> {
        HealthClient::new(self.channel.clone())
    }

    pub(crate) fn admin(&self) -> String {
        self.running.admin.to_string()
    }

    pub(crate) async fn try_register(
        &self,
        request: RegisterToolRequest,
    ) -> Result<RegisterToolResponse, Status> {
        Ok(self.tools().register_tool(request).await?.into_inner())
    }

    /// Registers one tool, which must be accepted; a different one of its name and owner is replaced.
    pub(crate) async fn register(&self, tool: ToolSpec) -> RegisterToolResponse {
        let request = RegisterToolRequest { tool: Some(tool), overwrite: true, ..Default::default() };
        self.try_register(request).await.unwrap()
    }

    /// Registers one tool, and waits for the first results of its probes.
    pub(crate) async fn register_and_wait(&self, tool: ToolSpec) -> RegisterToolResponse {
        let request = RegisterToolRequest {
            tool: Some(tool),
            overwrite: true,
            wait_for_probe: Some(seconds(60)),
            ..Default::default()
        };
        self.try_register(request).await.unwrap()
    }

    pub(crate) async fn register_many(&self, tools: Vec<ToolSpec>) -> RegisterToolsResponse {
        let request = RegisterToolsRequest { tools, ..Default::default() };
        self.tools().register_tools(request).await.unwrap().into_inner()
    }

    pub(crate) async fn unregister(&self, name: &str) {
        let request = toolpulse::proto::v1::UnregisterToolsRequest {
            names: vec![name.to_owned()],
            ..Default::default()
        };
        let reply = self.tools().unregister_tools(request).await.unwrap().into_inner();
        assert_eq!(reply.unregistered, [name]);
    }

    /// Unregisters a tool of an owner.
    pub(crate) async fn unregister_as(&self, owner: &str, name: &str) {
        let request = toolpulse::proto::v1::UnregisterToolsRequest {
            names: vec![name.to_owned()],
            owner: owner.to_owned(),
            ..Default::default()
        };
        let reply = self.tools().unregister_tools(request).await.unwrap().into_inner();
        assert_eq!(reply.unregistered, [name]);
    }

    /// What the admin port counts.
    pub(crate) async fn metrics(&self) -> String {
        super::http_get(&self.admin(), "/metrics").await.unwrap().1
    }

    pub(crate) async fn try_get(&self, name: &str) -> Result<Tool, Status> {
        let request = GetToolRequest { name: name.to_owned(), ..Default::default() };
        Ok(self.tools().get_tool(request).await?.into_inner().tool.unwrap())
    }

    pub(crate) async fn get(&self, name: &str) -> Tool {
        self.try_get(name).await.unwrap()
    }

    pub(crate) async fn status(&self, name: &str) -> ToolStatus {
        self.get(name).await.status.unwrap()
    }

    pub(crate) async fn verdict(&self, name: &str) -> Verdict {
        self.status(name).await.verdict()
    }

    pub(crate) async fn available(&self, request: ListAvailableToolsRequest) -> ListAvailableToolsResponse {
        self.tools().list_available_tools(request).await.unwrap().into_inner()
    }

    /// The names that an agent is shown.
    pub(crate) async fn list(&self) -> Vec<String> {
        let reply = self.available(ListAvailableToolsRequest::default()).await;
        reply.tools.into_iter().map(|tool| tool.name).collect()
    }

    /// Whether an agent is shown the tool.
    pub(crate) async fn shows(&self, name: &str) -> bool {
        self.list().await.iter().any(|shown| shown == name)
    }

    /// What an agent is told of a tool that it is not shown.
    pub(crate) async fn hidden(&self, name: &str) -> Option<HiddenTool> {
        let request = ListAvailableToolsRequest { include_hidden: true, ..Default::default() };
        self.available(request).await.hidden.into_iter().find(|hidden| hidden.name == name)
    }

    pub(crate) async fn probe(&self, name: &str) -> Result<ProbeToolResponse, Status> {
        let request = ProbeToolRequest { name: name.to_owned(), ..Default::default() };
        Ok(self.tools().probe_tool(request).await?.into_inner())
    }

    pub(crate) async fn try_report(&self, request: ReportProbeResultRequest) -> Result<ToolStatus, Status> {
        Ok(self.tools().report_probe_result(request).await?.into_inner().status.unwrap())
    }

    /// Reports for the only `report` probe of a tool.
    pub(crate) async fn report(&self, name: &str, outcome: ProbeOutcome) -> ToolStatus {
        let request = ReportProbeResultRequest {
            name: name.to_owned(),
            outcome: outcome.into(),
            message: "told".to_owned(),
            ..Default::default()
        };
        self.try_report(request).await.unwrap()
    }
}

/// A tool without probes.
pub(crate) fn tool(name: &str) -> ToolSpec {
    ToolSpec { name: name.to_owned(), ..Default::default() }
}

/// A tool with these probes, each called after its place: `p0`, `p1`.
pub(crate) fn probed(name: &str, kinds: impl IntoIterator<Item = Kind>) -> ToolSpec {
    let probe = |(i, kind)| ProbeSpec { name: format!("p{i}"), kind: Some(kind) };
    ToolSpec { probes: kinds.into_iter().enumerate().map(probe).collect(), ..tool(name) }
}

pub(crate) fn http(url: impl Into<String>) -> Kind {
    Kind::Http(HttpProbe { url: url.into(), ..Default::default() })
}

pub(crate) fn report() -> Kind {
    Kind::Report(ReportProbe {})
}

pub(crate) fn seconds(seconds: i64) -> prost_types::Duration {
    prost_types::Duration { seconds, nanos: 0 }
}

pub(crate) fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A call with a deadline.
pub(crate) fn within<T>(deadline: Duration, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(deadline);
    request
}

/// Waits until `offset` after `start`; that moment must not be over.
pub(crate) async fn at(start: Instant, offset: Duration) {
    assert!(start.elapsed() <= offset, "{offset:?} is over: {:?}", start.elapsed());
    sleep_until(start + offset).await;
}

/// The ErrorInfo's reason.
pub(crate) fn reason(status: &Status) -> String {
    let details: ErrorDetails = status.get_error_details();
    let info = details.error_info().unwrap_or_else(|| panic!("no ErrorInfo: {status:?}"));
    assert_eq!(info.domain, "toolpulse.dev", "{status:?}");
    info.reason.clone()
}

/// How long after `from` a wall time is.
pub(crate) fn between(
    from: Option<&prost_types::Timestamp>,
    to: Option<&prost_types::Timestamp>,
) -> Duration {
    let nanos = |t: Option<&prost_types::Timestamp>| {
        let t = t.expect("a time that is set");
        i128::from(t.seconds) * 1_000_000_000 + i128::from(t.nanos)
    };
    let nanos = u64::try_from(nanos(to) - nanos(from)).expect("a later time");
    Duration::from_nanos(nanos)
}

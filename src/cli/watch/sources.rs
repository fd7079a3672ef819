//! What can be watched: gateways, every tool, and an agent's tools.

use serde_json::{Value, json, value::RawValue};
use tonic::{Request, Response, Status, Streaming, transport::Channel};

use super::{Item, Part, Source, table::Column};
use crate::{
    cli::{
        Failure,
        client::MAX_REPLY,
        json, print,
        tools::{Available, SHORT, description, verdict},
    },
    core::name::clean,
    proto::v1::{
        AvailableTool, GatewaySnapshot, Position, Tool, ToolStatus, Verdict, WatchAvailableToolsRequest,
        WatchAvailableToolsResponse, WatchGatewayStatusRequest, WatchGatewayStatusResponse,
        WatchToolsRequest, WatchToolsResponse, gateway_status_service_client::GatewayStatusServiceClient,
        tool_registry_service_client::ToolRegistryServiceClient,
    },
};

/// The status of gateways.
#[derive(Debug)]
pub(in crate::cli) struct Gateways {
    pub(in crate::cli) server: String,
    /// Without a position.
    pub(in crate::cli) request: WatchGatewayStatusRequest,
}

/// Every tool, as operators see it.
#[derive(Debug)]
pub(in crate::cli) struct AllTools {
    pub(in crate::cli) server: String,
    /// Without a position.
    pub(in crate::cli) request: WatchToolsRequest,
}

/// The tools of an agent.
#[derive(Debug)]
pub(in crate::cli) struct AgentTools {
    pub(in crate::cli) server: String,
    /// Without a position.
    pub(in crate::cli) request: WatchAvailableToolsRequest,
}

impl Source for Gateways {
    type Item = GatewaySnapshot;
    type Message = WatchGatewayStatusResponse;

    fn title(&self) -> String {
        format!("gateways of {} at {}", self.request.namespace, self.server)
    }

    async fn open(
        &self,
        channel: Channel,
        resume: Option<Position>,
    ) -> Result<Streaming<Self::Message>, Status> {
        let mut client = GatewayStatusServiceClient::new(channel).max_decoding_message_size(MAX_REPLY);
        let request = Request::new(WatchGatewayStatusRequest { resume, ..self.request.clone() });
        client.watch_gateway_status(request).await.map(Response::into_inner)
    }

    fn part(message: Self::Message) -> Part<Self::Item> {
        Part {
            epoch: message.epoch,
            revision: message.revision,
            reset: message.reset,
            upserts: message.snapshots.into_iter().map(|s| (s.gateway_id.clone(), s)).collect(),
            removed: message.removed,
            allowed: None,
            synced: message.synced,
            goodbye: message.goodbye,
        }
    }
}

impl Item for GatewaySnapshot {
    const COLUMNS: &'static [Column] = &[
        Column::new("GATEWAY", 16, 0),
        Column::new("RUN", 12, 1),
        Column::new("QUEUED", 6, 3),
        Column::new("SESSIONS", 8, 4),
        Column::new("DEGRADED", 20, 2),
        Column::new("RECEIVED", 20, 6),
        Column::new("DETAIL", 16, 5),
    ];
    const PLURAL: &'static str = "gateways";

    fn is_same(&self, before: &Self) -> bool {
        self == before
    }

    fn line(&self) -> String {
        format!("{} {}", print::cell(&time(self.received_at)), status_text(self))
    }

    fn cells(&self) -> Vec<String> {
        let received = time(self.received_at);
        let Some(status) = &self.status else {
            let run = if self.error.is_empty() { "stale" } else { "error" };
            let why = if self.error.is_empty() { &self.text } else { &self.error };
            return [run, "", "", "", &received, why].map(str::to_owned).to_vec();
        };
        let degraded: Vec<_> = status.degraded.iter().map(|d| format!("{}: {}", d.owner, d.reason)).collect();
        vec![
            if self.stale { format!("{} (stale)", status.run) } else { status.run.clone() },
            status.queued.to_string(),
            status.active_sessions.to_string(),
            degraded.join(", "),
            received,
            status.detail.clone(),
        ]
    }

    fn is_urgent(&self) -> bool {
        self.stale || !self.error.is_empty() || self.status.as_ref().is_some_and(|s| !s.degraded.is_empty())
    }

    fn json(&self) -> Result<String, Failure> {
        Ok(json!({"snapshot": json::snapshot(self)}).to_string())
    }
}

impl Source for AllTools {
    type Item = Tool;
    type Message = WatchToolsResponse;

    fn title(&self) -> String {
        let WatchToolsRequest { namespace, label_selector, owner, .. } = &self.request;
        let whose = if owner.is_empty() { String::new() } else { format!(" of owner {owner}") };
        let which = if label_selector.is_empty() { String::new() } else { format!(" with {label_selector}") };
        format!("tools in {namespace}{whose}{which} at {}", self.server)
    }

    async fn open(
        &self,
        channel: Channel,
        resume: Option<Position>,
    ) -> Result<Streaming<Self::Message>, Status> {
        let mut client = ToolRegistryServiceClient::new(channel).max_decoding_message_size(MAX_REPLY);
        let request = Request::new(WatchToolsRequest { resume, ..self.request.clone() });
        client.watch_tools(request).await.map(Response::into_inner)
    }

    fn part(message: Self::Message) -> Part<Self::Item> {
        let name = |tool: &Tool| tool.spec.as_ref().map(|spec| spec.name.clone()).unwrap_or_default();
        Part {
            epoch: message.epoch,
            revision: message.revision,
            reset: message.reset,
            upserts: message.upserts.into_iter().map(|tool| (name(&tool), tool)).collect(),
            removed: message.removed,
            allowed: None,
            synced: message.synced,
            goodbye: message.goodbye,
        }
    }
}

impl Item for Tool {
    const COLUMNS: &'static [Column] = &[
        Column::new("NAME", 16, 0),
        Column::new("VERDICT", 11, 1),
        Column::new("SINCE", 20, 4),
        Column::new("REASON", 14, 2),
        Column::new("MESSAGE", 20, 3),
        Column::new("OWNER", 8, 5),
    ];
    const PLURAL: &'static str = "tools";

    /// A server that starts asks every tool anew: what it found may be the same, and is as old as the server.
    fn is_same(&self, before: &Self) -> bool {
        lasting(self) == lasting(before)
    }

    fn line(&self) -> String {
        let status = self.status.clone().unwrap_or_default();
        let mut line = verdict(&status);
        if !status.reason.is_empty() {
            line.push_str(&format!(" {}", print::cell(&status.reason)));
        }
        let message = message(&status);
        if !message.is_empty() {
            line.push_str(&format!(": {}", print::cell(message)));
        }
        line
    }

    fn cells(&self) -> Vec<String> {
        let status = self.status.clone().unwrap_or_default();
        let message = message(&status).to_owned();
        vec![verdict(&status), time(status.since), status.reason, message, self.owner.clone()]
    }

    fn is_urgent(&self) -> bool {
        let status = self.status.as_ref();
        status.is_none_or(|s| s.verdict() != Verdict::Available || s.last_good || s.flapping || !s.enabled)
    }

    fn json(&self) -> Result<String, Failure> {
        Ok(json!({"tool": json::tool(self)}).to_string())
    }
}

/// Why a tool is as it is: the operators' word, if they have spoken.
fn message(status: &ToolStatus) -> &str {
    let operators = !status.enabled && !status.disabled_message.is_empty();
    if operators { &status.disabled_message } else { &status.message }
}

/// What of a tool outlasts a restart of the server, if nothing else happens.
fn lasting(tool: &Tool) -> Tool {
    let mut tool = tool.clone();
    if let Some(status) = &mut tool.status {
        *status = ToolStatus {
            since: None,
            last_success_time: None,
            last_probe_time: None,
            last_probe_duration: None,
            next_probe_time: None,
            consecutive_errors: 0,
            flapping: false,
            ..std::mem::take(status)
        };
        for probe in &mut status.probes {
            (probe.last_success_time, probe.last_probe_time) = (None, None);
            (probe.last_probe_duration, probe.next_probe_time) = (None, None);
            (probe.consecutive_errors, probe.consecutive_passes, probe.noes) = (0, 0, 0);
        }
    }
    tool
}

impl Source for AgentTools {
    type Item = AvailableTool;
    type Message = WatchAvailableToolsResponse;

    fn title(&self) -> String {
        let agent = match self.request.agent_id.as_str() {
            "" => "an agent".to_owned(),
            id => format!("agent {id}"),
        };
        format!("tools of {agent} in {} at {}", self.request.namespace, self.server)
    }

    async fn open(
        &self,
        channel: Channel,
        resume: Option<Position>,
    ) -> Result<Streaming<Self::Message>, Status> {
        let mut client = ToolRegistryServiceClient::new(channel).max_decoding_message_size(MAX_REPLY);
        let request = Request::new(WatchAvailableToolsRequest { resume, ..self.request.clone() });
        client.watch_available_tools(request).await.map(Response::into_inner)
    }

    fn part(message: Self::Message) -> Part<Self::Item> {
        // Heartbeats have no etag, and do not say what may be called.
        let says = message.synced && !message.etag.is_empty();
        Part {
            epoch: message.epoch,
            revision: message.revision,
            reset: message.reset,
            upserts: message.upserts.into_iter().map(|tool| (tool.exposed_name.clone(), tool)).collect(),
            removed: message.removed,
            allowed: says.then_some(message.allowed_json),
            synced: message.synced,
            goodbye: message.goodbye,
        }
    }
}

impl Item for AvailableTool {
    const COLUMNS: &'static [Column] = &[
        Column::new("NAME", 16, 0),
        Column::new("TOKENS", 6, 1),
        Column::new("ENDPOINT", 16, 3),
        Column::new("DESCRIPTION", 20, 2),
    ];
    const PLURAL: &'static str = "tools";

    fn is_same(&self, before: &Self) -> bool {
        self == before
    }

    fn line(&self) -> String {
        let registered = match self.name == self.exposed_name {
            true => String::new(),
            false => format!("({}) ", print::cell(&self.name)),
        };
        format!("{registered}{} tokens", self.token_estimate)
    }

    fn cells(&self) -> Vec<String> {
        let definition: Value = serde_json::from_str(&self.definition_json).unwrap_or_default();
        let description = print::short(description(&definition), SHORT);
        vec![self.token_estimate.to_string(), self.endpoint.clone(), description]
    }

    fn is_urgent(&self) -> bool {
        false
    }

    fn json(&self) -> Result<String, Failure> {
        let wrong =
            |e| Failure::Failed(format!("the server's definition_json of '{}' is not JSON: {e}", self.name));
        let definition: &RawValue = serde_json::from_str(&self.definition_json).map_err(wrong)?;
        #[derive(serde::Serialize)]
        struct Line<'a> {
            tool: Available<'a>,
        }
        serde_json::to_string(&Line { tool: Available::new(self, definition) }).map_err(wrong)
    }
}

fn status_text(snapshot: &GatewaySnapshot) -> String {
    let stale = if snapshot.stale { "stale: " } else { "" };
    format!("{stale}{}", clean(&snapshot.text, usize::MAX))
}

/// To the second: there it is read, not computed with.
fn time(time: Option<prost_types::Timestamp>) -> String {
    time.map(|t| prost_types::Timestamp { nanos: 0, ..t }.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use prost_types::{Duration, Timestamp};

    use super::*;
    use crate::proto::v1::{DegradedOwner, GatewayStatus, ProbeStatus, ToolSpec};

    fn at(seconds: i64) -> Option<Timestamp> {
        Some(Timestamp { seconds, nanos: 5 })
    }

    #[test]
    fn gateways() {
        let mut snapshot = GatewaySnapshot {
            text: "x\u{7}".to_owned(),
            stale: true,
            received_at: at(0),
            ..Default::default()
        };
        assert_eq!(snapshot.line(), "1970-01-01T00:00:00Z stale: x");
        assert!(snapshot.is_urgent());
        (snapshot.stale, snapshot.received_at) = (false, None);
        assert_eq!((snapshot.line().as_str(), snapshot.is_urgent()), ("- x", false));
        let before = GatewaySnapshot { received_at: at(1), ..snapshot.clone() };
        assert!(!snapshot.is_same(&before), "a report is told");
    }

    #[test]
    fn rows_of_gateways() {
        let degraded = DegradedOwner { owner: "capability:a".to_owned(), reason: "down".to_owned() };
        let status = GatewayStatus { run: "busy".to_owned(), degraded: vec![degraded], ..Default::default() };
        let mut snapshot = GatewaySnapshot { status: Some(status), ..Default::default() };
        assert_eq!(snapshot.cells(), ["busy", "0", "0", "capability:a: down", "", ""]);
        assert!(snapshot.is_urgent());
        snapshot.stale = true;
        assert_eq!(snapshot.cells()[0], "busy (stale)");
        (snapshot.status, snapshot.text) = (None, "nothing was heard".to_owned());
        assert_eq!(snapshot.cells(), ["stale", "", "", "", "", "nothing was heard"]);
        (snapshot.stale, snapshot.error) = (false, "no answer".to_owned());
        assert_eq!(snapshot.cells(), ["error", "", "", "", "", "no answer"]);
        assert!(snapshot.is_urgent());
    }

    #[test]
    fn tools() {
        let status = ToolStatus { verdict: Verdict::Available.into(), enabled: true, ..Default::default() };
        let line = |change: fn(&mut ToolStatus)| {
            let mut status = status.clone();
            change(&mut status);
            let tool = Tool { status: Some(status), ..Default::default() };
            (tool.line(), tool.is_urgent())
        };
        assert_eq!(line(|_| {}), ("AVAILABLE".to_owned(), false));
        let last_good = line(|s| (s.last_good, s.reason) = (true, "PROBE_ERROR".to_owned()));
        assert_eq!(last_good, ("AVAILABLE (last good) PROBE_ERROR".to_owned(), true));
        let disabled = line(|s| s.enabled = false);
        assert_eq!(disabled, ("AVAILABLE (disabled)".to_owned(), true));
        let told = line(|s| (s.enabled, s.disabled_message) = (false, "later".to_owned()));
        assert_eq!(told, ("AVAILABLE (disabled): later".to_owned(), true));
        let refused = line(|s| {
            s.set_verdict(Verdict::Unavailable);
            (s.reason, s.message) = ("PROBE_ERROR".to_owned(), "no\nway".to_owned());
        });
        assert_eq!(refused, ("UNAVAILABLE PROBE_ERROR: no way".to_owned(), true));
    }

    #[test]
    fn a_tool_that_was_asked_anew_is_the_same() {
        let probe = ProbeStatus { name: "p".to_owned(), ..Default::default() };
        let status = ToolStatus { probes: vec![probe], reason: "R".to_owned(), ..Default::default() };
        let spec = ToolSpec { name: "a".to_owned(), ..Default::default() };
        let tool = Tool { spec: Some(spec), status: Some(status), ..Default::default() };
        let differs = |change: fn(&mut Tool, &mut ToolStatus)| {
            let mut now = tool.clone();
            let mut status = now.status.take().unwrap();
            change(&mut now, &mut status);
            now.status = Some(status);
            !now.is_same(&tool)
        };
        assert!(!differs(|_, s| {
            let took = Some(Duration { seconds: 1, nanos: 0 });
            (s.since, s.last_success_time, s.last_probe_time) = (at(1), at(1), at(1));
            (s.last_probe_duration, s.next_probe_time, s.consecutive_errors) = (took, at(1), 3);
            let p = &mut s.probes[0];
            (p.last_success_time, p.last_probe_time, p.next_probe_time) = (at(1), at(1), at(1));
            (p.last_probe_duration, p.consecutive_errors) = (took, 3);
        }));
        assert!(differs(|_, s| s.reason = "S".to_owned()));
        assert!(differs(|_, s| s.enabled = true));
        assert!(differs(|_, s| s.probes[0].message = "x".to_owned()));
        assert!(differs(|t, _| t.owner = "ann".to_owned()));
        assert!(differs(|t, _| t.generation = 2));
    }

    #[test]
    fn tools_of_an_agent() {
        let mut tool = AvailableTool {
            name: "a.b".to_owned(),
            exposed_name: "a_b_12345678".to_owned(),
            token_estimate: 7,
            definition_json: r#"{"functionDeclaration":1e2}"#.to_owned(),
            ..Default::default()
        };
        assert_eq!(tool.line(), "(a.b) 7 tokens");
        let json = tool.json().unwrap();
        assert!(
            json.ends_with(r#""definition":{"functionDeclaration":1e2}}}"#),
            "as its author wrote it: {json}"
        );
        tool.definition_json = r#"{"function":{"description":"finds\nthings"}}"#.to_owned();
        assert_eq!(tool.cells(), ["7", "", "finds"]);
        tool.definition_json = "{".to_owned();
        assert!(tool.json().is_err());
        tool.exposed_name = "a.b".to_owned();
        assert_eq!(tool.line(), "7 tokens");
    }

    #[test]
    fn heartbeats_do_not_say_what_may_be_called() {
        let part = |etag: &str, synced| {
            let etag = etag.to_owned();
            AgentTools::part(WatchAvailableToolsResponse { etag, synced, ..Default::default() })
        };
        assert_eq!(part("", true).allowed, None);
        assert_eq!(part("", false).allowed, None);
        assert_eq!(part("e", true).allowed.as_deref(), Some(""), "not VISIBILITY_STABLE");
    }
}

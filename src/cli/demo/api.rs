//! What the story does to the server: calls of the public API, by the generated clients, as a user would make them.

use std::time::Duration;

use tokio::time::{self, Instant};
use tonic::{Response, Status, transport::Channel};

use super::super::{Failure, client::request, failure::describe};
use crate::proto::v1::{
    AllowedTools, GetGatewayStatusRequest, GetToolRequest, HiddenTool, ListAvailableToolsRequest,
    ListAvailableToolsResponse, ProbeOutcome, RegisterToolsRequest, ReportProbeResultRequest, SchemaFormat,
    ToolSpec, ToolStatus, gateway_status_service_client::GatewayStatusServiceClient,
    tool_registry_service_client::ToolRegistryServiceClient,
};

/// How long the story waits for anything. It expects nothing that takes longer than a grace and some probes.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);
/// Between two looks.
const POLL: Duration = Duration::from_millis(50);

/// Asks again and again until the answer is good. A bad one says what is there instead.
pub(super) async fn until<T>(
    expected: &str,
    mut ask: impl AsyncFnMut() -> Result<T, String>,
) -> Result<T, Failure> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let instead = match ask().await {
            Ok(answer) => return Ok(answer),
            Err(instead) => instead,
        };
        if Instant::now() >= deadline {
            return Err(unmet(expected, &instead));
        }
        time::sleep(POLL).await;
    }
}

/// The story did not come true.
pub(super) fn unmet(expected: &str, instead: &str) -> Failure {
    let patience = humantime::format_duration(PATIENCE);
    Failure::Failed(format!("the demo expected within {patience}: {expected}; instead: {instead}"))
}

/// Both services of one server.
#[derive(Clone, Debug)]
pub(super) struct Api {
    tools: ToolRegistryServiceClient<Channel>,
    /// The gateways' service.
    pub(super) gateways: GatewayStatusServiceClient<Channel>,
}

impl Api {
    /// The API at the other end of a connection.
    pub(super) fn new(channel: Channel) -> Self {
        Self {
            tools: ToolRegistryServiceClient::new(channel.clone()),
            gateways: GatewayStatusServiceClient::new(channel),
        }
    }

    /// Registers tools; all of them must be accepted.
    pub(super) async fn register(&self, owner: &str, tools: Vec<ToolSpec>) -> Result<(), String> {
        let message = RegisterToolsRequest {
            tools,
            owner: owner.to_owned(),
            all_or_nothing: true,
            ..Default::default()
        };
        let reply = answer(self.tools.clone().register_tools(request(message, PATIENCE)).await)?;
        let rejected = reply.results.into_iter().find_map(|result| Some((result.name, result.error?)));
        rejected.map_or(Ok(()), |(name, error)| Err(format!("{name}: {}", error.message)))
    }

    /// What an agent gets that may use every tool, or just these.
    pub(super) async fn list(
        &self,
        format: SchemaFormat,
        allowed: Option<&[&str]>,
    ) -> Result<ListAvailableToolsResponse, String> {
        let names = |names: &[&str]| AllowedTools { names: names.iter().map(|n| (*n).to_owned()).collect() };
        let message = ListAvailableToolsRequest {
            format: format.into(),
            allowed_tools: allowed.map(names),
            include_hidden: true,
            ..Default::default()
        };
        answer(self.tools.clone().list_available_tools(request(message, PATIENCE)).await)
    }

    /// What an operator sees of a tool.
    pub(super) async fn status(&self, name: &str) -> Result<ToolStatus, String> {
        let message = GetToolRequest { name: name.to_owned(), ..Default::default() };
        let reply = answer(self.tools.clone().get_tool(request(message, PATIENCE)).await)?;
        reply.tool.and_then(|tool| tool.status).ok_or_else(|| format!("{name} has no status"))
    }

    /// Pushes a good result of a check that only the owner can do.
    pub(super) async fn report_pass(&self, name: &str, message: &str) -> Result<(), String> {
        let message = ReportProbeResultRequest {
            name: name.to_owned(),
            outcome: ProbeOutcome::Pass.into(),
            message: message.to_owned(),
            ..Default::default()
        };
        answer(self.tools.clone().report_probe_result(request(message, PATIENCE)).await).map(drop)
    }

    /// What the `gateway_status` tool hands to the model.
    pub(super) async fn gateway_text(&self) -> Result<String, String> {
        let message = GetGatewayStatusRequest::default();
        let reply = answer(self.gateways.clone().get_gateway_status(request(message, PATIENCE)).await)?;
        Ok(reply.snapshot.unwrap_or_default().text)
    }
}

fn answer<T>(reply: Result<Response<T>, Status>) -> Result<T, String> {
    reply.map(Response::into_inner).map_err(|status| describe(&status))
}

/// The names on a list.
pub(super) fn names(list: &ListAvailableToolsResponse) -> Vec<&str> {
    list.tools.iter().map(|tool| tool.name.as_str()).collect()
}

/// A tool that must be hidden.
pub(super) fn hidden<'a>(list: &'a ListAvailableToolsResponse, name: &str) -> Result<&'a HiddenTool, String> {
    let found = list.hidden.iter().find(|tool| tool.name == name);
    found.ok_or_else(|| format!("the list is {}", names(list).join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_until_it_is_so_and_not_for_ever() {
        let mut asked = 0;
        let answer = until("a third answer", async || {
            asked += 1;
            if asked == 3 { Ok("yes") } else { Err("not yet".to_owned()) }
        });
        assert_eq!(answer.await, Ok("yes"));

        let start = Instant::now();
        let never: Result<(), _> = until("the impossible", async || Err("the usual".to_owned())).await;
        let text = "the demo expected within 15s: the impossible; instead: the usual";
        assert_eq!(never, Err(Failure::Failed(text.to_owned())));
        assert!((PATIENCE..PATIENCE + POLL).contains(&start.elapsed()), "{:?}", start.elapsed());
    }
}

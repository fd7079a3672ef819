//! What must survive: acknowledged writes, last successes, clear refusals; through kills, restarts, full disks and
//! broken files. All with the real binary.

#![allow(clippy::unwrap_used)]

mod clocks;
mod files;
mod full;
mod gateways;
mod kills;
mod restarts;
#[path = "../support/mod.rs"]
mod support;

use std::{collections::BTreeMap, time::Duration};

use support::Server;
use tonic_types::StatusExt;
use toolpulse::proto::v1::{
    GetToolRequest, ListAvailableToolsRequest, ListToolsRequest, RegisterToolRequest, Tool, ToolSpec, Verdict,
};

/// All tools of the default namespace, and the revision of the last page.
async fn list(server: &Server) -> (BTreeMap<String, Tool>, String, u64) {
    let mut tools = BTreeMap::new();
    let mut request = ListToolsRequest { page_size: 1000, ..ListToolsRequest::default() };
    loop {
        let reply = server.tools().list_tools(request.clone()).await.unwrap().into_inner();
        tools.extend(reply.tools.into_iter().map(|t| (t.spec.as_ref().unwrap().name.clone(), t)));
        if reply.next_page_token.is_empty() {
            return (tools, reply.epoch, reply.revision);
        }
        request.page_token = reply.next_page_token;
    }
}

async fn get(server: &Server, name: &str) -> Tool {
    let request = GetToolRequest { name: name.into(), ..GetToolRequest::default() };
    server.tools().get_tool(request).await.unwrap().into_inner().tool.unwrap()
}

async fn verdict(server: &Server, name: &str) -> Verdict {
    get(server, name).await.status.unwrap().verdict()
}

/// Names of what an agent may use now.
async fn available(server: &Server) -> Vec<String> {
    let reply = server.tools().list_available_tools(ListAvailableToolsRequest::default()).await.unwrap();
    reply.into_inner().tools.into_iter().map(|t| t.name).collect()
}

/// Registers a tool, and waits for its first result if it has probes.
async fn register(server: &Server, spec: ToolSpec) -> Result<Tool, tonic::Status> {
    let request = RegisterToolRequest {
        wait_for_probe: (!spec.probes.is_empty()).then(|| seconds(10.0)),
        tool: Some(spec),
        overwrite: true,
        ..RegisterToolRequest::default()
    };
    server.tools().register_tool(request).await.map(|reply| reply.into_inner().tool.unwrap())
}

fn named(name: &str) -> ToolSpec {
    ToolSpec { name: name.into(), ..ToolSpec::default() }
}

/// The reason that an error carries.
fn reason(status: &tonic::Status) -> String {
    status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
}

fn seconds(n: f64) -> prost_types::Duration {
    Duration::from_secs_f64(n).try_into().unwrap()
}

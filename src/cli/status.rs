//! `status`: what gateways report.

use clap::Subcommand;

use super::{
    Client, Failure,
    client::{self, CALL, request},
    json, print, report, watch,
};
use crate::{
    config::ClientSettings,
    proto::v1::{GetGatewayStatusRequest, WatchGatewayStatusRequest},
};

pub(super) type StatusArgs = Client<StatusCommand>;

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum StatusCommand {
    /// Print what an agent's gateway_status tool would hand to the model
    Get {
        /// The gateway's id; the only live one if left out
        id: Option<String>,
    },
    /// Show the status live: a table on a terminal, else a line for each change; until Ctrl-C
    Watch {
        /// Ids of gateways; all of the namespace if left out
        ids: Vec<String>,
    },
    /// Report the status of a gateway once
    Report(Box<report::ReportArgs>),
}

pub(super) async fn run(command: StatusCommand, settings: &ClientSettings) -> Result<(), Failure> {
    match command {
        StatusCommand::Get { id } => get(id.unwrap_or_default(), settings).await,
        StatusCommand::Watch { ids } => watch(ids, settings).await,
        StatusCommand::Report(args) => report::run(*args, settings).await,
    }
}

async fn watch(gateway_ids: Vec<String>, settings: &ClientSettings) -> Result<(), Failure> {
    let namespace = settings.namespace.to_string();
    let request = WatchGatewayStatusRequest { namespace, gateway_ids, resume: None };
    watch::run(watch::Gateways { server: settings.server.clone(), request }, settings).await
}

async fn get(gateway_id: String, settings: &ClientSettings) -> Result<(), Failure> {
    let message = GetGatewayStatusRequest { namespace: settings.namespace.to_string(), gateway_id };
    let reply = client::gateways(settings).await?.get_gateway_status(request(message, CALL)).await;
    let snapshot = reply.map_err(|status| Failure::call(&status))?.into_inner().snapshot.unwrap_or_default();
    if settings.json { print::json(&json::snapshot(&snapshot)) } else { print::line(&snapshot.text) }
}

//! The way to the server.

use std::{error::Error, time::Duration};

use tonic::{
    Request,
    transport::{Channel, Endpoint},
};

use super::{Failure, failure::chain};
use crate::{
    config::ClientSettings,
    proto::v1::{
        agent_policy_service_client::AgentPolicyServiceClient,
        gateway_status_service_client::GatewayStatusServiceClient,
        tool_registry_service_client::ToolRegistryServiceClient,
    },
};

/// How long to try to connect.
pub(super) const CONNECT: Duration = Duration::from_secs(5);
/// How long a call may take that waits for nothing.
pub(super) const CALL: Duration = Duration::from_secs(30);
/// Largest reply: what ListAvailableTools gives at most, and some room.
pub(super) const MAX_REPLY: usize = 80 << 20;
/// A connection without an answer to this ping, within the time below, is dead.
const PING: Duration = Duration::from_secs(20);
const PONG: Duration = Duration::from_secs(10);

/// Connects.
pub(super) async fn channel(settings: &ClientSettings) -> Result<Channel, Failure> {
    connect(settings, CONNECT).await.map_err(Failure::Failed)
}

/// Connects within a time, or says why not.
pub(super) async fn connect(settings: &ClientSettings, within: Duration) -> Result<Channel, String> {
    let server = &settings.server;
    let endpoint = Endpoint::from_shared(server.clone()).map_err(|e| format!("{server}: {}", chain(&e)))?;
    let endpoint = endpoint.connect_timeout(within).http2_keep_alive_interval(PING).keep_alive_timeout(PONG);
    // The outermost text is "transport error" only.
    endpoint
        .connect()
        .await
        .map_err(|e| format!("cannot reach {server}: {}", e.source().map_or_else(|| chain(&e), chain)))
}

/// The client of the registry.
pub(super) async fn tools(settings: &ClientSettings) -> Result<ToolRegistryServiceClient<Channel>, Failure> {
    Ok(ToolRegistryServiceClient::new(channel(settings).await?).max_decoding_message_size(MAX_REPLY))
}

/// The client of the agents' policies.
pub(super) async fn policies(
    settings: &ClientSettings,
) -> Result<AgentPolicyServiceClient<Channel>, Failure> {
    Ok(AgentPolicyServiceClient::new(channel(settings).await?).max_decoding_message_size(MAX_REPLY))
}

/// The client of the gateways' status.
pub(super) async fn gateways(
    settings: &ClientSettings,
) -> Result<GatewayStatusServiceClient<Channel>, Failure> {
    Ok(GatewayStatusServiceClient::new(channel(settings).await?).max_decoding_message_size(MAX_REPLY))
}

/// A request with a deadline.
pub(super) fn request<T>(message: T, deadline: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(deadline);
    request
}

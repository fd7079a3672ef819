//! The way to the server.

use std::{error::Error, fs, path::Path, time::Duration};

use tonic::{
    Request,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use super::{Failure, failure::chain};
use crate::{
    config::{ClientSettings, ClientTls},
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
    let endpoint = match server.starts_with("https://") {
        true => endpoint.tls_config(tls(settings)?).map_err(|e| format!("{server}: {}", chain(&e)))?,
        false => endpoint,
    };
    let endpoint = endpoint.connect_timeout(within).http2_keep_alive_interval(PING).keep_alive_timeout(PONG);
    // The outermost text is "transport error" only.
    endpoint
        .connect()
        .await
        .map_err(|e| format!("cannot reach {server}: {}", e.source().map_or_else(|| chain(&e), chain)))
}

/// How TLS is spoken. Files are read anew for each connection, so that a watch comes back with a rotated certificate.
fn tls(settings: &ClientSettings) -> Result<ClientTlsConfig, String> {
    let read = |setting: &str, path: &Path| {
        fs::read(path).map_err(|e| format!("{setting}: cannot read {}: {e}", path.display()))
    };
    let ClientTls { server_ca, identity } = &settings.tls;
    let mut tls = match server_ca {
        Some(path) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read("server_ca", path)?)),
        None => ClientTlsConfig::new().with_webpki_roots(),
    };
    if let Some((cert, key)) = identity {
        tls = tls.identity(Identity::from_pem(read("client_cert", cert)?, read("client_key", key)?));
    }
    Ok(tls)
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

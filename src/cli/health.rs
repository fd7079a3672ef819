//! `healthcheck`: one grpc.health.v1 Check, for containers and scripts.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::time;

use super::{Failure, client, failure::describe, print};
use crate::{
    config::{ClientFlags, ClientSettings},
    proto::health::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient},
};

/// How long the whole check may take, the connection included.
const DEADLINE: Duration = Duration::from_secs(2);

/// Whom to ask.
#[derive(Clone, Debug, Args)]
pub struct HealthArgs {
    /// Where the server is, and how to print.
    #[command(flatten)]
    pub client: ClientFlags,
    /// Service to ask about; the server as a whole if left out
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub service: String,
}

pub(super) async fn run(args: &HealthArgs, settings: &ClientSettings) -> Result<(), Failure> {
    let status = check(&args.service, settings).await.map_err(Failure::Unhealthy)?;
    let name = status.as_str_name();
    if settings.json {
        print::json(&json!({"status": name}))?;
    } else {
        print::line(name)?;
    }
    match status {
        ServingStatus::Serving => Ok(()),
        _ => Err(Failure::Silent(Failure::Unhealthy(String::new()).exit_code())),
    }
}

async fn check(service: &str, settings: &ClientSettings) -> Result<ServingStatus, String> {
    let asked = async {
        let channel = client::connect(settings, DEADLINE).await?;
        let message = HealthCheckRequest { service: service.to_owned() };
        // Without a deadline of its own: ours covers the connection as well.
        let reply = HealthClient::new(channel).check(message).await;
        Ok(reply.map_err(|status| describe(&status))?.into_inner().status())
    };
    let late = |_| {
        Err(format!("{} did not answer within {}", settings.server, humantime::format_duration(DEADLINE)))
    };
    time::timeout(DEADLINE, asked).await.unwrap_or_else(late)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio_stream::wrappers::TcpListenerStream;
    use tonic::{Request, Response, Status, transport::Server};

    use super::*;
    use crate::{
        core::name::Namespace,
        proto::health::{
            HealthCheckResponse, HealthListRequest, HealthListResponse,
            health_server::{Health, HealthServer},
        },
    };

    /// Answers by the service's name.
    struct Scripted;

    #[tonic::async_trait]
    impl Health for Scripted {
        type WatchStream = tokio_stream::Empty<Result<HealthCheckResponse, Status>>;

        async fn check(
            &self,
            request: Request<HealthCheckRequest>,
        ) -> Result<Response<HealthCheckResponse>, Status> {
            let status = match request.into_inner().service.as_str() {
                "" => ServingStatus::Serving,
                "down" => ServingStatus::NotServing,
                "slow" => std::future::pending().await,
                other => return Err(Status::not_found(format!("no service {other}"))),
            };
            Ok(Response::new(HealthCheckResponse { status: status.into() }))
        }

        async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
            Ok(Response::new(tokio_stream::empty()))
        }

        async fn list(&self, _: Request<HealthListRequest>) -> Result<Response<HealthListResponse>, Status> {
            Ok(Response::new(HealthListResponse::default()))
        }
    }

    fn settings(address: std::net::SocketAddr) -> ClientSettings {
        let server = format!("http://{address}");
        ClientSettings {
            server,
            tls: crate::config::ClientTls::default(),
            namespace: Namespace::default(),
            namespace_given: false,
            json: false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn healthy_and_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let served = settings(listener.local_addr().unwrap());
        let server = Server::builder().add_service(HealthServer::new(Scripted));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        // Bound, and nobody ever accepts.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let silent_settings = settings(silent.local_addr().unwrap());
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gone_settings = settings(gone.local_addr().unwrap());
        drop(gone);

        for (settings, service, code, what) in [
            (&served, "", 0, ""),
            (&served, "down", 3, ""),
            (&served, "nope", 3, "no service nope (NOT_FOUND)"),
            (&served, "slow", 3, "did not answer within 2s"),
            (&silent_settings, "", 3, "did not answer within 2s"),
            (&gone_settings, "", 3, "cannot reach http://127.0.0.1:"),
        ] {
            let args = HealthArgs { client: ClientFlags::default(), service: service.to_owned() };
            let failure = run(&args, settings).await.err();
            assert_eq!(failure.as_ref().map_or(0, Failure::exit_code), code, "{service}: {failure:?}");
            let line = failure.and_then(|f| f.line()).unwrap_or_default();
            assert!(line.contains(what), "{service}: {line}");
        }
    }
}

//! Watches of all three kinds, seen alike.

use std::{pin::Pin, time::Duration};

use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Request, Status, transport::Channel};
use toolpulse::proto::v1::{
    Goodbye, WatchAvailableToolsRequest, WatchGatewayStatusRequest, WatchToolsRequest,
    gateway_status_service_client::GatewayStatusServiceClient,
    tool_registry_service_client::ToolRegistryServiceClient,
};

/// What all messages of watches have.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) synced: bool,
    pub(crate) goodbye: Option<Goodbye>,
}

/// An open watch.
pub(crate) type Watch = Pin<Box<dyn Stream<Item = Result<Seen, Status>> + Send>>;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    AvailableTools,
    Tools,
    GatewayStatus,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::AvailableTools, Self::Tools, Self::GatewayStatus];

    /// Opens one; with `deadline` it says how long it wants to live.
    pub(crate) async fn open(self, channel: Channel, deadline: Option<Duration>) -> Result<Watch, Status> {
        let mut tools = ToolRegistryServiceClient::new(channel.clone());
        let mut gateways = GatewayStatusServiceClient::new(channel);
        Ok(match self {
            Self::AvailableTools => {
                let request = request(WatchAvailableToolsRequest::default(), deadline);
                let watch = tools.watch_available_tools(request).await?.into_inner();
                Box::pin(watch.map(|m| m.map(|m| Seen { synced: m.synced, goodbye: m.goodbye })))
            }
            Self::Tools => {
                let request = request(WatchToolsRequest::default(), deadline);
                let watch = tools.watch_tools(request).await?.into_inner();
                Box::pin(watch.map(|m| m.map(|m| Seen { synced: m.synced, goodbye: m.goodbye })))
            }
            Self::GatewayStatus => {
                let request = request(WatchGatewayStatusRequest::default(), deadline);
                let watch = gateways.watch_gateway_status(request).await?.into_inner();
                Box::pin(watch.map(|m| m.map(|m| Seen { synced: m.synced, goodbye: m.goodbye })))
            }
        })
    }

    /// Opens one, and reads until it has the whole state.
    pub(crate) async fn synced(self, channel: Channel) -> Watch {
        let mut watch = self.open(channel, None).await.unwrap();
        while !watch.next().await.expect("the stream is open").unwrap().synced {}
        watch
    }
}

/// How a watch ended.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) goodbye: Option<Goodbye>,
    pub(crate) status: Status,
}

/// Reads a watch to its end.
pub(crate) async fn end(mut watch: Watch) -> End {
    let mut goodbye = None;
    loop {
        match watch.next().await {
            Some(Ok(seen)) => {
                assert!(goodbye.is_none(), "goodbye is the last message: {seen:?}");
                goodbye = seen.goodbye;
            }
            Some(Err(status)) => return End { goodbye, status },
            None => return End { goodbye, status: Status::new(Code::Ok, "") },
        }
    }
}

impl End {
    /// The wait that goodbye recommends.
    pub(crate) fn retry_after(&self) -> Duration {
        let goodbye = self.goodbye.as_ref().unwrap_or_else(|| panic!("no goodbye: {self:?}"));
        goodbye.retry_after.expect("a wait").try_into().unwrap()
    }
}

fn request<T>(message: T, deadline: Option<Duration>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(deadline) = deadline {
        request.set_timeout(deadline);
    }
    request
}

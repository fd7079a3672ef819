//! The life of a publish stream is the gateway's.

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use bytes::Bytes;
use http_body::Frame;
use http_body_util::StreamBody;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinHandle,
    time::sleep,
};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{Code, Request, Status};
use toolpulse::{
    core::{gateway::GatewayId, name::Namespace},
    proto::v1::{
        GatewayStatus, PublishGatewayStatusRequest, PublishGatewayStatusResponse,
        publish_gateway_status_request::Report,
    },
};

use crate::world::{Client, World, connect, fields, queued, report, report_of, told};

type Outcome = Result<PublishGatewayStatusResponse, Status>;

/// An open publish stream, driven from here.
struct Publisher {
    /// `None` ends it.
    messages: Option<mpsc::Sender<PublishGatewayStatusRequest>>,
    call: JoinHandle<Outcome>,
}

impl Publisher {
    fn open(mut client: Client, deadline: Option<Duration>) -> Self {
        let (messages, outbound) = mpsc::channel(16);
        let mut request = Request::new(ReceiverStream::new(outbound));
        if let Some(deadline) = deadline {
            request
                .metadata_mut()
                .insert("grpc-timeout", format!("{}m", deadline.as_millis()).parse().unwrap());
        }
        let call = tokio::spawn(async move {
            client.publish_gateway_status(request).await.map(|reply| reply.into_inner())
        });
        Self { messages: Some(messages), call }
    }

    /// Opened, and its first report is visible.
    async fn live(world: &World, id: &str) -> Self {
        let publisher = Self::open(world.client().await, None);
        publisher.send(message(id, queued(1))).await;
        world.until(id, Some(false)).await;
        publisher
    }

    async fn send(&self, message: PublishGatewayStatusRequest) {
        self.messages.as_ref().unwrap().send(message).await.unwrap();
    }

    async fn end(mut self) -> Outcome {
        self.messages = None;
        self.call.await.unwrap()
    }

    async fn outcome(self) -> Outcome {
        self.call.await.unwrap()
    }
}

fn message(id: &str, status: GatewayStatus) -> PublishGatewayStatusRequest {
    PublishGatewayStatusRequest {
        gateway_id: id.to_owned(),
        report: Some(Report::Status(status)),
        ..Default::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_clean_end_takes_the_gateway_with_it() {
    let world = World::start().await;
    let publisher = Publisher::live(&world, "g").await;
    publisher.send(PublishGatewayStatusRequest { sequence: 5, ..message("", queued(2)) }).await;
    // Old, and not counted.
    publisher.send(PublishGatewayStatusRequest { sequence: 4, ..message("g", queued(3)) }).await;
    let same = PublishGatewayStatusRequest { namespace: "default".into(), ..message("g", queued(4)) };
    publisher.send(same).await;
    sleep(Duration::from_millis(10)).await;
    assert_eq!(
        world.list().await["g"].status,
        Some(GatewayStatus { run: "idle".into(), delivery_json: "{}".into(), ..queued(4) })
    );
    assert_eq!(publisher.end().await.unwrap().accepted, 3);
    assert_eq!(world.stale("g").await, None, "gone at once");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_by_the_client_takes_the_gateway_with_it() {
    let world = World::start().await;
    let publisher = Publisher::live(&world, "g").await;
    // The sender lives on: this is no half-close.
    publisher.call.abort();
    world.until("g", None).await;
    drop(publisher.messages);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_of_the_client_ends_its_stream() {
    let world = World::start().await;
    let publisher = Publisher::open(world.client().await, Some(Duration::from_secs(5)));
    publisher.send(message("g", queued(1))).await;
    world.until("g", Some(false)).await;
    sleep(Duration::from_secs(5)).await;
    let Publisher { messages, call } = publisher;
    assert!(call.await.unwrap().is_err());
    drop(messages);
    world.until("g", None).await;
}

/// A publish call whose client sets a deadline, sends one report, and neither ends nor cancels the stream when it is over.
async fn careless_call(address: SocketAddr, report: PublishGatewayStatusRequest) -> String {
    let tcp = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), tcp).await.unwrap();
    tokio::spawn(connection);
    let report = report.encode_to_vec();
    let mut frame = vec![0];
    frame.extend(u32::try_from(report.len()).unwrap().to_be_bytes());
    frame.extend(report);
    let once = tokio_stream::once(Ok::<_, Infallible>(Frame::data(Bytes::from(frame))));
    let body = StreamBody::new(once.chain(tokio_stream::pending()));
    let path = "/toolpulse.v1.GatewayStatusService/PublishGatewayStatus";
    let request = http::Request::post(format!("http://{address}{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", "5S")
        .body(body)
        .unwrap();
    let response = client.send_request(request).await.unwrap();
    let code = response.headers()["grpc-status"].to_str().unwrap().to_owned();
    // The connection outlives the call, as that of a real client does.
    tokio::spawn(async move {
        sleep(Duration::from_secs(600)).await;
        drop((client, response));
    });
    code
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_outlives_its_call_is_lost() {
    let world = World::start().await;
    let code = careless_call(world.address, message("g", queued(1))).await;
    assert_eq!(code, "4", "DEADLINE_EXCEEDED");
    assert_eq!(world.stale("g").await, Some(false));
    sleep(Duration::from_millis(5_100)).await;
    assert_eq!(world.stale("g").await, Some(true));
}

/// Stands between a client and the server, and can be cut.
async fn proxy(to: SocketAddr) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut far = TcpStream::connect(to).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
    });
    (address, task)
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_leaves_the_gateway_stale_and_then_gone() {
    let world = World::start().await;
    let (address, proxy) = proxy(world.address).await;
    let publisher = Publisher::open(connect(address).await, None);
    publisher.send(message("g", queued(1))).await;
    world.until("g", Some(false)).await;
    proxy.abort();
    world.until("g", Some(true)).await;
    assert!(publisher.outcome().await.is_err());
    sleep(Duration::from_secs(85)).await;
    assert_eq!(world.stale("g").await, Some(true));
    sleep(Duration::from_secs(5)).await;
    assert_eq!(world.stale("g").await, None, "gone after three ttl of 30 s");
}

#[tokio::test(start_paused = true)]
async fn the_newest_stream_takes_the_gateway_over() {
    let world = World::start().await;
    let old = Publisher::live(&world, "g").await;
    let new = Publisher::open(world.client().await, None);
    new.send(message("g", queued(2))).await;
    let (code, reason, details) = told(&old.outcome().await.unwrap_err());
    assert_eq!((code, reason.as_str()), (Code::Aborted, "SUPERSEDED"));
    assert_eq!(details.error_info().unwrap().metadata["gateway_id"], "g");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(
        world.list().await["g"].status.as_ref().unwrap().queued,
        2,
        "the end of the old one is nothing"
    );
    // A unary report counts, but the life stays the stream's.
    report(&mut world.client().await, report_of("g", queued(3))).await;
    assert_eq!(world.list().await["g"].status.as_ref().unwrap().queued, 3);
    new.end().await.unwrap();
    assert_eq!(world.stale("g").await, None);
}

#[tokio::test(start_paused = true)]
async fn the_drain_ends_streams_and_leaves_the_gateways_stale() {
    let world = World::start().await;
    let publisher = Publisher::live(&world, "g").await;
    let nameless = Publisher::open(world.client().await, None);
    sleep(Duration::from_millis(50)).await;
    world.drain.begin();
    for ended in [publisher, nameless] {
        let (code, reason, details) = told(&ended.outcome().await.unwrap_err());
        assert_eq!((code, reason.as_str()), (Code::Unavailable, "DRAINING"));
        assert!(details.retry_info().unwrap().retry_delay.unwrap() >= Duration::from_secs(1));
    }
    sleep(Duration::from_millis(50)).await;
    let catalog = world.reader.load();
    let entry = catalog.gateways.get(&Namespace::default(), &GatewayId::parse("g").unwrap()).unwrap();
    assert!(entry.snapshot.stale);
}

#[tokio::test(start_paused = true)]
async fn bad_messages_end_a_stream() {
    let world = World::start().await;
    let publisher = Publisher::open(world.client().await, None);
    let error = publisher.end().await.unwrap_err();
    assert_eq!(fields(&error), ["gateway_id"].map(str::to_owned), "nothing was sent");

    let publisher = Publisher::open(world.client().await, None);
    publisher.send(PublishGatewayStatusRequest::default()).await;
    let error = publisher.outcome().await.unwrap_err();
    assert_eq!(fields(&error), ["gateway_id", "report"].map(str::to_owned));
    assert!(world.list().await.is_empty());

    let other = PublishGatewayStatusRequest { namespace: "team".into(), ..message("h", queued(-1)) };
    let cases = [
        (message("h", queued(2)), vec!["gateway_id"]),
        (message("", queued(-1)), vec!["status.queued"]),
        (other, vec!["namespace", "gateway_id", "status.queued"]),
    ];
    for (i, (bad, expected)) in cases.into_iter().enumerate() {
        let id = format!("g{i}");
        let publisher = Publisher::live(&world, &id).await;
        publisher.send(bad).await;
        assert_eq!(fields(&publisher.outcome().await.unwrap_err()), expected);
        world.until(&id, Some(true)).await;
    }
}

//! The services without a network, on this thread alone: so what is counted is theirs.

use std::{
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use bytes::{BufMut, Bytes, BytesMut};
use http::{Request, Response, header};
use http_body::{Body as _, Frame};
use http_body_util::StreamBody;
use prost::Message;
use tokio::runtime::{self, Runtime};
use tokio_util::sync::CancellationToken;
use tonic::{Status, body::Body};
use toolpulse::{
    catalog::{self, Catalog},
    clock::Clock,
    core::{
        allowlist::{Environment, ServerAllowlist},
        availability::Defaults,
    },
    metrics::Metrics,
    owner::{Canary, Owner, Parts},
    prober::{Prober, carry, egress},
    proto::v1::{self, probe_spec::Kind},
    serve::Drain,
    service::{
        rpc::{Rpc, RpcLayer, Stalls},
        tools::{Judge, Shortcut, ToolService},
        watch::{WatchSettings, Watches},
    },
    store::{Location, Store},
};
use tower::{Layer, Service};

pub(crate) const LIST: &str = "ListAvailableTools";
pub(crate) const WATCH: &str = "WatchAvailableTools";
const REPORT: &str = "ReportProbeResult";
const BATCH: usize = 500;
/// gRPC's own header of a message.
const HEADER: usize = 5;

/// A registry that has settled, and its service.
pub(crate) struct World {
    runtime: Runtime,
    service: Rpc<Shortcut>,
    pub(crate) metrics: Metrics,
}

impl World {
    /// With so many tools, each of some 1 KB, all of them available.
    pub(crate) fn new(count: usize) -> Self {
        let runtime = runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let (service, metrics) = runtime.block_on(start());
        let world = Self { runtime, service, metrics };
        for start in (0..count).step_by(BATCH) {
            let tools = (start..count.min(start + BATCH)).map(tool).collect();
            world.call("RegisterTools", &v1::RegisterToolsRequest { tools, ..Default::default() });
        }
        // Only these flip.
        for i in [0, 1] {
            let tool = Some(v1::ToolSpec {
                probes: vec![v1::ProbeSpec {
                    kind: Some(Kind::Report(v1::ReportProbe {})),
                    ..Default::default()
                }],
                ttl: Some(prost_types::Duration { seconds: 86_400, nanos: 0 }),
                ..tool(i)
            });
            let request = v1::RegisterToolRequest { tool, overwrite: true, ..Default::default() };
            world.call("RegisterTool", &request);
            world.report(i, v1::ProbeOutcome::Pass);
        }
        world
    }

    /// One call that may have to wait for the owner.
    pub(crate) fn call(&self, method: &str, request: &impl Message) -> Bytes {
        let call = self.service.clone().call(request_of(method, request));
        let response = self.runtime.block_on(call).unwrap();
        Frames(response).whole()
    }

    pub(crate) fn report(&self, tool: usize, outcome: v1::ProbeOutcome) {
        let request =
            v1::ReportProbeResultRequest { name: name(tool), outcome: outcome.into(), ..Default::default() };
        self.call(REPORT, &request);
    }

    /// One call that must not wait.
    pub(crate) fn at_once(&mut self, request: Request<Body>) -> Frames {
        let call = pin!(self.service.call(request));
        let Poll::Ready(response) = call.poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("the call waits");
        };
        Frames(response.unwrap())
    }

    /// Opens a stream.
    pub(crate) fn open(&self, method: &str, request: &impl Message) -> Frames {
        let call = self.service.clone().call(request_of(method, request));
        Frames(self.runtime.block_on(call).unwrap())
    }

    /// The next message of a stream.
    pub(crate) fn next(&self, stream: &mut Frames) -> Bytes {
        let next = std::future::poll_fn(|cx| Pin::new(stream.0.body_mut()).poll_frame(cx));
        self.runtime.block_on(next).unwrap().unwrap().into_data().unwrap()
    }

    /// A counter.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = self.metrics.encode().unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap().parse().unwrap()
    }
}

async fn start() -> (Rpc<Shortcut>, Metrics) {
    let (clock, metrics) = (Clock::start(), Metrics::new());
    let (store, loaded) = Store::open(&Location::Memory).await.unwrap();
    let (allowlist, _) = ServerAllowlist::from_environment(&Environment::default()).unwrap();
    let (publisher, reader) = catalog::channel(Catalog::empty("epoch".into(), 0, false), allowlist);
    let parts = Parts {
        clock: clock.clone(),
        defaults: Defaults::default(),
        store,
        loaded,
        has_manifest: false,
        prober: Prober::new(egress::Policy::default()),
        canary: Canary::Own(([127, 0, 0, 1], 9).into()),
        publisher,
        metrics: metrics.clone(),
        stop: CancellationToken::new(),
    };
    let (owner, handle) = Owner::new(parts).await.unwrap();
    tokio::spawn(owner.run());
    handle.started().await.unwrap();
    reader.settled().wait_for(|settled| *settled).await.unwrap();
    let judge = Judge {
        defaults: Defaults::default(),
        egress: egress::Policy::default(),
        rules: carry::Rules::default(),
    };
    let signal = Drain::new(std::time::Duration::ZERO, std::time::Duration::ZERO).signal();
    let watches = Watches::new(WatchSettings::default(), signal, metrics.clone());
    let service = ToolService::new(handle, reader, clock, judge, watches, &metrics);
    let layer = RpcLayer::new(&metrics, Stalls::default());
    (layer.layer(Shortcut::new(service, 4 << 20)), metrics)
}

/// What a call gives.
pub(crate) struct Frames(Response<Body>);

impl Frames {
    /// All that is there now; the call must have succeeded.
    pub(crate) fn all(mut self) -> Vec<Bytes> {
        let mut frames = Vec::with_capacity(4);
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(frame)) = Pin::new(self.0.body_mut()).poll_frame(&mut context) {
            match frame.unwrap().into_data() {
                Ok(data) => frames.push(data),
                Err(rest) => assert_eq!(rest.into_trailers().unwrap()[Status::GRPC_STATUS], "0"),
            }
        }
        frames
    }

    /// The one message.
    fn whole(self) -> Bytes {
        assert!(self.0.headers().get(Status::GRPC_STATUS).is_none(), "{:?}", self.0.headers());
        let frames = self.all().concat();
        Bytes::from(frames).slice(HEADER..)
    }
}

pub(crate) fn request_of(method: &str, message: &impl Message) -> Request<Body> {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.encoded_len()).unwrap());
    message.encode(&mut frame).unwrap();
    Request::post(format!("http://localhost/toolpulse.v1.ToolRegistryService/{method}"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        // As clients do it: an empty frame says that nothing follows.
        .body(Body::new(StreamBody::new(tokio_stream::iter(
            [frame.freeze(), Bytes::new()].map(|data| Ok::<_, Status>(Frame::data(data))),
        ))))
        .unwrap()
}

pub(crate) fn name(i: usize) -> String {
    format!("tool_{i}")
}

fn tool(i: usize) -> v1::ToolSpec {
    let field =
        |p: usize| format!(r#""field_{p}":{{"type":"string","description":"field {p} of tool {i}"}}"#);
    let fields: Vec<String> = (0..12).map(field).collect();
    v1::ToolSpec {
        name: name(i),
        description: format!("Does what tool {i} does. {}", "More of it. ".repeat(20)),
        input_schema_json: format!(r#"{{"type":"object","properties":{{{}}}}}"#, fields.join(",")),
        ..Default::default()
    }
}

/// A list of all tools, or of the first ones.
pub(crate) fn list(first: Option<usize>) -> v1::ListAvailableToolsRequest {
    v1::ListAvailableToolsRequest {
        allowed_tools: first.map(|first| v1::AllowedTools { names: (0..first).map(name).collect() }),
        max_reply_bytes: 64 << 20,
        ..Default::default()
    }
}

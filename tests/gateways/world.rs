//! A server with nothing but the gateways' service, and what the tests do to it.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{
    Code, Request, Status, Streaming,
    service::Routes,
    transport::{Channel, Endpoint},
};
use tonic_types::{ErrorDetails, StatusExt};
use toolpulse::{
    catalog::{self, Catalog, Reader},
    clock::Clock,
    core::{
        allowlist::{Environment, ServerAllowlist},
        availability::Defaults,
        name::{Namespace, ToolKey, ToolName},
        probe::{Outcome, ProbeKind, ProbeSpec},
        registry::{Report as ProbeReport, plan::Registration},
        tool::{ToolSpec, spec_hash},
    },
    metrics::Metrics,
    owner::{Canary, Handle, Owner, Parts, Registering},
    prober::{Prober, egress},
    proto::v1::{
        GatewaySnapshot, GatewayStatus, ListGatewayStatusesRequest, Position, ReportGatewayStatusRequest,
        ReportGatewayStatusResponse, WatchGatewayStatusRequest, WatchGatewayStatusResponse,
        gateway_status_service_client::GatewayStatusServiceClient,
        gateway_status_service_server::GatewayStatusServiceServer, report_gateway_status_request::Report,
    },
    serve::{self, Bound, Drain, GRACE, Protocols, SPREAD},
    service::{
        gateway::GatewayService,
        watch::{WatchSettings, Watches},
    },
    store::{Location, Store},
};

pub(crate) type Client = GatewayStatusServiceClient<Channel>;

pub(crate) const EPOCH: &str = "epoch-1";

/// A running server.
pub(crate) struct World {
    pub(crate) address: SocketAddr,
    pub(crate) handle: Handle,
    pub(crate) reader: Reader,
    pub(crate) metrics: Metrics,
    pub(crate) drain: Drain,
    _stop: DropGuard,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::with(WatchSettings::default(), false).await
    }

    pub(crate) async fn with(settings: WatchSettings, degraded_capabilities: bool) -> Self {
        let (store, loaded) = Store::open(&Location::Memory).await.unwrap();
        let (allowlist, _) = ServerAllowlist::from_environment(&Environment::default()).unwrap();
        let (publisher, reader) = catalog::channel(Catalog::empty(EPOCH.into(), 0, false), allowlist);
        let (clock, metrics, drain) = (Clock::start(), Metrics::new(), Drain::new(GRACE, SPREAD));
        let stop = CancellationToken::new();
        let parts = Parts {
            clock: clock.clone(),
            defaults: Defaults::default(),
            store,
            loaded,
            has_manifest: false,
            prober: Prober::new(egress::Policy::parse(egress::Mode::Strict, &[]).unwrap()),
            canary: Canary::Own("127.0.0.1:1".parse().unwrap()),
            publisher,
            metrics: metrics.clone(),
            stop: stop.clone(),
        };
        let (owner, handle) = Owner::new(parts).await.unwrap();
        tokio::spawn(owner.run());

        let watches = Watches::new(settings, drain.signal(), metrics.clone());
        let service =
            GatewayService::new(handle.clone(), reader.clone(), clock, watches, degraded_capabilities);
        let bound = Bound::bind("test", "127.0.0.1:0".parse().unwrap(), 1_000).await.unwrap();
        let address = bound.address();
        tokio::spawn({
            let (metrics, drain) = (metrics.clone(), drain.clone());
            let routes = Routes::new(GatewayStatusServiceServer::new(service));
            async move { serve::serve(bound, Protocols::Grpc, routes, &metrics, &drain).await.unwrap() }
        });
        let mut settled = reader.settled();
        settled.wait_for(|settled| *settled).await.unwrap();
        Self { address, handle, reader, metrics, drain, _stop: stop.drop_guard() }
    }

    /// A client on a connection of its own.
    pub(crate) async fn client(&self) -> Client {
        connect(self.address).await
    }

    /// Everything of the default namespace, by id.
    pub(crate) async fn list(&self) -> BTreeMap<String, GatewaySnapshot> {
        let mut client = self.client().await;
        let mut request = ListGatewayStatusesRequest { page_size: 1_000, ..Default::default() };
        let mut all = BTreeMap::new();
        loop {
            let page = client.list_gateway_statuses(request.clone()).await.unwrap().into_inner();
            all.extend(page.snapshots.into_iter().map(|snapshot| (snapshot.gateway_id.clone(), snapshot)));
            if page.next_page_token.is_empty() {
                return all;
            }
            request.page_token = page.next_page_token;
        }
    }

    /// `None`: gone; else whether it is stale.
    pub(crate) async fn stale(&self, id: &str) -> Option<bool> {
        self.list().await.get(id).map(|snapshot| snapshot.stale)
    }

    /// Waits until a gateway is as it should be: see [`Self::stale`].
    pub(crate) async fn until(&self, id: &str, expected: Option<bool>) {
        for _ in 0..100 {
            if self.stale(id).await == expected {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("'{id}' did not become {expected:?} within a second");
    }

    pub(crate) async fn watch(&self, request: WatchGatewayStatusRequest) -> Watch {
        Watch::open(self.client().await, request).await.unwrap()
    }

    /// Registers a tool with one report probe.
    pub(crate) async fn register(&self, name: &str) {
        let spec = ToolSpec {
            probes: vec![ProbeSpec { name: "report".into(), kind: ProbeKind::Report }],
            ..ToolSpec::new(ToolName::parse(name).unwrap())
        };
        let registration = Registration {
            namespace: Namespace::default(),
            spec_hash: spec_hash(&spec),
            spec: Arc::new(spec),
            mapped_names: Vec::new(),
            owner: "a".into(),
            overwrite: false,
            force: false,
            from_manifest: false,
        };
        let items = vec![Ok(registration)];
        let registering = Registering { items, all_or_nothing: false, validate_only: false };
        let answer = self.handle.register(registering).await.unwrap();
        assert!(answer.results[0].is_ok());
    }

    /// Reports a tool's probe.
    pub(crate) async fn probed(&self, name: &str, works: bool) {
        let key = ToolKey { namespace: Namespace::default(), name: ToolName::parse(name).unwrap() };
        let outcome = if works { Outcome::Pass } else { Outcome::no("DOWN", "down") };
        let ttl = Some(Duration::from_secs(86_400));
        let report = ProbeReport { key, probe: String::new(), outcome, ttl, generation: None };
        self.handle.report(report).await.unwrap();
    }
}

pub(crate) async fn connect(address: SocketAddr) -> Client {
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    Client::new(channel)
}

/// A status that is told apart by a number.
pub(crate) fn queued(queued: i64) -> GatewayStatus {
    GatewayStatus { queued, ..Default::default() }
}

/// A status whose snapshot has over 100 KiB.
pub(crate) fn large(queued: i64) -> GatewayStatus {
    let entry = |i: i64| toolpulse::proto::v1::DegradedOwner {
        owner: format!("channel:{i}"),
        reason: "x".repeat(1_000),
    };
    GatewayStatus { queued, degraded: (0..55).map(entry).collect(), ..Default::default() }
}

pub(crate) fn report_of(id: &str, status: GatewayStatus) -> ReportGatewayStatusRequest {
    ReportGatewayStatusRequest {
        gateway_id: id.to_owned(),
        report: Some(Report::Status(status)),
        ..Default::default()
    }
}

/// A report that counts for so long.
pub(crate) fn lasting(mut report: ReportGatewayStatusRequest, millis: u64) -> ReportGatewayStatusRequest {
    let nanos = i32::try_from(millis % 1_000 * 1_000_000).unwrap();
    report.ttl = Some(prost_types::Duration { seconds: i64::try_from(millis / 1_000).unwrap(), nanos });
    report
}

pub(crate) async fn report(
    client: &mut Client,
    report: ReportGatewayStatusRequest,
) -> ReportGatewayStatusResponse {
    client.report_gateway_status(report).await.unwrap().into_inner()
}

/// The reason of an error, and its other details.
pub(crate) fn told(status: &Status) -> (Code, String, ErrorDetails) {
    let details = status.get_error_details();
    let info = details.error_info().unwrap_or_else(|| panic!("no ErrorInfo in {status:?}"));
    assert_eq!(info.domain, "toolpulse.dev");
    (status.code(), info.reason.clone(), details.clone())
}

/// The fields that an INVALID_ARGUMENT names.
pub(crate) fn fields(status: &Status) -> Vec<String> {
    let (code, reason, details) = told(status);
    assert_eq!((code, reason.as_str()), (Code::InvalidArgument, "INVALID_FIELDS"), "{status:?}");
    details.bad_request().unwrap().field_violations.iter().map(|v| v.field.clone()).collect()
}

/// What of a snapshot is a change when it changes.
pub(crate) fn visible(snapshot: &GatewaySnapshot) -> GatewaySnapshot {
    GatewaySnapshot { sequence: 0, observed_at: None, received_at: None, ..snapshot.clone() }
}

/// A watch, and what its reader knows by it.
pub(crate) struct Watch {
    stream: Streaming<WatchGatewayStatusResponse>,
    pub(crate) known: BTreeMap<String, GatewaySnapshot>,
    /// The newest position to resume from.
    pub(crate) revision: u64,
}

impl Watch {
    pub(crate) async fn open(mut client: Client, request: WatchGatewayStatusRequest) -> Result<Self, Status> {
        let stream = client.watch_gateway_status(Request::new(request)).await?.into_inner();
        Ok(Self { stream, known: BTreeMap::new(), revision: 0 })
    }

    pub(crate) fn position(&self) -> Option<Position> {
        Some(Position { epoch: EPOCH.to_owned(), revision: self.revision })
    }

    /// The next message, after what holds for each.
    pub(crate) async fn next(&mut self) -> Result<Option<WatchGatewayStatusResponse>, Status> {
        use prost::Message;
        let Some(message) = self.stream.message().await? else { return Ok(None) };
        assert!(message.encoded_len() <= 256 * 1024, "{} bytes", message.encoded_len());
        assert_eq!(message.epoch, EPOCH);
        assert_eq!(message.synced, message.revision > 0, "a revision belongs to synced alone: {message:?}");
        if message.synced {
            assert!(message.revision >= self.revision, "revisions never go back");
            self.revision = message.revision;
        }
        if message.reset {
            self.known.clear();
        }
        for id in &message.removed {
            self.known.remove(id);
        }
        for snapshot in &message.snapshots {
            self.known.insert(snapshot.gateway_id.clone(), snapshot.clone());
        }
        Ok(Some(message))
    }

    /// The messages up to the next that is synced.
    pub(crate) async fn batch(&mut self) -> Vec<WatchGatewayStatusResponse> {
        let mut batch = Vec::new();
        loop {
            let message = self.next().await.unwrap().expect("a message");
            let synced = message.synced;
            batch.push(message);
            if synced {
                return batch;
            }
        }
    }

    /// What comes within a time.
    pub(crate) async fn within(&mut self, time: Duration) -> Vec<WatchGatewayStatusResponse> {
        let mut got = Vec::new();
        let _ = timeout(time, async {
            loop {
                got.push(self.next().await.unwrap().expect("a message"));
            }
        })
        .await;
        got
    }
}

/// Whether it says where the reader stands and nothing else.
pub(crate) fn is_heartbeat(message: &WatchGatewayStatusResponse) -> bool {
    let WatchGatewayStatusResponse { epoch: _, revision: _, reset, snapshots, removed, synced, goodbye } =
        message;
    *synced && !reset && snapshots.is_empty() && removed.is_empty() && goodbye.is_none()
}

/// The ids of snapshots in messages.
pub(crate) fn ids(messages: &[WatchGatewayStatusResponse]) -> Vec<&str> {
    messages.iter().flat_map(|m| &m.snapshots).map(|s| s.gateway_id.as_str()).collect()
}

//! A reader against scripted servers.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::json;
use tokio::{net::TcpListener, sync::mpsc, time::Instant};
use tokio_stream::{Stream, StreamExt, wrappers::TcpListenerStream};
use tonic::{Code, Request, transport::Server};
use tonic_types::{ErrorDetails, StatusExt};

use super::*;
use crate::{
    core::name::Namespace,
    proto::v1::{
        GatewaySnapshot, GetGatewayStatusRequest, GetGatewayStatusResponse, GoodbyeReason,
        ListGatewayStatusesRequest, ListGatewayStatusesResponse, PublishGatewayStatusRequest,
        PublishGatewayStatusResponse, ReportGatewayStatusRequest, ReportGatewayStatusResponse,
        WatchGatewayStatusRequest, WatchGatewayStatusResponse,
        gateway_status_service_server::{GatewayStatusService, GatewayStatusServiceServer},
    },
};

/// The least that can be watched. `at` is nothing to tell.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Thing {
    pub(super) text: String,
    pub(super) at: u32,
}

impl Item for Thing {
    const COLUMNS: &'static [Column] = &[Column::new("NAME", 4, 0), Column::new("TEXT", 4, 1)];
    const PLURAL: &'static str = "things";

    fn is_same(&self, before: &Self) -> bool {
        self.text == before.text
    }

    fn line(&self) -> String {
        super::super::print::cell(&self.text).trim_start_matches('-').to_owned()
    }

    fn cells(&self) -> Vec<String> {
        vec![self.text.clone()]
    }

    fn is_urgent(&self) -> bool {
        self.text == "broken"
    }

    fn json(&self) -> Result<String, Failure> {
        Ok(json!({"thing": self.text}).to_string())
    }
}

/// A thing from its text, or `text@at`.
pub(super) fn thing(text: &str) -> Thing {
    let (text, at) = text.split_once('@').unwrap_or((text, "0"));
    Thing { text: text.to_owned(), at: at.parse().unwrap() }
}

/// A part; with a revision it is synced.
pub(super) fn part(upserts: &[(&str, &str)], removed: &[&str], revision: u64) -> Part<Thing> {
    Part {
        epoch: "e".to_owned(),
        revision,
        reset: false,
        upserts: upserts.iter().map(|(name, text)| ((*name).to_owned(), thing(text))).collect(),
        removed: removed.iter().map(|name| (*name).to_owned()).collect(),
        allowed: None,
        synced: revision > 0,
        goodbye: None,
    }
}

/// A part of a watch of gateways; with a revision it is synced.
fn message(snapshots: &[(&str, &str)], removed: &[&str], revision: u64) -> WatchGatewayStatusResponse {
    let snapshot = |(id, text): &(&str, &str)| GatewaySnapshot {
        gateway_id: (*id).to_owned(),
        text: (*text).to_owned(),
        ..Default::default()
    };
    WatchGatewayStatusResponse {
        epoch: "e".to_owned(),
        revision,
        snapshots: snapshots.iter().map(snapshot).collect(),
        removed: removed.iter().map(|id| (*id).to_owned()).collect(),
        synced: revision > 0,
        ..Default::default()
    }
}

fn goodbye(seconds: i64) -> WatchGatewayStatusResponse {
    let retry_after = Some(prost_types::Duration { seconds, nanos: 0 });
    let goodbye = Some(Goodbye { reason: GoodbyeReason::AgeLimit.into(), retry_after });
    WatchGatewayStatusResponse { goodbye, ..Default::default() }
}

type Said = Result<WatchGatewayStatusResponse, Status>;
type Reply<T> = Result<tonic::Response<T>, Status>;

/// What one stream says, and whether it is silent then, instead of at its end.
struct Script {
    said: Vec<Said>,
    hangs: bool,
}

/// Plays one script per stream, and keeps what each stream asked to resume from.
#[derive(Default)]
struct Scripted {
    scripts: Mutex<VecDeque<Script>>,
    resumes: Arc<Mutex<Vec<Option<u64>>>>,
}

#[tonic::async_trait]
impl GatewayStatusService for Scripted {
    type WatchGatewayStatusStream = std::pin::Pin<Box<dyn Stream<Item = Said> + Send>>;

    async fn watch_gateway_status(
        &self,
        request: Request<WatchGatewayStatusRequest>,
    ) -> Reply<Self::WatchGatewayStatusStream> {
        self.resumes.lock().unwrap().push(request.into_inner().resume.map(|position| position.revision));
        let script = self.scripts.lock().unwrap().pop_front();
        let script = script.ok_or_else(|| Status::invalid_argument("no more"))?;
        let said = tokio_stream::iter(script.said);
        Ok(tonic::Response::new(match script.hangs {
            true => Box::pin(said.chain(tokio_stream::pending())),
            false => Box::pin(said),
        }))
    }

    async fn report_gateway_status(
        &self,
        _: Request<ReportGatewayStatusRequest>,
    ) -> Reply<ReportGatewayStatusResponse> {
        Err(Status::unimplemented(""))
    }

    async fn publish_gateway_status(
        &self,
        _: Request<tonic::Streaming<PublishGatewayStatusRequest>>,
    ) -> Reply<PublishGatewayStatusResponse> {
        Err(Status::unimplemented(""))
    }

    async fn get_gateway_status(
        &self,
        _: Request<GetGatewayStatusRequest>,
    ) -> Reply<GetGatewayStatusResponse> {
        Err(Status::unimplemented(""))
    }

    async fn list_gateway_statuses(
        &self,
        _: Request<ListGatewayStatusesRequest>,
    ) -> Reply<ListGatewayStatusesResponse> {
        Err(Status::unimplemented(""))
    }
}

/// What a reader made of a server.
struct Watched {
    /// What it told, in words.
    told: Vec<String>,
    resumes: Vec<Option<u64>>,
    took: Duration,
    failure: Failure,
}

/// Watches until the scripts are played.
async fn watch(scripts: impl IntoIterator<Item = Script>) -> Watched {
    let scripted = Scripted::default();
    scripted.scripts.lock().unwrap().extend(scripts);
    let resumes = Arc::clone(&scripted.resumes);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = ClientSettings {
        server: format!("http://{}", listener.local_addr().unwrap()),
        tls: crate::config::ClientTls::default(),
        namespace: Namespace::default(),
        namespace_given: false,
        json: true,
    };
    let server = Server::builder().add_service(GatewayStatusServiceServer::new(scripted));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

    let source = Gateways { server: String::new(), request: WatchGatewayStatusRequest::default() };
    let (events, mut told) = mpsc::channel(BATCHES);
    let start = Instant::now();
    let channel = client::channel(&settings).await.unwrap();
    let reading = Reader::new(source, &settings, events).run(channel);
    let showing = async {
        let mut lines = Vec::new();
        while let Some(event) = told.recv().await {
            lines.push(words(&event));
        }
        lines
    };
    let (failure, told) = tokio::join!(reading, showing);
    let resumes = resumes.lock().unwrap().clone();
    Watched { told, resumes, took: start.elapsed(), failure: failure.unwrap_err() }
}

fn words(event: &Event<GatewaySnapshot>) -> String {
    match event {
        Event::State { changes, revision, is_first } => {
            let changes = changes.iter().map(|change| match change {
                Change::New(name, item) => format!(" +{name}={}", item.text),
                Change::Changed(name, item) => format!(" ~{name}={}", item.text),
                Change::Gone(name) => format!(" -{name}"),
                Change::Touched(..) | Change::Allowed(_) => " ?".to_owned(),
            });
            format!("{}{revision}:{}", if *is_first { "first " } else { "" }, changes.collect::<String>())
        }
        Event::Cut { why, .. } => why.clone(),
        Event::Connecting => "connecting".to_owned(),
    }
}

fn ends(said: Vec<Said>) -> Script {
    Script { said, hangs: false }
}

#[tokio::test(start_paused = true)]
async fn goodbyes_and_cuts_are_resumed_until_the_request_is_wrong() {
    let busy = ErrorDetails::with_retry_info(Some(Duration::from_secs(30)));
    let busy = Status::with_error_details(Code::ResourceExhausted, "busy", busy);
    let mut reset = message(&[("a", "2")], &[], 2);
    reset.reset = true;
    let watched = watch([
        ends(vec![Ok(message(&[("a", "1")], &[], 0)), Err(Status::unavailable("cut early"))]),
        ends(vec![Ok(message(&[("a", "1")], &[], 0)), Ok(message(&[("b", "1")], &[], 5)), Ok(goodbye(7))]),
        ends(vec![Ok(message(&[("a", "2")], &[], 6)), Ok(message(&[("a", "3")], &[], 0))]),
        ends(vec![Err(busy)]),
        ends(vec![Ok(reset)]),
    ])
    .await;
    assert_eq!(watched.failure, Failure::Failed("no more (INVALID_ARGUMENT)".to_owned()));
    assert_eq!(watched.resumes, [None, None, Some(5), Some(6), Some(6), Some(2)]);
    let expected = [
        "cut early (UNAVAILABLE)",
        "connecting",
        "first 5: +a=1 +b=1",
        "the server ended the stream: GOODBYE_REASON_AGE_LIMIT",
        "connecting",
        "first 6: ~a=2",
        "the stream was cut",
        "connecting",
        "busy (RESOURCE_EXHAUSTED, retry in 30s)",
        "connecting",
        "first 2: -b",
        "the stream was cut",
        "connecting",
    ];
    // The reset says again what is known of a, which is no news of the gateway.
    let told: Vec<String> = watched.told.iter().map(|line| line.replace(" ?", "")).collect();
    assert_eq!(told, expected);
    // About 0.5 s, the server's 7 s, about 0.5 s, the server's 30 s, and about 0.5 s.
    let range = Duration::from_millis(38_100)..Duration::from_secs(39);
    assert!(range.contains(&watched.took), "{:?}", watched.took);
}

#[tokio::test(start_paused = true)]
async fn silence_is_a_cut() {
    let heartbeat = || Ok(message(&[], &[], 6));
    let silent = Script { said: vec![Ok(message(&[("a", "1")], &[], 5)), heartbeat()], hangs: true };
    let watched = watch([silent, ends(vec![heartbeat()])]).await;
    assert_eq!(watched.resumes, [None, Some(6), Some(6)]);
    let expected = [
        "first 5: +a=1",
        "6:",
        "nothing was heard for 45 s",
        "connecting",
        "first 6:",
        "the stream was cut",
        "connecting",
    ];
    assert_eq!(watched.told, expected);
    let range = Duration::from_millis(45_750)..Duration::from_millis(46_500);
    assert!(range.contains(&watched.took), "{:?}", watched.took);
}

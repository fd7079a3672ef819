//! `status watch`: a reader by the watch contract. It resumes where it was, and says only what changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::json;
use tokio::time;
use tonic::{Code, Status};

use super::{Failure, client, failure::describe, json, print};
use crate::{
    config::ClientSettings,
    proto::v1::{GatewaySnapshot, Position, WatchGatewayStatusRequest, WatchGatewayStatusResponse},
};

/// The first and the longest pause before watching again after a cut.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// One thing to tell.
#[derive(Debug, PartialEq)]
enum Change {
    /// A gateway is new or changed.
    Now(Box<GatewaySnapshot>),
    /// A gateway is gone.
    Gone(String),
}

/// What the reader knows.
#[derive(Debug, Default)]
struct View {
    known: BTreeMap<String, GatewaySnapshot>,
    /// Where to resume.
    position: Option<Position>,
    /// While a whole state comes in: what of it came. What is not in it at the end is gone.
    whole: Option<BTreeSet<String>>,
}

impl View {
    /// A stream starts. Without a position it starts with the whole state.
    fn begin(&mut self) -> Option<Position> {
        self.whole = self.position.is_none().then(BTreeSet::new);
        self.position.clone()
    }

    fn apply(&mut self, part: WatchGatewayStatusResponse) -> Vec<Change> {
        let mut changes = Vec::new();
        if part.reset {
            self.whole = Some(BTreeSet::new());
        }
        for snapshot in part.snapshots {
            let id = snapshot.gateway_id.clone();
            if let Some(whole) = &mut self.whole {
                whole.insert(id.clone());
            }
            if self.known.get(&id) != Some(&snapshot) {
                self.known.insert(id, snapshot.clone());
                changes.push(Change::Now(Box::new(snapshot)));
            }
        }
        for id in part.removed {
            if self.known.remove(&id).is_some() {
                changes.push(Change::Gone(id));
            }
        }
        if part.synced {
            if let Some(whole) = self.whole.take() {
                let gone: Vec<String> =
                    self.known.keys().filter(|id| !whole.contains(*id)).cloned().collect();
                for id in gone {
                    self.known.remove(&id);
                    changes.push(Change::Gone(id));
                }
            }
            if part.revision > 0 {
                self.position = Some(Position { epoch: part.epoch, revision: part.revision });
            }
        }
        changes
    }
}

/// How a stream ended that is worth another try.
#[derive(Debug)]
struct Ended {
    why: String,
    /// The server's wish.
    retry_after: Option<Duration>,
    /// Whether it came as far as the whole state.
    synced: bool,
}

pub(super) async fn run(ids: Vec<String>, settings: &ClientSettings) -> Result<(), Failure> {
    // A server that was never there is a wrong address; one that goes away comes back.
    let mut channel = Some(client::gateways(settings).await?);
    let watching = async {
        let mut view = View::default();
        let mut pause = FIRST_PAUSE;
        loop {
            let connected = match channel.take() {
                Some(client) => Ok(client),
                None => client::gateways(settings).await,
            };
            let ended = match connected {
                Ok(client) => stream(client, &ids, settings, &mut view).await?,
                Err(Failure::Failed(why)) => Ended { why, retry_after: None, synced: false },
                Err(other) => return Err(other),
            };
            pause = if ended.synced { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
            let wait = ended.retry_after.unwrap_or_else(|| pause.mul_f64(0.75 + fastrand::f64() / 2.0));
            print::warn(&format!("{}; watching again in {} ms", ended.why, wait.as_millis()));
            time::sleep(wait).await;
        }
    };
    tokio::select! {
        result = watching => result,
        signal = tokio::signal::ctrl_c() => signal.map_err(|e| Failure::Failed(format!("cannot wait for Ctrl-C: {e}"))),
    }
}

type Gateways =
    crate::proto::v1::gateway_status_service_client::GatewayStatusServiceClient<tonic::transport::Channel>;

/// One stream, to its end.
async fn stream(
    mut client: Gateways,
    ids: &[String],
    settings: &ClientSettings,
    view: &mut View,
) -> Result<Ended, Failure> {
    let message = WatchGatewayStatusRequest {
        namespace: settings.namespace.to_string(),
        gateway_ids: ids.to_vec(),
        resume: view.begin(),
    };
    let mut ended = Ended { why: "the stream was cut".to_owned(), retry_after: None, synced: false };
    let mut stream = match client.watch_gateway_status(message).await {
        Ok(reply) => reply.into_inner(),
        Err(status) => return retry(ended, &status),
    };
    loop {
        let mut part = match stream.message().await {
            Ok(Some(part)) => part,
            Ok(None) => return Ok(ended),
            Err(status) => return retry(ended, &status),
        };
        if let Some(goodbye) = part.goodbye.take() {
            ended.why = format!("the server ended the stream: {}", goodbye.reason().as_str_name());
            ended.retry_after = goodbye.retry_after.and_then(|d| d.try_into().ok());
        }
        ended.synced |= part.synced;
        for change in view.apply(part) {
            tell(&change, settings)?;
        }
    }
}

/// Whether an error is worth another try: not if the request itself is wrong.
fn retry(mut ended: Ended, status: &Status) -> Result<Ended, Failure> {
    match status.code() {
        Code::Unavailable
        | Code::Unknown
        | Code::Internal
        | Code::Cancelled
        | Code::Aborted
        | Code::DeadlineExceeded
        | Code::ResourceExhausted => {
            if ended.retry_after.is_none() {
                ended.why = describe(status);
            }
            Ok(ended)
        }
        _ => Err(Failure::call(status)),
    }
}

fn tell(change: &Change, settings: &ClientSettings) -> Result<(), Failure> {
    match change {
        Change::Now(snapshot) if settings.json => {
            print::json_line(&json!({"snapshot": json::snapshot(snapshot)}))
        }
        Change::Gone(id) if settings.json => print::json_line(&json!({"removed": id})),
        change => print::line(&told(change)),
    }
}

fn told(change: &Change) -> String {
    match change {
        Change::Gone(id) => format!("{} is gone", print::cell(id)),
        Change::Now(snapshot) => {
            let at = print::time(snapshot.received_at.as_ref());
            let stale = if snapshot.stale { "stale: " } else { "" };
            let text = crate::core::name::clean(&snapshot.text, usize::MAX);
            format!("{} {} {stale}{text}", print::cell(&at), print::cell(&snapshot.gateway_id))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::VecDeque,
        sync::{Arc, Mutex},
    };

    use tokio::{net::TcpListener, time::Instant};
    use tokio_stream::{Iter, wrappers::TcpListenerStream};
    use tonic::{Request, transport::Server};

    use super::*;
    use crate::{
        core::name::Namespace,
        proto::v1::{
            GetGatewayStatusRequest, GetGatewayStatusResponse, Goodbye, GoodbyeReason,
            ListGatewayStatusesRequest, ListGatewayStatusesResponse, PublishGatewayStatusRequest,
            PublishGatewayStatusResponse, ReportGatewayStatusRequest, ReportGatewayStatusResponse,
            gateway_status_service_server::{GatewayStatusService, GatewayStatusServiceServer},
        },
    };

    fn snapshot(id: &str, text: &str) -> GatewaySnapshot {
        GatewaySnapshot { gateway_id: id.to_owned(), text: text.to_owned(), ..Default::default() }
    }

    fn part(snapshots: &[(&str, &str)], removed: &[&str], revision: u64) -> WatchGatewayStatusResponse {
        WatchGatewayStatusResponse {
            epoch: "e".to_owned(),
            revision,
            snapshots: snapshots.iter().map(|(id, text)| snapshot(id, text)).collect(),
            removed: removed.iter().map(|id| (*id).to_owned()).collect(),
            synced: revision > 0,
            ..Default::default()
        }
    }

    fn told_of(view: &mut View, part: WatchGatewayStatusResponse) -> Vec<String> {
        view.apply(part).iter().map(told).collect()
    }

    #[test]
    fn a_view_tells_changes_only() {
        let mut view = View::default();
        assert_eq!(view.begin(), None);
        assert_eq!(told_of(&mut view, part(&[("a", "1"), ("b", "1")], &[], 0)), ["- a 1", "- b 1"]);
        assert_eq!(view.position, None, "not synced yet");
        assert_eq!(told_of(&mut view, part(&[], &[], 5)), Vec::<String>::new());
        assert_eq!(told_of(&mut view, part(&[("a", "2")], &["b", "never"], 6)), ["- a 2", "b is gone"]);
        assert_eq!(told_of(&mut view, part(&[], &[], 7)), Vec::<String>::new(), "a heartbeat");

        let resume = view.begin().unwrap();
        assert_eq!((resume.epoch.as_str(), resume.revision), ("e", 7));
        assert_eq!(told_of(&mut view, part(&[("c", "1")], &[], 8)), ["- c 1"], "resumed: a stays");

        view.begin();
        let mut reset = part(&[("c", "1")], &[], 0);
        reset.reset = true;
        assert_eq!(told_of(&mut view, reset), Vec::<String>::new(), "c is known");
        assert_eq!(told_of(&mut view, part(&[("d", "1")], &[], 9)), ["- d 1", "a is gone"]);
    }

    #[test]
    fn a_cut_before_the_whole_state_starts_over() {
        let mut view = View::default();
        view.begin();
        told_of(&mut view, part(&[("a", "1"), ("b", "1")], &[], 0));
        assert_eq!(view.begin(), None);
        assert_eq!(told_of(&mut view, part(&[("a", "1")], &[], 3)), ["b is gone"]);
    }

    #[test]
    fn a_wrong_request_is_not_tried_again() {
        let ended = || Ended { why: String::new(), retry_after: None, synced: false };
        assert!(retry(ended(), &Status::unavailable("x")).is_ok());
        assert!(retry(ended(), &Status::invalid_argument("x")).is_err());
        assert!(retry(ended(), &Status::unimplemented("x")).is_err());
    }

    #[test]
    fn lines() {
        let mut stale = snapshot("a\u{1b}", "x\u{7}");
        stale.stale = true;
        stale.received_at = Some(prost_types::Timestamp { seconds: 0, nanos: 0 });
        assert_eq!(told(&Change::Now(Box::new(stale))), "1970-01-01T00:00:00Z a stale: x");
    }

    /// Plays one script per stream, and keeps what each stream asked to resume from.
    #[derive(Default)]
    struct Scripted {
        scripts: Mutex<VecDeque<Vec<Result<WatchGatewayStatusResponse, Status>>>>,
        resumes: Arc<Mutex<Vec<Option<Position>>>>,
    }

    type Reply<T> = Result<tonic::Response<T>, Status>;

    #[tonic::async_trait]
    impl GatewayStatusService for Scripted {
        type WatchGatewayStatusStream = Iter<std::vec::IntoIter<Result<WatchGatewayStatusResponse, Status>>>;

        async fn watch_gateway_status(
            &self,
            request: Request<WatchGatewayStatusRequest>,
        ) -> Reply<Self::WatchGatewayStatusStream> {
            self.resumes.lock().unwrap().push(request.into_inner().resume);
            let script = self.scripts.lock().unwrap().pop_front();
            let script = script.ok_or_else(|| Status::invalid_argument("no more"))?;
            Ok(tonic::Response::new(tokio_stream::iter(script)))
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

    #[tokio::test(start_paused = true)]
    async fn goodbyes_and_cuts_are_resumed_until_the_request_is_wrong() {
        let goodbye = WatchGatewayStatusResponse {
            goodbye: Some(Goodbye {
                reason: GoodbyeReason::AgeLimit.into(),
                retry_after: Some(prost_types::Duration { seconds: 7, nanos: 0 }),
            }),
            ..Default::default()
        };
        let scripted = Scripted::default();
        scripted.scripts.lock().unwrap().extend([
            vec![Ok(part(&[("a", "1")], &[], 0)), Err(Status::unavailable("cut early"))],
            vec![Ok(part(&[("a", "1")], &[], 0)), Ok(part(&[], &[], 5)), Ok(goodbye)],
            vec![Ok(part(&[("a", "2")], &[], 6))],
        ]);
        let resumes = Arc::clone(&scripted.resumes);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let settings = ClientSettings {
            server: format!("http://{}", listener.local_addr().unwrap()),
            namespace: Namespace::default(),
            namespace_given: false,
            json: true,
        };
        let server = Server::builder().add_service(GatewayStatusServiceServer::new(scripted));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

        let start = Instant::now();
        let failure = run(vec![], &settings).await.unwrap_err();
        assert_eq!(failure, Failure::Failed("no more (INVALID_ARGUMENT)".to_owned()));
        let resumes: Vec<_> =
            resumes.lock().unwrap().iter().map(|r| r.as_ref().map(|p| p.revision)).collect();
        assert_eq!(resumes, [None, None, Some(5), Some(6)]);
        // A pause of about a second, the server's 7 s, and one of about half a second.
        let took = start.elapsed();
        assert!((Duration::from_secs(8)..Duration::from_secs(9)).contains(&took), "{took:?}");
    }
}

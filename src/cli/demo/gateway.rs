//! The last chapter: a gateway tells its status on a stream, a watcher sees it, and a model reads it.

use std::time::Duration;

use tokio::{
    sync::mpsc,
    time::{self, timeout, timeout_at},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Response, Status, Streaming};

use super::{
    super::{Failure, failure::describe},
    api::{Api, PATIENCE, unmet, until},
    narration::Narrator,
    stage::Stage,
    targets::{Mode, Target},
};
use crate::proto::v1::{
    DegradedOwner, GatewaySnapshot, GatewayStatus, PublishGatewayStatusRequest, PublishGatewayStatusResponse,
    WatchGatewayStatusRequest, WatchGatewayStatusResponse, publish_gateway_status_request::Report,
};

/// The gateway's id.
const GATEWAY: &str = "support-bot";
/// What breaks on the gateway's side, and why.
const CHANNEL: (&str, &str) = ("channel:telegram", "credential_unavailable");
/// What breaks in the registry, as the gateway's status shows it.
const CAPABILITY: &str = "capability:translate_text";
/// Reports on the way.
const QUEUE: usize = 4;
/// How often the gateway that goes on after the story reports.
const EVERY: Duration = Duration::from_secs(3);

/// Tells the chapter; `count` tools are listed before and after it.
pub(super) async fn chapter(stage: &Stage, narrator: &Narrator, count: usize) -> Result<(), Failure> {
    narrator.chapter(
        "6. A gateway tells how it is",
        "The process that agents run in publishes its status on a stream; WatchGatewayStatus shows each change. An agent asks \
         through the tool gateway_status, so that it can warn its user instead of under-delivering in silence.",
    )?;
    let mut watch = Watch::open(&stage.api, narrator).await?;
    let gateway = Publisher::start(&stage.api);

    gateway.publish(GatewayStatus::default()).await?;
    watch.until("the gateway is idle", |s| s.run == "idle").await?;
    gateway.publish(busy()).await?;
    watch.until("the gateway is busy", |s| s.run == "busy").await?;
    gateway.publish(degraded()).await?;
    watch.until("the gateway's channel is degraded", |s| is_degraded(s, CHANNEL.0)).await?;

    stage.targets.set(Target::Language, Mode::SaysNo);
    narrator.event(
        "The language service says NOT_SERVING: two tools leave the list, and the status shows it too.",
    )?;
    watch.until("a hidden tool is a degraded capability", |s| is_degraded(s, CAPABILITY)).await?;
    let text = until("the text of gateway_status names what is degraded", async || {
        let text = stage.api.gateway_text().await?;
        if text.contains(CHANNEL.1) && text.contains(CAPABILITY) { Ok(text) } else { Err(text) }
    })
    .await?;
    narrator.explain("What the tool gateway_status hands to the model:")?;
    narrator.verbatim(&text)?;

    stage.targets.set(Target::Language, Mode::Works);
    stage.all_listed(count).await?;
    narrator.event("The language service is well again.")?;
    let counted = gateway.end().await?;
    narrator.event(&format!("The gateway ended its stream; {counted} reports counted."))?;
    watch.until_gone().await?;
    let text = until("the text says that no gateway is live", async || {
        let text = stage.api.gateway_text().await?;
        if text.starts_with("No active gateway") { Ok(text) } else { Err(text) }
    })
    .await?;
    narrator.explain("And the model reads:")?;
    narrator.verbatim(&text)
}

/// Goes on as a gateway whose load changes, for those who watch after the story. Never ends.
pub(super) async fn go_on(api: &Api) {
    let mut timer = time::interval(EVERY);
    loop {
        let gateway = Publisher::start(api);
        for turn in 0_i64.. {
            timer.tick().await;
            let queued = turn % 4;
            let run = if queued == 0 { "idle" } else { "busy" };
            let status = GatewayStatus { run: run.to_owned(), queued, ..busy() };
            if gateway.publish(status).await.is_err() {
                break;
            }
        }
    }
}

/// A gateway's stream. Dropping it cancels the stream, and the gateway is gone.
struct Publisher {
    reports: mpsc::Sender<PublishGatewayStatusRequest>,
    call: AbortOnDropHandle<Result<Response<PublishGatewayStatusResponse>, Status>>,
}

impl Publisher {
    fn start(api: &Api) -> Self {
        let (reports, queue) = mpsc::channel(QUEUE);
        let mut gateways = api.gateways.clone();
        // The call is answered when the stream has ended.
        let call =
            tokio::spawn(async move { gateways.publish_gateway_status(ReceiverStream::new(queue)).await });
        Self { reports, call: AbortOnDropHandle::new(call) }
    }

    async fn publish(&self, status: GatewayStatus) -> Result<(), Failure> {
        let report = PublishGatewayStatusRequest {
            gateway_id: GATEWAY.to_owned(),
            report: Some(Report::Status(status)),
            ..Default::default()
        };
        let sent = self.reports.send(report).await;
        sent.map_err(|_| Failure::Failed("the server ended the gateway's stream".to_owned()))
    }

    /// Ends the stream as a gateway does that shuts down. How many reports counted.
    async fn end(self) -> Result<u64, Failure> {
        let expected = "the server answers the gateway's stream";
        drop(self.reports);
        match timeout(PATIENCE, self.call).await {
            Ok(Ok(Ok(reply))) => Ok(reply.into_inner().accepted),
            Ok(Ok(Err(status))) => Err(unmet(expected, &describe(&status))),
            Ok(Err(panic)) => Err(unmet(expected, &panic.to_string())),
            Err(_) => Err(unmet(expected, "no answer came")),
        }
    }
}

/// A watch that tells what it sees.
struct Watch<'a> {
    messages: Streaming<WatchGatewayStatusResponse>,
    narrator: &'a Narrator,
}

impl<'a> Watch<'a> {
    /// Opens it; the first state is that there is no gateway.
    async fn open(api: &Api, narrator: &'a Narrator) -> Result<Self, Failure> {
        let request = WatchGatewayStatusRequest::default();
        let reply = api.gateways.clone().watch_gateway_status(request).await;
        let messages =
            reply.map_err(|status| unmet("a watch of gateways opens", &describe(&status)))?.into_inner();
        let mut watch = Self { messages, narrator };
        watch
            .read("the watch tells that there is no gateway", |m| m.synced && m.snapshots.is_empty())
            .await?;
        narrator.event("watch: synced, no gateway yet")?;
        Ok(watch)
    }

    /// Tells each new state up to the one that is waited for.
    async fn until(&mut self, expected: &str, good: impl Fn(&GatewayStatus) -> bool) -> Result<(), Failure> {
        let narrator = self.narrator;
        self.read(expected, |message| message.snapshots.iter().any(|s| s.status.as_ref().is_some_and(&good)))
            .await?
            .iter()
            .flat_map(|message| &message.snapshots)
            .try_for_each(|snapshot| narrator.event(&format!("watch: {}", line(snapshot))))
    }

    async fn until_gone(&mut self) -> Result<(), Failure> {
        self.read("the gateway is gone", |message| message.removed.iter().any(|id| id == GATEWAY)).await?;
        self.narrator.event(&format!("watch: {GATEWAY} is gone"))
    }

    /// Reads up to the message that is waited for; all that came.
    async fn read(
        &mut self,
        expected: &str,
        good: impl Fn(&WatchGatewayStatusResponse) -> bool,
    ) -> Result<Vec<WatchGatewayStatusResponse>, Failure> {
        let deadline = time::Instant::now() + PATIENCE;
        let mut read = Vec::new();
        loop {
            let message = match timeout_at(deadline, self.messages.message()).await {
                Ok(Ok(Some(message))) => message,
                Ok(Ok(None)) => return Err(unmet(expected, "the watch ended")),
                Ok(Err(status)) => return Err(unmet(expected, &describe(&status))),
                Err(_) => {
                    let last = read.last().map_or_else(|| "no message came".to_owned(), |m| format!("{m:?}"));
                    return Err(unmet(expected, &last));
                }
            };
            let done = good(&message);
            read.push(message);
            if done {
                return Ok(read);
            }
        }
    }
}

fn busy() -> GatewayStatus {
    GatewayStatus {
        run: "busy".to_owned(),
        queued: 3,
        active_sessions: 7,
        sessions_by_channel: [("slack".to_owned(), 2), ("telegram".to_owned(), 5)].into(),
        delivery_json: r#"{"outbox_depth": 4, "dlq": 0}"#.to_owned(),
        ..Default::default()
    }
}

fn degraded() -> GatewayStatus {
    let (owner, reason) = CHANNEL;
    let degraded = vec![DegradedOwner { owner: owner.to_owned(), reason: reason.to_owned() }];
    GatewayStatus { degraded, ..busy() }
}

fn is_degraded(status: &GatewayStatus, owner: &str) -> bool {
    status.degraded.iter().any(|entry| entry.owner == owner)
}

/// A snapshot in one line.
fn line(snapshot: &GatewaySnapshot) -> String {
    let status = snapshot.status.clone().unwrap_or_default();
    let degraded: Vec<_> =
        status.degraded.iter().map(|entry| format!("{} ({})", entry.owner, entry.reason)).collect();
    format!(
        "{} is {}, {} queued, {} sessions, degraded: {}",
        snapshot.gateway_id,
        status.run,
        status.queued,
        status.active_sessions,
        if degraded.is_empty() { "nothing".to_owned() } else { degraded.join(", ") }
    )
}

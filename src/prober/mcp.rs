//! The `mcp` kind: initialize and ping over MCP's Streamable HTTP, and no session left behind.
//!
//! The exchange is a task of its own, which outlives its run for a moment: a session that the server opened has to be ended
//! although the run was cancelled or out of time, or each run would leave one more in a server that is alive.

mod message;
mod wire;

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::{Instant, timeout},
};

use self::{
    message::{Events, Reply, RpcError, find},
    wire::{Target, Wire},
};
use super::{
    Failure, Progress, Stage, USER_AGENT, carry,
    dial::{Alpn, Dialer},
    http::{MAX_BODY, broken, host, judge, read},
};
use crate::core::{
    name::quote,
    probe::{ErrorClass, HttpProbe, McpProbe, Outcome, Tls, Why},
};

/// Bytes of one answer, or of the events before it, that are read. An answer to initialize carries the server's
/// instructions and may carry icons; all 1,024 runs in flight together hold 128 MiB at the worst.
pub const MAX_ANSWER: usize = 128 * 1024;
/// How long a run that is over waits for the server: for the session that it may still be given, and again to end it.
pub const LINGER: Duration = Duration::from_secs(2);
/// Sessions that are being ended at once. At 5 ms each they are enough for 50,000 runs a second.
const MAX_GOODBYES: usize = 256;
/// Runs out of time that wait for their session at once. Less than the above: these are servers that do not answer.
const MAX_LATE: usize = 64;
/// How long an event stream may stay open after its answer without costing its connection.
const STREAM_END: Duration = Duration::from_millis(100);

/// The newest protocol version with a handshake.
const OFFERED_VERSION: &str = "2025-11-25";
/// All of them: a server picks one.
const HANDSHAKE_VERSIONS: [&str; 4] = [OFFERED_VERSION, "2025-06-18", "2025-03-26", "2024-11-05"];
/// The version that has no handshake, no session and no ping.
const STATELESS_VERSION: &str = "2026-07-28";

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const MCP_METHOD: HeaderName = HeaderName::from_static("mcp-method");

/// Ids of our requests.
const INITIALIZE: u8 = 1;
const PING: u8 = 2;

/// Exchanges that are under way, and what those may do whose run is over. Dropping it ends them all.
#[derive(Debug)]
pub(super) struct Exchanges {
    tasks: Mutex<JoinSet<()>>,
    goodbyes: Arc<Semaphore>,
    late: Arc<Semaphore>,
}

impl Default for Exchanges {
    fn default() -> Self {
        Self {
            tasks: Mutex::default(),
            goodbyes: Arc::new(Semaphore::new(MAX_GOODBYES)),
            late: Arc::new(Semaphore::new(MAX_LATE)),
        }
    }
}

/// What an exchange tells its run.
enum Said {
    Now(Stage),
    Ended(Result<Outcome, Failure>),
}

pub(super) async fn run(
    dialer: &Dialer,
    exchanges: &Exchanges,
    probe: &McpProbe,
    progress: &mut Progress,
) -> Result<Outcome, Failure> {
    let McpProbe { url, headers, expected_statuses, tls } = probe;
    let usual = Tls::default();
    let tls = url.https.then(|| tls.as_ref().unwrap_or(&usual));
    let audience = carry::audience(&url.endpoint, url.https, tls);
    let headers = carry::headers(dialer.rules(), headers, &audience, progress).await?;
    let tls = match tls {
        None => None,
        Some(tls) => {
            let name = tls.server_name.as_ref().unwrap_or(&url.endpoint.host).clone();
            Some((name, dialer.config(&url.endpoint, tls, Alpn::Http1).await?))
        }
    };
    let tcp = dialer.tcp(&url.endpoint, progress).await?;
    let address = tcp
        .peer_addr()
        .map_err(|e| Failure::new(ErrorClass::Connect, format!("the connection was lost at once: {e}")))?;
    let judged = HttpProbe { expected_statuses: expected_statuses.clone(), ..HttpProbe::get(url.clone()) };
    let target = Target { address, tls, deadline: progress.deadline };
    let wire = target.speak(tcp, progress).await?;
    let exchange = Exchange { target, judged, headers, wire: Some(wire), session: None, version: None };
    progress.stage = Stage::Initializing;
    let (say, mut said) = mpsc::channel(2);
    let task = exchange.run(say, Arc::clone(&exchanges.goodbyes), Arc::clone(&exchanges.late));
    {
        let mut tasks = exchanges.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
    while let Some(said) = said.recv().await {
        match said {
            Said::Now(stage) => progress.stage = stage,
            Said::Ended(outcome) => return outcome,
        }
    }
    Err(Failure::new(ErrorClass::Protocol, "the exchange broke off"))
}

/// One exchange with one server.
struct Exchange {
    target: Target,
    /// The URL, and how a status is judged: as the `http` kind does.
    judged: HttpProbe,
    /// The owner's headers.
    headers: HeaderMap,
    /// An idle connection.
    wire: Option<Wire>,
    session: Option<HeaderValue>,
    /// None until it is agreed on.
    version: Option<&'static str>,
}

impl Exchange {
    /// Everything, from initialize to the end of the session. The receiver's end is the end of the run.
    async fn run(mut self, say: mpsc::Sender<Said>, goodbyes: Arc<Semaphore>, late: Arc<Semaphore>) {
        if say.is_closed() {
            return;
        }
        let opened = {
            let message = initialize();
            let mut opening = pin!(self.post(&message, &[]));
            tokio::select! {
                biased;
                opened = &mut opening => opened,
                () = say.closed() => {
                    // The request is out: the server may yet open a session, and nobody else knows its name.
                    let Ok(_permit) = late.try_acquire() else { return };
                    let Ok(opened) = timeout(LINGER, opening).await else { return };
                    opened
                }
            }
        };
        let outcome = match opened {
            Ok((wire, answer)) => {
                self.session = answer.headers().get(&SESSION_ID).cloned();
                tokio::select! {
                    biased;
                    () = say.closed() => None,
                    outcome = self.converse(wire, answer, &say) => Some(outcome),
                }
            }
            Err(failure) => Some(Err(failure)),
        };
        if let Some(outcome) = outcome {
            // Nobody hears it if the run has just ended.
            let _unheard = say.send(Said::Ended(outcome)).await;
        }
        drop(say);
        if self.session.is_some()
            && let Ok(_permit) = goodbyes.try_acquire()
        {
            // 405 is a server that lets nobody end a session; whatever else is answered, there is nobody to tell.
            let _ended = timeout(LINGER, self.send(Method::DELETE, Bytes::new(), &[])).await;
        }
    }

    /// What follows initialize.
    async fn converse(
        &mut self,
        wire: Wire,
        answer: Response<Incoming>,
        say: &mpsc::Sender<Said>,
    ) -> Result<Outcome, Failure> {
        let result = match self.reply("initialize", INITIALIZE, wire, answer).await? {
            Answer::Reply(Reply::Result(result)) => result,
            Answer::Reply(Reply::Error(error)) => return self.refused(&error).await,
            Answer::Outcome(outcome) => return Ok(outcome),
        };
        self.version = Some(version(&result)?);
        let _ = say.send(Said::Now(Stage::Pinging)).await;

        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let (wire, answer) = self.post(&initialized, &[]).await?;
        if answer.status().is_success() {
            self.keep(wire, answer.into_body()).await;
        } else if let Answer::Outcome(outcome) =
            self.judge("notifications/initialized", 0, wire, answer).await
        {
            return Ok(outcome);
        }
        let ping = json!({"jsonrpc": "2.0", "id": PING, "method": "ping"});
        let (wire, answer) = self.post(&ping, &[]).await?;
        Ok(match self.reply("ping", PING, wire, answer).await? {
            Answer::Reply(Reply::Result(_)) => Outcome::Pass,
            // Servers without a ping are many, and this is a sign of life as well.
            Answer::Reply(Reply::Error(error)) if error.no_such_method() => Outcome::Pass,
            Answer::Reply(Reply::Error(error)) => {
                Outcome::error(ErrorClass::Protocol, &format!("ping: {}", error.text()))
            }
            Answer::Outcome(outcome) => outcome,
        })
    }

    /// initialize was refused: a no, unless the server does without it.
    async fn refused(&mut self, error: &RpcError) -> Result<Outcome, Failure> {
        let no = Outcome::no("MCP_ERROR", &format!("initialize: {}", error.text()));
        if !error.hints_at_stateless() {
            return Ok(no);
        }
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": STATELESS_VERSION,
            "io.modelcontextprotocol/clientInfo": client_info(),
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let method = "server/discover";
        let discover = json!({"jsonrpc": "2.0", "id": PING, "method": method, "params": {"_meta": meta}});
        self.version = Some(STATELESS_VERSION);
        let (wire, answer) = self.post(&discover, &[(MCP_METHOD, HeaderValue::from_static(method))]).await?;
        Ok(match self.reply(method, PING, wire, answer).await? {
            Answer::Reply(Reply::Result(_)) | Answer::Outcome(Outcome::Pass) => Outcome::Pass,
            Answer::Reply(Reply::Error(_)) | Answer::Outcome(_) => no,
        })
    }

    async fn post(
        &mut self,
        message: &Value,
        headers: &[(HeaderName, HeaderValue)],
    ) -> Result<(Wire, Response<Incoming>), Failure> {
        self.send(Method::POST, message.to_string().into(), headers).await
    }

    /// Sends a request over the idle connection, else over a new one; the connection and the answer's head.
    async fn send(
        &mut self,
        method: Method,
        body: Bytes,
        headers: &[(HeaderName, HeaderValue)],
    ) -> Result<(Wire, Response<Incoming>), Failure> {
        let request = self.request(method, body, headers)?;
        if let Some(mut wire) = self.wire.take() {
            let used = wire.used;
            match wire.request(request.clone()).await {
                Ok(answer) => return Ok((wire, answer)),
                // A server may close an idle connection whenever it likes; that says nothing about it.
                Err(error) if used && !error.is_parse() => {}
                Err(error) => return Err(broken(&error)),
            }
        }
        let mut wire = self.target.connect().await?;
        let answer = wire.request(request).await.map_err(|e| broken(&e))?;
        Ok((wire, answer))
    }

    fn request(
        &self,
        method: Method,
        body: Bytes,
        headers: &[(HeaderName, HeaderValue)],
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let url = &self.judged.url;
        let mut request = Request::builder()
            .method(method)
            .uri(url.path_and_query.as_str())
            .header(header::HOST, host(url))
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::ACCEPT, "application/json, text/event-stream");
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some(version) = self.version {
            request = request.header(PROTOCOL_VERSION, version);
        }
        if let Some(session) = &self.session {
            request = request.header(SESSION_ID, session);
        }
        let mut request = request
            .body(Full::new(body))
            .map_err(|e| Failure::new(ErrorClass::Protocol, format!("the url can't be requested: {e}")))?;
        // None of them is one of those above.
        request.headers_mut().extend(self.headers.clone());
        Ok(request)
    }

    /// Reads the answer to request `id`, and keeps the connection where it can be used again.
    async fn reply(
        &mut self,
        what: &str,
        id: u8,
        mut wire: Wire,
        answer: Response<Incoming>,
    ) -> Result<Answer, Failure> {
        let status = answer.status();
        if !status.is_success() {
            return Ok(self.judge(what, id, wire, answer).await);
        }
        let kind = media_type(&answer);
        if kind == "text/event-stream" {
            return self.event(what, id, wire, answer.into_body()).await.map(Answer::Reply);
        }
        if !kind.is_empty() && kind != "application/json" && !kind.ends_with("+json") {
            return Err(wrong(what, &format!("an answer of type {} is not MCP", quote(&kind))));
        }
        let body = wire.drive(read(answer.into_body(), status.as_u16(), MAX_ANSWER)).await?;
        self.wire = Some(wire);
        match find(&body, id) {
            Ok(Some(reply)) => Ok(Answer::Reply(reply)),
            Ok(None) => Err(wrong(what, "the answer is to no request of ours")),
            Err(why) => Err(wrong(what, &why)),
        }
    }

    /// The answer in a stream of events, among whatever else the server sends.
    async fn event(
        &mut self,
        what: &str,
        id: u8,
        mut wire: Wire,
        mut body: Incoming,
    ) -> Result<Reply, Failure> {
        let mut events = Events::default();
        let mut bytes = 0;
        loop {
            let Some(frame) = wire.drive(body.frame()).await else {
                return Err(wrong(what, "the event stream ended without the answer"));
            };
            let Ok(data) = frame.map_err(|e| broken(&e))?.into_data() else { continue };
            bytes += data.len();
            if bytes > MAX_ANSWER {
                let text = format!("{what}: more than {MAX_ANSWER} bytes of events before the answer");
                return Err(Failure::new(ErrorClass::Oversize, text));
            }
            for event in events.push(&data) {
                // An empty one only tells where to resume.
                if event.trim_ascii().is_empty() {
                    continue;
                }
                if let Some(reply) = find(&event, id).map_err(|why| wrong(what, &why))? {
                    self.keep(wire, body).await;
                    return Ok(reply);
                }
            }
        }
    }

    /// Keeps the connection if its answer ends now.
    async fn keep(&mut self, mut wire: Wire, body: Incoming) {
        let ended = timeout(STREAM_END, wire.drive(read(body, 200, MAX_ANSWER))).await;
        if matches!(ended, Ok(Ok(_))) {
            self.wire = Some(wire);
        }
    }

    /// What a status that is no success says, with what can be had of its body in half of the time that is left.
    async fn judge(&mut self, what: &str, id: u8, mut wire: Wire, answer: Response<Incoming>) -> Answer {
        let status = answer.status().as_u16();
        let half = self.target.deadline.saturating_duration_since(Instant::now()) / 2;
        let read = timeout(half, wire.drive(read(answer.into_body(), status, MAX_BODY))).await;
        let body = match read {
            Ok(Ok(body)) => {
                self.wire = Some(wire);
                body
            }
            // The status says enough.
            _ => Vec::new(),
        };
        let outcome = judge(status, &body, &self.judged);
        if let Ok(Some(Reply::Error(error))) = find(&body, id) {
            let sought = id == INITIALIZE || (error.ours && error.no_such_method());
            let said = match &outcome {
                Outcome::No(why) => why.reason == "HTTP_STATUS",
                // A proxy's 404 does not carry our id.
                Outcome::Error(..) => status == 404 && error.ours,
                Outcome::Pass => false,
            };
            if sought && said {
                return Answer::Reply(Reply::Error(error));
            }
        }
        let named = |why: &Why| Why::new(why.reason.clone(), &format!("{what}: {}", why.message));
        Answer::Outcome(match &outcome {
            Outcome::Pass => Outcome::Pass,
            Outcome::No(why) => Outcome::No(named(why)),
            Outcome::Error(class, why) => Outcome::Error(*class, named(why)),
        })
    }
}

/// What came for a request.
enum Answer {
    /// The server's own answer.
    Reply(Reply),
    /// A status that settles the run.
    Outcome(Outcome),
}

fn initialize() -> Value {
    let params = json!({"protocolVersion": OFFERED_VERSION, "capabilities": {}, "clientInfo": client_info()});
    json!({"jsonrpc": "2.0", "id": INITIALIZE, "method": "initialize", "params": params})
}

fn client_info() -> Value {
    json!({"name": "toolpulse-probe", "version": env!("CARGO_PKG_VERSION")})
}

/// The version that the server has picked.
fn version(result: &str) -> Result<&'static str, Failure> {
    #[derive(Deserialize)]
    struct Initialized<'a> {
        #[serde(borrow, rename = "protocolVersion")]
        version: std::borrow::Cow<'a, str>,
    }
    let picked = serde_json::from_str::<Initialized<'_>>(result)
        .map_err(|e| wrong("initialize", &format!("the result names no protocolVersion: {e}")))?
        .version;
    HANDSHAKE_VERSIONS.into_iter().find(|known| *known == picked).ok_or_else(|| {
        let known = HANDSHAKE_VERSIONS.join(", ");
        wrong("initialize", &format!("protocol version {} is none of {known}", quote(&picked)))
    })
}

/// The type of an answer, in lower case and without parameters.
fn media_type(answer: &Response<Incoming>) -> String {
    let given = answer.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn wrong(what: &str, why: &str) -> Failure {
    Failure::new(ErrorClass::Protocol, format!("{what}: {why}"))
}

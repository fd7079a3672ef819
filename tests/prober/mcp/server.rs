//! An MCP server that counts its sessions and can be told to misbehave.

use std::{
    collections::{BTreeSet, HashMap},
    convert::Infallible,
    future::pending,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{ConnectInfo, State},
    http::{HeaderMap, Method, StatusCode},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::Notify,
    time::{sleep, timeout},
};
use tokio_stream::StreamExt;

use super::TIMEOUT;

/// What a request asks for: the method of its message, or `DELETE`.
type Script = HashMap<&'static str, Box<dyn Fn(u64) -> Response + Send + Sync>>;

/// An MCP server.
pub(super) struct Mcp {
    /// The version that it picks.
    version: &'static str,
    sessions: bool,
    events: bool,
    /// Answers that take the place of its own. They get the request's id.
    script: Script,
    pub(super) seen: Mutex<Seen>,
    ended: Notify,
}

#[derive(Default)]
pub(super) struct Seen {
    pub(super) methods: Vec<String>,
    pub(super) connections: BTreeSet<SocketAddr>,
    opened: usize,
    open: BTreeSet<String>,
}

impl Mcp {
    pub(super) fn new(version: &'static str, sessions: bool, events: bool) -> Self {
        let (script, seen) = (Script::new(), Mutex::default());
        Self { version, sessions, events, script, seen, ended: Notify::new() }
    }

    pub(super) fn answers(
        mut self,
        method: &'static str,
        answer: impl Fn(u64) -> Response + Send + Sync + 'static,
    ) -> Self {
        self.script.insert(method, Box::new(answer));
        self
    }

    pub(super) async fn start(self) -> (SocketAddr, Arc<Self>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mcp = Arc::new(self);
        let router = Router::new().fallback(serve).with_state(Arc::clone(&mcp));
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, service).await });
        (address, mcp)
    }

    pub(super) fn methods(&self) -> Vec<String> {
        self.seen.lock().unwrap().methods.clone()
    }

    /// Waits until every session is ended; how many there were.
    pub(super) async fn all_ended(&self) -> usize {
        loop {
            let ended = self.ended.notified();
            let (opened, open) = {
                let seen = self.seen.lock().unwrap();
                (seen.opened, seen.open.len())
            };
            if open == 0 {
                return opened;
            }
            timeout(2 * TIMEOUT, ended)
                .await
                .unwrap_or_else(|_| panic!("{open} of {opened} sessions are left"));
        }
    }

    /// The server's own answer; panics of it are the test's.
    fn answer(&self, method: &str, id: u64, headers: &HeaderMap) -> Response {
        let header = |name: &str| headers.get(name).map(|v| v.to_str().unwrap());
        let mut seen = self.seen.lock().unwrap();
        if method == "initialize" {
            if header("mcp-session-id").is_some() || header("mcp-protocol-version").is_some() {
                return StatusCode::BAD_REQUEST.into_response();
            }
            let result = json!({
                "protocolVersion": self.version,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "t", "version": "1"},
            });
            let mut answer = self.message(json!({"jsonrpc": "2.0", "id": id, "result": result}));
            if self.sessions {
                seen.opened += 1;
                let session = format!("session-{}", seen.opened);
                answer.headers_mut().insert("mcp-session-id", session.parse().unwrap());
                seen.open.insert(session);
            }
            return answer;
        }
        let known = header("mcp-session-id").is_some_and(|session| seen.open.contains(session));
        if known != self.sessions {
            return StatusCode::NOT_FOUND.into_response();
        }
        if method == "DELETE" {
            seen.open.remove(header("mcp-session-id").unwrap());
            self.ended.notify_waiters();
            return StatusCode::OK.into_response();
        }
        if header("mcp-protocol-version") != Some(self.version) {
            return StatusCode::BAD_REQUEST.into_response();
        }
        match method {
            "ping" => self.message(json!({"jsonrpc": "2.0", "id": id, "result": {}})),
            "notifications/initialized" => StatusCode::ACCEPTED.into_response(),
            _ => self.message(
                json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "Method not found"}}),
            ),
        }
    }

    fn message(&self, message: Value) -> Response {
        if self.events {
            let noise = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
            events(format!(
                ": hello\n\nid: 1\ndata:\n\ndata: {noise}\r\n\r\nevent: message\ndata: {message}\n\n"
            ))
        } else {
            typed("application/json; charset=utf-8", message.to_string())
        }
    }
}

async fn serve(
    State(mcp): State<Arc<Mcp>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let name = match method {
        Method::POST => message["method"].as_str().unwrap_or_default().to_owned(),
        ref other => other.to_string(),
    };
    {
        let mut seen = mcp.seen.lock().unwrap();
        seen.methods.push(name.clone());
        seen.connections.insert(peer);
    }
    let accept = headers.get("accept").and_then(|v| v.to_str().ok()).unwrap_or_default();
    if method == Method::POST
        && (!accept.contains("application/json")
            || !accept.contains("text/event-stream")
            || headers.get("content-type").is_none_or(|v| v != "application/json")
            || message["jsonrpc"] != "2.0"
            || headers.contains_key("origin"))
    {
        return StatusCode::NOT_ACCEPTABLE.into_response();
    }
    // With every request, the one that ends the session too.
    if headers.get("authorization").is_none_or(|v| v != "Bearer canary") {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let id = message["id"].as_u64().unwrap_or_default();
    let own = mcp.answer(&name, id, &headers);
    let Some(script) = mcp.script.get(name.as_str()) else { return own };
    let mut answer = script(id);
    if let Some(wait) = answer.extensions().get::<Wait>() {
        sleep(wait.0).await;
        return own;
    }
    if let Some(session) = own.headers().get("mcp-session-id") {
        answer.headers_mut().insert("mcp-session-id", session.clone());
    }
    answer
}

/// The server's own answer, but late.
#[derive(Clone)]
struct Wait(Duration);

pub(super) fn late(wait: Duration) -> Response {
    let mut answer = Response::new(Body::empty());
    answer.extensions_mut().insert(Wait(wait));
    answer
}

pub(super) fn typed(kind: &'static str, body: impl Into<Body>) -> Response {
    ([("content-type", kind)], body.into()).into_response()
}

pub(super) fn events(body: impl Into<Body>) -> Response {
    typed("text/event-stream", body)
}

/// A body that sends `piece` every `pause`, for ever.
pub(super) fn endless(first: &str, piece: &str, pause: Duration) -> Body {
    let rest = tokio_stream::iter(std::iter::repeat(piece.to_owned())).then(move |piece| async move {
        sleep(pause).await;
        piece
    });
    Body::from_stream(tokio_stream::once(first.to_owned()).chain(rest).map(Ok::<_, Infallible>))
}

pub(super) fn hang() -> Response {
    let stream = tokio_stream::once(()).then(move |()| pending::<Result<&str, Infallible>>());
    typed("application/json", Body::from_stream(stream))
}

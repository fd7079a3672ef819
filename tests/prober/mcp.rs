//! The `mcp` kind.

mod server;

use std::{net::SocketAddr, time::Duration};

use axum::{
    body::Body,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use tokio::{
    io::AsyncReadExt,
    time::{Instant, sleep, timeout},
};
use toolpulse::{
    core::probe::{ErrorClass, Header, HeaderValue, HttpUrl, McpProbe, ProbeKind, Secret},
    prober::mcp::{LINGER, MAX_ANSWER},
};

use self::server::{Mcp, endless, events, hang, late, typed};
use super::{TIMEOUT, assert_error, endpoint, local, prober, shown, targets};

fn at(address: SocketAddr, expected: &[u16]) -> ProbeKind {
    let endpoint = endpoint(address);
    let text = format!("http://{endpoint}/mcp");
    ProbeKind::Mcp(McpProbe {
        url: HttpUrl { text, https: false, endpoint, path_and_query: "/mcp".to_owned() },
        headers: vec![Header {
            name: "authorization".to_owned(),
            value: HeaderValue::Literal(Secret::new("Bearer canary")),
        }],
        expected_statuses: expected.to_vec(),
        tls: None,
    })
}

const WHOLE: [&str; 3] = ["initialize", "notifications/initialized", "ping"];

#[tokio::test]
async fn every_version_with_and_without_sessions_and_events() {
    for version in ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"] {
        for (sessions, events) in [(true, false), (true, true), (false, false), (false, true)] {
            let case = format!("{version}, sessions {sessions}, events {events}");
            let (address, mcp) = Mcp::new(version, sessions, events).start().await;
            let run = local().run(&at(address, &[]), TIMEOUT).await;
            assert_eq!((shown(&run).as_str(), run.address), ("PASS", Some(address)), "{case}");
            assert_eq!(mcp.methods()[..3], WHOLE, "{case}");
            assert_eq!(mcp.seen.lock().unwrap().connections.len(), 1, "{case}");
            // A prober that is dropped ends nothing any more.
        }
    }
}

#[tokio::test]
async fn sessions_end_over_the_same_connection() {
    let (address, mcp) = Mcp::new("2025-11-25", true, true).start().await;
    let prober = local();
    for _ in 0..20 {
        assert_eq!(shown(&prober.run(&at(address, &[]), TIMEOUT).await), "PASS");
    }
    assert_eq!(mcp.all_ended().await, 20);
    let seen = mcp.seen.lock().unwrap();
    assert_eq!(seen.methods.iter().filter(|m| *m == "DELETE").count(), 20);
    assert_eq!(seen.connections.len(), 20);
}

#[tokio::test]
async fn connections_that_are_not_kept() {
    let closing = |id: u64| {
        let text = match id {
            1 => r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18"}}"#,
            _ => r#"{"jsonrpc":"2.0","id":2,"result":{}}"#,
        };
        ([("connection", "close"), ("content-type", "application/json")], text).into_response()
    };
    let accepted = |_| (StatusCode::ACCEPTED, [("connection", "close")]).into_response();
    let mcp = Mcp::new("2025-06-18", true, false)
        .answers("initialize", closing)
        .answers("notifications/initialized", accepted)
        .answers("ping", closing);
    let (address, mcp) = mcp.start().await;
    let prober = local();
    assert_eq!(shown(&prober.run(&at(address, &[]), TIMEOUT).await), "PASS");
    assert_eq!(mcp.all_ended().await, 1);
    assert_eq!(mcp.seen.lock().unwrap().connections.len(), 4);
}

/// An event stream that goes on after the answer holds nothing up but its own connection.
#[tokio::test(start_paused = true)]
async fn streams_that_stay_open() {
    let open = |id: u64| {
        let first = match id {
            1 => "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":\"2025-11-25\"}}\n\n",
            _ => "data: {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n\n",
        };
        events(endless(first, ": still here\n\n", Duration::from_millis(10)))
    };
    let mcp = Mcp::new("2025-11-25", true, true).answers("initialize", open).answers("ping", open);
    let (address, mcp) = mcp.start().await;
    let prober = local();
    let run = prober.run(&at(address, &[]), TIMEOUT).await;
    assert_eq!(shown(&run), "PASS");
    assert!(run.duration < Duration::from_secs(1), "{:?}", run.duration);
    assert_eq!(mcp.all_ended().await, 1);
}

fn rpc_error(code: i64, id: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "not you"}}).to_string()
}

fn status(status: u16, body: impl Into<Body>) -> Response {
    (StatusCode::from_u16(status).unwrap(), body.into()).into_response()
}

#[tokio::test]
async fn answers_to_initialize() {
    type Answer = fn(u64) -> Response;
    let cases: Vec<(Answer, &[u16], &str)> = vec![
        // The server refuses.
        (
            |id| typed("application/json", rpc_error(-32000, id.into())),
            &[],
            "NO MCP_ERROR: initialize: error -32000: not you",
        ),
        (
            |id| events(format!("data: {}\n\n", rpc_error(-32603, id.into()))),
            &[],
            "NO MCP_ERROR: initialize: error -32603: not you",
        ),
        (
            |_| typed("application/json", rpc_error(-32700, Value::Null)),
            &[],
            "NO MCP_ERROR: initialize: error -32700: not you",
        ),
        (
            |id| status(400, rpc_error(-32602, id.into())),
            &[],
            "NO MCP_ERROR: initialize: error -32602: not you",
        ),
        (
            |_| status(400, rpc_error(-32000, Value::Null)),
            &[],
            "NO MCP_ERROR: initialize: error -32000: not you",
        ),
        (
            |id| status(404, rpc_error(-32001, id.into())),
            &[],
            "NO MCP_ERROR: initialize: error -32001: not you",
        ),
        // Statuses.
        (|_| status(401, "who?"), &[], "NO HTTP_STATUS: initialize: http status 401 Unauthorized"),
        (|_| status(401, "who?"), &[401, 405], "PASS"),
        (|_| status(405, ""), &[401, 405], "PASS"),
        (|_| status(401, rpc_error(-32001, Value::Null)), &[401], "PASS"),
        (|_| status(405, ""), &[], "NO HTTP_STATUS: initialize: http status 405 Method Not Allowed"),
        (
            |_| status(302, ""),
            &[],
            "NO REDIRECT_NOT_FOLLOWED: initialize: http status 302 Found: redirects are not followed",
        ),
        (
            |_| status(503, r#"{"available": false, "reason": "no licence"}"#),
            &[],
            "NO PROBE_SAID_NO: initialize: no licence",
        ),
        (|_| status(404, ""), &[], "ERROR STATUS: initialize: http status 404 Not Found"),
        (
            |_| status(404, rpc_error(-32001, Value::Null)),
            &[],
            "ERROR STATUS: initialize: http status 404 Not Found",
        ),
        (|_| status(404, ""), &[404], "PASS"),
        (
            |_| status(429, rpc_error(-32000, 1.into())),
            &[],
            "ERROR STATUS: initialize: http status 429 Too Many Requests",
        ),
        (|_| status(502, "<html>"), &[], "ERROR STATUS: initialize: http status 502 Bad Gateway"),
        (
            |_| status(500, rpc_error(-32603, 1.into())),
            &[],
            "ERROR STATUS: initialize: http status 500 Internal Server Error",
        ),
        (|_| status(503, ""), &[503], "PASS"),
        // What is not MCP.
        (
            |_| typed("text/html", "<html>"),
            &[],
            "ERROR PROTOCOL: initialize: an answer of type 'text/html' is not MCP",
        ),
        (|_| typed("application/json", "<html>"), &[], "ERROR PROTOCOL: initialize: no JSON-RPC message: "),
        (|_| status(200, ""), &[], "ERROR PROTOCOL: initialize: no JSON-RPC message: "),
        (
            |_| typed("application/json", r#"{"jsonrpc":"2.0","id":9,"result":{}}"#),
            &[],
            "ERROR PROTOCOL: initialize: the answer is to no request of ours",
        ),
        (
            |_| typed("application/json", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
            &[],
            "ERROR PROTOCOL: initialize: the result names no protocolVersion: ",
        ),
        (
            |_| {
                typed(
                    "application/json",
                    r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"1999-01-01"}}"#,
                )
            },
            &[],
            "ERROR PROTOCOL: initialize: protocol version '1999-01-01' is none of 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05",
        ),
        (
            |_| events("data: {\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{}}\n\n"),
            &[],
            "ERROR PROTOCOL: initialize: the event stream ended without the answer",
        ),
        (
            |_| events("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"res"),
            &[],
            "ERROR PROTOCOL: initialize: the event stream ended without the answer",
        ),
        (|_| events("data: hello\n\n"), &[], "ERROR PROTOCOL: initialize: no JSON-RPC message: "),
        // What is too long.
        (
            |_| typed("application/json", " ".repeat(MAX_ANSWER + 1)),
            &[],
            "ERROR OVERSIZE: http status 200 OK with a body of more than 131072 bytes",
        ),
        (
            |_| events(format!("data: {}\n\n", "x".repeat(MAX_ANSWER))),
            &[],
            "ERROR OVERSIZE: initialize: more than 131072 bytes of events",
        ),
        (
            |_| events(endless("", &format!(":{}\n", " ".repeat(9_999)), Duration::from_millis(1))),
            &[],
            "ERROR OVERSIZE: initialize: more than 131072 bytes of events",
        ),
    ];
    let prober = local();
    for (n, (answer, expected, expect)) in cases.into_iter().enumerate() {
        let (address, mcp) = Mcp::new("2025-11-25", true, false).answers("initialize", answer).start().await;
        let run = prober.run(&at(address, expected), TIMEOUT).await;
        let found = shown(&run);
        let long = expect.ends_with(": ") || expect.starts_with("ERROR OVERSIZE");
        assert!(
            if long { found.starts_with(expect) } else { found == expect },
            "case {n}: {found}, not {expect}"
        );
        assert!(run.duration < TIMEOUT / 2, "case {n}: {:?}", run.duration);
        // Whatever came of it, the session that came with it is ended.
        assert_eq!(mcp.all_ended().await, 1, "case {n}");
    }
}

#[tokio::test]
async fn answers_after_initialize() {
    type Answer = fn(u64) -> Response;
    let cases: Vec<(&str, Answer, &[u16], &str)> = vec![
        ("ping", |id| typed("application/json", rpc_error(-32601, id.into())), &[], "PASS"),
        ("ping", |id| status(404, rpc_error(-32601, id.into())), &[], "PASS"),
        (
            "ping",
            |id| typed("application/json", rpc_error(-32603, id.into())),
            &[],
            "ERROR PROTOCOL: ping: error -32603: not you",
        ),
        (
            "ping",
            |_| typed("application/json", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
            &[],
            "ERROR PROTOCOL: ping: the answer is to no request of ours",
        ),
        ("ping", |_| status(404, ""), &[], "ERROR STATUS: ping: http status 404 Not Found"),
        ("ping", |_| status(500, ""), &[], "ERROR STATUS: ping: http status 500 Internal Server Error"),
        ("ping", |_| status(401, ""), &[], "NO HTTP_STATUS: ping: http status 401 Unauthorized"),
        ("ping", |_| status(401, ""), &[401], "PASS"),
        ("ping", |_| status(202, ""), &[], "ERROR PROTOCOL: ping: no JSON-RPC message: "),
        ("notifications/initialized", |_| status(204, ""), &[], "PASS"),
        ("notifications/initialized", |_| status(200, "thank you"), &[], "PASS"),
        (
            "notifications/initialized",
            |_| status(403, ""),
            &[],
            "NO HTTP_STATUS: notifications/initialized: http status 403 Forbidden",
        ),
        (
            "notifications/initialized",
            |_| status(502, ""),
            &[],
            "ERROR STATUS: notifications/initialized: http status 502 Bad Gateway",
        ),
        ("DELETE", |_| status(405, ""), &[], "PASS"),
        ("DELETE", |_| status(500, ""), &[], "PASS"),
        ("DELETE", |_| hang(), &[], "PASS"),
    ];
    let prober = local();
    for (method, answer, expected, expect) in cases {
        let (address, mcp) = Mcp::new("2025-11-25", true, false).answers(method, answer).start().await;
        let run = prober.run(&at(address, expected), TIMEOUT).await;
        let found = shown(&run);
        let fits = if expect.ends_with(": ") { found.starts_with(expect) } else { found == expect };
        assert!(fits, "{method}: {found}, not {expect}");
        assert_eq!(mcp.all_ended().await, 1, "{method}: {expect}");
    }
}

#[tokio::test]
async fn servers_without_a_handshake() {
    let refusal = |id: u64, versions: &[&str]| {
        json!({"jsonrpc": "2.0", "id": id, "error": {
            "code": -32022, "message": "Unsupported protocol version", "data": {"supported": versions, "requested": "2025-11-25"},
        }})
        .to_string()
    };
    let discovered = |id: u64| {
        let result =
            json!({"supportedVersions": ["2026-07-28"], "capabilities": {}, "resultType": "complete"});
        typed("application/json", json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string())
    };
    let stateless = || Mcp::new("2026-07-28", false, false);
    let prober = local();

    let mcp = stateless()
        .answers("initialize", move |id| status(400, refusal(id, &["2026-07-28"])))
        .answers("server/discover", discovered);
    let (address, mcp) = mcp.start().await;
    assert_eq!(shown(&prober.run(&at(address, &[]), TIMEOUT).await), "PASS");
    assert_eq!(mcp.methods(), ["initialize", "server/discover"]);

    let mcp = stateless()
        .answers("initialize", |id| status(404, rpc_error(-32601, id.into())))
        .answers("server/discover", |id| typed("application/json", rpc_error(-32601, id.into())));
    let (address, _mcp) = mcp.start().await;
    let run = prober.run(&at(address, &[]), TIMEOUT).await;
    assert_eq!(shown(&run), "NO MCP_ERROR: initialize: error -32601: not you");

    // One that speaks neither is not asked again.
    let mcp = stateless()
        .answers("initialize", move |id| status(400, refusal(id, &["2031-01-01"])))
        .answers("server/discover", discovered);
    let (address, mcp) = mcp.start().await;
    let run = prober.run(&at(address, &[]), TIMEOUT).await;
    assert_eq!(shown(&run), "NO MCP_ERROR: initialize: error -32022: Unsupported protocol version");
    assert_eq!(mcp.methods(), ["initialize"]);
}

#[tokio::test(start_paused = true)]
async fn one_deadline_over_everything() {
    let limit = Duration::from_secs(3);
    let drip = |_| events(endless("", ": here\n\n", Duration::from_secs(1)));
    let cases: Vec<(Mcp, &str)> = vec![
        (
            Mcp::new("2025-11-25", true, false).answers("initialize", |_| hang()),
            "initialize was not answered",
        ),
        (Mcp::new("2025-11-25", true, false).answers("initialize", drip), "initialize was not answered"),
        (Mcp::new("2025-11-25", true, false).answers("ping", |_| hang()), "ping was not answered"),
        (Mcp::new("2025-11-25", true, true).answers("ping", drip), "ping was not answered"),
        (
            Mcp::new("2025-11-25", true, false)
                .answers("notifications/initialized", |_| late(Duration::from_secs(60))),
            "ping was not answered",
        ),
    ];
    let prober = local();
    for (n, (mcp, part)) in cases.into_iter().enumerate() {
        let (address, mcp) = mcp.start().await;
        let start = Instant::now();
        let run = prober.run(&at(address, &[]), limit).await;
        assert_error(&run, ErrorClass::Timeout, part);
        assert!(
            (limit..limit + Duration::from_millis(50)).contains(&start.elapsed()),
            "case {n}: {:?}",
            start.elapsed()
        );
        assert_eq!(mcp.all_ended().await, 1, "case {n}");
        assert!(start.elapsed() < limit + LINGER, "case {n}: {:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_is_not_held_up_by_its_body() {
    let (address, _mcp) = Mcp::new("2025-11-25", false, false)
        .answers("initialize", |_| {
            let mut answer = hang();
            *answer.status_mut() = StatusCode::UNAUTHORIZED;
            answer
        })
        .start()
        .await;
    let run = local().run(&at(address, &[]), Duration::from_secs(2)).await;
    assert_eq!(shown(&run), "NO HTTP_STATUS: initialize: http status 401 Unauthorized");
    assert_eq!(shown(&local().run(&at(address, &[401]), Duration::from_secs(2)).await), "PASS");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_comes_too_late_is_ended_too() {
    let limit = Duration::from_secs(1);
    let slow = Mcp::new("2025-11-25", true, false).answers("initialize", move |_| late(limit + LINGER / 2));
    let (address, mcp) = slow.start().await;
    let prober = local();
    for _ in 0..5 {
        assert_error(&prober.run(&at(address, &[]), limit).await, ErrorClass::Timeout, "initialize was not");
    }
    sleep(LINGER).await;
    assert_eq!(mcp.all_ended().await, 5);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_ends_its_session() {
    let (address, mcp) = Mcp::new("2025-11-25", true, false).answers("ping", |_| hang()).start().await;
    let prober = local();
    let kind = at(address, &[]);
    let cancelled = timeout(Duration::from_millis(500), prober.run(&kind, TIMEOUT)).await;
    assert!(cancelled.is_err());
    assert_eq!(mcp.methods()[..3], WHOLE);
    assert_eq!(mcp.all_ended().await, 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_outlives_the_prober() {
    let (sender, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let target = targets::tcp(move |mut stream| {
        let sender = sender.clone();
        async move {
            let mut read = Vec::new();
            let _ = stream.read_to_end(&mut read).await;
            sender.send(String::from_utf8_lossy(&read).into_owned()).unwrap();
        }
    })
    .await;
    let prober = local();
    let kind = at(target, &[]);
    assert!(timeout(Duration::from_millis(500), prober.run(&kind, TIMEOUT)).await.is_err());
    let dropped = Instant::now();
    drop(prober);
    let sent = ended.recv().await.unwrap();
    assert!(sent.starts_with("POST /mcp HTTP/1.1\r\n") && sent.contains("2025-11-25"), "{sent}");
    assert!(dropped.elapsed() < LINGER / 2, "{:?}", dropped.elapsed());
}

#[tokio::test]
async fn what_the_guard_refuses_is_not_asked() {
    let (address, mcp) = Mcp::new("2025-11-25", true, false).start().await;
    let run = prober(&[]).run(&at(address, &[]), TIMEOUT).await;
    assert_error(&run, ErrorClass::Blocked, "TOOLPULSE_PROBE_ALLOW");
    assert_eq!(mcp.methods(), Vec::<String>::new());
    let closed = targets::closed_port().await;
    assert_error(&local().run(&at(closed, &[]), TIMEOUT).await, ErrorClass::Connect, "connection refused");
}

#[tokio::test]
async fn no_message_repeats_what_the_server_was_told() {
    let echo = |id: u64| {
        let error = json!({"code": -32000, "message": "no entry with Bearer canary"});
        typed("application/json", json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string())
    };
    let (address, _mcp) = Mcp::new("2025-11-25", true, false).answers("initialize", echo).start().await;
    let run = local().run(&at(address, &[]), TIMEOUT).await;
    assert!(shown(&run).starts_with("NO MCP_ERROR: initialize: error -32000: no entry with "), "{run:?}");
    assert!(!shown(&run).contains("canary"), "{run:?}");
}

//! The `http` kind: one HTTP/1.1 request on a connection of its own.

use std::pin::pin;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::time::timeout_at;

use super::{
    Failure, Progress, USER_AGENT, carry,
    dial::{Alpn, Dialer},
};
use crate::core::probe::{ErrorClass, HttpProbe, HttpUrl, Method, Outcome, Tls};

/// Bytes of a body that are read. What a tool says about itself is short; more would be the target's way to our memory.
pub const MAX_BODY: usize = 16 * 1024;
/// Bytes of a status line with its headers, and of one read.
pub(super) const MAX_HEAD: usize = 16 * 1024;
/// Headers of an answer.
pub(super) const MAX_HEADERS: usize = 100;

/// Reads the verdict from a complete answer: `body` is empty where there was none.
///
/// A JSON body that says no goes first, then the owner's lists, then the table of the proto.
pub fn judge(status: u16, body: &[u8], probe: &HttpProbe) -> Outcome {
    if let Some(reason) = says_no(body) {
        return Outcome::no("PROBE_SAID_NO", &reason);
    }
    let text = status_text(status);
    if probe.no_statuses.contains(&status) {
        return Outcome::no("HTTP_STATUS", &text);
    }
    if probe.expected_statuses.contains(&status) {
        return Outcome::Pass;
    }
    match status {
        200..=299 => Outcome::Pass,
        300..=399 => Outcome::no("REDIRECT_NOT_FOLLOWED", &format!("{text}: redirects are not followed")),
        // Proxies answer 404 while they reload, and the others mean: ask again later.
        404 | 408 | 425 | 429 => Outcome::error(ErrorClass::Status, &text),
        400..=499 => Outcome::no("HTTP_STATUS", &text),
        _ => Outcome::error(ErrorClass::Status, &text),
    }
}

pub(super) async fn run(
    dialer: &Dialer,
    probe: &HttpProbe,
    progress: &mut Progress,
) -> Result<Outcome, Failure> {
    let usual = Tls::default();
    let tls = probe.url.https.then(|| probe.tls.as_ref().unwrap_or(&usual));
    let audience = carry::audience(&probe.url.endpoint, probe.url.https, tls);
    let headers = carry::headers(dialer.rules(), &probe.headers, &audience, progress).await?;
    let request = request(probe, headers)?;
    let stream = dialer.open(&probe.url.endpoint, tls, Alpn::Http1, progress).await?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|e| broken(&e))?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(|e| broken(&e))?;
        settle(answer, probe, progress).await
    };
    let mut exchange = pin!(exchange);
    // The connection only moves while it is polled, and it may end before the last of the body is taken from it.
    tokio::select! {
        biased;
        outcome = &mut exchange => return outcome,
        _ended = connection => {}
    }
    exchange.await
}

fn request(probe: &HttpProbe, headers: HeaderMap) -> Result<Request<Full<Bytes>>, Failure> {
    let (method, body) = match &probe.method {
        Method::Get => (http::Method::GET, None),
        Method::Head => (http::Method::HEAD, None),
        Method::Post(body) => (http::Method::POST, Some(body)),
    };
    let mut request = Request::builder()
        .method(method)
        .uri(probe.url.path_and_query.as_str())
        .header(header::HOST, host(&probe.url))
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::ACCEPT, "*/*")
        .header(header::CONNECTION, "close")
        .body(Full::from(body.map_or_else(Bytes::new, |b| Bytes::copy_from_slice(b.expose().as_bytes()))))
        .map_err(|e| Failure::new(ErrorClass::Protocol, format!("the url can't be requested: {e}")))?;
    if let Some(body) = body {
        let lines = request.headers_mut();
        lines.insert(header::CONTENT_LENGTH, body.expose().len().into());
        if !body.expose().is_empty() {
            lines.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
        }
    }
    // The owner's go last: they may say more than `*/*`, and none of them is one of the connection's own.
    request.headers_mut().extend(headers);
    Ok(request)
}

pub(super) fn host(url: &HttpUrl) -> String {
    let shown = url.endpoint.to_string();
    let default = if url.https { ":443" } else { ":80" };
    shown.strip_suffix(default).map(str::to_owned).unwrap_or(shown)
}

/// Reads as much of the body as the verdict needs.
async fn settle(
    answer: Response<Incoming>,
    probe: &HttpProbe,
    progress: &Progress,
) -> Result<Outcome, Failure> {
    let status = answer.status().as_u16();
    let by_status = judge(status, &[], probe);
    let body = read(answer.into_body(), status, MAX_BODY);
    if matches!(by_status, Outcome::No(_)) {
        // The target has said no; a body can only say why. Where it hangs or is too long, the status is the reason.
        return Ok(match timeout_at(progress.deadline, body).await {
            Ok(Ok(body)) => judge(status, &body, probe),
            _ => by_status,
        });
    }
    Ok(judge(status, &body.await?, probe))
}

/// A whole body of at most `cap` bytes.
pub(super) async fn read(mut body: Incoming, status: u16, cap: usize) -> Result<Vec<u8>, Failure> {
    let too_long = || {
        let text = format!("{} with a body of more than {cap} bytes", status_text(status));
        Failure::new(ErrorClass::Oversize, text)
    };
    if http_body::Body::size_hint(&body).lower() > cap as u64 {
        return Err(too_long());
    }
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        // Trailers say nothing about the tool.
        let Ok(data) = frame.map_err(|e| broken(&e))?.into_data() else { continue };
        if read.len() + data.len() > cap {
            return Err(too_long());
        }
        read.extend_from_slice(&data);
    }
    Ok(read)
}

/// The reason in a body of `{"available": false, "reason": "..."}`; none for any other body.
fn says_no(body: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(body).ok()?;
    if value.get("available") != Some(&Value::Bool(false)) {
        return None;
    }
    let reason = value.get("reason").and_then(Value::as_str).map(str::trim).filter(|r| !r.is_empty());
    Some(reason.unwrap_or("the target says that it is not available").to_owned())
}

fn status_text(status: u16) -> String {
    let phrase = StatusCode::from_u16(status).ok().and_then(|s| s.canonical_reason());
    phrase.map_or_else(|| format!("http status {status}"), |phrase| format!("http status {status} {phrase}"))
}

pub(super) fn broken(error: &hyper::Error) -> Failure {
    if error.is_parse_too_large() {
        let text = format!("the answer's head is over {MAX_HEAD} bytes or {MAX_HEADERS} headers");
        return Failure::new(ErrorClass::Oversize, text);
    }
    Failure::broken("the HTTP/1.1 answer is broken", error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::probe::HostPort;

    fn probe(expected: &[u16], no: &[u16]) -> HttpProbe {
        let endpoint = HostPort { host: "::1".to_owned(), port: 80 };
        let text = "http://[::1]/".to_owned();
        HttpProbe {
            expected_statuses: expected.to_vec(),
            no_statuses: no.to_vec(),
            ..HttpProbe::get(HttpUrl { text, https: false, endpoint, path_and_query: "/".to_owned() })
        }
    }

    /// `PASS`, or the code and the message.
    fn shown(outcome: &Outcome) -> String {
        match outcome {
            Outcome::Pass => "PASS".to_owned(),
            Outcome::No(why) => format!("NO {}: {}", why.reason, why.message),
            Outcome::Error(_, why) => format!("ERROR {}: {}", why.reason, why.message),
        }
    }

    #[test]
    fn every_status() {
        for status in 100..=999 {
            let outcome = shown(&judge(status, b"", &probe(&[], &[])));
            let expect = match status {
                200..=299 => "PASS",
                300..=399 => "NO REDIRECT_NOT_FOLLOWED: ",
                404 | 408 | 425 | 429 => "ERROR STATUS: ",
                400..=499 => "NO HTTP_STATUS: ",
                _ => "ERROR STATUS: ",
            };
            assert!(outcome.starts_with(expect), "{status}: {outcome}");
            assert!(outcome == "PASS" || outcome.contains(&status.to_string()), "{status}: {outcome}");
        }
    }

    #[test]
    fn answers() {
        const NO: &[u8] = br#"{"available": false, "reason": "no licence"}"#;
        const NOTHING: &[u16] = &[];
        // Status, body, expected statuses, no statuses, verdict.
        type Case = (u16, &'static [u8], &'static [u16], &'static [u16], &'static str);
        let cases: &[Case] = &[
            (200, b"", NOTHING, NOTHING, "PASS"),
            (200, b"hello", NOTHING, NOTHING, "PASS"),
            (200, br#"{"available": true}"#, NOTHING, NOTHING, "PASS"),
            (200, br#"{"available": "false"}"#, NOTHING, NOTHING, "PASS"),
            (200, br#"{"available": 0}"#, NOTHING, NOTHING, "PASS"),
            (200, br#"[{"available": false}]"#, NOTHING, NOTHING, "PASS"),
            (200, br#"{"available": false} x"#, NOTHING, NOTHING, "PASS"),
            (200, b"\xff\xfe", NOTHING, NOTHING, "PASS"),
            // A body that says no goes before everything.
            (200, NO, NOTHING, NOTHING, "NO PROBE_SAID_NO: no licence"),
            (503, NO, NOTHING, NOTHING, "NO PROBE_SAID_NO: no licence"),
            (404, NO, NOTHING, NOTHING, "NO PROBE_SAID_NO: no licence"),
            (302, NO, NOTHING, NOTHING, "NO PROBE_SAID_NO: no licence"),
            (418, NO, &[418], NOTHING, "NO PROBE_SAID_NO: no licence"),
            (403, NO, NOTHING, &[403], "NO PROBE_SAID_NO: no licence"),
            (
                200,
                br#"{"available": false}"#,
                NOTHING,
                NOTHING,
                "NO PROBE_SAID_NO: the target says that it is not available",
            ),
            (
                200,
                br#"{"available": false, "reason": {"a": 1}}"#,
                NOTHING,
                NOTHING,
                "NO PROBE_SAID_NO: the target says that it is not available",
            ),
            (
                200,
                br#"{"available":false,"reason":"a\u001b[2Jb\n"}"#,
                NOTHING,
                NOTHING,
                "NO PROBE_SAID_NO: a[2Jb",
            ),
            // The owner's lists go before the table, and its no before its yes.
            (503, b"", NOTHING, &[503], "NO HTTP_STATUS: http status 503 Service Unavailable"),
            (204, b"", NOTHING, &[204], "NO HTTP_STATUS: http status 204 No Content"),
            (404, b"", NOTHING, &[404], "NO HTTP_STATUS: http status 404 Not Found"),
            (302, b"", NOTHING, &[302], "NO HTTP_STATUS: http status 302 Found"),
            (401, b"", &[401], NOTHING, "PASS"),
            (404, b"", &[404], NOTHING, "PASS"),
            (302, b"", &[302], NOTHING, "PASS"),
            (503, b"", &[503], NOTHING, "PASS"),
            (401, b"", &[401], &[401], "NO HTTP_STATUS: http status 401 Unauthorized"),
            (401, b"", &[403], &[402], "NO HTTP_STATUS: http status 401 Unauthorized"),
            // The table.
            (503, b"", NOTHING, NOTHING, "ERROR STATUS: http status 503 Service Unavailable"),
            (404, b"<html>", NOTHING, NOTHING, "ERROR STATUS: http status 404 Not Found"),
            (599, b"", NOTHING, NOTHING, "ERROR STATUS: http status 599"),
            (
                302,
                b"",
                NOTHING,
                NOTHING,
                "NO REDIRECT_NOT_FOLLOWED: http status 302 Found: redirects are not followed",
            ),
        ];
        for (status, body, expected, no, expect) in cases {
            let outcome = judge(*status, body, &probe(expected, no));
            assert_eq!(shown(&outcome), *expect, "{status} {:?}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn host_headers() {
        let cases = [
            ("a.example", 80, false, "a.example"),
            ("a.example", 443, true, "a.example"),
            ("a.example", 443, false, "a.example:443"),
            ("a.example", 80, true, "a.example:80"),
            ("a.example", 8080, false, "a.example:8080"),
            ("::1", 80, false, "[::1]"),
            ("::1", 8080, false, "[::1]:8080"),
        ];
        for (host_name, port, https, expect) in cases {
            let endpoint = HostPort { host: host_name.to_owned(), port };
            let url = HttpUrl { text: String::new(), https, endpoint, path_and_query: "/".to_owned() };
            assert_eq!(host(&url), expect);
        }
    }
}

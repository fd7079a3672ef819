//! What an MCP server sends: JSON-RPC messages, plain or as server-sent events.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::STATELESS_VERSION;

/// JSON-RPC: there is no such method.
const METHOD_NOT_FOUND: i64 = -32_601;
/// MCP, since 2026-07-28: the request's protocol version is not spoken.
const UNSUPPORTED_VERSION: i64 = -32_022;

/// The answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// JSON text of the result.
    Result(String),
    /// The server refused.
    Error(RpcError),
}

/// A JSON-RPC error.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RpcError {
    code: i64,
    message: String,
    /// Whether its data names the stateless version as one that the server speaks.
    stateless: bool,
    /// Whether it carries the request's id, so that nobody but the server can have written it.
    pub(super) ours: bool,
}

impl RpcError {
    pub(super) fn no_such_method(&self) -> bool {
        self.code == METHOD_NOT_FOUND
    }

    /// Whether the server may be one without a handshake.
    pub(super) fn hints_at_stateless(&self) -> bool {
        self.no_such_method() || (self.code == UNSUPPORTED_VERSION && self.stateless)
    }

    pub(super) fn text(&self) -> String {
        format!("error {}: {}", self.code, self.message)
    }
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<ErrorBody<'a>>,
}

#[derive(Deserialize)]
struct ErrorBody<'a> {
    code: i64,
    #[serde(borrow, default)]
    message: Cow<'a, str>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Supported<'a> {
    #[serde(borrow)]
    supported: Vec<Cow<'a, str>>,
}

/// The answer to request `id` in a text: one message, or a batch. None: the text holds other messages only.
pub(super) fn find(text: &[u8], id: u8) -> Result<Option<Reply>, String> {
    let no_json = |e: serde_json::Error| format!("no JSON-RPC message: {e}");
    if text.trim_ascii_start().starts_with(b"[") {
        let batch: Vec<&RawValue> = serde_json::from_slice(text).map_err(no_json)?;
        for message in batch {
            if let Some(reply) = one(message.get().as_bytes(), id)? {
                return Ok(Some(reply));
            }
        }
        return Ok(None);
    }
    one(text, id)
}

fn one(text: &[u8], id: u8) -> Result<Option<Reply>, String> {
    let message: Message<'_> =
        serde_json::from_slice(text).map_err(|e| format!("no JSON-RPC message: {e}"))?;
    if message.jsonrpc.is_none_or(|version| version.get() != "\"2.0\"") {
        return Err("no JSON-RPC message: it is not marked as 2.0".to_owned());
    }
    // The server's own requests and notifications. Nothing obliges a client that ends to answer them.
    if message.method.is_some() {
        return Ok(None);
    }
    let ours = message.id.is_some_and(|given| is(given.get(), id));
    if let Some(error) = message.error.filter(|_| ours || message.id.is_none()) {
        let data = error.data.and_then(|data| serde_json::from_str::<Supported<'_>>(data.get()).ok());
        let stateless = data.is_some_and(|data| data.supported.iter().any(|v| v == STATELESS_VERSION));
        return Ok(Some(Reply::Error(RpcError {
            code: error.code,
            message: error.message.into_owned(),
            stateless,
            ours,
        })));
    }
    match message.result {
        Some(result) if ours => Ok(Some(Reply::Result(result.get().to_owned()))),
        None if ours => Err("the answer has neither a result nor an error".to_owned()),
        _ => Ok(None),
    }
}

/// Whether an id is the one that was sent. Clients take it as a text as well, so a server that answers so works for them.
fn is(given: &str, id: u8) -> bool {
    let given = given.strip_prefix('"').and_then(|g| g.strip_suffix('"')).unwrap_or(given);
    given.strip_suffix(".0").unwrap_or(given) == id.to_string()
}

/// A parser of server-sent events. It holds one event, so that the caller's bound on what it is fed bounds it too.
#[derive(Debug, Default)]
pub(super) struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    /// Whether the event is of a type that carries messages.
    other_type: bool,
    after_cr: bool,
    begun: bool,
}

impl Events {
    /// Takes the next bytes, cut anywhere; gives the data of the messages that end in them.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut ended = Vec::new();
        for &byte in bytes {
            let second_half = byte == b'\n' && std::mem::take(&mut self.after_cr);
            self.after_cr = byte == b'\r';
            match byte {
                _ if second_half => {}
                b'\r' | b'\n' => ended.extend(self.end_line()),
                _ => self.line.push(byte),
            }
        }
        ended
    }

    /// A whole line. An empty one ends the event.
    fn end_line(&mut self) -> Option<Vec<u8>> {
        let line = std::mem::take(&mut self.line);
        let mut line = line.as_slice();
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        if line.is_empty() {
            let mut data = std::mem::take(&mut self.data);
            let wanted = !std::mem::take(&mut self.other_type) && !data.is_empty();
            // Each line of data has added its end.
            data.pop();
            return wanted.then_some(data);
        }
        let colon = line.iter().position(|b| *b == b':');
        let (field, value) = colon.map_or((line, &[][..]), |at| (&line[..at], &line[at + 1..]));
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                self.data.extend_from_slice(value);
                self.data.push(b'\n');
            }
            b"event" => self.other_type = !value.is_empty() && value != b"message",
            // Comments have an empty name; `id` and `retry` are for those who come back.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests;

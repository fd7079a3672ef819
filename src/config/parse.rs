//! From texts to values that can't be wrong. Each error says what is wrong and what would be right.

use std::{net::SocketAddr, ops::RangeInclusive, path::PathBuf, time::Duration};

use crate::core::{
    name::{Namespace, quote},
    probe::HostPort,
};

/// Parses a duration: `500ms`, `30s`, `5m`, `1h 30m`.
///
/// # Errors
/// What is wrong with it, and what would be right.
pub fn duration(text: &str) -> Result<Duration, String> {
    let shown = quote(text);
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("{shown} has no unit; write {text}s for seconds"));
    }
    if text.contains('-') {
        return Err(format!("{shown} is negative; write a duration like 500ms, 30s or 5m"));
    }
    humantime::parse_duration(text).map_err(|_| format!("{shown} is not a duration like 500ms, 30s or 5m"))
}

/// Parses a duration inside bounds.
pub(super) fn duration_in(text: &str, bounds: RangeInclusive<Duration>) -> Result<Duration, String> {
    let value = duration(text)?;
    if bounds.contains(&value) {
        return Ok(value);
    }
    let (low, high) =
        (humantime::format_duration(*bounds.start()), humantime::format_duration(*bounds.end()));
    Err(format!("{} is out of bounds; it must be {low} to {high}", quote(text)))
}

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!(
            "{} is not ADDRESS:PORT, for example 127.0.0.1:50051, 0.0.0.0:50051 or [::1]:50051",
            quote(text)
        )
    })
}

/// A host, or an address (IPv6 in brackets), and a port.
pub(super) fn host_port(text: &str) -> Result<HostPort, String> {
    let wrong = || format!("{} is not HOST:PORT, for example gateway.internal:443 or [::1]:443", quote(text));
    let uri: http::uri::Authority = text.parse().map_err(|_| wrong())?;
    let host = uri.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    match uri.port_u16() {
        Some(port @ 1..) if !host.is_empty() && !text.contains('@') => Ok(HostPort { host, port }),
        _ => Err(wrong()),
    }
}

pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("{} must be true or false", quote(text))),
    }
}

pub(super) fn count(text: &str, bounds: RangeInclusive<usize>) -> Result<usize, String> {
    let value = text.parse::<usize>().ok().filter(|n| bounds.contains(n));
    value.ok_or_else(|| {
        format!("{} must be a number from {} to {}", quote(text), bounds.start(), bounds.end())
    })
}

/// Bytes, or `64KiB`, `16MiB`.
pub(super) fn size(text: &str, bounds: RangeInclusive<usize>) -> Result<usize, String> {
    let (digits, unit) = match (text.strip_suffix("KiB"), text.strip_suffix("MiB")) {
        (Some(digits), _) => (digits, 1 << 10),
        (_, Some(digits)) => (digits, 1 << 20),
        _ => (text, 1),
    };
    let value = digits.trim_end().parse::<usize>().ok().and_then(|n| n.checked_mul(unit));
    value.filter(|n| bounds.contains(n)).ok_or_else(|| {
        let (low, high) = (bounds.start() >> 10, bounds.end() >> 20);
        format!("{} must be bytes, or a size like 16MiB, from {low}KiB to {high}MiB", quote(text))
    })
}

/// One of a few words.
pub(super) fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let known = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
    known.ok_or_else(|| {
        let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        format!("{} must be {}", quote(text), all.join(" or "))
    })
}

pub(super) fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() || text.contains('\0') {
        return Err(format!("{} is not a path", quote(text)));
    }
    Ok(PathBuf::from(text))
}

/// Items of a list with commas: trimmed, empty ones dropped. What they mean is the egress guard's to judge.
pub(super) fn list(text: &str) -> Result<Vec<String>, String> {
    Ok(text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect())
}

pub(super) fn variable_name(text: &str) -> Result<String, String> {
    let ok = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && text.bytes().next().is_some_and(|b| !b.is_ascii_digit());
    if ok {
        Ok(text.to_owned())
    } else {
        Err(format!("{} is not a variable's name, for example MY_TOOLS", quote(text)))
    }
}

pub(super) fn namespace(text: &str) -> Result<Namespace, String> {
    Namespace::parse(text)
}

/// `http://host:port`, `https://host:port` or `host:port`, made a URL.
pub(super) fn server(text: &str) -> Result<String, String> {
    let wrong = || format!("{} is not http://HOST:PORT, https://HOST:PORT or HOST:PORT", quote(text));
    let (scheme, authority) = match text.split_once("://") {
        Some(("https", authority)) => ("https", authority),
        Some(("http", authority)) => ("http", authority),
        Some(_) => return Err(wrong()),
        None => ("http", text),
    };
    let authority = authority.trim_end_matches('/');
    let url = format!("{scheme}://{authority}");
    let parsed: http::Uri = url.parse().map_err(|_| wrong())?;
    let plain = parsed.path() == "/" && parsed.query().is_none() && !authority.contains('@');
    match parsed.port_u16() {
        Some(1..) if plain && parsed.host().is_some_and(|h| !h.is_empty()) => Ok(url),
        _ => Err(wrong()),
    }
}

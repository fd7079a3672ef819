//! Where a probe goes: URLs and `host:port`.

use std::net::Ipv6Addr;

use crate::core::{
    name::quote,
    probe::{HIDDEN_QUERY, HostPort, HttpUrl, shown_url},
};

/// Longest URL.
pub(crate) const MAX_URL: usize = 2_048;
/// Longest host name: DNS has no longer ones.
pub(super) const MAX_HOST: usize = 253;

/// Parses an `http://` or `https://` URL.
pub(super) fn http_url(text: &str) -> Result<HttpUrl, String> {
    let shown = shown(text);
    if text.is_empty() {
        return Err("is empty; write http:// or https://, a host and a path".to_owned());
    }
    if text.chars().count() > MAX_URL {
        return Err(format!(
            "url {shown} has {} characters; at most {MAX_URL} are allowed",
            text.chars().count()
        ));
    }
    if text.ends_with(HIDDEN_QUERY) {
        return Err(format!(
            "url {shown} is one from a reply, which hides the query, and this probe is not the one that its owner has here; write the query again"
        ));
    }
    if let Some(c) = text.chars().find(|c| !c.is_ascii_graphic()) {
        let c = c.escape_debug();
        return Err(format!("url {shown} holds '{c}'; percent-encode it, or write a host in its ASCII form"));
    }
    let (https, rest) = scheme(text)?;
    if rest.contains('#') {
        return Err(format!("url {shown} has a fragment; leave out '#' and what follows"));
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path_and_query) = rest.split_at(end);
    if authority.contains('@') {
        return Err(format!("url {shown} has user info before its host; leave it out"));
    }
    let endpoint = authority_host_port(authority, Some(if https { 443 } else { 80 }))
        .map_err(|why| format!("url {shown}: {why}"))?;
    let path_and_query = if path_and_query.starts_with('/') {
        path_and_query.to_owned()
    } else {
        format!("/{path_and_query}")
    };
    // What the HTTP client will be given must be what it takes.
    path_and_query
        .parse::<http::uri::PathAndQuery>()
        .map_err(|e| format!("url {shown} has a wrong path or query: {e}"))?;
    Ok(HttpUrl { text: text.to_owned(), https, endpoint, path_and_query })
}

/// A URL for a message, without what may be a credential: user info and query.
fn shown(text: &str) -> String {
    let start = text.find("://").map_or(0, |at| at + 3);
    let end = text[start..].find(['/', '?', '#']).map_or(text.len(), |at| start + at);
    let known = match text[start..end].rfind('@') {
        Some(at) => format!("{}...{}", &text[..start], &text[start + at..]),
        None => text.to_owned(),
    };
    quote(&shown_url(&known))
}

/// Whether it is https, and what follows the scheme.
fn scheme(text: &str) -> Result<(bool, &str), String> {
    let shown = shown(text);
    let is_scheme = |s: &str| s.bytes().all(|b| b.is_ascii_alphanumeric() || b"+.-".contains(&b));
    let parts = text.split_once("://").filter(|(scheme, _)| !scheme.is_empty() && is_scheme(scheme));
    let Some((scheme, rest)) = parts else {
        return Err(format!("url {shown} has no scheme; write http:// or https://"));
    };
    match scheme.to_ascii_lowercase().as_str() {
        "http" => Ok((false, rest)),
        "https" => Ok((true, rest)),
        _ => Err(format!("url {shown} has the scheme {}; only http and https are probed", quote(scheme))),
    }
}

/// Parses `host:port`.
pub(super) fn host_port(text: &str) -> Result<HostPort, String> {
    if text.is_empty() {
        return Err("is empty; write host:port".to_owned());
    }
    if text.contains('@') {
        // Not shown: it may hold a password.
        return Err("has user info before its host; write host:port".to_owned());
    }
    if text.contains("://") || text.contains('/') {
        return Err(format!("{} is not host:port; leave out the scheme and the path", quote(text)));
    }
    authority_host_port(text, None).map_err(|why| format!("{}: {why}", quote(text)))
}

fn authority_host_port(text: &str, default_port: Option<u16>) -> Result<HostPort, String> {
    let (host, port) = if let Some(inner) = text.strip_prefix('[') {
        let Some((host, rest)) = inner.split_once(']') else {
            return Err("has '[' without ']'".to_owned());
        };
        ipv6(host)?;
        match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if rest.is_empty() => (host, None),
            None => return Err("only a port may follow ']'".to_owned()),
        }
    } else {
        let (host, port) = match text.split_once(':') {
            Some((_, rest)) if rest.contains(':') => {
                return Err("write an IPv6 address in brackets, as in [::1]:80".to_owned());
            }
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        };
        name(host)?;
        (host, port)
    };
    let port = match (port, default_port) {
        (Some(port), _) => parse_port(port)?,
        (None, Some(default)) => default,
        (None, None) => return Err("has no port; write host:port".to_owned()),
    };
    Ok(HostPort { host: host.to_owned(), port })
}

fn ipv6(host: &str) -> Result<(), String> {
    if host.contains('%') {
        return Err("has a zone id, which means something on one machine only; leave it out".to_owned());
    }
    match host.parse::<Ipv6Addr>() {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("{} is not an IPv6 address", quote(host))),
    }
}

/// A DNS name or an IPv4 address. Underscores are no host name's, but container networks use them.
fn name(host: &str) -> Result<(), String> {
    if host.is_empty() {
        return Err("has no host".to_owned());
    }
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    if host.len() <= MAX_HOST && host.strip_suffix('.').unwrap_or(host).split('.').all(label) {
        Ok(())
    } else {
        Err(format!("{} is not a host name or address", quote(host)))
    }
}

fn parse_port(text: &str) -> Result<u16, String> {
    // Digits alone: Rust would take a sign as well.
    let number = text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u16>().ok()).flatten();
    match number {
        Some(port) if port > 0 => Ok(port),
        _ => Err(format!("port {} is not a number from 1 to 65535", quote(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        for (text, https, host, port, path) in [
            ("http://example.com", false, "example.com", 80, "/"),
            ("HTTPS://Example.com:8443/a/b?x=1&y=http://z", true, "Example.com", 8443, "/a/b?x=1&y=http://z"),
            ("https://h?x", true, "h", 443, "/?x"),
            ("http://10.0.0.1:1/", false, "10.0.0.1", 1, "/"),
            ("http://[::1]:8080/healthz", false, "::1", 8080, "/healthz"),
            ("http://[fe80::1]", false, "fe80::1", 80, "/"),
            ("http://my_app.local./%20", false, "my_app.local.", 80, "/%20"),
        ] {
            let url = http_url(text).unwrap();
            assert_eq!(url.text, text);
            assert_eq!(
                (url.https, url.endpoint.host.as_str(), url.endpoint.port, url.path_and_query.as_str()),
                (https, host, port, path),
                "{text}"
            );
        }
    }

    #[test]
    fn wrong_urls_are_refused_with_what_is_wrong() {
        for (text, message) in [
            ("", "is empty; write http:// or https://, a host and a path"),
            ("example.com/health", "url 'example.com/health' has no scheme; write http:// or https://"),
            (
                "localhost:8080/x?u=http://y",
                "url 'localhost:8080/x?\u{2026}' has no scheme; write http:// or https://",
            ),
            ("//h/x", "url '//h/x' has no scheme; write http:// or https://"),
            ("ftp://h/x", "url 'ftp://h/x' has the scheme 'ftp'; only http and https are probed"),
            ("http://", "url 'http://': has no host"),
            ("http:///x", "url 'http:///x': has no host"),
            ("http://:80/", "url 'http://:80/': has no host"),
            ("http://u:secret@h/", "url 'http://...@h/' has user info before its host; leave it out"),
            ("http://u:secret@h/#x", "url 'http://...@h/#x' has a fragment; leave out '#' and what follows"),
            ("u:secret@h/x", "url '...@h/x' has no scheme; write http:// or https://"),
            ("http://h/#a", "url 'http://h/#a' has a fragment; leave out '#' and what follows"),
            ("http://h:0/", "url 'http://h:0/': port '0' is not a number from 1 to 65535"),
            ("http://h:65536/", "url 'http://h:65536/': port '65536' is not a number from 1 to 65535"),
            ("http://h:+80/", "url 'http://h:+80/': port '+80' is not a number from 1 to 65535"),
            ("http://h:/", "url 'http://h:/': port '' is not a number from 1 to 65535"),
            ("http://a..b/", "url 'http://a..b/': 'a..b' is not a host name or address"),
            ("http://::1/", "url 'http://::1/': write an IPv6 address in brackets, as in [::1]:80"),
            ("http://[::1/", "url 'http://[::1/': has '[' without ']'"),
            ("http://[::1]80/", "url 'http://[::1]80/': only a port may follow ']'"),
            ("http://[::g]/", "url 'http://[::g]/': '::g' is not an IPv6 address"),
            (
                "http://[fe80::1%25eth0]/",
                "url 'http://[fe80::1%25eth0]/': has a zone id, which means something on one machine only; leave it out",
            ),
            (
                "http://h/a b",
                "url 'http://h/a b' holds ' '; percent-encode it, or write a host in its ASCII form",
            ),
            (
                "http://münchen.de/",
                "url 'http://münchen.de/' holds 'ü'; percent-encode it, or write a host in its ASCII form",
            ),
            (
                "http://h/\r\nX: y",
                "url 'http://h/\\r\\nX: y' holds '\\r'; percent-encode it, or write a host in its ASCII form",
            ),
        ] {
            assert_eq!(http_url(text), Err(message.to_owned()), "{text}");
        }
        let longest = format!("http://h/{}", "a".repeat(MAX_URL - 9));
        assert!(http_url(&longest).is_ok());
        assert!(
            http_url(&format!("{longest}a"))
                .unwrap_err()
                .ends_with("has 2049 characters; at most 2048 are allowed")
        );
    }

    #[test]
    fn targets_are_host_and_port() {
        for (text, host, port) in
            [("h:1", "h", 1), ("[::1]:50051", "::1", 50051), ("127.0.0.1:65535", "127.0.0.1", 65535)]
        {
            let target = host_port(text).unwrap();
            assert_eq!((target.host.as_str(), target.port), (host, port));
            assert_eq!(target.to_string(), text);
        }
        for (text, message) in [
            ("", "is empty; write host:port"),
            ("h", "'h': has no port; write host:port"),
            ("[::1]", "'[::1]': has no port; write host:port"),
            ("::1:80", "'::1:80': write an IPv6 address in brackets, as in [::1]:80"),
            ("http://h:80", "'http://h:80' is not host:port; leave out the scheme and the path"),
            ("h:80/x", "'h:80/x' is not host:port; leave out the scheme and the path"),
            (":80", "':80': has no host"),
            ("h:http", "'h:http': port 'http' is not a number from 1 to 65535"),
            ("a b:1", "'a b:1': 'a b' is not a host name or address"),
            ("u:secret@h:1", "has user info before its host; write host:port"),
        ] {
            assert_eq!(host_port(text), Err(message.to_owned()), "{text}");
        }
        let label = "a".repeat(63);
        assert!(host_port(&format!("{label}.{label}.{label}.{}:1", &label[..61])).is_ok());
        assert!(host_port(&format!("{label}.{label}.{label}.{}:1", &label[..62])).is_err());
        assert!(host_port(&format!("{label}a:1")).is_err());
    }
}

//! What a probe carries: headers, a body, TLS.

use super::{Faults, target::MAX_HOST};
use crate::{
    core::{
        name::quote,
        probe::{ClientIdentity, Header, HeaderValue, Secret, SecretName, Tls, fits_header},
    },
    proto::v1::{self, probe_body, probe_header::Content},
};

/// Most headers of one probe.
const MAX_HEADERS: usize = 16;
/// Longest name of a header.
const MAX_NAME: usize = 64;
/// Longest body of a POST, in bytes: a probe asks, it does not upload.
const MAX_BODY: usize = 4 * 1024;

/// Headers that no owner sets, with what they are. A name that ends in `*` stands for all that begin so.
const DENIED: [(&str, &str); 24] = [
    ("host", "follows from the target"),
    ("content-length", FRAMING),
    ("transfer-encoding", FRAMING),
    ("trailer", FRAMING),
    ("te", FRAMING),
    ("expect", FRAMING),
    ("connection", HOP),
    ("keep-alive", HOP),
    ("upgrade", HOP),
    ("http2-settings", HOP),
    ("proxy-*", "speaks to a proxy, and a probe uses none"),
    ("accept-encoding", "asks for compression, and a probe inflates nothing"),
    ("cookie", "belongs to a browser's session; send a token, as in authorization"),
    ("cookie2", "belongs to a browser's session; send a token, as in authorization"),
    ("user-agent", ORIGIN),
    ("forwarded", ORIGIN),
    ("x-forwarded-for", ORIGIN),
    ("x-real-ip", ORIGIN),
    ("via", ORIGIN),
    ("metadata", METADATA),
    ("metadata-flavor", METADATA),
    ("x-google-metadata-request", METADATA),
    ("x-aws-ec2-metadata-token*", METADATA),
    ("x-metadata-token", METADATA),
];
const FRAMING: &str = "follows from the request's form";
const HOP: &str = "is of one connection, which is the prober's";
const ORIGIN: &str = "says who asks, and a probe says what it is";
const METADATA: &str = "opens the metadata service of a cloud";

/// gRPC's own, besides.
pub(super) const DENIED_IN_GRPC: [(&str, &str); 3] = [
    ("content-type", "is the protocol's own"),
    ("grpc-*", "is the protocol's own"),
    ("accept", "is the protocol's own"),
];

/// MCP's own, besides.
pub(super) const DENIED_IN_MCP: [(&str, &str); 6] = [
    ("content-type", "is the protocol's own"),
    ("accept", "is the protocol's own"),
    ("mcp-session-id", "is the protocol's own"),
    ("mcp-protocol-version", "is the protocol's own"),
    ("mcp-method", "is the protocol's own"),
    ("last-event-id", "is the protocol's own"),
];

/// Parses headers: sorted by name, so that equal probes are equal. `denied` are the protocol's own, besides those of all.
pub(super) fn headers(
    faults: &mut Faults,
    at: &str,
    given: Vec<v1::ProbeHeader>,
    denied: &[(&str, &str)],
) -> Vec<Header> {
    if given.len() > MAX_HEADERS {
        faults.add(
            format!("{at}.headers"),
            format!("has {} headers; at most {MAX_HEADERS} are allowed", given.len()),
        );
        return Vec::new();
    }
    let mut headers: Vec<Header> = Vec::with_capacity(given.len());
    for (index, pb) in given.into_iter().enumerate() {
        let at = format!("{at}.headers[{index}]");
        let name = name(faults, &at, &pb, denied);
        let value = value(faults, &at, pb.content);
        let (Some(name), Some(value)) = (name, value) else { continue };
        if headers.iter().any(|other| other.name == name) {
            faults.add(
                format!("{at}.name"),
                format!("{} is there twice; write each header once", quote(&name)),
            );
        }
        headers.push(Header { name, value });
    }
    headers.sort();
    headers
}

fn name(faults: &mut Faults, at: &str, pb: &v1::ProbeHeader, denied: &[(&str, &str)]) -> Option<String> {
    let name = match (pb.name.as_str(), &pb.content) {
        ("", Some(Content::BearerSecretRef(_))) => "authorization".to_owned(),
        (name, _) => name.to_ascii_lowercase(),
    };
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if !(1..=MAX_NAME).contains(&name.len()) || !name.bytes().all(is_token) {
        let text = format!("{} is not the name of a header, of 1 to {MAX_NAME} characters", quote(&pb.name));
        faults.add(format!("{at}.name"), text);
        return None;
    }
    let is = |pattern: &str| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    };
    if let Some((_, why)) = DENIED.iter().chain(denied).find(|(pattern, _)| is(pattern)) {
        faults.add(format!("{at}.name"), format!("{} can't be set: it {why}", quote(&name)));
        return None;
    }
    if name.ends_with("-bin") && denied == DENIED_IN_GRPC {
        faults.add(
            format!("{at}.name"),
            format!("{} is binary metadata, which a probe does not send", quote(&name)),
        );
        return None;
    }
    Some(name)
}

fn value(faults: &mut Faults, at: &str, given: Option<Content>) -> Option<HeaderValue> {
    match given {
        None => {
            faults.add(at, "has no content; set one of value, secret_ref and bearer_secret_ref");
            None
        }
        Some(Content::Hidden(_)) => {
            faults.add(format!("{at}.hidden"), NOT_TOLD);
            None
        }
        Some(Content::Value(text)) => match fits_header(&text) {
            Ok(()) => Some(HeaderValue::Literal(Secret::new(text))),
            Err(why) => {
                // Not shown: it may be a credential.
                faults.add(format!("{at}.value"), why);
                None
            }
        },
        Some(Content::SecretRef(text)) => {
            reference(faults, &format!("{at}.secret_ref"), &text).map(HeaderValue::Secret)
        }
        Some(Content::BearerSecretRef(text)) => {
            reference(faults, &format!("{at}.bearer_secret_ref"), &text).map(HeaderValue::Bearer)
        }
    }
}

/// Parses the body of a POST.
pub(super) fn body(faults: &mut Faults, at: &str, given: v1::ProbeBody) -> Option<Secret> {
    match given.content {
        None => {
            faults.add(at, "has no content; set text, or leave the body out");
            None
        }
        Some(probe_body::Content::Hidden(_)) => {
            faults.add(format!("{at}.hidden"), NOT_TOLD);
            None
        }
        Some(probe_body::Content::Text(text)) if text.len() > MAX_BODY => {
            faults.add(
                format!("{at}.text"),
                format!("has {} bytes; at most {MAX_BODY} are allowed", text.len()),
            );
            None
        }
        Some(probe_body::Content::Text(text)) => Some(Secret::new(text)),
    }
}

const NOT_TOLD: &str = "stands in replies for what is not told, and this probe is not the one that its owner has here; write the text again";

/// Parses TLS settings. What comes back is whole only if no fault was added.
pub(super) fn tls(faults: &mut Faults, at: &str, given: v1::ProbeTls) -> Tls {
    let at = format!("{at}.tls");
    let v1::ProbeTls { server_name, ca_ref, client_cert_ref, client_key_ref, insecure_skip_verify } = given;
    let valid = server_name.is_empty()
        || server_name.len() <= MAX_HOST
            && rustls::pki_types::ServerName::try_from(server_name.as_str()).is_ok();
    if !valid {
        let given = quote(&server_name);
        faults.add(
            format!("{at}.server_name"),
            format!("{given} is not a host name or address; write the name on the certificate"),
        );
    }
    let mut optional = |field: &str, text: &str| match text {
        "" => None,
        text => reference(faults, &format!("{at}.{field}"), text),
    };
    let ca = optional("ca_ref", &ca_ref);
    let cert = optional("client_cert_ref", &client_cert_ref);
    let key = optional("client_key_ref", &client_key_ref);
    if client_cert_ref.is_empty() != client_key_ref.is_empty() {
        let field = if client_cert_ref.is_empty() { "client_cert_ref" } else { "client_key_ref" };
        faults.add(format!("{at}.{field}"), "a client certificate and its key go together; set both or none");
    }
    Tls {
        server_name: (!server_name.is_empty()).then_some(server_name),
        ca,
        client: cert.zip(key).map(|(cert, key)| ClientIdentity { cert, key }),
        insecure_skip_verify,
    }
}

/// A peer that nobody has verified is given no secret, and verifying it with a reference and not at all is a contradiction.
pub(super) fn insecure(faults: &mut Faults, at: &str, headers: &[Header], tls: Option<&Tls>) {
    let Some(tls) = tls.filter(|tls| tls.insecure_skip_verify) else { return };
    if tls.ca.is_some() || tls.client.is_some() || headers.iter().any(|h| h.value.reference().is_some()) {
        faults.add(
            format!("{at}.tls.insecure_skip_verify"),
            "can't go together with a reference to a secret: anybody could be the peer",
        );
    }
}

fn reference(faults: &mut Faults, field: &str, text: &str) -> Option<SecretName> {
    SecretName::parse(text).map_err(|why| faults.add(field, why)).ok()
}

/// Headers as replies show them: without values.
pub(super) fn headers_to_proto(headers: &[Header]) -> Vec<v1::ProbeHeader> {
    let header = |header: &Header| v1::ProbeHeader {
        name: header.name.clone(),
        content: Some(match &header.value {
            HeaderValue::Literal(_) => Content::Hidden(true),
            HeaderValue::Secret(name) => Content::SecretRef(name.to_string()),
            HeaderValue::Bearer(name) => Content::BearerSecretRef(name.to_string()),
        }),
    };
    headers.iter().map(header).collect()
}

/// TLS settings as they were sent.
pub(super) fn tls_to_proto(tls: &Tls) -> v1::ProbeTls {
    let text = |name: Option<&SecretName>| name.map(SecretName::to_string).unwrap_or_default();
    v1::ProbeTls {
        server_name: tls.server_name.clone().unwrap_or_default(),
        ca_ref: text(tls.ca.as_ref()),
        client_cert_ref: text(tls.client.as_ref().map(|client| &client.cert)),
        client_key_ref: text(tls.client.as_ref().map(|client| &client.key)),
        insecure_skip_verify: tls.insecure_skip_verify,
    }
}

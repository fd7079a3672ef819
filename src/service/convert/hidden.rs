//! `Debug` of wire messages that may hold a credential: what a log or a panic prints of them is without it.

use std::fmt;

use crate::{
    core::probe::{HIDDEN, shown_url},
    proto::v1::{HttpProbe, McpProbe, ProbeBody, ProbeHeader, probe_body, probe_header},
};

impl fmt::Debug for HttpProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Every field by name: a new one must be thought of here.
        let Self { url, method, expected_statuses, no_statuses, tls, headers, body } = self;
        f.debug_struct("HttpProbe")
            .field("url", &shown(url))
            .field("method", method)
            .field("expected_statuses", expected_statuses)
            .field("no_statuses", no_statuses)
            .field("tls", tls)
            .field("headers", headers)
            .field("body", body)
            .finish()
    }
}

impl fmt::Debug for McpProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, expected_statuses, tls, headers } = self;
        f.debug_struct("McpProbe")
            .field("url", &shown(url))
            .field("expected_statuses", expected_statuses)
            .field("tls", tls)
            .field("headers", headers)
            .finish()
    }
}

/// User info is refused, and until then it is a password.
fn shown(url: &str) -> String {
    if url.contains('@') { HIDDEN.to_owned() } else { shown_url(url) }
}

impl fmt::Debug for ProbeHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, content } = self;
        f.debug_struct("ProbeHeader").field("name", name).field("content", content).finish()
    }
}

impl fmt::Debug for ProbeBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeBody").field("content", &self.content).finish()
    }
}

impl fmt::Debug for probe_header::Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(_) | Self::Hidden(_) => f.write_str(HIDDEN),
            Self::SecretRef(name) => f.debug_tuple("SecretRef").field(name).finish(),
            Self::BearerSecretRef(name) => f.debug_tuple("BearerSecretRef").field(name).finish(),
        }
    }
}

impl fmt::Debug for probe_body::Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) | Self::Hidden(_) => f.write_str(HIDDEN),
        }
    }
}

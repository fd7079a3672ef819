//! The forms of what a probe carries: headers, a body, TLS.

use std::fmt;

use serde::{Deserialize, Deserializer, de::Error as _};

use crate::{
    core::probe::HIDDEN,
    proto::v1::{ProbeBody, ProbeHeader, ProbeTls, probe_body, probe_header::Content},
};

/// A text that may be a credential: neither an error of the parser nor `Debug` repeats it.
pub(super) struct HiddenText(String);

impl<'de> Deserialize<'de> for HiddenText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer);
        text.map(Self).map_err(|_| D::Error::custom("expected a text; write it in quotes"))
    }
}

impl fmt::Debug for HiddenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl From<HiddenText> for String {
    fn from(text: HiddenText) -> Self {
        text.0
    }
}

/// A header: its name, and one of `value`, `secret_ref` and `bearer_secret_ref`.
#[derive(Deserialize)]
#[serde(try_from = "HeaderFields")]
pub(super) struct HeaderForm(ProbeHeader);

impl fmt::Debug for HeaderForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping like `{name: ..., value: ...}`")]
struct HeaderFields {
    #[serde(default)]
    name: String,
    value: Option<HiddenText>,
    secret_ref: Option<String>,
    bearer_secret_ref: Option<String>,
}

/// How a probe speaks TLS.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping: `{}` or `{server_name: ...}`")]
pub(super) struct TlsForm {
    #[serde(default)]
    server_name: String,
    #[serde(default)]
    ca_ref: String,
    #[serde(default)]
    client_cert_ref: String,
    #[serde(default)]
    client_key_ref: String,
    #[serde(default)]
    insecure_skip_verify: bool,
}

impl TryFrom<HeaderFields> for HeaderForm {
    type Error = &'static str;

    fn try_from(fields: HeaderFields) -> Result<Self, Self::Error> {
        let HeaderFields { name, value, secret_ref, bearer_secret_ref } = fields;
        let content = match (value, secret_ref, bearer_secret_ref) {
            (Some(text), None, None) => Content::Value(text.0),
            (None, Some(name), None) => Content::SecretRef(name),
            (None, None, Some(name)) => Content::BearerSecretRef(name),
            _ => return Err("a header has exactly one of value, secret_ref and bearer_secret_ref"),
        };
        Ok(Self(ProbeHeader { name, content: Some(content) }))
    }
}

pub(super) fn header(form: HeaderForm) -> ProbeHeader {
    form.0
}

pub(super) fn body(text: HiddenText) -> ProbeBody {
    ProbeBody { content: Some(probe_body::Content::Text(text.0)) }
}

pub(super) fn tls(form: TlsForm) -> ProbeTls {
    let TlsForm { server_name, ca_ref, client_cert_ref, client_key_ref, insecure_skip_verify } = form;
    ProbeTls { server_name, ca_ref, client_cert_ref, client_key_ref, insecure_skip_verify }
}

//! What a probe carries to its target: a method with its body, headers, and how it speaks TLS.
//!
//! What may be a credential is a [`Secret`]: a type that nothing prints, so that no reply, log or panic can. References to
//! secrets are names, and names are no secrets.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::core::name::quote;

/// Stands in a text for what is not told.
pub const HIDDEN: &str = "[hidden]";
/// Ends the name of a rule, which says where a secret may go; no secret's own name ends so.
pub const RULE_SUFFIX: &str = ".hosts";
/// Longest value of a header.
const MAX_HEADER_VALUE: usize = 4 * 1024;
/// Longest name of a secret.
const MAX_SECRET_NAME: usize = 63;

/// A text that is never shown. It compares and hashes as its content does; `Debug` hides it, and it has no `Display`.
///
/// It is serialized as it is: the store must give it back.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Hides a text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text, for the one who sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// Names a secret: a file in the directory that the operator mounts. It can't leave the directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretName(Arc<str>);

impl SecretName {
    /// Judges a name.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let ok = (1..=MAX_SECRET_NAME).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.' || b == b'-')
            && !text.starts_with('.')
            && !text.contains("..")
            && !text.ends_with(RULE_SUFFIX);
        if ok {
            return Ok(Self(text.into()));
        }
        let text = quote(text);
        Err(format!(
            "{text} is not the name of a secret; it must be 1 to {MAX_SECRET_NAME} characters of [a-z0-9.-], without '.' \
             at its start, '..' in it or {RULE_SUFFIX} at its end"
        ))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The method of an HTTP request.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// GET.
    #[default]
    Get,
    /// HEAD.
    Head,
    /// POST, with this body. A body can hold a password, so it is hidden.
    Post(Secret),
}

/// One header, or one entry of gRPC metadata.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Header {
    /// Lower case.
    pub name: String,
    /// What it says.
    pub value: HeaderValue,
}

/// What a header says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeaderValue {
    /// What the owner wrote.
    Literal(Secret),
    /// The secret's content.
    Secret(SecretName),
    /// `Bearer ` and the secret's content.
    Bearer(SecretName),
}

impl HeaderValue {
    /// The secret that it is made of.
    pub fn reference(&self) -> Option<&SecretName> {
        match self {
            Self::Literal(_) => None,
            Self::Secret(name) | Self::Bearer(name) => Some(name),
        }
    }
}

/// Whether a text can be the value of a header.
///
/// # Errors
/// Why not, without the text: it may be a credential.
pub fn fits_header(text: &str) -> Result<(), String> {
    if text.len() > MAX_HEADER_VALUE {
        return Err(format!("has {} bytes; at most {MAX_HEADER_VALUE} are allowed", text.len()));
    }
    if !text.bytes().all(|b| b.is_ascii_graphic() || b == b' ' || b == b'\t') {
        return Err("must be visible ASCII characters, spaces and tabs".to_owned());
    }
    if text.trim_matches([' ', '\t']) != text {
        return Err("must not begin or end with a space".to_owned());
    }
    Ok(())
}

/// How a probe speaks TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Tls {
    /// Name to verify and to send as SNI, instead of the target's host.
    pub server_name: Option<String>,
    /// Certificates to trust, instead of the public roots.
    #[serde(default)]
    pub ca: Option<SecretName>,
    /// The certificate that the probe shows.
    #[serde(default)]
    pub client: Option<ClientIdentity>,
    /// Whether any certificate is taken.
    #[serde(default)]
    pub insecure_skip_verify: bool,
}

/// A certificate and its key, both by reference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClientIdentity {
    /// The chain, the own certificate first.
    pub cert: SecretName,
    /// Its private key.
    pub key: SecretName,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_printed() {
        let header =
            Header { name: "a".to_owned(), value: HeaderValue::Literal(Secret::new("canary".to_owned())) };
        let shown = format!("{header:?} {header:#?} {:?}", Method::Post(Secret::new("canary")));
        assert!(!shown.contains("canary") && shown.contains(HIDDEN), "{shown}");
        assert_eq!(Secret::new("a"), Secret::new("a".to_owned()));
        assert_ne!(Secret::new("a"), Secret::new("b"));
        assert_eq!(serde_json::to_string(&Secret::new("a")).unwrap(), r#""a""#);
    }

    #[test]
    fn names_of_secrets_stay_in_their_directory() {
        for good in ["a", "api-token", "tls.crt", "0", "a.hosts.b", &"x".repeat(63)] {
            assert_eq!(SecretName::parse(good).unwrap().as_str(), good);
        }
        let long = "x".repeat(64);
        let bad = [
            "",
            ".",
            "..",
            "..data",
            ".hidden",
            "a/b",
            "/etc/passwd",
            "../a",
            "a..b",
            "A",
            "a b",
            "a\0",
            "a\n",
            "\u{e9}",
            "%2e%2e",
            "a\\b",
            "token.hosts",
            &long,
        ];
        for bad in bad {
            let why = SecretName::parse(bad).unwrap_err();
            assert!(why.contains("[a-z0-9.-]"), "{why}");
        }
    }
}

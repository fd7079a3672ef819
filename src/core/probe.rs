//! What a probe asks, and how one run of it can end.

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

/// Longest message of an outcome, in characters.
pub const MAX_MESSAGE: usize = 256;

/// One way to ask whether a tool works.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProbeSpec {
    /// Unique inside the tool.
    pub name: Arc<str>,
    /// What to ask.
    pub kind: ProbeKind,
}

/// What a probe asks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeKind {
    /// One HTTP/1.1 request.
    Http(HttpProbe),
    /// One grpc.health.v1 Check.
    Grpc(GrpcProbe),
    /// One TCP connection.
    Tcp(TcpProbe),
    /// Nothing: the owner pushes results.
    Report,
}

impl ProbeKind {
    /// The kind's name, as in the proto.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Grpc(_) => "grpc",
            Self::Tcp(_) => "tcp",
            Self::Report => "report",
        }
    }

    /// Where it connects to; none for `report`.
    pub fn endpoint(&self) -> Option<&HostPort> {
        match self {
            Self::Http(p) => Some(&p.url.endpoint),
            Self::Grpc(p) => Some(&p.target),
            Self::Tcp(p) => Some(&p.address),
            Self::Report => None,
        }
    }
}

/// One HTTP/1.1 request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HttpProbe {
    /// What to request.
    pub url: HttpUrl,
    /// HEAD instead of GET.
    pub head: bool,
    /// Statuses that pass besides 200 to 299; sorted.
    pub expected_statuses: Vec<u16>,
    /// Statuses that say no; sorted.
    pub no_statuses: Vec<u16>,
    /// Name to verify and to send as SNI, instead of the URL's host.
    pub server_name: Option<String>,
}

/// An `http` or `https` URL, taken apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HttpUrl {
    /// As it was sent.
    pub text: String,
    /// Whether it is `https`.
    pub https: bool,
    /// Host and port, the scheme's default filled in.
    pub endpoint: HostPort,
    /// What follows the authority; at least `/`.
    pub path_and_query: String,
}

/// One grpc.health.v1 Check.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GrpcProbe {
    /// Where.
    pub target: HostPort,
    /// The service to ask about; empty for the whole server.
    pub service: String,
    /// TLS, with the name to verify (none: the target's host). Unset: plaintext.
    pub tls: Option<Tls>,
}

/// How a probe speaks TLS.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Tls {
    /// Name to verify and to send as SNI, instead of the target's host.
    pub server_name: Option<String>,
}

/// One TCP connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TcpProbe {
    /// Where.
    pub address: HostPort,
}

/// Host and port. An IPv6 literal is held without brackets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostPort {
    /// Name or address literal.
    pub host: String,
    /// Never 0.
    pub port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// How one run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The target works.
    Pass,
    /// The target itself said that it does not.
    No(Why),
    /// The target could not be asked.
    Error(ErrorClass, Why),
}

impl Outcome {
    /// `NO`, with a code and a text.
    pub fn no(reason: &'static str, message: &str) -> Self {
        Self::No(Why::new(reason, message))
    }

    /// `ERROR` of a class, with a text; the code is the class's.
    pub fn error(class: ErrorClass, message: &str) -> Self {
        Self::Error(class, Why::new(class.reason(), message))
    }

    /// For metrics and logs.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::No(_) => "no",
            Self::Error(..) => "error",
        }
    }
}

/// A code for machines and a text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// UPPER_SNAKE.
    pub reason: Cow<'static, str>,
    /// At most 256 characters, without control characters.
    pub message: Arc<str>,
}

impl Why {
    /// A code and a text from anywhere, cleaned.
    pub fn new(reason: impl Into<Cow<'static, str>>, message: &str) -> Self {
        Self { reason: reason.into(), message: super::name::clean(message, MAX_MESSAGE).into() }
    }
}

/// What kept a probe from asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorClass {
    /// The name could not be resolved.
    Dns,
    /// No connection.
    Connect,
    /// TLS failed.
    Tls,
    /// The deadline passed.
    Timeout,
    /// A status that says nothing about the tool.
    Status,
    /// Broken protocol.
    Protocol,
    /// Larger than the cap.
    Oversize,
    /// No new result for the TTL.
    Stale,
    /// The egress guard refused.
    Blocked,
    /// The owner reported an error.
    Reported,
}

impl ErrorClass {
    /// All classes.
    pub const ALL: [Self; 10] = [
        Self::Dns,
        Self::Connect,
        Self::Tls,
        Self::Timeout,
        Self::Status,
        Self::Protocol,
        Self::Oversize,
        Self::Stale,
        Self::Blocked,
        Self::Reported,
    ];

    /// The class as a code.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Dns => "DNS",
            Self::Connect => "CONNECT",
            Self::Tls => "TLS",
            Self::Timeout => "TIMEOUT",
            Self::Status => "STATUS",
            Self::Protocol => "PROTOCOL",
            Self::Oversize => "OVERSIZE",
            Self::Stale => "STALE",
            Self::Blocked => "BLOCKED",
            Self::Reported => "REPORTED",
        }
    }
}

/// One finished run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// How it ended.
    pub outcome: Outcome,
    /// From start to end.
    pub duration: Duration,
    /// The address that was connected to, if one was.
    pub address: Option<std::net::SocketAddr>,
}

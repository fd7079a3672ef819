//! What a probe asks, and how one run of it can end.

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

mod carry;
mod stored;

pub use carry::{
    ClientIdentity, HIDDEN, Header, HeaderValue, Method, RULE_SUFFIX, Secret, SecretName, Tls, fits_header,
};

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
    /// An MCP server's initialize and ping.
    Mcp(McpProbe),
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
            Self::Mcp(_) => "mcp",
            Self::Report => "report",
        }
    }

    /// What a run sends, for operators: never a query, which may hold a secret. Empty for `report`.
    pub fn sent(&self) -> String {
        match self {
            Self::Http(p) => {
                let method = match &p.method {
                    Method::Get => "GET",
                    Method::Head => "HEAD",
                    Method::Post { .. } => "POST",
                };
                format!("{method} {}", p.url.without_query())
            }
            Self::Grpc(p) => {
                let whole = if p.service.is_empty() { "the whole server" } else { &*p.service };
                format!("grpc.health.v1.Health/Check of {whole} to {}", p.target)
            }
            Self::Tcp(p) => format!("a connection to {}", p.address),
            Self::Mcp(p) => format!("initialize and ping to {}", p.url.without_query()),
            Self::Report => String::new(),
        }
    }

    /// Where it connects to; none for `report`.
    pub fn endpoint(&self) -> Option<&HostPort> {
        match self {
            Self::Http(p) => Some(&p.url.endpoint),
            Self::Grpc(p) => Some(&p.target),
            Self::Tcp(p) => Some(&p.address),
            Self::Mcp(p) => Some(&p.url.endpoint),
            Self::Report => None,
        }
    }

    /// The headers that it sends besides its own.
    pub fn headers(&self) -> &[Header] {
        match self {
            Self::Http(p) => &p.headers,
            Self::Grpc(p) => &p.headers,
            Self::Mcp(p) => &p.headers,
            Self::Tcp(_) | Self::Report => &[],
        }
    }

    /// How it speaks TLS, where that is said.
    pub fn tls(&self) -> Option<&Tls> {
        match self {
            Self::Http(p) => p.tls.as_ref(),
            Self::Grpc(p) => p.tls.as_ref(),
            Self::Mcp(p) => p.tls.as_ref(),
            Self::Tcp(_) | Self::Report => None,
        }
    }

    /// Whether it is of use only with a secret that the operator mounts.
    pub fn refers_to_secrets(&self) -> bool {
        self.headers().iter().any(|header| header.value.reference().is_some())
            || self.tls().is_some_and(|tls| tls.ca.is_some() || tls.client.is_some())
    }

    /// Whether its bytes travel through TLS.
    pub fn encrypts(&self) -> bool {
        match self {
            Self::Http(p) => p.url.https,
            Self::Grpc(p) => p.tls.is_some(),
            Self::Mcp(p) => p.url.https,
            Self::Tcp(_) | Self::Report => false,
        }
    }
}

/// One HTTP/1.1 request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "stored::HttpProbe")]
pub struct HttpProbe {
    /// What to request.
    pub url: HttpUrl,
    /// How.
    pub method: Method,
    /// Further headers, sorted by name; no name twice.
    pub headers: Vec<Header>,
    /// Statuses that pass besides 200 to 299; sorted.
    pub expected_statuses: Vec<u16>,
    /// Statuses that say no; sorted.
    pub no_statuses: Vec<u16>,
    /// How it speaks TLS, where that is not as always; only with `https`.
    pub tls: Option<Tls>,
}

impl HttpProbe {
    /// A plain GET.
    pub fn get(url: HttpUrl) -> Self {
        Self {
            url,
            method: Method::Get,
            headers: Vec::new(),
            expected_statuses: Vec::new(),
            no_statuses: Vec::new(),
            tls: None,
        }
    }
}

/// An `http` or `https` URL, taken apart. Its query may hold a token, so `Debug` hides it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

/// Stands for a query that is not told. It is no URL's, so that a URL from a reply is never registered by mistake.
pub const HIDDEN_QUERY: &str = "?\u{2026}";

impl HttpUrl {
    /// As replies show it: without what its query says.
    pub fn shown(&self) -> String {
        shown_url(&self.text)
    }

    /// Where a request goes, with the port: nothing of its query.
    fn without_query(&self) -> String {
        let scheme = if self.https { "https" } else { "http" };
        let path = self.path_and_query.split('?').next().unwrap_or_default();
        format!("{scheme}://{}{path}", self.endpoint)
    }

    /// The query, without its `?`.
    pub fn query(&self) -> Option<&str> {
        self.path_and_query.split_once('?').map(|(_, query)| query)
    }
}

impl fmt::Debug for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HttpUrl").field(&self.shown()).finish()
    }
}

/// A URL without what its query says.
pub fn shown_url(text: &str) -> String {
    match text.split_once('?') {
        Some((before, _)) => format!("{before}{HIDDEN_QUERY}"),
        None => text.to_owned(),
    }
}

/// One grpc.health.v1 Check.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GrpcProbe {
    /// Where.
    pub target: HostPort,
    /// The service to ask about; empty for the whole server.
    pub service: String,
    /// Metadata of the call, sorted by name; no name twice.
    #[serde(default)]
    pub headers: Vec<Header>,
    /// How it speaks TLS. Unset: plaintext.
    pub tls: Option<Tls>,
}

/// One TCP connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TcpProbe {
    /// Where.
    pub address: HostPort,
}

/// initialize and ping over MCP's Streamable HTTP.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct McpProbe {
    /// The MCP endpoint.
    pub url: HttpUrl,
    /// Further headers of every request, sorted by name; no name twice.
    pub headers: Vec<Header>,
    /// Statuses that pass although nothing of MCP comes with them; sorted, none from 200 to 299.
    pub expected_statuses: Vec<u16>,
    /// How it speaks TLS, where that is not as always; only with `https`.
    pub tls: Option<Tls>,
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
    /// A secret that the probe refers to is not there, or not for this target.
    Secret,
}

impl ErrorClass {
    /// All classes.
    pub const ALL: [Self; 11] = [
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
        Self::Secret,
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
            Self::Secret => "SECRET",
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

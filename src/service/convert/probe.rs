//! Probes.

use std::collections::HashMap;

use super::{Faults, carry, scalar, target};
use crate::{
    core::{
        name::quote,
        probe::{
            GrpcProbe, HttpProbe, HttpUrl, McpProbe, Method, ProbeKind, ProbeSpec, Secret, TcpProbe, Tls,
        },
        refusal::Fault,
    },
    proto::v1::{self, probe_spec::Kind},
};

/// Most probes of one tool.
pub(crate) const MAX_PROBES: usize = 4;
/// Longest name of a probe.
const MAX_NAME: usize = 63;
/// Most entries of a list of statuses.
const MAX_STATUSES: usize = 32;
/// Longest name of a gRPC service, in characters.
const MAX_SERVICE: usize = 256;

/// Parses all probes of a tool. What comes back is whole only if no fault was added.
pub(super) fn all(faults: &mut Faults, given: Vec<v1::ProbeSpec>) -> Vec<ProbeSpec> {
    if given.len() > MAX_PROBES {
        faults.add("probes", format!("has {} probes; at most {MAX_PROBES} are allowed", given.len()));
        return Vec::new();
    }
    let mut probes = Vec::with_capacity(given.len());
    let mut names: HashMap<String, usize> = HashMap::new();
    for (index, pb) in given.into_iter().enumerate() {
        let at = format!("probes[{index}]");
        let name = name(faults, &at, &pb);
        if let Some(name) = &name
            && let Some(first) = names.insert(name.clone(), index)
        {
            let hint = match pb.name.as_str() {
                "" => " (a probe without a name is called after its kind)",
                _ => "",
            };
            let name = quote(name);
            faults.add(
                format!("{at}.name"),
                format!("{name} is the name of probes[{first}] already{hint}; give each probe its own name"),
            );
        }
        let kind = kind(faults, &at, pb.kind);
        if let (Some(name), Some(kind)) = (name, kind) {
            probes.push(ProbeSpec { name: name.into(), kind });
        }
    }
    probes
}

/// The probe's own name, or its kind's.
fn name(faults: &mut Faults, at: &str, pb: &v1::ProbeSpec) -> Option<String> {
    let given = pb.name.as_str();
    if given.is_empty() {
        return pb.kind.as_ref().map(|kind| label(kind).to_owned());
    }
    let fits =
        given.len() <= MAX_NAME && given.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
    if !fits {
        let given = quote(given);
        faults.add(
            format!("{at}.name"),
            format!("name {given} must be 1 to {MAX_NAME} characters of [A-Za-z0-9_.-]"),
        );
    }
    fits.then(|| given.to_owned())
}

fn label(kind: &Kind) -> &'static str {
    match kind {
        Kind::Http(_) => "http",
        Kind::Grpc(_) => "grpc",
        Kind::Tcp(_) => "tcp",
        Kind::Mcp(_) => "mcp",
        Kind::Report(_) => "report",
    }
}

fn kind(faults: &mut Faults, at: &str, given: Option<Kind>) -> Option<ProbeKind> {
    match given {
        None => {
            faults.add(at, "has no kind; set one of http, grpc, tcp, mcp and report");
            None
        }
        Some(Kind::Http(pb)) => http(faults, &format!("{at}.http"), pb).map(ProbeKind::Http),
        Some(Kind::Grpc(pb)) => grpc(faults, &format!("{at}.grpc"), pb).map(ProbeKind::Grpc),
        Some(Kind::Tcp(pb)) => {
            let address =
                faults.keep(at_field(target::host_port(&pb.address), &format!("{at}.tcp.address")))?;
            Some(ProbeKind::Tcp(TcpProbe { address }))
        }
        Some(Kind::Mcp(pb)) => mcp(faults, &format!("{at}.mcp"), pb).map(ProbeKind::Mcp),
        Some(Kind::Report(_)) => Some(ProbeKind::Report),
    }
}

fn http(faults: &mut Faults, at: &str, pb: v1::HttpProbe) -> Option<HttpProbe> {
    let url = faults.keep(at_field(target::http_url(&pb.url), &format!("{at}.url")));
    let method = faults.keep(scalar::known::<v1::HttpMethod>(&format!("{at}.method"), pb.method));
    let expected_statuses = statuses(faults, &format!("{at}.expected_statuses"), pb.expected_statuses);
    let no_statuses = statuses(faults, &format!("{at}.no_statuses"), pb.no_statuses);
    let both: Vec<String> =
        no_statuses.iter().filter(|s| expected_statuses.contains(s)).map(u16::to_string).collect();
    if !both.is_empty() {
        let both = both.join(", ");
        faults.add(format!("{at}.no_statuses"), format!("{both} can't be both expected and a no"));
    }
    let headers = carry::headers(faults, at, pb.headers, &[]);
    let tls = url_tls(faults, at, url.as_ref(), pb.tls);
    carry::insecure(faults, at, &headers, tls.as_ref());
    let method = method.and_then(|method| http_method(faults, at, method, pb.body));
    Some(HttpProbe { url: url?, method: method?, headers, expected_statuses, no_statuses, tls })
}

/// TLS settings beside a URL.
fn url_tls(faults: &mut Faults, at: &str, url: Option<&HttpUrl>, given: Option<v1::ProbeTls>) -> Option<Tls> {
    if given.is_some() && url.is_some_and(|url| !url.https) {
        faults.add(format!("{at}.tls"), "is for https:// only; leave it out or change the url");
    }
    // Settings that change nothing are as good as none.
    given.map(|tls| carry::tls(faults, at, tls)).filter(|tls| *tls != Tls::default())
}

fn mcp(faults: &mut Faults, at: &str, pb: v1::McpProbe) -> Option<McpProbe> {
    let url = faults.keep(at_field(target::http_url(&pb.url), &format!("{at}.url")));
    let field = format!("{at}.expected_statuses");
    let expected_statuses = statuses(faults, &field, pb.expected_statuses);
    if expected_statuses.iter().any(|status| (200..=299).contains(status)) {
        faults.add(field, "200 to 299 can't be listed: with them an answer of MCP has to come");
    }
    let headers = carry::headers(faults, at, pb.headers, &carry::DENIED_IN_MCP);
    let tls = url_tls(faults, at, url.as_ref(), pb.tls);
    carry::insecure(faults, at, &headers, tls.as_ref());
    Some(McpProbe { url: url?, headers, expected_statuses, tls })
}

fn http_method(
    faults: &mut Faults,
    at: &str,
    method: v1::HttpMethod,
    body: Option<v1::ProbeBody>,
) -> Option<Method> {
    let at = format!("{at}.body");
    let method = match method {
        v1::HttpMethod::Post => {
            return Some(Method::Post(match body {
                Some(body) => carry::body(faults, &at, body)?,
                None => Secret::new(""),
            }));
        }
        v1::HttpMethod::Head => Method::Head,
        v1::HttpMethod::Get | v1::HttpMethod::Unspecified => Method::Get,
    };
    if body.is_some() {
        faults.add(at, "is for HTTP_METHOD_POST only; leave it out or change the method");
    }
    Some(method)
}

fn grpc(faults: &mut Faults, at: &str, pb: v1::GrpcProbe) -> Option<GrpcProbe> {
    let target = faults.keep(at_field(target::host_port(&pb.target), &format!("{at}.target")));
    let count = pb.service.chars().count();
    if count > MAX_SERVICE {
        faults.add(
            format!("{at}.service"),
            format!("has {count} characters; at most {MAX_SERVICE} are allowed"),
        );
    }
    if pb.service.chars().any(char::is_control) {
        faults.add(format!("{at}.service"), "must not contain control characters");
    }
    let headers = carry::headers(faults, at, pb.headers, &carry::DENIED_IN_GRPC);
    let tls = pb.tls.map(|tls| carry::tls(faults, at, tls));
    carry::insecure(faults, at, &headers, tls.as_ref());
    Some(GrpcProbe { target: target?, service: pb.service, headers, tls })
}

/// Sorted and each once, so that equal probes are equal.
fn statuses(faults: &mut Faults, field: &str, given: Vec<u32>) -> Vec<u16> {
    if given.len() > MAX_STATUSES {
        faults.add(field, format!("has {} statuses; at most {MAX_STATUSES} are allowed", given.len()));
        return Vec::new();
    }
    let wrong: Vec<String> = given.iter().filter(|s| !(100..=599).contains(*s)).map(u32::to_string).collect();
    if !wrong.is_empty() {
        faults.add(field, format!("{} is not a status from 100 to 599", wrong.join(", ")));
    }
    let mut statuses: Vec<u16> = given.into_iter().filter_map(|s| u16::try_from(s).ok()).collect();
    statuses.sort_unstable();
    statuses.dedup();
    statuses
}

fn at_field<T>(judged: Result<T, String>, field: &str) -> Result<T, Fault> {
    judged.map_err(|message| Fault::new(field, message))
}

/// A probe as it was sent, with its name and without what may be a credential.
pub(super) fn to_proto(probe: &ProbeSpec) -> v1::ProbeSpec {
    let wide = |statuses: &[u16]| statuses.iter().copied().map(u32::from).collect();
    let kind = match &probe.kind {
        ProbeKind::Http(p) => Kind::Http(v1::HttpProbe {
            url: p.url.shown(),
            method: match p.method {
                Method::Get => v1::HttpMethod::Get,
                Method::Head => v1::HttpMethod::Head,
                Method::Post(_) => v1::HttpMethod::Post,
            }
            .into(),
            expected_statuses: wide(&p.expected_statuses),
            no_statuses: wide(&p.no_statuses),
            tls: p.tls.as_ref().map(carry::tls_to_proto),
            headers: carry::headers_to_proto(&p.headers),
            body: matches!(&p.method, Method::Post(body) if !body.expose().is_empty())
                .then(|| v1::ProbeBody { content: Some(v1::probe_body::Content::Hidden(true)) }),
        }),
        ProbeKind::Grpc(p) => Kind::Grpc(v1::GrpcProbe {
            target: p.target.to_string(),
            service: p.service.clone(),
            tls: p.tls.as_ref().map(carry::tls_to_proto),
            headers: carry::headers_to_proto(&p.headers),
        }),
        ProbeKind::Tcp(p) => Kind::Tcp(v1::TcpProbe { address: p.address.to_string() }),
        ProbeKind::Mcp(p) => Kind::Mcp(v1::McpProbe {
            url: p.url.shown(),
            expected_statuses: wide(&p.expected_statuses),
            tls: p.tls.as_ref().map(carry::tls_to_proto),
            headers: carry::headers_to_proto(&p.headers),
        }),
        ProbeKind::Report => Kind::Report(v1::ReportProbe {}),
    };
    v1::ProbeSpec { name: probe.name.to_string(), kind: Some(kind) }
}

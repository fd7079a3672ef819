//! What an owner registers, and what the registry keeps of it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    hash::ContentHash,
    labels,
    name::{ToolKey, ToolName, quote},
    probe::{
        GrpcProbe, Header, HeaderValue, HttpProbe, McpProbe, Method, ProbeKind, ProbeSpec, TcpProbe, Tls,
    },
    schema::{self, Warning},
};

/// A valid tool spec. The JSON fields are texts, exactly as they were sent; empty means absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Unique in the namespace.
    pub name: ToolName,
    /// For people.
    pub title: String,
    /// For the model.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: String,
    /// JSON Schema of the result.
    pub output_schema: String,
    /// Where the tool is called; opaque.
    pub endpoint: String,
    /// MCP annotations.
    pub annotations: String,
    /// Further MCP fields.
    pub extra: String,
    /// The owner's labels.
    pub labels: BTreeMap<String, String>,
    /// How to find out whether it works.
    pub probes: Vec<ProbeSpec>,
    /// The four durations and the thresholds that the owner gave.
    pub windows: GivenWindows,
    /// How long it may be unavailable before it is unregistered by itself. None: for ever.
    pub unregister_after: Option<Duration>,
}

impl ToolSpec {
    /// A tool of which nothing is said but its name.
    pub fn new(name: ToolName) -> Self {
        Self {
            name,
            title: String::new(),
            description: String::new(),
            input_schema: String::new(),
            output_schema: String::new(),
            endpoint: String::new(),
            annotations: String::new(),
            extra: String::new(),
            labels: BTreeMap::new(),
            probes: Vec::new(),
            windows: GivenWindows::default(),
            unregister_after: None,
        }
    }
}

/// The durations and thresholds that an owner gave; what is left out is derived from the server's defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GivenWindows {
    /// How often each probe runs.
    pub interval: Option<Duration>,
    /// The one deadline of a run.
    pub timeout: Option<Duration>,
    /// How long a result may be used without a new one.
    pub ttl: Option<Duration>,
    /// How long a success outlives errors.
    pub grace: Option<Duration>,
    /// How many passes in a row make an unavailable probe available.
    pub success_threshold: Option<u32>,
    /// How many times an available probe must say no to be unavailable.
    pub failure_threshold: Option<u32>,
}

/// A registered tool: what is durable of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTool {
    /// Namespace and name.
    pub key: ToolKey,
    /// What the owner asked for.
    pub spec: Arc<ToolSpec>,
    /// `sha256:...` over the spec's content without its labels.
    pub spec_hash: Arc<str>,
    /// Who registered it.
    pub owner: Arc<str>,
    /// A new number per different spec, from the store's counter: it never repeats.
    pub generation: u64,
    /// Whether the server's manifest declares it.
    pub from_manifest: bool,
    /// The labels that policies know it by, where its owner says others now: those of its first registration under this name, or
    /// those that an operator approved last. None: those of the spec.
    pub approved: Option<Arc<BTreeMap<String, String>>>,
    /// Wall clock, milliseconds since 1970.
    pub create_time_ms: i64,
    /// Wall clock, milliseconds since 1970.
    pub update_time_ms: i64,
}

impl StoredTool {
    /// What is approved once its labels are `labels`: nothing that an owner says approves itself.
    pub fn approved_beside(
        &self,
        labels: &BTreeMap<String, String>,
    ) -> Option<Arc<BTreeMap<String, String>>> {
        let approved = self.approved.as_deref().unwrap_or(&self.spec.labels);
        let kept = || self.approved.clone().unwrap_or_else(|| Arc::new(approved.clone()));
        (approved != labels).then(kept)
    }
}

/// The hash of a spec: `sha256:` and 64 hex digits over everything but the labels.
///
/// JSON counts as its text without insignificant white space, so key order and number literals make a difference.
/// Defaults are not filled in: what was left out differs from the same thing written out.
///
/// What no reply tells of a probe (values of headers, bodies, queries) is left out: everybody sees the hash, and a weak
/// password could be guessed by it. Two specs are the same if their hashes and their probes are: [`same_spec`].
pub fn spec_hash(spec: &ToolSpec) -> Arc<str> {
    // Every field by name: a new one must be thought of here.
    let ToolSpec {
        name,
        title,
        description,
        input_schema,
        output_schema,
        endpoint,
        annotations,
        extra,
        labels: _,
        probes,
        windows: GivenWindows { interval, timeout, ttl, grace, success_threshold, failure_threshold },
        unregister_after,
    } = spec;
    let mut hash = ContentHash::new("toolpulse tool spec 1");
    hash.text(name.as_str()).text(title).text(description).text(endpoint);
    for json in [input_schema, output_schema, annotations, extra] {
        hash.text(&schema::minify(json));
    }
    for window in [interval, timeout, ttl, grace] {
        option(&mut hash, window.as_ref(), |hash, w| {
            hash.number(w.as_nanos());
        });
    }
    hash.number(probes.len() as u128);
    for ProbeSpec { name, kind } in probes {
        hash.text(name).text(kind.label());
        hash_kind(&mut hash, kind);
    }
    // These came later: a spec without them has the hash that it always had.
    let later = [
        ("success_threshold", success_threshold.map(u128::from)),
        ("failure_threshold", failure_threshold.map(u128::from)),
        ("unregister_after", unregister_after.map(|after| after.as_nanos())),
    ];
    for (field, value) in later {
        if let Some(value) = value {
            hash.text(field).number(value);
        }
    }
    format!("sha256:{}", hash.finish_hex()).into()
}

/// Whether two specs, of these hashes, are the same but for their labels.
pub fn same_spec(a: (&str, &ToolSpec), b: (&str, &ToolSpec)) -> bool {
    a.0 == b.0 && a.1.probes == b.1.probes
}

/// Something in a spec that is allowed and still worth telling its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecWarning {
    /// Path of the field and, after `#`, JSON pointer to the value.
    pub field: String,
    /// UPPER_SNAKE.
    pub code: &'static str,
    /// What is odd.
    pub message: String,
}

/// What is odd about a spec. Computed from the spec alone, so that nothing needs to be stored.
pub fn warnings(spec: &ToolSpec) -> Vec<SpecWarning> {
    let mut all = schema_warnings(spec);
    all.extend(label_warning(spec));
    all.extend(tls_warnings(spec));
    all
}

/// Probes that take any certificate.
pub fn tls_warnings(spec: &ToolSpec) -> impl Iterator<Item = SpecWarning> {
    let blind = |probe: &ProbeSpec| probe.kind.tls().is_some_and(|tls| tls.insecure_skip_verify);
    spec.probes.iter().enumerate().filter(move |(_, probe)| blind(probe)).map(|(i, probe)| SpecWarning {
        field: format!("probes[{i}].{}.tls.insecure_skip_verify", probe.kind.label()),
        code: "TLS_NOT_VERIFIED",
        message: format!(
            "probe {} takes any certificate: anybody between can answer for the target",
            quote(&probe.name)
        ),
    })
}

/// What is odd about the labels of a spec.
pub fn label_warning(spec: &ToolSpec) -> Option<SpecWarning> {
    let text = spec.labels.get(labels::PRIORITY)?;
    labels::priority(&spec.labels).is_none().then(|| SpecWarning {
        field: format!("labels['{}']", labels::PRIORITY),
        code: "PRIORITY_NOT_INTEGER",
        message: format!("priority {} is no integer from -2^63 to 2^63-1; it counts as 0", quote(text)),
    })
}

/// What is odd about the schemas of a spec.
pub fn schema_warnings(spec: &ToolSpec) -> Vec<SpecWarning> {
    let texts = [("input_schema_json", &spec.input_schema), ("output_schema_json", &spec.output_schema)];
    let found = texts.into_iter().filter_map(|(field, text)| Some((field, schema::tree::Json::parse(text)?)));
    found
        .flat_map(|(field, schema)| {
            schema::lint::warnings(&schema).into_iter().map(move |Warning { pointer, code, message }| {
                let field = if pointer.is_empty() { field.to_owned() } else { format!("{field}#{pointer}") };
                SpecWarning { field, code, message }
            })
        })
        .collect()
}

fn hash_kind(hash: &mut ContentHash, kind: &ProbeKind) {
    match kind {
        ProbeKind::Http(HttpProbe { url, method, headers, expected_statuses, no_statuses, tls }) => {
            let method = match method {
                Method::Get => 0,
                Method::Head => 1,
                Method::Post(_hidden) => 2,
            };
            hash.text(&url.shown()).number(method);
            for statuses in [expected_statuses, no_statuses] {
                hash_statuses(hash, statuses);
            }
            hash_name(hash, tls.as_ref().and_then(|tls| tls.server_name.as_ref()));
            hash_carry(hash, headers, tls.as_ref());
        }
        ProbeKind::Grpc(GrpcProbe { target, service, headers, tls }) => {
            hash.text(&target.to_string()).text(service);
            option(hash, tls.as_ref(), |hash, tls| hash_name(hash, tls.server_name.as_ref()));
            hash_carry(hash, headers, tls.as_ref());
        }
        ProbeKind::Tcp(TcpProbe { address }) => {
            hash.text(&address.to_string());
        }
        ProbeKind::Mcp(McpProbe { url, headers, expected_statuses, tls }) => {
            hash.text(&url.shown());
            hash_statuses(hash, expected_statuses);
            hash_name(hash, tls.as_ref().and_then(|tls| tls.server_name.as_ref()));
            hash_carry(hash, headers, tls.as_ref());
        }
        ProbeKind::Report => {}
    }
}

/// Only what is there, so that probes without it keep the hashes that they always had.
fn hash_carry(hash: &mut ContentHash, headers: &[Header], tls: Option<&Tls>) {
    for Header { name, value } in headers {
        let kind = match value {
            HeaderValue::Literal(_hidden) => "literal",
            HeaderValue::Secret(_) => "secret",
            HeaderValue::Bearer(_) => "bearer",
        };
        hash.text("header").text(name).text(kind);
        option(hash, value.reference(), |hash, reference| {
            hash.text(reference.as_str());
        });
    }
    // The name is hashed by the caller.
    let Some(Tls { server_name: _, ca, client, insecure_skip_verify }) = tls else { return };
    if let Some(ca) = ca {
        hash.text("ca").text(ca.as_str());
    }
    if let Some(client) = client {
        hash.text("client").text(client.cert.as_str()).text(client.key.as_str());
    }
    if *insecure_skip_verify {
        hash.text("insecure");
    }
}

fn hash_statuses(hash: &mut ContentHash, statuses: &[u16]) {
    hash.number(statuses.len() as u128);
    for status in statuses {
        hash.number((*status).into());
    }
}

fn hash_name(hash: &mut ContentHash, name: Option<&String>) {
    option(hash, name, |hash, name| {
        hash.text(name);
    });
}

/// Nothing is told apart from something, whatever the something is.
fn option<T>(hash: &mut ContentHash, value: Option<T>, some: impl FnOnce(&mut ContentHash, T)) {
    hash.number(value.is_some().into());
    if let Some(value) = value {
        some(hash, value);
    }
}

#[cfg(test)]
mod tests;

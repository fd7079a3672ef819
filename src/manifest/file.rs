//! The form of the file, and the way from it to specs.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny},
};
use serde_json::{Value, value::RawValue};
use serde_saphyr::Spanned;

use super::{
    Defaults, Manifest,
    carry::{HeaderForm, HiddenText, TlsForm, body, header, tls},
    twice,
};
use crate::{
    config::{
        self,
        yaml::{self, Fault},
    },
    proto::v1::{
        GrpcProbe, HttpMethod, HttpProbe, McpProbe, ProbeSpec, ReportProbe, TcpProbe, ToolSpec,
        probe_spec::Kind,
    },
};

/// The file. `tools` must be there, so that an empty or cut file is never taken for "no tools".
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping with the key tools")]
struct FileForm<J: JsonField> {
    owner: Option<String>,
    namespace: Option<String>,
    #[serde(bound(deserialize = "J: Deserialize<'de>"))]
    tools: Vec<ToolForm<J>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping that describes a tool")]
struct ToolForm<J: JsonField> {
    name: Spanned<String>,
    namespace: Option<String>,
    #[serde(default)]
    title: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    input_schema: J,
    #[serde(default)]
    output_schema: J,
    #[serde(default)]
    annotations: J,
    #[serde(default)]
    extra: J,
    #[serde(default)]
    endpoint: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    probes: Vec<ProbeForm>,
    interval: Option<DurationForm>,
    timeout: Option<DurationForm>,
    ttl: Option<DurationForm>,
    grace: Option<DurationForm>,
    #[serde(default)]
    success_threshold: u32,
    #[serde(default)]
    failure_threshold: u32,
    unregister_after: Option<DurationForm>,
}

/// A field that holds JSON: an object inline, or a text of JSON.
trait JsonField: Default {
    /// As JSON text; empty if unset.
    fn into_text(self) -> String;
}

/// A JSON field of a YAML file: a mapping is written out, its keys in their order.
#[derive(Debug, Default)]
struct YamlJson(String);

impl<'de> Deserialize<'de> for YamlJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Null => Ok(Self::default()),
            Value::String(text) => text_of_json(text).map(Self),
            value @ Value::Object(_) => Ok(Self(value.to_string())),
            _ => Err(D::Error::custom(NOT_JSON)),
        }
    }
}

impl JsonField for YamlJson {
    fn into_text(self) -> String {
        self.0
    }
}

/// A JSON field of a JSON file: an object stays as it is written, so that no number changes and no key that is there
/// twice goes unseen.
#[derive(Debug, Default)]
struct RawJson(String);

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        match raw.get().as_bytes().first() {
            Some(b'n') => Ok(Self::default()),
            Some(b'"') => text_of_json(serde_json::from_str(raw.get()).map_err(D::Error::custom)?).map(Self),
            Some(b'{') => Ok(Self(raw.get().to_owned())),
            _ => Err(D::Error::custom(NOT_JSON)),
        }
    }
}

impl JsonField for RawJson {
    fn into_text(self) -> String {
        self.0
    }
}

const NOT_JSON: &str = "expected a mapping, or a text that holds a JSON object";

fn text_of_json<E: serde::de::Error>(text: String) -> Result<String, E> {
    serde_json::from_str::<IgnoredAny>(&text).map_err(|e| {
        E::custom(format_args!("this text is not JSON: {}", e.to_string().replace(" at line 1", "")))
    })?;
    Ok(text.trim().to_owned())
}

#[derive(Clone, Copy, Debug)]
struct DurationForm(prost_types::Duration);

impl<'de> Deserialize<'de> for DurationForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl serde::de::Visitor<'_> for Text {
            type Value = DurationForm;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration like 500ms, 30s or 5m")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<DurationForm, E> {
                let duration = config::duration(text).map_err(E::custom)?;
                prost_types::Duration::try_from(duration).map(DurationForm).map_err(E::custom)
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<DurationForm, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(Text)
    }
}

#[derive(Debug, Deserialize)]
#[serde(try_from = "ProbeFields")]
struct ProbeForm(ProbeSpec);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping like `http: {url: ...}`")]
struct ProbeFields {
    #[serde(default)]
    name: String,
    http: Option<HttpForm>,
    grpc: Option<GrpcForm>,
    tcp: Option<TcpForm>,
    mcp: Option<McpForm>,
    report: Option<ReportForm>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping like `{url: ...}`")]
struct HttpForm {
    url: HiddenText,
    #[serde(default)]
    method: MethodForm,
    #[serde(default)]
    expected_statuses: Vec<u32>,
    #[serde(default)]
    no_statuses: Vec<u32>,
    tls: Option<TlsForm>,
    #[serde(default)]
    headers: Vec<HeaderForm>,
    body: Option<HiddenText>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum MethodForm {
    #[default]
    Get,
    Head,
    Post,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping like `{target: HOST:PORT}`")]
struct GrpcForm {
    target: String,
    #[serde(default)]
    service: String,
    tls: Option<TlsForm>,
    #[serde(default)]
    headers: Vec<HeaderForm>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping like `{address: HOST:PORT}`")]
struct TcpForm {
    address: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping like `{url: ...}`")]
struct McpForm {
    url: HiddenText,
    #[serde(default)]
    expected_statuses: Vec<u32>,
    tls: Option<TlsForm>,
    #[serde(default)]
    headers: Vec<HeaderForm>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an empty mapping: `{}`")]
struct ReportForm {}

/// Parses a text. JSON goes through a JSON parser, as YAML's rules for texts and numbers differ.
pub(super) fn parse(text: &str, defaults: Defaults<'_>) -> Result<Manifest, Fault> {
    if text.trim_start().starts_with('{') {
        match serde_json::from_str::<FileForm<RawJson>>(text) {
            Ok(form) => return build(form, defaults),
            // JSON, and wrong. Otherwise it may still be YAML: `{tools: []}`.
            Err(e) if e.is_data() => return Err(json_fault(&e)),
            Err(_) => {}
        }
    }
    build(yaml::from_str::<FileForm<YamlJson>>(text)?, defaults)
}

/// The parser's text ends in the place that we put in front.
fn json_fault(error: &serde_json::Error) -> Fault {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = text.strip_suffix(&place).unwrap_or(&text).to_owned();
    Fault { line: Some(error.line() as u64), message }
}

fn build<J: JsonField>(form: FileForm<J>, defaults: Defaults<'_>) -> Result<Manifest, Fault> {
    let namespace = form.namespace.as_deref().unwrap_or(defaults.namespace);
    let mut seen: HashMap<(String, String), Place> = HashMap::with_capacity(form.tools.len());
    let mut tools = Vec::with_capacity(form.tools.len());
    let mut lines = Vec::with_capacity(form.tools.len());
    for (index, tool) in form.tools.into_iter().enumerate() {
        let place = Place { index, line: Some(tool.name.referenced.line()).filter(|line| *line > 0) };
        let namespace = tool.namespace.clone().unwrap_or_else(|| namespace.to_owned());
        let spec = spec(tool);
        if let Some(first) = seen.insert((namespace.clone(), spec.name.clone()), place) {
            let message =
                format!("{} is declared twice; the first is {first}", twice(&namespace, &spec.name));
            return Err(Fault { line: place.line, message });
        }
        tools.push((namespace, spec));
        lines.push(place.line);
    }
    Ok(Manifest { owner: form.owner.unwrap_or_else(|| defaults.owner.to_owned()), tools, lines })
}

/// Where a tool stands: its line, if the parser knows lines.
#[derive(Clone, Copy)]
struct Place {
    index: usize,
    line: Option<u64>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "in line {line}"),
            None => write!(f, "tools[{}]", self.index),
        }
    }
}

fn spec<J: JsonField>(tool: ToolForm<J>) -> ToolSpec {
    ToolSpec {
        name: tool.name.value,
        title: tool.title,
        description: tool.description,
        input_schema_json: tool.input_schema.into_text(),
        output_schema_json: tool.output_schema.into_text(),
        endpoint: tool.endpoint,
        annotations_json: tool.annotations.into_text(),
        extra_json: tool.extra.into_text(),
        labels: tool.labels.into_iter().collect(),
        probes: tool.probes.into_iter().map(|probe| probe.0).collect(),
        interval: tool.interval.map(|d| d.0),
        timeout: tool.timeout.map(|d| d.0),
        ttl: tool.ttl.map(|d| d.0),
        grace: tool.grace.map(|d| d.0),
        success_threshold: tool.success_threshold,
        failure_threshold: tool.failure_threshold,
        unregister_after: tool.unregister_after.map(|d| d.0),
    }
}

impl TryFrom<ProbeFields> for ProbeForm {
    type Error = &'static str;

    fn try_from(fields: ProbeFields) -> Result<Self, Self::Error> {
        let kinds = [
            fields.http.map(|http| {
                Kind::Http(HttpProbe {
                    url: http.url.into(),
                    method: match http.method {
                        MethodForm::Get => HttpMethod::Unspecified,
                        MethodForm::Head => HttpMethod::Head,
                        MethodForm::Post => HttpMethod::Post,
                    }
                    .into(),
                    expected_statuses: http.expected_statuses,
                    no_statuses: http.no_statuses,
                    tls: http.tls.map(tls),
                    headers: http.headers.into_iter().map(header).collect(),
                    body: http.body.map(body),
                })
            }),
            fields.grpc.map(|grpc| {
                Kind::Grpc(GrpcProbe {
                    target: grpc.target,
                    service: grpc.service,
                    tls: grpc.tls.map(tls),
                    headers: grpc.headers.into_iter().map(header).collect(),
                })
            }),
            fields.tcp.map(|tcp| Kind::Tcp(TcpProbe { address: tcp.address })),
            fields.mcp.map(|mcp| {
                Kind::Mcp(McpProbe {
                    url: mcp.url.into(),
                    expected_statuses: mcp.expected_statuses,
                    tls: mcp.tls.map(tls),
                    headers: mcp.headers.into_iter().map(header).collect(),
                })
            }),
            fields.report.map(|ReportForm {}| Kind::Report(ReportProbe {})),
        ];
        let mut kinds = kinds.into_iter().flatten();
        let (Some(kind), None) = (kinds.next(), kinds.next()) else {
            return Err("a probe is exactly one of http, grpc, tcp, mcp and report (`report: {}`)");
        };
        Ok(Self(ProbeSpec { name: fields.name, kind: Some(kind) }))
    }
}

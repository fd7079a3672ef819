//! The form of the file, and the way from it to specs.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny},
};
use serde_json::Value;
use serde_saphyr::Spanned;

use super::{Defaults, Manifest, twice};
use crate::{
    config::{
        self,
        yaml::{self, Fault},
    },
    proto::v1::{
        GrpcProbe, HttpMethod, HttpProbe, ProbeSpec, ProbeTls, ReportProbe, TcpProbe, ToolSpec,
        probe_spec::Kind,
    },
};

/// The file. `tools` must be there, so that an empty or cut file is never taken for "no tools".
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping with the key tools")]
struct FileForm {
    owner: Option<String>,
    namespace: Option<String>,
    tools: Vec<ToolForm>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping that describes a tool")]
struct ToolForm {
    name: Spanned<String>,
    namespace: Option<String>,
    #[serde(default)]
    title: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    input_schema: JsonText,
    #[serde(default)]
    output_schema: JsonText,
    #[serde(default)]
    annotations: JsonText,
    #[serde(default)]
    extra: JsonText,
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
}

/// JSON text: given as such, or as a mapping that is written out with its keys in their order.
#[derive(Debug, Default)]
struct JsonText(String);

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Null => Ok(Self::default()),
            Value::String(text) => {
                serde_json::from_str::<IgnoredAny>(&text)
                    .map_err(|e| D::Error::custom(format_args!("this text is not JSON: {e}")))?;
                Ok(Self(text.trim().to_owned()))
            }
            value @ Value::Object(_) => Ok(Self(value.to_string())),
            _ => Err(D::Error::custom("expected a mapping, or a text that holds a JSON object")),
        }
    }
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
    report: Option<ReportForm>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping like `{url: ...}`")]
struct HttpForm {
    url: String,
    #[serde(default)]
    method: MethodForm,
    #[serde(default)]
    expected_statuses: Vec<u32>,
    #[serde(default)]
    no_statuses: Vec<u32>,
    tls: Option<TlsForm>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum MethodForm {
    #[default]
    Get,
    Head,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping like `{target: HOST:PORT}`")]
struct GrpcForm {
    target: String,
    #[serde(default)]
    service: String,
    tls: Option<TlsForm>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping like `{address: HOST:PORT}`")]
struct TcpForm {
    address: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an empty mapping: `{}`")]
struct ReportForm {}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping: `{}` or `{server_name: ...}`")]
struct TlsForm {
    #[serde(default)]
    server_name: String,
}

/// Parses a text. JSON goes through a JSON parser, whose rules for texts differ from YAML's; what that refuses is
/// still YAML, perhaps (`{tools: []}`), and then YAML's error is the one to show.
pub(super) fn parse(text: &str, defaults: Defaults<'_>) -> Result<Manifest, Fault> {
    let json = text.trim_start().starts_with('{');
    let form = match json.then(|| serde_json::from_str::<FileForm>(text)) {
        Some(Ok(form)) => form,
        _ => yaml::from_str::<FileForm>(text)?,
    };
    build(form, defaults)
}

fn build(form: FileForm, defaults: Defaults<'_>) -> Result<Manifest, Fault> {
    let namespace = form.namespace.as_deref().unwrap_or(defaults.namespace);
    let mut seen: HashMap<(String, String), Place> = HashMap::with_capacity(form.tools.len());
    let mut tools = Vec::with_capacity(form.tools.len());
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
    }
    Ok(Manifest { owner: form.owner.unwrap_or_else(|| defaults.owner.to_owned()), tools })
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

fn spec(tool: ToolForm) -> ToolSpec {
    ToolSpec {
        name: tool.name.value,
        title: tool.title,
        description: tool.description,
        input_schema_json: tool.input_schema.0,
        output_schema_json: tool.output_schema.0,
        endpoint: tool.endpoint,
        annotations_json: tool.annotations.0,
        extra_json: tool.extra.0,
        labels: tool.labels.into_iter().collect(),
        probes: tool.probes.into_iter().map(|probe| probe.0).collect(),
        interval: tool.interval.map(|d| d.0),
        timeout: tool.timeout.map(|d| d.0),
        ttl: tool.ttl.map(|d| d.0),
        grace: tool.grace.map(|d| d.0),
    }
}

impl TryFrom<ProbeFields> for ProbeForm {
    type Error = &'static str;

    fn try_from(fields: ProbeFields) -> Result<Self, Self::Error> {
        let tls = |tls: Option<TlsForm>| tls.map(|tls| ProbeTls { server_name: tls.server_name });
        let kind = match (fields.http, fields.grpc, fields.tcp, fields.report) {
            (Some(http), None, None, None) => Kind::Http(HttpProbe {
                url: http.url,
                method: match http.method {
                    MethodForm::Get => HttpMethod::Unspecified,
                    MethodForm::Head => HttpMethod::Head,
                }
                .into(),
                expected_statuses: http.expected_statuses,
                no_statuses: http.no_statuses,
                tls: tls(http.tls),
            }),
            (None, Some(grpc), None, None) => {
                Kind::Grpc(GrpcProbe { target: grpc.target, service: grpc.service, tls: tls(grpc.tls) })
            }
            (None, None, Some(tcp), None) => Kind::Tcp(TcpProbe { address: tcp.address }),
            (None, None, None, Some(ReportForm {})) => Kind::Report(ReportProbe {}),
            _ => return Err("a probe is exactly one of http, grpc, tcp and report (`report: {}`)"),
        };
        Ok(Self(ProbeSpec { name: fields.name, kind: Some(kind) }))
    }
}

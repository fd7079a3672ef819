//! What is wrong, and what must be said about it.

use bytes::Bytes;
use tonic::Code;
use toolpulse::proto::v1::{
    AllowedTools, ClearToolsRequest, GetAllowlistDiagnosticsRequest, GetToolRequest, HttpProbe,
    ListAvailableToolsRequest, ListNamespacesRequest, ListToolsRequest, ProbeSpec, ProbeToolRequest,
    RegisterToolRequest, RegisterToolsRequest, ReportProbeResultRequest, TcpProbe, ToolSpec,
    UnregisterToolsRequest, probe_spec::Kind,
};

use crate::{
    Call,
    support::inproc::{http, probed, report, seconds, tool},
};

/// What is sent, and what must come back: code, reason, the field that is wrong (or none), words of the message.
pub(crate) struct Row(
    pub(crate) &'static str,
    pub(crate) Call,
    pub(crate) Code,
    pub(crate) &'static str,
    pub(crate) &'static str,
    pub(crate) &'static [&'static str],
);

fn register(tool: ToolSpec) -> Call {
    Call::Register(RegisterToolRequest { tool: Some(tool), ..Default::default() })
}

fn schema(json: impl Into<String>) -> Call {
    register(ToolSpec { input_schema_json: json.into(), ..tool("new") })
}

fn window(change: impl FnOnce(&mut ToolSpec)) -> Call {
    let mut spec = probed("new", [report()]);
    change(&mut spec);
    register(spec)
}

fn probe(kind: Kind) -> Call {
    register(probed("new", [kind]))
}

pub(crate) const INVALID: Code = Code::InvalidArgument;
pub(crate) const FIELDS: &str = "INVALID_FIELDS";

/// A row about a wrong field.
fn wrong(what: &'static str, call: Call, field: &'static str, words: &'static [&'static str]) -> Row {
    Row(what, call, INVALID, FIELDS, field, words)
}

pub(crate) fn specs() -> Vec<Row> {
    let labels = |n: usize| (0..n).map(|i| (format!("k{i}"), String::new())).collect();
    let mut rows = vec![
        wrong("no tool", Call::Register(RegisterToolRequest::default()), "tool", &["must be given"]),
        wrong("an empty name", register(tool("")), "tool.name", &["1 to 128", "[A-Za-z0-9_.-]"]),
        wrong("a long name", register(tool(&"n".repeat(129))), "tool.name", &["1 to 128"]),
        wrong("a name with a space", register(tool("a b")), "tool.name", &["'a b'", "[A-Za-z0-9_.-]"]),
        wrong("a name of letters elsewhere", register(tool("é")), "tool.name", &["'é'"]),
        wrong("a name of two lines", register(tool("a\nb")), "tool.name", &["'a\\nb'"]),
        wrong("no JSON", schema("{nope"), "tool.input_schema_json", &["line 1"]),
        wrong("no object", schema("[1]"), "tool.input_schema_json", &["must be a JSON object", "an array"]),
        wrong("two values", schema("{} {}"), "tool.input_schema_json", &["trailing"]),
        wrong("a key twice", schema(r#"{"a": {"b": 1, "b": 2}}"#), "tool.input_schema_json#/a/b", &["twice"]),
        wrong("2,000 deep", schema("{\"a\":".repeat(2_000) + "1" + &"}".repeat(2_000)), "", &["64"]),
        wrong(
            "1 MiB",
            schema(format!("{{\"a\": \"{}\"}}", "x".repeat(1 << 20))),
            "tool.input_schema_json",
            &["at most 196608"],
        ),
        wrong(
            "arguments of another type",
            schema(r#"{"type": "array"}"#),
            "tool.input_schema_json#/type",
            &["\"object\""],
        ),
        wrong(
            "a field again",
            register(ToolSpec { extra_json: r#"{"name": "x"}"#.into(), ..tool("new") }),
            "tool.extra_json#/name",
            &["must not repeat name"],
        ),
        wrong(
            "a long description",
            register(ToolSpec { description: "d".repeat(16_385), ..tool("new") }),
            "tool.description",
            &["at most 16384"],
        ),
        wrong(
            "33 labels",
            register(ToolSpec { labels: labels(33), ..tool("new") }),
            "tool.labels",
            &["33", "at most 32"],
        ),
        wrong(
            "a label's key",
            register(ToolSpec { labels: [("a b".into(), String::new())].into(), ..tool("new") }),
            "tool.labels['a b']",
            &["[A-Za-z0-9_./-]"],
        ),
        wrong(
            "5 probes",
            register(probed("new", [report(), report(), report(), report(), report()])),
            "tool.probes",
            &["5", "at most 4"],
        ),
        wrong(
            "a probe without a scheme",
            probe(http("example.com/health")),
            "tool.probes[0].http.url",
            &["no scheme", "http://"],
        ),
        wrong(
            "a probe of another scheme",
            probe(http("file:///etc/passwd")),
            "tool.probes[0].http.url",
            &["'file'", "http and https"],
        ),
        wrong(
            "a probe without a port",
            probe(Kind::Tcp(TcpProbe { address: "example.com".into() })),
            "tool.probes[0].tcp.address",
            &["host:port"],
        ),
        wrong(
            "a probe without a kind",
            register(ToolSpec { probes: vec![ProbeSpec::default()], ..tool("new") }),
            "tool.probes[0]",
            &["http, grpc, tcp, mcp and report"],
        ),
        wrong(
            "a probe to a private address",
            probe(http("http://10.0.0.1/")),
            "tool.probes[0].http",
            &["private", "TOOLPULSE_PROBE_ALLOW"],
        ),
        wrong(
            "an unknown method",
            probe(Kind::Http(HttpProbe { url: "http://h/".into(), method: 9, ..Default::default() })),
            "tool.probes[0].http.method",
            &["9", "HttpMethod"],
        ),
        wrong(
            "a long owner",
            Call::Register(RegisterToolRequest {
                tool: Some(tool("new")),
                owner: "o".repeat(129),
                ..Default::default()
            }),
            "owner",
            &["at most 128"],
        ),
    ];
    rows.extend([
        wrong(
            "a TTL that does not fit",
            window(|s| s.ttl = Some(seconds(13))),
            "tool.ttl",
            &["13s", "interval 10s", "timeout 3s", "13s 500ms"],
        ),
        wrong(
            "a grace that just does not fit",
            window(|s| s.grace = Some(prost_types::Duration { seconds: 13, nanos: 500_000_000 })),
            "tool.grace",
            &["must exceed", "13s 500ms"],
        ),
        wrong(
            "a timeout that does not fit",
            window(|s| s.timeout = Some(seconds(20))),
            "tool.ttl",
            &["timeout 20s"],
        ),
        wrong(
            "a negative interval",
            window(|s| s.interval = Some(seconds(-1))),
            "tool.interval",
            &["must be positive"],
        ),
        wrong(
            "a negative timeout",
            window(|s| s.timeout = Some(seconds(-5))),
            "tool.timeout",
            &["must be positive"],
        ),
        wrong(
            "a negative TTL",
            window(|s| s.ttl = Some(prost_types::Duration { seconds: 0, nanos: -1 })),
            "tool.ttl",
            &["must be positive"],
        ),
        wrong("a grace of zero", window(|s| s.grace = Some(seconds(0))), "tool.grace", &["must be positive"]),
        wrong(
            "an interval below the floor",
            window(|s| s.interval = Some(prost_types::Duration { seconds: 0, nanos: 1 })),
            "tool.interval",
            &["from 1s to 1h"],
        ),
        wrong(
            "a negative wait",
            Call::Register(RegisterToolRequest {
                tool: Some(tool("new")),
                wait_for_probe: Some(seconds(-1)),
                ..Default::default()
            }),
            "wait_for_probe",
            &["must be positive"],
        ),
        wrong(
            "a long wait",
            Call::Register(RegisterToolRequest {
                tool: Some(tool("new")),
                wait_for_probe: Some(seconds(61)),
                ..Default::default()
            }),
            "wait_for_probe",
            &["at most 1m"],
        ),
        Row(
            "a different spec",
            register(ToolSpec { title: "other".into(), ..tool("mine") }),
            Code::AlreadyExists,
            "ALREADY_EXISTS",
            "",
            &["'mine'", "overwrite"],
        ),
        Row(
            "somebody else's name",
            Call::Register(RegisterToolRequest {
                tool: Some(tool("mine")),
                owner: "bob".into(),
                overwrite: true,
                ..Default::default()
            }),
            Code::PermissionDenied,
            "OWNER_MISMATCH",
            "",
            &["'anonymous'", "'bob'", "force"],
        ),
    ]);
    rows
}

pub(crate) fn lists(foreign_token: String) -> Vec<Row> {
    let list = ListToolsRequest::default;
    let available = ListAvailableToolsRequest::default;
    let names =
        |names: &[&str]| Some(AllowedTools { names: names.iter().map(|n| (*n).to_owned()).collect() });
    vec![
        wrong(
            "a token of another filter",
            Call::List(ListToolsRequest { page_token: foreign_token, ..list() }),
            "page_token",
            &["another filter"],
        ),
        wrong(
            "no token",
            Call::List(ListToolsRequest { page_token: "x".into(), ..list() }),
            "page_token",
            &["next_page_token"],
        ),
        wrong(
            "no token of namespaces",
            Call::Namespaces(ListNamespacesRequest { page_token: "x".into(), page_size: 0 }),
            "page_token",
            &["next_page_token"],
        ),
        wrong(
            "a negative page",
            Call::List(ListToolsRequest { page_size: -1, ..list() }),
            "page_size",
            &["0"],
        ),
        wrong(
            "an unknown verdict",
            Call::List(ListToolsRequest { verdict: 7, ..list() }),
            "verdict",
            &["7", "Verdict"],
        ),
        wrong(
            "an unknown format",
            Call::Available(ListAvailableToolsRequest { format: 99, ..available() }),
            "format",
            &["99", "SchemaFormat"],
        ),
        wrong(
            "an empty allowlist",
            Call::Available(ListAvailableToolsRequest { allowed_tools: names(&[]), ..available() }),
            "allowed_tools.names",
            &["leave allowed_tools out"],
        ),
        wrong(
            "an allowlist with a blank",
            Call::Available(ListAvailableToolsRequest { allowed_tools: names(&["a", " "]), ..available() }),
            "allowed_tools.names[1]",
            &["blank"],
        ),
        wrong(
            "an allowlist of globs",
            Call::Available(ListAvailableToolsRequest { allowed_tools: names(&["a*"]), ..available() }),
            "allowed_tools.names[0]",
            &["[A-Za-z0-9_.-]"],
        ),
        wrong(
            "a huge reply",
            Call::Available(ListAvailableToolsRequest { max_reply_bytes: u32::MAX, ..available() }),
            "max_reply_bytes",
            &["at most 67108864"],
        ),
        wrong(
            "an empty allowlist to diagnose",
            Call::Diagnostics(GetAllowlistDiagnosticsRequest {
                allowed_tools: names(&[]),
                ..Default::default()
            }),
            "allowed_tools.names",
            &["leave allowed_tools out"],
        ),
        Row(
            "an unknown tool",
            Call::Get(GetToolRequest { name: "nope".into(), ..Default::default() }),
            Code::NotFound,
            "TOOL_NOT_FOUND",
            "",
            &["'nope'", "'default'"],
        ),
        Row(
            "a tool for an agent that is none",
            Call::Get(GetToolRequest { name: "mine".into(), agent_id: "a b".into(), ..Default::default() }),
            Code::InvalidArgument,
            "INVALID_FIELDS",
            "agent_id",
            &["'a b'"],
        ),
        Row(
            "a tool of an unknown namespace",
            Call::Get(GetToolRequest { name: "mine".into(), namespace: "x".into(), ..Default::default() }),
            Code::NotFound,
            "TOOL_NOT_FOUND",
            "",
            &["'x'"],
        ),
        wrong("no name", Call::Get(GetToolRequest::default()), "name", &["1 to 128"]),
        Row(
            "an unknown tool to probe",
            Call::Probe(ProbeToolRequest { name: "nope".into(), ..Default::default() }),
            Code::NotFound,
            "TOOL_NOT_FOUND",
            "",
            &["'nope'"],
        ),
        wrong(
            "a report without an outcome",
            Call::Report(ReportProbeResultRequest { name: "pushed".into(), ..Default::default() }),
            "outcome",
            &["PROBE_OUTCOME_PASS"],
        ),
        wrong(
            "a report of an unknown outcome",
            Call::Report(ReportProbeResultRequest {
                name: "pushed".into(),
                outcome: 4,
                ..Default::default()
            }),
            "outcome",
            &["4", "ProbeOutcome"],
        ),
        wrong(
            "a report with a negative TTL",
            Call::Report(ReportProbeResultRequest {
                name: "pushed".into(),
                outcome: 1,
                ttl: Some(seconds(-1)),
                ..Default::default()
            }),
            "ttl",
            &["must be positive"],
        ),
        Row(
            "a report for an unknown tool",
            Call::Report(ReportProbeResultRequest { name: "nope".into(), outcome: 1, ..Default::default() }),
            Code::NotFound,
            "TOOL_NOT_FOUND",
            "",
            &["'nope'"],
        ),
        wrong(
            "nothing to unregister",
            Call::Unregister(UnregisterToolsRequest::default()),
            "names",
            &["1 to 10000"],
        ),
        wrong(
            "an ill name to unregister",
            Call::Unregister(UnregisterToolsRequest {
                names: vec!["mine".into(), "a b".into()],
                ..Default::default()
            }),
            "names[1]",
            &["'a b'"],
        ),
        wrong(
            "nobody to clear",
            Call::Clear(ClearToolsRequest::default()),
            "all",
            &["exactly one of owner and all"],
        ),
        wrong(
            "all and one to clear",
            Call::Clear(ClearToolsRequest { owner: "a".into(), all: true, ..Default::default() }),
            "all",
            &["exactly one of owner and all"],
        ),
        wrong(
            "too many tools",
            Call::RegisterMany(RegisterToolsRequest {
                tools: (0..10_001).map(|i| tool(&i.to_string())).collect(),
                ..Default::default()
            }),
            "tools",
            &["10001", "at most 10000"],
        ),
    ]
}

pub(crate) fn wire() -> Vec<Row> {
    const REGISTER: &str = "/toolpulse.v1.ToolRegistryService/RegisterTool";
    let mut large = vec![0x0a, 0xff, 0xff, 0xff, 0x08];
    large.resize((16 << 20) + 1_000, b'x');
    vec![
        Row(
            "a method that is not",
            Call::Raw("/toolpulse.v1.ToolRegistryService/Nope", Bytes::new()),
            Code::Unimplemented,
            "UNKNOWN_METHOD",
            "",
            &["/toolpulse.v1.ToolRegistryService/Nope"],
        ),
        Row(
            "a service that is not",
            Call::Raw("/x.Y/Z", Bytes::new()),
            Code::Unimplemented,
            "UNKNOWN_METHOD",
            "",
            &["/x.Y/Z"],
        ),
        Row(
            "no protobuf",
            Call::Raw(REGISTER, Bytes::from_static(b"\xff\xff\xff\xff")),
            INVALID,
            "MALFORMED_REQUEST",
            "",
            &["not a message of this method"],
        ),
        Row(
            "cut protobuf",
            Call::Raw(REGISTER, Bytes::from_static(b"\x0a\x05ab")),
            INVALID,
            "MALFORMED_REQUEST",
            "",
            &["not a message of this method"],
        ),
        Row(
            "text that is no UTF-8",
            Call::Raw(REGISTER, Bytes::from_static(b"\x0a\x02\xff\xfe")),
            INVALID,
            "MALFORMED_REQUEST",
            "",
            &["UTF-8"],
        ),
        Row(
            "an over-long request",
            Call::Raw(REGISTER, large.into()),
            Code::ResourceExhausted,
            "REQUEST_TOO_LARGE",
            "",
            &["at most 16777216"],
        ),
    ]
}

/// Ill-formed namespaces, for each call that takes one.
pub(crate) fn namespaces() -> Vec<Row> {
    let long = "n".repeat(64);
    let mut rows = Vec::new();
    for bad in ["Prod", "a_b", "-a", "a-", "a/b", " ", "é", &long] {
        let n = || bad.to_owned();
        let name = || "mine".to_owned();
        let calls = [
            Call::Register(RegisterToolRequest {
                namespace: n(),
                tool: Some(tool("new")),
                ..Default::default()
            }),
            Call::RegisterMany(RegisterToolsRequest {
                namespace: n(),
                tools: vec![tool("new")],
                ..Default::default()
            }),
            Call::Unregister(UnregisterToolsRequest {
                namespace: n(),
                names: vec![name()],
                ..Default::default()
            }),
            Call::Clear(ClearToolsRequest { namespace: n(), all: true, ..Default::default() }),
            Call::Get(GetToolRequest { namespace: n(), name: name(), ..Default::default() }),
            Call::List(ListToolsRequest { namespace: n(), ..Default::default() }),
            Call::Available(ListAvailableToolsRequest { namespace: n(), ..Default::default() }),
            Call::Probe(ProbeToolRequest { namespace: n(), name: name() }),
            Call::Report(ReportProbeResultRequest {
                namespace: n(),
                name: name(),
                outcome: 1,
                ..Default::default()
            }),
            Call::Diagnostics(GetAllowlistDiagnosticsRequest { namespace: n(), ..Default::default() }),
        ];
        let row = |call| {
            wrong("an ill-formed namespace", call, "namespace", &["[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"])
        };
        rows.extend(calls.into_iter().map(row));
    }
    rows
}

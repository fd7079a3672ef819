//! Bad input over the API, each with its own clear error and nothing lost.
#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

mod support;

use bytes::{Buf, BufMut, Bytes};
use tonic::{
    Code, Request, Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};
use tonic_types::StatusExt;
use toolpulse::proto::v1::{
    AllowedTools, ClearToolsRequest, GetAllowlistDiagnosticsRequest, GetToolRequest, HttpProbe,
    ListAvailableToolsRequest, ListNamespacesRequest, ListToolsRequest, ProbeSpec, ProbeToolRequest,
    RegisterToolRequest, RegisterToolsRequest, ReportProbeResultRequest, TcpProbe, Tool, ToolSpec,
    UnregisterToolsRequest, probe_spec::Kind,
};

use support::inproc::{InProc, http, probed, reason, report, seconds, tool};

/// One call of the API.
enum Call {
    Register(RegisterToolRequest),
    RegisterMany(RegisterToolsRequest),
    Unregister(UnregisterToolsRequest),
    Clear(ClearToolsRequest),
    Get(GetToolRequest),
    List(ListToolsRequest),
    Namespaces(ListNamespacesRequest),
    Available(ListAvailableToolsRequest),
    Probe(ProbeToolRequest),
    Report(ReportProbeResultRequest),
    Diagnostics(GetAllowlistDiagnosticsRequest),
    Raw(&'static str, Bytes),
}

impl Call {
    async fn send(self, server: &InProc) -> Result<(), Status> {
        let mut client = server.tools();
        match self {
            Self::Register(request) => client.register_tool(request).await.map(drop),
            Self::RegisterMany(request) => client.register_tools(request).await.map(drop),
            Self::Unregister(request) => client.unregister_tools(request).await.map(drop),
            Self::Clear(request) => client.clear_tools(request).await.map(drop),
            Self::Get(request) => client.get_tool(request).await.map(drop),
            Self::List(request) => client.list_tools(request).await.map(drop),
            Self::Namespaces(request) => client.list_namespaces(request).await.map(drop),
            Self::Available(request) => client.list_available_tools(request).await.map(drop),
            Self::Probe(request) => client.probe_tool(request).await.map(drop),
            Self::Report(request) => client.report_probe_result(request).await.map(drop),
            Self::Diagnostics(request) => client.get_allowlist_diagnostics(request).await.map(drop),
            Self::Raw(path, bytes) => raw(server, path, bytes).await,
        }
    }
}

/// A call of any path with any bytes.
async fn raw(server: &InProc, path: &'static str, bytes: Bytes) -> Result<(), Status> {
    let mut client = tonic::client::Grpc::new(server.channel());
    client.ready().await.unwrap();
    client.unary(Request::new(bytes), path.parse().unwrap(), Plain).await.map(drop)
}

/// Messages as they are.
#[derive(Clone, Copy, Debug, Default)]
struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// What is sent, and what must come back: code, reason, the field that is wrong (or none), words of the message.
struct Row(&'static str, Call, Code, &'static str, &'static str, &'static [&'static str]);

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

const INVALID: Code = Code::InvalidArgument;
const FIELDS: &str = "INVALID_FIELDS";

fn specs() -> Vec<Row> {
    let labels = |n: usize| (0..n).map(|i| (format!("k{i}"), String::new())).collect();
    let mut rows = vec![
        Row(
            "no tool",
            Call::Register(RegisterToolRequest::default()),
            INVALID,
            FIELDS,
            "tool",
            &["must be given"],
        ),
        Row(
            "an empty name",
            register(tool("")),
            INVALID,
            FIELDS,
            "tool.name",
            &["1 to 128", "[A-Za-z0-9_.-]"],
        ),
        Row("a long name", register(tool(&"n".repeat(129))), INVALID, FIELDS, "tool.name", &["1 to 128"]),
        Row(
            "a name with a space",
            register(tool("a b")),
            INVALID,
            FIELDS,
            "tool.name",
            &["'a b'", "[A-Za-z0-9_.-]"],
        ),
        Row("a name of letters elsewhere", register(tool("é")), INVALID, FIELDS, "tool.name", &["'é'"]),
        Row("a name of two lines", register(tool("a\nb")), INVALID, FIELDS, "tool.name", &["'a\\nb'"]),
        Row("no JSON", schema("{nope"), INVALID, FIELDS, "tool.input_schema_json", &["line 1"]),
        Row(
            "no object",
            schema("[1]"),
            INVALID,
            FIELDS,
            "tool.input_schema_json",
            &["must be a JSON object", "an array"],
        ),
        Row("two values", schema("{} {}"), INVALID, FIELDS, "tool.input_schema_json", &["trailing"]),
        Row(
            "a key twice",
            schema(r#"{"a": {"b": 1, "b": 2}}"#),
            INVALID,
            FIELDS,
            "tool.input_schema_json#/a/b",
            &["twice"],
        ),
        Row(
            "2,000 deep",
            schema("{\"a\":".repeat(2_000) + "1" + &"}".repeat(2_000)),
            INVALID,
            FIELDS,
            "",
            &["64"],
        ),
        Row(
            "1 MiB",
            schema(format!("{{\"a\": \"{}\"}}", "x".repeat(1 << 20))),
            INVALID,
            FIELDS,
            "tool.input_schema_json",
            &["at most 196608"],
        ),
        Row(
            "arguments of another type",
            schema(r#"{"type": "array"}"#),
            INVALID,
            FIELDS,
            "tool.input_schema_json#/type",
            &["\"object\""],
        ),
        Row(
            "a field again",
            register(ToolSpec { extra_json: r#"{"name": "x"}"#.into(), ..tool("new") }),
            INVALID,
            FIELDS,
            "tool.extra_json#/name",
            &["must not repeat name"],
        ),
        Row(
            "a long description",
            register(ToolSpec { description: "d".repeat(16_385), ..tool("new") }),
            INVALID,
            FIELDS,
            "tool.description",
            &["at most 16384"],
        ),
        Row(
            "33 labels",
            register(ToolSpec { labels: labels(33), ..tool("new") }),
            INVALID,
            FIELDS,
            "tool.labels",
            &["33", "at most 32"],
        ),
        Row(
            "a label's key",
            register(ToolSpec { labels: [("a b".into(), String::new())].into(), ..tool("new") }),
            INVALID,
            FIELDS,
            "tool.labels['a b']",
            &["[A-Za-z0-9_./-]"],
        ),
        Row(
            "5 probes",
            register(probed("new", [report(), report(), report(), report(), report()])),
            INVALID,
            FIELDS,
            "tool.probes",
            &["5", "at most 4"],
        ),
        Row(
            "a probe without a scheme",
            probe(http("example.com/health")),
            INVALID,
            FIELDS,
            "tool.probes[0].http.url",
            &["no scheme", "http://"],
        ),
        Row(
            "a probe of another scheme",
            probe(http("file:///etc/passwd")),
            INVALID,
            FIELDS,
            "tool.probes[0].http.url",
            &["'file'", "http and https"],
        ),
        Row(
            "a probe without a port",
            probe(Kind::Tcp(TcpProbe { address: "example.com".into() })),
            INVALID,
            FIELDS,
            "tool.probes[0].tcp.address",
            &["host:port"],
        ),
        Row(
            "a probe without a kind",
            register(ToolSpec { probes: vec![ProbeSpec::default()], ..tool("new") }),
            INVALID,
            FIELDS,
            "tool.probes[0]",
            &["http, grpc, tcp and report"],
        ),
        Row(
            "a probe to a private address",
            probe(http("http://10.0.0.1/")),
            INVALID,
            FIELDS,
            "tool.probes[0].http",
            &["private", "TOOLPULSE_PROBE_ALLOW"],
        ),
        Row(
            "an unknown method",
            probe(Kind::Http(HttpProbe { url: "http://h/".into(), method: 9, ..Default::default() })),
            INVALID,
            FIELDS,
            "tool.probes[0].http.method",
            &["9", "HttpMethod"],
        ),
        Row(
            "a long owner",
            Call::Register(RegisterToolRequest {
                tool: Some(tool("new")),
                owner: "o".repeat(129),
                ..Default::default()
            }),
            INVALID,
            FIELDS,
            "owner",
            &["at most 128"],
        ),
    ];
    rows.extend([
        Row(
            "a TTL that does not fit",
            window(|s| s.ttl = Some(seconds(13))),
            INVALID,
            FIELDS,
            "tool.ttl",
            &["13s", "interval 10s", "timeout 3s", "13s 500ms"],
        ),
        Row(
            "a grace that just does not fit",
            window(|s| s.grace = Some(prost_types::Duration { seconds: 13, nanos: 500_000_000 })),
            INVALID,
            FIELDS,
            "tool.grace",
            &["must exceed", "13s 500ms"],
        ),
        Row(
            "a timeout that does not fit",
            window(|s| s.timeout = Some(seconds(20))),
            INVALID,
            FIELDS,
            "tool.ttl",
            &["timeout 20s"],
        ),
        Row(
            "a negative interval",
            window(|s| s.interval = Some(seconds(-1))),
            INVALID,
            FIELDS,
            "tool.interval",
            &["must be positive"],
        ),
        Row(
            "a negative timeout",
            window(|s| s.timeout = Some(seconds(-5))),
            INVALID,
            FIELDS,
            "tool.timeout",
            &["must be positive"],
        ),
        Row(
            "a negative TTL",
            window(|s| s.ttl = Some(prost_types::Duration { seconds: 0, nanos: -1 })),
            INVALID,
            FIELDS,
            "tool.ttl",
            &["must be positive"],
        ),
        Row(
            "a grace of zero",
            window(|s| s.grace = Some(seconds(0))),
            INVALID,
            FIELDS,
            "tool.grace",
            &["must be positive"],
        ),
        Row(
            "an interval below the floor",
            window(|s| s.interval = Some(prost_types::Duration { seconds: 0, nanos: 1 })),
            INVALID,
            FIELDS,
            "tool.interval",
            &["from 1s to 1h"],
        ),
        Row(
            "a negative wait",
            Call::Register(RegisterToolRequest {
                tool: Some(tool("new")),
                wait_for_probe: Some(seconds(-1)),
                ..Default::default()
            }),
            INVALID,
            FIELDS,
            "wait_for_probe",
            &["must be positive"],
        ),
        Row(
            "a long wait",
            Call::Register(RegisterToolRequest {
                tool: Some(tool("new")),
                wait_for_probe: Some(seconds(61)),
                ..Default::default()
            }),
            INVALID,
            FIELDS,
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

fn lists(foreign_token: String) -> Vec<Row> {
    let list = ListToolsRequest::default;
    let available = ListAvailableToolsRequest::default;
    let names =
        |names: &[&str]| Some(AllowedTools { names: names.iter().map(|n| (*n).to_owned()).collect() });
    vec![
        Row(
            "a token of another filter",
            Call::List(ListToolsRequest { page_token: foreign_token, ..list() }),
            INVALID,
            FIELDS,
            "page_token",
            &["another filter"],
        ),
        Row(
            "no token",
            Call::List(ListToolsRequest { page_token: "x".into(), ..list() }),
            INVALID,
            FIELDS,
            "page_token",
            &["next_page_token"],
        ),
        Row(
            "no token of namespaces",
            Call::Namespaces(ListNamespacesRequest { page_token: "x".into(), page_size: 0 }),
            INVALID,
            FIELDS,
            "page_token",
            &["next_page_token"],
        ),
        Row(
            "a negative page",
            Call::List(ListToolsRequest { page_size: -1, ..list() }),
            INVALID,
            FIELDS,
            "page_size",
            &["0"],
        ),
        Row(
            "an unknown verdict",
            Call::List(ListToolsRequest { verdict: 7, ..list() }),
            INVALID,
            FIELDS,
            "verdict",
            &["7", "Verdict"],
        ),
        Row(
            "an unknown format",
            Call::Available(ListAvailableToolsRequest { format: 99, ..available() }),
            INVALID,
            FIELDS,
            "format",
            &["99", "SchemaFormat"],
        ),
        Row(
            "an empty allowlist",
            Call::Available(ListAvailableToolsRequest { allowed_tools: names(&[]), ..available() }),
            INVALID,
            FIELDS,
            "allowed_tools.names",
            &["leave allowed_tools out"],
        ),
        Row(
            "an allowlist with a blank",
            Call::Available(ListAvailableToolsRequest { allowed_tools: names(&["a", " "]), ..available() }),
            INVALID,
            FIELDS,
            "allowed_tools.names[1]",
            &["blank"],
        ),
        Row(
            "an allowlist of globs",
            Call::Available(ListAvailableToolsRequest { allowed_tools: names(&["a*"]), ..available() }),
            INVALID,
            FIELDS,
            "allowed_tools.names[0]",
            &["[A-Za-z0-9_.-]"],
        ),
        Row(
            "a huge reply",
            Call::Available(ListAvailableToolsRequest { max_reply_bytes: u32::MAX, ..available() }),
            INVALID,
            FIELDS,
            "max_reply_bytes",
            &["at most 67108864"],
        ),
        Row(
            "an empty allowlist to diagnose",
            Call::Diagnostics(GetAllowlistDiagnosticsRequest {
                allowed_tools: names(&[]),
                ..Default::default()
            }),
            INVALID,
            FIELDS,
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
            "a tool of an unknown namespace",
            Call::Get(GetToolRequest { name: "mine".into(), namespace: "x".into() }),
            Code::NotFound,
            "TOOL_NOT_FOUND",
            "",
            &["'x'"],
        ),
        Row("no name", Call::Get(GetToolRequest::default()), INVALID, FIELDS, "name", &["1 to 128"]),
        Row(
            "an unknown tool to probe",
            Call::Probe(ProbeToolRequest { name: "nope".into(), ..Default::default() }),
            Code::NotFound,
            "TOOL_NOT_FOUND",
            "",
            &["'nope'"],
        ),
        Row(
            "a report without an outcome",
            Call::Report(ReportProbeResultRequest { name: "pushed".into(), ..Default::default() }),
            INVALID,
            FIELDS,
            "outcome",
            &["PROBE_OUTCOME_PASS"],
        ),
        Row(
            "a report of an unknown outcome",
            Call::Report(ReportProbeResultRequest {
                name: "pushed".into(),
                outcome: 4,
                ..Default::default()
            }),
            INVALID,
            FIELDS,
            "outcome",
            &["4", "ProbeOutcome"],
        ),
        Row(
            "a report with a negative TTL",
            Call::Report(ReportProbeResultRequest {
                name: "pushed".into(),
                outcome: 1,
                ttl: Some(seconds(-1)),
                ..Default::default()
            }),
            INVALID,
            FIELDS,
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
        Row(
            "nothing to unregister",
            Call::Unregister(UnregisterToolsRequest::default()),
            INVALID,
            FIELDS,
            "names",
            &["1 to 10000"],
        ),
        Row(
            "an ill name to unregister",
            Call::Unregister(UnregisterToolsRequest {
                names: vec!["mine".into(), "a b".into()],
                ..Default::default()
            }),
            INVALID,
            FIELDS,
            "names[1]",
            &["'a b'"],
        ),
        Row(
            "nobody to clear",
            Call::Clear(ClearToolsRequest::default()),
            INVALID,
            FIELDS,
            "all",
            &["exactly one of owner and all"],
        ),
        Row(
            "all and one to clear",
            Call::Clear(ClearToolsRequest { owner: "a".into(), all: true, ..Default::default() }),
            INVALID,
            FIELDS,
            "all",
            &["exactly one of owner and all"],
        ),
        Row(
            "too many tools",
            Call::RegisterMany(RegisterToolsRequest {
                tools: (0..10_001).map(|i| tool(&i.to_string())).collect(),
                ..Default::default()
            }),
            INVALID,
            FIELDS,
            "tools",
            &["10001", "at most 10000"],
        ),
    ]
}

fn wire() -> Vec<Row> {
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
fn namespaces() -> Vec<Row> {
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
            Call::Get(GetToolRequest { namespace: n(), name: name() }),
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
            Row(
                "an ill-formed namespace",
                call,
                INVALID,
                FIELDS,
                "namespace",
                &["[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"],
            )
        };
        rows.extend(calls.into_iter().map(row));
    }
    rows
}

/// The whole registry, without what moves by itself.
async fn registry(server: &InProc) -> Vec<Tool> {
    let reply = server.tools().list_tools(ListToolsRequest::default()).await.unwrap().into_inner();
    assert!(reply.next_page_token.is_empty());
    let namespaces =
        server.tools().list_namespaces(ListNamespacesRequest::default()).await.unwrap().into_inner();
    assert_eq!(namespaces.namespaces.len(), 1);
    reply.tools
}

async fn with_tools() -> InProc {
    let server = InProc::start().await;
    server.register_many(vec![tool("mine"), tool("other"), probed("pushed", [report()])]).await;
    server
}

#[tokio::test(start_paused = true)]
async fn bad_input_has_its_own_clear_error_and_nothing_is_lost() {
    let server = with_tools().await;
    let before = registry(&server).await;
    let request = ListToolsRequest { page_size: 1, owner: "anonymous".into(), ..Default::default() };
    let page = server.tools().list_tools(request).await.unwrap().into_inner();
    let mut rows = specs();
    rows.extend(lists(page.next_page_token));
    rows.extend(wire());
    rows.extend(namespaces());
    for Row(what, call, code, why, field, words) in rows {
        let status = call.send(&server).await.expect_err(what);
        assert_eq!((status.code(), reason(&status).as_str()), (code, why), "{what}: {status:?}");
        let violations = status.get_error_details().bad_request().map(|b| b.field_violations.clone());
        let violations = violations.unwrap_or_default();
        assert_eq!(violations.is_empty(), why != FIELDS, "{what}: {violations:?}");
        if !field.is_empty() {
            assert!(violations.iter().any(|v| v.field == field), "{what}: {violations:?}");
        }
        for word in words {
            assert!(status.message().contains(word), "{what}: '{word}' is not in '{}'", status.message());
        }
        assert!(status.message().len() < 1_100, "{what}: {} bytes", status.message().len());
        assert_eq!(registry(&server).await, before, "{what}: something changed");
    }
}

#[tokio::test(start_paused = true)]
async fn all_faults_are_told_together() {
    let server = with_tools().await;
    let spec = ToolSpec {
        title: "t".repeat(257),
        input_schema_json: "1".into(),
        output_schema_json: "{".into(),
        interval: Some(seconds(-1)),
        ..probed("a b", [http("nope"), report()])
    };
    let request = RegisterToolRequest { namespace: "X".into(), tool: Some(spec), ..Default::default() };
    let status = server.try_register(request).await.unwrap_err();
    let details = status.get_error_details();
    let mut fields: Vec<_> =
        details.bad_request().unwrap().field_violations.iter().map(|v| v.field.as_str()).collect();
    fields.sort_unstable();
    assert_eq!(
        fields,
        [
            "namespace",
            "tool.input_schema_json",
            "tool.interval",
            "tool.name",
            "tool.output_schema_json",
            "tool.probes[0].http.url",
            "tool.title"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_unknown_namespace_is_just_empty() {
    let server = with_tools().await;
    let namespace = || "nobody-was-here".to_owned();
    let mut client = server.tools();
    let list = client.list_tools(ListToolsRequest { namespace: namespace(), ..Default::default() }).await;
    assert!(list.unwrap().into_inner().tools.is_empty());
    let available = ListAvailableToolsRequest { namespace: namespace(), ..Default::default() };
    assert_eq!(client.list_available_tools(available).await.unwrap().into_inner().tools_json, "[]");
    let names = vec!["mine".to_owned()];
    let gone = UnregisterToolsRequest { namespace: namespace(), names, ..Default::default() };
    assert_eq!(client.unregister_tools(gone).await.unwrap().into_inner().not_found, ["mine"]);
    let clear = ClearToolsRequest { namespace: namespace(), all: true, ..Default::default() };
    assert_eq!(client.clear_tools(clear).await.unwrap().into_inner().unregistered, 0);
    assert_eq!(registry(&server).await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn in_a_batch_each_tool_is_judged_alone() {
    let server = with_tools().await;
    // Each row's tool between two good ones.
    let rows = specs().into_iter().filter_map(|Row(what, call, code, why, field, words)| match call {
        Call::Register(RegisterToolRequest { tool: Some(tool), owner, wait_for_probe: None, .. })
            if owner.len() < 128 =>
        {
            Some((what, tool, owner, code, why, field, words))
        }
        _ => None,
    });
    let before = registry(&server).await;
    for (i, (what, bad, owner, code, why, field, words)) in rows.enumerate() {
        let (first, last) = (format!("first{i}"), format!("last{i}"));
        let name = bad.name.clone();
        let request = RegisterToolsRequest {
            tools: vec![tool(&first), bad, tool(&last)],
            overwrite: !owner.is_empty(),
            owner: owner.clone(),
            ..Default::default()
        };
        let reply = server.tools().register_tools(request).await.unwrap().into_inner();
        let results: Vec<_> = reply.results.iter().map(|r| (r.name.clone(), r.error.is_some())).collect();
        assert_eq!(results, [(first.clone(), false), (name, true), (last.clone(), false)], "{what}");
        let error = reply.results[1].error.clone().unwrap();
        let details = prost::Message::encode_to_vec(&error);
        let status = Status::with_details(Code::from_i32(error.code), error.message, details.into());
        assert_eq!((status.code(), reason(&status).as_str()), (code, why), "{what}: {status:?}");
        for word in words {
            assert!(status.message().contains(word), "{what}: '{word}' is not in '{}'", status.message());
        }
        if let Some(rest) = field.strip_prefix("tool") {
            let field = format!("tools[1]{rest}");
            let details = status.get_error_details();
            let violations = &details.bad_request().unwrap().field_violations;
            assert!(violations.iter().any(|v| v.field == field), "{what}: {violations:?}");
        }
        let gone = UnregisterToolsRequest { names: vec![first, last], owner, ..Default::default() };
        assert_eq!(server.tools().unregister_tools(gone).await.unwrap().into_inner().unregistered.len(), 2);
    }
    assert_eq!(registry(&server).await, before);

    // The same name twice: both, and neither is there afterwards.
    let reply = server.register_many(vec![tool("twice"), tool("good"), tool("twice")]).await;
    for (i, result) in reply.results.iter().enumerate() {
        let Some(error) = &result.error else {
            assert_eq!(result.name, "good");
            continue;
        };
        let details = prost::Message::encode_to_vec(error);
        let status = Status::with_details(Code::from_i32(error.code), error.message.clone(), details.into());
        assert_eq!((status.code(), reason(&status).as_str()), (INVALID, FIELDS));
        assert!(status.message().contains("'twice'") && status.message().contains("more than once"));
        let details = status.get_error_details();
        let violations = &details.bad_request().unwrap().field_violations;
        assert_eq!(violations[0].field, format!("tools[{i}].name"));
    }
    assert_eq!(server.list().await, ["good", "mine", "other"]);
}

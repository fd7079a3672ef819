//! Bad input over the API, each with its own clear error and nothing lost.
#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

#[path = "../support/mod.rs"]
mod support;

mod rows;

use bytes::{Buf, BufMut, Bytes};
use tonic::{
    Code, Request, Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};
use tonic_types::StatusExt;
use toolpulse::proto::v1::{
    ClearToolsRequest, GetAllowlistDiagnosticsRequest, GetToolRequest, ListAvailableToolsRequest,
    ListNamespacesRequest, ListToolsRequest, ProbeToolRequest, RegisterToolRequest, RegisterToolsRequest,
    ReportProbeResultRequest, SchemaFormat, Tool, ToolSpec, UnregisterToolsRequest,
};

use rows::{FIELDS, INVALID, Row, lists, namespaces, specs, wire};
use support::inproc::{InProc, http, probed, reason, report, seconds, tool};

/// One call of the API.
#[expect(clippy::large_enum_variant, reason = "there are two hundred of them")]
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

    // A name that a format gives to another tool.
    server.register_many(vec![tool("a.b")]).await;
    let format = SchemaFormat::OpenaiChat.into();
    let chat = server.available(ListAvailableToolsRequest { format, ..Default::default() }).await;
    let mapped = chat.tools.iter().find(|t| t.name == "a.b").unwrap().exposed_name.clone();
    assert_ne!(mapped, "a.b");
    let reply = server.register_many(vec![tool("fine"), tool(&mapped)]).await;
    let error = reply.results[1].error.clone().unwrap();
    let details = prost::Message::encode_to_vec(&error);
    let status = Status::with_details(Code::from_i32(error.code), error.message, details.into());
    assert_eq!((status.code(), reason(&status).as_str()), (INVALID, FIELDS));
    assert!(status.message().contains(&mapped) && status.message().contains("'a.b'"), "{}", status.message());
    let details = status.get_error_details();
    assert_eq!(details.bad_request().unwrap().field_violations[0].field, "tools[1].name");
    let refused =
        server.try_register(RegisterToolRequest { tool: Some(tool(&mapped)), ..Default::default() });
    let details = refused.await.unwrap_err().get_error_details();
    assert_eq!(details.bad_request().unwrap().field_violations[0].field, "tool.name");
    let names = ["a.b", "fine"].map(str::to_owned).to_vec();
    let gone = UnregisterToolsRequest { names, ..Default::default() };
    server.tools().unregister_tools(gone).await.unwrap();

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

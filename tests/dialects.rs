//! What every provider gets of small tools, and what registration says of wrong ones: asked of the real binary with
//! `validate_only`, so that nothing is registered.
//!
//! `tests/data/dialects.json` states the verdicts. `TOOLPULSE_CORPUS` may name a folder that holds more of them
//! (`dialect_vectors.json`), and definitions that are no JSON Schema (`bfcl_functions.jsonl`).

#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, path::Path};

use serde_json::{Value, json};
use support::Server;
use tonic_types::StatusExt;
use toolpulse::proto::v1::{
    AllowedTools, FormatOutcome, ListAvailableToolsRequest, RegisterResult, RegisterToolRequest,
    RegisterToolResponse, RegisterToolsRequest, SchemaFormat, ToolSpec,
};
use toolpulse::render::RULES_VERSION;

mod support;

/// The formats by the names that the vectors use.
const FORMATS: [(&str, SchemaFormat); 7] = [
    ("mcp", SchemaFormat::Mcp),
    ("openai_chat", SchemaFormat::OpenaiChat),
    ("openai_responses", SchemaFormat::OpenaiResponses),
    ("anthropic", SchemaFormat::Anthropic),
    ("gemini_json", SchemaFormat::Gemini),
    ("gemini_openapi", SchemaFormat::GeminiOpenapi),
    ("bedrock", SchemaFormat::Bedrock),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_provider_gets_what_the_vectors_state() {
    let server = Server::start(|_| {}).await;
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/dialects.json");
    let mut judged = judge_vectors(&server, &own).await;
    assert!(judged > 100, "the vectors are there: {judged}");
    match support::env("TOOLPULSE_CORPUS").map(|folder| Path::new(&folder).join("dialect_vectors.json")) {
        Some(more) if more.exists() => judged += judge_vectors(&server, &more).await,
        _ => support::skip("corpus", "no dialect_vectors.json; tests/data is used"),
    }
    eprintln!("{judged} verdicts");
}

/// Compares all verdicts of a file with those stated. Gives how many.
async fn judge_vectors(server: &Server, path: &Path) -> usize {
    let vectors: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let (mut count, mut wrong) = (0, Vec::new());
    for vector in &vectors {
        let id = vector["id"].as_str().unwrap();
        let expect = vector["expect"].as_object().unwrap();
        let Some(tool) = vector["tool"].as_object() else { continue };
        let answer = validate(server, spec(tool)).await;
        if let Some(stated) = expect.get("register").and_then(Value::as_str) {
            count += 1;
            match answer {
                Ok(_) => wrong.push(format!("{id}: registered, not {stated}")),
                Err(faults) => {
                    // "reject at /properties/n/type: ..." names the place.
                    let place =
                        stated.split_once(" at ").map(|(_, rest)| rest.split([' ', ':']).next().unwrap());
                    let place = place.map(|p| p.strip_prefix("outputSchema").unwrap_or(p).to_owned());
                    let there =
                        |p: &String| faults.iter().any(|(field, _)| field.ends_with(&format!("#{p}")));
                    if !place.as_ref().filter(|p| p.starts_with('/')).is_none_or(there) {
                        wrong.push(format!("{id}: {faults:?}, not {stated}"));
                    }
                }
            }
            continue;
        }
        let reply = answer.unwrap_or_else(|faults| panic!("{id}: {faults:?}"));
        let versions = reply.formats.iter().map(|f| f.rules_version);
        assert_eq!(versions.collect::<Vec<_>>(), [RULES_VERSION; FORMATS.len()], "{id}");
        for (name, format) in FORMATS {
            let Some(stated) = expect.get(name).and_then(Value::as_str) else { continue };
            count += 1;
            let (got, told) = verdict(&reply, format);
            // A rule may be named: "omit PARAMETER_NAME /properties/a".
            let stated_kind = stated.split([' ', ':']).next().unwrap();
            let mut parts = stated.split(' ').skip(1);
            let reason_fits = stated.contains(':') || parts.all(|part| told.split(' ').any(|t| t == part));
            if (got != stated_kind || !reason_fits) && !is_contradiction(id, name) {
                wrong.push(format!("{id}: {name} is {got} ({told}), not {stated}"));
            }
        }
        if let Some(code) = expect.get("warning").and_then(Value::as_str) {
            count += 1;
            let codes: Vec<_> = reply.warnings.iter().map(|w| format!("{} {}", w.code, w.pointer)).collect();
            if !codes.iter().any(|c| c == code) {
                wrong.push(format!("{id}: warnings {codes:?}, not {code}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", path.display(), wrong.join("\n"));
    count
}

/// A vector about `definitions` declares a `$schema` as well, and another vector states that that alone is a conversion.
fn is_contradiction(id: &str, format: &str) -> bool {
    (id, format) == ("definitions-draft07", "openai_chat")
}

fn verdict(reply: &RegisterToolResponse, format: SchemaFormat) -> (&'static str, String) {
    let found = reply.formats.iter().find(|f| f.format() == format).expect("one verdict for each format");
    let told = match found.verdict() {
        FormatOutcome::Lossy => found.losses.iter().map(|l| l.pointer.clone()).collect::<Vec<_>>().join(" "),
        _ => format!("{} {}", found.reason, found.pointer),
    };
    let kind = match found.verdict() {
        FormatOutcome::Pass => "pass",
        FormatOutcome::Converted => "convert",
        FormatOutcome::Lossy => "lossy",
        FormatOutcome::Omitted => "omit",
        FormatOutcome::Unspecified => "unspecified",
    };
    (kind, told)
}

fn spec(tool: &serde_json::Map<String, Value>) -> ToolSpec {
    let json = |key: &str| tool.get(key).map(Value::to_string).unwrap_or_default();
    let text = |key: &str| tool.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    ToolSpec {
        name: text("name"),
        description: text("description"),
        input_schema_json: json("inputSchema"),
        output_schema_json: json("outputSchema"),
        ..Default::default()
    }
}

/// The answer to `validate_only`: the reply, or the faults by field.
async fn validate(server: &Server, tool: ToolSpec) -> Result<RegisterToolResponse, BTreeMap<String, String>> {
    let request = RegisterToolRequest { tool: Some(tool), validate_only: true, ..Default::default() };
    match server.tools().register_tool(request).await {
        Ok(reply) => Ok(reply.into_inner()),
        Err(status) => {
            let details = status.get_error_details();
            let violations = details.bad_request().map(|b| b.field_violations.clone()).unwrap_or_default();
            Err(violations.into_iter().map(|v| (v.field, v.description)).collect())
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_bad_tools_never_spoil_a_thousand_good_ones() {
    let server = Server::start(|_| {}).await;
    let bad = bad_tools();
    let mut tools = Vec::new();
    for (i, schema) in bad.iter().cycle().take(1_000).enumerate() {
        let good = json!({"type": "object", "properties": {"q": {"type": "string"}}}).to_string();
        for (kind, schema) in [("bad", schema), ("good", &good)] {
            let name = format!("{kind}-{i}");
            tools.push(ToolSpec { name, input_schema_json: schema.clone(), ..Default::default() });
        }
    }
    let request = RegisterToolsRequest { tools, ..Default::default() };
    let reply = server.tools().register_tools(request).await.unwrap().into_inner();
    for result in &reply.results {
        if result.name.starts_with("good") {
            assert_eq!(result.result(), RegisterResult::Created, "{}", result.name);
            continue;
        }
        assert_eq!(result.result(), RegisterResult::Rejected, "{}", result.name);
        let error = result.error.as_ref().expect("a rejection says why");
        assert!(error.message.contains("input_schema_json#/"), "{}", error.message);
    }
    let list = ListAvailableToolsRequest { max_reply_bytes: 16 << 20, ..Default::default() };
    let list = server.tools().list_available_tools(list).await.unwrap().into_inner();
    assert_eq!(list.tools.len(), 1_000);
}

/// Schemas that no dialect knows.
fn bad_tools() -> Vec<String> {
    let file = support::env("TOOLPULSE_CORPUS").map(|f| Path::new(&f).join("bfcl_functions.jsonl"));
    let Some(text) = file.and_then(|file| std::fs::read_to_string(file).ok()) else {
        support::skip("corpus", "no bfcl_functions.jsonl; made-up ones are used");
        let wrong = ["dict", "float", "any", "tuple"];
        let schemas =
            wrong.map(|name| json!({"type": "object", "properties": {"a": {"type": name}}}).to_string());
        return schemas.to_vec();
    };
    let parameters = |line: &str| {
        let function: Value = serde_json::from_str(line).ok()?;
        function.get("tool")?.get("parameters").map(Value::to_string)
    };
    text.lines().filter_map(parameters).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_format_cannot_say_is_named_and_spoils_nothing_else() {
    let server = Server::start(|_| {}).await;
    let tool = |name: &str, properties: Value| ToolSpec {
        name: name.to_owned(),
        input_schema_json: json!({"type": "object", "properties": properties}).to_string(),
        ..Default::default()
    };
    let tools = vec![
        tool("bad", json!({"a b": {"type": "string"}})),
        tool("good", json!({"a": {"type": "string"}})),
        tool("number", json!({"a": {"type": "integer", "multipleOf": 5}})),
    ];
    let request = RegisterToolsRequest { tools, ..Default::default() };
    server.tools().register_tools(request).await.unwrap();
    let list = async |format: SchemaFormat, strict: bool, allowed: &[&str]| {
        let names = || allowed.iter().map(|&name| name.to_owned()).collect();
        let request = ListAvailableToolsRequest {
            format: format.into(),
            include_hidden: true,
            strict,
            allowed_tools: (!allowed.is_empty()).then(|| AllowedTools { names: names() }),
            ..Default::default()
        };
        server.tools().list_available_tools(request).await.map(tonic::Response::into_inner)
    };
    for _ in 0..2 {
        let reply = list(SchemaFormat::Anthropic, false, &[]).await.unwrap();
        let names: Vec<_> = reply.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["good", "number"]);
        let [hidden] = reply.hidden.as_slice() else { panic!("{:?}", reply.hidden) };
        assert_eq!((hidden.name.as_str(), hidden.stage.as_str()), ("bad", "format"));
        assert_eq!((hidden.reason.as_str(), hidden.pointer.as_str()), ("PARAMETER_NAME", "/properties/a b"));
        assert!(hidden.message.contains("must match"), "{}", hidden.message);
        assert!(reply.losses.is_empty());
    }
    let reply = list(SchemaFormat::GeminiOpenapi, false, &["number", "good"]).await.unwrap();
    let [loss] = reply.losses.as_slice() else { panic!("{:?}", reply.losses) };
    assert_eq!((loss.name.as_str(), loss.pointer.as_str()), ("number", "/properties/a/multipleOf"));
    let told = r#"{"functionDeclarations":[{"name":"good","#;
    assert!(reply.tools_json.contains(told), "{}", reply.tools_json);
    assert!(reply.tools_json.contains("(multipleOf: 5)"), "{}", reply.tools_json);

    list(SchemaFormat::Mcp, true, &[]).await.unwrap();
    list(SchemaFormat::Anthropic, true, &["good", "number"]).await.unwrap();
    for (format, allowed, named) in [
        (SchemaFormat::Anthropic, &[][..], "'bad' at /properties/a b"),
        (SchemaFormat::GeminiOpenapi, &["number"], "'number' at /properties/a/multipleOf"),
    ] {
        let refused = list(format, true, allowed).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
        assert_eq!(refused.get_error_details().error_info().unwrap().reason, "FORMAT_LOSSY");
        assert!(refused.message().contains(named), "{}", refused.message());
    }
    // None at all is an empty array, without a frame.
    let reply = list(SchemaFormat::Gemini, false, &["nobody"]).await.unwrap();
    assert_eq!(reply.tools_json, "[]");
}

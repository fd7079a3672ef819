//! Tools that look like real ones, and how they get into a server.

use std::path::Path;

use bytes::Bytes;
use prost::Message;
use serde_json::Value;
use tonic::transport::Endpoint;
use toolpulse::proto::v1::{self, tool_registry_service_client::ToolRegistryServiceClient};

use super::raw::{LIST, call_to, client};

/// Tools in one call of RegisterTools.
pub(crate) const BATCH: usize = 500;
const VERBS: [&str; 8] = ["search", "create", "update", "delete", "export", "summarize", "assign", "archive"];
const NOUNS: [&str; 10] = [
    "invoice",
    "ticket",
    "customer",
    "shipment",
    "contract",
    "document",
    "meeting",
    "deployment",
    "refund",
    "lead",
];
const TYPES: [&str; 4] = [
    r#""type":"string","minLength":1"#,
    r#""type":"integer","minimum":0"#,
    r#""type":"boolean""#,
    r#""type":"string","format":"date-time""#,
];

/// A tool of some 1.5 KB.
pub(crate) fn tool(i: usize) -> v1::ToolSpec {
    let (verb, noun) = (VERBS[i % VERBS.len()], NOUNS[i / VERBS.len() % NOUNS.len()]);
    // From 2 to 13 properties: definitions differ in size. Those of `request_for_twenty` are small ones: their list has some 20 KB.
    let properties: Vec<String> = (0..2 + i % 10 * 5 / 4)
        .map(|p| {
            format!(
                r#""{noun}_field_{p}":{{{},"description":"The {noun}'s field number {p}, as the back office of tenant {i} keeps it."}}"#,
                TYPES[p % TYPES.len()]
            )
        })
        .collect();
    v1::ToolSpec {
        name: name(i),
        title: format!("{verb} {noun} {i}"),
        description: format!(
            "Use this to {verb} a {noun} in the back office of tenant {i}. Takes what is known of the {noun}; fields that are \
             left out stay as they are. Returns the {noun} as it is stored afterwards, or an error that says which field was \
             wrong. Never call it twice for one request of the user."
        ),
        input_schema_json: format!(
            r#"{{"type":"object","properties":{{{}}},"required":["{noun}_field_0"],"additionalProperties":false}}"#,
            properties.join(",")
        ),
        endpoint: format!("https://tools.example.com/{noun}/{verb}/{i}"),
        ..Default::default()
    }
}

/// What tool `i` is called.
pub(crate) fn name(i: usize) -> String {
    format!("{}_{}_{i}", VERBS[i % VERBS.len()], NOUNS[i / VERBS.len() % NOUNS.len()])
}

/// What the definitions of `count` tools weigh.
pub(crate) fn bytes_of(count: usize) -> usize {
    (0..count).map(|i| tool(i).encoded_len()).sum()
}

/// So many definitions: made up as above, or from the folder that `TOOLPULSE_CORPUS` names. It holds `*.json` files, each an
/// object with `tools` as an MCP server lists them; they repeat, under other names, until there are enough.
pub(crate) fn given(count: usize) -> Vec<v1::ToolSpec> {
    #[expect(clippy::disallowed_methods, reason = "a benchmark is told by its runner where things are")]
    let folder = std::env::var("TOOLPULSE_CORPUS");
    let real = folder.map(|folder| corpus(Path::new(&folder))).unwrap_or_default();
    if real.is_empty() {
        return (0..count).map(tool).collect();
    }
    real.into_iter().cycle().enumerate().map(|(i, tool)| renamed(tool, i)).take(count).collect()
}

fn renamed(tool: v1::ToolSpec, i: usize) -> v1::ToolSpec {
    let kept: String =
        tool.name.chars().filter(|c| c.is_ascii_alphanumeric() || "_-".contains(*c)).take(50).collect();
    v1::ToolSpec { name: format!("{kept}_{i}"), ..tool }
}

fn corpus(folder: &Path) -> Vec<v1::ToolSpec> {
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let files = files.into_iter().filter(|path| path.extension().is_some_and(|e| e == "json"));
    files
        .filter_map(|path| serde_json::from_str::<Value>(&std::fs::read_to_string(path).unwrap()).ok())
        .flat_map(|file| file["tools"].as_array().cloned().unwrap_or_default())
        .map(|tool| {
            let text = |key: &str| tool[key].as_str().unwrap_or_default().to_owned();
            let json = |key: &str| tool.get(key).map(Value::to_string).unwrap_or_default();
            v1::ToolSpec {
                name: text("name"),
                title: text("title"),
                description: text("description"),
                input_schema_json: json("inputSchema"),
                output_schema_json: json("outputSchema"),
                annotations_json: json("annotations"),
                ..Default::default()
            }
        })
        .collect()
}

/// Asks for 20 tools from all over, unsorted: nobody sorts them.
pub(crate) fn request_for_twenty(of: usize) -> v1::ListAvailableToolsRequest {
    request_for((0..20).map(|i| name(i * of / 20)))
}

/// Asks for 20 tools by chance, which nobody else asks for together.
pub(crate) fn request_for_some(of: usize) -> v1::ListAvailableToolsRequest {
    // One from each twentieth: none twice.
    let part = of / 20;
    request_for((0..20).map(|i| name(i * part + fastrand::usize(..part))))
}

fn request_for(names: impl Iterator<Item = String>) -> v1::ListAvailableToolsRequest {
    let allowed = v1::AllowedTools { names: names.collect() };
    v1::ListAvailableToolsRequest { allowed_tools: Some(allowed), ..Default::default() }
}

/// Registers `count` tools.
pub(crate) async fn register(address: &str, count: usize) {
    register_all(address, (0..count).map(tool)).await;
}

/// Registers tools, none of which may be refused.
pub(crate) async fn register_all(address: &str, mut tools: impl Iterator<Item = v1::ToolSpec>) {
    let mut client = ToolRegistryServiceClient::connect(format!("http://{address}")).await.unwrap();
    loop {
        let batch: Vec<_> = tools.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            return;
        }
        let request = v1::RegisterToolsRequest { tools: batch, all_or_nothing: true, ..Default::default() };
        let reply = client.register_tools(request).await.unwrap().into_inner();
        let refused = reply.results.iter().find(|result| result.error.is_some());
        assert!(refused.is_none(), "a tool was refused: {refused:?}");
    }
}

/// One call, its reply as bytes.
pub(crate) async fn ask(address: &str, method: &'static str, request: &impl Message) -> Bytes {
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    call_to(&mut client(&channel), method, &request.encode_to_vec().into()).await
}

/// Lists of 20, so that each tool is in one.
pub(crate) async fn list_each(address: &str, count: usize, format: v1::SchemaFormat) {
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let mut client = client(&channel);
    for first in (0..count).step_by(20) {
        let request = request_for((first..first + 20).map(name));
        let request = v1::ListAvailableToolsRequest { format: format.into(), ..request };
        let reply = call_to(&mut client, LIST, &request.encode_to_vec().into()).await;
        assert_eq!(v1::ListAvailableToolsResponse::decode(reply).unwrap().tools.len(), 20);
    }
}

/// One list.
pub(crate) async fn list(
    address: &str,
    request: &v1::ListAvailableToolsRequest,
) -> v1::ListAvailableToolsResponse {
    v1::ListAvailableToolsResponse::decode(ask(address, LIST, request).await).unwrap()
}

//! Tools that look like real ones, and how they get into a server.

use bytes::Bytes;
use prost::Message;
use tonic::transport::Endpoint;
use toolpulse::proto::v1::{self, tool_registry_service_client::ToolRegistryServiceClient};

use super::raw::{call, client};

/// Tools in one call of RegisterTools.
const BATCH: usize = 500;
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

/// Asks for 20 tools from all over, unsorted: nobody sorts them.
pub(crate) fn request_for_twenty(of: usize) -> v1::ListAvailableToolsRequest {
    let names = (0..20).map(|i| name(i * of / 20)).collect();
    v1::ListAvailableToolsRequest { allowed_tools: Some(v1::AllowedTools { names }), ..Default::default() }
}

/// Registers `count` tools.
pub(crate) async fn register(address: &str, count: usize) {
    let mut tools = ToolRegistryServiceClient::connect(format!("http://{address}")).await.unwrap();
    for start in (0..count).step_by(BATCH) {
        let batch = (start..count.min(start + BATCH)).map(tool).collect();
        let request = v1::RegisterToolsRequest { tools: batch, all_or_nothing: true, ..Default::default() };
        let reply = tools.register_tools(request).await.unwrap().into_inner();
        let refused = reply.results.iter().find(|result| result.error.is_some());
        assert!(refused.is_none(), "a tool was refused: {refused:?}");
    }
}

/// One list, as bytes.
pub(crate) async fn list_raw(address: &str, request: &v1::ListAvailableToolsRequest) -> Bytes {
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    call(&mut client(&channel), &request.encode_to_vec().into()).await
}

/// One list.
pub(crate) async fn list(
    address: &str,
    request: &v1::ListAvailableToolsRequest,
) -> v1::ListAvailableToolsResponse {
    v1::ListAvailableToolsResponse::decode(list_raw(address, request).await).unwrap()
}

//! Real definitions go in and come out unharmed: byte for byte by GetTool, nothing lost in MCP form, and the same bytes
//! and etag whatever the order of registration and after a restart.
//!
//! `TOOLPULSE_CORPUS` names a folder of `*.json` files, each an object with `tools` as an MCP server lists them. Without it
//! the definitions of `tests/data` are used.

#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Value, value::RawValue};
use support::Server;
use toolpulse::proto::v1::{
    GetToolRequest, ListAvailableToolsRequest, ListAvailableToolsResponse, RegisterResult,
    RegisterToolRequest, RegisterToolsRequest, SchemaFormat, ToolSpec,
};

mod support;

/// Tools in one batch: well under the 4 MiB that a request may have.
const BATCH: usize = 10;
const FORMATS: [SchemaFormat; 7] = [
    SchemaFormat::Mcp,
    SchemaFormat::OpenaiChat,
    SchemaFormat::OpenaiResponses,
    SchemaFormat::Anthropic,
    SchemaFormat::Gemini,
    SchemaFormat::GeminiOpenapi,
    SchemaFormat::Bedrock,
];

#[tokio::test(flavor = "multi_thread")]
async fn real_definitions_come_out_as_they_went_in() {
    let namespaces = read_corpus();
    let count: usize = namespaces.values().map(Vec::len).sum();
    eprintln!("{count} tools of {} servers", namespaces.len());
    assert!(count >= 8, "the corpus is there");

    let mut server = Server::start(|_| {}).await;
    for (namespace, tools) in &namespaces {
        register_each(&server, namespace, tools).await;
    }
    for (namespace, tools) in &namespaces {
        read_back(&server, namespace, tools).await;
    }
    let first = list_all(&server, &namespaces).await;
    for ((namespace, format), reply) in &first {
        let tools = &namespaces[namespace.as_str()];
        match format {
            SchemaFormat::OpenaiChat => assert_openai(reply, tools, namespace),
            SchemaFormat::Mcp => assert_mcp(reply, tools, namespace),
            _ => assert_listed(*format, reply, tools, namespace),
        }
    }

    server.restart().await;
    assert_same_lists(&first, &list_all(&server, &namespaces).await, "after a restart");
    for (namespace, tools) in &namespaces {
        read_back(&server, namespace, tools).await;
    }

    let other = Server::start(|_| {}).await;
    register_shuffled(&other, &namespaces).await;
    assert_same_lists(&first, &list_all(&other, &namespaces).await, "registered in another order");
}

/// One definition: what the server listed, member by member as text, and the spec that an owner makes of it.
struct Definition {
    members: Members,
    spec: ToolSpec,
}

type Namespaces = BTreeMap<String, Vec<Definition>>;
type Lists = BTreeMap<(String, SchemaFormat), ListAvailableToolsResponse>;

fn read_corpus() -> Namespaces {
    let folder = support::env("TOOLPULSE_CORPUS").map_or_else(
        || {
            support::skip("corpus", "TOOLPULSE_CORPUS is not set; tests/data is used");
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
        },
        PathBuf::from,
    );
    let mut namespaces = Namespaces::new();
    for entry in folder.read_dir().expect("the folder of definitions can be read") {
        let path = entry.expect("a folder's entry").path();
        if path.extension().is_none_or(|e| e != "json") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a file of definitions can be read");
        // A folder may hold other files of JSON; those that are no object with tools are none of ours.
        let Ok(file) = serde_json::from_str::<DefinitionFile>(&text) else { continue };
        let tools = file.tools.iter().map(|raw| definition(raw.get())).collect();
        let clash = namespaces.insert(namespace_of(&path), tools);
        assert!(clash.is_none(), "{}: two files of one namespace", path.display());
    }
    namespaces
}

#[derive(Deserialize)]
struct DefinitionFile {
    tools: Vec<Box<RawValue>>,
}

/// A namespace that looks like the file's name.
fn namespace_of(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
    let kept = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
    let name: String = kept.take(63).collect();
    name.trim_matches('-').to_owned()
}

fn definition(text: &str) -> Definition {
    let members: Members = serde_json::from_str(text).expect("a definition is an object");
    let mut spec = ToolSpec::default();
    let mut extra = Vec::new();
    for (key, value) in &members.0 {
        let json = value.get().to_owned();
        match key.as_str() {
            "name" => spec.name = decoded(&json),
            "title" => spec.title = decoded(&json),
            "description" => spec.description = decoded(&json),
            "inputSchema" => spec.input_schema_json = json,
            "outputSchema" => spec.output_schema_json = json,
            "annotations" => spec.annotations_json = json,
            _ => extra.push(format!("{}:{json}", serde_json::json!(key))),
        }
    }
    if !extra.is_empty() {
        spec.extra_json = format!("{{{}}}", extra.join(","));
    }
    Definition { members, spec }
}

async fn register_each(server: &Server, namespace: &str, tools: &[Definition]) {
    let mut client = server.tools();
    for tool in tools {
        let request = RegisterToolRequest {
            namespace: namespace.into(),
            tool: Some(tool.spec.clone()),
            ..RegisterToolRequest::default()
        };
        let reply = client.register_tool(request).await;
        let reply = reply.unwrap_or_else(|e| panic!("{namespace}/{}: {e}", tool.spec.name)).into_inner();
        assert_eq!(reply.result(), RegisterResult::Created, "{namespace}/{}", tool.spec.name);
    }
}

/// All tools of all namespaces in small batches, shuffled: the order differs within and between namespaces.
async fn register_shuffled(server: &Server, namespaces: &Namespaces) {
    let mut random = fastrand::Rng::with_seed(7);
    let mut batches = Vec::new();
    for (namespace, tools) in namespaces {
        let mut specs: Vec<_> = tools.iter().map(|t| t.spec.clone()).collect();
        random.shuffle(&mut specs);
        batches.extend(specs.chunks(BATCH).map(|chunk| RegisterToolsRequest {
            namespace: namespace.clone(),
            tools: chunk.to_vec(),
            ..RegisterToolsRequest::default()
        }));
    }
    random.shuffle(&mut batches);
    let mut client = server.tools();
    for batch in batches {
        let reply = client.register_tools(batch).await.expect("a batch is registered").into_inner();
        for result in reply.results {
            assert_eq!(result.result(), RegisterResult::Created, "{}: {:?}", result.name, result.error);
        }
    }
}

async fn read_back(server: &Server, namespace: &str, tools: &[Definition]) {
    let mut client = server.tools();
    for tool in tools {
        let name = tool.spec.name.clone();
        let request =
            GetToolRequest { namespace: namespace.into(), name: name.clone(), ..Default::default() };
        let reply = client.get_tool(request).await.expect("a registered tool is there").into_inner();
        let got = reply.tool.and_then(|t| t.spec).expect("a tool has a spec");
        assert_eq!(got, tool.spec, "{namespace}/{name}");
    }
}

async fn list_all(server: &Server, namespaces: &Namespaces) -> Lists {
    let mut client = server.tools();
    let mut lists = Lists::new();
    for namespace in namespaces.keys() {
        for format in FORMATS {
            let mut request = ListAvailableToolsRequest {
                namespace: namespace.clone(),
                include_hidden: true,
                ..Default::default()
            };
            request.set_format(format);
            let reply = client.list_available_tools(request).await.expect("a namespace lists").into_inner();
            lists.insert((namespace.clone(), format), reply);
        }
    }
    lists
}

fn assert_same_lists(first: &Lists, second: &Lists, when: &str) {
    for (key, reply) in first {
        let other = &second[key];
        assert_eq!(reply.tools_json, other.tools_json, "{key:?} {when}");
        assert_eq!(reply.etag, other.etag, "{key:?} {when}");
        assert_eq!(reply.tools, other.tools, "{key:?} {when}");
        assert_eq!((&reply.losses, &reply.hidden), (&other.losses, &other.hidden), "{key:?} {when}");
    }
}

/// Every member of every definition is there, and each is the owner's text without its white space.
fn assert_mcp(reply: &ListAvailableToolsResponse, tools: &[Definition], namespace: &str) {
    let listed: Vec<Members> = serde_json::from_str(&reply.tools_json).expect("tools_json is an array");
    assert_eq!(listed.len(), tools.len(), "{namespace}");
    assert_eq!(reply.tools_json, compact(&reply.tools_json), "{namespace}: white space that means nothing");
    let mut by_name: BTreeMap<String, Members> = BTreeMap::new();
    for (members, tool) in listed.into_iter().zip(&reply.tools) {
        let name = members.text("name").unwrap_or_default();
        assert_eq!(name, tool.exposed_name, "{namespace}: both lists have one order");
        by_name.insert(tool.name.clone(), members);
    }
    for tool in tools {
        let name = &tool.spec.name;
        let got = &by_name[name];
        for (key, sent) in &tool.members.0 {
            match key.as_str() {
                // Text: decoded by the owner, encoded by the server; empty is left out as well.
                "name" | "title" | "description" => {
                    let sent = decoded(sent.get());
                    assert_eq!(got.text(key).unwrap_or_default(), sent, "{namespace}/{name} {key}");
                }
                _ => {
                    let listed = got.get(key).unwrap_or_else(|| panic!("{namespace}/{name} lost {key}"));
                    assert_eq!(listed, compact(sent.get()), "{namespace}/{name} {key}");
                }
            }
        }
        let sent: BTreeSet<_> = tool.members.0.iter().map(|(key, _)| key).collect();
        let more: Vec<_> = got.0.iter().map(|(key, _)| key).filter(|key| !sent.contains(key)).collect();
        assert!(more.is_empty(), "{namespace}/{name} was given {more:?}");
    }
}

/// What OpenAI takes: its form, its rule for names, and the owner's schema.
fn assert_openai(reply: &ListAvailableToolsResponse, tools: &[Definition], namespace: &str) {
    let listed: Vec<OpenAiTool> = serde_json::from_str(&reply.tools_json).expect("tools_json is an array");
    assert_eq!(listed.len(), tools.len(), "{namespace}");
    let specs: BTreeMap<_, _> = tools.iter().map(|t| (t.spec.name.as_str(), &t.spec)).collect();
    let mut names = Vec::new();
    for (listed, tool) in listed.iter().zip(&reply.tools) {
        let function = &listed.function;
        let spec = specs[tool.name.as_str()];
        assert_eq!(listed.kind, "function");
        assert_eq!(function.name, tool.exposed_name, "{namespace}: both lists have one order");
        assert_eq!(function.description, spec.description, "{namespace}/{}", spec.name);
        let fits = |name: &str| {
            (1..=64).contains(&name.len())
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
        };
        assert!(fits(&function.name), "{namespace}: OpenAI refuses the name {}", function.name);
        assert!(
            function.name == spec.name || !fits(&spec.name),
            "{namespace}/{} needs no mapping",
            spec.name
        );
        let schema = function.parameters.get();
        let sent = compact(&spec.input_schema_json);
        let members: Members = serde_json::from_str(&sent).expect("a schema is an object");
        assert_eq!(members.text("type").as_deref(), Some("object"), "{namespace}/{}", spec.name);
        // OpenAI refuses an object without properties, so the server may add an empty one; `$schema` goes; nothing else.
        let added = if members.get("properties").is_none() { r#","properties":{}"# } else { "" };
        let dialect = members.get("$schema").map(|value| format!(r#""$schema":{value}"#)).unwrap_or_default();
        let without = sent.replacen(&format!("{dialect},"), "", 1).replacen(&format!(",{dialect}"), "", 1);
        let expected = if dialect.is_empty() { &sent } else { &without };
        let refused = |members: &Members| {
            ["allOf", "anyOf", "oneOf", "not", "enum"].into_iter().find(|key| members.get(key).is_some())
        };
        // A combinator at the root, which OpenAI refuses as well, is merged into it: the schema is another text then.
        match refused(&members) {
            None => assert_eq!(&schema.replacen(added, "", 1), expected, "{namespace}/{}", spec.name),
            Some(_) => {
                let shown: Members = serde_json::from_str(schema).expect("a schema is an object");
                assert_eq!(refused(&shown), None, "{namespace}/{}", spec.name);
                assert!(shown.get("properties").is_some(), "{namespace}/{}", spec.name);
            }
        }
        names.push(&function.name);
    }
    assert!(names.is_sorted(), "{namespace}: sorted by exposed name");
    names.dedup();
    assert_eq!(names.len(), tools.len(), "{namespace}: a name is there twice");
}

/// Every tool is there under its name and with its description, or named with the reason why it is not; real tools rarely
/// need to be left out.
fn assert_listed(
    format: SchemaFormat,
    reply: &ListAvailableToolsResponse,
    tools: &[Definition],
    namespace: &str,
) {
    let list: Vec<Value> = serde_json::from_str(&reply.tools_json).expect("tools_json is an array");
    let gemini = matches!(format, SchemaFormat::Gemini | SchemaFormat::GeminiOpenapi);
    let definitions = match list.first() {
        Some(only) if gemini => only["functionDeclarations"].as_array().expect("declarations").clone(),
        _ => list,
    };
    assert_eq!(definitions.len(), reply.tools.len(), "{namespace} {format:?}");
    assert_eq!(definitions.len() + reply.hidden.len(), tools.len(), "{namespace} {format:?}");
    for hidden in &reply.hidden {
        assert_eq!(hidden.stage, "format", "{namespace}/{}", hidden.name);
        assert!(hidden.pointer.starts_with('/') && !hidden.reason.is_empty(), "{namespace}: {hidden:?}");
    }
    let arguments = match format {
        SchemaFormat::Gemini => "parametersJsonSchema",
        SchemaFormat::Anthropic => "input_schema",
        SchemaFormat::Bedrock => "inputSchema",
        _ => "parameters",
    };
    for (definition, tool) in definitions.iter().zip(&reply.tools) {
        let function = definition.get("toolSpec").unwrap_or(definition);
        assert_eq!(function["name"], tool.exposed_name, "{namespace} {format:?}: both lists have one order");
        let spec = &tools.iter().find(|t| t.spec.name == tool.name).expect("a registered tool").spec;
        let description = function.get("description").and_then(Value::as_str).unwrap_or_default();
        assert!(description == spec.description || spec.description.is_empty(), "{namespace}/{}", tool.name);
        let schema = function.get(arguments).map(|s| s.get("json").unwrap_or(s));
        assert!(schema.is_some_and(|s| s["type"] == "object") || gemini && schema.is_none(), "{}", tool.name);
    }
    if !gemini {
        assert!(reply.losses.is_empty() && reply.hidden.is_empty(), "{namespace}: {:?}", reply.hidden);
    }
}

#[derive(Deserialize)]
struct OpenAiTool {
    #[serde(rename = "type")]
    kind: String,
    function: OpenAiFunction,
}

#[derive(Deserialize)]
struct OpenAiFunction {
    name: String,
    #[serde(default)]
    description: String,
    parameters: Box<RawValue>,
}

/// An object's members in order, each as its text.
struct Members(Vec<(String, Box<RawValue>)>);

impl Members {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, value)| value.get())
    }

    fn text(&self, key: &str) -> Option<String> {
        self.get(key).map(decoded)
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AsMembers;

        impl<'de> Visitor<'de> for AsMembers {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(AsMembers)
    }
}

fn decoded(json: &str) -> String {
    serde_json::from_str(json).expect("a JSON string")
}

/// JSON text without white space outside strings; nothing else is touched. Written apart from the server's own.
fn compact(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let (mut in_string, mut escaped) = (false, false);
    for c in json.chars() {
        if in_string {
            in_string = escaped || c != '"';
            escaped = c == '\\' && !escaped;
        } else if c.is_ascii_whitespace() {
            continue;
        } else {
            in_string = c == '"';
        }
        out.push(c);
    }
    out
}

#[test]
fn compacting_leaves_strings_and_numbers_alone() {
    for (text, expected) in [
        (r#"{ "a b" : 1.0 }"#, r#"{"a b":1.0}"#),
        ("[\n\t1E3 ,\"\\\" x\" ]", "[1E3,\"\\\" x\"]"),
        (r#"{"a\\" : " b\\\" c "}"#, r#"{"a\\":" b\\\" c "}"#),
    ] {
        assert_eq!(compact(text), expected);
    }
}

//! Things to store, from plain to hard to keep.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use toolpulse::{
    core::{
        allowlist::RequestAllowlist,
        labels::Selector,
        name::{Namespace, ToolKey, ToolName},
        policy::{AgentId, Policy, Rules},
        probe::{
            ClientIdentity, GrpcProbe, Header, HeaderValue, HostPort, HttpProbe, HttpUrl, McpProbe, Method,
            ProbeKind, ProbeSpec, Secret, SecretName, TcpProbe, Tls,
        },
        tool::{GivenWindows, StoredTool, ToolSpec},
    },
    store::{Change, Commit, Loaded, SavedGateway, Soft, Stamp},
};

pub(crate) fn key(namespace: &str, name: &str) -> ToolKey {
    ToolKey { namespace: Namespace::parse(namespace).unwrap(), name: ToolName::parse(name).unwrap() }
}

/// A tool with nothing but a name and a generation.
pub(crate) fn tool(name: &str, generation: u64) -> StoredTool {
    let key = key("", name);
    let spec = ToolSpec {
        name: key.name.clone(),
        title: String::new(),
        description: String::new(),
        input_schema: "{}".to_owned(),
        output_schema: String::new(),
        endpoint: String::new(),
        annotations: String::new(),
        extra: String::new(),
        labels: BTreeMap::new(),
        probes: vec![],
        windows: GivenWindows::default(),
        unregister_after: None,
    };
    StoredTool {
        key,
        spec: Arc::new(spec),
        spec_hash: "sha256:0".into(),
        owner: "anonymous".into(),
        generation,
        from_manifest: false,
        approved: None,
        create_time_ms: 1,
        update_time_ms: 2,
    }
}

/// A tool with every field set, to what is hard to keep.
pub(crate) fn full() -> StoredTool {
    let host = |host: &str, port| HostPort { host: host.to_owned(), port };
    let secret = |name| SecretName::parse(name).unwrap();
    let header = |name: &str, value| Header { name: name.to_owned(), value };
    let http = HttpProbe {
        url: HttpUrl {
            text: "HTTPS://[::1]/a%20b?q='\"".to_owned(),
            https: true,
            endpoint: host("::1", 443),
            path_and_query: "/a%20b?q='\"".to_owned(),
        },
        method: Method::Post(Secret::new("{\"a\": \"'\\\"}")),
        headers: vec![
            header("a", HeaderValue::Literal(Secret::new("'\"\\"))),
            header("b", HeaderValue::Secret(secret("b"))),
            header("c", HeaderValue::Bearer(secret("c"))),
        ],
        expected_statuses: vec![301, 404],
        no_statuses: vec![503],
        tls: Some(Tls {
            server_name: Some("b\u{fc}cher.example".to_owned()),
            ca: Some(secret("ca")),
            client: Some(ClientIdentity { cert: secret("cert"), key: secret("key") }),
            insecure_skip_verify: true,
        }),
    };
    let grpc = GrpcProbe {
        target: host("h", 65535),
        service: "a.b.C".to_owned(),
        headers: vec![header("a", HeaderValue::Literal(Secret::new("")))],
        tls: Some(Tls::default()),
    };
    let mcp = McpProbe {
        url: http.url.clone(),
        headers: vec![header("d", HeaderValue::Bearer(secret("d")))],
        expected_statuses: vec![401, 405],
        tls: Some(Tls { server_name: Some("m".to_owned()), ..Tls::default() }),
    };
    let kinds = [
        ("http", ProbeKind::Http(http)),
        ("grpc", ProbeKind::Grpc(grpc)),
        ("tcp", ProbeKind::Tcp(TcpProbe { address: host("10.0.0.1", 1) })),
        ("mcp", ProbeKind::Mcp(mcp)),
        ("\u{1f600}", ProbeKind::Report),
    ];
    let spec = ToolSpec {
        name: ToolName::parse("A.b-c_1").unwrap(),
        title: "\u{0}\u{1}\u{7f}\u{2028}\u{feff}\u{10ffff} e\u{301} \u{202e}".to_owned(),
        description: "'; DROP TABLE tool; --\r\n\t\\u0000 \\".to_owned(),
        // Not what a serializer would write: order, spaces, 1.0, an escape, a number beyond f64.
        input_schema:
            "{ \"z\":1.0,\n\"a\": 1e400, \"k\":\"\\u00e9\\/\" ,\"n\":123456789012345678901234567890 }\n"
                .to_owned(),
        output_schema: "[".repeat(2000) + &"]".repeat(2000),
        endpoint: "stdio://x".to_owned(),
        annotations: "{\"x\":null}".to_owned(),
        extra: format!("{{\"icons\":\"{}\"}}", "a".repeat(300_000)),
        labels: [("".to_owned(), "v".to_owned()), ("k\n".to_owned(), "\u{1f9ea}".to_owned())].into(),
        probes: kinds.map(|(name, kind)| ProbeSpec { name: name.into(), kind }).into(),
        windows: GivenWindows {
            interval: Some(Duration::MAX),
            timeout: Some(Duration::from_nanos(1)),
            ttl: None,
            grace: Some(Duration::ZERO),
            success_threshold: Some(u32::MAX),
            failure_threshold: None,
        },
        unregister_after: Some(Duration::MAX),
    };
    StoredTool {
        key: key("name-space1", "A.b-c_1"),
        spec: Arc::new(spec),
        spec_hash: "sha256:ff".into(),
        owner: "\u{43e}\u{432}\u{43d}\u{435}\u{440} '\"\u{0}".into(),
        generation: 9_007_199_254_740_993,
        from_manifest: true,
        approved: Some(Arc::new(BTreeMap::from([("k\n".to_owned(), "'\"\u{0}".to_owned())]))),
        create_time_ms: -1,
        update_time_ms: i64::MAX,
    }
}

/// A policy with every field set.
pub(crate) fn policy(agent: &str) -> Policy {
    let list = |names: &[&str]| {
        RequestAllowlist::parse(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>()).unwrap()
    };
    let rules = Rules {
        allowed: Some(list(&["a", "other/b", "B"])),
        denied: Some(list(&["c"])),
        deny_all: false,
        selector: Selector::parse("!internal,region in (eu,us),tier!=beta,team=").unwrap(),
        max_tools: u32::MAX,
    };
    Policy { namespace: Namespace::default(), agent: AgentId::parse(agent).unwrap(), rules: Arc::new(rules) }
}

pub(crate) fn put(tool: &StoredTool) -> Commit {
    Commit { changes: vec![Change::Put(tool.clone())], generation: tool.generation }
}

pub(crate) fn success(
    tool: &StoredTool,
    generation: u64,
    probe: &str,
    ago_s: u64,
    ttl: Option<Duration>,
) -> Soft {
    let at = Stamp::now().earlier(Duration::from_secs(ago_s));
    Soft::Success { key: tool.key.clone(), generation, probe: probe.into(), at, ttl }
}

pub(crate) fn gateway(namespace: &str, id: &str, snapshot: &str) -> SavedGateway {
    SavedGateway {
        namespace: Namespace::parse(namespace).unwrap(),
        gateway_id: id.to_owned(),
        snapshot_json: snapshot.to_owned(),
    }
}

pub(crate) fn names(loaded: &Loaded) -> Vec<&str> {
    loaded.tools.iter().map(|t| t.key.name.as_str()).collect()
}

/// Tool, generation, probe of all successes.
pub(crate) fn probes(loaded: &Loaded) -> Vec<(&str, u64, &str)> {
    loaded.successes.iter().map(|s| (s.key.name.as_str(), s.generation, &*s.probe)).collect()
}

pub(crate) fn large(bytes: usize) -> StoredTool {
    padded("large", bytes)
}

pub(crate) fn padded(name: &str, bytes: usize) -> StoredTool {
    let tool = tool(name, 1);
    let spec = ToolSpec { description: "x".repeat(bytes), ..(*tool.spec).clone() };
    StoredTool { spec: Arc::new(spec), ..tool }
}

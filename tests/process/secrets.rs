//! Canary secrets, planted in everything that a probe carries, are in no reply, log line, metric or message; and what the
//! server itself is told by its environment moves no probe.

use std::{fs, sync::Arc, time::Duration};

use prost::Message;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
    time::timeout,
};
use tonic::Status;
use toolpulse::proto::{
    DESCRIPTORS,
    v1::{
        ApproveToolLabelsRequest, ClearToolsRequest, ExplainToolRequest, GetAllowlistDiagnosticsRequest,
        GetToolRequest, GrpcProbe, HttpMethod, HttpProbe, ListAvailableToolsRequest, ListNamespacesRequest,
        ListToolsRequest, ProbeBody, ProbeHeader, ProbeSpec, ProbeTls, ProbeToolRequest, RegisterResult,
        RegisterToolRequest, RegisterToolsRequest, ReportProbeResultRequest, SearchToolsRequest,
        SetToolEnabledRequest, ToolSpec, UnregisterToolsRequest, WatchAvailableToolsRequest,
        WatchToolsRequest, probe_body::Content::Text, probe_header::Content, probe_spec::Kind,
    },
};

use crate::{run, support::Server};

/// In every secret, and nowhere else.
const CANARY: &str = "canary7e1f";

/// Methods of the registry; a new one must be called below.
const CALLED: [&str; 17] = [
    "ApproveToolLabels",
    "ClearTools",
    "ExplainTool",
    "GetAllowlistDiagnostics",
    "GetTool",
    "ListAvailableTools",
    "ListNamespaces",
    "ListTools",
    "ProbeTool",
    "RegisterTool",
    "RegisterTools",
    "ReportProbeResult",
    "SearchTools",
    "SetToolEnabled",
    "UnregisterTools",
    "WatchAvailableTools",
    "WatchTools",
];

/// Whether bytes hold the canary, in any case.
fn told(bytes: &[u8]) -> bool {
    String::from_utf8_lossy(bytes).to_lowercase().contains(CANARY)
}

/// Notes everything that was said to it, and answers with a refusal that repeats the request.
async fn parrot() -> (String, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, heard) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move {
                let mut read = vec![0; 8 * 1024];
                let mut count = 0;
                // A POST says its body with its head, as both are small.
                while let Ok(Ok(n @ 1..)) =
                    timeout(Duration::from_millis(300), stream.read(&mut read[count..])).await
                {
                    count += n;
                }
                let request = String::from_utf8_lossy(&read[..count]).into_owned();
                let reason = request.replace(['\r', '\n'], " ").replace(['"', '\\'], "'");
                // The parts with secrets first: a message has room for 256 characters.
                let reason = reason.split(' ').filter(|w| told(w.as_bytes())).collect::<Vec<_>>().join(" ");
                let body = format!(r#"{{"available": false, "reason": "{reason}"}}"#);
                let head = format!("HTTP/1.1 403 Forbidden\r\ncontent-length: {}\r\n\r\n", body.len());
                let _gone = stream.write_all((head + &body).as_bytes()).await;
                let _unheard = sender.send(request);
            });
        }
    });
    (address, heard)
}

fn header(name: &str, content: Content) -> ProbeHeader {
    ProbeHeader { name: name.to_owned(), content: Some(content) }
}

fn secret(what: &str) -> String {
    format!("{CANARY}-{what}")
}

/// A tool whose probes carry all there is.
fn loaded(address: &str, title: &str) -> ToolSpec {
    let headers = vec![
        header("x-literal", Content::Value(secret("literal"))),
        header("x-secret", Content::SecretRef("key".to_owned())),
        header("", Content::BearerSecretRef("token".to_owned())),
    ];
    let http = HttpProbe {
        url: format!("http://{address}/?token={}", secret("query")),
        method: HttpMethod::Post.into(),
        headers: headers.clone(),
        body: Some(ProbeBody { content: Some(Text(secret("body"))) }),
        ..Default::default()
    };
    let grpc = GrpcProbe { target: address.to_owned(), headers, ..Default::default() };
    let probes = [Kind::Http(http), Kind::Grpc(grpc), Kind::Report(Default::default())];
    ToolSpec {
        name: "loaded".to_owned(),
        title: title.to_owned(),
        probes: probes.into_iter().map(|kind| ProbeSpec { kind: Some(kind), ..Default::default() }).collect(),
        interval: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
        ..Default::default()
    }
}

/// Specs that are refused, with a canary where the fault is.
fn refused() -> Vec<ToolSpec> {
    let http = |http| ToolSpec {
        name: "refused".to_owned(),
        probes: vec![ProbeSpec { kind: Some(Kind::Http(http)), ..Default::default() }],
        ..Default::default()
    };
    let base = || HttpProbe { url: "http://h".to_owned(), ..Default::default() };
    let with = |header| http(HttpProbe { headers: vec![header], ..base() });
    let url = |text: String| http(HttpProbe { url: text, ..base() });
    vec![
        with(header("x", Content::Value(format!("{}\r\n", secret("a"))))),
        with(header("x", Content::Value(secret("a").repeat(500)))),
        with(header("host", Content::Value(secret("a")))),
        http(HttpProbe { body: Some(ProbeBody { content: Some(Text(secret("a"))) }), ..base() }),
        http(HttpProbe {
            method: HttpMethod::Post.into(),
            body: Some(ProbeBody { content: Some(Text(secret("a").repeat(500))) }),
            ..base()
        }),
        url(format!("http://user:{}@h/", secret("a"))),
        url(format!("http://h/?a={} ", secret("a"))),
        url(format!("ftp://h/?a={}", secret("a"))),
        url(format!("http://127.0.0.9:1/?a={}#x", secret("a"))),
        url(format!("http://169.254.169.254/?a={}", secret("a"))),
        url(format!("http://h/?a={}{}", secret("a"), "x".repeat(2_048))),
    ]
}

/// Replies, for the search.
#[derive(Default)]
struct Heard(Vec<(String, Vec<u8>)>);

impl Heard {
    fn reply<T: Message + std::fmt::Debug>(
        &mut self,
        method: &str,
        reply: Result<tonic::Response<T>, Status>,
    ) {
        let bytes = match reply {
            Ok(reply) => {
                let text = format!("{:?} {:?}", reply.metadata(), reply.get_ref());
                [reply.get_ref().encode_to_vec(), text.into_bytes()].concat()
            }
            Err(status) => [
                format!("{status:?} {status}").as_bytes(),
                status.details(),
                &format!("{:?}", status.metadata()).into_bytes(),
            ]
            .concat(),
        };
        self.0.push((method.to_owned(), bytes));
    }
}

fn write(dir: &TempDir, file: &str, content: &str) {
    fs::write(dir.path().join(file), content).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn canaries_are_told_to_nobody() {
    let (address, mut heard) = parrot().await;
    // Where a proxy would be, nobody must come.
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxied = format!("http://{}", proxy.local_addr().unwrap());
    let mounted = TempDir::new().unwrap();
    write(&mounted, "token", &secret("token"));
    write(&mounted, "token.hosts", "http://127.0.0.1\n");
    write(&mounted, "key", &secret("key"));
    write(&mounted, "key.hosts", "http://127.0.0.1\n");
    let server = Server::start(|c| {
        c.args(["--log", "trace"]).args([format!("--secrets-dir={}", mounted.path().display())]);
        for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
            c.env(name, &proxied);
        }
    })
    .await;
    let mut told_by = Heard::default();
    let mut tools = server.tools();

    let name = || "loaded".to_owned();
    let register =
        |tool, overwrite| RegisterToolRequest { tool: Some(tool), overwrite, ..Default::default() };
    told_by.reply("RegisterTool", tools.register_tool(register(loaded(&address, "a"), false)).await);
    told_by.reply("RegisterTool", tools.register_tool(register(loaded(&address, "b"), false)).await);
    told_by.reply("RegisterTool", tools.register_tool(register(loaded(&address, "b"), true)).await);
    for tool in refused() {
        let refusal = tools.register_tool(register(tool.clone(), false)).await;
        assert!(refusal.is_err(), "{tool:?}");
        told_by.reply("RegisterTool", refusal);
        let many = RegisterToolsRequest { tools: vec![tool], ..Default::default() };
        told_by.reply("RegisterTools", tools.register_tools(many).await);
    }
    // The target was told everything, so there is something to hide.
    let mut requests = String::new();
    while ["literal", "key", "token", "query", "body"].iter().any(|what| !requests.contains(&secret(what))) {
        requests += &timeout(Duration::from_secs(10), heard.recv()).await.expect("a probe").unwrap();
    }
    told_by
        .reply("ProbeTool", tools.probe_tool(ProbeToolRequest { name: name(), ..Default::default() }).await);
    let got = tools.get_tool(GetToolRequest { name: name(), ..Default::default() }).await;
    let status = got.as_ref().unwrap().get_ref().tool.clone().unwrap().status.unwrap();
    let message = &status.probes[0].message;
    assert!(message.contains("[hidden]"), "the target's repetition is shown without the secrets: {message}");
    // Registered again as it is shown, all that is hidden is known again, and still told to nobody.
    let shown = got.as_ref().unwrap().get_ref().tool.clone().unwrap().spec.unwrap();
    let again = tools.register_tool(register(shown, false)).await;
    assert_eq!(again.as_ref().unwrap().get_ref().result(), RegisterResult::Unchanged);
    told_by.reply("RegisterTool", again);
    told_by.reply("GetTool", got);
    told_by.reply("ListTools", tools.list_tools(ListToolsRequest::default()).await);
    told_by.reply("ListNamespaces", tools.list_namespaces(ListNamespacesRequest::default()).await);
    let request = ListAvailableToolsRequest { include_hidden: true, ..Default::default() };
    told_by.reply("ListAvailableTools", tools.list_available_tools(request).await);
    let request = SearchToolsRequest { query: CANARY[..4].to_owned(), ..Default::default() };
    told_by.reply("SearchTools", tools.search_tools(request).await);
    told_by.reply(
        "ExplainTool",
        tools.explain_tool(ExplainToolRequest { name: name(), ..Default::default() }).await,
    );
    told_by.reply(
        "GetAllowlistDiagnostics",
        tools.get_allowlist_diagnostics(GetAllowlistDiagnosticsRequest::default()).await,
    );
    let mut watch = tools.watch_tools(WatchToolsRequest::default()).await.unwrap().into_inner();
    told_by.reply("WatchTools", watch.message().await.map(|m| tonic::Response::new(m.unwrap())));
    let mut watch =
        tools.watch_available_tools(WatchAvailableToolsRequest::default()).await.unwrap().into_inner();
    told_by.reply("WatchAvailableTools", watch.message().await.map(|m| tonic::Response::new(m.unwrap())));
    for enabled in [false, true] {
        let request = SetToolEnabledRequest { name: name(), enabled, ..Default::default() };
        told_by.reply("SetToolEnabled", tools.set_tool_enabled(request).await);
    }
    let request = ApproveToolLabelsRequest { name: name(), ..Default::default() };
    told_by.reply("ApproveToolLabels", tools.approve_tool_labels(request).await);
    let request = ReportProbeResultRequest { name: name(), ..Default::default() };
    told_by.reply("ReportProbeResult", tools.report_probe_result(request).await);
    let many = RegisterToolsRequest { tools: vec![loaded(&address, "b")], ..Default::default() };
    told_by.reply("RegisterTools", tools.register_tools(many).await);
    let (_, metrics) = server.admin_get("/metrics").await.unwrap();
    let shown = commands(&server).await;

    let request = UnregisterToolsRequest { names: vec![name()], ..Default::default() };
    told_by.reply("UnregisterTools", tools.unregister_tools(request).await);
    told_by
        .reply("ClearTools", tools.clear_tools(ClearToolsRequest { all: true, ..Default::default() }).await);

    assert!(told_by.0.iter().any(|(_, bytes)| String::from_utf8_lossy(bytes).contains("[hidden]")));
    for (method, bytes) in &told_by.0 {
        assert!(!told(bytes), "{method} tells a secret: {}", String::from_utf8_lossy(bytes));
    }
    every_method_was_called(&told_by);
    assert!(!told(metrics.as_bytes()), "{metrics}");
    assert!(!told(shown.as_bytes()), "{shown}");
    let log = server.log();
    assert!(log.contains("TRACE") && log.contains("loaded"), "the log is one at TRACE");
    let line = log.lines().find(|line| told(line.as_bytes()));
    assert!(line.is_none(), "the log tells a secret: {line:?}");
    let came = timeout(Duration::from_millis(10), proxy.accept()).await;
    assert!(came.is_err(), "a probe went to a proxy");
}

/// What the commands show of the tool.
async fn commands(server: &Server) -> String {
    let url = format!("http://{}", server.address());
    let mut shown = String::new();
    for args in [
        &["tools", "get", "loaded"][..],
        &["tools", "get", "loaded", "--output", "json"],
        &["tools", "list", "--output", "json"],
        &["tools", "probe", "loaded"],
        &["tools", "probe", "loaded", "--output", "json"],
    ] {
        let ran = run(args, &[("TOOLPULSE_SERVER", &url)]).await;
        assert!(ran.stdout.contains("loaded") || args[1] != "get", "{args:?}: {ran:?}");
        shown += &ran.stdout;
        shown += &ran.stderr;
    }
    shown
}

fn every_method_was_called(told_by: &Heard) {
    let files = prost_types::FileDescriptorSet::decode(DESCRIPTORS).unwrap().file;
    let services = files.iter().flat_map(|file| &file.service);
    let registry = services.filter(|service| service.name() == "ToolRegistryService");
    let mut methods: Vec<String> = registry.flat_map(|s| &s.method).map(|m| m.name().to_owned()).collect();
    methods.sort();
    assert_eq!(methods, CALLED, "call the new method above");
    for method in methods {
        assert!(told_by.0.iter().any(|(called, _)| *called == method), "{method} was not called");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_own_listeners_are_no_targets() {
    let server = Server::start(|c| {
        c.store("memory");
    })
    .await;
    let tools = Arc::new(server.tools());
    let probed = |kind| ToolSpec {
        name: "own".to_owned(),
        probes: vec![ProbeSpec { kind: Some(kind), ..Default::default() }],
        ..Default::default()
    };
    for address in [server.address(), server.admin_address()] {
        let port = address.rsplit(':').next().unwrap();
        let tcp =
            |host: &str| Kind::Tcp(toolpulse::proto::v1::TcpProbe { address: format!("{host}:{port}") });
        for host in ["127.0.0.1", "[::ffff:127.0.0.1]", "localhost"] {
            let request = RegisterToolRequest { tool: Some(probed(tcp(host))), ..Default::default() };
            let refusal = (*tools).clone().register_tool(request).await.unwrap_err();
            let text = format!("{refusal:?}");
            assert!(text.contains("own listener") || host == "localhost", "{host}: {text}");
        }
        // Only the resolver knows that it is us.
        let request = RegisterToolRequest {
            tool: Some(probed(tcp("127.1"))),
            overwrite: true,
            wait_for_probe: Some(prost_types::Duration { seconds: 10, nanos: 0 }),
            ..Default::default()
        };
        let tool = (*tools).clone().register_tool(request).await.unwrap().into_inner().tool.unwrap();
        let probe = tool.status.unwrap().probes.remove(0);
        // A resolver may refuse such a text.
        if probe.error_class() != toolpulse::proto::v1::ErrorClass::Dns {
            assert_eq!(probe.error_class(), toolpulse::proto::v1::ErrorClass::Blocked, "{probe:?}");
            assert!(probe.message.contains("own listener"), "{probe:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_certificate_is_refused_at_registration_or_told_ever_after() {
    let tls = Some(ProbeTls { insecure_skip_verify: true, ..Default::default() });
    let http = HttpProbe { url: "https://127.0.0.1:9/".to_owned(), tls, ..Default::default() };
    let spec = ToolSpec {
        name: "blind".to_owned(),
        probes: vec![ProbeSpec { kind: Some(Kind::Http(http)), ..Default::default() }],
        ..Default::default()
    };
    let request = || RegisterToolRequest { tool: Some(spec.clone()), ..Default::default() };
    let server = Server::start(|c| {
        c.store("memory");
    })
    .await;
    let refusal = server.tools().register_tool(request()).await.unwrap_err();
    assert!(format!("{refusal:?}").contains("TOOLPULSE_PROBE_INSECURE_TLS"), "{refusal:?}");
    let server = Server::start(|c| {
        c.store("memory").env("TOOLPULSE_PROBE_INSECURE_TLS", "true");
    })
    .await;
    let reply = server.tools().register_tool(request()).await.unwrap().into_inner();
    assert_eq!(reply.warnings[0].code, "TLS_NOT_VERIFIED");
    let listed =
        server.tools().list_tools(ListToolsRequest::default()).await.unwrap().into_inner().tools.remove(0);
    assert_eq!(listed.warnings[0].code, "TLS_NOT_VERIFIED");
    let url = format!("http://{}", server.address());
    let shown = run(&["tools", "get", "blind"], &[("TOOLPULSE_SERVER", &url)]).await;
    assert!(shown.stdout.contains("TLS_NOT_VERIFIED"), "{shown:?}");
}

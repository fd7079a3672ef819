use std::collections::HashSet;

use super::*;
use crate::core::probe::{ClientIdentity, HostPort, HttpUrl, Secret, SecretName, Tls};

fn bare() -> ToolSpec {
    ToolSpec::new(ToolName::parse("search").unwrap())
}

fn http() -> HttpProbe {
    let url = HttpUrl {
        text: "http://h/x".to_owned(),
        https: false,
        endpoint: HostPort { host: "h".to_owned(), port: 80 },
        path_and_query: "/x".to_owned(),
    };
    HttpProbe::get(url)
}

fn mcp() -> McpProbe {
    McpProbe { url: http().url, headers: vec![], expected_statuses: vec![], tls: None }
}

fn grpc() -> GrpcProbe {
    GrpcProbe {
        target: HostPort { host: "h".to_owned(), port: 80 },
        service: String::new(),
        headers: vec![],
        tls: None,
    }
}

fn probed(kinds: impl IntoIterator<Item = ProbeKind>) -> ToolSpec {
    let probes = kinds.into_iter().map(|kind| ProbeSpec { name: "p".into(), kind }).collect();
    ToolSpec { probes, ..bare() }
}

fn full() -> ToolSpec {
    let second = Duration::from_secs(1);
    ToolSpec {
        title: "Search".to_owned(),
        description: "searches".to_owned(),
        input_schema: r#"{"type":"object","properties":{"q":{"maximum":1e2}}}"#.to_owned(),
        endpoint: "https://h/mcp".to_owned(),
        windows: GivenWindows { interval: Some(second), ttl: Some(30 * second), ..GivenWindows::default() },
        ..probed([
            ProbeKind::Http(HttpProbe { expected_statuses: vec![404], ..http() }),
            ProbeKind::Grpc(grpc()),
            ProbeKind::Report,
        ])
    }
}

fn header(name: &str, value: HeaderValue) -> Header {
    Header { name: name.to_owned(), value }
}

fn literal() -> HeaderValue {
    HeaderValue::Literal(Secret::new("v"))
}

fn secret(name: &str) -> SecretName {
    SecretName::parse(name).unwrap()
}

#[test]
fn what_replies_hide_is_not_in_the_hash_and_still_makes_another_spec() {
    let with = |value: &str, body: &str, query: &str| {
        let url = HttpUrl {
            text: format!("http://h/x?{query}"),
            path_and_query: format!("/x?{query}"),
            ..http().url
        };
        let headers = vec![header("authorization", HeaderValue::Literal(Secret::new(value)))];
        probed([ProbeKind::Http(HttpProbe {
            method: Method::Post(Secret::new(body)),
            headers,
            ..HttpProbe::get(url)
        })])
    };
    let spec = with("v", "b", "q");
    let hash = spec_hash(&spec);
    for other in [with("w", "b", "q"), with("v", "c", "q"), with("v", "b", "r")] {
        assert_eq!(spec_hash(&other), hash);
        assert!(!same_spec((&hash, &spec), (&hash, &other)));
    }
    assert!(same_spec((&hash, &spec), (&hash, &with("v", "b", "q"))));
}

#[test]
fn a_probe_that_takes_any_certificate_is_told() {
    let tls = |insecure_skip_verify| Some(Tls { insecure_skip_verify, ..Tls::default() });
    let found = warnings(&probed([
        ProbeKind::Grpc(GrpcProbe { tls: tls(false), ..grpc() }),
        ProbeKind::Http(HttpProbe { tls: tls(true), ..http() }),
    ]));
    let told: Vec<(&str, &str)> = found.iter().map(|w| (w.field.as_str(), w.code)).collect();
    assert_eq!(told, [("probes[1].http.tls.insecure_skip_verify", "TLS_NOT_VERIFIED")]);
}

/// These may never change: owners and agents keep them.
#[test]
fn hashes_stay_the_same_for_ever() {
    assert_eq!(
        &*spec_hash(&bare()),
        "sha256:a202b1816b8bd789b2b218fb44bd7057fc0c73a92b339a37fbecd37f5746aadf"
    );
    assert_eq!(
        &*spec_hash(&full()),
        "sha256:57bcaea8d7850bb890644ec485953aef7f328d2969501fcbe340760c31df474a"
    );
}

#[test]
fn labels_and_white_space_make_no_difference() {
    let labelled = ToolSpec { labels: BTreeMap::from([("a".to_owned(), "b".to_owned())]), ..full() };
    assert_eq!(spec_hash(&labelled), spec_hash(&full()));
    let spaced = ToolSpec {
        input_schema: "{ \"type\" : \"object\",\n\"properties\":{\"q\":{\"maximum\":1e2}}}\n".to_owned(),
        ..full()
    };
    assert_eq!(spec_hash(&spaced), spec_hash(&full()));
}

#[test]
fn a_priority_that_is_no_integer_is_told() {
    let priority = |text: &str| ToolSpec {
        labels: BTreeMap::from([("priority".to_owned(), text.to_owned())]),
        ..bare()
    };
    for good in ["0", "-1", "7", "9223372036854775807"] {
        assert_eq!(warnings(&priority(good)), [], "{good}");
    }
    assert_eq!(warnings(&bare()), []);
    for bad in ["", "high", "1.5", "9223372036854775808"] {
        let found = warnings(&priority(bad));
        let told: Vec<(&str, &str)> = found.iter().map(|w| (w.field.as_str(), w.code)).collect();
        assert_eq!(told, [("labels['priority']", "PRIORITY_NOT_INTEGER")], "{bad}");
        assert!(found[0].message.starts_with(&format!("priority '{bad}' is no integer")), "{found:?}");
    }
}

#[test]
fn everything_else_makes_a_difference() {
    let text = || "{}".to_owned();
    let json = |input: &str| ToolSpec { input_schema: input.to_owned(), ..bare() };
    let window = |windows| ToolSpec { windows, ..bare() };
    let second = Some(Duration::from_secs(1));
    let named = || Some(Tls { server_name: Some("n".to_owned()), ..Tls::default() });
    let http = |probe| probed([ProbeKind::Http(probe)]);
    let mcp = |probe| probed([ProbeKind::Mcp(probe)]);
    let grpc_of = |probe| probed([ProbeKind::Grpc(probe)]);
    let none = GivenWindows::default();
    let https = |tls| http(HttpProbe { tls: Some(tls), ..self::http() });
    let specs = [
        bare(),
        ToolSpec { name: ToolName::parse("Search").unwrap(), ..bare() },
        ToolSpec { title: text(), ..bare() },
        ToolSpec { description: text(), ..bare() },
        ToolSpec { endpoint: text(), ..bare() },
        ToolSpec { output_schema: text(), ..bare() },
        ToolSpec { annotations: text(), ..bare() },
        ToolSpec { extra: text(), ..bare() },
        json("{}"),
        json(schema::EMPTY_INPUT),
        json(r#"{"a":1,"b":2}"#),
        json(r#"{"b":2,"a":1}"#),
        json(r#"{"a":1.0,"b":2}"#),
        json(r#"{"a ":1,"b":2}"#),
        window(GivenWindows { interval: second, ..none }),
        window(GivenWindows { timeout: second, ..none }),
        window(GivenWindows { ttl: second, ..none }),
        window(GivenWindows { grace: second, ..none }),
        window(GivenWindows { grace: Some(Duration::from_nanos(1_000_000_001)), ..none }),
        window(GivenWindows { success_threshold: Some(1), ..none }),
        window(GivenWindows { success_threshold: Some(2), ..none }),
        window(GivenWindows { failure_threshold: Some(2), ..none }),
        ToolSpec { unregister_after: second, ..bare() },
        probed([ProbeKind::Report]),
        probed([ProbeKind::Report, ProbeKind::Report]),
        http(self::http()),
        http(HttpProbe { method: Method::Head, ..self::http() }),
        http(HttpProbe { expected_statuses: vec![404], ..self::http() }),
        http(HttpProbe { no_statuses: vec![404], ..self::http() }),
        http(HttpProbe { no_statuses: vec![404, 405], ..self::http() }),
        http(HttpProbe { tls: named(), ..self::http() }),
        http(HttpProbe {
            url: HttpUrl { text: "http://h/y".to_owned(), ..self::http().url },
            ..self::http()
        }),
        grpc_of(grpc()),
        grpc_of(GrpcProbe { service: "s".to_owned(), ..grpc() }),
        grpc_of(GrpcProbe { tls: Some(Tls::default()), ..grpc() }),
        grpc_of(GrpcProbe { tls: named(), ..grpc() }),
        http(HttpProbe { method: Method::Post(Secret::new("")), ..self::http() }),
        http(HttpProbe { headers: vec![header("a", literal())], ..self::http() }),
        http(HttpProbe { headers: vec![header("b", literal())], ..self::http() }),
        http(HttpProbe { headers: vec![header("a", HeaderValue::Secret(secret("s")))], ..self::http() }),
        http(HttpProbe { headers: vec![header("a", HeaderValue::Secret(secret("t")))], ..self::http() }),
        http(HttpProbe { headers: vec![header("a", HeaderValue::Bearer(secret("s")))], ..self::http() }),
        grpc_of(GrpcProbe { headers: vec![header("a", literal())], ..grpc() }),
        https(Tls { ca: Some(secret("s")), ..Tls::default() }),
        https(Tls { client: Some(ClientIdentity { cert: secret("s"), key: secret("t") }), ..Tls::default() }),
        https(Tls { client: Some(ClientIdentity { cert: secret("t"), key: secret("s") }), ..Tls::default() }),
        https(Tls { insecure_skip_verify: true, ..Tls::default() }),
        probed([ProbeKind::Tcp(TcpProbe { address: grpc().target })]),
        mcp(self::mcp()),
        mcp(McpProbe { expected_statuses: vec![401], ..self::mcp() }),
        mcp(McpProbe { tls: named(), ..self::mcp() }),
        mcp(McpProbe { headers: vec![header("a", literal())], ..self::mcp() }),
        probed([ProbeKind::Report, ProbeKind::Grpc(grpc())]),
        probed([ProbeKind::Grpc(grpc()), ProbeKind::Report]),
    ];
    let hashes: HashSet<_> = specs.iter().map(spec_hash).collect();
    assert_eq!(hashes.len(), specs.len());
}

#[test]
fn a_spec_that_was_stored_before_there_were_thresholds_is_read() {
    let serde_json::Value::Object(mut old) = serde_json::to_value(full()).unwrap() else { unreachable!() };
    old.remove("unregister_after");
    let windows = old["windows"].as_object_mut().unwrap();
    for field in ["success_threshold", "failure_threshold"] {
        windows.remove(field).unwrap();
    }
    assert_eq!(serde_json::from_value::<ToolSpec>(old.into()).unwrap(), full());
}

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{
    core::{probe::shown_url, schema},
    proto::v1::{probe_body::Content::Text, probe_header::Content, probe_spec::Kind},
};

mod carry;

fn named(name: &str) -> v1::ToolSpec {
    v1::ToolSpec { name: name.to_owned(), ..Default::default() }
}

fn spec() -> v1::ToolSpec {
    named("search")
}

fn probe(name: &str, kind: Kind) -> v1::ProbeSpec {
    v1::ProbeSpec { name: name.to_owned(), kind: Some(kind) }
}

fn probed(probes: Vec<v1::ProbeSpec>) -> v1::ToolSpec {
    v1::ToolSpec { probes, ..spec() }
}

fn http(url: &str) -> v1::HttpProbe {
    v1::HttpProbe { url: url.to_owned(), ..Default::default() }
}

fn with_http(http: v1::HttpProbe) -> v1::ToolSpec {
    probed(vec![probe("", Kind::Http(http))])
}

fn report(name: &str) -> v1::ProbeSpec {
    probe(name, Kind::Report(v1::ReportProbe {}))
}

fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

fn labels(pairs: &[(&str, &str)]) -> v1::ToolSpec {
    let labels = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    v1::ToolSpec { labels, ..spec() }
}

fn mcp(mcp: v1::McpProbe) -> v1::ToolSpec {
    probed(vec![probe("", Kind::Mcp(mcp))])
}

fn tls(server_name: &str) -> Option<v1::ProbeTls> {
    Some(v1::ProbeTls { server_name: server_name.to_owned(), ..Default::default() })
}

fn input(json: &str) -> v1::ToolSpec {
    v1::ToolSpec { input_schema_json: json.to_owned(), ..spec() }
}

/// Each of these has exactly one fault: its field, and the start of its message.
#[test]
fn each_fault_is_told_with_its_field() {
    let grpc = |grpc| probed(vec![probe("", Kind::Grpc(grpc))]);
    let target = || "h:1".to_owned();
    let long = |n: usize| "é".repeat(n);
    let many: Vec<(String, String)> = (0..33).map(|n| (n.to_string(), String::new())).collect();
    let cases = [
        (named(""), "name", "name '' must be 1 to 128 characters"),
        (named("a b"), "name", "name 'a b' must be 1 to 128 characters"),
        (named(&"a".repeat(129)), "name", "name 'aaa"),
        (v1::ToolSpec { title: long(257), ..spec() }, "title", "has 257 characters; at most 256"),
        (v1::ToolSpec { title: "a\0".to_owned(), ..spec() }, "title", "must not contain a NUL"),
        (
            v1::ToolSpec { description: long(8_193), ..spec() },
            "description",
            "has 16386 bytes; at most 16384",
        ),
        (v1::ToolSpec { description: "\0".to_owned(), ..spec() }, "description", "must not contain a NUL"),
        (v1::ToolSpec { endpoint: long(2_049), ..spec() }, "endpoint", "has 2049 characters; at most 2048"),
        (v1::ToolSpec { endpoint: "a\nb".to_owned(), ..spec() }, "endpoint", "must not contain control"),
        (input("{"), "input_schema_json", "is not JSON: EOF while parsing an object at line 1"),
        (input("true"), "input_schema_json", "must be a JSON object, not a boolean"),
        (input("[]"), "input_schema_json", "must be a JSON object, not an array"),
        (input(" "), "input_schema_json", "is not JSON: EOF"),
        (
            input(r#"{"type":"string"}"#),
            "input_schema_json#/type",
            "must be \"object\", not '\\\"string\\\"'",
        ),
        (input(r#"{"type":["object"]}"#), "input_schema_json#/type", "must be \"object\", not"),
        (
            input(r#"{"type":"object","properties":{"a":{},"a":{}}}"#),
            "input_schema_json#/properties/a",
            "the object has the key 'a' twice",
        ),
        (
            input(&"x".repeat(1 << 20)),
            "input_schema_json",
            "has 1048576 of the 1048576 bytes of JSON of this",
        ),
        (
            v1::ToolSpec { output_schema_json: "1".to_owned(), ..spec() },
            "output_schema_json",
            "must be a JSON object, not a number",
        ),
        (
            v1::ToolSpec { annotations_json: "null".to_owned(), ..spec() },
            "annotations_json",
            "must be a JSON object, not null",
        ),
        (
            v1::ToolSpec { extra_json: r#"{"_meta":{},"inputSchema":{}}"#.to_owned(), ..spec() },
            "extra_json#/inputSchema",
            "must not repeat inputSchema; set the field input_schema_json",
        ),
        (
            v1::ToolSpec { labels: many.into_iter().collect(), ..spec() },
            "labels",
            "has 33 labels; at most 32",
        ),
        (labels(&[("", "")]), "labels['']", "a key must be 1 to 63 characters"),
        (labels(&[("a b", "")]), "labels['a b']", "a key must be 1 to 63 characters"),
        (labels(&[("a", "b c")]), "labels['a']", "value 'b c' must be at most 63 characters"),
        (labels(&[("a", &"b".repeat(64))]), "labels['a']", "value 'bbb"),
        (probed(["a", "b", "c", "d", "e"].map(report).to_vec()), "probes", "has 5 probes; at most 4"),
        (
            probed(vec![v1::ProbeSpec::default()]),
            "probes[0]",
            "has no kind; set one of http, grpc, tcp, mcp and report",
        ),
        (probed(vec![report("a b")]), "probes[0].name", "name 'a b' must be 1 to 63 characters"),
        (probed(vec![report(&"a".repeat(64))]), "probes[0].name", "name 'aaa"),
        (
            probed(vec![report(""), report("")]),
            "probes[1].name",
            "'report' is the name of probes[0] already (a probe without a name is called after its kind)",
        ),
        (
            probed(vec![report("x"), report("x")]),
            "probes[1].name",
            "'x' is the name of probes[0] already; give",
        ),
        (
            with_http(http("example.com/health")),
            "probes[0].http.url",
            "url 'example.com/health' has no scheme",
        ),
        (with_http(http("")), "probes[0].http.url", "is empty"),
        (
            with_http(v1::HttpProbe { method: 7, ..http("http://h") }),
            "probes[0].http.method",
            "7 is not a value of HttpMethod",
        ),
        (
            with_http(v1::HttpProbe { expected_statuses: vec![99, 200, 600, 70_000], ..http("http://h") }),
            "probes[0].http.expected_statuses",
            "99, 600, 70000 is not a status from 100 to 599",
        ),
        (
            with_http(v1::HttpProbe { no_statuses: vec![404; 33], ..http("http://h") }),
            "probes[0].http.no_statuses",
            "has 33 statuses; at most 32",
        ),
        (
            with_http(v1::HttpProbe {
                expected_statuses: vec![404, 500],
                no_statuses: vec![500, 404],
                ..http("http://h")
            }),
            "probes[0].http.no_statuses",
            "404, 500 can't be both expected and a no",
        ),
        (
            with_http(v1::HttpProbe { tls: tls(""), ..http("http://h") }),
            "probes[0].http.tls",
            "is for https:// only",
        ),
        (
            with_http(v1::HttpProbe { tls: tls("a b"), ..http("https://h") }),
            "probes[0].http.tls.server_name",
            "'a b' is not a host name or address",
        ),
        (grpc(v1::GrpcProbe::default()), "probes[0].grpc.target", "is empty; write host:port"),
        (
            grpc(v1::GrpcProbe { target: target(), service: long(257), tls: None, ..Default::default() }),
            "probes[0].grpc.service",
            "has 257 characters; at most 256",
        ),
        (
            grpc(v1::GrpcProbe {
                target: target(),
                service: "a\n".to_owned(),
                tls: None,
                ..Default::default()
            }),
            "probes[0].grpc.service",
            "must not contain control characters",
        ),
        (
            grpc(v1::GrpcProbe { target: target(), tls: tls("-"), ..Default::default() }),
            "probes[0].grpc.tls.server_name",
            "'-' is not a host name or address",
        ),
        (
            probed(vec![report(""), probe("", Kind::Tcp(v1::TcpProbe { address: "h:0".to_owned() }))]),
            "probes[1].tcp.address",
            "'h:0': port '0' is not a number from 1 to 65535",
        ),
        (mcp(v1::McpProbe::default()), "probes[0].mcp.url", "is empty"),
        (
            mcp(v1::McpProbe {
                expected_statuses: vec![200, 401],
                url: "http://h".to_owned(),
                ..Default::default()
            }),
            "probes[0].mcp.expected_statuses",
            "200 to 299 can't be listed",
        ),
        (
            mcp(v1::McpProbe {
                expected_statuses: vec![401, 99],
                url: "http://h".to_owned(),
                ..Default::default()
            }),
            "probes[0].mcp.expected_statuses",
            "99 is not a status from 100 to 599",
        ),
        (
            mcp(v1::McpProbe { tls: tls(""), url: "http://h".to_owned(), ..Default::default() }),
            "probes[0].mcp.tls",
            "is for https:// only",
        ),
        (
            mcp(v1::McpProbe {
                url: "http://h".to_owned(),
                headers: vec![v1::ProbeHeader {
                    name: "Mcp-Session-Id".to_owned(),
                    content: Some(Content::Value("1".to_owned())),
                }],
                ..Default::default()
            }),
            "probes[0].mcp.headers[0].name",
            "'mcp-session-id' can't be set: it is the protocol's own",
        ),
        (v1::ToolSpec { interval: seconds(0), ..spec() }, "interval", "must be positive"),
        (
            v1::ToolSpec { interval: seconds(3_601), ..spec() },
            "interval",
            "is 1h 1s; it must be from 1s to 1h",
        ),
        (v1::ToolSpec { timeout: seconds(61), ..spec() }, "timeout", "is 1m 1s; it must be from 10ms to 1m"),
        (v1::ToolSpec { ttl: seconds(-30), ..spec() }, "ttl", "must be positive"),
        (v1::ToolSpec { grace: seconds(86_401), ..spec() }, "grace", "is 86401s; it must be at most 24h"),
    ];
    for (pb, field, message) in cases {
        let faults = tool_spec(pb).unwrap_err();
        assert_eq!(faults.len(), 1, "{field}: {faults:?}");
        assert_eq!(faults[0].field, field);
        assert!(faults[0].message.starts_with(message), "{field}: {}", faults[0].message);
    }
}

#[test]
fn all_faults_come_at_once() {
    let bad = v1::ToolSpec {
        name: "a/b".to_owned(),
        input_schema_json: "[".to_owned(),
        extra_json: r#"{"name":1,"title":2}"#.to_owned(),
        probes: vec![
            v1::ProbeSpec::default(),
            probe("", Kind::Http(v1::HttpProbe { method: -1, ..http("ftp://h") })),
        ],
        interval: seconds(-1),
        grace: seconds(0),
        ..Default::default()
    };
    let fields: Vec<String> = tool_spec(bad).unwrap_err().into_iter().map(|f| f.field).collect();
    assert_eq!(
        fields,
        [
            "name",
            "input_schema_json#/0",
            "extra_json#/name",
            "extra_json#/title",
            "probes[0]",
            "probes[1].http.url",
            "probes[1].http.method",
            "interval",
            "grace",
        ]
    );
}

#[test]
fn what_is_at_the_bounds_is_accepted() {
    let filler = "x".repeat(schema::MAX_BYTES - r#"{"type":"object","a":""}{}"#.len());
    let key = "k".repeat(63);
    let pb = v1::ToolSpec {
        title: "é".repeat(256),
        description: "é".repeat(8_192),
        endpoint: "é".repeat(2_048),
        input_schema_json: format!(r#"{{"type":"object","a":"{filler}"}}"#),
        output_schema_json: "{}".to_owned(),
        labels: (10..42).map(|n| (format!("{n}{}", &key[2..]), key.clone())).collect(),
        probes: ["a", "b", "c", &key].map(report).to_vec(),
        interval: seconds(3_600),
        timeout: seconds(60),
        ttl: seconds(86_400),
        grace: seconds(86_400),
        success_threshold: 10,
        failure_threshold: 10,
        unregister_after: seconds(30 * 86_400),
        ..named(&"n".repeat(128))
    };
    assert_eq!(spec_to_proto(&tool_spec(pb.clone()).unwrap()), pb);
    let over = v1::ToolSpec { output_schema_json: "{ }".to_owned(), ..pb };
    let fault = tool_spec(over).unwrap_err().remove(0);
    assert_eq!(fault.field, "input_schema_json");
    assert!(fault.message.contains("of the 196609 bytes"), "{}", fault.message);
}

#[test]
fn thresholds_and_the_time_to_go_have_bounds() {
    let pb = v1::ToolSpec {
        success_threshold: 11,
        failure_threshold: u32::MAX,
        unregister_after: seconds(59),
        ..named("t")
    };
    let faults = tool_spec(pb).unwrap_err();
    let told: Vec<_> = faults.iter().map(|f| (f.field.as_str(), f.message.as_str())).collect();
    assert_eq!(
        told,
        [
            ("success_threshold", "is 11; it must be 1 to 10, or 0 for 1"),
            ("failure_threshold", "is 4294967295; it must be 1 to 10, or 0 for 1"),
            ("unregister_after", "is 59s; it must be from 1m to 2592000s"),
        ]
    );
    let least = v1::ToolSpec {
        success_threshold: 0,
        failure_threshold: 1,
        unregister_after: seconds(60),
        ..named("t")
    };
    let spec = tool_spec(least.clone()).unwrap();
    assert_eq!((spec.windows.success_threshold, spec.windows.failure_threshold), (None, Some(1)));
    assert_eq!(spec_to_proto(&spec), least);
}

#[test]
fn values_are_counted_over_all_texts_of_a_tool() {
    let zeros = |n: usize| format!(r#"{{"type":"object","a":[{}]}}"#, vec!["0"; n].join(","));
    let pb = |n| v1::ToolSpec {
        output_schema_json: zeros(n),
        annotations_json: "{}".to_owned(),
        ..input(&zeros(5_000))
    };
    // Two objects, two arrays and two types besides, and one object more.
    assert!(tool_spec(pb(4_993)).is_ok());
    let faults = tool_spec(pb(4_994)).map(drop).unwrap_err();
    assert_eq!(faults.len(), 1);
    assert_eq!(faults[0].field, "annotations_json");
    assert!(faults[0].message.contains("more than 10000 values"));
    // The bound is told once, not for each text after it.
    assert_eq!(tool_spec(pb(6_000)).map(drop).unwrap_err().len(), 1);
}

#[test]
fn statuses_are_sorted_and_single() {
    let pb = with_http(v1::HttpProbe { expected_statuses: vec![404, 301, 404], ..http("https://h") });
    let spec = tool_spec(pb).unwrap();
    let Some(Kind::Http(sent)) = spec_to_proto(&spec).probes.remove(0).kind else { panic!("not http") };
    assert_eq!(sent.expected_statuses, [301, 404]);
    assert_eq!(&*spec.probes[0].name, "http");
}

fn json_object() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        Just("1e2".to_owned()),
        Just(" 1.0 ".to_owned()),
        Just("123456789012345678901234567890".to_owned()),
        any::<String>().prop_map(|text| schema::string(&text)),
    ];
    let object = prop::collection::hash_map("x-\\PC{0,6}", value, 0..5).prop_map(|members| {
        let members: Vec<_> = members.iter().map(|(k, v)| format!("{} :{v}", schema::string(k))).collect();
        format!("{{ {}}}\n", members.join(","))
    });
    prop_oneof![Just(String::new()), object]
}

/// A schema of arguments: such an object that says what it is.
fn input_schema() -> impl Strategy<Value = String> {
    json_object().prop_map(|text| match text.strip_prefix('{') {
        None => text,
        Some(" }\n") => "{ \"type\" :\"object\" }".to_owned(),
        Some(members) => format!("{{\"type\" : \"object\",{members}"),
    })
}

fn tls_given(names: &'static str) -> impl Strategy<Value = Option<v1::ProbeTls>> {
    prop::option::of(names.prop_map(|server_name| v1::ProbeTls { server_name, ..Default::default() }))
}

fn headers_given() -> impl Strategy<Value = Vec<v1::ProbeHeader>> {
    let content = prop_oneof![
        "[!-~]{0,20}".prop_map(Content::Value),
        "[a-z0-9-]{1,20}".prop_map(Content::SecretRef),
        "[a-z0-9-]{1,20}".prop_map(Content::BearerSecretRef),
    ];
    prop::collection::btree_map("x-[a-z0-9_!~]{1,20}", content, 0..4).prop_map(|headers| {
        headers.into_iter().map(|(name, content)| v1::ProbeHeader { name, content: Some(content) }).collect()
    })
}

fn probe_kind() -> impl Strategy<Value = Kind> {
    let host = || {
        prop_oneof![
            "[a-z][a-z0-9]{0,8}(\\.[a-z]{2,5})?",
            Just("[::1]".to_owned()),
            Just("10.0.0.1".to_owned())
        ]
    };
    let target = || (host(), 1..=u16::MAX).prop_map(|(host, port)| format!("{host}:{port}"));
    let http = (
        target(),
        "(/[a-z%20.]{0,8})?(\\?[a-z=&]{0,6})?",
        0..4,
        vec(100_u32..400, 0..5),
        vec(400_u32..600, 0..5),
    );
    prop_oneof![
        (http, tls_given("[a-z]{1,8}\\.example"), headers_given()).prop_map(
            |((target, path, method, expected_statuses, no_statuses), tls, headers)| {
                let scheme = if tls.is_some() { "https" } else { "http" };
                Kind::Http(v1::HttpProbe {
                    url: format!("{scheme}://{target}{path}"),
                    method,
                    expected_statuses,
                    no_statuses,
                    tls,
                    headers,
                    body: (method == 3).then(|| v1::ProbeBody { content: Some(Text("b".to_owned())) }),
                })
            }
        ),
        (target(), "[a-z.]{0,12}", tls_given("([a-z]{1,8}\\.example)?"), headers_given()).prop_map(
            |(target, service, tls, headers)| Kind::Grpc(v1::GrpcProbe { target, service, tls, headers })
        ),
        target().prop_map(|address| Kind::Tcp(v1::TcpProbe { address })),
        (target(), vec(300_u32..600, 0..5), tls_given("[a-z]{1,8}\\.example"), headers_given()).prop_map(
            |(target, expected_statuses, tls, headers)| {
                let scheme = if tls.is_some() { "https" } else { "http" };
                let url = format!("{scheme}://{target}/mcp?a=b");
                Kind::Mcp(v1::McpProbe { url, expected_statuses, tls, headers })
            }
        ),
        Just(Kind::Report(v1::ReportProbe {})),
    ]
}

fn between(min: u64, max: u64) -> impl Strategy<Value = Option<prost_types::Duration>> {
    prop::option::of((min..=max).prop_map(|ns| to_proto_duration(std::time::Duration::from_nanos(ns))))
}

fn valid() -> impl Strategy<Value = v1::ToolSpec> {
    const SECOND: u64 = 1_000_000_000;
    let texts = ("[A-Za-z0-9_.-]{1,128}", "[^\0]{0,30}", "[^\0]{0,60}", "\\PC{0,30}");
    let json = (input_schema(), json_object(), json_object(), json_object());
    let labels = prop::collection::hash_map("[A-Za-z0-9_./-]{1,63}", "[A-Za-z0-9_./-]{0,63}", 0..6);
    let windows = (
        between(SECOND, 3_600 * SECOND),
        between(SECOND / 100, 60 * SECOND),
        between(1, 86_400 * SECOND),
        between(1, 86_400 * SECOND),
        (0..=MAX_THRESHOLD, 0..=MAX_THRESHOLD),
        between(60 * SECOND, 30 * 86_400 * SECOND),
    );
    (texts, json, labels, vec(probe_kind(), 0..=4), windows).prop_map(
        |(texts, json, labels, kinds, windows)| v1::ToolSpec {
            name: texts.0,
            title: texts.1,
            description: texts.2,
            endpoint: texts.3,
            input_schema_json: json.0,
            output_schema_json: json.1,
            annotations_json: json.2,
            extra_json: json.3,
            labels,
            probes: kinds.into_iter().enumerate().map(|(n, kind)| probe(&format!("p{n}"), kind)).collect(),
            interval: windows.0,
            timeout: windows.1,
            ttl: windows.2,
            grace: windows.3,
            success_threshold: windows.4.0,
            failure_threshold: windows.4.1,
            unregister_after: windows.5,
        },
    )
}

/// What comes back of a probe is in one form: statuses sorted and single, the method said, and nothing that may be a credential.
fn normal(mut pb: v1::ToolSpec) -> v1::ToolSpec {
    for probe in &mut pb.probes {
        let headers = match &mut probe.kind {
            Some(Kind::Http(http)) => &mut http.headers,
            Some(Kind::Grpc(grpc)) => &mut grpc.headers,
            Some(Kind::Mcp(mcp)) => &mut mcp.headers,
            _ => continue,
        };
        for header in headers {
            if let Some(Content::Value(_)) = header.content {
                header.content = Some(Content::Hidden(true));
            }
        }
        if let Some(Kind::Http(http)) = &mut probe.kind {
            http.method = http.method.max(1);
            http.url = shown_url(&http.url);
            if let Some(body) = &mut http.body {
                body.content = Some(v1::probe_body::Content::Hidden(true));
            }
            for statuses in [&mut http.expected_statuses, &mut http.no_statuses] {
                statuses.sort_unstable();
                statuses.dedup();
            }
        }
        if let Some(Kind::Mcp(mcp)) = &mut probe.kind {
            mcp.url = shown_url(&mcp.url);
            mcp.expected_statuses.sort_unstable();
            mcp.expected_statuses.dedup();
        }
    }
    pb
}

fn anything() -> impl Strategy<Value = v1::ToolSpec> {
    let text = || {
        prop_oneof![
            any::<String>(),
            "[a-z:/@\\[\\]#?.%0-9{}\",]{0,30}",
            "(https?://)?[a-z0-9.:\\[\\]@%/?#-]{0,20}"
        ]
    };
    let window = || {
        prop::option::of(
            (any::<i64>(), any::<i32>())
                .prop_map(|(seconds, nanos)| prost_types::Duration { seconds, nanos }),
        )
    };
    let tls =
        prop::option::of(text().prop_map(|server_name| v1::ProbeTls { server_name, ..Default::default() }))
            .boxed();
    let content = prop_oneof![
        text().prop_map(Content::Value),
        text().prop_map(Content::SecretRef),
        text().prop_map(Content::BearerSecretRef),
        any::<bool>().prop_map(Content::Hidden),
    ];
    let header =
        (text(), prop::option::of(content)).prop_map(|(name, content)| v1::ProbeHeader { name, content });
    let headers = vec(header, 0..20).boxed();
    let kind = prop_oneof![
        (
            text(),
            any::<i32>(),
            vec(any::<u32>(), 0..40),
            vec(0_u32..700, 0..40),
            tls.clone(),
            headers.clone()
        )
            .prop_map(|(url, method, expected_statuses, no_statuses, tls, headers)| Kind::Http(
                v1::HttpProbe {
                    url,
                    method,
                    expected_statuses,
                    no_statuses,
                    tls,
                    headers: headers.clone(),
                    body: (!headers.is_empty())
                        .then(|| v1::ProbeBody { content: Some(Text(headers[0].name.clone())) }),
                }
            )),
        (text(), vec(any::<u32>(), 0..40), tls.clone(), headers.clone()).prop_map(
            |(url, expected_statuses, tls, headers)| {
                Kind::Mcp(v1::McpProbe { url, expected_statuses, tls, headers })
            }
        ),
        (text(), text(), tls, headers).prop_map(|(target, service, tls, headers)| Kind::Grpc(
            v1::GrpcProbe { target, service, tls, headers }
        )),
        text().prop_map(|address| Kind::Tcp(v1::TcpProbe { address })),
    ];
    let probes =
        vec((text(), prop::option::of(kind)).prop_map(|(name, kind)| v1::ProbeSpec { name, kind }), 0..6);
    let labels = prop::collection::hash_map(text(), text(), 0..4);
    (vec(text(), 8), labels, probes, window(), window(), any::<u32>()).prop_map(
        |(texts, labels, probes, interval, grace, threshold)| v1::ToolSpec {
            name: texts[0].clone(),
            title: texts[1].clone(),
            description: texts[2].clone(),
            input_schema_json: texts[3].clone(),
            output_schema_json: texts[4].clone(),
            endpoint: texts[5].clone(),
            annotations_json: texts[6].clone(),
            extra_json: texts[7].clone(),
            labels,
            probes,
            interval,
            timeout: interval,
            ttl: grace,
            grace,
            success_threshold: threshold,
            failure_threshold: threshold / 2,
            unregister_after: interval,
        },
    )
}

proptest! {
    #[test]
    fn a_valid_spec_comes_back_and_survives_the_store(pb in valid()) {
        let spec = tool_spec(pb.clone()).unwrap();
        let sent_back = spec_to_proto(&spec);
        prop_assert_eq!(&sent_back, &normal(pb));
        // What hides something is refused, so that nothing is lost by sending it back.
        match tool_spec(sent_back) {
            Ok(again) => prop_assert_eq!(&again, &spec),
            Err(faults) => {
                for fault in faults {
                    prop_assert!(fault.field.ends_with(".hidden") || fault.field.ends_with(".url"), "{:?}", fault);
                }
            }
        }
        let stored = serde_json::to_string(&spec).unwrap();
        prop_assert_eq!(serde_json::from_str::<ToolSpec>(&stored).unwrap(), spec);
    }

    #[test]
    fn nothing_makes_it_panic_and_every_fault_is_told_well(pb in anything()) {
        if let Err(faults) = tool_spec(pb) {
            prop_assert!(!faults.is_empty());
            for fault in faults {
                for text in [&fault.field, &fault.message] {
                    prop_assert!(!text.is_empty() && !text.contains(char::is_control), "{:?}", fault);
                }
            }
        }
    }
}

//! What a probe may and may not carry.

use super::*;

fn header(name: &str, content: Content) -> v1::ProbeHeader {
    v1::ProbeHeader { name: name.to_owned(), content: Some(content) }
}

fn value(text: &str) -> Content {
    Content::Value(text.to_owned())
}

#[test]
fn headers_that_no_owner_sets() {
    let both = [
        "host",
        "Host",
        "HOST",
        "connection",
        "keep-alive",
        "transfer-encoding",
        "content-length",
        "upgrade",
        "te",
        "trailer",
        "expect",
        "proxy-authorization",
        "Proxy-Connection",
        "accept-encoding",
        "cookie",
        "Cookie",
        "user-agent",
        "forwarded",
        "x-forwarded-for",
        "x-real-ip",
        "via",
        "metadata",
        "Metadata-Flavor",
        "x-google-metadata-request",
        "X-aws-ec2-metadata-token",
        "x-aws-ec2-metadata-token-ttl-seconds",
        "http2-settings",
        ":authority",
        "a b",
        "a:",
        "a\r\nhost",
        "\u{e9}",
        "",
    ];
    let grpc_only = ["content-type", "grpc-timeout", "grpc-encoding", "x-trace-bin"];
    let fine =
        ["authorization", "x-forwarded-proto", "accept", "x-api-key", "X-Host", "metadata-x", "origin"];
    let faults = |name: &str, is_grpc: bool| {
        let headers = vec![header(name, value("canary"))];
        let spec = match is_grpc {
            true => probed(vec![probe(
                "",
                Kind::Grpc(v1::GrpcProbe { target: "h:1".to_owned(), headers, ..Default::default() }),
            )]),
            false => with_http(v1::HttpProbe { headers, ..http("http://h") }),
        };
        tool_spec(spec).err()
    };
    for name in both {
        for is_grpc in [false, true] {
            let faults = faults(name, is_grpc).unwrap_or_else(|| panic!("{name:?} is taken"));
            assert!(faults[0].field.ends_with(".headers[0].name"), "{faults:?}");
            assert!(!faults[0].message.contains("canary"), "{faults:?}");
        }
    }
    for name in grpc_only {
        assert_eq!(faults(name, false), None, "{name}");
        assert!(faults(name, true).is_some(), "{name}");
    }
    for name in fine {
        assert_eq!(faults(name, false), None, "{name}");
    }
}

#[test]
fn what_a_probe_can_not_carry() {
    let long = "x".repeat(4_097);
    let one = |content| vec![header("a", content)];
    let by_ref = |name: &str| Content::SecretRef(name.to_owned());
    let body = |text: &str| Some(v1::ProbeBody { content: Some(Text(text.to_owned())) });
    let insecure = || Some(v1::ProbeTls { insecure_skip_verify: true, ..Default::default() });
    let post = v1::HttpMethod::Post.into();
    let base = || http("https://h");
    let tls = |tls| v1::HttpProbe { tls: Some(tls), ..base() };
    let cases: [(v1::HttpProbe, &str, &str); 20] = [
        (
            v1::HttpProbe { headers: vec![header("a", value("")); 17], ..base() },
            "headers",
            "has 17 headers; at most 16",
        ),
        (
            v1::HttpProbe { headers: vec![header("a", value("")); 2], ..base() },
            "headers[1].name",
            "'a' is there twice",
        ),
        (v1::HttpProbe { headers: one(value(&long)), ..base() }, "headers[0].value", "has 4097 bytes"),
        (
            v1::HttpProbe { headers: one(value("a\r\nb: c")), ..base() },
            "headers[0].value",
            "must be visible ASCII",
        ),
        (
            v1::HttpProbe { headers: one(value("\u{e9}")), ..base() },
            "headers[0].value",
            "must be visible ASCII",
        ),
        (v1::HttpProbe { headers: one(value(" a")), ..base() }, "headers[0].value", "must not begin or end"),
        (
            v1::HttpProbe { headers: one(Content::Hidden(true)), ..base() },
            "headers[0].hidden",
            "stands in replies",
        ),
        (
            v1::HttpProbe { headers: one(by_ref("../a")), ..base() },
            "headers[0].secret_ref",
            "'../a' is not the name",
        ),
        (v1::HttpProbe { headers: one(by_ref("")), ..base() }, "headers[0].secret_ref", "'' is not the name"),
        (
            v1::HttpProbe { headers: one(Content::BearerSecretRef("a.hosts".to_owned())), ..base() },
            "headers[0].bearer_secret_ref",
            "'a.hosts' is not the name",
        ),
        (
            v1::HttpProbe {
                headers: vec![v1::ProbeHeader { name: "a".to_owned(), content: None }],
                ..base()
            },
            "headers[0]",
            "has no content",
        ),
        (v1::HttpProbe { body: body(""), ..base() }, "body", "is for HTTP_METHOD_POST only"),
        (v1::HttpProbe { method: post, body: body(&long), ..base() }, "body.text", "has 4097 bytes"),
        (
            v1::HttpProbe { method: post, body: Some(v1::ProbeBody::default()), ..base() },
            "body",
            "has no content",
        ),
        (
            v1::HttpProbe {
                method: post,
                body: Some(v1::ProbeBody { content: Some(v1::probe_body::Content::Hidden(true)) }),
                ..base()
            },
            "body.hidden",
            "stands in replies",
        ),
        (
            tls(v1::ProbeTls { ca_ref: "A".to_owned(), ..Default::default() }),
            "tls.ca_ref",
            "'A' is not the name",
        ),
        (
            tls(v1::ProbeTls { client_key_ref: "a".to_owned(), ..Default::default() }),
            "tls.client_cert_ref",
            "a client certificate and its key go together",
        ),
        (
            v1::HttpProbe { headers: one(by_ref("a")), tls: insecure(), ..base() },
            "tls.insecure_skip_verify",
            "can't go together with a reference",
        ),
        (
            tls(v1::ProbeTls { ca_ref: "a".to_owned(), ..insecure().unwrap() }),
            "tls.insecure_skip_verify",
            "can't go together with a reference",
        ),
        (http("https://h/?\u{2026}"), "url", "url 'https://h/?\u{2026}' is one from a reply"),
    ];
    for (probe, field, message) in cases {
        let faults = tool_spec(with_http(probe)).unwrap_err();
        assert_eq!(faults.len(), 1, "{field}: {faults:?}");
        assert_eq!(faults[0].field, format!("probes[0].http.{field}"));
        assert!(faults[0].message.starts_with(message), "{field}: {}", faults[0].message);
    }
    let whole = v1::HttpProbe {
        headers: (0..16).map(|i| header(&format!("a{i}"), value(&long[1..]))).collect(),
        method: post,
        body: body(&long[1..]),
        tls: insecure(),
        ..base()
    };
    assert!(tool_spec(with_http(whole)).is_ok());
}

#[test]
fn a_bearer_needs_no_name() {
    let headers = vec![header("", Content::BearerSecretRef("token".to_owned()))];
    let spec = tool_spec(with_http(v1::HttpProbe { headers, ..http("https://h") })).unwrap();
    assert_eq!(spec.probes[0].kind.headers()[0].name, "authorization");
}

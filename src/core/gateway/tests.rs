use std::collections::BTreeMap;

use super::*;
use crate::core::refusal::Refusal;

mod life;
mod model;

fn status(run: &str) -> Status {
    Status { run: run.to_owned(), ..Status::default() }
}

fn snapshot(report: Report) -> Snapshot {
    Snapshot {
        namespace: Namespace::default(),
        id: GatewayId::parse("gw").unwrap(),
        report,
        sequence: 1,
        instance: "".into(),
        ttl: Duration::from_secs(30),
        observed_at: None,
        received: Moment::START,
        stale: false,
    }
}

fn given(status: GivenStatus) -> GivenReport {
    GivenReport { content: Some(GivenContent::Status(status)), ..GivenReport::default() }
}

fn fields(given: GivenReport) -> Vec<String> {
    parse_report(given).unwrap_err().into_iter().map(|fault| fault.field).collect()
}

#[test]
fn ids() {
    for ok in ["a", "telegram:bot-1/eu.west_2", &"x".repeat(128)] {
        assert_eq!(GatewayId::parse(ok).unwrap().as_str(), ok);
    }
    for bad in ["", " a", "a b", "caf\u{e9}", "a\n", "a,b", &"x".repeat(129)] {
        assert!(GatewayId::parse(bad).is_err(), "{bad}");
    }
    let message = GatewayId::parse("a b").unwrap_err();
    assert_eq!(message, "gateway id 'a b' must be 1 to 128 characters of [A-Za-z0-9_.:/-]");
}

#[test]
fn statuses_print_as_pythons() {
    // As json.dumps of CPython 3.11 prints them, but for the number literal, which is kept as it was sent.
    let empty = r#"{"run": "idle", "queued": 0, "active_sessions": 0, "sessions_by_channel": {}, "delivery": {}, "degraded": [], "detail": ""}"#;
    assert_eq!(to_text(&Status::default()), empty);
    let full = Status {
        run: "busy".to_owned(),
        queued: 2,
        active_sessions: u64::MAX,
        sessions_by_channel: BTreeMap::from([("telegram".to_owned(), 5), ("caf\u{e9} \"1\"".to_owned(), 2)]),
        delivery: r#" {"outbox_depth":0,"dlq" : 1,"dead_targets":["slack:C123",{}],"b":{"z":null,"a":[]},"\u00e9":1.50E+2} "#.to_owned(),
        degraded: vec![
            DegradedOwner { owner: "channel:telegram".to_owned(), reason: "credential_unavailable".to_owned() },
            DegradedOwner { owner: "a".to_owned(), reason: String::new() },
        ],
        detail: "line\nnext \u{1f600}\u{7f}".to_owned(),
    };
    let expected = concat!(
        r#"{"run": "busy", "queued": 2, "active_sessions": 18446744073709551615, "#,
        r#""sessions_by_channel": {"caf\u00e9 \"1\"": 2, "telegram": 5}, "#,
        r#""delivery": {"b": {"a": [], "z": null}, "dead_targets": ["slack:C123", {}], "dlq": 1, "outbox_depth": 0, "\u00e9": 1.50E+2}, "#,
        r#""degraded": [{"owner": "channel:telegram", "reason": "credential_unavailable"}, {"owner": "a", "reason": ""}], "#,
        r#""detail": "line\nnext \ud83d\ude00\u007f"}"#,
    );
    assert_eq!(to_text(&full), expected);
    assert!(serde_json::from_str::<serde_json::Value>(expected).is_ok());
}

#[test]
fn texts() {
    let live = snapshot(Report::Status(Arc::new(Status::default())));
    assert_eq!(text(&live, "-"), to_text(&Status::default()));
    let failed = snapshot(Report::Error("no snapshot".to_owned()));
    assert_eq!(text(&failed, "-"), "Error reading gateway status: no snapshot");
    assert_eq!((failed.error(), failed.status()), (Some("no snapshot"), None));
    for stale in [live, failed] {
        let stale = Snapshot { stale: true, ..stale };
        assert_eq!(
            text(&stale, "2026-01-02T03:04:05Z"),
            "Error reading gateway status: no report since 2026-01-02T03:04:05Z"
        );
    }
    assert_eq!(
        NO_GATEWAY,
        "No active gateway: gateway_status is only available inside a running bot/gateway (e.g. Telegram, Slack, Discord). It is unavailable for CLI/one-shot runs."
    );
    let ids: Vec<GatewayId> = (0..120).map(|i| GatewayId::parse(&format!("g{i:03}")).unwrap()).collect();
    let ids: Vec<&GatewayId> = ids.iter().collect();
    assert_eq!(name_one_of(&ids[..2]), "Error reading gateway status: name one of ['g000', 'g001']");
    assert!(name_one_of(&ids).ends_with("'g099'] and 20 more"));
}

#[test]
fn only_the_single_live_gateway_needs_no_name() {
    let make = |id: &str, stale| {
        let id = GatewayId::parse(id).unwrap();
        Arc::new(Snapshot { id, stale, ..snapshot(Report::Error("x".to_owned())) })
    };
    let (a, b, old) = (make("a", false), make("b", false), make("old", true));
    assert_eq!(choose([]), Choice::None);
    assert_eq!(choose([&old]), Choice::None);
    assert_eq!(choose([&a, &old]), Choice::One(&a));
    assert_eq!(choose([&a, &b, &old]), Choice::Several(vec![&a.id, &b.id]));
}

#[test]
fn hidden_tools_join() {
    let entry =
        |owner: &str, reason: &str| DegradedOwner { owner: owner.to_owned(), reason: reason.to_owned() };
    let reported =
        Status { degraded: vec![entry("zoo", "z"), entry("capability:b", "own words")], ..status("busy") };
    let joined =
        with_capabilities(&reported, false, [("c", "down\n"), ("a", "no key"), ("b", "ignored")].into_iter());
    let expected = [
        entry("zoo", "z"),
        entry("capability:b", "own words"),
        entry("capability:a", "no key"),
        entry("capability:c", "down"),
    ];
    assert_eq!(joined.degraded, expected);
    assert_eq!(Status { degraded: reported.degraded.clone(), ..joined }, reported);

    let suspect = |reported: &Status| with_capabilities(reported, true, [("a", "x")].into_iter()).degraded;
    let expected = [entry("toolpulse:prober", "prober_suspect"), entry("capability:a", "x")];
    assert_eq!(suspect(&reported)[2..], expected);
    let own = Status { degraded: vec![entry("toolpulse:prober", "own words")], ..status("busy") };
    assert_eq!(suspect(&own), [entry("toolpulse:prober", "own words"), entry("capability:a", "x")]);

    let names: Vec<String> = (0..300).map(|i| format!("t{i:03}")).collect();
    let joined = with_capabilities(&reported, false, names.iter().map(|name| (name.as_str(), "")));
    assert_eq!(joined.degraded.len(), 256);
    assert_eq!(joined.degraded[255].owner, "capability:t253");
    let long = "\u{1f600}".repeat(1_000);
    let joined = with_capabilities(&reported, false, names.iter().map(|name| (name.as_str(), long.as_str())));
    assert!(to_text(&joined).len() - to_text(&reported).len() <= 32 * 1024);
    assert!(joined.degraded.len() > 5);
}

#[test]
fn defaults_are_filled_in() {
    let new = parse_report(given(GivenStatus::default())).unwrap();
    assert_eq!(new.report, Report::Status(Arc::new(Status::default())));
    assert_eq!((new.ttl, new.sequence, &*new.instance), (Duration::from_secs(30), 0, ""));
}

#[test]
fn all_faults_at_once() {
    let bad = GivenStatus {
        run: "x".repeat(65),
        queued: -1,
        active_sessions: i64::MIN,
        sessions_by_channel: BTreeMap::from([
            ("a\"b".to_owned(), -1),
            ("ok".to_owned(), 0),
            ("y".repeat(257), 1),
        ]),
        delivery_json: "[1]".to_owned(),
        degraded: vec![(String::new(), String::new()), ("o".repeat(257), "r".repeat(1_025))],
        detail: "d".repeat(4 * 1024 + 1),
    };
    let report = GivenReport {
        instance: "i".repeat(129),
        ttl: Some((0, 999_999_999)),
        observed_at: Some(WallTime { seconds: 0, nanos: -1 }),
        ..given(bad)
    };
    let expected = [
        "status.run",
        "status.queued",
        "status.active_sessions",
        "status.sessions_by_channel[\"a\\\"b\"]",
        &format!("status.sessions_by_channel[\"{}\"]", "y".repeat(80)),
        "status.delivery_json",
        "status.degraded[0].owner",
        "status.degraded[1].owner",
        "status.degraded[1].reason",
        "status.detail",
        "instance",
        "ttl",
        "observed_at",
    ];
    assert_eq!(fields(report), expected);
}

#[test]
fn bounds() {
    let many = |n: i64| (0..n).map(|i| (format!("c{i}"), i)).collect::<BTreeMap<_, _>>();
    let owners = |n: usize| vec![("o".to_owned(), "r".to_owned()); n];
    let ok = GivenStatus {
        run: "\u{1f600}".repeat(64),
        queued: i64::MAX,
        sessions_by_channel: many(256),
        degraded: owners(256),
        detail: "d".repeat(4 * 1024),
        delivery_json: format!("{{\"a\":\"{}\"}}", "x".repeat(16 * 1024 - 8)),
        ..GivenStatus::default()
    };
    assert!(parse_report(given(ok.clone())).is_ok());
    let over = GivenStatus {
        sessions_by_channel: many(257),
        degraded: owners(257),
        delivery_json: format!("{} ", ok.delivery_json),
        ..ok
    };
    let expected = ["status.sessions_by_channel", "status.delivery_json", "status.degraded"];
    assert_eq!(fields(given(over)), expected);
    // Each part within its bound, but too much together for one watch message.
    let huge =
        GivenStatus { degraded: vec![("o".to_owned(), "r".repeat(1_000)); 256], ..GivenStatus::default() };
    assert_eq!(fields(given(huge)), ["status"]);
    let negative = GivenStatus {
        sessions_by_channel: many(256).into_keys().map(|channel| (channel, -1)).collect(),
        ..GivenStatus::default()
    };
    assert_eq!(fields(given(negative)).len(), 32);

    for (ttl, ok) in [
        ((1, 0), true),
        ((3_600, 0), true),
        ((0, 999_999_999), false),
        ((3_600, 1), false),
        ((-1, 0), false),
        ((1, -1), false),
        ((1, 1_000_000_000), false),
        ((i64::MAX, 0), false),
    ] {
        let report = GivenReport { ttl: Some(ttl), ..given(GivenStatus::default()) };
        assert_eq!(parse_report(report).is_ok(), ok, "{ttl:?}");
    }
    for (error, ok) in [("", false), ("x", true), (&*"x".repeat(1_024), true), (&*"x".repeat(1_025), false)] {
        let content = Some(GivenContent::Error(error.to_owned()));
        assert_eq!(parse_report(GivenReport { content, ..GivenReport::default() }).is_ok(), ok);
    }
    assert_eq!(fields(GivenReport::default()), ["report"]);
}

#[test]
fn delivery_json() {
    let nested = |n: usize| format!("{{\"a\":{}{}}}", "[".repeat(n - 1), "]".repeat(n - 1));
    for (json, field, message) in [
        ("{", "status.delivery_json", "is not valid JSON: EOF"),
        ("{}x", "status.delivery_json", "is not valid JSON: trailing"),
        ("null", "status.delivery_json", "must be a JSON object"),
        ("\"{}\"", "status.delivery_json", "must be a JSON object"),
        (" ", "status.delivery_json", "is not valid JSON: EOF"),
        (r#"{"a":NaN}"#, "status.delivery_json", "is not valid JSON: expected value"),
        (r#"{"a":-Infinity}"#, "status.delivery_json", "is not valid JSON: invalid number"),
        (r#"{"b":[1e999]}"#, "status.delivery_json#/b/0", "is a number beyond"),
        (r#"{"a":01}"#, "status.delivery_json", "is not valid JSON"),
        (r#"{'a':1}"#, "status.delivery_json", "is not valid JSON: key must be a string"),
        (r#"{"a":1,"\u0061":2}"#, "status.delivery_json#/a", "is there twice"),
        (r#"{"l":[{"x/y~":{"k":1,"k":1}}]}"#, "status.delivery_json#/l/0/x~1y~0/k", "is there twice"),
        (r#"{"a":["\ud800"]}"#, "status.delivery_json#/a/0", "is not valid JSON"),
        (&nested(65), "status.delivery_json", "nests deeper than 64"),
        (&nested(8_000), "status.delivery_json", "nests deeper than 64"),
    ] {
        let status = GivenStatus { delivery_json: json.to_owned(), ..GivenStatus::default() };
        let faults = parse_report(given(status)).unwrap_err();
        assert_eq!(faults.len(), 1);
        assert_eq!(faults[0].field, field, "{json}");
        assert!(faults[0].message.starts_with(message), "{json}: {}", faults[0].message);
    }
    for json in [" {} ", r#"{"a":1e99,"b":{"a":-0}}"#, &nested(64)] {
        let status = GivenStatus { delivery_json: json.to_owned(), ..GivenStatus::default() };
        assert!(parse_report(given(status)).is_ok(), "{json}");
    }
}

#[test]
fn a_full_namespace_refuses_new_gateways_only() {
    let mut gateways = Gateways::default();
    let namespace = Namespace::parse("full").unwrap();
    let mut report = |namespace: &Namespace, id: &str| {
        let new = parse_report(given(GivenStatus::default())).unwrap();
        gateways.report(namespace, &GatewayId::parse(id).unwrap(), Source::Unary, new, Moment::START)
    };
    for i in 0..MAX_GATEWAYS {
        report(&namespace, &i.to_string()).unwrap();
    }
    let refused = report(&namespace, "one-more").unwrap_err();
    assert_eq!(refused.to_string(), "gateways in namespace 'full': at most 10000");
    assert!(matches!(refused, Refusal::Exhausted { reason: "TOO_MANY_GATEWAYS", limit: 10_000, .. }));
    assert_eq!(report(&namespace, "0"), Ok(ReportEffect::Refreshed));
    assert_eq!(report(&Namespace::default(), "one-more"), Ok(ReportEffect::Changed));
}

//! Report, Get and List.

use std::time::Duration;

use prost::Message;
use tokio::time::sleep;
use toolpulse::core::name::{Namespace, ToolKey, ToolName};
use toolpulse::proto::v1::{
    DegradedOwner, GatewayStatus, GetGatewayStatusRequest, ListGatewayStatusesRequest,
    ReportGatewayStatusRequest, report_gateway_status_request::Report,
};

use crate::world::{Client, EPOCH, World, fields, large, lasting, queued, report, report_of};

const NO_GATEWAY: &str = "No active gateway: gateway_status is only available inside a running bot/gateway (e.g. Telegram, Slack, Discord). It is unavailable for CLI/one-shot runs.";

fn get(id: &str) -> GetGatewayStatusRequest {
    GetGatewayStatusRequest { gateway_id: id.to_owned(), ..Default::default() }
}

async fn text(client: &mut Client, id: &str) -> String {
    client.get_gateway_status(get(id)).await.unwrap().into_inner().snapshot.unwrap().text
}

#[tokio::test(start_paused = true)]
async fn a_report_comes_back_whole() {
    let world = World::start().await;
    let mut client = world.client().await;
    let status = GatewayStatus {
        run: "busy".into(),
        queued: 2,
        active_sessions: 3,
        sessions_by_channel: [("telegram".to_owned(), 5)].into(),
        delivery_json: r#"{"dlq":1, "a" : 1e2}"#.into(),
        degraded: vec![DegradedOwner { owner: "channel:x".into(), reason: "credential_unavailable".into() }],
        detail: "é".into(),
    };
    let at = prost_types::Timestamp { seconds: 1_700_000_000, nanos: 5 };
    let sent = ReportGatewayStatusRequest {
        namespace: "team".into(),
        instance: "i".into(),
        sequence: 7,
        observed_at: Some(at),
        ..lasting(report_of("g", status.clone()), 5_500)
    };
    let reply = report(&mut client, sent.clone()).await;
    assert!(reply.accepted && reply.epoch == EPOCH && reply.revision > 0, "{reply:?}");
    let asked = GetGatewayStatusRequest { namespace: "team".into(), gateway_id: String::new() };
    let snapshot = client.get_gateway_status(asked).await.unwrap().into_inner().snapshot.unwrap();
    assert_eq!(snapshot.status, Some(status));
    assert_eq!((snapshot.gateway_id.as_str(), snapshot.namespace.as_str()), ("g", "team"));
    assert_eq!((snapshot.sequence, snapshot.observed_at, snapshot.ttl), (7, Some(at), sent.ttl));
    assert!(!snapshot.stale && snapshot.error.is_empty() && snapshot.received_at.is_some());
    let text = r#"{"run": "busy", "queued": 2, "active_sessions": 3, "sessions_by_channel": {"telegram": 5}, "delivery": {"a": 1e2, "dlq": 1}, "degraded": [{"owner": "channel:x", "reason": "credential_unavailable"}], "detail": "\u00e9"}"#;
    assert_eq!(snapshot.text, text);

    // The same number again is old; the revision is one that shows the newest all the same.
    let again = report(&mut client, ReportGatewayStatusRequest { sequence: 7, ..sent }).await;
    assert!(!again.accepted && again.revision >= reply.revision);
}

#[tokio::test(start_paused = true)]
async fn all_faults_of_a_report_are_told_at_once() {
    let world = World::start().await;
    let mut client = world.client().await;
    let bad = ReportGatewayStatusRequest {
        namespace: "No".into(),
        gateway_id: "a b".into(),
        instance: "i".repeat(129),
        ..lasting(report_of("", queued(-1)), 0)
    };
    let error = client.report_gateway_status(bad).await.unwrap_err();
    assert_eq!(
        fields(&error),
        ["namespace", "gateway_id", "status.queued", "instance", "ttl"].map(str::to_owned)
    );
}

#[tokio::test(start_paused = true)]
async fn reading_says_in_words_what_became_of_a_gateway() {
    let world = World::start().await;
    let mut client = world.client().await;
    let idle = r#"{"run": "idle", "queued": 0, "active_sessions": 0, "sessions_by_channel": {}, "delivery": {}, "degraded": [], "detail": ""}"#;

    let snapshot = client.get_gateway_status(get("nope")).await.unwrap().into_inner().snapshot.unwrap();
    assert_eq!((snapshot.gateway_id.as_str(), snapshot.namespace.as_str()), ("nope", "default"));
    assert!(snapshot.status.is_none() && snapshot.text == NO_GATEWAY);
    assert_eq!(text(&mut client, "").await, NO_GATEWAY);

    report(&mut client, report_of("a", queued(0))).await;
    assert_eq!(text(&mut client, "").await, idle);
    assert_eq!(text(&mut client, "a").await, idle);

    let failed = Report::Error("db locked".into());
    report(&mut client, ReportGatewayStatusRequest { report: Some(failed), ..report_of("b", queued(0)) })
        .await;
    assert_eq!(text(&mut client, "").await, "Error reading gateway status: name one of ['a', 'b']");
    let snapshot = client.get_gateway_status(get("b")).await.unwrap().into_inner().snapshot.unwrap();
    assert_eq!(snapshot.text, "Error reading gateway status: db locked");
    assert!(snapshot.status.is_none() && snapshot.error == "db locked" && !snapshot.stale);

    // After the ttl of 30 s both are stale: none is live. After three they are gone.
    sleep(Duration::from_secs(31)).await;
    assert_eq!(text(&mut client, "").await, NO_GATEWAY);
    let snapshot = client.get_gateway_status(get("a")).await.unwrap().into_inner().snapshot.unwrap();
    assert!(snapshot.stale && snapshot.status.is_none(), "zeros would look idle");
    let received = std::time::SystemTime::try_from(snapshot.received_at.unwrap()).unwrap();
    let since = humantime::format_rfc3339_seconds(received);
    assert_eq!(snapshot.text, format!("Error reading gateway status: no report since {since}"));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(text(&mut client, "a").await, NO_GATEWAY);

    let error = client
        .get_gateway_status(GetGatewayStatusRequest { namespace: "-".into(), gateway_id: "a b".into() })
        .await
        .unwrap_err();
    assert_eq!(fields(&error), ["namespace", "gateway_id"].map(str::to_owned));
}

#[tokio::test(start_paused = true)]
async fn pages_hold_all_of_a_namespace_once() {
    let world = World::start().await;
    let mut client = world.client().await;
    for i in 0..50 {
        report(&mut client, report_of(&format!("g/{i:02}"), queued(i))).await;
    }
    report(
        &mut client,
        ReportGatewayStatusRequest { namespace: "other".into(), ..report_of("x", queued(0)) },
    )
    .await;
    let mut request = ListGatewayStatusesRequest { page_size: 7, ..Default::default() };
    let (mut found, mut pages) = (Vec::new(), 0);
    loop {
        let page = client.list_gateway_statuses(request.clone()).await.unwrap().into_inner();
        pages += 1;
        assert!(page.snapshots.len() == 7 || page.next_page_token.is_empty());
        found.extend(page.snapshots.into_iter().map(|snapshot| snapshot.gateway_id));
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    assert_eq!((pages, found), (8, (0..50).map(|i| format!("g/{i:02}")).collect()));

    request.namespace = "other".into();
    let error = client.list_gateway_statuses(request.clone()).await.unwrap_err();
    assert_eq!(fields(&error), ["page_token"].map(str::to_owned));
    let error = client
        .list_gateway_statuses(ListGatewayStatusesRequest {
            namespace: "-".into(),
            page_size: -1,
            page_token: String::new(),
        })
        .await
        .unwrap_err();
    assert_eq!(fields(&error), ["namespace", "page_size"].map(str::to_owned));
}

#[tokio::test(start_paused = true)]
async fn a_page_ends_before_clients_refuse_it() {
    let world = World::start().await;
    let mut client = world.client().await;
    for i in 0..60 {
        report(&mut client, report_of(&format!("g{i:02}"), large(i))).await;
    }
    let mut request = ListGatewayStatusesRequest { page_size: 1_000, ..Default::default() };
    let mut sizes = Vec::new();
    let mut found = 0;
    loop {
        let page = client.list_gateway_statuses(request.clone()).await.unwrap().into_inner();
        sizes.push(page.encoded_len());
        found += page.snapshots.len();
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    assert_eq!(found, 60);
    assert!(sizes.len() == 2 && sizes[0] > 3 << 20 && sizes[0] <= 3_670_016 + 300, "{sizes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_status_names_the_tools_that_do_not_work() {
    let world = World::with(Default::default(), true).await;
    let mut client = world.client().await;
    for name in ["b", "a", "works", "pending"] {
        world.register(name).await;
    }
    for (name, works) in [("a", false), ("b", false), ("works", true)] {
        world.probed(name, works).await;
    }
    let reported = DegradedOwner { owner: "capability:b".into(), reason: "known".into() };
    let status = GatewayStatus { degraded: vec![reported.clone()], ..Default::default() };
    report(&mut client, report_of("g", status)).await;
    let snapshot = client.get_gateway_status(get("g")).await.unwrap().into_inner().snapshot.unwrap();
    let joined = DegradedOwner { owner: "capability:a".into(), reason: "unavailable".into() };
    assert_eq!(snapshot.status.unwrap().degraded, [reported.clone(), joined]);
    let degraded = r#""degraded": [{"owner": "capability:b", "reason": "known"}, {"owner": "capability:a", "reason": "unavailable"}]"#;
    assert!(snapshot.text.contains(degraded), "{}", snapshot.text);
    // Nobody misses what nobody may see.
    let a = ToolKey { namespace: Namespace::default(), name: ToolName::parse("a").unwrap() };
    world.handle.switch(a.clone(), Some("off".into())).await.unwrap();
    let snapshot = client.get_gateway_status(get("g")).await.unwrap().into_inner().snapshot.unwrap();
    assert_eq!(snapshot.status.unwrap().degraded, std::slice::from_ref(&reported));
    world.handle.switch(a, None).await.unwrap();
    let snapshot = client.get_gateway_status(get("g")).await.unwrap().into_inner().snapshot.unwrap();
    assert_eq!(snapshot.status.unwrap().degraded.len(), 2);
    world.probed("a", true).await;
    let snapshot = client.get_gateway_status(get("g")).await.unwrap().into_inner().snapshot.unwrap();
    assert_eq!(snapshot.status.unwrap().degraded, [reported]);
}

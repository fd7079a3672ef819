//! A prober that suspects its own network.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use toolpulse::{
    config::Settings,
    core::probe::HostPort,
    proto::v1::{
        GatewayStatus, GetGatewayStatusRequest, GetToolRequest, ReportGatewayStatusRequest, ToolSpec,
        Verdict, WatchGatewayStatusRequest, WatchToolsRequest,
        gateway_status_service_client::GatewayStatusServiceClient, report_gateway_status_request::Report,
    },
};

use crate::support::{
    http_get,
    inproc::{InProc, at, http, probed, seconds},
    targets::{Answer, HttpTarget, TcpTarget},
};

const TOOLS: usize = 6;

fn name(n: usize) -> String {
    format!("t{n}")
}

/// A server with tools that all work, each at its own destination; the first goes after a minute.
async fn all_well(change: impl FnOnce(&mut Settings)) -> (InProc, Vec<HttpTarget>) {
    let server = InProc::start_with(|settings| {
        settings.degraded_capabilities = true;
        change(settings);
    })
    .await;
    server.list().await;
    let mut targets = Vec::new();
    for n in 0..TOOLS {
        let target = HttpTarget::start(Answer::Status(200)).await;
        let unregister_after = (n == 0).then(|| seconds(60));
        server
            .register_and_wait(ToolSpec { unregister_after, ..probed(&name(n), [http(target.url("/"))]) })
            .await;
        targets.push(target);
    }
    sleep(Duration::from_secs(30)).await;
    assert_eq!(server.list().await.len(), TOOLS);
    assert_eq!(suspicion(&server).await, "");
    (server, targets)
}

async fn suspicion(server: &InProc) -> String {
    let request = GetToolRequest { name: name(1), ..Default::default() };
    server.tools().get_tool(request).await.unwrap().into_inner().prober_suspicion
}

async fn statusz(server: &InProc) -> String {
    http_get(&server.admin(), "/statusz").await.unwrap().1
}

#[tokio::test(start_paused = true)]
async fn much_that_fails_at_once_is_shown_and_stops_nothing_but_removals() {
    let (server, mut targets) = all_well(|_| {}).await;
    let mut gateways = GatewayStatusServiceClient::new(server.channel());
    let report = ReportGatewayStatusRequest {
        gateway_id: "g".into(),
        report: Some(Report::Status(GatewayStatus::default())),
        ttl: Some(seconds(3_600)),
        ..Default::default()
    };
    gateways.report_gateway_status(report).await.unwrap();
    let watch = gateways.watch_gateway_status(WatchGatewayStatusRequest::default()).await;
    let mut watch = watch.unwrap().into_inner();

    let start = Instant::now();
    for target in &mut targets {
        target.stop().await;
    }
    // The watcher hears of it while every tool is still available by its last success.
    loop {
        let message = watch.message().await.unwrap().unwrap();
        if message.snapshots.iter().any(|s| s.text.contains("toolpulse:prober")) {
            break;
        }
    }
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    assert_eq!(server.list().await.len(), TOOLS);
    sleep(Duration::from_secs(2)).await;
    let text = suspicion(&server).await;
    assert!(text.contains(" of 6 destinations stopped answering within 15s"), "{text}");
    assert!(text.ends_with("answers") && text.contains("tells nothing of the network"), "{text}");
    assert!(statusz(&server).await.contains("prober: suspects its own network since "));
    assert!(server.metrics().await.contains("toolpulse_prober_suspect 1\n"));
    assert_eq!(http_get(&server.admin(), "/readyz").await.unwrap().1, "ok\n", "readiness is another thing");

    // Verdicts go by the rules; nothing goes, however long it lasts.
    at(start, Duration::from_secs(45)).await;
    assert_eq!(server.verdict("t1").await, Verdict::Unavailable);
    at(start, Duration::from_secs(900)).await;
    assert_eq!(server.verdict("t0").await, Verdict::Unavailable);
    assert!(!suspicion(&server).await.is_empty(), "nothing answers: it can't be told whose fault that is");

    // One answers: the network works. The time of the others is counted from then.
    targets[5].resume().await;
    let mut ended = None;
    for second in 0..120 {
        sleep(Duration::from_secs(1)).await;
        if ended.is_none() && suspicion(&server).await.is_empty() {
            ended = Some(second);
            assert!(server.try_get("t0").await.is_ok());
            break;
        }
    }
    assert!(ended.is_some_and(|second| (29..70).contains(&second)), "{ended:?}");
    assert!(statusz(&server).await.contains("prober: ok\n"));
    assert!(server.metrics().await.contains("toolpulse_prober_suspect 0\n"));
    let request = GetGatewayStatusRequest { gateway_id: "g".into(), ..Default::default() };
    let text = gateways.get_gateway_status(request).await.unwrap().into_inner().snapshot.unwrap().text;
    assert!(!text.contains("toolpulse:prober") && text.contains("capability:t1"), "{text}");
    sleep(Duration::from_secs(58)).await;
    assert!(server.try_get("t0").await.is_ok());
    sleep(Duration::from_secs(4)).await;
    assert!(server.try_get("t0").await.is_err(), "a minute after the end");
    assert!(server.try_get("t1").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_operators_canary_tells_a_dead_rack_from_a_dead_network() {
    let canary = TcpTarget::start().await;
    let (host, port) = canary.address().rsplit_once(':').map(|(h, p)| (h.to_owned(), p.to_owned())).unwrap();
    let place = HostPort { host, port: port.parse().unwrap() };
    let (server, mut targets) = all_well(|settings| settings.probe.canary = Some(place)).await;
    assert_eq!(canary.hits(), 0, "not asked while all is well");
    let start = Instant::now();
    for target in &mut targets {
        target.stop().await;
    }
    at(start, Duration::from_secs(15)).await;
    let text = suspicion(&server).await;
    assert!(text.ends_with(&format!("the canary {} answers", canary.address())), "{text}");
    at(start, Duration::from_secs(65)).await;
    assert_eq!(suspicion(&server).await, "", "they are really down");
    let hits = canary.hits();
    assert!((4..=13).contains(&hits), "{hits}");
    at(start, Duration::from_secs(130)).await;
    assert!(server.try_get("t0").await.is_err());
    assert_eq!(canary.hits(), hits, "not asked any more");
}

#[tokio::test(start_paused = true)]
async fn few_that_fail_are_no_reason() {
    let (server, mut targets) = all_well(|_| {}).await;
    for target in &mut targets[..4] {
        target.stop().await;
    }
    for _ in 0..60 {
        sleep(Duration::from_secs(1)).await;
        assert_eq!(suspicion(&server).await, "");
    }
}

/// Every reader is told, whatever is set: who watches tools, who asks for a gateway, who watches gateways and who resumes that.
#[tokio::test(start_paused = true)]
async fn every_reader_is_told_when_it_begins_and_when_it_ends() {
    let (server, mut targets) = all_well(|settings| settings.degraded_capabilities = false).await;
    let mut gateways = GatewayStatusServiceClient::new(server.channel());
    let report = ReportGatewayStatusRequest {
        gateway_id: "g".into(),
        report: Some(Report::Status(GatewayStatus::default())),
        ttl: Some(seconds(3_600)),
        ..Default::default()
    };
    gateways.report_gateway_status(report).await.unwrap();
    let watch = gateways.watch_gateway_status(WatchGatewayStatusRequest::default()).await;
    let mut statuses = watch.unwrap().into_inner();
    let mut tools = server.tools().watch_tools(WatchToolsRequest::default()).await.unwrap().into_inner();
    let first = tools.message().await.unwrap().unwrap();
    assert!(first.synced && first.upserts.len() == TOOLS && first.prober_suspicion.is_empty(), "{first:?}");
    let well = statuses.message().await.unwrap().unwrap();
    assert!(!well.snapshots[0].text.contains("toolpulse"), "{well:?}");

    for target in &mut targets {
        target.stop().await;
    }
    let suspect = r#""degraded": [{"owner": "toolpulse:prober", "reason": "prober_suspect"}]"#;
    for suspects in [true, false] {
        // The one who watches tools has it with the tools, or alone; and on each heartbeat from then on.
        let told = loop {
            let message = tools.message().await.unwrap().unwrap();
            if message.synced && message.prober_suspicion.is_empty() != suspects {
                break message;
            }
        };
        assert!(!told.reset, "{told:?}");
        let heartbeat = loop {
            let message = tools.message().await.unwrap().unwrap();
            if message.upserts.is_empty() {
                break message;
            }
        };
        assert_eq!(heartbeat.prober_suspicion.is_empty(), !suspects);
        let told = loop {
            let message = statuses.message().await.unwrap().unwrap();
            if message.snapshots.iter().any(|s| s.text.contains(suspect) == suspects) {
                break message;
            }
        };
        assert!(!told.reset);
        let request = GetGatewayStatusRequest { gateway_id: "g".into(), ..Default::default() };
        let text = gateways.get_gateway_status(request).await.unwrap().into_inner().snapshot.unwrap().text;
        assert_eq!(text.contains(suspect), suspects, "{text}");
        assert!(!text.contains("capability:"), "{text}");
        // Who was away meanwhile has what changed.
        let resume = WatchGatewayStatusRequest {
            resume: Some(toolpulse::proto::v1::Position {
                epoch: well.epoch.clone(),
                revision: if suspects { well.revision } else { told.revision - 1 },
            }),
            ..Default::default()
        };
        let again = gateways.watch_gateway_status(resume).await.unwrap().into_inner().message().await;
        let again = again.unwrap().unwrap();
        assert!(!again.reset && again.snapshots[0].text.contains(suspect) == suspects, "{again:?}");
        if suspects {
            targets[5].resume().await;
        }
    }
}

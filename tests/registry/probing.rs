//! ProbeTool, ReportProbeResult and waiting for the first result.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tonic::Code;
use toolpulse::proto::v1::{
    ErrorClass, GrpcProbe, ProbeOutcome, RegisterToolRequest, RegisterToolsRequest, ReportProbeResultRequest,
    TcpProbe, Verdict, probe_spec::Kind,
};

use crate::support::{
    held::HeldTarget,
    inproc::{InProc, http, millis, probed, reason, report, seconds, tool, within},
    targets::{Answer, GrpcTarget, HealthAnswer, HttpTarget, TcpTarget},
};

#[tokio::test(start_paused = true)]
async fn probing_shares_the_run_in_flight() {
    let server = InProc::start().await;
    let mut target = HeldTarget::start().await;
    server.register(probed("t", [http(target.url())])).await;
    let held = target.next().await;
    let mut asks = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let mut client = server.tools();
        let request = toolpulse::proto::v1::ProbeToolRequest { name: "t".into(), ..Default::default() };
        asks.spawn(async move { client.probe_tool(request).await.unwrap().into_inner() });
    }
    sleep(millis(50)).await;
    assert_eq!((asks.len(), target.hits()), (5, 1));
    held.answer(200).await;
    for reply in asks.join_all().await {
        let [run] = reply.results.as_slice() else { panic!("{reply:?}") };
        assert_eq!((run.name.as_str(), run.outcome(), run.reason.as_str()), ("p0", ProbeOutcome::Pass, ""));
        assert_eq!(run.duration, Some(millis(50).try_into().unwrap()));
        assert!(target.url().contains(&run.address), "{}", run.address);
        assert_eq!(reply.status.unwrap().verdict(), Verdict::Available);
    }
    assert_eq!(target.hits(), 1);

    // With none in flight, it runs now, and not on the timer's slot: a second after the last start at the soonest.
    sleep(Duration::from_secs(1)).await;
    let mut client = server.tools();
    let request = toolpulse::proto::v1::ProbeToolRequest { name: "t".into(), ..Default::default() };
    let asked = tokio::spawn(async move { client.probe_tool(request).await.unwrap().into_inner() });
    let start = Instant::now();
    let held = target.next().await;
    assert_eq!(start.elapsed(), Duration::ZERO);
    held.answer(500).await;
    let reply = asked.await.unwrap();
    assert_eq!(reply.results[0].class(), ErrorClass::Status);
    assert!(reply.status.unwrap().last_good);
}

#[tokio::test(start_paused = true)]
async fn every_kind_is_run_and_told_in_the_specs_order() {
    let server = InProc::start().await;
    let (web, health, port) = (
        HttpTarget::start(Answer::Body(503, r#"{"available": false, "reason": "closed"}"#.into())).await,
        GrpcTarget::start(HealthAnswer::Fails(Code::Internal)).await,
        TcpTarget::start().await,
    );
    let grpc = Kind::Grpc(GrpcProbe { target: health.address(), ..Default::default() });
    let tcp = Kind::Tcp(TcpProbe { address: port.address() });
    server.register(probed("t", [tcp, http(web.url("/")), grpc, report()])).await;
    let reply = server.probe("t").await.unwrap();
    let told: Vec<_> = reply.results.iter().map(|r| (r.name.as_str(), r.outcome(), r.class())).collect();
    assert_eq!(
        told,
        [
            ("p0", ProbeOutcome::Pass, ErrorClass::Unspecified),
            ("p1", ProbeOutcome::No, ErrorClass::Unspecified),
            ("p2", ProbeOutcome::Error, ErrorClass::Status),
            ("p3", ProbeOutcome::Unspecified, ErrorClass::Unspecified),
        ]
    );
    assert!(reply.results[1].message.contains("closed"), "{:?}", reply.results[1]);
    assert_eq!(reply.status.unwrap().verdict(), Verdict::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_probed() {
    let server = InProc::start().await;
    server.register(tool("free")).await;
    let refused = server.probe("free").await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::FailedPrecondition, "NO_PROBES"));
    let refused = server.probe("nope").await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::NotFound, "TOOL_NOT_FOUND"));
    assert!(refused.message().contains("'nope'"), "{}", refused.message());

    // A tool that goes while somebody waits for its probe.
    let mut target = HeldTarget::start().await;
    server.register(probed("goes", [http(target.url())])).await;
    let _held = target.next().await;
    let mut client = server.tools();
    let request = toolpulse::proto::v1::ProbeToolRequest { name: "goes".into(), ..Default::default() };
    let asked = tokio::spawn(async move { client.probe_tool(request).await });
    sleep(millis(10)).await;
    server.unregister("goes").await;
    let start = Instant::now();
    let refused = asked.await.unwrap().unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Aborted, "TOOL_CHANGED"));
    assert_eq!(start.elapsed(), Duration::ZERO);

    // Only reports: nothing is run, the newest is told.
    server.register(probed("pushed", [report()])).await;
    server.report("pushed", ProbeOutcome::No).await;
    let reply = server.probe("pushed").await.unwrap();
    assert_eq!((reply.results[0].outcome(), reply.results[0].message.as_str()), (ProbeOutcome::No, "told"));
}

#[tokio::test(start_paused = true)]
async fn reports_have_their_rules() {
    let server = InProc::start().await;
    let target = HttpTarget::start(Answer::Status(200)).await;
    server.register_and_wait(probed("mixed", [http(target.url("/")), report()])).await;
    server.register(probed("two", [report(), report()])).await;
    server.register_and_wait(probed("asked", [http(target.url("/"))])).await;
    let ask = |name: &str, probe: &str| ReportProbeResultRequest {
        name: name.into(),
        probe: probe.into(),
        outcome: ProbeOutcome::Pass.into(),
        ..Default::default()
    };
    for (name, probe, code, why) in [
        ("nope", "", Code::NotFound, "TOOL_NOT_FOUND"),
        ("mixed", "px", Code::NotFound, "PROBE_NOT_FOUND"),
        ("mixed", "p0", Code::FailedPrecondition, "NOT_A_REPORT_PROBE"),
        ("asked", "p0", Code::FailedPrecondition, "NOT_A_REPORT_PROBE"),
        ("two", "", Code::InvalidArgument, "INVALID_FIELDS"),
    ] {
        let refused = server.try_report(ask(name, probe)).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (code, why), "{name} {probe}: {refused:?}");
    }
    // Without a report probe, an empty name finds none.
    let refused = server.try_report(ask("asked", "")).await.unwrap_err();
    assert!(matches!(refused.code(), Code::NotFound | Code::FailedPrecondition), "{refused:?}");
    assert_eq!(server.list().await, ["asked"]);

    // The only one needs no name.
    assert_eq!(server.try_report(ask("mixed", "")).await.unwrap().verdict(), Verdict::Available);
    let status = server.try_report(ask("two", "p0")).await.unwrap();
    assert_eq!(status.verdict(), Verdict::Pending);
    assert_eq!(server.try_report(ask("two", "p1")).await.unwrap().verdict(), Verdict::Available);

    // Its own time to live, and a message that is cleaned and cut.
    let message = format!("line\none\u{7}{}", "x".repeat(400));
    server.register(probed("short", [report()])).await;
    let pass =
        ReportProbeResultRequest { ttl: Some(seconds(40)), message: message.clone(), ..ask("short", "") };
    server.try_report(pass).await.unwrap();
    sleep(millis(39_999)).await;
    assert!(server.shows("short").await);
    sleep(millis(1)).await;
    assert!(!server.shows("short").await);
    let no = ReportProbeResultRequest { outcome: ProbeOutcome::No.into(), message, ..ask("short", "") };
    let status = server.try_report(no).await.unwrap();
    let told = &status.probes[0].message;
    assert!(told.starts_with("lineone") && told.chars().count() == 256, "{told}");
    assert!(status.message.chars().count() <= 256, "{}", status.message);
}

#[tokio::test(start_paused = true)]
async fn registration_waits_for_the_first_result() {
    let server = InProc::start().await;
    let mut target = HeldTarget::start().await;
    let request = |name: &str, wait: i64, target: &HeldTarget| RegisterToolRequest {
        tool: Some(probed(name, [http(target.url() + name)])),
        wait_for_probe: Some(seconds(wait)),
        ..Default::default()
    };
    let pending_until = async |request, deadline: Duration| {
        let start = Instant::now();
        let reply = server.tools().register_tool(within(deadline, request)).await.unwrap().into_inner();
        let verdict = reply.tool.unwrap().status.unwrap().verdict();
        (verdict, start.elapsed())
    };
    let far = Duration::from_secs(300);
    // No wait, a wait that ends, a deadline that is nearer.
    let (verdict, took) = pending_until(request("a", 0, &target), far).await;
    assert_eq!((verdict, took), (Verdict::Pending, Duration::ZERO));
    let (verdict, took) = pending_until(request("b", 2, &target), far).await;
    assert_eq!(verdict, Verdict::Pending);
    assert!((millis(2_000)..millis(2_010)).contains(&took), "{took:?}");
    let (verdict, took) = pending_until(request("c", 60, &target), millis(1_000)).await;
    assert_eq!(verdict, Verdict::Pending);
    assert!((millis(890)..=millis(905)).contains(&took), "{took:?}");
    // The first runs of the first two ended after a second, and they were asked again.
    for _ in 0..5 {
        target.next().await.answer(500).await;
    }

    // A result that comes.
    let mut client = server.tools();
    let waiting = request("d", 60, &target);
    let call = tokio::spawn(async move { client.register_tool(waiting).await.unwrap().into_inner() });
    let start = Instant::now();
    let held = target.next().await;
    sleep(millis(250)).await;
    assert!(!call.is_finished());
    held.answer(403).await;
    let status = call.await.unwrap().tool.unwrap().status.unwrap();
    assert_eq!(status.verdict(), Verdict::Unavailable);
    assert_eq!(start.elapsed(), millis(250));

    // A batch waits for all, and tells each verdict.
    let good = HttpTarget::start(Answer::Status(200)).await;
    let bad = HttpTarget::start(Answer::Close).await;
    let batch = RegisterToolsRequest {
        tools: vec![probed("e", [http(good.url("/"))]), tool("f"), probed("g", [http(bad.url("/"))])],
        wait_for_probe: Some(seconds(10)),
        ..Default::default()
    };
    let reply = server.tools().register_tools(batch).await.unwrap().into_inner();
    let verdicts: Vec<_> = reply.results.iter().map(|r| r.verdict()).collect();
    assert_eq!(verdicts, [Verdict::Available, Verdict::Available, Verdict::Unavailable]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_target_is_named_at_registration_with_the_setting_that_would_permit_it() {
    let server = InProc::start_with(|settings| settings.probe.allow.clear()).await;
    for (kind, field) in [
        (http("http://127.0.0.1:1/"), "tool.probes[0].http"),
        (Kind::Tcp(TcpProbe { address: "10.1.2.3:1".into() }), "tool.probes[0].tcp"),
        (Kind::Grpc(GrpcProbe { target: "localhost:1".into(), ..Default::default() }), "tool.probes[0].grpc"),
    ] {
        let request = RegisterToolRequest { tool: Some(probed("t", [kind])), ..Default::default() };
        let refused = server.try_register(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().starts_with(field), "{}", refused.message());
        assert!(refused.message().contains("TOOLPULSE_PROBE_ALLOW"), "{}", refused.message());
    }
    // Link-local ones are never permitted.
    let server = InProc::start_with(|settings| settings.probe.allow = vec!["127.0.0.0/8".into()]).await;
    let request =
        RegisterToolRequest { tool: Some(probed("t", [http("http://169.254.1.1/")])), ..Default::default() };
    let refused = server.try_register(request).await.unwrap_err();
    assert!(refused.message().contains("link-local"), "{}", refused.message());
}

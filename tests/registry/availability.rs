//! The rules of availability, event by event.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use toolpulse::proto::v1::{
    ErrorClass, ListAvailableToolsRequest, ProbeOutcome, RegisterResult, ReportProbeResultRequest, ToolSpec,
    Verdict,
};

use crate::support::{
    inproc::{InProc, at, between, http, millis, probed, report, seconds, tool},
    targets::{Answer, HttpTarget},
};

/// What an agent's list and the tool's status say together.
async fn seen(server: &InProc, name: &str) -> String {
    let (shown, status, hidden) =
        (server.shows(name).await, server.status(name).await, server.hidden(name).await);
    assert_eq!(shown, status.verdict() == Verdict::Available, "the list and the verdict of {name} differ");
    assert_eq!(shown, hidden.is_none(), "{name}: {hidden:?}");
    if let Some(hidden) = hidden {
        assert_eq!(hidden.stage, "availability");
        let why = match status.error_class() {
            ErrorClass::Unspecified => hidden.reason,
            class => {
                assert_eq!(hidden.reason, "PROBE_ERROR");
                class.as_str_name().replace("ERROR_CLASS_", "")
            }
        };
        return format!("hidden {why}");
    }
    if status.last_good { "last-good".to_owned() } else { "shown".to_owned() }
}

/// The seeds' table, and what their code gets wrong. Each row: what is reported when (ms), and what is seen when.
const TABLE: &[(&str, &str)] = &[
    ("never asked", "0 see hidden NEVER_PROBED"),
    ("true", "0 PASS, 0 see shown, 29999 see shown"),
    ("true, and nothing new for exactly the TTL", "0 PASS, 29999 see shown, 30000 see hidden STALE"),
    ("false", "0 NO, 0 see hidden PROBE_SAID_NO"),
    ("false stays false", "0 NO, 100000 see hidden PROBE_SAID_NO"),
    ("an error, and no success ever", "0 ERROR, 0 see hidden REPORTED"),
    ("an error within the grace", "0 PASS, 100 ERROR, 100 see last-good, 29999 see last-good"),
    ("exactly at the end of the grace", "0 PASS, 100 ERROR, 29999 see last-good, 30000 see hidden REPORTED"),
    ("an error at 29.999 s", "0 PASS, 29999 ERROR, 29999 see last-good, 30000 see hidden REPORTED"),
    ("an error at 30.000 s", "0 PASS, 30000 ERROR, 30000 see hidden REPORTED"),
    ("errors do not renew the grace", "0 PASS, 10000 ERROR, 20000 ERROR, 30000 see hidden REPORTED"),
    (
        "a success does",
        "0 PASS, 10000 ERROR, 20000 PASS, 20000 see shown, 49999 see shown, 50000 see hidden STALE",
    ),
    ("no within the grace", "0 PASS, 100 NO, 100 see hidden PROBE_SAID_NO"),
    (
        "pass, no, error in a row",
        "0 PASS, 100 NO, 200 ERROR, 200 see hidden REPORTED, 29000 see hidden REPORTED",
    ),
    ("pass, error, no, error", "0 PASS, 1 ERROR, 2 NO, 3 ERROR, 3 see hidden REPORTED"),
    ("recovery from a no", "0 NO, 1000 PASS, 1000 see shown"),
    ("recovery from errors", "0 ERROR, 1000 PASS, 1000 see shown, 2000 ERROR, 2000 see last-good"),
    (
        "error, pass, error keeps the newest success",
        "0 PASS, 1000 ERROR, 2000 PASS, 3000 ERROR, 31999 see last-good, 32000 see hidden REPORTED",
    ),
];

#[tokio::test(start_paused = true)]
async fn the_table_of_availability() {
    let server = InProc::start().await;
    for (i, (what, script)) in TABLE.iter().enumerate() {
        let name = format!("t{i}");
        server.register(probed(&name, [report()])).await;
        let start = Instant::now();
        for step in script.split(", ") {
            let (when, event) = step.split_once(' ').unwrap();
            at(start, millis(when.parse().unwrap())).await;
            match event {
                "PASS" => {
                    let status = server.report(&name, ProbeOutcome::Pass).await;
                    assert_eq!(status.last_success_time, status.last_probe_time, "{what}");
                }
                "NO" => {
                    let status = server.report(&name, ProbeOutcome::No).await;
                    assert_eq!(status.last_success_time, None, "{what}: a no clears the last success");
                }
                "ERROR" => drop(server.report(&name, ProbeOutcome::Error).await),
                see => {
                    let expected = see.strip_prefix("see ").unwrap();
                    assert_eq!(seen(&server, &name).await, expected, "{what}: {step} of {script}");
                }
            }
            assert_eq!(start.elapsed(), millis(when.parse().unwrap()), "a call takes no virtual time");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_without_probes_is_available_for_ever() {
    let server = InProc::start().await;
    let registered = server.register(tool("free")).await;
    assert_eq!(registered.tool.unwrap().status.unwrap().verdict(), Verdict::Available);
    sleep(Duration::from_secs(10_000)).await;
    assert_eq!(seen(&server, "free").await, "shown");
}

/// A target that is asked: errors keep the tool exactly for the grace after its last success, however the errors fall.
#[tokio::test(start_paused = true)]
async fn a_window_ends_on_time_without_a_result() {
    let server = InProc::start().await;
    let target = HttpTarget::start(Answer::Status(200)).await;
    server.register_and_wait(probed("t", [http(target.url("/"))])).await;
    sleep(Duration::from_secs(35)).await;
    assert_eq!(seen(&server, "t").await, "shown");
    target.set(Answer::Hang);
    // Until the first run that hangs has timed out.
    let last_good = loop {
        sleep(millis(500)).await;
        let status = server.status("t").await;
        if status.last_good {
            break status;
        }
        assert_eq!(status.verdict(), Verdict::Available);
    };
    assert_eq!((last_good.reason.as_str(), last_good.error_class()), ("PROBE_ERROR", ErrorClass::Timeout));
    // Only a window can end it: no result comes at that very moment. Lists say when to look again.
    loop {
        let list = server.available(ListAvailableToolsRequest::default()).await;
        if list.tools.is_empty() {
            break;
        }
        sleep(Duration::try_from(list.max_age.unwrap()).unwrap().max(millis(1))).await;
    }
    let status = server.status("t").await;
    let covered = between(status.last_success_time.as_ref(), status.since.as_ref());
    assert!((millis(30_000)..=millis(30_001)).contains(&covered), "{covered:?}");
    let hidden = server.hidden("t").await.unwrap();
    assert_eq!((hidden.stage.as_str(), hidden.reason.as_str()), ("availability", "PROBE_ERROR"));
    let quiet = between(status.last_probe_time.as_ref(), status.since.as_ref());
    assert!(
        quiet > Duration::ZERO || status.next_probe_time.is_none(),
        "the window ended by a result: {status:?}"
    );
    target.set(Answer::Status(200));
    sleep(Duration::from_secs(14)).await;
    assert_eq!(seen(&server, "t").await, "shown");
}

#[tokio::test(start_paused = true)]
async fn every_probe_of_a_tool_must_pass() {
    let server = InProc::start().await;
    let good = HttpTarget::start(Answer::Status(200)).await;
    let bad = HttpTarget::start(Answer::Status(200)).await;
    server.register(probed("t", [http(good.url("/")), http(bad.url("/")), report()])).await;
    sleep(millis(10)).await;
    assert_eq!(seen(&server, "t").await, "hidden NEVER_PROBED");
    let result = |outcome: ProbeOutcome| ReportProbeResultRequest {
        name: "t".into(),
        probe: "p2".into(),
        outcome: outcome.into(),
        ttl: Some(seconds(86_400)),
        ..Default::default()
    };
    let status = server.try_report(result(ProbeOutcome::Pass)).await.unwrap();
    assert_eq!((status.verdict(), status.last_good), (Verdict::Available, false));
    let names: Vec<_> = status.probes.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["p0", "p1", "p2"]);

    // One that passes for ever does not keep a dead one last-good.
    bad.set(Answer::Close);
    let start = Instant::now();
    while server.shows("t").await {
        sleep(millis(100)).await;
        assert!(start.elapsed() < Duration::from_secs(31), "still shown");
    }
    assert!(start.elapsed() > Duration::from_secs(19), "{:?}", start.elapsed());
    let status = server.status("t").await;
    assert_eq!(
        status.probes.iter().map(|p| p.verdict()).collect::<Vec<_>>(),
        [Verdict::Available, Verdict::Unavailable, Verdict::Available]
    );
    assert!(status.message.contains("p1"), "the message names the probe: {:?}", status.message);

    // UNAVAILABLE wins over PENDING.
    let silent = probed("u", [report(), http(bad.url("/other"))]);
    server.register(silent).await;
    sleep(millis(10)).await;
    assert_eq!(server.verdict("u").await, Verdict::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_labels_alone_keeps_generation_and_state() {
    let server = InProc::start().await;
    let labelled = |label: &str| ToolSpec {
        labels: [("team".to_owned(), label.to_owned())].into(),
        ..probed("t", [report()])
    };
    let first = server.register(labelled("a")).await.tool.unwrap();
    server.report("t", ProbeOutcome::Pass).await;
    sleep(Duration::from_secs(20)).await;

    let again = server.register(labelled("a")).await;
    assert_eq!(again.result(), RegisterResult::Unchanged);
    let other = server.register(labelled("b")).await;
    assert_eq!(other.result(), RegisterResult::Replaced);
    let other = other.tool.unwrap();
    assert_eq!(other.spec.as_ref().unwrap().labels["team"], "b");
    assert_eq!((other.generation, &other.spec_hash), (first.generation, &first.spec_hash));
    assert_eq!(seen(&server, "t").await, "shown");
    // Nor is the success any younger for it.
    sleep(Duration::from_secs(10)).await;
    assert_eq!(seen(&server, "t").await, "hidden STALE");
}

#[tokio::test(start_paused = true)]
async fn windows_are_derived() {
    let server = InProc::start().await;
    let s = Some;
    // Given: interval, timeout, ttl, grace (ms; 0 is unset). In force: the same.
    let cases = [
        ([0, 0, 0, 0], [10_000, 3_000, 30_000, 30_000]),
        ([4_000, 0, 0, 0], [4_000, 2_000, 30_000, 30_000]),
        ([1_000, 0, 0, 0], [1_000, 500, 30_000, 30_000]),
        ([60_000, 0, 0, 0], [60_000, 3_000, 180_000, 180_000]),
        ([20_000, 5_000, 0, 90_000], [20_000, 5_000, 60_000, 90_000]),
        ([10_000, 1_000, 11_501, 12_000], [10_000, 1_000, 11_501, 12_000]),
    ];
    for (i, (given, in_force)) in cases.into_iter().enumerate() {
        let window = |ms: u64| (ms > 0).then(|| millis(ms).try_into().unwrap());
        let [interval, timeout, ttl, grace] = given.map(window);
        let spec = ToolSpec { interval, timeout, ttl, grace, ..probed(&format!("w{i}"), [report()]) };
        let tool = server.register(spec).await.tool.unwrap();
        let windows = tool.windows.unwrap();
        let got = [windows.interval, windows.timeout, windows.ttl, windows.grace];
        assert_eq!(got, in_force.map(|ms| s(millis(ms).try_into().unwrap())), "{given:?}");
        // What was left out stays out.
        let spec = tool.spec.unwrap();
        assert_eq!([spec.interval, spec.timeout, spec.ttl, spec.grace], given.map(window));
    }
    assert_eq!(server.register(tool("none")).await.tool.unwrap().windows, None);
}

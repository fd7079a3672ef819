//! A server that was late itself for a moment: too short to ask everything anew, and no fault of the targets.

use std::time::Duration;

use tokio::time::{advance, sleep};
use toolpulse::proto::v1::{GetToolRequest, ProbeOutcome, ToolSpec, Verdict};

use crate::support::{
    held::{AutoTarget, HeldTarget},
    inproc::{InProc, http, millis, probed, report, seconds},
};

/// The shortest windows that an interval of a second may have.
fn tight(spec: ToolSpec) -> ToolSpec {
    let (interval, ttl, grace) = (Some(seconds(1)), Some(millis_of(1_600)), Some(millis_of(1_600)));
    ToolSpec { interval, ttl, grace, ..spec }
}

fn millis_of(n: i32) -> prost_types::Duration {
    prost_types::Duration { seconds: i64::from(n / 1_000), nanos: n % 1_000 * 1_000_000 }
}

/// How often the verdict of a tool turned.
async fn turns(server: &InProc, name: &str) -> usize {
    let request = GetToolRequest { name: name.into(), ..Default::default() };
    server.tools().get_tool(request).await.unwrap().into_inner().tool.unwrap().transitions.len()
}

#[tokio::test(start_paused = true)]
async fn a_short_stall_of_the_server_turns_nothing_however_tight_the_windows_are() {
    let server = InProc::start().await;
    let mut targets = Vec::new();
    for i in 0..20_u64 {
        // Some answer at once, some need nearly all their time: their runs are in flight when it happens.
        let target = HeldTarget::start().await.answer_all(200, millis(i * 20));
        server.register_and_wait(tight(probed(&format!("t{i}"), [http(target.url())]))).await;
        targets.push(target);
        sleep(millis(50)).await;
    }
    server.register(tight(probed("told", [report()]))).await;
    let (mut client, stop) = (server.tools(), tokio_util::sync::CancellationToken::new());
    let pushes = tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
        loop {
            let outcome = ProbeOutcome::Pass.into();
            let request = toolpulse::proto::v1::ReportProbeResultRequest {
                name: "told".into(),
                outcome,
                ..Default::default()
            };
            client.report_probe_result(request).await.unwrap();
            sleep(Duration::from_secs(1)).await;
        }
    }));
    for stall in [300, 900, 1_200, 1_500, 1_900, 1_999] {
        for phase in [3_000, 2_300, 2_650] {
            sleep(millis(phase)).await;
            advance(millis(stall)).await;
        }
    }
    sleep(Duration::from_secs(3)).await;
    for (i, target) in targets.iter().enumerate() {
        let name = format!("t{i}");
        assert_eq!(turns(&server, &name).await, 1, "{name}: {:#?}", server.get(&name).await);
        assert_eq!(target.most_at_once(), 1, "{name}");
    }
    assert_eq!(turns(&server, "told").await, 1);
    stop.cancel();
    pushes.await.unwrap();

    // What really dies is still found out.
    let dead = targets.remove(0);
    drop(dead);
    sleep(Duration::from_secs(4)).await;
    assert_eq!(server.verdict("t0").await, Verdict::Unavailable);
    assert_eq!(server.verdict("told").await, Verdict::Unavailable, "and so is silence");
}

#[tokio::test(start_paused = true)]
async fn what_a_stall_held_up_is_asked_spread() {
    let server = InProc::start().await;
    let mut targets = Vec::new();
    for i in 0..200 {
        let target = AutoTarget::start(200).await;
        server.register(probed(&format!("t{i}"), [http(target.url())])).await;
        targets.push(target);
        sleep(millis(50)).await;
    }
    sleep(Duration::from_secs(30)).await;
    let before = tokio::time::Instant::now();
    advance(millis(1_900)).await;
    sleep(Duration::from_secs(10)).await;
    let starts = targets.iter().flat_map(AutoTarget::times).filter(|at| *at >= before);
    let mut bins = [0u32; 120];
    for start in starts {
        bins[(start - before).as_millis() as usize / 100] += 1;
    }
    assert!(bins[..19].iter().all(|n| *n == 0), "{bins:?}");
    // 38 were missed. Of 20 a second, a tenth of a second has 2, give or take.
    assert!(bins.iter().all(|n| *n <= 12), "{bins:?}");
}

//! Nothing is left of tools that come and go while their probes are in flight: no task, no socket.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use toolpulse::proto::v1::{RegisterToolsRequest, ToolSpec, UnregisterToolsRequest};

use crate::support::{
    inproc::{InProc, http, probed},
    targets::{Answer, HttpTarget},
};

const BATCH: usize = 250;
const ROUNDS: usize = 40;

/// Open files and living tasks of this process: server, client and targets.
fn held() -> (usize, usize) {
    let files = std::fs::read_dir("/proc/self/fd").unwrap().count();
    (files, tokio::runtime::Handle::current().metrics().num_alive_tasks())
}

/// Waits until no more is held than at the beginning.
async fn released(baseline: (usize, usize)) -> (usize, usize) {
    let start = Instant::now();
    loop {
        let now = held();
        if now.0 <= baseline.0 && now.1 <= baseline.1 || start.elapsed() > Duration::from_secs(10) {
            return now;
        }
        sleep(Duration::from_millis(2)).await;
    }
}

fn tools(round: usize, edition: &str, targets: &[HttpTarget]) -> Vec<ToolSpec> {
    let tool = |i: usize| {
        let url = targets[i % targets.len()].url(&format!("/{round}/{i}/{edition}"));
        probed(&format!("t{i}"), [http(url)])
    };
    (0..BATCH).map(tool).collect()
}

async fn register(server: &InProc, tools: Vec<ToolSpec>) {
    let request = RegisterToolsRequest { tools, overwrite: true, all_or_nothing: true, ..Default::default() };
    let reply = server.tools().register_tools(request).await.unwrap().into_inner();
    assert!(reply.results.iter().all(|result| result.error.is_none()), "{:?}", reply.results.first());
}

async fn hits(targets: &[HttpTarget], at_least: usize) {
    let enough = async {
        while targets.iter().map(HttpTarget::hits).sum::<usize>() < at_least {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(10), enough).await.expect("all probes are in flight");
}

#[tokio::test]
async fn ten_thousand_tools_that_came_and_went_leave_nothing() {
    let server = InProc::start().await;
    let mut targets = Vec::new();
    // Enough destinations that a whole batch is in flight at once.
    for _ in 0..BATCH.div_ceil(16) {
        targets.push(HttpTarget::start(Answer::Hang).await);
    }
    let names: Vec<String> = (0..BATCH).map(|i| format!("t{i}")).collect();
    let baseline = held();
    let mut most = baseline;
    for round in 0..ROUNDS {
        let before = targets.iter().map(HttpTarget::hits).sum::<usize>();
        register(&server, tools(round, "first", &targets)).await;
        hits(&targets, before + BATCH).await;
        if round % 4 == 0 {
            // Replaced while in flight: the runs of before are cancelled, and their slots are free for the new ones.
            register(&server, tools(round, "second", &targets)).await;
            hits(&targets, before + 2 * BATCH).await;
        }
        let now = held();
        most = (most.0.max(now.0), most.1.max(now.1));
        let request = UnregisterToolsRequest { names: names.clone(), ..Default::default() };
        let reply = server.tools().unregister_tools(request).await.unwrap().into_inner();
        assert_eq!(reply.unregistered.len(), BATCH);
    }
    assert!(most.0 >= baseline.0 + BATCH && most.1 >= baseline.1 + BATCH, "{baseline:?} {most:?}");
    let left = released(baseline).await;
    assert!(left.0 <= baseline.0 && left.1 <= baseline.1, "{baseline:?} became {left:?}, at most {most:?}");
    assert!(server.list().await.is_empty());
    let metrics = server.metrics().await;
    assert!(
        !metrics.contains("toolpulse_probe_results_total"),
        "no run that was cancelled counts: {metrics}"
    );
}

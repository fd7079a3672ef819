//! The first seconds after a start: an agent never gets an empty list that is merely an ignorant one.

use std::{io::Write, time::Duration};

use tempfile::NamedTempFile;
use tokio::time::{Instant, sleep};
use tonic::Code;
use tonic_types::StatusExt;
use toolpulse::proto::{
    health::{HealthCheckRequest, health_check_response::ServingStatus},
    v1::{ListAvailableToolsRequest, Verdict},
};

use crate::support::{
    held::HeldTarget,
    http_get,
    inproc::{InProc, millis, reason, within},
    targets::{Answer, HttpTarget},
};

/// A manifest: tools that are there at the start, as those of a store would be.
fn manifest(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::with_suffix(".yaml").unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

async fn start(manifest: &NamedTempFile) -> InProc {
    InProc::start_with(|settings| settings.manifest = Some(manifest.path().to_owned())).await
}

async fn serves(server: &InProc) -> bool {
    let status = server.health().check(HealthCheckRequest::default()).await.unwrap().into_inner().status();
    let ready = http_get(&server.admin(), "/readyz").await.unwrap();
    match status {
        ServingStatus::Serving => assert_eq!(ready, (200, "ok\n".to_owned())),
        _ => assert_eq!(ready, (503, "pending: settling\n".to_owned())),
    }
    status == ServingStatus::Serving
}

#[tokio::test(start_paused = true)]
async fn a_list_right_after_the_start_waits_for_the_first_results() {
    let mut target = HeldTarget::start().await;
    let file = manifest(&format!(
        "tools: [{{name: works, probes: [{{http: {{url: \"{}\"}}}}]}}, {{name: free}}]",
        target.url()
    ));
    let server = start(&file).await;
    assert!(!serves(&server).await);
    let start = Instant::now();
    let mut client = server.tools();
    let list =
        tokio::spawn(async move { client.list_available_tools(ListAvailableToolsRequest::default()).await });
    let held = target.next().await;
    sleep(millis(700)).await;
    assert!(!list.is_finished() && !serves(&server).await);
    held.answer(200).await;
    let reply = list.await.unwrap().unwrap().into_inner();
    let names: Vec<_> = reply.tools.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["free", "works"]);
    assert!((millis(700)..millis(1_000)).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert!(serves(&server).await);
    let tool = server.get("works").await;
    assert!(tool.from_manifest);
    assert_eq!(tool.owner, "manifest");
}

#[tokio::test(start_paused = true)]
async fn a_target_that_hangs_holds_the_list_up_for_five_seconds_at_most() {
    let target = HttpTarget::start(Answer::Hang).await;
    let file = manifest(&format!(
        "tools:\n- {{name: free}}\n- name: hangs\n  interval: 5s\n  timeout: 20s\n  probes: [{{http: {{url: \"{}\"}}}}]\n",
        target.url("/")
    ));
    let start_of_server = Instant::now();
    let server = start(&file).await;
    assert_eq!(start_of_server.elapsed(), Duration::ZERO);
    // The caller has no time to wait.
    let impatient = within(millis(1_000), ListAvailableToolsRequest::default());
    let refused = server.tools().list_available_tools(impatient).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Unavailable, "SETTLING"), "{refused:?}");
    let retry = refused.get_error_details().retry_info().and_then(|r| r.retry_delay);
    assert!(retry.is_some_and(|after| after > Duration::ZERO), "{retry:?}");
    let waited = start_of_server.elapsed();
    assert!((millis(800)..millis(1_000)).contains(&waited), "{waited:?}");
    // Everything else is answered meanwhile.
    assert_eq!(server.verdict("hangs").await, Verdict::Pending);
    assert!(!serves(&server).await);

    let patient = within(
        Duration::from_secs(30),
        ListAvailableToolsRequest { include_hidden: true, ..Default::default() },
    );
    let reply = server.tools().list_available_tools(patient).await.unwrap().into_inner();
    assert_eq!(reply.tools.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["free"]);
    let hidden: Vec<_> = reply.hidden.iter().map(|h| (h.name.as_str(), h.reason.as_str())).collect();
    assert_eq!(hidden, [("hangs", "NEVER_PROBED")]);
    let waited = start_of_server.elapsed();
    assert!((millis(4_900)..=millis(5_002)).contains(&waited), "{waited:?}");
    assert!(serves(&server).await);
}

#[tokio::test(start_paused = true)]
async fn the_sweep_ends_when_the_last_target_had_its_turn() {
    let (hangs, fails) = (HttpTarget::start(Answer::Hang).await, HttpTarget::start(Answer::Close).await);
    let file = manifest(&format!(
        "tools:\n- {{name: a, probes: [{{http: {{url: \"{}\"}}}}]}}\n- {{name: b, probes: [{{http: {{url: \"{}\"}}}}]}}\n",
        hangs.url("/"),
        fails.url("/")
    ));
    let start_of_server = Instant::now();
    let server = start(&file).await;
    assert_eq!(server.list().await, Vec::<String>::new());
    // The one that hangs: a second for its first run, and then its timeout.
    let waited = start_of_server.elapsed();
    assert!((millis(4_000)..millis(4_100)).contains(&waited), "{waited:?}");
    assert_eq!(server.verdict("a").await, Verdict::Unavailable);
    assert!(serves(&server).await);
}

#[tokio::test(start_paused = true)]
async fn nothing_to_ask_is_settled_at_once() {
    let start = Instant::now();
    let server = InProc::start_with(|_| {}).await;
    assert_eq!(server.list().await, Vec::<String>::new());
    assert!(serves(&server).await);
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_slow_target_is_not_judged_by_its_short_first_run() {
    // Slower than a first run may be, and faster than its timeout.
    let target = HeldTarget::start().await.answer_all(200, millis(2_500));
    let file =
        manifest(&format!("tools: [{{name: slow, probes: [{{http: {{url: \"{}\"}}}}]}}]", target.url()));
    let start_of_server = Instant::now();
    let server = start(&file).await;
    assert_eq!(server.list().await, ["slow"]);
    let waited = start_of_server.elapsed();
    assert!((millis(3_500)..millis(3_600)).contains(&waited), "{waited:?}");
    assert_eq!(target.times().len(), 2);
    let status = server.status("slow").await;
    assert_eq!(status.verdict(), Verdict::Available);
    // What is told of runs is told of the one that counts.
    sleep(Duration::from_secs(30)).await;
    let gaps = target.gaps();
    assert!(gaps[1..].iter().all(|gap| *gap >= Duration::from_secs(4)), "no third try at once: {gaps:?}");
}

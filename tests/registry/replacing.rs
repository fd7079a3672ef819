//! Registration, replacement and unregistration while a probe is in flight: a result counts for what it asked about.

use std::time::Duration;

use tokio::time::sleep;
use toolpulse::proto::v1::{ProbeOutcome, RegisterResult, ReportProbeResultRequest, ToolSpec, Verdict};

use crate::support::{
    held::HeldTarget,
    inproc::{InProc, http, millis, probed, reason, report},
};

fn described(name: &str, description: &str, target: &HeldTarget) -> ToolSpec {
    ToolSpec { description: description.to_owned(), ..probed(name, [http(target.url())]) }
}

/// Lets everything that is ready happen.
async fn settle() {
    sleep(millis(5)).await;
}

#[tokio::test(start_paused = true)]
async fn an_identical_registration_shares_the_probe_in_flight() {
    let server = InProc::start().await;
    let mut target = HeldTarget::start().await;
    let first = server.register(described("t", "one", &target)).await.tool.unwrap();
    let held = target.next().await;
    let again = server.register(described("t", "one", &target)).await;
    assert_eq!(again.result(), RegisterResult::Unchanged);
    assert_eq!(again.tool.unwrap().generation, first.generation);
    held.answer(200).await;
    settle().await;
    assert_eq!(server.verdict("t").await, Verdict::Available);
    assert_eq!(target.hits(), 1, "the run in flight is the one");

    // And with a state: nothing of it changes.
    sleep(Duration::from_secs(1)).await;
    let before = server.status("t").await;
    let again = server.register(described("t", "one", &target)).await;
    assert_eq!(again.result(), RegisterResult::Unchanged);
    assert_eq!(server.status("t").await, before);
}

#[tokio::test(start_paused = true)]
async fn a_late_pass_does_not_show_the_tool_that_replaced() {
    let server = InProc::start().await;
    let mut target = HeldTarget::start().await;
    let first = server.register(described("t", "one", &target)).await.tool.unwrap();
    let before = target.next().await;
    let second = server.register(described("t", "two", &target)).await;
    assert_eq!(second.result(), RegisterResult::Replaced);
    let second = second.tool.unwrap();
    assert!(second.generation > first.generation);
    assert_ne!(second.spec_hash, first.spec_hash);
    // Asked at once; the run of before was cancelled, as nobody wants it.
    let after = target.next().await;
    before.answer(200).await;
    settle().await;
    assert_eq!(server.verdict("t").await, Verdict::Pending);
    assert!(!server.shows("t").await);
    after.answer(403).await;
    settle().await;
    assert_eq!(server.verdict("t").await, Verdict::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_late_pass_counts_for_those_alone_who_share_the_run() {
    let server = InProc::start().await;
    let mut target = HeldTarget::start().await;
    server.register_many(vec![described("stays", "", &target), described("t", "one", &target)]).await;
    let held = target.next().await;
    server.register(described("t", "two", &target)).await;
    server.unregister("stays").await;
    server.register(described("stays", "", &target)).await;
    // Nobody is left for whom the run was started, but new ones came meanwhile.
    held.answer(200).await;
    settle().await;
    for name in ["stays", "t"] {
        assert_eq!(server.verdict(name).await, Verdict::Pending, "{name}");
        assert!(!server.shows(name).await);
    }
    target.next().await.answer(200).await;
    settle().await;
    assert_eq!(server.list().await, ["stays", "t"]);
}

#[tokio::test(start_paused = true)]
async fn one_of_two_is_replaced_while_their_run_is_in_flight() {
    let server = InProc::start().await;
    let mut target = HeldTarget::start().await;
    server.register_many(vec![described("stays", "", &target), described("t", "one", &target)]).await;
    let held = target.next().await;
    server.register(described("t", "two", &target)).await;
    held.answer(200).await;
    settle().await;
    assert_eq!(server.list().await, ["stays"]);
    assert_eq!(server.verdict("t").await, Verdict::Pending);
    // The next run is for both.
    target.next().await.answer(200).await;
    settle().await;
    assert_eq!(server.list().await, ["stays", "t"]);
}

#[tokio::test(start_paused = true)]
async fn unregistering_cancels_the_probe_and_drops_a_late_result() {
    let server = InProc::start().await;
    let mut target = HeldTarget::start().await;
    let first = server.register(described("t", "one", &target)).await.tool.unwrap();
    let before = target.next().await;
    server.unregister("t").await;
    assert_eq!(reason(&server.try_get("t").await.unwrap_err()), "TOOL_NOT_FOUND");
    let second = server.register(described("t", "one", &target)).await;
    assert_eq!(second.result(), RegisterResult::Created);
    let second = second.tool.unwrap();
    assert!(second.generation > first.generation, "a generation never repeats for a name");
    assert_eq!(second.spec_hash, first.spec_hash);
    let after = target.next().await;
    before.answer(200).await;
    settle().await;
    assert_eq!(server.verdict("t").await, Verdict::Pending);
    after.answer(200).await;
    settle().await;
    assert!(server.shows("t").await);

    // With nobody left, the connection goes with the tool.
    server.unregister("t").await;
    server.register(described("t", "three", &target)).await;
    let held = target.next().await;
    server.unregister("t").await;
    assert!(held.given_up().await);
    let hits = target.hits();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(target.hits(), hits, "nobody asks for a tool that is gone");
}

#[tokio::test(start_paused = true)]
async fn a_report_about_an_earlier_generation_is_refused() {
    let server = InProc::start().await;
    let spec =
        |description: &str| ToolSpec { description: description.to_owned(), ..probed("t", [report()]) };
    let first = server.register(spec("one")).await.tool.unwrap();
    let result = |generation| ReportProbeResultRequest {
        name: "t".into(),
        outcome: ProbeOutcome::Pass.into(),
        generation,
        ..Default::default()
    };
    assert!(server.try_report(result(first.generation)).await.is_ok());
    assert!(server.shows("t").await);
    let second = server.register(spec("two")).await.tool.unwrap();
    assert!(!server.shows("t").await, "what was known of the first is forgotten");
    assert_eq!(second.status.unwrap().last_success_time, None);
    for wrong in [first.generation, second.generation + 1] {
        let refused = server.try_report(result(wrong)).await.unwrap_err();
        assert_eq!(
            (refused.code(), reason(&refused).as_str()),
            (tonic::Code::FailedPrecondition, "STALE_GENERATION")
        );
        assert!(refused.message().contains(&second.generation.to_string()), "{}", refused.message());
    }
    assert!(!server.shows("t").await);
    assert!(server.try_report(result(0)).await.is_ok());
    assert!(server.shows("t").await);
}

#[tokio::test(start_paused = true)]
async fn a_registration_is_answered_with_its_own_generation() {
    let server = InProc::start().await;
    let mut target = HeldTarget::start().await;
    // The first caller waits for its probe; another one replaces and then removes the tool meanwhile.
    let waiting = server.register_and_wait(described("t", "one", &target));
    let meanwhile = async {
        let _unanswered = target.next().await;
        let second = server.register(described("t", "two", &target)).await.tool.unwrap();
        server.unregister("t").await;
        second
    };
    let (first, second) = tokio::join!(waiting, meanwhile);
    let first = first.tool.unwrap();
    assert_eq!(first.spec.unwrap().description, "one");
    assert!(first.generation > 0 && first.generation < second.generation);
    assert_eq!(first.status, None, "nothing is known of it any more");
}

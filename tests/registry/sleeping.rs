//! A machine that slept: timers stood still, the world did not.

use std::{cell::Cell, time::Duration};

use tokio::time::sleep;
use toolpulse::{
    clock::Clock,
    proto::v1::{ToolSpec, Verdict},
};

use crate::support::{
    held::{AutoTarget, HeldTarget},
    inproc::{InProc, between, http, millis, probed, report, seconds, tool},
};

const HOUR: Duration = Duration::from_secs(3_600);

thread_local! {
    // The server runs on the test's own thread.
    static SUSPENDED: Cell<i64> = const { Cell::new(0) };
}

async fn server() -> InProc {
    let server = InProc::start_on(Clock::start_on(|| SUSPENDED.get()), |_| {}).await;
    server.list().await;
    server
}

/// Lets the machine sleep. The server looks at the clocks each second.
async fn machine_sleeps(duration: Duration) {
    SUSPENDED.set(SUSPENDED.get() + i64::try_from(duration.as_nanos()).unwrap());
    sleep(millis(1_001)).await;
}

#[tokio::test(start_paused = true)]
async fn everything_is_asked_once_before_anything_is_said() {
    let server = server().await;
    let mut targets = Vec::new();
    for i in 0..20 {
        let target = AutoTarget::start(200).await;
        server.register_and_wait(probed(&format!("t{i:02}"), [http(target.url())])).await;
        targets.push(target);
    }
    server.register(tool("free")).await;
    sleep(Duration::from_secs(60)).await;
    let before = server.status("t00").await;
    let asked: Vec<usize> = targets.iter().map(|target| target.times().len()).collect();
    // Half of them die in the night.
    targets.iter().skip(10).for_each(|target| target.set(503));
    machine_sleeps(HOUR).await;
    let list = server.list().await;
    let living: Vec<String> = (0..10).map(|i| format!("t{i:02}")).collect();
    assert_eq!(list, [vec!["free".to_owned()], living].concat(), "an hour is longer than any grace");
    let again: Vec<usize> = targets.iter().map(|target| target.times().len()).collect();
    assert!(asked.iter().zip(&again).all(|(asked, again)| *again == asked + 1), "{asked:?} {again:?}");
    let after = server.status("t00").await;
    assert_eq!((after.verdict(), &after.since), (Verdict::Available, &before.since), "it never flipped");
    // Wall times go on with the world.
    let age = between(before.last_probe_time.as_ref(), after.last_probe_time.as_ref());
    assert!((HOUR..HOUR + Duration::from_secs(15)).contains(&age), "{age:?}");
    // And the rhythm goes on without a burst.
    sleep(Duration::from_secs(100)).await;
    for (target, again) in targets.iter().zip(again).take(10) {
        assert!((9..=11).contains(&(target.times().len() - again)), "{}", target.times().len() - again);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_takes_longer_than_the_sweep_is_waited_for() {
    let server = server().await;
    let target = HeldTarget::start().await.answer_all(200, Duration::from_secs(8));
    let patient = ToolSpec {
        interval: Some(seconds(30)),
        timeout: Some(seconds(10)),
        ..probed("slow", [http(target.url())])
    };
    server.register_and_wait(patient).await;
    let before = server.status("slow").await;
    assert_eq!(before.verdict(), Verdict::Available);
    machine_sleeps(HOUR).await;
    // The sweep is over after five seconds, and the answer comes three seconds later.
    assert_eq!(server.list().await, ["slow"]);
    let after = server.status("slow").await;
    assert_eq!(after.last_probe_time, before.last_probe_time, "none yet");
    sleep(Duration::from_secs(5)).await;
    let after = server.status("slow").await;
    assert_ne!(after.last_probe_time, before.last_probe_time);
    assert_eq!((after.verdict(), &after.since), (Verdict::Available, &before.since), "it never flipped");
    // Where none comes either, that is all the time it gets.
    drop(target);
    machine_sleeps(HOUR).await;
    sleep(Duration::from_secs(20)).await;
    assert!(!server.shows("slow").await);
}

#[tokio::test(start_paused = true)]
async fn a_report_that_is_too_old_by_then_is_not_used() {
    let server = server().await;
    server.register(probed("told", [report()])).await;
    server.report("told", toolpulse::proto::v1::ProbeOutcome::Pass).await;
    assert!(server.shows("told").await);
    machine_sleeps(HOUR).await;
    // Nobody can ask its owner.
    sleep(Duration::from_secs(5)).await;
    assert!(!server.shows("told").await);
}

#[tokio::test(start_paused = true)]
async fn a_nap_is_not_worth_a_word() {
    let server = server().await;
    let target = AutoTarget::start(200).await;
    server.register_and_wait(probed("t", [http(target.url())])).await;
    machine_sleeps(millis(1_500)).await;
    assert_eq!(target.times().len(), 1);
}

//! When targets are asked, by their own logs over hours of virtual time.

use std::time::Duration;

use tokio::time::sleep;
use toolpulse::proto::v1::{ToolSpec, Verdict};

use crate::support::{
    held::{AutoTarget, HeldTarget},
    inproc::{InProc, http, millis, probed, seconds, tool},
};

const HOUR: Duration = Duration::from_secs(3_600);

fn interval(s: i64, spec: ToolSpec) -> ToolSpec {
    ToolSpec { interval: Some(seconds(s)), ..spec }
}

/// Each start is moved by up to 2.5 % of the period, so two of them are 5 % off at most; timers have milliseconds.
fn about(period: Duration) -> std::ops::RangeInclusive<Duration> {
    period.mul_f64(0.95) - millis(2)..=period.mul_f64(1.05) + millis(2)
}

#[tokio::test(start_paused = true)]
async fn an_available_tool_is_asked_each_interval() {
    let server = InProc::start().await;
    let (ten, minute) = (AutoTarget::start(200).await, AutoTarget::start(200).await);
    server.register_and_wait(probed("ten", [http(ten.url())])).await;
    server.register_and_wait(interval(60, probed("minute", [http(minute.url())]))).await;
    sleep(HOUR).await;
    for (target, period) in [(&ten, 10), (&minute, 60)] {
        let period = Duration::from_secs(period);
        let gaps = target.gaps();
        let (first, rest) = gaps.split_first().unwrap();
        assert!((period / 2 - millis(500)..=period.mul_f64(1.55)).contains(first), "{first:?}");
        assert!(rest.iter().all(|gap| about(period).contains(gap)), "{period:?}: {rest:?}");
        let expected = HOUR.as_secs() / period.as_secs();
        assert!(target.times().len().abs_diff(usize::try_from(expected).unwrap()) <= 2);
        assert_eq!(target.most_at_once(), 1);
    }
    // Not in step with each other, nor with the full second.
    assert!(rest_of_second(&ten).max() > Some(100));
}

fn rest_of_second(target: &AutoTarget) -> impl Iterator<Item = u32> {
    let times = target.times();
    let first = times[0];
    times.into_iter().map(move |t| (t - first).subsec_millis())
}

#[tokio::test(start_paused = true)]
async fn errors_within_the_grace_are_asked_every_two_seconds_and_then_slower_and_slower() {
    let server = InProc::start().await;
    let target = AutoTarget::start(200).await;
    server.register_and_wait(probed("t", [http(target.url())])).await;
    sleep(Duration::from_secs(60)).await;
    let before = target.times().len();
    target.set(503);
    sleep(HOUR).await;
    assert_eq!(server.verdict("t").await, Verdict::Unavailable);
    let gaps = target.gaps().split_off(before);
    let fast = gaps.iter().take_while(|gap| **gap <= millis(2_002)).count();
    // 30 s of grace less the interval until the first error, in steps of 2 s.
    assert!((9..=11).contains(&fast), "{gaps:?}");
    let rest = &gaps[fast + 1..];
    let ten = about(Duration::from_secs(10));
    let regular = rest.iter().take_while(|gap| ten.contains(*gap)).count();
    assert!((15..=19).contains(&regular), "3 min of 10 s: {rest:?}");
    let slow = &rest[regular + 3..];
    assert!(slow.iter().all(|gap| about(Duration::from_secs(30)).contains(gap)), "{rest:?}");
    assert!(slow.len() > 100, "{}", slow.len());

    // Recovery, and the interval again.
    let asked = target.times().len();
    target.set(200);
    sleep(Duration::from_secs(100)).await;
    assert!(server.shows("t").await);
    let gaps = target.gaps().split_off(asked);
    assert!(gaps[1..].iter().all(|gap| ten.contains(gap)), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn a_no_is_asked_on_the_interval_for_three_minutes() {
    let server = InProc::start().await;
    let target = AutoTarget::start(403).await;
    server.register_and_wait(probed("t", [http(target.url())])).await;
    sleep(Duration::from_secs(170)).await;
    let gaps = target.gaps();
    assert!(gaps[1..].iter().all(|gap| about(Duration::from_secs(10)).contains(gap)), "{gaps:?}");
    sleep(HOUR).await;
    let last = *target.gaps().last().unwrap();
    assert!(about(Duration::from_secs(30)).contains(&last), "{last:?}");
    // A re-registration with another spec starts over.
    let described = ToolSpec { description: "other".into(), ..probed("t", [http(target.url())]) };
    let asked = target.times().len();
    server.register_and_wait(described).await;
    assert_eq!(target.times().len(), asked + 1, "asked at once");
    sleep(Duration::from_secs(60)).await;
    let gaps = target.gaps().split_off(asked + 1);
    assert!(gaps.iter().all(|gap| about(Duration::from_secs(10)).contains(gap)), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_tools_that_share_a_target_are_one_client_of_it() {
    let server = InProc::start().await;
    let target = AutoTarget::start(200).await;
    for batch in 0..10 {
        let name = |i| format!("t{batch}-{i:03}");
        let tools = (0..100).map(|i| probed(&name(i), [http(target.url())])).collect();
        server.register_many(tools).await;
        sleep(Duration::from_secs(1)).await;
    }
    sleep(Duration::from_secs(20)).await;
    assert_eq!(server.list().await.len(), 1_000);
    sleep(Duration::from_secs(600)).await;
    let times = target.times();
    let hits = times.len();
    // One hit an interval, one at the start, one out of turn.
    assert!((61..=63 + 2).contains(&hits), "{hits} hits in 630 s");
    let gaps = target.gaps();
    // Newcomers are asked for after a second, once, in place of the next turn; from then on it is the grid.
    assert_eq!(gaps[..2], [Duration::from_secs(1), Duration::from_secs(10)], "{gaps:?}");
    // Half an interval to one and a half, where the grid is; its phase comes from the target's port. +- 2.5 % of jitter, and a timer's millisecond.
    assert!((millis(4_748)..=millis(15_252)).contains(&gaps[2]), "{gaps:?}");
    assert!(gaps[3..].iter().all(|gap| about(Duration::from_secs(10)).contains(gap)), "{gaps:?}");
    assert_eq!(target.most_at_once(), 1);

    // The smallest interval is the target's.
    server.register(interval(2, probed("eager", [http(target.url())]))).await;
    let asked = target.times().len();
    sleep(Duration::from_secs(100)).await;
    let hits = target.times().len() - asked;
    assert!((48..=52).contains(&hits), "{hits}");
    server.unregister("eager").await;
    sleep(Duration::from_secs(10)).await;
    let asked = target.times().len();
    sleep(Duration::from_secs(100)).await;
    let hits = target.times().len() - asked;
    assert!((9..=11).contains(&hits), "{hits}");
}

#[tokio::test(start_paused = true)]
async fn owners_do_not_share() {
    let server = InProc::start().await;
    let target = AutoTarget::start(200).await;
    for owner in ["a", "b"] {
        let request = toolpulse::proto::v1::RegisterToolRequest {
            tool: Some(probed(owner, [http(target.url())])),
            owner: owner.into(),
            ..Default::default()
        };
        server.try_register(request).await.unwrap();
    }
    sleep(Duration::from_secs(100)).await;
    assert!((19..=23).contains(&target.times().len()), "{}", target.times().len());
}

#[tokio::test(start_paused = true)]
async fn probes_of_a_target_never_overlap() {
    let server = InProc::start().await;
    // Answers after the timeout, within it, and just at it.
    for (i, after) in [400, 1, 500, 499, 2_000].into_iter().enumerate() {
        let target = HeldTarget::start().await.answer_all(200, millis(after));
        let name = format!("t{i}");
        server.register(interval(1, probed(&name, [http(target.url())]))).await;
        let mut asks = tokio::task::JoinSet::new();
        for n in 0..40_u64 {
            let (mut client, name) = (server.tools(), name.clone());
            asks.spawn(async move {
                sleep(millis(n * 137)).await;
                let request = toolpulse::proto::v1::ProbeToolRequest { name, ..Default::default() };
                client.probe_tool(request).await.unwrap();
            });
        }
        asks.join_all().await;
        assert!(target.times().len() > 5);
        // A target that answers late has given up connections open; a run has not.
        if after <= 499 {
            assert_eq!(target.most_at_once(), 1, "answers after {after} ms");
        }
        assert!(
            target.gaps().iter().all(|gap| *gap >= millis(after.min(500) - 1)),
            "{after}: {:?}",
            target.gaps()
        );
        server.unregister(&name).await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_request_ever_probes() {
    let server = InProc::start().await;
    let target = AutoTarget::start(200).await;
    server.register_and_wait(probed("t", [http(target.url())])).await;
    server.register(tool("other")).await;
    for _ in 0..100 {
        server.list().await;
        server.get("t").await;
    }
    assert_eq!(target.times().len(), 1);
}

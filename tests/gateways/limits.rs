//! How watches end, and how many there may be.

use std::time::Duration;

use tokio::time::Instant;
use tonic::Code;
use toolpulse::{
    proto::v1::{GoodbyeReason, WatchGatewayStatusRequest},
    service::watch::WatchSettings,
};

use crate::world::{Watch, World, queued, report, report_of, told};

const ALL: fn() -> WatchGatewayStatusRequest = WatchGatewayStatusRequest::default;

fn wait(d: Option<prost_types::Duration>) -> Duration {
    d.unwrap().try_into().unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_old_watch_says_goodbye_and_ends_well() {
    let world = World::start().await;
    for _ in 0..3 {
        let mut watch = world.watch(ALL()).await;
        let start = Instant::now();
        let goodbye = loop {
            let message = watch.next().await.unwrap().unwrap();
            if let Some(goodbye) = message.goodbye {
                assert!(!message.synced);
                break goodbye;
            }
        };
        let age = start.elapsed();
        assert!((1_620..=1_980).contains(&age.as_secs()), "{age:?}");
        assert_eq!(goodbye.reason(), GoodbyeReason::AgeLimit);
        assert!(wait(goodbye.retry_after) < Duration::from_secs(1));
        assert!(watch.next().await.unwrap().is_none(), "status OK");
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_says_goodbye_and_when_to_come_back() {
    let world = World::start().await;
    report(&mut world.client().await, report_of("a", queued(1))).await;
    let mut watches = Vec::new();
    for _ in 0..50 {
        let mut watch = world.watch(ALL()).await;
        watch.batch().await;
        watches.push(watch);
    }
    let start = Instant::now();
    world.drain.begin();
    for mut watch in watches {
        let message = watch.next().await.unwrap().unwrap();
        let goodbye = message.goodbye.unwrap();
        assert_eq!(goodbye.reason(), GoodbyeReason::Drain);
        let (code, reason, details) = told(&watch.next().await.unwrap_err());
        assert_eq!((code, reason.as_str()), (Code::Unavailable, "DRAINING"));
        assert_eq!(details.retry_info().unwrap().retry_delay, Some(wait(goodbye.retry_after)));
    }
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn too_many_watches_are_refused_and_the_others_live() {
    let limits = [(2, 100, "from this address"), (100, 2, "are open:")];
    for (max_watches_per_peer, max_watches, words) in limits {
        let settings = WatchSettings { max_watches_per_peer, max_watches, ..Default::default() };
        let world = World::with(settings, false).await;
        let mut first = world.watch(ALL()).await;
        let second = world.watch(ALL()).await;
        first.batch().await;
        assert!(world.metrics.encode().unwrap().contains("toolpulse_watchers 2\n"));

        let error = Watch::open(world.client().await, ALL()).await.err().unwrap();
        let (code, reason, details) = told(&error);
        assert_eq!((code, reason.as_str()), (Code::ResourceExhausted, "TOO_MANY_WATCHES"));
        assert!(details.retry_info().unwrap().retry_delay.is_some());
        assert!(error.message().contains(words), "{error}");

        report(&mut world.client().await, report_of("a", queued(1))).await;
        assert_eq!(first.batch().await.len(), 1);
        // A place is free again once its watch is over.
        drop(second);
        tokio::time::sleep(Duration::from_millis(10)).await;
        world.watch(ALL()).await.batch().await;
    }
}

//! The contract of watches: what is sent, when, and what is not.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use toolpulse::{
    core::{
        gateway::{GatewayId, NewReport, Report, Source, Status},
        name::Namespace,
    },
    owner::GatewayReport,
    proto::v1::{
        Position, PublishGatewayStatusRequest, WatchGatewayStatusRequest, publish_gateway_status_request,
    },
    service::watch::WatchSettings,
};

use crate::world::{
    Client, EPOCH, World, fields, ids, is_heartbeat, large, lasting, queued, report, report_of,
};

const ALL: fn() -> WatchGatewayStatusRequest = WatchGatewayStatusRequest::default;

fn resuming(from: Option<Position>) -> WatchGatewayStatusRequest {
    WatchGatewayStatusRequest { resume: from, ..Default::default() }
}

/// Reports a gateway and takes it away again.
async fn leaves(client: &mut Client, id: &str) {
    let message = PublishGatewayStatusRequest {
        gateway_id: id.to_owned(),
        report: Some(publish_gateway_status_request::Report::Status(queued(0))),
        ..Default::default()
    };
    client.publish_gateway_status(tokio_stream::once(message)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_state_now_comes_first_and_then_changes() {
    let world = World::start().await;
    let mut client = world.client().await;
    let mut empty = world.watch(ALL()).await;
    let first = empty.batch().await;
    assert!(first.len() == 1 && is_heartbeat(&first[0]), "an empty state is one synced message: {first:?}");

    report(&mut client, report_of("a", queued(1))).await;
    report(&mut client, report_of("b", queued(1))).await;
    let mut watch = world.watch(ALL()).await;
    let first = watch.batch().await;
    assert_eq!(ids(&first), ["a", "b"]);
    assert!(first.len() == 1 && !first[0].reset);

    let reply = report(&mut client, report_of("b", queued(2))).await;
    let change = watch.batch().await;
    assert_eq!((ids(&change), watch.revision), (vec!["b"], reply.revision));
    assert_eq!(change[0].snapshots[0].status.as_ref().unwrap().queued, 2);

    leaves(&mut client, "a").await;
    let change = watch.batch().await;
    assert_eq!((ids(&change), change[0].removed.clone()), (vec![], vec!["a".to_owned()]));
    assert_eq!(watch.known, world.list().await);
}

#[tokio::test(start_paused = true)]
async fn what_changes_nothing_is_not_sent() {
    let world = World::start().await;
    let mut client = world.client().await;
    let mut watch = world.watch(ALL()).await;
    watch.batch().await;
    report(&mut client, report_of("a", queued(1))).await;
    watch.batch().await;
    for sequence in 1..5 {
        let mut again = report_of("a", queued(1));
        again.sequence = sequence;
        report(&mut client, again).await;
    }
    // Nor is what happens in another namespace, or to tools.
    let mut other = report_of("a", queued(9));
    other.namespace = "other".into();
    report(&mut client, other).await;
    world.register("t").await;
    world.probed("t", false).await;
    let got = watch.within(Duration::from_secs(12)).await;
    assert!(got.is_empty(), "{got:?}");
}

#[tokio::test(start_paused = true)]
async fn fast_changes_are_merged() {
    let world = World::start().await;
    let mut client = world.client().await;
    let mut watch = world.watch(ALL()).await;
    watch.batch().await;
    sleep(Duration::from_secs(1)).await;
    for i in 1..=10 {
        report(&mut client, report_of("a", queued(i))).await;
        sleep(Duration::from_millis(5)).await;
    }
    let got = watch.within(Duration::from_secs(1)).await;
    assert!((1..=2).contains(&got.len()), "{got:?}");
    assert_eq!(watch.known["a"].status.as_ref().unwrap().queued, 10);
}

#[tokio::test(start_paused = true)]
async fn heartbeats_say_where_the_reader_stands() {
    let world = World::start().await;
    let mut client = world.client().await;
    let mut watch = world.watch(ALL()).await;
    watch.batch().await;
    // Moves the revision without a message.
    let mut other = lasting(report_of("a", queued(1)), 3_600_000);
    other.namespace = "other".into();
    let reply = report(&mut client, other).await;
    let mut before = Instant::now();
    for _ in 0..10 {
        let beat = watch.next().await.unwrap().unwrap();
        assert!(is_heartbeat(&beat), "{beat:?}");
        assert_eq!(beat.revision, reply.revision);
        let apart = before.elapsed();
        assert!((13_400..=16_600).contains(&apart.as_millis()), "{apart:?}");
        before = Instant::now();
    }
}

#[tokio::test(start_paused = true)]
async fn silence_is_told_without_a_report() {
    let world = World::start().await;
    let mut client = world.client().await;
    let mut watch = world.watch(ALL()).await;
    watch.batch().await;
    let start = Instant::now();
    report(&mut client, lasting(report_of("a", queued(1)), 3_000)).await;
    watch.batch().await;
    watch.batch().await;
    let stale = start.elapsed();
    assert!(watch.known["a"].stale && watch.known["a"].status.is_none());
    assert!((3_000..3_010).contains(&stale.as_millis()), "{stale:?}");
    watch.batch().await;
    let gone = start.elapsed();
    assert!(watch.known.is_empty());
    assert!((9_000..9_010).contains(&gone.as_millis()), "{gone:?}");
}

#[tokio::test(start_paused = true)]
async fn a_resumed_watch_gets_what_changed() {
    let world = World::start().await;
    let mut client = world.client().await;
    for id in ["same", "changed", "left", "left-and-back"] {
        report(&mut client, report_of(id, queued(1))).await;
    }
    let mut watch = world.watch(ALL()).await;
    watch.batch().await;
    let from = watch.position();
    drop(watch);

    let mut watch = world.watch(resuming(from.clone())).await;
    let first = watch.batch().await;
    assert!(first.len() == 1 && is_heartbeat(&first[0]), "nothing changed: {first:?}");

    report(&mut client, report_of("changed", queued(2))).await;
    report(&mut client, report_of("new", queued(1))).await;
    leaves(&mut client, "left").await;
    leaves(&mut client, "left-and-back").await;
    report(&mut client, report_of("left-and-back", queued(3))).await;
    let mut watch = world.watch(resuming(from.clone())).await;
    let changes = watch.batch().await;
    assert!(changes.iter().all(|message| !message.reset));
    let removed: Vec<&str> = changes.iter().flat_map(|m| &m.removed).map(String::as_str).collect();
    assert_eq!((ids(&changes), removed), (vec!["changed", "new", "left-and-back"], vec!["left"]));

    // The same for one that watches few.
    let only = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    let request =
        WatchGatewayStatusRequest { gateway_ids: only(&["same", "changed", "left"]), ..resuming(from) };
    let changes = world.watch(request).await.batch().await;
    assert_eq!((ids(&changes), &changes[0].removed), (vec!["changed"], &only(&["left"])));
}

#[tokio::test(start_paused = true)]
async fn a_position_that_is_not_known_starts_over() {
    let world = World::start().await;
    let mut client = world.client().await;
    report(&mut client, report_of("a", queued(1))).await;
    let position = |epoch: &str, revision| Some(Position { epoch: epoch.to_owned(), revision });
    let early = world.watch(ALL()).await;
    for from in [position("other", 1), position("", 0), position(EPOCH, 1 << 40)] {
        let first = world.watch(resuming(from.clone())).await.batch().await;
        assert!(first[0].reset && ids(&first) == ["a"], "{from:?}: {first:?}");
    }
    drop(early);

    // More departures than are remembered.
    let mut watch = world.watch(ALL()).await;
    watch.batch().await;
    let from = watch.position();
    drop(watch);
    many_leave(&world).await;
    let first = world.watch(resuming(from)).await.batch().await;
    assert!(first[0].reset && ids(&first) == ["a"] && first[0].removed.is_empty(), "{first:?}");
}

/// 4,200 gateways come and go.
async fn many_leave(world: &World) {
    for i in 0..4_200 {
        let report = GatewayReport {
            namespace: Namespace::default(),
            id: GatewayId::parse(&format!("x{i}")).unwrap(),
            source: Source::Unary,
            new: NewReport {
                report: Report::Status(Status::default().into()),
                instance: "".into(),
                sequence: 0,
                ttl: Duration::from_secs(1),
                observed_at: None,
            },
        };
        world.handle.gateway_report(report).await.unwrap();
    }
    sleep(Duration::from_millis(3_100)).await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_fell_too_far_behind_starts_over() {
    let settings = WatchSettings { coalesce: Duration::from_secs(10), ..Default::default() };
    let world = World::with(settings, false).await;
    report(&mut world.client().await, report_of("a", queued(1))).await;
    let mut watch = world.watch(ALL()).await;
    watch.batch().await;
    many_leave(&world).await;
    let first = watch.batch().await;
    assert!(first[0].reset && ids(&first) == ["a"], "{first:?}");
}

#[tokio::test(start_paused = true)]
async fn departures_are_split_into_parts() {
    let settings = WatchSettings { coalesce: Duration::from_secs(10), ..Default::default() };
    let world = World::with(settings, false).await;
    let mut client = world.client().await;
    for i in 0..3_000 {
        let id = format!("{i:0>128}");
        report(&mut client, lasting(report_of(&id, queued(1)), 1_000)).await;
    }
    let mut watch = world.watch(ALL()).await;
    assert!(watch.batch().await.len() > 1);
    assert_eq!(watch.known.len(), 3_000);
    let mut removed = 0;
    while removed < 3_000 {
        let batch = watch.batch().await;
        removed += batch.iter().map(|message| message.removed.len()).sum::<usize>();
    }
    assert!(watch.known.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_large_state_comes_in_parts() {
    let world = World::start().await;
    let mut client = world.client().await;
    for i in 0..2_000 {
        let mut status = queued(i);
        status.detail = "d".repeat(500);
        report(&mut client, report_of(&format!("g{i:04}"), status)).await;
    }
    for i in 0..5 {
        report(&mut client, report_of(&format!("large{i}"), large(i))).await;
    }
    let mut watch = world.watch(ALL()).await;
    // That each part is small, and has no revision unless it is the last, is checked for every message.
    let parts = watch.batch().await;
    assert!((8..20).contains(&parts.len()), "{}", parts.len());
    assert!(parts.iter().all(|part| !part.snapshots.is_empty() && !part.reset));
    assert_eq!(ids(&parts).len(), 2_005, "each once");
    assert_eq!(watch.known, world.list().await);

    // The same with a reset, which is said once.
    let other = Some(Position { epoch: "other".into(), revision: 1 });
    let mut watch = world.watch(resuming(other)).await;
    let parts = watch.batch().await;
    assert!(parts[0].reset && parts[1..].iter().all(|part| !part.reset));
    assert_eq!(watch.known.len(), 2_005);
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_few_hears_of_no_others() {
    let world = World::start().await;
    let mut client = world.client().await;
    report(&mut client, report_of("a", queued(1))).await;
    report(&mut client, report_of("b", queued(1))).await;
    let few = |ids: &[&str]| WatchGatewayStatusRequest {
        gateway_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        ..Default::default()
    };
    let mut watch = world.watch(few(&["z", "a", "a"])).await;
    assert_eq!(ids(&watch.batch().await), ["a"]);
    report(&mut client, report_of("b", queued(2))).await;
    leaves(&mut client, "b").await;
    assert!(watch.within(Duration::from_secs(1)).await.is_empty());
    report(&mut client, report_of("z", queued(1))).await;
    assert_eq!(ids(&watch.batch().await), ["z"]);

    let many: Vec<String> = (0..1_001).map(|i| i.to_string()).collect();
    let too_many = WatchGatewayStatusRequest { gateway_ids: many, ..Default::default() };
    let mut ill = few(&["a", "", "b c"]);
    ill.namespace = "-".into();
    let cases =
        [(too_many, vec!["gateway_ids"]), (ill, vec!["namespace", "gateway_ids[1]", "gateway_ids[2]"])];
    for (request, expected) in cases {
        assert_eq!(fields(&client.watch_gateway_status(request).await.unwrap_err()), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_gets_fewer_and_newer_states() {
    let world = World::start().await;
    let mut client = world.client().await;
    let mut watch = world.watch(ALL()).await;
    watch.batch().await;
    // Far more than the windows of the connection hold.
    for i in 1..=250 {
        report(&mut client, report_of("a", large(i))).await;
        sleep(Duration::from_millis(120)).await;
    }
    let mut messages = 0;
    while watch.known.get("a").is_none_or(|a| a.status.as_ref().unwrap().queued < 250) {
        messages += watch.batch().await.len();
    }
    assert!(messages < 125, "{messages}");
}

#[tokio::test(start_paused = true)]
async fn tools_that_stop_working_are_told_where_a_status_names_them() {
    let world = World::with(WatchSettings::default(), true).await;
    let mut client = world.client().await;
    world.register("t").await;
    world.register("u").await;
    world.probed("t", true).await;
    report(&mut client, lasting(report_of("a", queued(1)), 3_600_000)).await;
    report(&mut client, lasting(report_of("b", queued(1)), 3_600_000)).await;
    let mut watch = world.watch(ALL()).await;
    assert_eq!(ids(&watch.batch().await), ["a", "b"]);
    world.probed("t", false).await;
    let change = watch.batch().await;
    assert_eq!(ids(&change), ["a", "b"]);
    assert_eq!(watch.known, world.list().await);
    assert!(watch.known["a"].text.contains("capability:t"));

    // Nothing that a reader sees: another tool, and one that came back in between.
    world.probed("u", true).await;
    let got = watch.within(Duration::from_secs(1)).await;
    assert!(got.is_empty(), "{got:?}");
    report(&mut client, lasting(report_of("a", queued(2)), 3_600_000)).await;
    assert_eq!(ids(&watch.batch().await), ["a"]);
    world.probed("t", true).await;
    world.probed("t", false).await;
    let got = watch.within(Duration::from_secs(1)).await;
    assert!(got.is_empty(), "{got:?}");

    // At the same revision it is the same state. What the tools added at another one is not known any more.
    let head = Some(Position { epoch: EPOCH.into(), revision: world.reader.load().revision });
    let first = world.watch(resuming(head.clone())).await.batch().await;
    assert!(is_heartbeat(&first[0]), "{first:?}");
    world.probed("t", true).await;
    let mut watch = world.watch(resuming(head)).await;
    let first = watch.batch().await;
    assert!(first[0].reset, "{first:?}");
    assert_eq!(watch.known, world.list().await);
}

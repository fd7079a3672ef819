//! What happens to one gateway, case by case.

use super::*;

const S: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(30);

struct World {
    gateways: Gateways,
    namespace: Namespace,
    id: GatewayId,
    now: Moment,
}

impl World {
    fn new() -> Self {
        Self {
            gateways: Gateways::default(),
            namespace: Namespace::default(),
            id: GatewayId::parse("gw").unwrap(),
            now: Moment::START + S,
        }
    }

    fn send(
        &mut self,
        source: Source,
        run: &str,
        instance: &str,
        sequence: u64,
    ) -> Result<ReportEffect, Refusal> {
        let new = NewReport {
            report: Report::Status(Arc::new(status(run))),
            instance: instance.into(),
            sequence,
            ttl: TTL,
            observed_at: None,
        };
        self.gateways.report(&self.namespace, &self.id, source, new, self.now)
    }

    fn unary(&mut self, run: &str, instance: &str, sequence: u64) -> ReportEffect {
        self.send(Source::Unary, run, instance, sequence).unwrap()
    }

    fn stream(&mut self, stream: u64, run: &str, sequence: u64) -> Result<ReportEffect, Refusal> {
        self.send(Source::Stream(StreamId(stream)), run, "", sequence)
    }

    fn open(&mut self, stream: u64) -> Option<u64> {
        self.gateways
            .stream_opened(&self.namespace, &self.id, StreamId(stream))
            .map(|StreamId(before)| before)
    }

    /// Whether the gateway is said to be gone.
    fn end(&mut self, stream: u64, end: End) -> Option<bool> {
        let changed = self.gateways.stream_ended(&self.namespace, &self.id, StreamId(stream), end, self.now);
        changed.map(|changed| changed.gone)
    }

    fn pass(&mut self, time: Duration) -> Vec<bool> {
        self.now = self.now + time;
        self.gateways.tick(self.now).into_iter().map(|changed| changed.gone).collect()
    }

    /// `busy`, `stale busy` or `gone`.
    fn seen(&self) -> String {
        self.gateways.get(&self.namespace, &self.id).map_or_else(
            || "gone".to_owned(),
            |snapshot| {
                let stale = if snapshot.stale { "stale " } else { "" };
                format!("{stale}{}", snapshot.status().map_or("error", |status| &status.run))
            },
        )
    }
}

#[test]
fn stale_exactly_at_the_ttl_and_gone_exactly_at_three() {
    let mut world = World::new();
    let sent = world.now;
    assert_eq!(world.unary("busy", "", 0), ReportEffect::Changed);
    assert_eq!(world.gateways.deadline(), Some(sent + TTL));
    assert_eq!(world.pass(TTL - Duration::from_nanos(1)), [false; 0]);
    assert_eq!(world.seen(), "busy");
    assert_eq!(world.pass(Duration::from_nanos(1)), [false]);
    assert_eq!(world.seen(), "stale busy");
    assert_eq!(world.gateways.live(&world.namespace).count(), 0);
    assert_eq!(world.gateways.deadline(), Some(sent + TTL * 3));
    assert_eq!(world.pass(TTL * 2 - Duration::from_nanos(1)), [false; 0]);
    assert_eq!(world.pass(Duration::from_nanos(1)), [true]);
    assert_eq!((world.seen().as_str(), world.gateways.deadline()), ("gone", None));
    assert_eq!(world.gateways.all().count(), 0);
    // Late ticks make up for what was missed, once.
    world.unary("busy", "", 0);
    assert_eq!(world.pass(TTL * 5), [true]);
}

#[test]
fn a_report_refreshes_or_changes() {
    let mut world = World::new();
    assert_eq!(world.unary("busy", "", 0), ReportEffect::Changed);
    world.pass(TTL - S);
    assert_eq!(world.unary("busy", "a", 7), ReportEffect::Refreshed, "numbers alone are no change");
    assert_eq!(world.pass(TTL - S), [false; 0]);
    assert_eq!(world.unary("idle", "a", 8), ReportEffect::Changed);
    assert_eq!(world.pass(TTL), [false]);
    assert_eq!(world.unary("idle", "a", 9), ReportEffect::Changed, "no longer stale");
    let new = |report, ttl| NewReport { report, instance: "".into(), sequence: 0, ttl, observed_at: None };
    let mut send = |report: Report, ttl| {
        world
            .gateways
            .report(&world.namespace, &world.id, Source::Unary, new(report, ttl), world.now)
            .unwrap()
    };
    let idle = Report::Status(Arc::new(status("idle")));
    assert_eq!(send(idle.clone(), TTL), ReportEffect::Refreshed);
    assert_eq!(send(idle, TTL * 2), ReportEffect::Changed);
    assert_eq!(send(Report::Error("e".to_owned()), TTL * 2), ReportEffect::Changed);
    assert_eq!(send(Report::Error("e".to_owned()), TTL * 2), ReportEffect::Refreshed);
    assert_eq!(send(Report::Error("f".to_owned()), TTL * 2), ReportEffect::Changed);
}

#[test]
fn old_numbers_of_an_instance_are_dropped() {
    let mut world = World::new();
    for (run, instance, sequence, expected) in [
        ("one", "a", 5, ReportEffect::Changed),
        ("old", "a", 5, ReportEffect::Dropped),
        ("old", "a", 4, ReportEffect::Dropped),
        ("two", "a", 0, ReportEffect::Changed),
        ("old", "a", 5, ReportEffect::Dropped),
        ("three", "a", 6, ReportEffect::Changed),
        ("restarted", "b", 1, ReportEffect::Changed),
        ("old", "b", 1, ReportEffect::Dropped),
        ("unnamed", "", 1, ReportEffect::Changed),
        ("old", "", 1, ReportEffect::Dropped),
    ] {
        assert_eq!(world.unary(run, instance, sequence), expected, "{run} {instance} {sequence}");
        assert_ne!(world.seen(), "old");
    }
    // Stale is still known, gone is not; not even where no tick came by.
    world.pass(TTL);
    assert_eq!(world.unary("old", "", 1), ReportEffect::Dropped);
    assert_eq!(world.seen(), "stale unnamed");
    world.now = world.now + TTL * 2;
    assert_eq!(world.unary("anew", "", 1), ReportEffect::Changed);
    assert_eq!(world.seen(), "anew");
}

#[test]
fn a_streams_end_is_the_gateways() {
    let mut world = World::new();
    assert_eq!(world.open(1), None);
    assert_eq!(world.stream(1, "busy", 1), Ok(ReportEffect::Changed));
    assert_eq!(world.stream(1, "old", 1), Ok(ReportEffect::Dropped));
    assert_eq!(world.end(1, End::Clean), Some(true));
    assert_eq!((world.seen().as_str(), world.gateways.deadline()), ("gone", None));

    world.open(2);
    assert_eq!(world.stream(2, "busy", 1), Ok(ReportEffect::Changed));
    world.pass(S * 10);
    assert_eq!(world.end(2, End::Lost), Some(false));
    assert_eq!(world.seen(), "stale busy");
    assert_eq!(world.pass(TTL * 3 - S * 10 - Duration::from_nanos(1)), [false; 0]);
    assert_eq!(world.pass(Duration::from_nanos(1)), [true], "three ttl after the report, not after the loss");

    // Lost while stale: nothing new to say.
    world.open(3);
    assert_eq!(world.stream(3, "busy", 1), Ok(ReportEffect::Changed));
    world.pass(TTL);
    assert_eq!(world.end(3, End::Lost), None);
    // A stream that never reported has nothing to take along.
    world.pass(TTL * 3);
    world.open(4);
    assert_eq!(world.end(4, End::Clean), None);
    assert!(matches!(world.stream(4, "busy", 1), Err(Refusal::Superseded { .. })));
}

#[test]
fn the_newest_stream_takes_over() {
    let mut world = World::new();
    world.open(1);
    assert_eq!(world.stream(1, "one", 100), Ok(ReportEffect::Changed));
    assert_eq!(world.open(2), Some(1));
    let refused = world.stream(1, "late", 101).unwrap_err();
    assert_eq!(refused.to_string(), "a newer stream publishes gateway 'gw'");
    assert_eq!(world.seen(), "one");
    assert_eq!(world.stream(2, "two", 1), Ok(ReportEffect::Changed), "its numbers are its own");
    assert_eq!(world.end(1, End::Clean), None);
    assert_eq!(world.end(1, End::Lost), None);
    assert_eq!(world.seen(), "two");
    assert_eq!(world.end(2, End::Lost), Some(false));
    // A lost stream's successor revives it.
    assert_eq!(world.open(3), None);
    assert_eq!(world.stream(3, "two", 1), Ok(ReportEffect::Changed));
    assert_eq!(world.seen(), "two");
}

#[test]
fn a_silent_stream_is_stale_then_gone_and_can_speak_again() {
    let mut world = World::new();
    world.open(1);
    assert_eq!(world.stream(1, "busy", 5), Ok(ReportEffect::Changed));
    assert_eq!(world.pass(TTL), [false]);
    assert_eq!(world.pass(TTL * 2), [true]);
    assert_eq!(world.stream(1, "old", 5), Ok(ReportEffect::Dropped));
    assert_eq!(world.stream(1, "busy", 6), Ok(ReportEffect::Changed));
    assert_eq!(world.end(1, End::Clean), Some(true));
}

#[test]
fn unary_reports_beside_a_stream() {
    let mut world = World::new();
    let stream = Source::Stream(StreamId(1));
    world.open(1);
    assert_eq!(world.send(stream, "one", "a", 10), Ok(ReportEffect::Changed));
    assert_eq!(world.unary("old", "a", 10), ReportEffect::Dropped, "the same instance counts once");
    assert_eq!(world.unary("two", "a", 50), ReportEffect::Changed);
    assert_eq!(world.send(stream, "three", "a", 11), Ok(ReportEffect::Changed), "a stream counts for itself");
    assert_eq!(world.send(stream, "four", "b", 1), Ok(ReportEffect::Changed), "another process behind it");
    assert_eq!(world.unary("five", "c", 1), ReportEffect::Changed);
    assert_eq!(world.end(1, End::Clean), Some(true), "the stream's life is the gateway's");
    // Numbers of a stream without an instance say nothing about unary reports.
    world.open(2);
    assert_eq!(world.stream(2, "one", 10), Ok(ReportEffect::Changed));
    assert_eq!(world.unary("two", "", 1), ReportEffect::Changed);
}

#[test]
fn restored_gateways_are_stale_until_heard() {
    let mut before = World::new();
    before.unary("busy", "a", 5);
    before.id = GatewayId::parse("streamed").unwrap();
    before.open(1);
    assert_eq!(before.stream(1, "queued", 9), Ok(ReportEffect::Changed));
    let all: Vec<_> = before.gateways.all().map(|s| (s.namespace.clone(), s.id.clone())).collect();
    let saved: Vec<Saved> =
        all.iter().map(|(namespace, id)| before.gateways.saved(namespace, id).unwrap().0).collect();
    let json = serde_json::to_string(&saved).unwrap();
    let saved: Vec<Saved> = serde_json::from_str(&json).unwrap();

    let mut world = World::new();
    for saved in &saved {
        assert!(!world.gateways.restore(saved.clone(), TTL * 3, world.now), "gone meanwhile");
        assert!(world.gateways.restore(saved.clone(), S * 5, world.now));
        assert!(!world.gateways.restore(saved.clone(), S * 5, world.now), "there already");
    }
    assert_eq!(world.seen(), "stale busy");
    assert_eq!(world.unary("old", "a", 5), ReportEffect::Dropped);
    assert_eq!(world.unary("busy", "a", 6), ReportEffect::Changed);
    assert_eq!(world.pass(TTL), [false]);
    assert_eq!(world.pass(TTL * 3 - S * 5 - TTL), [true], "the other one, three ttl after its report");
    assert_eq!(world.gateways.all().count(), 1);

    // A stream's numbers don't bind what comes after the restart.
    let mut world = World::new();
    assert!(world.gateways.restore(saved[1].clone(), S, world.now));
    world.id = GatewayId::parse("streamed").unwrap();
    assert_eq!(world.seen(), "stale queued");
    assert_eq!(world.unary("queued", "", 1), ReportEffect::Changed);
}

#[test]
fn lists_are_sorted_and_by_namespace() {
    let mut world = World::new();
    for (namespace, id) in [("b", "x"), ("default", "z"), ("default", "a"), ("b", "b"), ("a-1", "q")] {
        world.namespace = Namespace::parse(namespace).unwrap();
        world.id = GatewayId::parse(id).unwrap();
        world.unary("idle", "", 0);
    }
    let names = |snapshots: &mut dyn Iterator<Item = &Arc<Snapshot>>| {
        snapshots.map(|snapshot| format!("{}/{}", snapshot.namespace, snapshot.id)).collect::<Vec<_>>()
    };
    assert_eq!(names(&mut world.gateways.all()), ["a-1/q", "b/b", "b/x", "default/a", "default/z"]);
    assert_eq!(names(&mut world.gateways.list(&Namespace::default())), ["default/a", "default/z"]);
    assert_eq!(names(&mut world.gateways.list(&Namespace::parse("none").unwrap())), Vec::<String>::new());
    assert_eq!(world.pass(TTL), [false; 5]);
}

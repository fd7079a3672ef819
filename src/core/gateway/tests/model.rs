//! Random lives of one gateway beside a model without timers, and beside a reader who knows only what changes tell.

use proptest::{collection::vec, prelude::*};

use super::*;

#[derive(Clone, Debug)]
enum Op {
    Unary {
        run: u8,
        instance: u8,
        sequence: u64,
        ttl: u64,
    },
    Open,
    /// A report on the stream opened `back` before the newest one.
    Stream {
        back: u64,
        run: u8,
        instance: u8,
        sequence: u64,
        ttl: u64,
    },
    End {
        back: u64,
        clean: bool,
    },
    Pass {
        millis: u64,
    },
}

fn ops() -> impl Strategy<Value = Op> {
    let report = (0..3u8, 0..3u8, 0..5u64, 1..4u64);
    prop_oneof![
        3 => report.clone().prop_map(|(run, instance, sequence, ttl)| Op::Unary { run, instance, sequence, ttl }),
        1 => Just(Op::Open),
        4 => (0..3u64, report).prop_map(|(back, (run, instance, sequence, ttl))| {
            Op::Stream { back: back / 2, run, instance, sequence, ttl }
        }),
        1 => (0..3u64, any::<bool>()).prop_map(|(back, clean)| Op::End { back: back / 2, clean }),
        3 => (0..16u64).prop_map(|quarters| Op::Pass { millis: quarters * 250 }),
    ]
}

type Seen = Option<(Report, Duration, bool)>;

/// The rules once more, with nothing that happens by itself: what is visible is derived from the newest report and the time.
#[derive(Default)]
struct Model {
    newest: Option<Newest>,
    holder: Option<u64>,
    /// Of the holding stream: its last instance, and the last number of it.
    stream_count: (u8, u64),
}

struct Newest {
    report: Report,
    ttl: u64,
    at: u64,
    lost: bool,
    count: Option<(u8, u64)>,
}

impl Model {
    fn settle(&mut self, now: u64) {
        self.newest = self.newest.take().filter(|newest| now < newest.at + 3_000 * newest.ttl);
    }

    fn seen(&self, now: u64) -> Seen {
        let newest = self.newest.as_ref()?;
        let stale = newest.lost || now >= newest.at + 1_000 * newest.ttl;
        Some((newest.report.clone(), Duration::from_secs(newest.ttl), stale))
    }

    /// Whether the report counts, or `None` where it is refused.
    fn report(
        &mut self,
        by: Option<u64>,
        report: Report,
        instance: u8,
        sequence: u64,
        ttl: u64,
        at: u64,
    ) -> Option<bool> {
        let last = match by {
            Some(stream) if self.holder != Some(stream) => return None,
            Some(_) => Some(self.stream_count),
            None => self.newest.as_ref().and_then(|newest| newest.count),
        };
        let same = |count: Option<(u8, u64)>| count.filter(|(of, _)| *of == instance).map_or(0, |(_, n)| n);
        if sequence > 0 && sequence <= same(last) {
            return Some(false);
        }
        let next = |last| if sequence > 0 { sequence } else { same(last) };
        let count = next(self.newest.as_ref().and_then(|newest| newest.count));
        if by.is_some() {
            self.stream_count = (instance, next(last));
        }
        let count = (by.is_none() || instance > 0).then_some((instance, count));
        self.newest = Some(Newest { report, ttl, at, lost: false, count });
        Some(true)
    }
}

fn instance_name(instance: u8) -> Arc<str> {
    if instance == 0 { "".into() } else { format!("i{instance}").into() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn lives_follow_the_model(ops in vec(ops(), 1..60)) {
        let (namespace, id) = (Namespace::default(), GatewayId::parse("gw").unwrap());
        let mut gateways = Gateways::default();
        let mut model = Model::default();
        let mut reader: Seen = None;
        let (mut now, mut streams) = (0u64, 0u64);
        let moment = |millis: u64| Moment::START + Duration::from_millis(millis);
        for op in ops {
            match op {
                Op::Pass { millis } => {
                    let until = now + millis;
                    // Wake only when asked to, as the server does.
                    while let Some(due) = gateways.deadline().filter(|due| *due <= moment(until)) {
                        prop_assert!(due > moment(now) || millis == 0);
                        now = u64::try_from(due.as_nanos()).unwrap() / 1_000_000;
                        let changed = gateways.tick(due);
                        prop_assert_eq!(changed.len(), 1);
                        reader = reader.map(|(report, ttl, _)| (report, ttl, true)).filter(|_| !changed[0].gone);
                        model.settle(now);
                        prop_assert_eq!(&model.seen(now), &reader);
                    }
                    now = until;
                    prop_assert!(gateways.tick(moment(now)).is_empty());
                    model.settle(now);
                }
                Op::Open => {
                    let before = gateways.stream_opened(&namespace, &id, StreamId(streams + 1));
                    prop_assert_eq!(before, model.holder.map(StreamId));
                    streams += 1;
                    model.holder = Some(streams);
                    model.stream_count = (0, 0);
                }
                Op::Unary { run, instance, sequence, ttl } | Op::Stream { run, instance, sequence, ttl, .. } => {
                    let by = match op {
                        Op::Stream { back, .. } => Some(streams.saturating_sub(back)),
                        _ => None,
                    };
                    let source = by.map_or(Source::Unary, |stream| Source::Stream(StreamId(stream)));
                    let report = Report::Status(Arc::new(status(["idle", "busy", "queued"][usize::from(run)])));
                    let new = NewReport {
                        report: report.clone(),
                        instance: instance_name(instance),
                        sequence,
                        ttl: Duration::from_secs(ttl),
                        observed_at: None,
                    };
                    let effect = gateways.report(&namespace, &id, source, new, moment(now));
                    let counts = model.report(by, report, instance, sequence, ttl, now);
                    let seen = model.seen(now);
                    let expected = match counts {
                        None => Err(Refusal::Superseded { gateway_id: "gw".to_owned() }),
                        Some(false) => Ok(ReportEffect::Dropped),
                        Some(true) if seen == reader => Ok(ReportEffect::Refreshed),
                        Some(true) => Ok(ReportEffect::Changed),
                    };
                    prop_assert_eq!(&effect, &expected);
                    if effect == Ok(ReportEffect::Changed) {
                        reader = seen;
                    }
                }
                Op::End { back, clean } => {
                    let stream = streams.saturating_sub(back);
                    let end = if clean { End::Clean } else { End::Lost };
                    let changed = gateways.stream_ended(&namespace, &id, StreamId(stream), end, moment(now));
                    if model.holder == Some(stream) {
                        model.holder = None;
                        if clean {
                            model.newest = None;
                        } else if let Some(newest) = &mut model.newest {
                            newest.lost = true;
                        }
                    }
                    if let Some(changed) = changed {
                        reader = reader.map(|(report, ttl, _)| (report, ttl, true)).filter(|_| !changed.gone);
                    }
                }
            }
            let shown = gateways.get(&namespace, &id).map(|s| (s.report.clone(), s.ttl, s.stale));
            prop_assert_eq!(&shown, &model.seen(now));
            prop_assert_eq!(&shown, &reader);
        }
    }
}

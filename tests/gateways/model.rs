//! Random lives of gateways and tools, and a reader that comes and goes: what it knows is what a list shows.

use std::time::Duration;

use tokio::time::sleep;
use toolpulse::{
    core::{gateway::GatewayId, name::Namespace},
    proto::v1::WatchGatewayStatusRequest,
    service::watch::WatchSettings,
};

use crate::world::{Watch, World, lasting, queued, report, report_of, visible};

/// Takes what the reader gets within a time; nothing that it knows already is among it.
async fn read(watch: &mut Watch, time: Duration) {
    let deadline = tokio::time::Instant::now() + time;
    loop {
        let before = watch.known.clone();
        let Ok(message) = tokio::time::timeout_at(deadline, watch.next()).await else { return };
        let message = message.unwrap().unwrap();
        for snapshot in message.snapshots.iter().filter(|_| !message.reset) {
            let known = before.get(&snapshot.gateway_id).map(visible);
            assert_ne!(known, Some(visible(snapshot)), "sent again");
        }
    }
}

async fn live_a_life(seed: u64, capabilities: bool) {
    let mut random = fastrand::Rng::with_seed(seed);
    let world = World::with(WatchSettings::default(), capabilities).await;
    let mut client = world.client().await;
    world.register("t").await;
    let mut watch = world.watch(WatchGatewayStatusRequest::default()).await;
    // Every report that is none of the same is unlike all before.
    let mut unique = 0;
    for _ in 0..120 {
        let id = format!("g{}", random.u8(0..4));
        match random.u8(0..10) {
            0..4 => {
                unique += 1;
                let ttl = random.u64(1_000..3_000);
                report(&mut client, lasting(report_of(&id, queued(unique)), ttl)).await;
            }
            4..6 => {
                let catalog = world.reader.load();
                let id = GatewayId::parse(&id).unwrap();
                let entry = catalog.gateways.get(&Namespace::default(), &id);
                if let Some(snapshot) = entry.map(|e| &e.snapshot).filter(|s| !s.stale) {
                    let same = queued(i64::try_from(snapshot.status().unwrap().queued).unwrap());
                    let ttl = u64::try_from(snapshot.ttl.as_millis()).unwrap();
                    report(&mut client, lasting(report_of(id.as_str(), same), ttl)).await;
                }
            }
            6 => world.probed("t", random.bool()).await,
            7 => {
                // Cut anywhere: what came after the last position is known as well, and is no harm.
                let (known, revision) = (watch.known.clone(), watch.revision);
                let resume = if revision > 0 { watch.position() } else { None };
                drop(watch);
                sleep(Duration::from_millis(random.u64(0..4_000))).await;
                watch = world.watch(WatchGatewayStatusRequest { resume, ..Default::default() }).await;
                if revision > 0 {
                    (watch.known, watch.revision) = (known, revision);
                }
            }
            _ => read(&mut watch, Duration::from_millis(random.u64(0..1_500))).await,
        }
    }
    // Longer than changes are held back, and nothing happens meanwhile.
    let listed: Vec<_> = loop {
        let before = world.reader.load().revision;
        read(&mut watch, Duration::from_millis(200)).await;
        let listed = world.list().await.values().map(visible).collect();
        if world.reader.load().revision == before {
            break listed;
        }
    };
    let known: Vec<_> = watch.known.values().map(visible).collect();
    assert_eq!(known, listed, "seed {seed}");
}

#[tokio::test(start_paused = true)]
async fn a_reader_knows_what_a_list_shows() {
    for seed in 0..12 {
        live_a_life(seed, false).await;
        live_a_life(seed, true).await;
    }
}

//! What reads and flips cost, by counts: allocations, instructions, locks. Times are for benchmarks.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod instructions;
#[path = "../support/mod.rs"]
mod support;
mod world;

use allocation_counter::{AllocationInfo, measure};
use prost::Message;
use toolpulse::proto::v1::{self, ProbeOutcome};

use self::world::{LIST, WATCH, World, list, request_of};

/// Allocated bytes of any warm call. Most are the two buffers of 8 KiB that tonic takes for a request and a reply of any size.
const WARM_BYTES: u64 = 28 << 10;

#[test]
fn a_warm_list_copies_no_definition() {
    let mut costs = Vec::new();
    for (count, first) in [(1_000, Some(20)), (1_000, None), (2_000, None)] {
        let mut world = World::new(count);
        let mut frames = Vec::new();
        let mut cost = AllocationInfo::default();
        // The first call prepares it, the second one learns what these bytes mean.
        for _ in 0..4 {
            let request = request_of(LIST, &list(first));
            cost = measure(|| frames.push(world.at_once(request).all()));
        }
        let sizes: Vec<usize> = frames.iter().map(|frames| frames.concat().len()).collect();
        let tools = first.unwrap_or(count);
        assert!(sizes[2] > tools * 1_000 && sizes[2] == sizes[3], "{sizes:?}");
        let prepared: Vec<_> = frames[2..].iter().map(|frames| frames.last().unwrap().as_ptr()).collect();
        assert_eq!(prepared[0], prepared[1], "two replies with {tools} tools are the same bytes in memory");
        assert!(cost.bytes_total < WARM_BYTES, "{tools} of {count} tools: {cost:?}");
        costs.push(cost);
    }
    assert_eq!(costs[1].bytes_total, costs[2].bytes_total, "twice as many tools cost the same: {costs:?}");
}

#[test]
fn a_reply_of_nothing_new_is_as_small_as_it_looks() {
    let mut world = World::new(1_000);
    let listed = world.call(LIST, &list(Some(20)));
    let if_etag = v1::ListAvailableToolsResponse::decode(listed).unwrap().etag;
    let request = v1::ListAvailableToolsRequest { if_etag, ..list(Some(20)) };
    for _ in 0..2 {
        world.call(LIST, &request);
    }
    let request = request_of(LIST, &request);
    let cost = measure(|| assert!(world.at_once(request).all().concat().len() < 200));
    assert!(cost.bytes_total < WARM_BYTES, "{cost:?}");
}

/// Allocations of a flip, its report included, and of the first list of 20 after it.
fn flip(count: usize) -> (AllocationInfo, AllocationInfo) {
    let mut world = World::new(count);
    let (mut flips, mut lists) = (AllocationInfo::default(), AllocationInfo::default());
    for round in 0..10 {
        let outcome = if round % 2 == 0 { ProbeOutcome::No } else { ProbeOutcome::Pass };
        flips = measure(|| world.report(0, outcome));
        let request = request_of(LIST, &list(Some(20)));
        lists = measure(|| assert!(!world.at_once(request).all().is_empty()));
    }
    (flips, lists)
}

#[test]
fn a_flip_costs_the_same_however_many_tools_there_are() {
    let (few, many) = (flip(1_000), flip(20_000));
    // The paths through the maps are a few nodes longer.
    assert!(many.0.count_total * 10 <= few.0.count_total * 15, "of a flip: {few:?}, {many:?}");
    assert!(many.0.bytes_total * 10 <= few.0.bytes_total * 15, "of a flip: {few:?}, {many:?}");
    assert!(many.1.count_total * 10 <= few.1.count_total * 11, "of the list after it: {few:?}, {many:?}");
    assert!(many.1.bytes_total < 200 << 10, "the list of 20 after it: {many:?}");
}

#[test]
fn a_flip_is_told_by_one_definition_encoded_once() {
    let world = World::new(1_000);
    let request = |agent: usize| v1::WatchAvailableToolsRequest {
        agent_id: format!("agent-{agent}"),
        ..Default::default()
    };
    let mut watches: Vec<_> = (0..20).map(|agent| world.open(WATCH, &request(agent))).collect();
    for watch in &mut watches {
        while !decoded(&world.next(watch)).synced {}
    }
    for (round, outcome) in [ProbeOutcome::No, ProbeOutcome::Pass].into_iter().enumerate() {
        world.report(1, outcome);
        let encoded = world.metric("toolpulse_watch_encodings_total");
        let mut sizes = 0;
        let cost = measure(|| {
            for watch in &mut watches {
                let message = decoded(&world.next(watch));
                assert_eq!((message.upserts.len(), message.removed.len()), (round, 1 - round));
                sizes += message.encoded_len();
            }
        });
        assert_eq!(world.metric("toolpulse_watch_encodings_total") - encoded, 1, "for all of them");
        // A list of 1,000 is put together anew, by reference. Its definitions, of 1.4 MB, are not touched.
        assert!(cost.bytes_total < 200_000, "{sizes} bytes were told: {cost:?}");
    }
}

fn decoded(frame: &[u8]) -> v1::WatchAvailableToolsResponse {
    v1::WatchAvailableToolsResponse::decode(&frame[5..]).unwrap()
}

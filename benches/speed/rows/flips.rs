//! What one flip costs the server.

use std::time::Duration;

use toolpulse::proto::v1;

use super::{
    Run,
    busy::{Flipper, reported},
};
use crate::{
    children::{self, Child},
    table::{
        Line,
        Target::{AtMost, None},
        median,
    },
    tools,
    watchers::{FLIPPING, Watchers},
};

/// Streams on one connection: as many as the server takes.
const STREAMS: usize = 200;

pub(super) async fn publish(run: &Run) -> Vec<Line> {
    let mut lines = by_tools(run).await;
    lines.extend(by_watchers(run).await);
    lines
}

async fn by_tools(run: &Run) -> Vec<Line> {
    let many = if run.effort.quick { 10_000 } else { 100_000 };
    let flips = if run.effort.quick { 200 } else { 1_000 };
    let (few, large) = (server(run, 1_000).await, server(run, many).await);
    let mut of = Vec::new();
    for server in [few, large] {
        let flipper = Flipper::new(server.address(), FLIPPING).await;
        of.push((server, flipper, Vec::new()));
    }
    for _ in 0..=run.effort.rounds {
        for (server, flipper, costs) in &mut of {
            let before = server.cpu_time();
            for _ in 0..flips {
                flipper.flip().await;
            }
            costs.push((server.cpu_time() - before).as_secs_f64() * 1e6 / f64::from(flips));
        }
    }
    // The first round made what is made once.
    let [few, large] = [0, 1].map(|which| median(&of[which].2[1..]));
    let what = format!("CPU of a flip, its call included, {many} tools");
    vec![Line::ratio(what, "us", large, ("1,000 tools", few), AtMost(1.3))]
}

async fn by_watchers(run: &Run) -> Vec<Line> {
    let mut lines = Vec::new();
    for (connections, streams) in [(1, 1), (1_000 / STREAMS, STREAMS), (10_000 / STREAMS, STREAMS)] {
        let watching = connections * streams;
        let server = server(run, 1_000).await;
        Flipper::new(server.address(), FLIPPING).await;
        let mut watchers = Watchers::of(server.address());
        watchers.open(connections, streams, 1);
        // Longer apart than the coalescing window: each flip is told alone.
        let apart = Duration::from_millis(120);
        watchers.flips(2, apart, Duration::ZERO);
        let before = server.cpu_time();
        let given = watchers.flips(4 * run.effort.rounds, apart, Duration::ZERO);
        let cpu = (server.cpu_time() - before).as_secs_f64() * 1e6;
        let each = format!("a flip told to {watching} watchers, CPU of each");
        lines.push(Line::plain(each, "us", cpu / given.deliveries, None));
        let last = format!("a flip told to {watching} watchers, last after");
        lines.push(Line::plain(last, "ms", given.last_p50, None));
    }
    lines
}

async fn server(run: &Run, count: usize) -> Child {
    let room = ["--max-watches", "100000", "--max-watches-per-peer", "100000"];
    let server = children::toolpulse_with("memory", &run.files.join("unused"), Option::None, &room).await;
    tools::register(server.address(), count).await;
    let flipping =
        v1::RegisterToolRequest { tool: Some(reported(FLIPPING)), overwrite: true, ..Default::default() };
    tools::ask(server.address(), "/toolpulse.v1.ToolRegistryService/RegisterTool", &flipping).await;
    server
}

//! Memory, the start, the binary, and what an idle server uses.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use toolpulse::proto::v1::{self, SchemaFormat};

use super::Run;
use crate::{
    children,
    table::{
        Line,
        Target::{AtMost, None},
        median,
    },
    tools,
};

/// Resident memory of a server, as its tools come into use.
pub(super) async fn memory(run: &Run) -> Vec<Line> {
    let count = if run.effort.quick { 1_000 } else { 10_000 };
    let server = children::toolpulse("sqlite", &run.files.join("memory"), Option::None).await;
    let empty = server.resident();
    tools::register(server.address(), count).await;
    let registered = server.resident();
    tools::list_each(server.address(), count, SchemaFormat::Mcp).await;
    let one = server.resident();
    tools::list_each(server.address(), count, SchemaFormat::OpenaiChat).await;
    let two = server.resident();
    let definitions = tools::bytes_of(count) as f64 / 1e6;
    let allowed = 2.5 * definitions + 2e-3 * count as f64;
    let mb = |more: usize, less: usize| (more as f64 - less as f64) / 1e6;
    vec![
        Line::ratio(
            format!("{count} tools, one format in use"),
            "MB",
            mb(one, empty),
            ("2.5 x definitions + 2 KB a tool", allowed),
            AtMost(1.0),
        ),
        Line::ratio("each further format", "MB", mb(two, one), ("definitions", definitions), AtMost(1.1)),
        Line::ratio("no format in use", "MB", mb(registered, empty), ("definitions", definitions), None),
    ]
}

/// Starts with a store full of tools.
pub(super) async fn start(run: &Run) -> Vec<Line> {
    let count = if run.effort.quick { 10_000 } else { 100_000 };
    let data = run.files.join("start");
    let server = children::toolpulse("sqlite", &data, Option::None).await;
    tools::register(server.address(), count).await;
    drop(server);
    let (mut ready, mut all) = (Vec::new(), Vec::new());
    for _ in 0..run.effort.rounds {
        let began = Instant::now();
        let server = children::toolpulse("sqlite", &data, Option::None).await;
        ready.push(began.elapsed().as_secs_f64());
        // No verdict is stored: a definition is judged when it is asked for first, whatever the rules were before.
        for first in (0..count).step_by(10_000) {
            let names = (first..count.min(first + 10_000)).map(tools::name).collect();
            let request = v1::ListAvailableToolsRequest {
                allowed_tools: Some(v1::AllowedTools { names }),
                max_reply_bytes: 64 << 20,
                ..Default::default()
            };
            assert_eq!(tools::list(server.address(), &request).await.tools.len(), count.min(10_000));
        }
        all.push(began.elapsed().as_secs_f64());
    }
    vec![
        Line::plain(format!("start with {count} tools until ready"), "s", median(&ready), AtMost(3.0)),
        Line::plain("start until each was judged and listed once", "s", median(&all), AtMost(30.0)),
    ]
}

pub(super) async fn size(run: &Run) -> Vec<Line> {
    let binary = children::binary().metadata().unwrap().len();
    let server = run.with_tools(1_000).await;
    sleep(Duration::from_secs(2)).await;
    let (before, began) = (server.cpu_time(), Instant::now());
    sleep(Duration::from_secs(if run.effort.quick { 3 } else { 20 })).await;
    let busy = (server.cpu_time() - before).as_secs_f64() / began.elapsed().as_secs_f64();
    vec![
        Line::plain("the binary", "MB", binary as f64 / 1e6, AtMost(25.0)),
        Line::plain("idle with 1,000 tools, of a core", "%", 100.0 * busy, AtMost(1.0)),
    ]
}

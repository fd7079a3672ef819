//! Reads, beside servers that know one reply.

use toolpulse::proto::v1::{self, SchemaFormat};

use super::Run;
use crate::{
    contest::{self, Contender},
    load::Load,
    raw::LIST,
    table::{
        Line,
        Target::{AtLeast, AtMost, None},
    },
    tools,
};

const GET: &str = "/toolpulse.v1.ToolRegistryService/GetTool";
const EXPLAIN: &str = "/toolpulse.v1.ToolRegistryService/ExplainTool";
const RATE: &str = "calls/s";

pub(super) async fn warm(run: &Run) -> Vec<Line> {
    let server = run.with_tools(1_000).await;
    let request = tools::request_for_twenty(1_000);
    let reply = tools::ask(server.address(), LIST, &request).await;
    let of = [
        run.ours(&server, LIST, &request),
        run.bare(&reply, LIST, &request).await,
        run.plain(&reply, LIST, &request).await,
    ];
    let [ours, bare, plain] = contest::closed(&of, run.effort).await;
    // Plain can't always answer so many.
    let [of_ours, of_bare, _] = of;
    let half = bare.rate() / 2.0;
    let [ours_open, bare_open] = contest::open(&[of_ours, of_bare], half, run.effort).await;
    let what = format!("20 of 1,000 tools ({:.0} KB)", reply.len() as f64 / 1e3);
    vec![
        Line::ratio(what, RATE, ours.rate(), ("bare", bare.rate()), AtLeast(0.90)),
        Line::ratio("the same", RATE, ours.rate(), ("plain", plain.rate()), AtLeast(1.10)),
        Line::ratio(
            "p99 at half of bare's peak",
            "us",
            ours_open.p99(),
            ("bare", bare_open.p99()),
            AtMost(1.25),
        ),
        Line::ratio("p50, the same", "us", ours_open.p50(), ("bare", bare_open.p50()), None),
    ]
}

pub(super) async fn not_modified(run: &Run) -> Vec<Line> {
    let server = run.with_tools(1_000).await;
    let twenty = tools::request_for_twenty(1_000);
    let if_etag = tools::list(server.address(), &twenty).await.etag;
    let request = v1::ListAvailableToolsRequest { if_etag, ..twenty };
    let of = [run.ours(&server, LIST, &request), run.bare(&[b'x'; 100], LIST, &request).await];
    let [ours, bare] = contest::closed(&of, run.effort).await;
    vec![Line::ratio(
        "20 of 1,000 tools, not modified",
        RATE,
        ours.rate(),
        ("bare, 100 bytes", bare.rate()),
        AtLeast(0.85),
    )]
}

pub(super) async fn cold(run: &Run) -> Vec<Line> {
    const TOOLS: usize = 10_000;
    let server = run.with_tools(TOOLS).await;
    // The selections are new, the tools are not: a definition is made when it is asked for first.
    tools::list_each(server.address(), TOOLS, SchemaFormat::Mcp).await;
    let reply = tools::ask(server.address(), LIST, &tools::request_for_some(TOOLS)).await;
    let bare = run.bare(&reply, LIST, &tools::request_for_some(TOOLS)).await;
    let load = |address: &str| Load::of_new_selections(address, LIST, TOOLS);
    let of = [
        Contender { load: load(server.address()), server },
        Contender { load: load(bare.server.address()), server: bare.server },
    ];
    let [ours, bare] = contest::closed(&of, run.effort).await;
    let what = format!("other 20 of 10,000 each time ({:.0} KB)", reply.len() as f64 / 1e3);
    vec![Line::ratio(what, RATE, ours.rate(), ("bare", bare.rate()), AtLeast(0.60))]
}

pub(super) async fn all(run: &Run) -> Vec<Line> {
    let server = run.with_tools(1_000).await;
    let request = v1::ListAvailableToolsRequest::default();
    let reply = tools::ask(server.address(), LIST, &request).await;
    let of = [
        run.ours(&server, LIST, &request),
        run.bare(&reply, LIST, &request).await,
        run.plain(&reply, LIST, &request).await,
    ];
    let [ours, bare, plain] = contest::closed(&of, run.effort).await;
    let what = format!("all of 1,000 tools ({:.1} MB)", reply.len() as f64 / 1e6);
    vec![
        Line::ratio(what, RATE, ours.rate(), ("bare", bare.rate()), AtLeast(0.90)),
        Line::ratio("the same", RATE, ours.rate(), ("plain", plain.rate()), AtLeast(1.25)),
    ]
}

pub(super) async fn large(run: &Run) -> Vec<Line> {
    let count = if run.effort.quick { 10_000 } else { 100_000 };
    // The same 20 tools of both.
    let request = tools::request_for_twenty(1_000);
    let (many, few) = (run.with_tools(count).await, run.with_tools(1_000).await);
    let of = [run.ours(&many, LIST, &request), run.ours(&few, LIST, &request)];
    let [many, few] = contest::closed(&of, run.effort).await;
    let us = |rate: f64| 1e6 / rate;
    let what = format!("20 of {count} tools, time of a call");
    vec![Line::ratio(what, "us", us(many.rate()), ("20 of 1,000", us(few.rate())), AtMost(1.15))]
}

pub(super) async fn get(run: &Run) -> Vec<Line> {
    let server = run.with_tools(1_000).await;
    let request = v1::GetToolRequest { name: tools::name(500), ..Default::default() };
    let reply = tools::ask(server.address(), GET, &request).await;
    let of = [run.ours(&server, GET, &request), run.bare(&reply, GET, &request).await];
    let [ours, bare] = contest::closed(&of, run.effort).await;
    vec![Line::ratio("GetTool", RATE, ours.rate(), ("bare", bare.rate()), AtLeast(0.70))]
}

pub(super) async fn explain(run: &Run) -> Vec<Line> {
    let server = run.with_tools(1_000).await;
    let allowed_tools = tools::request_for_twenty(1_000).allowed_tools;
    let request = v1::ExplainToolRequest { name: tools::name(500), allowed_tools, ..Default::default() };
    let reply = tools::ask(server.address(), EXPLAIN, &request).await;
    let of = [run.ours(&server, EXPLAIN, &request), run.bare(&reply, EXPLAIN, &request).await];
    let [ours, bare] = contest::closed(&of, run.effort).await;
    vec![Line::ratio("ExplainTool, 20 allowed", RATE, ours.rate(), ("bare", bare.rate()), AtLeast(0.70))]
}

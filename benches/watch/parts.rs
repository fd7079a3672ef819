//! What is measured, part by part.

use std::{path::Path, time::Duration};

use tokio::time::{Instant, sleep};

use super::{
    etcd::Etcd,
    server::{Server, Use},
    watchers::{Flips, Watchers},
};

/// Streams on one connection: as many as the server takes.
const STREAMS: usize = 200;
/// Longer than the coalescing window, so that a flip never waits for it.
const APART: Duration = Duration::from_millis(120);
const AT_ONCE: Duration = Duration::ZERO;

/// 10,000 equal watchers.
pub(crate) async fn crowd(files: &Path, quick: bool) {
    // Idle for longer than a heartbeat takes.
    let (connections, flips, idle) = if quick { (10, 20, 17) } else { (50, 100, 30) };
    let count = connections * STREAMS;
    println!("crowd: {count} watchers on {connections} connections, all of one filter");
    let server = Server::start(&files.join("crowd"), &[]).await;
    let before = server.usage();
    let mut watchers = Watchers::of(server.address());
    watchers.open(connections, STREAMS, 1);
    let open = server.usage();
    assert_eq!(open.watchers, count, "open watches");
    row("resident KiB a watcher", kib_each(open, before, count), "<= 16");
    sleep(Duration::from_secs(2)).await;

    let (cpu, began) = (server.cpu_time(), Instant::now());
    sleep(Duration::from_secs(idle)).await;
    let busy = (server.cpu_time() - cpu).as_secs_f64() / began.elapsed().as_secs_f64();
    row("% of a core when idle", format!("{:.2}", 100.0 * busy), "< 2");

    let encodings = server.encodings();
    watchers.flips(1, AT_ONCE, AT_ONCE);
    row("encodings of one flip", server.encodings() - encodings, "1");
    // Some in the coalescing window, some after it.
    let (cpu, jitter) = (server.cpu_time(), Duration::from_millis(200));
    let given = watchers.flips(flips, AT_ONCE, jitter);
    let cpu = (server.cpu_time() - cpu).as_secs_f64();
    row("ms from flip to last: p50", ms(given.last_p50), "");
    row("ms from flip to last: p99", ms(given.last_p99), "<= 300");
    row("deliveries per s of server CPU", format!("{:.0}", given.deliveries / cpu), ">= 200000");
    row("us of server CPU a delivery", format!("{:.2}", 1e6 * cpu / given.deliveries), "<= 5");
    row("bytes a delivery", format!("{:.0}", given.bytes / given.deliveries), "");
    let cpu = server.cpu_time();
    server.flip_elsewhere(flips).await;
    let cpu = (server.cpu_time() - cpu).as_secs_f64();
    row("us of CPU a watcher, of a flip elsewhere", format!("{:.2}", 1e6 * cpu / (flips * count) as f64), "");
    usage("before", before);
    usage("open", server.usage());
    drop(watchers);
    server.until_watchers(0).await;
    usage("after the watchers were killed", server.usage());
    println!();
}

/// Watchers that come and are killed.
pub(crate) async fn cycles(files: &Path, quick: bool) {
    let (rounds, connections) = if quick { (4, 10) } else { (9, 50) };
    let singles = if quick { 2_000 } else { 10_000 };
    println!("cycles: rounds of {} watchers on {connections} connections, killed", connections * STREAMS);
    let server = Server::start(&files.join("cycles"), &[]).await;
    usage("before", server.usage());
    let mut cycles = 0;
    for _ in 0..rounds {
        let mut watchers = Watchers::of(server.address());
        watchers.open(connections, STREAMS, 1);
        cycles += connections * STREAMS;
        drop(watchers);
        server.until_watchers(0).await;
        usage(&format!("after {cycles}"), server.usage());
    }
    for _ in 0..singles / 2_000 {
        let mut watchers = Watchers::of(server.address());
        watchers.open(2_000, 1, 1);
        cycles += 2_000;
        drop(watchers);
        server.until_watchers(0).await;
        usage(&format!("after {cycles}, the last 2,000 on as many connections"), server.usage());
    }
    println!();
}

/// A connection for each watcher.
pub(crate) async fn single(files: &Path, quick: bool) {
    let count = if quick { 500 } else { 2_000 };
    println!("single: {count} watchers on as many connections, all of one filter");
    let server = Server::start(&files.join("single"), &[]).await;
    let before = server.usage();
    let mut watchers = Watchers::of(server.address());
    watchers.open(count, 1, 1);
    row("resident KiB a watcher", kib_each(server.usage(), before, count), "");
    let cpu = server.cpu_time();
    let given = watchers.flips(20, APART, AT_ONCE);
    let cpu = (server.cpu_time() - cpu).as_secs_f64();
    row("ms from flip to last: p50, p99", format!("{} {}", ms(given.last_p50), ms(given.last_p99)), "");
    row("us of server CPU a delivery", format!("{:.2}", 1e6 * cpu / given.deliveries), "");
    println!();
}

/// Equal filters, and different ones.
pub(crate) async fn filters(files: &Path, quick: bool) {
    println!("filters: flips are {APART:?} apart");
    println!(
        "  {:>9} {:>9} {:>11} {:>11} {:>11} {:>11}",
        "watchers", "filters", "last, p50", "last, p99", "encodings", "CPU us"
    );
    println!("  {:>9} {:>9} {:>11} {:>11} {:>11} {:>11}", "", "", "ms", "ms", "a flip", "a delivery");
    let cases: &[(usize, usize)] = match quick {
        true => &[(1_000, 1), (1_000, 1_000)],
        false => &[(1_000, 1), (1_000, 100), (1_000, 500), (1_000, 1_000), (10_000, 500), (10_000, 1_000)],
    };
    for &(count, filters) in cases {
        let server = Server::start(&files.join(format!("filters-{count}-{filters}")), &[]).await;
        let mut watchers = Watchers::of(server.address());
        watchers.open(count / STREAMS, STREAMS, filters);
        watchers.flips(2, APART, AT_ONCE);
        let (encodings, cpu) = (server.encodings(), server.cpu_time());
        let flips = if quick { 10 } else { 30 };
        let given = watchers.flips(flips, APART, AT_ONCE);
        let cpu = (server.cpu_time() - cpu).as_secs_f64();
        println!(
            "  {count:>9} {filters:>9} {:>11} {:>11} {:>11.1} {:>11.1}",
            ms(given.last_p50),
            ms(given.last_p99),
            (server.encodings() - encodings) as f64 / flips as f64,
            1e6 * cpu / given.deliveries,
        );
    }
    println!();
}

/// Readers that do not read, beside some that do.
pub(crate) async fn stalled(files: &Path, quick: bool) {
    println!(
        "stalled: 100 live watchers, without and with 1,000 that read nothing; flips are {APART:?} apart"
    );
    let alone = Server::start(&files.join("alone"), &[]).await;
    let beside = Server::start(&files.join("beside"), &[]).await;
    let before = beside.usage();
    // Processes of their own, so that the live ones are the same in both.
    let mut stuck = Watchers::of(beside.address());
    stuck.open_shut(1_000 / STREAMS, STREAMS);
    beside.until_watchers(1_000).await;
    let stalled = beside.usage();
    row("resident KiB a stalled watcher", kib_each(stalled, before, 1_000), "bounded");

    let mut live = [Watchers::of(alone.address()), Watchers::of(beside.address())];
    live.iter_mut().for_each(|live| live.open(1, 100, 1));
    let mut rounds = [Vec::new(), Vec::new()];
    // Done within the minute after which the stalled are cut.
    for _ in 0..if quick { 3 } else { 8 } {
        for (live, rounds) in live.iter_mut().zip(&mut rounds) {
            rounds.push(live.flips(20, APART, AT_ONCE));
        }
    }
    for (name, of) in [
        ("to last, p50", (|f| f.last_p50) as fn(&Flips) -> f64),
        ("to each, p50", |f| f.each_p50),
        ("to each, p99", |f| f.each_p99),
    ] {
        let [alone, beside] = [0, 1].map(|which| median(rounds[which].iter().map(of).collect()));
        let name = format!("ms {name}: without, with, ratio");
        row(&name, format!("{} {} {:.2}", ms(alone), ms(beside), beside / alone), "<= 1.2");
    }
    let flips = rounds[1].len() * 20;
    row(
        &format!("resident KiB more after {flips} flips"),
        (beside.resident() as f64 - stalled.resident as f64) as i64 / 1024,
        "bounded",
    );
    // Those get messages until the server holds as many for them as it ever does.
    let before = alone.usage();
    let mut deaf = Watchers::of(alone.address());
    deaf.open_deaf(4, 100);
    alone.until_watchers(500).await;
    row("resident KiB a reader of no socket", kib_each(alone.usage(), before, 400), "bounded");
    let flips = if quick { 20 } else { 100 };
    live[0].flips(flips, AT_ONCE, AT_ONCE);
    row(&format!("the same after {flips} flips"), kib_each(alone.usage(), before, 400), "bounded");
    if !quick {
        let began = Instant::now();
        beside.until_watchers(100).await;
        row("s until the stalled were cut", began.elapsed().as_secs(), "60 to 80 since they stalled");
        live[1].flips(2, APART, AT_ONCE);
    }
    println!();
}

/// The same work for etcd: one key, 1,000 watchers, a put a time.
pub(crate) async fn beside_etcd(files: &Path, quick: bool, program: &str) {
    println!(
        "etcd: 1,000 watchers on 5 connections of one tool, or key; each change waits until all have the one before"
    );
    let Some(etcd) = Etcd::start(program, &files.join("etcd")).await else {
        println!("  left out: there is no {program} (Debian: etcd-server; or give it with --etcd PROGRAM)\n");
        return;
    };
    let server = Server::start(&files.join("beside-etcd"), &["--watch-coalesce", "0s"]).await;
    let mut ours = Watchers::of(server.address());
    ours.open(5, STREAMS, 1);
    // As many bytes for etcd: a removal is small, an upsert is a definition.
    let sizes = [(); 2].map(|()| {
        let given = ours.flips(1, AT_ONCE, AT_ONCE);
        (given.bytes / given.deliveries) as usize
    });
    let mut theirs = Watchers::of_etcd(&etcd.address, sizes);
    theirs.open(5, STREAMS, 1);
    let (rounds, flips) = if quick { (3, 50) } else { (7, 100) };
    let mut all = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (watchers, all) in [&mut ours, &mut theirs].into_iter().zip(&mut all) {
            all.push(watchers.flips(flips, AT_ONCE, AT_ONCE));
        }
    }
    println!("  {:34} {:>10} {:>10} {:>8}  target", "", "toolpulse", "etcd", "ratio");
    for (name, of, target) in [
        ("events/s", (|f| f.deliveries / f.seconds) as fn(&Flips) -> f64, ">= 3"),
        ("ms from change to event: p50", |f| f.each_p50, ""),
        ("ms from change to event: p99", |f| f.each_p99, "<= 0.5"),
        ("ms from change to last: p50", |f| f.last_p50, ""),
        ("bytes an event", |f| f.bytes / f.deliveries, ""),
    ] {
        let [ours, theirs] = [0, 1].map(|which| median(all[which].iter().map(of).collect()));
        println!("  {name:34} {ours:>10.2} {theirs:>10.2} {:>8.2}  {target}", ours / theirs);
    }
    println!();
}

fn row(name: &str, value: impl std::fmt::Display, target: &str) {
    println!("  {name:44} {:>22}  {target}", value.to_string());
}

fn usage(when: &str, of: Use) {
    let Use { files, threads, resident, watchers } = of;
    let resident = resident as f64 / 1e6;
    println!("  {when}: {resident:.1} MB resident, {files} files, {threads} threads, {watchers} watchers");
}

fn kib_each(open: Use, before: Use, count: usize) -> String {
    let more = open.resident as f64 - before.resident as f64;
    format!("{:.1}", more / 1024.0 / count as f64)
}

fn ms(value: f64) -> String {
    format!("{value:.1}")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

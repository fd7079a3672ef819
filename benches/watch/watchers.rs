//! The watchers: a process of its own on a core of its own. It is told line by line what to do, and answers each with a line.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Stdio},
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use prost::Message;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    sync::mpsc,
    task::{LocalSet, spawn_local},
    time::{Instant, sleep},
};
use tonic::transport::{Channel, Endpoint};
use toolpulse::proto::v1;

use super::{
    children::{cores, pinned},
    etcd,
    raw::{call_to, client},
    tools,
    wire::{Connection, Shape, Tally},
};

const WATCH: &str = "/toolpulse.v1.ToolRegistryService/WatchAvailableTools";
const REPORT: &str = "/toolpulse.v1.ToolRegistryService/ReportProbeResult";
/// Of a WatchAvailableToolsResponse: `etag`, which heartbeats lack.
const STATES: &[u32] = &[7];
/// Most tools: those of the server.
pub(crate) const TOOLS: usize = 1_000;
/// Tools of one watcher.
const OF_ONE: usize = 20;
/// No command takes longer.
const LIMIT: Duration = Duration::from_secs(60);

/// The tool that flips: every watcher watches it.
pub(crate) const FLIPPING: usize = 0;
/// One that flips and is in no filter where there is but one.
pub(crate) const ELSEWHERE: usize = TOOLS / 2;

/// A flip of a tool.
pub(crate) fn flip(tool: usize, to: v1::ProbeOutcome) -> v1::ReportProbeResultRequest {
    v1::ReportProbeResultRequest { name: tools::name(tool), outcome: to.into(), ..Default::default() }
}

/// The watch of one of many filters: the flipping tool, and 19 others, which are different ones for each of 1,000 filters.
fn filter(of: usize) -> v1::WatchAvailableToolsRequest {
    let others = TOOLS - 1;
    let (start, step) = (of % others, 7 * (1 + of / others));
    let names = (0..OF_ONE - 1).map(|k| tools::name(1 + (start + k * step) % others));
    let names = names.chain([tools::name(FLIPPING)]).collect();
    v1::WatchAvailableToolsRequest { allowed_tools: Some(v1::AllowedTools { names }), ..Default::default() }
}

/// The running process. Dropping it kills it, without a word to the server.
pub(crate) struct Watchers {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Drop for Watchers {
    fn drop(&mut self) {
        // Both fail only if it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Watchers {
    /// Of toolpulse.
    pub(crate) fn of(address: &str) -> Self {
        Self::start(&["watchers", address])
    }

    /// Of etcd, where the values put are of two sizes, in turn.
    pub(crate) fn of_etcd(address: &str, sizes: [usize; 2]) -> Self {
        Self::start(&["watchers", address, &sizes[0].to_string(), &sizes[1].to_string()])
    }

    fn start(args: &[&str]) -> Self {
        let mut command = pinned(cores().1, std::env::current_exe().unwrap());
        let mut child = command.args(args).stdin(Stdio::piped()).spawn().unwrap();
        let commands = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, commands, answers }
    }

    fn tell(&mut self, command: &str) -> String {
        writeln!(self.commands, "{command}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert!(answer.ends_with('\n'), "the watchers failed at: {command}");
        answer
    }

    /// Opens watches: on so many connections so many streams each, over so many filters. Returns once each has its state.
    pub(crate) fn open(&mut self, connections: usize, streams: usize, filters: usize) {
        self.tell(&format!("open live {connections} {streams} {filters}"));
    }

    /// The same, of readers that read nothing: their streams' windows are next to shut.
    pub(crate) fn open_shut(&mut self, connections: usize, streams: usize) {
        self.tell(&format!("open shut {connections} {streams} 1"));
    }

    /// The same; they do not even read their sockets.
    pub(crate) fn open_deaf(&mut self, connections: usize, streams: usize) {
        self.tell(&format!("open deaf {connections} {streams} 1"));
    }

    /// Changes what is watched, so often, one change when all watchers have the one before, and after a pause of at least
    /// `pause` and up to `jitter` longer.
    pub(crate) fn flips(&mut self, count: usize, pause: Duration, jitter: Duration) -> Flips {
        let (pause, jitter) = (pause.as_millis(), jitter.as_millis());
        Flips::parse(&self.tell(&format!("flips {count} {pause} {jitter}")))
    }
}

/// What changes gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flips {
    pub(crate) deliveries: f64,
    pub(crate) bytes: f64,
    /// From the first change to the last delivery, pauses included.
    pub(crate) seconds: f64,
    /// From a change to its last delivery.
    pub(crate) last_p50: f64,
    pub(crate) last_p99: f64,
    /// From a change to each of its deliveries.
    pub(crate) each_p50: f64,
    pub(crate) each_p99: f64,
}

impl Flips {
    fn parse(line: &str) -> Self {
        let numbers: Vec<f64> = line.split_whitespace().map(|n| n.parse().unwrap()).collect();
        let &[deliveries, bytes, seconds, last_p50, last_p99, each_p50, each_p99] = &numbers[..] else {
            panic!("not what flips give: {line}")
        };
        Self { deliveries, bytes, seconds, last_p50, last_p99, each_p50, each_p99 }
    }
}

/// The process itself: `watchers ADDRESS [SIZE SIZE]`; with sizes, of etcd.
pub(crate) async fn main(args: &[&str]) {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let (address, changes) = match args {
        [address] => {
            let change = |to| Bytes::from(flip(FLIPPING, to).encode_to_vec());
            (*address, [change(v1::ProbeOutcome::No), change(v1::ProbeOutcome::Pass)])
        }
        [address, one, other] => {
            (*address, [etcd::put(one.parse().unwrap()), etcd::put(other.parse().unwrap())])
        }
        _ => panic!("not watchers: {args:?}"),
    };
    let is_etcd = args.len() == 3;
    let (tell, mut commands) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            if tell.blocking_send(line.unwrap()).is_err() {
                return;
            }
        }
    });
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let channel = endpoint.connect().await.unwrap();
    let mut crowd = Crowd { address, is_etcd, changes, channel, tally: Tally::new(), live: 0, changed: 0 };
    LocalSet::new()
        .run_until(async {
            while let Some(line) = commands.recv().await {
                let words: Vec<&str> = line.split(' ').collect();
                println!("{}", crowd.obey(&words).await);
            }
        })
        .await;
}

struct Crowd<'a> {
    address: &'a str,
    is_etcd: bool,
    /// What is sent in turn.
    changes: [Bytes; 2],
    channel: Channel,
    tally: Rc<Tally>,
    live: usize,
    changed: usize,
}

impl Crowd<'_> {
    async fn obey(&mut self, words: &[&str]) -> String {
        let numbers: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
        match (words, &numbers[..]) {
            (["open", kind, ..], &[connections, streams, filters]) => {
                self.open(kind, connections, streams, filters).await;
                "open".to_owned()
            }
            (["flips", ..], &[count, pause, jitter]) => self.flips(count, pause as u64, jitter as u64).await,
            _ => panic!("not a command: {words:?}"),
        }
    }

    async fn open(&mut self, kind: &str, connections: usize, streams: usize, filters: usize) {
        let shape = match self.is_etcd {
            true => Shape::new(etcd::WATCH, etcd::STATES, false),
            false => Shape::new(WATCH, STATES, true),
        };
        let (shape, tally) = match kind {
            "live" => (shape, Rc::clone(&self.tally)),
            "shut" => (Shape { window: 1, ..shape }, Tally::new()),
            "deaf" => (Shape { reads: false, ..shape }, Tally::new()),
            _ => panic!("no kind of watchers: {kind}"),
        };
        let requests: Vec<Bytes> = match self.is_etcd {
            true => vec![etcd::watch()],
            false => (0..filters).map(|of| filter(of).encode_to_vec().into()).collect(),
        };
        for connection in 0..connections {
            let of_one = (0..streams).map(|stream| {
                let which = (connection * streams + stream) % requests.len();
                vec![requests[which].clone()]
            });
            let of_one = of_one.collect();
            let opened = Connection::open(self.address, shape.clone(), of_one, Rc::clone(&tally)).await;
            spawn_local(opened.unwrap().run());
        }
        match kind {
            "live" => {
                self.live += connections * streams;
                tally.until("watchers have a state", |t| t.ready.get(), self.live, LIMIT).await;
            }
            "shut" => {
                tally.until("answered", |t| t.answered.get(), connections * streams, LIMIT).await;
            }
            // They hear nothing, so they can't know. Time enough to write the requests.
            _ => sleep(Duration::from_secs(1)).await,
        }
    }

    async fn flips(&mut self, count: usize, pause: u64, jitter: u64) -> String {
        let tally = Rc::clone(&self.tally);
        tally.taken.borrow_mut().clear();
        let (bytes, delivered) = (tally.bytes.get(), tally.delivered.get());
        let mut caller = client(&self.channel);
        let (mut lasts, run) = (Vec::new(), Instant::now());
        for flip in 1..=count {
            // Even a sleep of nothing takes a millisecond.
            if pause + jitter > 0 {
                sleep(Duration::from_millis(pause + fastrand::u64(0..=jitter))).await;
            }
            let change = &self.changes[self.changed % 2];
            self.changed += 1;
            tally.began.set(Instant::now());
            let path = if self.is_etcd { etcd::PUT } else { REPORT };
            let all = delivered + flip * self.live;
            let delivered = tally.until("deliveries", |t| t.delivered.get(), all, LIMIT);
            tokio::join!(call_to(&mut caller, path, change), delivered);
            // The latest of them, not the end of the call.
            lasts.push(*tally.taken.borrow().last().unwrap());
        }
        let (seconds, mut each) = (run.elapsed().as_secs_f64(), tally.taken.borrow().clone());
        lasts.sort_unstable();
        each.sort_unstable();
        let ms =
            |of: &[Duration], q: f64| of[((of.len() - 1) as f64 * q).round() as usize].as_secs_f64() * 1e3;
        format!(
            "{} {} {seconds} {} {} {} {}",
            each.len(),
            tally.bytes.get() - bytes,
            ms(&lasts, 0.5),
            ms(&lasts, 0.99),
            ms(&each, 0.5),
            ms(&each, 0.99),
        )
    }
}

//! The load generator: the same for all servers, a process of its own.

use std::{cell::RefCell, path::Path, rc::Rc, time::Duration};

use bytes::Bytes;
use prost::Message;
use tokio::{
    task::{LocalSet, spawn_local},
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout},
};
use tonic::transport::{Channel, Endpoint};

use super::{
    children::{cores, pinned},
    raw::{call_to, client},
    tools,
};

pub(crate) const CONNECTIONS: usize = 2;
/// Calls at once on each connection, in the closed loop.
pub(crate) const IN_FLIGHT: usize = 16;
/// Calls that an open loop may have open; beyond that the server can't keep up, and latencies say nothing.
const MAX_OPEN: usize = 4_000;
/// No load lasts longer than it should by more than this.
const OVERTIME: Duration = Duration::from_secs(10);

/// What one load of a server gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) calls: usize,
    pub(crate) elapsed: Duration,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

impl Outcome {
    pub(crate) fn rate(&self) -> f64 {
        self.calls as f64 / self.elapsed.as_secs_f64()
    }
}

/// How to load one server.
pub(crate) struct Load {
    address: String,
    method: &'static str,
    /// Where the request is, or of how many tools each call asks for other ones.
    request: String,
}

impl Load {
    /// Sends `request` to `address`; `files` is where the other process finds it.
    pub(crate) fn new(address: &str, method: &'static str, request: &impl Message, files: &Path) -> Self {
        let path = files.join(format!("request-{address}-{}", method.rsplit('/').next().unwrap_or_default()));
        std::fs::write(&path, request.encode_to_vec()).unwrap();
        Self { address: address.to_owned(), method, request: path.to_str().unwrap().to_owned() }
    }

    /// Each call asks for 20 tools that nobody asked for together before, of so many.
    pub(crate) fn of_new_selections(address: &str, method: &'static str, tools: usize) -> Self {
        Self { address: address.to_owned(), method, request: tools.to_string() }
    }

    /// Each caller sends the next call when it has the reply to the one before.
    pub(crate) async fn closed(&self, slice: Duration) -> Outcome {
        self.run(slice, 0.0).await
    }

    /// Calls start at a rate, whatever the server does.
    pub(crate) async fn open(&self, slice: Duration, rate: f64) -> Outcome {
        self.run(slice, rate).await
    }

    async fn run(&self, slice: Duration, rate: f64) -> Outcome {
        let mut command = pinned(cores().1, std::env::current_exe().unwrap());
        command.args(["load", &self.address, self.method, &self.request]);
        command.args([slice.as_millis().to_string(), rate.to_string()]);
        let output = tokio::process::Command::from(command).output().await.unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "the load of {} failed: {}\n{error}", self.address, output.status);
        let text = String::from_utf8(output.stdout).unwrap();
        let numbers: Vec<f64> = text.split_whitespace().map(|n| n.parse().unwrap()).collect();
        let &[calls, seconds, p50_us, p99_us] = &numbers[..] else { panic!("not an outcome: {text}") };
        Outcome { calls: calls as usize, elapsed: Duration::from_secs_f64(seconds), p50_us, p99_us }
    }
}

/// The other process: `load ADDRESS METHOD REQUEST-FILE|TOOLS MILLISECONDS RATE`; rate 0 is a closed loop.
pub(crate) async fn generate(args: &[&str]) {
    let &[address, method, request, milliseconds, rate] = args else { panic!("not a load: {args:?}") };
    let slice = Duration::from_millis(milliseconds.parse().unwrap());
    let rate: f64 = rate.parse().unwrap();
    let requests = match request.parse() {
        Ok(tools) => Requests::New(tools),
        Err(_) => Requests::Same(std::fs::read(request).unwrap().into()),
    };
    let callers = Callers::connect(address, method, requests).await;
    let run = LocalSet::new();
    let began = Instant::now();
    let work = async {
        if rate == 0.0 { callers.closed(began + slice).await } else { callers.open(slice, rate).await }
    };
    timeout(slice + OVERTIME, run.run_until(work)).await.expect("the server does not answer");
    let elapsed = began.elapsed().as_secs_f64();
    let mut taken = callers.taken.take();
    taken.sort_unstable();
    let quantile = |q: f64| taken[((taken.len() - 1) as f64 * q) as usize].as_secs_f64() * 1e6;
    println!("{} {elapsed} {} {}", taken.len(), quantile(0.5), quantile(0.99));
}

/// What each call asks for.
#[derive(Clone)]
enum Requests {
    Same(Bytes),
    /// Other 20 tools each time, of so many.
    New(usize),
}

impl Requests {
    fn next(&self) -> Bytes {
        match self {
            Self::Same(request) => request.clone(),
            Self::New(tools) => tools::request_for_some(*tools).encode_to_vec().into(),
        }
    }
}

/// All connections, and how long their calls took.
struct Callers {
    channels: Vec<Channel>,
    /// This process lives no longer than its load.
    method: &'static str,
    requests: Requests,
    taken: Rc<RefCell<Vec<Duration>>>,
}

impl Callers {
    async fn connect(address: &str, method: &str, requests: Requests) -> Self {
        let method: &'static str = method.to_owned().leak();
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let mut channels = Vec::new();
        for _ in 0..CONNECTIONS {
            let channel = endpoint.connect().await.unwrap();
            call_to(&mut client(&channel), method, &requests.next()).await;
            channels.push(channel);
        }
        Self { channels, method, requests, taken: Rc::default() }
    }

    async fn closed(&self, end: Instant) {
        let callers = self.channels.iter().flat_map(|channel| (0..IN_FLIGHT).map(move |_| client(channel)));
        let callers = callers.map(|mut client| {
            let (method, requests, taken) = (self.method, self.requests.clone(), Rc::clone(&self.taken));
            spawn_local(async move {
                let mut now = Instant::now();
                while now < end {
                    let began = now;
                    call_to(&mut client, method, &requests.next()).await;
                    now = Instant::now();
                    taken.borrow_mut().push(now - began);
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.unwrap();
        }
    }

    async fn open(&self, slice: Duration, rate: f64) {
        let began = Instant::now();
        let total = (slice.as_secs_f64() * rate) as usize;
        let mut ticks = interval(Duration::from_millis(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut sent = 0;
        while sent < total {
            let due = ticks.tick().await;
            let until = ((due - began).as_secs_f64() * rate) as usize;
            while sent < until.min(total) {
                let mut client = client(&self.channels[sent % CONNECTIONS]);
                let (method, request) = (self.method, self.requests.next());
                let taken = Rc::clone(&self.taken);
                spawn_local(async move {
                    call_to(&mut client, method, &request).await;
                    taken.borrow_mut().push(due.elapsed());
                });
                sent += 1;
            }
            assert!(
                sent - self.taken.borrow().len() < MAX_OPEN,
                "the server cannot keep up with {rate:.0} calls/s"
            );
        }
        while self.taken.borrow().len() < total {
            sleep_until(Instant::now() + Duration::from_millis(1)).await;
        }
    }
}

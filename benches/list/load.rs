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
    raw::{call, client},
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
    request: String,
}

impl Load {
    /// Sends `request` to `address`; `files` is where the other process finds it.
    pub(crate) fn new(address: &str, request: &impl Message, files: &Path) -> Self {
        let path = files.join(format!("request-{address}"));
        std::fs::write(&path, request.encode_to_vec()).unwrap();
        Self { address: address.to_owned(), request: path.to_str().unwrap().to_owned() }
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
        command.args(["load", &self.address, &self.request]);
        command.args([slice.as_millis().to_string(), rate.to_string()]);
        let output = tokio::process::Command::from(command).output().await.unwrap();
        assert!(output.status.success(), "the load failed: {}", output.status);
        let text = String::from_utf8(output.stdout).unwrap();
        let numbers: Vec<f64> = text.split_whitespace().map(|n| n.parse().unwrap()).collect();
        let &[calls, seconds, p50_us, p99_us] = &numbers[..] else { panic!("not an outcome: {text}") };
        Outcome { calls: calls as usize, elapsed: Duration::from_secs_f64(seconds), p50_us, p99_us }
    }
}

/// The other process: `load ADDRESS REQUEST-FILE MILLISECONDS RATE`; rate 0 is a closed loop.
pub(crate) async fn generate(args: &[&str]) {
    let &[address, request, milliseconds, rate] = args else { panic!("not a load: {args:?}") };
    let slice = Duration::from_millis(milliseconds.parse().unwrap());
    let rate: f64 = rate.parse().unwrap();
    let callers = Callers::connect(address, std::fs::read(request).unwrap().into()).await;
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

/// All connections, and how long their calls took.
struct Callers {
    channels: Vec<Channel>,
    request: Bytes,
    taken: Rc<RefCell<Vec<Duration>>>,
}

impl Callers {
    async fn connect(address: &str, request: Bytes) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let mut channels = Vec::new();
        for _ in 0..CONNECTIONS {
            let channel = endpoint.connect().await.unwrap();
            call(&mut client(&channel), &request).await;
            channels.push(channel);
        }
        Self { channels, request, taken: Rc::default() }
    }

    async fn closed(&self, end: Instant) {
        let callers = self.channels.iter().flat_map(|channel| (0..IN_FLIGHT).map(move |_| client(channel)));
        let callers = callers.map(|mut client| {
            let (request, taken) = (self.request.clone(), Rc::clone(&self.taken));
            spawn_local(async move {
                let mut now = Instant::now();
                while now < end {
                    let began = now;
                    call(&mut client, &request).await;
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
                let (request, taken) = (self.request.clone(), Rc::clone(&self.taken));
                spawn_local(async move {
                    call(&mut client, &request).await;
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

//! An HTTP target that holds each request until the test answers it, and logs when it came.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinHandle,
    time::{Duration, Instant, timeout},
};

/// A server on loopback.
#[derive(Debug)]
pub(crate) struct HeldTarget {
    address: String,
    requests: mpsc::UnboundedReceiver<Held>,
    log: Log,
    task: Task,
}

/// When requests came, and how many were open at once.
#[derive(Clone, Debug, Default)]
struct Log {
    times: Arc<Mutex<Vec<Instant>>>,
    open: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

/// A request that waits for its answer.
#[derive(Debug)]
pub(crate) struct Held {
    stream: TcpStream,
    open: Arc<AtomicUsize>,
}

impl HeldTarget {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, requests) = mpsc::unbounded_channel();
        let log = Log::default();
        let task = tokio::spawn({
            let log = log.clone();
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    log.times.lock().unwrap().push(Instant::now());
                    let open = log.open.fetch_add(1, Ordering::SeqCst) + 1;
                    log.most.fetch_max(open, Ordering::SeqCst);
                    let _ = sender.send(Held { stream, open: Arc::clone(&log.open) });
                }
            }
        });
        Self { address, requests, log, task: Task(task) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// The next request; it must come within a minute.
    pub(crate) async fn next(&mut self) -> Held {
        timeout(Duration::from_secs(60), self.requests.recv()).await.expect("a request").expect("a target")
    }

    /// Answers everything from now on, each request after a while.
    pub(crate) fn answer_all(mut self, status: u16, after: Duration) -> AutoTarget {
        let (address, log, accepts) = (self.address, self.log, self.task);
        let status = Arc::new(AtomicUsize::new(status.into()));
        let current = Arc::clone(&status);
        let task = tokio::spawn(async move {
            let _accepts = accepts;
            while let Some(held) = self.requests.recv().await {
                let current = Arc::clone(&current);
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    let status = u16::try_from(current.load(Ordering::SeqCst)).unwrap_or(500);
                    held.answer(status).await;
                });
            }
        });
        AutoTarget { address, log, status, task: Task(task) }
    }

    pub(crate) fn hits(&self) -> usize {
        self.log.times.lock().unwrap().len()
    }
}

impl Held {
    /// Answers with a status. What the peer makes of it, or whether it is still there, is not known here.
    pub(crate) async fn answer(mut self, status: u16) {
        let mut head = [0; 4096];
        let _ = self.stream.read(&mut head).await;
        let answer = format!("HTTP/1.1 {status} Told\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        self.open.fetch_sub(1, Ordering::SeqCst);
        let _ = self.stream.write_all(answer.as_bytes()).await;
    }

    /// True once the peer has gone; it must have.
    pub(crate) async fn given_up(mut self) -> bool {
        let mut sink = Vec::new();
        self.open.fetch_sub(1, Ordering::SeqCst);
        timeout(Duration::from_millis(100), self.stream.read_to_end(&mut sink)).await.is_ok()
    }
}

/// A target that answers by itself and keeps the log.
#[derive(Debug)]
pub(crate) struct AutoTarget {
    address: String,
    log: Log,
    status: Arc<AtomicUsize>,
    task: Task,
}

impl AutoTarget {
    /// A target that answers after no time.
    pub(crate) async fn start(status: u16) -> Self {
        HeldTarget::start().await.answer_all(status, Duration::ZERO)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Switches the answer.
    pub(crate) fn set(&self, status: u16) {
        self.status.store(status.into(), Ordering::SeqCst);
    }

    /// When each request came.
    pub(crate) fn times(&self) -> Vec<Instant> {
        self.log.times.lock().unwrap().clone()
    }

    /// The times between requests.
    pub(crate) fn gaps(&self) -> Vec<Duration> {
        self.times().windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    /// How many requests were open at once, at most.
    pub(crate) fn most_at_once(&self) -> usize {
        self.log.most.load(Ordering::SeqCst)
    }
}

/// A task that ends with its owner.
#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

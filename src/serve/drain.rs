//! The end of serving, in steps: begin, let everything that is open end by itself, kill what is left.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Over how long the ends of streams are spread at most by default, so that clients do not all come back in one instant.
pub const SPREAD: Duration = Duration::from_secs(3);

/// The spread that each open stream adds: few streams end at once, 600 and more take all of [`SPREAD`].
const SPREAD_PER_STREAM: Duration = Duration::from_millis(5);

/// The range that clients are told to wait for: long enough for a restart, short enough not to be noticed.
const RETRY_AFTER_MS: std::ops::Range<u64> = 1_000..5_000;

/// Starts the drain of one server and bounds it. Copies are one.
#[derive(Clone, Debug)]
pub struct Drain {
    begun: CancellationToken,
    killed: CancellationToken,
    streams: Arc<()>,
    grace: Duration,
    spread: Duration,
}

impl Drain {
    /// A drain that spreads the ends of streams over `spread` and gives what is open `grace` to end by itself.
    pub fn new(grace: Duration, spread: Duration) -> Self {
        Self {
            begun: CancellationToken::new(),
            killed: CancellationToken::new(),
            streams: Arc::new(()),
            grace,
            spread,
        }
    }

    /// Begins: no more connections, streams say goodbye, calls in flight go on until the grace is over.
    pub fn begin(&self) {
        self.begun.cancel();
    }

    /// Ends the grace now: all connections are cut.
    pub fn kill(&self) {
        self.begun.cancel();
        self.killed.cancel();
    }

    /// Resolves when the grace is over.
    pub async fn killed(&self) {
        self.killed.cancelled().await;
    }

    /// What streams and loops listen to.
    pub fn signal(&self) -> Signal {
        Signal { begun: self.begun.clone(), streams: Arc::clone(&self.streams), spread: self.spread }
    }

    /// How long what is open may take to end by itself.
    pub fn grace(&self) -> Duration {
        self.grace
    }

    pub(super) fn kill_token(&self) -> &CancellationToken {
        &self.killed
    }

    pub(super) fn begun_token(&self) -> &CancellationToken {
        &self.begun
    }
}

/// Tells that the drain began.
#[derive(Clone, Debug)]
pub struct Signal {
    begun: CancellationToken,
    streams: Arc<()>,
    spread: Duration,
}

impl Signal {
    /// Whether the drain began.
    pub fn has_begun(&self) -> bool {
        self.begun.is_cancelled()
    }

    /// Resolves when the drain begins.
    pub async fn begun(&self) {
        self.begun.cancelled().await;
    }

    /// For one stream: resolves when it is this stream's turn to say goodbye, with the wait to recommend to its client.
    ///
    /// Take one when the stream opens and keep it until it ends: it is how the open streams are counted.
    pub fn goodbye(&self) -> impl Future<Output = Duration> + Send + use<> {
        let (begun, streams, spread) = (self.begun.clone(), Arc::clone(&self.streams), self.spread);
        async move {
            begun.cancelled().await;
            let open = u32::try_from(Arc::strong_count(&streams)).unwrap_or(u32::MAX);
            sleep(SPREAD_PER_STREAM.saturating_mul(open).min(spread).mul_f64(fastrand::f64())).await;
            retry_after()
        }
    }
}

/// How long a client should wait until it asks again: another time for each, so that they do not come together.
pub fn retry_after() -> Duration {
    Duration::from_millis(fastrand::u64(RETRY_AFTER_MS))
}

#[cfg(test)]
mod tests {
    use tokio::{task::JoinSet, time::Instant};

    use super::*;

    /// The time after the beginning at which the last of `n` streams says goodbye.
    async fn last_goodbye(n: usize) -> Duration {
        let drain = Drain::new(Duration::ZERO, SPREAD);
        let mut streams = JoinSet::new();
        for _ in 0..n {
            streams.spawn(drain.signal().goodbye());
        }
        let start = Instant::now();
        drain.begin();
        for retry_after in streams.join_all().await {
            assert!((Duration::from_secs(1)..Duration::from_secs(5)).contains(&retry_after));
        }
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn one_stream_ends_at_once_and_many_are_spread() {
        assert!(last_goodbye(1).await < Duration::from_millis(30));
        let many = last_goodbye(2_000).await;
        assert!((Duration::from_secs(2)..=Duration::from_millis(3_001)).contains(&many), "{many:?}");
    }

    #[tokio::test]
    async fn a_kill_is_a_beginning_too() {
        let drain = Drain::new(Duration::from_secs(10), SPREAD);
        let signal = drain.signal();
        assert!(!signal.has_begun());
        drain.kill();
        signal.begun().await;
        assert!(signal.has_begun());
    }
}

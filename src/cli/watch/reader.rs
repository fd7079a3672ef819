//! Follows one watch over all its streams, for as long as another try can help.

use std::time::Duration;

use tokio::{sync::mpsc::Sender, time};
use tonic::{Code, Status, transport::Channel};
use tonic_types::StatusExt;

use super::{Event, Source, view::View};
use crate::{
    cli::{
        Failure,
        client::{self, CONNECT},
        failure::describe,
    },
    config::ClientSettings,
};

/// The first and the longest pause before watching again after a cut.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// No server means its clients to wait longer.
const LONGEST_WISH: Duration = Duration::from_secs(5 * 60);
/// Three heartbeats. A server whose heartbeats were set to be rarer is watched anew each time, which costs little.
const SILENCE: Duration = Duration::from_secs(45);

/// A watch over all its streams.
#[derive(Debug)]
pub(super) struct Reader<'a, S: Source> {
    source: S,
    settings: &'a ClientSettings,
    view: View<S::Item>,
    events: Sender<Event<S::Item>>,
}

/// How a stream ended that is worth another try.
#[derive(Debug, PartialEq)]
struct Ended {
    why: String,
    /// The server's wish.
    retry_after: Option<Duration>,
    /// Whether a state came: the server is well.
    synced: bool,
}

impl<'a, S: Source> Reader<'a, S> {
    pub(super) fn new(source: S, settings: &'a ClientSettings, events: Sender<Event<S::Item>>) -> Self {
        Self { source, settings, view: View::new(), events }
    }

    /// Watches, on this connection first. It ends well when nobody takes its events any more.
    pub(super) async fn run(mut self, channel: Channel) -> Result<(), Failure> {
        let mut connected = Ok(channel);
        let mut pauses = Pauses::new();
        loop {
            let ended = match connected {
                Ok(channel) => self.stream(channel).await?,
                Err(why) => Ended { why, retry_after: None, synced: false },
            };
            let wait = pauses.after(&ended);
            if self.events.send(Event::Cut { why: ended.why, wait }).await.is_err() {
                return Ok(());
            }
            time::sleep(wait).await;
            if self.events.send(Event::Connecting).await.is_err() {
                return Ok(());
            }
            connected = client::connect(self.settings, CONNECT).await;
        }
    }

    /// One stream, to its end.
    async fn stream(&mut self, channel: Channel) -> Result<Ended, Failure> {
        let resume = self.view.begin();
        let silent = |synced| Ended {
            why: format!("nothing was heard for {} s", SILENCE.as_secs()),
            retry_after: None,
            synced,
        };
        let mut synced = false;
        let mut stream = match time::timeout(SILENCE, self.source.open(channel, resume)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(status)) => return retry(&status, synced),
            Err(_) => return Ok(silent(synced)),
        };
        loop {
            let message = match time::timeout(SILENCE, stream.message()).await {
                Ok(Ok(Some(message))) => message,
                Ok(Ok(None)) => {
                    return Ok(Ended { why: "the stream was cut".to_owned(), retry_after: None, synced });
                }
                Ok(Err(status)) => return retry(&status, synced),
                Err(_) => return Ok(silent(synced)),
            };
            let part = S::part(message);
            let (goodbye, revision) = (part.goodbye, part.revision);
            if let Some(changes) = self.view.apply(part) {
                let is_first = !std::mem::replace(&mut synced, true);
                // Nobody listens: the caller notices at the next cut, and is gone long before.
                let _ = self.events.send(Event::State { changes, revision, is_first }).await;
            }
            if let Some(goodbye) = goodbye {
                let why = format!("the server ended the stream: {}", goodbye.reason().as_str_name());
                let retry_after = goodbye.retry_after.and_then(|wish| wish.try_into().ok());
                return Ok(Ended { why, retry_after, synced });
            }
        }
    }
}

/// Whether an error is worth another try: not if the request itself is wrong.
fn retry(status: &Status, synced: bool) -> Result<Ended, Failure> {
    match status.code() {
        Code::Unavailable
        | Code::Unknown
        | Code::Internal
        | Code::Cancelled
        | Code::Aborted
        | Code::DeadlineExceeded
        | Code::ResourceExhausted => {
            let retry_after = status.get_details_retry_info().and_then(|info| info.retry_delay);
            Ok(Ended { why: describe(status), retry_after, synced })
        }
        _ => Err(Failure::call(status)),
    }
}

/// How long to wait after each end: longer each time, until a state comes.
#[derive(Debug)]
struct Pauses {
    next: Duration,
}

impl Pauses {
    fn new() -> Self {
        Self { next: FIRST_PAUSE }
    }

    fn after(&mut self, ended: &Ended) -> Duration {
        if ended.synced {
            self.next = FIRST_PAUSE;
        }
        // Spread, so that the clients of one server do not return together.
        let own = self.next.mul_f64(0.75 + fastrand::f64() / 2.0);
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        let wish = ended.retry_after.map(|wish| wish.min(LONGEST_WISH));
        match wish {
            None => own,
            // A server that was well knows best; one that only ever sends away is asked less and less often.
            Some(wish) if ended.synced => wish,
            Some(wish) => wish.max(own),
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn only_what_another_try_can_help_is_tried_again() {
        for (code, again) in [
            (Code::Unavailable, true),
            (Code::Unknown, true),
            (Code::Internal, true),
            (Code::Cancelled, true),
            (Code::Aborted, true),
            (Code::DeadlineExceeded, true),
            (Code::ResourceExhausted, true),
            (Code::InvalidArgument, false),
            (Code::Unimplemented, false),
            (Code::PermissionDenied, false),
            (Code::Unauthenticated, false),
            (Code::NotFound, false),
            (Code::FailedPrecondition, false),
            (Code::OutOfRange, false),
        ] {
            assert_eq!(retry(&Status::new(code, "x"), false).is_ok(), again, "{code:?}");
        }
        let details = ErrorDetails::with_retry_info(Some(Duration::from_secs(3)));
        let status = Status::with_error_details(Code::ResourceExhausted, "too many", details);
        let ended = retry(&status, true).unwrap();
        assert_eq!(ended.retry_after, Some(Duration::from_secs(3)));
        assert!(ended.synced && ended.why.starts_with("too many (RESOURCE_EXHAUSTED"), "{ended:?}");
    }

    #[test]
    fn pauses_grow_until_a_state_comes_and_heed_the_server() {
        let mut pauses = Pauses::new();
        let mut check = |wish: Option<u64>, synced, [low, high]: [u64; 2]| {
            let retry_after = wish.map(Duration::from_millis);
            let pause = pauses.after(&Ended { why: String::new(), retry_after, synced });
            let range = Duration::from_millis(low)..=Duration::from_millis(high);
            assert!(range.contains(&pause), "{wish:?} {synced}: {pause:?} is not in {range:?}");
        };
        for middle in [500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000] {
            check(None, false, [middle * 3 / 4, middle * 5 / 4]);
        }
        check(Some(100), false, [11_250, 18_750]);
        check(Some(60_000), false, [60_000, 60_000]);
        check(Some(7_000_000), false, [300_000, 300_000]);
        check(Some(100), true, [100, 100]);
        check(None, true, [375, 625]);
        check(None, false, [750, 1_250]);
    }
}

//! The state as a table on a terminal, drawn anew at each change.
//!
//! Each drawing leaves the terminal as it found it, so there is nothing to restore, however the process ends.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    time::Duration,
};

use rustix::termios::tcgetwinsize;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc::Receiver,
    time::{Instant, MissedTickBehavior, interval},
};

use super::{
    Change, Event, Item,
    table::{Frame, Link, Size},
};
use crate::cli::Failure;

/// How often what counts seconds is drawn anew.
const TICK: Duration = Duration::from_secs(1);
/// Where the terminal does not know its size.
const USUAL: Size = Size { width: 80, height: 24 };

/// While a frame is drawn: no cursor, and no second line for what is too long after all.
const BEGIN: &str = "\x1b[?25l\x1b[?7l\x1b[H";
const END_OF_LINE: &str = "\x1b[K";
const NEW_LINE: &str = "\r\n";
const CLEAR_BELOW: &str = "\x1b[J";
const END: &str = "\x1b[?7h\x1b[?25h";

/// What is on the terminal.
#[derive(Debug)]
pub(super) struct Screen {
    title: String,
    link: Link,
    /// While the stream is cut: when the next try is.
    next_try: Instant,
    revision: u64,
    changed: Option<Instant>,
    allowed: String,
    /// By the order in which they stand: what is urgent first.
    rows: BTreeMap<(Order, String), Vec<String>>,
    drawn: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    Urgent,
    Calm,
}

impl Screen {
    pub(super) fn new(title: String) -> Self {
        Self {
            title,
            link: Link::Waiting,
            next_try: Instant::now(),
            revision: 0,
            changed: None,
            allowed: String::new(),
            rows: BTreeMap::new(),
            drawn: None,
        }
    }

    /// Draws until there are no more events.
    pub(super) async fn run<T: Item>(mut self, mut events: Receiver<Event<T>>) -> Result<(), Failure> {
        let mut resized = signal(SignalKind::window_change())
            .map_err(|e| Failure::Failed(format!("cannot listen to signals: {e}")))?;
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => self.take(event),
                    None => return Ok(()),
                },
                _ = resized.recv() => self.drawn = None,
                _ = tick.tick() => {}
            }
            while let Ok(event) = events.try_recv() {
                self.take(event);
            }
            let text = self.text::<T>(size());
            if self.drawn.as_ref() != Some(&text) {
                let mut out = io::stdout().lock();
                out.write_all(text.as_bytes())?;
                out.flush()?;
                self.drawn = Some(text);
            }
        }
    }

    fn take<T: Item>(&mut self, event: Event<T>) {
        match event {
            Event::State { changes, revision, .. } => {
                // The first state is no change.
                let told = changes.iter().any(|change| !matches!(change, Change::Touched(..)));
                if told && self.revision > 0 {
                    self.changed = Some(Instant::now());
                }
                self.revision = revision;
                self.link = Link::Live;
                changes.into_iter().for_each(|change| self.change(change));
            }
            Event::Cut { why, wait } => {
                self.next_try = Instant::now() + wait;
                self.link = Link::Cut { why, left: wait };
            }
            Event::Connecting => self.link = Link::Connecting,
        }
    }

    fn change<T: Item>(&mut self, change: Change<T>) {
        let (name, item) = match change {
            Change::New(name, item) | Change::Changed(name, item) | Change::Touched(name, item) => {
                (name, Some(item))
            }
            Change::Gone(name) => (name, None),
            Change::Allowed(allowed) => {
                self.allowed = allowed;
                return;
            }
        };
        self.rows.remove(&(Order::Urgent, name.clone()));
        self.rows.remove(&(Order::Calm, name.clone()));
        if let Some(item) = item {
            let order = if item.is_urgent() { Order::Urgent } else { Order::Calm };
            let row = std::iter::once(name.clone()).chain(item.cells()).collect();
            self.rows.insert((order, name), row);
        }
    }

    /// What draws the state now.
    fn text<T: Item>(&mut self, size: Size) -> String {
        if let Link::Cut { left, .. } = &mut self.link {
            *left = self.next_try.saturating_duration_since(Instant::now());
        }
        let rows: Vec<&[String]> = self.rows.values().map(Vec::as_slice).collect();
        let frame = Frame {
            title: &self.title,
            link: &self.link,
            revision: self.revision,
            changed: self.changed.map(|at| at.elapsed()),
            plural: T::PLURAL,
            columns: T::COLUMNS,
            rows: &rows,
            allowed: &self.allowed,
        };
        let lines = frame.lines(size).join(&format!("{END_OF_LINE}{NEW_LINE}"));
        format!("{BEGIN}{lines}{END_OF_LINE}{CLEAR_BELOW}{END}")
    }
}

impl Drop for Screen {
    /// What comes next, an error or the shell, stands below the table.
    fn drop(&mut self) {
        if self.drawn.is_some() {
            // A terminal that is gone needs nothing.
            let _ = io::stdout().lock().write_all(b"\n").and_then(|()| io::stdout().flush());
        }
    }
}

fn size() -> Size {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
            Size { width: size.ws_col.into(), height: size.ws_row.into() }
        }
        _ => USUAL,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};

    fn drawn(screen: &mut Screen) -> Vec<String> {
        let text = screen.text::<Thing>(Size { width: 60, height: 7 });
        let text = text.strip_prefix(BEGIN).unwrap().strip_suffix(END).unwrap();
        text.strip_suffix(CLEAR_BELOW)
            .unwrap()
            .split(NEW_LINE)
            .map(|l| l.strip_suffix(END_OF_LINE).unwrap().to_owned())
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_state_stays_while_the_stream_is_cut() {
        let mut screen = Screen::new("things".to_owned());
        assert_eq!(drawn(&mut screen), ["things", "waiting for the first state"]);
        let new = |name: &str, text| Change::New(name.to_owned(), thing(text));
        let changes = vec![new("a", "fine"), new("b", "fine"), new("c", "broken")];
        screen.take(Event::State { changes, revision: 3, is_first: true });
        let table = ["", "NAME  TEXT", "c     broken", "a     fine", "b     fine"];
        assert_eq!(drawn(&mut screen), [&["things", "live, 3 things, revision 3"][..], &table].concat());

        screen.take::<Thing>(Event::Cut { why: "cut".to_owned(), wait: Duration::from_secs(4) });
        tokio::time::advance(Duration::from_millis(1_500)).await;
        let state = "reconnecting in 3 s, 3 things, revision 3";
        assert_eq!(drawn(&mut screen), [&["things", state, "cut"][..], &table[1..]].concat());
        screen.take::<Thing>(Event::Connecting);
        assert_eq!(drawn(&mut screen)[1], "reconnecting, 3 things, revision 3");

        let changes = vec![Change::Gone("a".to_owned()), Change::Changed("c".to_owned(), thing("fine"))];
        screen.take(Event::State { changes, revision: 5, is_first: true });
        tokio::time::advance(Duration::from_secs(2)).await;
        let touched = vec![Change::Touched("b".to_owned(), thing("fine"))];
        screen.take(Event::State { changes: touched, revision: 6, is_first: false });
        let lines = drawn(&mut screen);
        assert_eq!(lines[1], "live, 2 things, revision 6, last change 2 s ago");
        assert_eq!(lines[3..], ["NAME  TEXT", "b     fine", "c     fine"]);
    }
}

//! Changes as lines, for pipes.

use std::{
    fmt::Write as _,
    future,
    io::{self, Write as _},
    os::fd::AsFd,
};

use serde_json::json;
use tokio::{io::Interest, net::unix::pipe::Sender, sync::mpsc::Receiver, task::spawn_blocking};

use super::{Change, Event, Item, count};
use crate::cli::{Failure, print};

/// Writes a line for each change, each state at once.
#[derive(Debug)]
pub(super) struct Lines {
    json: bool,
    count: usize,
}

impl Lines {
    pub(super) fn new(json: bool) -> Self {
        Self { json, count: 0 }
    }

    /// Writes until there are no more events, or nobody reads.
    pub(super) async fn run<T: Item>(mut self, mut events: Receiver<Event<T>>) -> Result<(), Failure> {
        let gone = reader_gone();
        tokio::pin!(gone);
        loop {
            let event = tokio::select! {
                event = events.recv() => event,
                () = &mut gone => return Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
            };
            match event {
                None => return Ok(()),
                Some(Event::State { changes, revision, is_first }) => {
                    self.write(self.text(&changes)?).await?;
                    for change in &changes {
                        match change {
                            Change::New(..) => self.count += 1,
                            Change::Gone(_) => self.count -= 1,
                            _ => {}
                        }
                    }
                    if is_first {
                        print::note(&format!(
                            "synced at revision {revision}: {}",
                            count(self.count, T::PLURAL)
                        ));
                    }
                }
                Some(Event::Cut { why, wait }) => {
                    print::warn(&format!("{why}; watching again in {} ms", wait.as_millis()));
                }
                Some(Event::Connecting) => {}
            }
        }
    }

    fn text<T: Item>(&self, changes: &[Change<T>]) -> Result<String, Failure> {
        let mut text = String::new();
        for change in changes {
            let line = if self.json { json_line(change)? } else { line(change) };
            if let Some(line) = line {
                // Writing to a string does not fail.
                let _ = writeln!(text, "{line}");
            }
        }
        Ok(text)
    }

    /// On a thread of its own: a reader that stopped reading must not keep Ctrl-C from ending the watch.
    async fn write(&self, text: String) -> Result<(), Failure> {
        if text.is_empty() {
            return Ok(());
        }
        let write = move || {
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes())?;
            out.flush()
        };
        Ok(spawn_blocking(write).await.map_err(io::Error::other)??)
    }
}

/// What is worth a line.
fn line<T: Item>(change: &Change<T>) -> Option<String> {
    let of = |sign: char, name: &str, item: &T| {
        let name = print::cell(name);
        format!("{sign} {name} {}", item.line()).trim_end().to_owned()
    };
    match change {
        Change::New(name, item) => Some(of('+', name, item)),
        Change::Changed(name, item) => Some(of('~', name, item)),
        Change::Touched(..) => None,
        Change::Gone(name) => Some(format!("- {}", print::cell(name))),
        Change::Allowed(allowed) => Some(format!("allowed now: {allowed}")),
    }
}

fn json_line<T: Item>(change: &Change<T>) -> Result<Option<String>, Failure> {
    Ok(match change {
        Change::New(_, item) | Change::Changed(_, item) => Some(item.json()?),
        Change::Touched(..) => None,
        Change::Gone(name) => Some(json!({"removed": name}).to_string()),
        Change::Allowed(allowed) => Some(json!({"allowed_json": allowed}).to_string()),
    })
}

/// Ends when the other end of the pipe is closed: a quiet watch would not notice for hours. Never for what is no pipe.
async fn reader_gone() {
    let out = io::stdout().as_fd().try_clone_to_owned();
    // Only looked at, never written to: the pipe may go on blocking.
    match out.and_then(|out| Sender::from_file_unchecked(out.into())) {
        Ok(out) => {
            let _ = out.ready(Interest::ERROR).await;
        }
        Err(_) => future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::thing, *};

    #[test]
    fn lines() {
        let changes = [
            (
                Change::New("a\u{1b}".to_owned(), thing("x\u{7}")),
                Some("+ a x"),
                Some(r#"{"thing":"x\u0007"}"#),
            ),
            (Change::Changed("a".to_owned(), thing("")), Some("~ a"), Some(r#"{"thing":""}"#)),
            (Change::Touched("a".to_owned(), thing("x")), None, None),
            (Change::Gone("a\t".to_owned()), Some("- a "), Some(r#"{"removed":"a\t"}"#)),
            (
                Change::Allowed("[\"a\"]".to_owned()),
                Some("allowed now: [\"a\"]"),
                Some(r#"{"allowed_json":"[\"a\"]"}"#),
            ),
        ];
        for (change, plain, json) in &changes {
            assert_eq!(line(change).as_deref(), *plain);
            assert_eq!(json_line(change).unwrap().as_deref(), *json);
        }
    }
}

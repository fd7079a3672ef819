//! `tools watch` and `status watch`: readers by the watch contract. They resume where they were, and say only what changed.
//!
//! [`Reader`] follows the stream and reconnects; what it learns goes to a [`Screen`] on a terminal, else to [`Lines`].

mod args;
mod lines;
mod reader;
mod screen;
mod sources;
mod table;
#[cfg(test)]
mod tests;
mod view;

use std::io::{self, IsTerminal};

use tokio::sync::mpsc;
use tonic::{Status, Streaming, transport::Channel};

pub(super) use self::args::WatchArgs;
pub(super) use self::sources::{AgentTools, AllTools, Gateways};
use self::{lines::Lines, reader::Reader, screen::Screen, table::Column};
use super::{Failure, client};
use crate::{
    config::ClientSettings,
    proto::v1::{Goodbye, Position},
};

/// Batches that wait for a slow output. Beyond them the reader waits, and the server merges what comes.
const BATCHES: usize = 4;

/// A kind of watch.
pub(super) trait Source {
    /// What is watched.
    type Item: Item;
    /// A message of the stream.
    type Message;

    /// What is watched, in a few words.
    fn title(&self) -> String;

    /// Opens the stream.
    async fn open(
        &self,
        channel: Channel,
        resume: Option<Position>,
    ) -> Result<Streaming<Self::Message>, Status>;

    /// Takes a message apart.
    fn part(message: Self::Message) -> Part<Self::Item>;
}

/// One thing that is watched, and how it is told.
pub(super) trait Item: Clone {
    /// The columns of its table; the first is its name.
    const COLUMNS: &'static [Column];
    /// What several are called.
    const PLURAL: &'static str;

    /// Whether it differs from what was told before in nothing worth telling.
    fn is_same(&self, before: &Self) -> bool;

    /// What a line says of it after its name.
    fn line(&self) -> String;

    /// The cells of its row, without the name.
    fn cells(&self) -> Vec<String>;

    /// Whether it stands above the others.
    fn is_urgent(&self) -> bool;

    /// A line of JSON.
    fn json(&self) -> Result<String, Failure>;
}

/// A message of a watch, whatever is watched.
#[derive(Debug)]
pub(super) struct Part<T> {
    epoch: String,
    revision: u64,
    reset: bool,
    /// Each with its name.
    upserts: Vec<(String, T)>,
    removed: Vec<String>,
    /// What goes with the whole set: `allowed_json`. Unset where the message does not say.
    allowed: Option<String>,
    synced: bool,
    goodbye: Option<Goodbye>,
}

/// What a reader tells.
#[derive(Debug, PartialEq)]
enum Event<T> {
    /// A state, by what changed since the one before.
    State { changes: Vec<Change<T>>, revision: u64, is_first: bool },
    /// The stream ended.
    Cut { why: String, wait: std::time::Duration },
    /// The wait is over.
    Connecting,
}

/// One thing to tell.
#[derive(Debug, PartialEq)]
enum Change<T> {
    New(String, T),
    Changed(String, T),
    /// Changed in nothing worth a line.
    Touched(String, T),
    Gone(String),
    /// The tools that may be called, of those that are shown.
    Allowed(String),
}

/// So many of them, in words.
fn count(n: usize, plural: &str) -> String {
    let noun = if n == 1 { plural.trim_end_matches('s') } else { plural };
    format!("{n} {noun}")
}

/// Watches until Ctrl-C, until nobody reads the output, or until an error that no other try can help.
pub(super) async fn run<S: Source>(source: S, settings: &ClientSettings) -> Result<(), Failure> {
    // A server that was never there is a wrong address; one that goes away comes back.
    let channel = client::channel(settings).await?;
    let (events, told) = mpsc::channel(BATCHES);
    let title = source.title();
    let reader = Reader::new(source, settings, events);
    // What the reader told before it failed is shown; without an output there is nothing to read for.
    let reading = async { Ok(reader.run(channel).await) };
    let showing = async {
        if !settings.json && io::stdout().is_terminal() {
            Screen::new(title).run(told).await
        } else {
            Lines::new(settings.json).run(told).await
        }
    };
    tokio::select! {
        result = async { tokio::try_join!(reading, showing) } => match result? {
            (Err(failure), ()) => Err(failure),
            (Ok(()), ()) => Ok(()),
        },
        signal = tokio::signal::ctrl_c() => signal.map_err(|e| Failure::Failed(format!("cannot wait for Ctrl-C: {e}"))),
    }
}

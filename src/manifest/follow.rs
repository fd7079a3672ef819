//! Follows a file by polling its content: cheap, and it sees every kind of change, a ConfigMap's symlink swap included.

use std::{path::Path, sync::Arc, time::Duration};

use sha2::{Digest, Sha256};
use tokio::{
    sync::mpsc,
    task,
    time::{self, MissedTickBehavior},
};

use super::{Manifest, decode, read};

/// Time between two looks at the file. A change counts when two looks agree, so it is heard of after one to two of them.
pub const POLL: Duration = Duration::from_secs(1);

/// What became of the file.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It has a new content.
    Changed(Manifest),
    /// It can't be read or is wrong; this says why, and which line. What was good before stays in force.
    Broken(String),
}

/// What one look at the file saw.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Content([u8; 32]),
    Unreadable(String),
}

/// Follows one file.
#[derive(Debug)]
pub struct Follower {
    path: Arc<Path>,
    /// What was told last.
    told: Seen,
    /// What the look before saw, if it is not what was told.
    candidate: Option<Seen>,
}

impl Follower {
    /// A follower that was told `content` already.
    pub(super) fn after(path: &Path, content: &[u8]) -> Self {
        Self { path: path.into(), told: Seen::Content(hash(content)), candidate: None }
    }

    /// Sends an event for each change, until nobody listens any more.
    pub async fn run(mut self, events: mpsc::Sender<Event>) {
        let mut ticks = time::interval(POLL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = events.closed() => return,
                _ = ticks.tick() => {}
            }
            if let Some(event) = self.look().await
                && events.send(event).await.is_err()
            {
                return;
            }
        }
    }

    pub(super) async fn look(&mut self) -> Option<Event> {
        let path = Arc::clone(&self.path);
        // A read that panicked is told like any other that failed.
        let read = task::spawn_blocking(move || read(&path)).await.unwrap_or_else(|e| Err(e.to_string()));
        let seen = match &read {
            Ok(bytes) => Seen::Content(hash(bytes)),
            Err(why) => Seen::Unreadable(why.clone()),
        };
        if !self.settled(seen) {
            return None;
        }
        let shown = self.path.display().to_string();
        let event = match read {
            Ok(bytes) => task::spawn_blocking(move || match decode(&shown, &bytes) {
                Ok(manifest) => Event::Changed(manifest),
                Err(e) => Event::Broken(e.to_string()),
            })
            .await
            .unwrap_or_else(|e| Event::Broken(e.to_string())),
            Err(why) => Event::Broken(why),
        };
        Some(event)
    }

    /// Whether this is news, and the same as at the look before: a file that is just being written is not.
    fn settled(&mut self, seen: Seen) -> bool {
        if seen == self.told {
            self.candidate = None;
            return false;
        }
        if self.candidate.as_ref() != Some(&seen) {
            self.candidate = Some(seen);
            return false;
        }
        self.candidate = None;
        self.told = seen;
        true
    }
}

fn hash(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

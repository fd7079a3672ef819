//! Tools that their owners gave up without a word: `unregister_after` says how long one may be unavailable without a break
//! before it is unregistered by itself.
//!
//! The time is counted cautiously. It begins when the verdict turns, and anew whenever what was seen meanwhile says little: after
//! a start and a standstill, after the prober suspected itself, and once an operator enables the tool again. The manifest's tools
//! never expire, nor do disabled ones; and a tool that waits for its turn to be asked gets its turn first.

use std::{sync::Arc, time::Duration};

use super::{Entry, Registry, plan::Plan};
use crate::core::{availability::Verdict, name::ToolKey, time::Moment};

/// A tool whose removal the store refused is tried again then.
const RETRY: Duration = Duration::from_secs(30);

/// A tool whose time is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The tool.
    pub key: ToolKey,
    /// Of which generation that is true.
    pub generation: u64,
    /// Unavailable without a break since then.
    pub since: Moment,
    /// How long it was allowed to be.
    pub after: Duration,
    /// Whose it is.
    pub owner: Arc<str>,
}

impl Registry {
    /// When a tool's time is over next.
    pub fn next_expiry(&self) -> Option<Moment> {
        self.expiries.first().map(|(end, _)| *end)
    }

    /// The tools whose time is over at `now`. They are told again later, as long as they are there.
    pub fn expired(&mut self, now: Moment) -> Vec<Expired> {
        let mut expired = Vec::new();
        while let Some((end, key)) = self.expiries.first().cloned()
            && end <= now
        {
            let Some(entry) = self.tools.get(&key) else {
                self.expiries.pop_first();
                continue;
            };
            let Some(after) = allowed(entry) else {
                self.set_expiry(&key, None);
                continue;
            };
            let held_up = entry.targets.iter().flatten().any(|id| self.schedule.is_held_up(*id));
            if self.access.disabled(&key).is_some() {
                self.set_expiry(&key, Some(now + after));
            } else {
                if !held_up {
                    expired.push(Expired {
                        key: key.clone(),
                        generation: entry.stored.generation,
                        since: entry.state.since(),
                        after,
                        owner: Arc::clone(&entry.stored.owner),
                    });
                }
                self.set_expiry(&key, Some(now + RETRY));
            }
        }
        expired
    }

    /// Counts the time of all tools anew: what was seen so far says little of them.
    pub fn restart_expiries(&mut self, now: Moment) {
        let keys: Vec<ToolKey> = self.expiries.iter().map(|(_, key)| key.clone()).collect();
        for key in keys {
            self.restart_expiry(&key, now);
        }
    }

    /// Counts the time of one tool anew.
    pub fn restart_expiry(&mut self, key: &ToolKey, now: Moment) {
        let expires = self.tools.get(key).and_then(allowed).map(|after| now + after);
        self.set_expiry(key, expires);
    }

    /// Begins to count where a tool turned unavailable, and ends where it is not.
    pub(super) fn note_expiry(&mut self, key: &ToolKey, now: Moment) {
        let Some(entry) = self.tools.get(key) else { return };
        if allowed(entry).is_some() != entry.expires.is_some() {
            self.restart_expiry(key, now);
        }
    }

    fn set_expiry(&mut self, key: &ToolKey, expires: Option<Moment>) {
        let Some(entry) = self.tools.get_mut(key) else { return };
        let before = std::mem::replace(&mut entry.expires, expires);
        if let Some(before) = before {
            self.expiries.remove(&(before, key.clone()));
        }
        if let Some(expires) = expires {
            self.expiries.insert((expires, key.clone()));
        }
    }
}

impl Plan<'_> {
    /// Plans to unregister a tool whose time is over, unless something became of it meanwhile. True if it goes.
    pub fn expire(&mut self, expired: &Expired) -> bool {
        let Expired { key, generation, since, .. } = expired;
        let is_planned =
            self.get(key).is_none_or(|tool| tool.generation != *generation || tool.from_manifest);
        let still = self.registry.get(key).is_some_and(|entry| {
            allowed(entry).is_some()
                && entry.state.since() == *since
                && entry.stored.generation == *generation
        });
        let goes = !is_planned && still && self.registry.access.disabled(key).is_none();
        if goes {
            self.delete(key);
        }
        goes
    }
}

/// How long a tool that is unavailable now may be so.
fn allowed(entry: &Entry) -> Option<Duration> {
    let unavailable = entry.state.verdict() == Verdict::Unavailable;
    entry.stored.spec.unregister_after.filter(|_| unavailable && !entry.stored.from_manifest)
}

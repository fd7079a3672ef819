//! Whether the prober should suspect itself: where most of what it asks stops answering at once, its own network is the likelier
//! cause. The suspicion is shown, and nothing is unregistered by itself meanwhile; it never changes a verdict.
//!
//! It begins where, of the destinations (host and port) heard of within 15 s, at least five and at least half turned from an
//! answer to an `ERROR`. Whether `PASS` or `NO` makes no difference here: both are answers. It ends once for 30 s that was so no
//! more, the canary answered all the time, and either the canary is one that the operator named (then the network works, and
//! they are really down), or at least one destination answers. It cannot stick: nothing has to happen but an answer.

use std::{collections::HashMap, time::Duration};

use super::{probe::HostPort, schedule::TargetId, time::Moment};

/// Destinations that turn within this time turn at once.
pub const WINDOW: Duration = Duration::from_secs(15);
/// Fewer than this many that turn at once may well have one cause of their own.
pub const LEAST: usize = 5;
/// How long the cause must be gone before the suspicion ends.
pub const HOLD: Duration = Duration::from_secs(30);
/// How often the canary is asked meanwhile.
pub const CANARY_INTERVAL: Duration = Duration::from_secs(5);

/// What is suspected, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// Since when.
    pub since: Moment,
    /// How many destinations turned.
    pub turned: usize,
    /// Of how many that were heard of.
    pub of: usize,
    /// What the canary said last: whether it answers. None: not yet.
    pub canary: Option<bool>,
}

/// What a moment brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The prober suspects itself from now on.
    Began,
    /// More destinations turned.
    Grew,
    /// It does not any more.
    Ended,
}

/// What is known of all destinations.
#[derive(Debug, Default)]
pub struct Suspect {
    destinations: HashMap<HostPort, Destination>,
    places: HashMap<TargetId, HostPort>,
    suspicion: Option<Suspicion>,
    /// The cause is gone since then.
    good_since: Option<Moment>,
    next_canary: Option<Moment>,
}

#[derive(Debug)]
struct Destination {
    /// The targets there, and whether the newest result of each is an error.
    targets: Vec<(TargetId, bool)>,
    heard: Moment,
    /// When the newest answer came.
    answered: Option<Moment>,
    /// When it turned from an answer to an error. None: it answers, or never did.
    turned: Option<Moment>,
}

impl Destination {
    fn answers(&self) -> bool {
        self.targets.iter().any(|(_, error)| !error)
    }
}

impl Suspect {
    /// Counts a finished run. `from_nothing`: an error counts as a turn even if no answer came before, as what worked before a
    /// restart or a standstill is not known.
    pub fn heard(
        &mut self,
        destination: &HostPort,
        target: TargetId,
        error: bool,
        from_nothing: bool,
        now: Moment,
    ) {
        if !self.destinations.contains_key(destination) {
            let new = Destination { targets: Vec::new(), heard: now, answered: None, turned: None };
            self.destinations.insert(destination.clone(), new);
        }
        let Some(known) = self.destinations.get_mut(destination) else { return };
        let (answered, unknown) = (known.answers(), known.targets.is_empty());
        match known.targets.iter_mut().find(|(id, _)| *id == target) {
            Some(known) => known.1 = error,
            None => {
                known.targets.push((target, error));
                self.places.insert(target, destination.clone());
            }
        }
        known.heard = now;
        if !error {
            known.answered = Some(now);
        }
        if known.answers() {
            known.turned = None;
        } else if answered || unknown && from_nothing {
            known.turned = Some(now);
        }
    }

    /// Forgets a target that is not probed any more.
    pub fn forget(&mut self, target: TargetId) {
        let Some(destination) = self.places.remove(&target) else { return };
        let Some(known) = self.destinations.get_mut(&destination) else { return };
        known.targets.retain(|(id, _)| *id != target);
        if known.targets.is_empty() {
            self.destinations.remove(&destination);
        }
    }

    /// Forgets what was seen: it is too old to judge by. A suspicion stands.
    pub fn forget_all(&mut self) {
        self.destinations.clear();
        self.places.clear();
        self.good_since = None;
    }

    /// Lets time pass. `operators_canary`: the canary is one that the operator named.
    pub fn tick(&mut self, operators_canary: bool, now: Moment) -> Option<News> {
        let young = |at: Moment| now.since(at) < WINDOW;
        let of = self.destinations.values().filter(|d| young(d.heard)).count();
        let turned = self.destinations.values().filter(|d| d.turned.is_some_and(young)).count();
        let at_once = turned >= LEAST && 2 * turned >= of;
        let Some(suspicion) = &mut self.suspicion else {
            if at_once {
                self.suspicion = Some(Suspicion { since: now, turned, of, canary: None });
                (self.good_since, self.next_canary) = (None, Some(now));
            }
            return at_once.then_some(News::Began);
        };
        let grew = at_once && turned > suspicion.turned;
        if grew {
            (suspicion.turned, suspicion.of) = (turned, of);
        }
        let answered = suspicion.canary == Some(true);
        let since = suspicion.since;
        let works = |d: &Destination| d.answers() && d.answered.is_some_and(|at| at > since);
        let heard = operators_canary || self.destinations.is_empty() || self.destinations.values().any(works);
        if at_once || !answered || !heard {
            self.good_since = None;
            return grew.then_some(News::Grew);
        }
        let good_since = *self.good_since.get_or_insert(now);
        let over = now.since(good_since) >= HOLD;
        if over {
            (self.suspicion, self.good_since, self.next_canary) = (None, None, None);
        }
        over.then_some(News::Ended)
    }

    /// What is suspected now.
    pub fn suspicion(&self) -> Option<&Suspicion> {
        self.suspicion.as_ref()
    }

    /// Whether the canary is to be asked now; it is asked again a while later.
    pub fn wants_canary(&mut self, now: Moment) -> bool {
        let due = self.next_canary.is_some_and(|at| at <= now);
        if due {
            self.next_canary = Some(now + CANARY_INTERVAL);
        }
        due
    }

    /// Counts what became of the canary; true if that is news.
    pub fn canary(&mut self, answers: bool) -> bool {
        let Some(suspicion) = &mut self.suspicion else { return false };
        if !answers {
            self.good_since = None;
        }
        suspicion.canary.replace(answers) != Some(answers)
    }
}

#[cfg(test)]
mod tests;

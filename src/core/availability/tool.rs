//! What is known of one tool: its probes, the verdict derived from them, how that turned, and whether it flaps.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use super::{ProbeState, Verdict, Windows};
use crate::core::{
    probe::{ErrorClass, Why},
    time::Moment,
};

/// How many turns of a tool's verdict are remembered.
pub const MAX_TRANSITIONS: usize = 32;
/// More edges than this within [`FLAP_WINDOW`] is flapping.
pub const FLAP_EDGES: usize = 6;
/// How long an edge counts for flapping.
pub const FLAP_WINDOW: Duration = Duration::from_secs(600);

/// One turn of a tool's verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// When.
    pub at: Moment,
    /// The verdict before.
    pub from: Verdict,
    /// The verdict after.
    pub to: Verdict,
    /// The probe that turned it: index into the spec's probes.
    pub probe: usize,
    /// Why: the class where it was an error, and the probe's reason. None: the probe passed.
    pub cause: Option<(Option<ErrorClass>, Why)>,
}

impl Transition {
    /// Whether the tool came or went; its first result is no edge.
    pub fn is_edge(&self) -> bool {
        matches!(
            (self.from, self.to),
            (Verdict::Available, Verdict::Unavailable) | (Verdict::Unavailable, Verdict::Available)
        )
    }
}

/// What is known of one tool: its probes, and the verdict derived from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolState {
    /// In the spec's order.
    pub probes: Vec<ProbeState>,
    verdict: Verdict,
    since: Moment,
    /// The newest last. Shared with readers.
    transitions: Arc<VecDeque<Transition>>,
    flapping: bool,
}

impl ToolState {
    /// A tool with these probes.
    pub fn new(probes: Vec<ProbeState>, now: Moment) -> Self {
        let verdict = derive(&probes);
        Self { probes, verdict, since: now, transitions: Arc::default(), flapping: false }
    }

    /// What agents see.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// When that last changed.
    pub fn since(&self) -> Moment {
        self.since
    }

    /// Whether it is available by a last success alone.
    pub fn last_good(&self) -> bool {
        self.verdict == Verdict::Available && self.probes.iter().any(ProbeState::last_good)
    }

    /// Its newest turns, the newest last.
    pub fn transitions(&self) -> &Arc<VecDeque<Transition>> {
        &self.transitions
    }

    /// Whether it came and went too often lately.
    pub fn is_flapping(&self) -> bool {
        self.flapping
    }

    /// Derives the verdict anew after something happened to a probe; true if it flipped.
    pub fn settle(&mut self, probe: usize, now: Moment) -> bool {
        let verdict = derive(&self.probes);
        if verdict == self.verdict {
            return false;
        }
        let from = std::mem::replace(&mut self.verdict, verdict);
        self.since = now;
        let probe = match verdict {
            Verdict::Unavailable => self.culprit().unwrap_or(probe),
            Verdict::Available | Verdict::Pending => probe,
        };
        let cause = match verdict {
            Verdict::Unavailable => self.probes[probe].trouble().cloned(),
            Verdict::Available | Verdict::Pending => None,
        };
        let transitions = Arc::make_mut(&mut self.transitions);
        if transitions.len() == MAX_TRANSITIONS {
            transitions.pop_front();
        }
        transitions.push_back(Transition { at: now, from, to: verdict, probe, cause });
        self.flapping = self.flaps_until().is_some_and(|end| now < end);
        true
    }

    /// Ends the flap mark if it is over; true if it was.
    pub fn calm(&mut self, now: Moment) -> bool {
        let over = self.flap_end().is_some_and(|end| end <= now);
        self.flapping &= !over;
        over
    }

    /// When the flap mark ends, if there is one and no further edge comes.
    pub fn flap_end(&self) -> Option<Moment> {
        self.flaps_until().filter(|_| self.flapping)
    }

    /// The first probe that decides a verdict other than a plain `Available`.
    pub fn culprit(&self) -> Option<usize> {
        let decides = |p: &ProbeState| match self.verdict {
            Verdict::Available => p.last_good(),
            verdict => p.verdict() == verdict,
        };
        self.probes.iter().position(decides)
    }

    /// When a window of a probe ends, if no result comes before.
    pub fn window_end(&self, windows: &Windows) -> Option<Moment> {
        self.probes.iter().filter_map(|p| p.window_end(windows)).min()
    }

    /// The edge that makes one too many ceases to count then.
    fn flaps_until(&self) -> Option<Moment> {
        let edges = self.transitions.iter().rev().filter(|turn| turn.is_edge());
        edges.map(|turn| turn.at + FLAP_WINDOW).nth(FLAP_EDGES)
    }
}

fn derive(probes: &[ProbeState]) -> Verdict {
    let any = |verdict| probes.iter().any(|p| p.verdict() == verdict);
    if any(Verdict::Unavailable) {
        Verdict::Unavailable
    } else if any(Verdict::Pending) {
        Verdict::Pending
    } else {
        Verdict::Available
    }
}

//! Servers that take turns, round by round: machines drift, so only what ran in the same rounds is compared.

use std::time::Duration;

use super::{
    children::Child,
    load::{Load, Outcome},
    table::median,
};

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    pub(crate) slice: Duration,
    /// Less of everything, for a first look.
    pub(crate) quick: bool,
}

/// One that takes turns with others.
pub(crate) struct Contender {
    pub(crate) server: Child,
    pub(crate) load: Load,
}

/// What the rounds of one contender gave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rounds(Vec<Outcome>);

impl Rounds {
    /// Calls a second.
    pub(crate) fn rate(&self) -> f64 {
        self.median(Outcome::rate)
    }

    pub(crate) fn p50(&self) -> f64 {
        self.median(|outcome| outcome.p50_us)
    }

    pub(crate) fn p99(&self) -> f64 {
        self.median(|outcome| outcome.p99_us)
    }

    pub(crate) fn push(&mut self, outcome: Outcome) {
        self.0.push(outcome);
    }

    fn median(&self, of: impl Fn(&Outcome) -> f64) -> f64 {
        median(&self.0.iter().map(of).collect::<Vec<_>>())
    }
}

/// As many calls as each can answer.
pub(crate) async fn closed<const N: usize>(of: &[Contender; N], effort: Effort) -> [Rounds; N] {
    for one in of {
        one.load.closed(effort.slice).await;
    }
    let mut all = std::array::from_fn(|_| Rounds::default());
    for _ in 0..effort.rounds {
        for (one, rounds) in of.iter().zip(&mut all) {
            rounds.push(one.load.closed(effort.slice).await);
        }
    }
    all
}

/// The same calls a second for each.
pub(crate) async fn open<const N: usize>(of: &[Contender; N], rate: f64, effort: Effort) -> [Rounds; N] {
    let mut all = std::array::from_fn(|_| Rounds::default());
    for _ in 0..effort.rounds {
        for (one, rounds) in of.iter().zip(&mut all) {
            rounds.push(one.load.open(effort.slice, rate).await);
        }
    }
    all
}

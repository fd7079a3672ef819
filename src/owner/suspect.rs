//! The prober's suspicion of itself, and what waits for its end: tools that are unregistered by themselves.

use super::{Owner, command::Command};
use crate::{
    catalog::ProberSuspicion,
    core::{
        probe::{HostPort, Outcome},
        schedule::TargetId,
        suspicion::{News, Suspicion, WINDOW},
        time::Moment,
    },
};

impl Owner {
    /// A run ended.
    pub(super) fn heard_of(&mut self, destination: &HostPort, id: TargetId, outcome: &Outcome, now: Moment) {
        let error = matches!(outcome, Outcome::Error(..));
        // What worked before the start, or before a standstill, is not known.
        self.suspect.heard(destination, id, error, self.settling.is_some(), now);
    }

    /// Looks once a second whether too much stopped answering at once.
    pub(super) fn suspect_self(&mut self, now: Moment) {
        match self.suspect.tick(self.canary.tells_of_the_network(), now) {
            None => {}
            Some(News::Began) => {
                let why = self.suspect.suspicion().map(|s| self.describe(s)).unwrap_or_default();
                tracing::warn!(
                    "the prober suspects its own network: {why}; verdicts go by the rules, and nothing is unregistered by itself \
                     meanwhile"
                );
                self.suspicion_changed();
            }
            Some(News::Grew) => self.suspicion_changed(),
            Some(News::Ended) => {
                tracing::info!("the prober does not suspect itself any more");
                self.registry.restart_expiries(now);
                self.suspicion_changed();
            }
        }
        if self.canary_run.is_none() && self.suspect.wants_canary(now) {
            self.canary_run = Some(tokio::spawn(self.canary.clone().ask()));
        }
    }

    /// The canary was asked.
    pub(super) fn canary_answered(&mut self, answers: bool) {
        if self.suspect.canary(answers) {
            self.suspicion_changed();
        }
    }

    /// What readers are shown of it.
    pub(super) fn shown_suspicion(&self) -> Option<ProberSuspicion> {
        let suspicion = self.suspect.suspicion()?;
        Some(ProberSuspicion { since: suspicion.since, text: self.describe(suspicion).into() })
    }

    /// Whether tools may be unregistered by themselves now.
    pub(super) fn may_expire(&self) -> bool {
        // A commit in flight ends soon; what is judged later may be judged wrong by then.
        self.settling.is_none() && self.suspect.suspicion().is_none() && self.commit.is_none()
    }

    /// Unregisters the tools whose time is over.
    pub(super) fn expire(&mut self, now: Moment) {
        if !self.may_expire() {
            return;
        }
        let expired = self.registry.expired(now);
        if !expired.is_empty() {
            self.waiting.push_front(Command::Expire(expired));
        }
    }

    fn suspicion_changed(&mut self) {
        self.metrics.set_prober_suspect(self.suspect.suspicion().is_some());
        self.dirty.suspicion();
    }

    fn describe(&self, suspicion: &Suspicion) -> String {
        let Suspicion { turned, of, canary, .. } = suspicion;
        let answers = match canary {
            None => "was not asked yet",
            Some(true) => "answers",
            Some(false) => "does not answer",
        };
        let (within, canary) = (humantime::format_duration(WINDOW), self.canary.label());
        format!("{turned} of {of} destinations stopped answering within {within}; {canary} {answers}")
    }
}

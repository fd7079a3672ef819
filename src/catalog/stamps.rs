//! When a tool changed, and what: from this a watch that comes back learns what it missed.

/// How many turns of availability are remembered. Of a tool that flapped more often since a reader left, it is told anew.
const FLIPS: usize = 8;

/// The revisions at which a tool changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamps {
    /// It was registered.
    born: u64,
    /// Its definition changed.
    spec: u64,
    /// What decides who may use it did: labels, their approval, owner, the operators' switch.
    access: u64,
    /// Anything that operators are shown did.
    changed: u64,
    /// It became available, or ceased to be; the newest first, 0 is none.
    flips: [u64; FLIPS],
}

/// What of a tool is not as it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Its definition.
    pub(super) spec: bool,
    /// Labels, their approval, owner, switch.
    pub(super) access: bool,
    /// Whether it is available.
    pub(super) flipped: bool,
    /// Something else that operators are shown.
    pub(super) other: bool,
}

impl Stamps {
    /// Those of a new tool.
    pub(super) fn new(revision: u64) -> Self {
        Self { born: revision, spec: revision, access: revision, changed: revision, flips: [0; FLIPS] }
    }

    /// Those after a change, as of a revision.
    pub(super) fn after(self, changes: Changes, revision: u64) -> Self {
        let Changes { spec, access, flipped, other } = changes;
        let mut next = self;
        if spec {
            next.spec = revision;
        }
        if access {
            next.access = revision;
        }
        if flipped {
            next.flips.copy_within(..FLIPS - 1, 1);
            next.flips[0] = revision;
        }
        if spec || access || flipped || other {
            next.changed = revision;
        }
        next
    }

    /// When anything that operators are shown changed last.
    pub fn changed(&self) -> u64 {
        self.changed
    }

    /// When anything changed last that decides what agents see.
    pub(super) fn shown(&self) -> u64 {
        self.spec.max(self.access).max(self.flips[0])
    }

    /// Whether there was such a tool at a revision.
    pub fn existed_at(&self, revision: u64) -> bool {
        self.born <= revision
    }

    /// Whether what decides who may use it changed after a revision.
    pub fn access_changed_after(&self, revision: u64) -> bool {
        self.access > revision
    }

    /// Whether its definition did.
    pub(super) fn spec_changed_after(&self, revision: u64) -> bool {
        self.spec > revision
    }

    /// Whether it was available at a revision at which it existed; `now`: whether it is. None: it is not known any more.
    pub(super) fn was_available_at(&self, revision: u64, now: bool) -> Option<bool> {
        let turns = self.flips.iter().filter(|flip| **flip > revision).count();
        (turns < FLIPS).then_some(now ^ (turns % 2 == 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flip() -> Changes {
        Changes { flipped: true, ..Changes::default() }
    }

    #[test]
    fn availability_is_known_as_far_back_as_turns_are() {
        let mut stamps = Stamps::new(1);
        let mut history = vec![(1, false)];
        let mut now = false;
        for revision in 2..40 {
            if revision % 3 != 0 {
                now = !now;
                stamps = stamps.after(flip(), revision);
            }
            history.push((revision, now));
            let known: Vec<_> =
                history.iter().map(|(at, was)| (stamps.was_available_at(*at, now), *was)).collect();
            assert!(
                known.iter().all(|(told, was)| told.is_none_or(|told| told == *was)),
                "at {revision}: {known:?}"
            );
            let recent = history.len().saturating_sub(FLIPS);
            assert!(known[recent..].iter().all(|(told, _)| told.is_some()), "at {revision}: {known:?}");
        }
        assert_eq!(stamps.was_available_at(1, now), None);
    }

    #[test]
    fn each_change_moves_its_own_stamp() {
        let born = Stamps::new(5);
        let other = born.after(Changes { other: true, ..Changes::default() }, 6);
        assert_eq!((other.changed(), other.shown()), (6, 5));
        let access = other.after(Changes { access: true, ..Changes::default() }, 7);
        assert_eq!((access.changed(), access.shown()), (7, 7));
        assert!(access.access_changed_after(6) && !access.spec_changed_after(6));
        assert_eq!(access.after(Changes::default(), 9), access);
        assert!(born.existed_at(5) && !born.existed_at(4));
    }
}

//! What a reader knows: one state of the server, whole.

use std::collections::{BTreeMap, BTreeSet};

use super::{Change, Item, Part};
use crate::proto::v1::Position;

/// The last state that was told, and what came of the next.
#[derive(Debug)]
pub(super) struct View<T> {
    known: BTreeMap<String, T>,
    allowed: String,
    /// Where to resume.
    position: Option<Position>,
    next: Next<T>,
}

/// Parts of a state that is not whole yet. A cut throws them away: the position is of the state before.
#[derive(Debug)]
struct Next<T> {
    /// What is not in it is gone.
    is_whole: bool,
    upserts: BTreeMap<String, T>,
    removed: BTreeSet<String>,
}

impl<T> Next<T> {
    fn new(is_whole: bool) -> Self {
        Self { is_whole, upserts: BTreeMap::new(), removed: BTreeSet::new() }
    }
}

impl<T: Item> View<T> {
    pub(super) fn new() -> Self {
        Self { known: BTreeMap::new(), allowed: String::new(), position: None, next: Next::new(true) }
    }

    /// A stream starts, at the position. Without one it starts with the whole state.
    pub(super) fn begin(&mut self) -> Option<Position> {
        self.next = Next::new(self.position.is_none());
        self.position.clone()
    }

    /// Takes a part. What changed, if a state is whole with it.
    pub(super) fn apply(&mut self, part: Part<T>) -> Option<Vec<Change<T>>> {
        if part.reset {
            self.next = Next::new(true);
        }
        for (name, item) in part.upserts {
            self.next.removed.remove(&name);
            self.next.upserts.insert(name, item);
        }
        for name in part.removed {
            self.next.upserts.remove(&name);
            self.next.removed.insert(name);
        }
        if !part.synced {
            return None;
        }
        if part.revision > 0 {
            self.position = Some(Position { epoch: part.epoch, revision: part.revision });
        }
        let mut changes = self.take_next();
        if let Some(allowed) = part.allowed.filter(|allowed| *allowed != self.allowed) {
            self.allowed.clone_from(&allowed);
            changes.push(Change::Allowed(allowed));
        }
        Some(changes)
    }

    fn take_next(&mut self) -> Vec<Change<T>> {
        let mut next = std::mem::replace(&mut self.next, Next::new(false));
        if next.is_whole {
            next.removed =
                self.known.keys().filter(|name| !next.upserts.contains_key(*name)).cloned().collect();
        }
        let mut changes = Vec::new();
        for name in next.removed {
            if self.known.remove(&name).is_some() {
                changes.push(Change::Gone(name));
            }
        }
        for (name, item) in next.upserts {
            let change = match self.known.insert(name.clone(), item.clone()) {
                None => Change::New(name, item),
                Some(before) if item.is_same(&before) => Change::Touched(name, item),
                Some(_) => Change::Changed(name, item),
            };
            changes.push(change);
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};

    fn told_of(view: &mut View<Thing>, part: Part<Thing>) -> Option<Vec<String>> {
        let told = |change: &Change<Thing>| match change {
            Change::New(name, thing) => format!("+ {name} {}", thing.text),
            Change::Changed(name, thing) => format!("~ {name} {}", thing.text),
            Change::Touched(name, thing) => format!("  {name} {}", thing.at),
            Change::Gone(name) => format!("- {name}"),
            Change::Allowed(allowed) => format!("= {allowed}"),
        };
        view.apply(part).map(|changes| changes.iter().map(told).collect())
    }

    fn revisions(view: &mut View<Thing>) -> Option<(String, u64)> {
        view.begin().map(|position| (position.epoch, position.revision))
    }

    fn some(lines: &[&str]) -> Option<Vec<String>> {
        Some(lines.iter().map(|line| (*line).to_owned()).collect())
    }

    #[test]
    fn a_view_tells_changes_only_and_whole_states_only() {
        let mut view = View::new();
        assert_eq!(view.begin(), None);
        assert_eq!(told_of(&mut view, part(&[("a", "1"), ("b", "1")], &[], 0)), None);
        assert_eq!(told_of(&mut view, part(&[("c", "1")], &[], 5)), some(&["+ a 1", "+ b 1", "+ c 1"]));
        assert_eq!(told_of(&mut view, part(&[("a", "2")], &["b", "never"], 6)), some(&["- b", "~ a 2"]));
        assert_eq!(told_of(&mut view, part(&[], &[], 7)), some(&[]), "a heartbeat");

        assert_eq!(revisions(&mut view), Some(("e".to_owned(), 7)));
        assert_eq!(told_of(&mut view, part(&[("d", "1")], &[], 8)), some(&["+ d 1"]), "resumed: a stays");
    }

    #[test]
    fn a_reset_is_told_as_the_difference_to_what_was_told() {
        let mut view = View::new();
        view.begin();
        told_of(&mut view, part(&[("a", "1"), ("b", "1"), ("c", "1")], &[], 5));
        view.begin();
        let mut reset = part(&[("a", "1@9"), ("d", "1")], &[], 0);
        reset.reset = true;
        assert_eq!(told_of(&mut view, reset), None);
        let whole = told_of(&mut view, part(&[("c", "2")], &[], 2));
        assert_eq!(whole, some(&["- b", "  a 9", "~ c 2", "+ d 1"]));
        assert_eq!(revisions(&mut view).unwrap().1, 2, "of another epoch");

        // A reset in the middle of parts: they were of a state that is no more.
        told_of(&mut view, part(&[("x", "1")], &["a"], 0));
        let mut reset = part(&[("a", "1"), ("c", "2"), ("d", "1")], &[], 4);
        reset.reset = true;
        assert_eq!(told_of(&mut view, reset), some(&["  a 0", "  c 0", "  d 0"]));
    }

    #[test]
    fn a_cut_in_the_middle_leaves_the_state_before() {
        let mut view = View::new();
        view.begin();
        told_of(&mut view, part(&[("a", "1"), ("b", "1")], &[], 0));
        assert_eq!(view.begin(), None, "nothing was whole yet");
        assert_eq!(told_of(&mut view, part(&[("a", "1")], &[], 3)), some(&["+ a 1"]));

        told_of(&mut view, part(&[("a", "2"), ("b", "1")], &[], 0));
        assert_eq!(revisions(&mut view).unwrap().1, 3);
        assert_eq!(told_of(&mut view, part(&[("a", "3")], &["b"], 9)), some(&["~ a 3"]));
    }

    #[test]
    fn the_last_word_on_a_name_counts() {
        let mut view = View::new();
        view.begin();
        told_of(&mut view, part(&[("a", "1")], &[], 1));
        told_of(&mut view, part(&[("b", "1")], &["a"], 0));
        told_of(&mut view, part(&[("a", "2")], &["b"], 0));
        assert_eq!(told_of(&mut view, part(&[], &[], 2)), some(&["~ a 2"]));
    }

    #[test]
    fn what_may_be_called_is_told_when_it_changes() {
        let mut view = View::new();
        let allowed = |text: Option<&str>, revision| {
            let mut part = part(&[], &[], revision);
            part.allowed = text.map(str::to_owned);
            part
        };
        assert_eq!(told_of(&mut view, allowed(Some("[a]"), 1)), some(&["= [a]"]));
        assert_eq!(told_of(&mut view, allowed(Some("[a]"), 2)), some(&[]));
        assert_eq!(told_of(&mut view, allowed(None, 3)), some(&[]), "a heartbeat does not say");
        assert_eq!(told_of(&mut view, allowed(Some("[]"), 4)), some(&["= []"]));
    }
}

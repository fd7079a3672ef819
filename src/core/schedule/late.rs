//! Where time or room runs short, and no target is to blame: the server itself came late, or too many do not answer at once.

use std::time::Duration;

use super::{Lane, MAX_IN_FLIGHT, Place, Schedule, TargetId};
use crate::core::time::Moment;

/// Where one that answered last time waits for a slot, others of its lane yield theirs after this: those that stopped answering
/// are in the same lane until the first of them is found out, and would hold it for their whole timeout. So long is how long
/// each of 10,000 may take, every 10 s, with the slots that are kept for the living alone.
pub const PATIENCE: Duration = Duration::from_millis(250);

impl Schedule {
    /// The server was late: plans anew what is overdue at `now`, spread over twice that time, as all at once would be a burst.
    /// Gives those targets and the ones in flight, with the moment from which their next result may be expected.
    pub fn catch_up(&mut self, late: Duration, now: Moment) -> Vec<(TargetId, Moment)> {
        let mut expected = Vec::new();
        for (id, target) in &mut self.targets {
            match target.place {
                Place::Flying { .. } => expected.push((*id, now)),
                // Newcomers have a lane that bounds them.
                Place::Waiting(due) if due <= now && target.lane != Lane::New => {
                    target.owed.get_or_insert(due);
                    let over = (late * 2).min(target.interval() / 2);
                    expected.push((*id, now + over.mul_f64(target.part())));
                }
                Place::Waiting(_) | Place::Queued => {}
            }
        }
        for (id, start) in &expected {
            if self.targets.get(id).is_some_and(|target| target.owed.is_some()) {
                self.wait(*id, *start);
            }
        }
        expected
    }

    /// Ends a run whose end was noticed late as if it had never started: what it says is the server's fault. The target is due
    /// at once. False if it was forgiven so the last time too: then it counts.
    pub fn forgive(&mut self, id: TargetId, now: Moment) -> bool {
        let Some(target) = self.targets.get_mut(&id) else { return false };
        let flies = matches!(target.place, Place::Flying { .. });
        if !flies || std::mem::replace(&mut target.forgiven, true) {
            return false;
        }
        self.give_up(id, now);
        true
    }

    /// Makes room for targets that answered last time and wait for a slot: the oldest runs of that lane yield theirs. They do not
    /// count, and begin again among the doubtful, with their whole timeout. Gives the runs to cancel.
    pub fn make_room(&mut self, now: Moment) -> Vec<TargetId> {
        self.enqueue_due(now);
        let mut yielded = Vec::new();
        let free = MAX_IN_FLIGHT.saturating_sub(self.in_flight.iter().sum());
        let queued = |id: &&TargetId| self.targets.get(*id).is_some_and(|t| t.place == Place::Queued);
        let lane = &self.lanes[Lane::Live as usize];
        let waiting = if lane.len() > free { lane.iter().filter(queued).count() } else { 0 };
        while free + yielded.len() < waiting
            && let Some((started, id)) = self.oldest_live()
            && now.since(started) >= PATIENCE
        {
            if let Some(target) = self.targets.get_mut(&id) {
                target.lane = Lane::Suspect;
            }
            self.give_up(id, now);
            yielded.push(id);
        }
        yielded
    }

    /// When a run has to yield its slot to one that waits.
    pub fn next_yield(&mut self) -> Option<Moment> {
        let is_full = self.in_flight.iter().sum::<usize>() >= MAX_IN_FLIGHT;
        let waits = is_full && !self.lanes[Lane::Live as usize].is_empty();
        let (started, _) = self.oldest_live()?;
        waits.then(|| started + PATIENCE)
    }

    /// The oldest run in flight of a target that answered last time.
    fn oldest_live(&mut self) -> Option<(Moment, TargetId)> {
        while let Some(&(started, id)) = self.live_flights.front() {
            let flies = self.targets.get(&id).is_some_and(|target| {
                matches!(target.place, Place::Flying { lane: Lane::Live, .. })
                    && target.started == Some(started)
            });
            if flies {
                return Some((started, id));
            }
            self.live_flights.pop_front();
        }
        None
    }
}

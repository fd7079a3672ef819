//! Writes: judged against the durable state, stored in groups, made true when the store answered.

use std::{collections::BTreeSet, fmt, future::Future, pin::Pin, sync::Arc};

use tokio::sync::oneshot;

use super::{
    Owner,
    command::{Cleared, Command, RegisterAnswer, Registering, Reply, Unregistering},
};
use crate::{
    core::{
        availability::ProbeState,
        name::ToolKey,
        policy::Disabled,
        refusal::Refusal,
        registry::{
            Expired,
            plan::{Collision, Plan, Planned, Registered, Registration, Unregistered},
        },
        tool::StoredTool,
    },
    store::{Change, Commit, StoreError},
};

/// Commands that are stored in one commit. One fsync serves them all.
const MAX_GROUP: usize = 256;
/// A group that changes this many tools takes no further command: a commit should not keep others waiting.
const MAX_CHANGES: usize = 2_000;
/// Names in conflict that are remembered.
const MAX_COLLISIONS: usize = 1_000;

type Answer = Result<(), StoreError>;
/// Tells a caller how it went, with the revision that shows it.
pub(super) type Finish = Box<dyn FnOnce(Result<u64, Refusal>) + Send>;

/// A group of writes that the store has.
pub(super) struct CommitInFlight {
    answer: Pin<Box<dyn Future<Output = Answer> + Send>>,
    planned: Planned,
    finishes: Vec<Finish>,
}

/// A group of writes that the store answered.
pub(super) struct Committed {
    answer: Answer,
    planned: Planned,
    finishes: Vec<Finish>,
}

impl CommitInFlight {
    /// Waits for the store. Dropping the future loses nothing.
    pub(super) async fn answer(&mut self) -> Answer {
        (&mut self.answer).await
    }

    pub(super) fn done(self, answer: Answer) -> Committed {
        Committed { answer, planned: self.planned, finishes: self.finishes }
    }

    pub(super) async fn wait(mut self) -> Committed {
        let answer = self.answer().await;
        self.done(answer)
    }
}

impl fmt::Debug for CommitInFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommitInFlight").field("changes", &self.planned.changes.len()).finish_non_exhaustive()
    }
}

impl Owner {
    /// Hands the next group of writes to the store, unless it still has one.
    pub(super) fn start_commit(&mut self) {
        while self.commit.is_none() && !self.waiting.is_empty() {
            let now_ms = self.clock.wall_ms(self.clock.now());
            let catalog = self.publisher.current();
            let builtin = |key: &ToolKey| catalog.is_builtin(key);
            let mut plan = Plan::new(&self.registry, self.generation, now_ms);
            let mut finishes: Vec<Finish> = Vec::new();
            while finishes.len() < MAX_GROUP
                && plan.len() < MAX_CHANGES
                && let Some(command) = self.waiting.pop_front()
            {
                finishes.extend(judge(&mut plan, command, &builtin));
            }
            let planned = plan.finish();
            self.note_collisions(&planned.collisions);
            if planned.is_empty() {
                self.dirty.finish_later(finishes);
                continue;
            }
            let commit = Commit { changes: rows(&planned), generation: planned.generation };
            let answer = Box::pin(self.store.commit(commit));
            self.commit = Some(CommitInFlight { answer, planned, finishes });
        }
    }

    /// Makes a stored group true.
    pub(super) fn committed(&mut self, done: Committed) {
        let Committed { answer, planned, finishes } = done;
        if let Err(error) = answer {
            tracing::warn!(%error, writes = finishes.len(), "the store refused writes");
            for finish in finishes {
                finish(Err(Refusal::StoreUnavailable { message: error.to_string() }));
            }
            return;
        }
        let now = self.clock.now();
        self.generation = self.generation.max(planned.generation);
        for (key, change) in planned.changes {
            let cancelled = match change {
                Some((tool, mapped)) => self.registry.put(tool, mapped, |_, _| ProbeState::pending(), now),
                None => self.registry.remove(&key),
            };
            for id in cancelled {
                self.cancel_run(id);
            }
            self.settle_with(&key);
            self.dirty.tool(key);
        }
        for (key, policy) in planned.policies {
            let set = policy.is_some();
            tracing::info!(namespace = %key.0, agent = %key.1, set, "an agent's policy changed");
            self.dirty.policy(key.clone());
            self.registry.access.set_policy(key, policy);
        }
        for (key, disabled) in planned.switches {
            let enabled = disabled.is_none();
            tracing::info!(tool = %key, enabled, "an operator threw a tool's switch");
            self.dirty.tool(key.clone());
            if enabled {
                self.registry.restart_expiry(&key, now);
            }
            self.registry.access.set_switch(key, disabled);
        }
        self.drop_waiters();
        self.dirty.revision_moves();
        self.dirty.finish_later(finishes);
    }

    fn note_collisions(&mut self, new: &[Collision]) {
        if new.is_empty() {
            return;
        }
        self.collisions.retain(|c| !new.contains(c));
        self.collisions.extend(new.iter().cloned());
        let excess = self.collisions.len().saturating_sub(MAX_COLLISIONS);
        self.collisions.drain(..excess);
        self.dirty.collisions();
    }
}

/// The rows that a plan changes.
fn rows(planned: &Planned) -> Vec<Change> {
    let tools = planned.changes.iter().map(|(key, change)| match change {
        Some((tool, _)) => Change::Put(StoredTool::clone(tool)),
        None => Change::Delete(key.clone()),
    });
    let policies = planned.policies.iter().map(|((namespace, agent), change)| match change {
        Some(policy) => Change::PutPolicy(policy.clone()),
        None => Change::DeletePolicy(namespace.clone(), agent.clone()),
    });
    let switches = planned.switches.iter().map(|(key, change)| match change {
        Some(disabled) => Change::PutSwitch(key.clone(), Disabled::clone(disabled)),
        None => Change::DeleteSwitch(key.clone()),
    });
    tools.chain(policies).chain(switches).collect()
}

/// Judges one command; gives what tells its caller.
fn judge(plan: &mut Plan<'_>, command: Command, builtin: &dyn Fn(&ToolKey) -> bool) -> Option<Finish> {
    Some(match command {
        Command::Register(registering, reply) => register(plan, registering, reply),
        Command::Declare(tools, reply) => declare(plan, tools, reply),
        Command::Unregister(unregistering, reply) => unregister(plan, unregistering, reply),
        Command::Clear(namespace, owner, reply) => {
            let count = plan.clear(&namespace, owner.as_deref());
            finish(reply, move |revision| Cleared { count, revision, ..Cleared::default() })
        }
        Command::SetPolicy(policy, over, reply) => judged(plan.put_policy(policy, &over), reply),
        Command::DeletePolicy(key, etag, reply) => judged(plan.delete_policy(key, &etag), reply),
        Command::Switch(key, off, reply) => {
            let builtin = builtin(&key);
            judged(plan.switch(key, off, builtin), reply)
        }
        Command::ApproveLabels(key, reply) => judged(plan.approve_labels(&key), reply),
        Command::Expire(expired) => {
            let gone: Vec<Expired> = expired.into_iter().filter(|tool| plan.expire(tool)).collect();
            Box::new(move |stored| match stored {
                Ok(_) => gone.iter().for_each(log_expired),
                Err(refusal) => tracing::warn!(
                    %refusal, tools = gone.len(), "tools that are to be unregistered stay for now"
                ),
            })
        }
        // Never queued: these are no writes.
        Command::Probe { .. } | Command::Report { .. } | Command::Gateway(_) | Command::Started => {
            return None;
        }
    })
}

fn log_expired(Expired { key, owner, after, .. }: &Expired) {
    let after = humantime::format_duration(*after);
    tracing::warn!(tool = %key, %owner, unregister_after = %after, "a tool was unavailable for too long and is unregistered");
}

fn register(plan: &mut Plan<'_>, registering: Registering, reply: Reply<RegisterAnswer>) -> Finish {
    let Registering { items, all_or_nothing, validate_only } = registering;
    let mut trial = (all_or_nothing || validate_only).then(|| plan.clone());
    let target = trial.as_mut().unwrap_or(plan);
    let mut results: Vec<Result<(Registered, Arc<StoredTool>), Refusal>> =
        items.into_iter().map(|item| item.and_then(|wanted| target.register(wanted))).collect();
    let failed = results.iter().any(Result::is_err);
    if let Some(trial) = trial {
        if all_or_nothing && failed {
            plan.keep_collisions(trial);
            for result in results.iter_mut().filter(|r| r.is_ok()) {
                *result = Err(Refusal::BatchRejected);
            }
        } else if !validate_only {
            *plan = trial;
        }
    }
    finish(reply, move |revision| RegisterAnswer { results, revision })
}

fn declare(plan: &mut Plan<'_>, tools: Vec<Registration>, reply: Reply<RegisterAnswer>) -> Finish {
    let declared: BTreeSet<ToolKey> = tools.iter().map(Registration::key).collect();
    plan.retain_manifest(&declared);
    let results = tools.into_iter().map(|wanted| plan.register(wanted)).collect();
    finish(reply, move |revision| RegisterAnswer { results, revision })
}

fn unregister(plan: &mut Plan<'_>, unregistering: Unregistering, reply: Reply<Cleared>) -> Finish {
    let Unregistering { keys, owner, force } = unregistering;
    let mut cleared = Cleared::default();
    for key in keys {
        let list = match plan.unregister(&key, &owner, force) {
            Unregistered::Gone => &mut cleared.unregistered,
            Unregistered::NotFound => &mut cleared.not_found,
            Unregistered::Denied => &mut cleared.denied,
        };
        list.push(key);
    }
    finish(reply, move |revision| Cleared { revision, ..cleared })
}

/// A write that is planned, or refused; the refusal waits with the others, for it may rest on what they change.
fn judged(outcome: Result<(), Refusal>, reply: Reply<u64>) -> Finish {
    Box::new(move |stored| drop(reply.send(stored.and_then(|revision| outcome.map(|()| revision)))))
}

fn finish<T: Send + 'static>(
    reply: oneshot::Sender<Result<T, Refusal>>,
    answer: impl FnOnce(u64) -> T + Send + 'static,
) -> Finish {
    // A caller that went away is no loss: the write stands.
    Box::new(move |outcome| drop(reply.send(outcome.map(answer))))
}

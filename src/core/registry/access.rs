//! What operators say: the agents' policies, and the tools that are switched off. Neither goes with a tool, and neither moves
//! its availability.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{MAX_TOOLS_PER_NAMESPACE, plan::Plan};
use crate::core::{
    name::{Namespace, ToolKey},
    policy::{AgentId, Disabled, MAX_POLICIES, Policy},
    refusal::Refusal,
};

/// Names one policy.
pub type PolicyKey = (Namespace, AgentId);
/// Each changed policy: the new one, or none if it is deleted.
pub type PolicyChanges = BTreeMap<PolicyKey, Option<Policy>>;
/// Each changed switch: the new one, or none if the tool is on again.
pub type SwitchChanges = BTreeMap<ToolKey, Option<Arc<Disabled>>>;

/// What a new policy may be put over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Over {
    /// Whatever is there, or nothing.
    #[default]
    Any,
    /// Nothing: the agent has no policy.
    Nothing,
    /// The policy with this etag.
    Etag(String),
}

/// All policies and switches.
#[derive(Debug, Default)]
pub struct Access {
    policies: BTreeMap<PolicyKey, Policy>,
    counts: HashMap<Namespace, usize>,
    switches: BTreeMap<ToolKey, Arc<Disabled>>,
}

impl Access {
    /// The switch of a tool; none if it is on.
    pub fn disabled(&self, key: &ToolKey) -> Option<&Arc<Disabled>> {
        self.switches.get(key)
    }

    /// An agent's policy.
    pub fn policy(&self, key: &PolicyKey) -> Option<&Policy> {
        self.policies.get(key)
    }

    /// Makes a changed policy true.
    pub fn set_policy(&mut self, key: PolicyKey, policy: Option<Policy>) {
        let count = self.counts.entry(key.0.clone()).or_default();
        let was_there = match policy {
            Some(policy) => {
                *count += 1;
                self.policies.insert(key, policy)
            }
            None => self.policies.remove(&key),
        };
        *count -= usize::from(was_there.is_some());
    }

    /// Makes a changed switch true.
    pub fn set_switch(&mut self, key: ToolKey, disabled: Option<Arc<Disabled>>) {
        match disabled {
            Some(disabled) => self.switches.insert(key, disabled),
            None => self.switches.remove(&key),
        };
    }

    fn count(&self, namespace: &Namespace) -> usize {
        self.counts.get(namespace).copied().unwrap_or(0)
    }
}

impl Plan<'_> {
    /// Plans to put a policy in.
    ///
    /// # Errors
    /// It may not be put over what is in force, or the namespace is full.
    pub fn put_policy(&mut self, policy: Policy, over: &Over) -> Result<(), Refusal> {
        let key = (policy.namespace.clone(), policy.agent.clone());
        let before = self.policy(&key);
        match (over, before) {
            (Over::Any, _) | (Over::Nothing, None) => {}
            (Over::Nothing, Some(before)) => {
                let (agent_id, current) = (key.1.to_string(), before.etag());
                return Err(Refusal::PolicyExists { agent_id, current });
            }
            (Over::Etag(etag), _) => check_etag(&key.1, before, etag)?,
        }
        if before.is_none() {
            let stored = self.registry.access.count(&key.0);
            let changed = self.policies.iter().filter(|(at, _)| at.0 == key.0);
            let added =
                changed.filter(|(at, new)| new.is_some() && self.registry.access.policy(at).is_none());
            if stored + added.count() >= MAX_POLICIES {
                return Err(Refusal::Exhausted {
                    reason: "TOO_MANY_POLICIES",
                    what: format!("policies in namespace '{}'", key.0),
                    limit: MAX_POLICIES as u64,
                });
            }
        }
        if before != Some(&policy) {
            self.policies.insert(key, Some(policy));
        }
        Ok(())
    }

    /// Plans to delete a policy. With an etag: only if that is the etag of the policy in force.
    ///
    /// # Errors
    /// There is none, or the policy in force is another one.
    pub fn delete_policy(&mut self, key: PolicyKey, etag: &str) -> Result<(), Refusal> {
        let before = self.policy(&key);
        if before.is_none() {
            let (namespace, agent_id) = (key.0.to_string(), key.1.to_string());
            return Err(Refusal::PolicyNotFound { namespace, agent_id });
        }
        check_etag(&key.1, before, etag)?;
        self.policies.insert(key, None);
        Ok(())
    }

    /// Plans to switch a tool off, for a reason, or on again. `builtin`: it is there without being registered.
    ///
    /// # Errors
    /// There is no such tool, or too many are switched off.
    pub fn switch(&mut self, key: ToolKey, off: Option<Arc<str>>, builtin: bool) -> Result<(), Refusal> {
        if !builtin && self.get(&key).is_none() {
            return Err(super::not_found(&key));
        }
        let before = match self.switches.get(&key) {
            Some(changed) => changed.as_ref(),
            None => self.registry.access.switches.get(&key),
        };
        let unchanged = match (&off, before) {
            (None, None) => true,
            (Some(message), Some(before)) => *message == before.message,
            _ => false,
        };
        if unchanged {
            return Ok(());
        }
        // One that says another reason was off since then all the same.
        let since_ms = before.map_or(self.now_ms, |before| before.since_ms);
        // A switch outlives its tool, so the bound on tools does not bound them.
        if off.is_some() && before.is_none() && self.registry.access.switches.len() >= MAX_SWITCHES {
            return Err(Refusal::Exhausted {
                reason: "TOO_MANY_DISABLED",
                what: "tools that are disabled".to_owned(),
                limit: MAX_SWITCHES as u64,
            });
        }
        let off = off.map(|message| Arc::new(Disabled { message, since_ms }));
        self.switches.insert(key, off);
        Ok(())
    }

    fn policy(&self, key: &PolicyKey) -> Option<&Policy> {
        match self.policies.get(key) {
            Some(changed) => changed.as_ref(),
            None => self.registry.access.policy(key),
        }
    }
}

/// Most tools that are switched off, in all namespaces.
const MAX_SWITCHES: usize = MAX_TOOLS_PER_NAMESPACE;

fn check_etag(agent: &AgentId, before: Option<&Policy>, given: &str) -> Result<(), Refusal> {
    let current = before.map(Policy::etag).unwrap_or_default();
    if given.is_empty() || given == current {
        return Ok(());
    }
    Err(Refusal::EtagMismatch { agent_id: agent.to_string(), given: given.to_owned(), current })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{availability::Defaults, name::ToolName, policy::Rules, registry::Registry};

    fn policy(agent: &str, max_tools: u32) -> Policy {
        let rules = Arc::new(Rules { max_tools, ..Rules::default() });
        Policy { namespace: Namespace::default(), agent: AgentId::parse(agent).unwrap(), rules }
    }

    fn etag(text: &str) -> Over {
        Over::Etag(text.to_owned())
    }

    fn apply(registry: &mut Registry, judge: impl FnOnce(&mut Plan<'_>)) -> usize {
        let mut plan = Plan::new(registry, 0, 5);
        judge(&mut plan);
        let planned = plan.finish();
        let changes = planned.policies.len() + planned.switches.len();
        for (key, policy) in planned.policies {
            registry.access.set_policy(key, policy);
        }
        for (key, off) in planned.switches {
            registry.access.set_switch(key, off);
        }
        changes
    }

    #[test]
    fn an_etag_guards_what_was_read() {
        let mut registry = Registry::new(Defaults::default());
        let (one, two, three) = (policy("a", 1), policy("a", 2), policy("a", 3));
        apply(&mut registry, |plan| {
            assert!(matches!(
                plan.put_policy(one.clone(), &etag("x")),
                Err(Refusal::EtagMismatch { current, .. }) if current.is_empty()
            ));
            plan.put_policy(one.clone(), &Over::Nothing).unwrap();
            // Within one group of writes as well.
            let refused = plan.put_policy(one.clone(), &Over::Nothing).unwrap_err();
            assert!(matches!(refused, Refusal::PolicyExists { current, .. } if current == one.etag()));
            plan.put_policy(two.clone(), &etag(&one.etag())).unwrap();
            let refused = plan.put_policy(three.clone(), &etag(&one.etag()));
            assert!(matches!(refused, Err(Refusal::EtagMismatch { .. })));
        });
        assert_eq!(registry.access.policy(&(Namespace::default(), two.agent.clone())), Some(&two));
        assert_eq!(
            apply(&mut registry, |plan| plan.put_policy(two.clone(), &Over::Any).unwrap()),
            0,
            "unchanged"
        );
        let key = || (Namespace::default(), AgentId::parse("a").unwrap());
        apply(&mut registry, |plan| {
            assert!(matches!(plan.delete_policy(key(), &one.etag()), Err(Refusal::EtagMismatch { .. })));
            plan.delete_policy(key(), &two.etag()).unwrap();
            assert!(matches!(plan.delete_policy(key(), ""), Err(Refusal::PolicyNotFound { .. })));
        });
        assert_eq!(registry.access.policy(&key()), None);
        assert_eq!(registry.access.count(&Namespace::default()), 0);
    }

    #[test]
    fn a_namespace_holds_so_many_policies() {
        let mut registry = Registry::new(Defaults::default());
        apply(&mut registry, |plan| {
            for n in 0..MAX_POLICIES - 1 {
                plan.policies.insert(
                    (Namespace::default(), AgentId::parse(&format!("a{n}")).unwrap()),
                    Some(policy("x", 0)),
                );
            }
        });
        apply(&mut registry, |plan| {
            plan.put_policy(policy("last", 0), &Over::Any).unwrap();
            let refused = plan.put_policy(policy("more", 0), &Over::Any).unwrap_err();
            assert!(matches!(refused, Refusal::Exhausted { reason: "TOO_MANY_POLICIES", .. }), "{refused}");
            plan.put_policy(policy("a1", 7), &Over::Any).unwrap();
        });
        assert_eq!(registry.access.count(&Namespace::default()), MAX_POLICIES);
    }

    #[test]
    fn a_switch_keeps_when_it_was_thrown() {
        let mut registry = Registry::new(Defaults::default());
        let key = ToolKey { namespace: Namespace::default(), name: ToolName::parse("a").unwrap() };
        apply(&mut registry, |plan| {
            assert!(matches!(plan.switch(key.clone(), None, false), Err(Refusal::ToolNotFound { .. })));
            plan.switch(key.clone(), Some("why".into()), true).unwrap();
        });
        let mut plan = Plan::new(&registry, 0, 9);
        plan.switch(key.clone(), Some("because".into()), true).unwrap();
        let off = plan.finish().switches.remove(&key).unwrap().unwrap();
        assert_eq!((&*off.message, off.since_ms), ("because", 5));
        assert_eq!(apply(&mut registry, |plan| plan.switch(key.clone(), None, true).unwrap()), 1);
        assert_eq!(apply(&mut registry, |plan| plan.switch(key.clone(), None, true).unwrap()), 0);
    }
}

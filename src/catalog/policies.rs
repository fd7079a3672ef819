//! The agents' policies as readers see them.

use std::{
    ops::Bound::{Excluded, Unbounded},
    sync::Arc,
};

use super::Catalog;
use crate::core::{
    name::Namespace,
    policy::{AgentId, DefaultPolicy, Policy, Rules},
    registry::access::PolicyKey,
};

/// A policy, ready for use.
#[derive(Debug)]
pub(super) struct PolicyEntry {
    /// As it was stored.
    pub(super) policy: Policy,
    /// What it does to a single tool.
    pub(super) rules: SharedRules,
}

/// Rules in the form that is equal for all policies that do the same to a single tool.
#[derive(Clone, Debug)]
pub(super) struct SharedRules {
    /// Without a budget.
    pub(super) rules: Arc<Rules>,
    /// Names their content.
    pub(super) digest: u128,
}

impl SharedRules {
    fn new(rules: Rules) -> Self {
        let rules = match rules.deny_all {
            true => Rules::nothing(),
            false => Rules { max_tools: 0, ..rules },
        };
        let digest = rules.digest();
        Self { rules: Arc::new(rules), digest }
    }
}

/// What applies without a policy.
pub(super) fn without_policy(default: DefaultPolicy) -> SharedRules {
    SharedRules::new(match default {
        DefaultPolicy::Allow => Rules::default(),
        DefaultPolicy::Deny => Rules::nothing(),
    })
}

impl Catalog {
    /// An agent's policy.
    pub fn policy(&self, namespace: &Namespace, agent: &AgentId) -> Option<&Policy> {
        self.policies.get(&(namespace.clone(), agent.clone())).map(|entry| &entry.policy)
    }

    /// The policies of a namespace whose agents' ids are greater than `after`, sorted by id.
    pub fn policies_after<'a>(
        &'a self,
        namespace: &'a Namespace,
        after: AgentId,
    ) -> impl Iterator<Item = &'a Policy> {
        self.policies
            .range((Excluded((namespace.clone(), after)), Unbounded))
            .take_while(move |((at, _), _)| at == namespace)
            .map(|(_, entry)| &entry.policy)
    }

    /// Puts a policy in, or takes it out. Lists are kept by content, so none of them goes.
    pub fn set_policy(&mut self, key: PolicyKey, policy: Option<Policy>) {
        self.rules_changed = self.revision;
        match policy {
            Some(policy) => {
                let rules = SharedRules::new(Rules::clone(&policy.rules));
                self.policies.insert_mut(key, Arc::new(PolicyEntry { policy, rules }));
            }
            None => {
                self.policies.remove_mut(&key);
            }
        }
    }
}

//! The store without a disk: the same rules on maps.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    Change, Loaded, SavedGateway, SavedSuccess, Soft, Stamp, StoreError, Write,
    stamp::{age, boot_id},
};
use crate::core::{
    name::{Namespace, ToolKey},
    policy::{AgentId, Disabled, Policy, Rules},
    tool::StoredTool,
};

/// All state.
#[derive(Debug, Default)]
pub(super) struct Memory {
    tools: BTreeMap<ToolKey, StoredTool>,
    successes: BTreeMap<ToolKey, BTreeMap<Arc<str>, Success>>,
    gateways: BTreeMap<(Namespace, String), String>,
    policies: BTreeMap<(Namespace, AgentId), Arc<Rules>>,
    switches: BTreeMap<ToolKey, Disabled>,
    generation: u64,
    revision: u64,
    closed: bool,
}

#[derive(Debug)]
struct Success {
    generation: u64,
    at: Stamp,
    ttl: Option<Duration>,
}

impl Memory {
    /// Does one write.
    pub(super) fn write(&mut self, write: &Write) -> Result<(), StoreError> {
        if self.closed {
            return Err(StoreError::Closed);
        }
        match write {
            Write::Commit(commit) => {
                self.generation = self.generation.max(commit.generation);
                for change in &commit.changes {
                    self.change(change);
                }
            }
            Write::Soft(changes) => changes.iter().for_each(|change| self.soft(change)),
            Write::Reserve(up_to) => self.revision = self.revision.max(*up_to),
        }
        Ok(())
    }

    /// Everything, as a start would load it.
    pub(super) fn load(&self) -> Result<Loaded, StoreError> {
        if self.closed {
            return Err(StoreError::Closed);
        }
        let now = Stamp::now();
        let mut successes = Vec::new();
        for (key, of_tool) in &self.successes {
            successes.extend(of_tool.iter().map(|(probe, success)| SavedSuccess {
                key: key.clone(),
                generation: success.generation,
                probe: probe.clone(),
                age: age(success.at, boot_id(), now, boot_id()),
                ttl: success.ttl,
            }));
        }
        let gateway = |((namespace, id), snapshot): (&(Namespace, String), &String)| SavedGateway {
            namespace: namespace.clone(),
            gateway_id: id.clone(),
            snapshot_json: snapshot.clone(),
        };
        let policy = |((namespace, agent), rules): (&(Namespace, AgentId), &Arc<Rules>)| Policy {
            namespace: namespace.clone(),
            agent: agent.clone(),
            rules: Arc::clone(rules),
        };
        Ok(Loaded {
            tools: self.tools.values().cloned().collect(),
            generation: self.generation,
            revision: self.revision,
            successes,
            gateways: self.gateways.iter().map(gateway).collect(),
            policies: self.policies.iter().map(policy).collect(),
            switches: self.switches.iter().map(|(key, off)| (key.clone(), off.clone())).collect(),
        })
    }

    /// Refuses everything from now on.
    pub(super) fn close(&mut self) {
        *self = Self { closed: true, ..Self::default() };
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Put(tool) => {
                self.generation = self.generation.max(tool.generation);
                if let Some(of_tool) = self.successes.get_mut(&tool.key) {
                    of_tool.retain(|_, success| success.generation == tool.generation);
                }
                self.tools.insert(tool.key.clone(), tool.clone());
            }
            Change::Delete(key) => {
                self.successes.remove(key);
                self.tools.remove(key);
            }
            Change::PutPolicy(Policy { namespace, agent, rules }) => {
                self.policies.insert((namespace.clone(), agent.clone()), Arc::clone(rules));
            }
            Change::DeletePolicy(namespace, agent) => {
                self.policies.remove(&(namespace.clone(), agent.clone()));
            }
            Change::PutSwitch(key, disabled) => {
                self.switches.insert(key.clone(), disabled.clone());
            }
            Change::DeleteSwitch(key) => {
                self.switches.remove(key);
            }
        }
    }

    fn soft(&mut self, change: &Soft) {
        match change {
            Soft::Success { key, generation, probe, at, ttl } => {
                if self.tools.get(key).is_some_and(|tool| tool.generation == *generation) {
                    let success = Success { generation: *generation, at: *at, ttl: *ttl };
                    self.successes.entry(key.clone()).or_default().insert(probe.clone(), success);
                }
            }
            Soft::ClearSuccess { key, probe } => {
                if let Some(of_tool) = self.successes.get_mut(key) {
                    of_tool.remove(probe);
                }
            }
            Soft::Gateway(gateway) => {
                let key = (gateway.namespace.clone(), gateway.gateway_id.clone());
                self.gateways.insert(key, gateway.snapshot_json.clone());
            }
            Soft::DropGateway { namespace, gateway_id } => {
                self.gateways.remove(&(namespace.clone(), gateway_id.clone()));
            }
        }
    }
}

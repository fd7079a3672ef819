//! Judges writes before they are stored: who may change what, and which rows that is.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    MAX_TOOLS_PER_NAMESPACE, Registry,
    access::{PolicyChanges, SwitchChanges},
};
use crate::core::{
    name::{Namespace, ToolKey, ToolName},
    refusal::Refusal,
    tool::{StoredTool, ToolSpec, same_spec},
};

/// A valid spec that somebody wants to register.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Where.
    pub namespace: Namespace,
    /// What.
    pub spec: Arc<ToolSpec>,
    /// The spec's hash, without its labels.
    pub spec_hash: Arc<str>,
    /// The names that formats show instead of the tool's own.
    pub mapped_names: Vec<String>,
    /// Who.
    pub owner: Arc<str>,
    /// Replace a different spec.
    pub overwrite: bool,
    /// With `overwrite`: replace another owner's.
    pub force: bool,
    /// Declared by the server's manifest.
    pub from_manifest: bool,
}

impl Registration {
    /// Whether it would change nothing but labels of a tool.
    fn is_spec_of(&self, stored: &StoredTool) -> bool {
        same_spec((&self.spec_hash, &self.spec), (&stored.spec_hash, &stored.spec))
    }

    /// The tool's key.
    pub fn key(&self) -> ToolKey {
        ToolKey { namespace: self.namespace.clone(), name: self.spec.name.clone() }
    }
}

/// What a registration does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    /// The name is new.
    Created,
    /// It was there already.
    Unchanged,
    /// It is another one now, or has other labels.
    Replaced,
}

/// What an unregistration does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unregistered {
    /// It goes.
    Gone,
    /// It was not there.
    NotFound,
    /// It is somebody else's, or the manifest's.
    Denied,
}

/// A name that two owners want.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Collision {
    /// The tool.
    pub key: ToolKey,
    /// Who holds it.
    pub owner: Arc<str>,
    /// Who offered it as well.
    pub offered_by: Arc<str>,
}

/// Each changed tool: its new row and mapped names, or none if it is deleted.
pub type Changes = BTreeMap<ToolKey, Option<(Arc<StoredTool>, Vec<String>)>>;

/// Rows to change, judged against the registry and against what the plan itself changes already.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    pub(super) registry: &'a Registry,
    changes: Changes,
    pub(super) policies: PolicyChanges,
    pub(super) switches: SwitchChanges,
    added: BTreeMap<Namespace, i64>,
    mapped: BTreeMap<(Namespace, String), ToolName>,
    generation: u64,
    pub(super) now_ms: i64,
    collisions: Vec<Collision>,
}

/// The outcome of a plan.
#[derive(Clone, Debug, Default)]
pub struct Planned {
    /// Tools that change.
    pub changes: Changes,
    /// Policies that change.
    pub policies: PolicyChanges,
    /// Switches that change.
    pub switches: SwitchChanges,
    /// The highest generation given out so far.
    pub generation: u64,
    /// Names that were refused because another owner holds them.
    pub collisions: Vec<Collision>,
}

impl Planned {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.policies.is_empty() && self.switches.is_empty()
    }
}

impl<'a> Plan<'a> {
    /// An empty plan. `generation` is the highest given out so far; `now_ms` the wall time of its rows.
    pub fn new(registry: &'a Registry, generation: u64, now_ms: i64) -> Self {
        Self {
            registry,
            changes: BTreeMap::new(),
            policies: BTreeMap::new(),
            switches: BTreeMap::new(),
            added: BTreeMap::new(),
            mapped: BTreeMap::new(),
            generation,
            now_ms,
            collisions: Vec::new(),
        }
    }

    /// Ends planning.
    pub fn finish(self) -> Planned {
        let Self { changes, policies, switches, generation, collisions, .. } = self;
        Planned { changes, policies, switches, generation, collisions }
    }

    /// How many rows change.
    pub fn len(&self) -> usize {
        self.changes.len() + self.policies.len() + self.switches.len()
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes over nothing but the collisions of a trial that is given up.
    pub fn keep_collisions(&mut self, trial: Self) {
        self.collisions = trial.collisions;
    }

    /// The tool as it will be.
    pub fn get(&self, key: &ToolKey) -> Option<&Arc<StoredTool>> {
        match self.changes.get(key) {
            Some(changed) => changed.as_ref().map(|(tool, _)| tool),
            None => self.registry.get(key).map(|entry| &entry.stored),
        }
    }

    /// Plans a registration.
    ///
    /// # Errors
    /// The name is taken, belongs to somebody else, equals another's mapped name, or the namespace is full.
    pub fn register(&mut self, wanted: Registration) -> Result<(Registered, Arc<StoredTool>), Refusal> {
        let key = wanted.key();
        let before = self.get(&key).cloned();
        let Some(before) = before else {
            self.check_room(&key.namespace)?;
            self.check_mapped(&wanted)?;
            let generation = self.next_generation();
            let tool = self.row(&wanted, generation, None);
            *self.added.entry(key.namespace.clone()).or_default() += 1;
            for mapped in &wanted.mapped_names {
                self.mapped.insert((key.namespace.clone(), mapped.clone()), key.name.clone());
            }
            self.changes.insert(key, Some((Arc::clone(&tool), wanted.mapped_names)));
            return Ok((Registered::Created, tool));
        };
        self.check_owner(&wanted, &before)?;
        let same_spec = wanted.is_spec_of(&before) && before.owner == wanted.owner;
        let taken_over = wanted.from_manifest && !before.from_manifest;
        if same_spec && before.spec.labels == wanted.spec.labels && !taken_over {
            return Ok((Registered::Unchanged, before));
        }
        let generation = if same_spec { before.generation } else { self.next_generation() };
        let tool = self.row(&wanted, generation, Some(&before));
        self.changes.insert(key, Some((Arc::clone(&tool), wanted.mapped_names)));
        Ok((Registered::Replaced, tool))
    }

    /// Plans to approve a tool's labels as they are.
    ///
    /// # Errors
    /// There is no such tool.
    pub fn approve_labels(&mut self, key: &ToolKey) -> Result<(), Refusal> {
        let tool = self.get(key).ok_or_else(|| super::not_found(key))?;
        if tool.approved.is_none() {
            return Ok(());
        }
        let tool = Arc::new(StoredTool { approved: None, ..StoredTool::clone(tool) });
        let mapped_names = match self.changes.remove(key) {
            Some(Some((_, mapped_names))) => mapped_names,
            _ => self.registry.get(key).map(|entry| entry.mapped_names.clone()).unwrap_or_default(),
        };
        self.changes.insert(key.clone(), Some((tool, mapped_names)));
        Ok(())
    }

    /// Plans an unregistration.
    pub fn unregister(&mut self, key: &ToolKey, owner: &str, force: bool) -> Unregistered {
        match self.get(key) {
            None => Unregistered::NotFound,
            Some(tool) if tool.from_manifest || (&*tool.owner != owner && !force) => Unregistered::Denied,
            Some(_) => {
                self.delete(key);
                Unregistered::Gone
            }
        }
    }

    /// Plans to unregister all tools of a namespace, or one owner's, except the manifest's. Gives how many.
    pub fn clear(&mut self, namespace: &Namespace, owner: Option<&str>) -> u32 {
        let goes = |tool: &StoredTool| !tool.from_manifest && owner.is_none_or(|o| *tool.owner == *o);
        let keys: Vec<ToolKey> = self.names(namespace);
        let mut count = 0;
        for key in keys {
            if self.get(&key).is_some_and(|tool| goes(tool)) {
                self.delete(&key);
                count += 1;
            }
        }
        count
    }

    /// Plans to unregister what the manifest declared before and `declared` does not hold. Gives the keys.
    pub fn retain_manifest(&mut self, declared: &std::collections::BTreeSet<ToolKey>) -> Vec<ToolKey> {
        let from_manifest = self.registry.iter().filter(|(_, entry)| entry.stored.from_manifest);
        let gone: Vec<ToolKey> =
            from_manifest.map(|(key, _)| key).filter(|key| !declared.contains(*key)).cloned().collect();
        for key in &gone {
            self.delete(key);
        }
        gone
    }

    fn names(&self, namespace: &Namespace) -> Vec<ToolKey> {
        let planned = self.changes.keys().filter(|key| key.namespace == *namespace);
        let stored = self.registry.in_namespace(namespace).map(|(key, _)| key);
        let all: std::collections::BTreeSet<&ToolKey> = stored.chain(planned).collect();
        all.into_iter().cloned().collect()
    }

    pub(super) fn delete(&mut self, key: &ToolKey) {
        *self.added.entry(key.namespace.clone()).or_default() -= 1;
        self.changes.insert(key.clone(), None);
    }

    fn row(
        &self,
        wanted: &Registration,
        generation: u64,
        before: Option<&Arc<StoredTool>>,
    ) -> Arc<StoredTool> {
        // The manifest is the operator's: what it says is approved. And a new name is a new tool.
        let known = before.filter(|_| !wanted.from_manifest);
        Arc::new(StoredTool {
            key: wanted.key(),
            spec: Arc::clone(&wanted.spec),
            spec_hash: Arc::clone(&wanted.spec_hash),
            owner: Arc::clone(&wanted.owner),
            generation,
            from_manifest: wanted.from_manifest,
            approved: known.and_then(|before| before.approved_beside(&wanted.spec.labels)),
            create_time_ms: before.map_or(self.now_ms, |before| before.create_time_ms),
            update_time_ms: self.now_ms,
        })
    }

    fn next_generation(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }

    fn check_owner(&mut self, wanted: &Registration, before: &Arc<StoredTool>) -> Result<(), Refusal> {
        let same_spec = wanted.is_spec_of(before);
        // A manifest may give its tools another owner.
        let ours = before.owner == wanted.owner || before.from_manifest && wanted.from_manifest;
        let declared = !wanted.from_manifest && before.from_manifest;
        let identical = ours && same_spec && before.spec.labels == wanted.spec.labels;
        if identical || !declared && (wanted.overwrite && (ours || wanted.force) || ours && same_spec) {
            return Ok(());
        }
        if !ours {
            self.collisions.push(Collision {
                key: before.key.clone(),
                owner: Arc::clone(&before.owner),
                offered_by: Arc::clone(&wanted.owner),
            });
        }
        let name = before.key.name.to_string();
        let owner = before.owner.to_string();
        if declared && (wanted.overwrite || ours && same_spec) {
            return Err(Refusal::DeclaredTool { name });
        }
        if wanted.overwrite {
            return Err(Refusal::OwnerMismatch { name, owner, caller: wanted.owner.to_string() });
        }
        let difference = if same_spec { "the same spec" } else { "a different spec" };
        Err(Refusal::AlreadyExists { name, owner, difference })
    }

    fn check_room(&self, namespace: &Namespace) -> Result<(), Refusal> {
        let stored = self.registry.count(namespace);
        let added = self.added.get(namespace).copied().unwrap_or(0);
        if stored.saturating_add_signed(added as isize) < MAX_TOOLS_PER_NAMESPACE {
            return Ok(());
        }
        Err(Refusal::Exhausted {
            reason: "TOO_MANY_TOOLS",
            what: format!("tools in namespace '{namespace}'"),
            limit: MAX_TOOLS_PER_NAMESPACE as u64,
        })
    }

    /// No tool's own name may equal the name under which a format shows another, and no two tools are shown under one name.
    fn check_mapped(&self, wanted: &Registration) -> Result<(), Refusal> {
        let clash = |other: &ToolName| {
            let message = format!(
                "name '{}' is what some formats call tool '{other}'; choose another",
                wanted.spec.name
            );
            Err(Refusal::invalid("name", message))
        };
        let is_there = |name: &ToolName| {
            self.get(&ToolKey { namespace: wanted.namespace.clone(), name: name.clone() }).is_some()
        };
        let own = wanted.spec.name.as_str();
        for shown in wanted.mapped_names.iter().map(String::as_str).chain([own]) {
            let place = (wanted.namespace.clone(), shown.to_owned());
            let shown_so = [&self.mapped, &self.registry.mapped].into_iter().filter_map(|m| m.get(&place));
            for other in shown_so.filter(|other| other.as_str() != own) {
                if is_there(other) {
                    return clash(other);
                }
            }
        }
        for mapped in wanted.mapped_names.iter().filter_map(|mapped| ToolName::parse(mapped).ok()) {
            if is_there(&mapped) {
                return clash(&mapped);
            }
        }
        Ok(())
    }
}

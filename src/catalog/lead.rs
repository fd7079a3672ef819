//! How a reader is led from what it has to a list: which tools are new to it, and which it must forget.

use std::{cmp::Ordering, sync::Arc};

use super::{Budget, Catalog, CatalogTool, Contents, Filter, Listing, Visibility, listing::exposed_name};
use crate::core::allowlist::ServerAllowlist;

/// What leads a reader to a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lead {
    /// Exposed names that it must forget, sorted.
    pub removed: Vec<String>,
    /// Where in the list the tools are that are new to it, or changed; ascending.
    pub upserts: Vec<usize>,
}

impl Contents {
    /// What leads a reader here that has `before`, or nothing.
    pub fn lead_from(&self, before: Option<&Self>) -> Lead {
        let Some(before) = before else {
            return Lead { removed: Vec::new(), upserts: (0..self.tools.len()).collect() };
        };
        let mut lead = Lead::default();
        let mut old = before.tools.iter().peekable();
        for (at, tool) in self.tools.iter().enumerate() {
            let name = exposed_name(tool, self.format);
            let mut known = false;
            while let Some(was) = old.peek() {
                match exposed_name(was, before.format).cmp(&name) {
                    Ordering::Less => {
                        lead.removed.extend(exposed_name(was, before.format).map(str::to_owned))
                    }
                    Ordering::Equal => {
                        known = Arc::ptr_eq(was, tool) || digest(was, before) == digest(tool, self)
                    }
                    Ordering::Greater => break,
                }
                old.next();
            }
            if !known {
                lead.upserts.push(at);
            }
        }
        lead.removed.extend(old.filter_map(|was| exposed_name(was, before.format)).map(str::to_owned));
        lead
    }
}

fn digest<'a>(tool: &'a CatalogTool, list: &Contents) -> Option<&'a [u8; 32]> {
    tool.definition(list.format).ok().map(|definition| &definition.digest)
}

impl Catalog {
    /// What leads a reader to a list that has what the same selection gave at an earlier revision of this history. None: it is
    /// not known what that was, or whether the agent could see it, so it must start over.
    ///
    /// Nothing names a tool that the agent may not know of.
    pub fn lead_since(
        &self,
        revision: u64,
        filter: &Filter,
        server: &ServerAllowlist,
        listing: &Listing,
    ) -> Option<Lead> {
        let namespace = &filter.namespace;
        if revision > self.revision || self.rules_changed > revision || !self.knows(revision) {
            return None;
        }
        let has_budget = filter.shape.budget != Budget::default();
        let mut lead = Lead::default();
        for tool in
            self.changed_after(namespace, revision, None).filter(|tool| tool.stamps.shown() > revision)
        {
            if self.is_builtin(&tool.stored.key) && !tool.stamps.existed_at(revision) {
                return None;
            }
            let step = Step::of(tool, true, revision, filter, server);
            let at = listing.position(tool);
            match (step, at) {
                (Step::Unknown, _) => return None,
                (Step::Foreign, _) => {}
                _ if has_budget => return None,
                (Step::Same, Some(_)) | (Step::New | Step::Same, None) => {}
                (Step::New | Step::Changed, Some(at)) => lead.upserts.push(at),
                (Step::Changed, None) => {
                    lead.removed.push(listing.format.exposed_name(&tool.stored.key).into_owned())
                }
            }
        }
        for (_, tool) in self.departed_after(namespace, revision) {
            if self.is_builtin(&tool.stored.key) {
                return None;
            }
            let back = self.get(&tool.stored.key).is_some_and(|now| listing.position(now).is_some());
            match Step::of(tool, false, revision, filter, server) {
                Step::Unknown => return None,
                Step::Foreign | Step::New => {}
                _ if has_budget => return None,
                // It had it, so it has it until it is told otherwise; what came back is told anew.
                Step::Same | Step::Changed if back => {}
                Step::Same | Step::Changed => {
                    lead.removed.push(listing.format.exposed_name(&tool.stored.key).into_owned());
                }
            }
        }
        lead.upserts.sort_unstable();
        lead.removed.sort_unstable();
        lead.removed.dedup();
        Some(lead)
    }
}

/// How a tool stands to what a reader had at an earlier revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The agent can't see it, and could not then.
    Foreign,
    /// The agent can't see it, and perhaps could then.
    Unknown,
    /// It was not there.
    New,
    /// The reader has it, or lacks it, exactly as now.
    Same,
    /// Something is different, or may be.
    Changed,
}

impl Step {
    /// `live`: it is still registered.
    fn of(tool: &CatalogTool, live: bool, revision: u64, filter: &Filter, server: &ServerAllowlist) -> Self {
        let stamps = &tool.stamps;
        if !filter.permits(tool, server) {
            let could = stamps.existed_at(revision) && stamps.access_changed_after(revision);
            return if could { Self::Unknown } else { Self::Foreign };
        }
        if !stamps.existed_at(revision) {
            return Self::New;
        }
        if stamps.spec_changed_after(revision) || stamps.access_changed_after(revision) {
            return Self::Changed;
        }
        let now = tool.is_available();
        let was = stamps.was_available_at(revision, now);
        match (filter.shape.visibility, live) {
            (Visibility::Stable, true) => Self::Same,
            (Visibility::Hide, true) if was == Some(now) => Self::Same,
            // It left, and was not shown before either.
            (Visibility::Hide, false) if was == Some(false) => Self::New,
            _ => Self::Changed,
        }
    }
}

impl Listing {
    /// Where it holds a tool. It may hold it as it was before a change that no agent sees.
    fn position(&self, tool: &CatalogTool) -> Option<usize> {
        let name = exposed_name(tool, self.format);
        let at = self.tools.binary_search_by(|have| exposed_name(have, self.format).cmp(&name)).ok()?;
        (self.tools[at].stored.key == tool.stored.key).then_some(at)
    }
}

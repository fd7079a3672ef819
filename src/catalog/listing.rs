//! What an agent is shown: one predicate over the snapshot, in the form that it asked for.

use std::{collections::HashMap, sync::Arc};

use arc_swap::ArcSwap;

use super::{Catalog, CatalogTool};
use crate::{
    core::{
        allowlist::{RequestAllowlist, ServerAllowlist},
        hash::{ContentHash, hex},
        name::Namespace,
    },
    render::Format,
};

/// Most distinct lists that one namespace keeps ready. Agents share few roles; beyond that a list is made anew each time.
const MAX_LISTINGS: usize = 256;

/// Who asks for what.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Where.
    pub namespace: Namespace,
    /// In which form.
    pub format: Format,
    /// The request's own restriction.
    pub allowed: Option<RequestAllowlist>,
}

/// A finished list.
#[derive(Debug)]
pub struct Listing {
    /// The tools, sorted by exposed name.
    pub tools: Vec<Arc<CatalogTool>>,
    /// Their definitions as one JSON array.
    pub tools_json: String,
    /// Hash of what the agent sees.
    pub etag: String,
}

/// A registered tool that is not in a list.
#[derive(Debug)]
pub struct Hidden<'a> {
    /// The tool.
    pub tool: &'a CatalogTool,
    /// The stage that hides it.
    pub stage: Stage,
}

/// The stages that a tool passes on its way to an agent, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The server's allowlist.
    ServerAllowlist,
    /// The request's allowlist.
    RequestAllowlist,
    /// The probes.
    Availability,
}

/// Ready lists of one namespace, by what was asked for.
#[derive(Debug, Default)]
pub(super) struct Listings(ArcSwap<HashMap<ListingKey, Arc<Listing>>>);

type ListingKey = (Format, Option<Arc<[String]>>);

impl Catalog {
    /// What an agent may use now.
    pub fn list(&self, selection: &Selection, server: &ServerAllowlist) -> Arc<Listing> {
        let names = selection.allowed.as_ref().map(|a| Arc::from(a.names()));
        let key = (selection.format, names);
        let listings = &self.namespace(&selection.namespace).listings;
        if let Some(ready) = listings.0.load().get(&key) {
            return Arc::clone(ready);
        }
        let listing = Arc::new(self.make_listing(selection, server));
        listings.0.rcu(|ready| {
            let mut ready = HashMap::clone(ready);
            if ready.len() < MAX_LISTINGS {
                ready.insert(key.clone(), Arc::clone(&listing));
            }
            ready
        });
        listing
    }

    /// Registered tools that are not in the list of `selection`, sorted by name, and why. Those outside the request's own
    /// allowlist are left out: the caller knows.
    pub fn hidden<'a>(
        &'a self,
        selection: &'a Selection,
        server: &'a ServerAllowlist,
    ) -> impl Iterator<Item = Hidden<'a>> {
        self.tools(&selection.namespace).filter_map(|tool| {
            let stage = stopped_at(tool, selection, server)?;
            (stage != Stage::RequestAllowlist).then_some(Hidden { tool, stage })
        })
    }

    /// Names of the request's allowlist that no registered tool has.
    pub fn unknown(&self, selection: &Selection) -> Vec<String> {
        let Some(allowed) = &selection.allowed else { return Vec::new() };
        let mut unknown = allowed.unknown(self.tools(&selection.namespace).map(|tool| &tool.stored.key));
        if let Some(builtin) = &self.builtin {
            unknown.retain(|name| name != builtin.stored.key.name.as_str());
        }
        unknown
    }

    fn make_listing(&self, selection: &Selection, server: &ServerAllowlist) -> Listing {
        let format = selection.format;
        let visible = |tool: &&Arc<CatalogTool>| stopped_at(tool, selection, server).is_none();
        let mut tools: Vec<Arc<CatalogTool>> =
            self.tools(&selection.namespace).filter(visible).cloned().collect();
        tools.extend(self.builtin(selection).filter(visible).cloned());
        tools.sort_by(|a, b| a.definition(format).exposed_name.cmp(&b.definition(format).exposed_name));

        let size: usize = tools.iter().map(|tool| tool.definition(format).json.len() + 1).sum();
        let mut tools_json = String::with_capacity(size + 2);
        let mut hash = ContentHash::new("toolpulse list 1");
        hash.text(format.label());
        tools_json.push('[');
        for (i, tool) in tools.iter().enumerate() {
            let definition = tool.definition(format);
            if i > 0 {
                tools_json.push(',');
            }
            tools_json.push_str(&definition.json);
            hash.bytes(&definition.digest);
        }
        tools_json.push(']');
        Listing { tools, tools_json, etag: hex(&hash.finish()[..16]) }
    }

    /// The built-in tool, where no registered one has its name.
    fn builtin(&self, selection: &Selection) -> impl Iterator<Item = &Arc<CatalogTool>> {
        let taken = |tool: &Arc<CatalogTool>| {
            self.namespace(&selection.namespace).tools.contains_key(tool.stored.key.name.as_str())
        };
        self.builtin.iter().filter(move |tool| !taken(tool))
    }
}

/// The one predicate: the first stage that keeps a tool from the agent, or none. Allowlists come before availability, so that
/// a tool that does not work is never called unknown.
fn stopped_at(tool: &CatalogTool, selection: &Selection, server: &ServerAllowlist) -> Option<Stage> {
    let (namespace, name) = (&selection.namespace, &tool.stored.key.name);
    if !server.allows(namespace, name) {
        Some(Stage::ServerAllowlist)
    } else if selection.allowed.as_ref().is_some_and(|allowed| !allowed.allows(namespace, name)) {
        Some(Stage::RequestAllowlist)
    } else if !tool.is_available() {
        Some(Stage::Availability)
    } else {
        None
    }
}

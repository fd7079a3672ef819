//! What an agent is shown: one predicate over the snapshot, in the form that it asked for.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use bytes::Bytes;

use super::{Catalog, CatalogTool, Definition};
use crate::{
    core::{
        allowlist::{RequestAllowlist, ServerAllowlist},
        hash::{ContentHash, hex},
        name::Namespace,
    },
    render::Format,
};

/// Most distinct lists that one namespace keeps ready in one format. Agents share few roles; beyond that a list is made anew each time.
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
    /// The form of their definitions.
    pub format: Format,
    /// Names of the request's allowlist that no registered tool has, sorted.
    pub unknown: Vec<String>,
    /// Hash of what the agent sees.
    pub etag: String,
    encoded: OnceLock<Bytes>,
}

impl Listing {
    /// The definitions as one JSON array.
    pub fn tools_json(&self) -> String {
        let definitions = || self.definitions().map(|(_, definition)| definition.json.as_str());
        let (open, close) = if self.tools.is_empty() { ("[", "]") } else { self.format.frame() };
        let size: usize = definitions().map(|json| json.len() + 1).sum();
        let mut text = String::with_capacity(open.len() + size + close.len());
        text.push_str(open);
        for (i, json) in definitions().enumerate() {
            if i > 0 {
                text.push(',');
            }
            text.push_str(json);
        }
        text.push_str(close);
        text
    }

    /// The tools and their definitions. A tool without one is not in the list.
    pub fn definitions(&self) -> impl Iterator<Item = (&CatalogTool, &Definition)> {
        self.tools.iter().filter_map(|tool| Some((&**tool, tool.definition(self.format).ok()?)))
    }

    /// What `encode` makes of it: the first time it is asked for, and then as long as the list lives.
    pub fn encoded(&self, encode: impl FnOnce(&Self) -> Bytes) -> Bytes {
        self.encoded.get_or_init(|| encode(self)).clone()
    }
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
    /// The provider would refuse it.
    Format,
}

/// Ready lists of one namespace, by what was asked for.
#[derive(Debug, Default)]
pub(super) struct Listings(ArcSwap<[Ready; Format::ALL.len()]>);

/// Those of one format. No restriction and a list of names are kept apart by type: an empty list must never mean all.
#[derive(Clone, Debug, Default)]
struct Ready {
    all: Option<Arc<Listing>>,
    /// Sorted by names, which are sorted and each once. There are few, and to compare names costs less than to hash all.
    some: Vec<(Arc<[String]>, Arc<Listing>)>,
}

impl Ready {
    /// Where the list for `names` is, or would be.
    fn find(&self, names: &[&str]) -> Result<usize, usize> {
        self.some.binary_search_by(|(have, _)| have.iter().map(String::as_str).cmp(names.iter().copied()))
    }
}

impl Listings {
    fn get(&self, format: Format, names: Option<&[&str]>) -> Option<Arc<Listing>> {
        let ready = &self.0.load()[format as usize];
        match names {
            None => ready.all.clone(),
            Some(names) => ready.find(names).ok().map(|at| Arc::clone(&ready.some[at].1)),
        }
    }

    fn keep(&self, names: Option<&[&str]>, listing: &Arc<Listing>) {
        let owned: Arc<[String]> = names.unwrap_or_default().iter().map(|&name| name.to_owned()).collect();
        self.0.rcu(|formats| {
            let mut formats = <[Ready; Format::ALL.len()]>::clone(formats);
            let ready = &mut formats[listing.format as usize];
            match names.map(|names| ready.find(names)) {
                None => ready.all = Some(Arc::clone(listing)),
                Some(Err(at)) if ready.some.len() < MAX_LISTINGS => {
                    ready.some.insert(at, (Arc::clone(&owned), Arc::clone(listing)));
                }
                // Somebody was faster, or there are enough.
                Some(_) => {}
            }
            formats
        });
    }
}

impl Catalog {
    /// What an agent may use now.
    pub fn list(&self, selection: &Selection, server: &ServerAllowlist) -> Arc<Listing> {
        let names: Option<Vec<&str>> =
            selection.allowed.as_ref().map(|allowed| allowed.names().iter().map(String::as_str).collect());
        let names = names.as_deref();
        if let Some(ready) = self.ready(&selection.namespace, selection.format, names) {
            return ready;
        }
        let listing = Arc::new(self.make_listing(selection, server));
        if let Some(namespace) = self.namespaces.get(&selection.namespace) {
            namespace.listings.keep(names, &listing);
        }
        listing
    }

    /// The list, if it is ready. `names`: the request's allowlist, sorted and each once.
    pub fn ready(
        &self,
        namespace: &Namespace,
        format: Format,
        names: Option<&[&str]>,
    ) -> Option<Arc<Listing>> {
        self.namespaces.get(namespace)?.listings.get(format, names)
    }

    /// Registered tools that are not in the list of `selection`, sorted by name, and why. Those outside the request's own
    /// allowlist are left out: the caller knows.
    pub fn hidden<'a>(
        &'a self,
        selection: &'a Selection,
        server: &'a ServerAllowlist,
    ) -> impl Iterator<Item = Hidden<'a>> {
        let wanted = |tool: &&Arc<CatalogTool>| {
            let key = &tool.stored.key;
            selection.allowed.as_ref().is_none_or(|allowed| allowed.allows(&key.namespace, &key.name))
        };
        self.tools(&selection.namespace)
            .filter(wanted)
            .filter_map(|tool| Some(Hidden { tool, stage: stopped_at(tool, selection, server)? }))
    }

    /// Names of the request's allowlist that no registered tool has.
    fn unknown(&self, selection: &Selection) -> Vec<String> {
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
        tools.sort_by(|a, b| exposed_name(a, format).cmp(&exposed_name(b, format)));

        let mut hash = ContentHash::new("toolpulse list 1");
        hash.text(format.label());
        for definition in tools.iter().filter_map(|tool| tool.definition(format).ok()) {
            hash.bytes(&definition.digest);
        }
        let etag = hex(&hash.finish()[..16]);
        Listing { tools, format, unknown: self.unknown(selection), etag, encoded: OnceLock::new() }
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
    } else if tool.definition(selection.format).is_err() {
        Some(Stage::Format)
    } else {
        None
    }
}

fn exposed_name(tool: &CatalogTool, format: Format) -> Option<&str> {
    tool.definition(format).ok().map(|definition| definition.exposed_name.as_str())
}

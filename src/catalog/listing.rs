//! What an agent is shown, in the form that it asked for: lists are made once and shared by all whose filters are equal.

use std::{
    borrow::Borrow,
    cmp::{Ordering, Reverse},
    collections::BTreeSet,
    ops::Deref,
    sync::{Arc, OnceLock},
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use rpds::{HashTrieMapSync, RedBlackTreeMapSync};

use super::{
    Catalog, CatalogTool, Definition, Filter, Stage, Visibility,
    search::{Hit, Index},
    selection::Shape,
};
use crate::{
    core::{
        allowlist::ServerAllowlist,
        hash::{ContentHash, hex},
        labels,
        name::{Namespace, ToolKey},
    },
    render::Format,
};

/// Most distinct lists that one namespace keeps ready. Agents share few roles; beyond that a list is made anew each time.
const MAX_LISTINGS: usize = 4_096;
/// Most bytes of definitions in them, all together: what agents ask for must not decide how much memory there is.
const MAX_READY_BYTES: usize = 64 << 20;
/// So many changed tools are less work one by one than the whole list, however small it is.
const MANY: usize = 32;
/// Bytes that count as one token.
const BYTES_PER_TOKEN: usize = 4;

/// A finished list.
#[derive(Debug)]
pub struct Listing {
    /// What the agent sees.
    pub contents: Arc<Contents>,
    /// Names of the request's allowlist that no tool has which the agent may know of, sorted.
    pub unknown: Vec<String>,
    /// What the budget cut, sorted by name.
    cut: Vec<Arc<CatalogTool>>,
    encoded: OnceLock<Bytes>,
    /// Made by the first search.
    index: OnceLock<Index>,
}

/// What the agent sees of a list. A watcher keeps this alone: what its reader has.
#[derive(Debug)]
pub struct Contents {
    /// The tools, sorted by exposed name.
    pub tools: Vec<Arc<CatalogTool>>,
    /// The form of their definitions.
    pub format: Format,
    /// Whether the list holds tools that do not work.
    pub visibility: Visibility,
    /// Hash of what the agent sees.
    pub etag: Arc<str>,
    /// By what it was selected.
    shape: Shape,
    /// Names the state of the namespace that it shows.
    shown: u64,
}

impl Deref for Listing {
    type Target = Contents;

    fn deref(&self) -> &Contents {
        &self.contents
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

/// Ready lists of one namespace, by what was asked for.
#[derive(Debug, Default)]
pub(super) struct Listings(ArcSwap<Kept>);

/// Persistent, so that one list more costs the same however many there are.
#[derive(Clone, Debug, Default)]
struct Kept {
    by_shape: HashTrieMapSync<Shape, Ready>,
    count: usize,
    bytes: usize,
}

/// Those of one shape. No restriction and a list of names are kept apart by type: an empty list must never mean all.
#[derive(Clone, Debug, Default)]
struct Ready {
    all: Option<Arc<Listing>>,
    some: RedBlackTreeMapSync<Names, Arc<Listing>>,
}

/// Sorted names, each once. To compare a few of them costs less than to hash all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Names(Arc<[String]>);

/// Sorted names, whoever owns their texts.
trait Named {
    fn name(&self, at: usize) -> Option<&str>;
}

impl Named for Names {
    fn name(&self, at: usize) -> Option<&str> {
        self.0.get(at).map(String::as_str)
    }
}

impl Named for &[&str] {
    fn name(&self, at: usize) -> Option<&str> {
        self.get(at).copied()
    }
}

impl<'a> Borrow<dyn Named + 'a> for Names {
    fn borrow(&self) -> &(dyn Named + 'a) {
        self
    }
}

impl Ord for dyn Named + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        let differ = (0..).find_map(|at| {
            let (mine, theirs) = (self.name(at), other.name(at));
            match mine.cmp(&theirs) {
                Ordering::Equal if mine.is_some() => None,
                ordering => Some(ordering),
            }
        });
        differ.unwrap_or(Ordering::Equal)
    }
}

impl PartialOrd for dyn Named + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Named + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for dyn Named + '_ {}

impl Listings {
    fn get(&self, shape: &Shape, names: Option<&[&str]>) -> Option<Arc<Listing>> {
        let kept = self.0.load();
        let ready = kept.by_shape.get(shape)?;
        match names {
            None => ready.all.clone(),
            Some(names) => ready.some.get(&names as &dyn Named).cloned(),
        }
    }

    fn keep(&self, shape: &Shape, names: Option<&[&str]>, listing: &Arc<Listing>) {
        let owned: Arc<[String]> = names.unwrap_or_default().iter().map(|&name| name.to_owned()).collect();
        self.0.rcu(|kept| {
            let mut kept = Kept::clone(kept);
            let bytes = kept.bytes + listing.size();
            if kept.count >= MAX_LISTINGS || bytes > MAX_READY_BYTES {
                return kept;
            }
            let mut ready = kept.by_shape.get(shape).cloned().unwrap_or_default();
            match names {
                None if ready.all.is_none() => ready.all = Some(Arc::clone(listing)),
                Some(names) if !ready.some.contains_key(&names as &dyn Named) => {
                    ready.some.insert_mut(Names(Arc::clone(&owned)), Arc::clone(listing));
                }
                // Somebody was faster.
                _ => return kept,
            }
            kept.by_shape.insert_mut(shape.clone(), ready);
            kept.count += 1;
            kept.bytes = bytes;
            kept
        });
    }
}

/// Estimate of how many tokens a text costs a model.
pub fn tokens(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(u32::MAX)
}

impl Contents {
    /// Bytes of its definitions.
    fn size(&self) -> usize {
        self.definitions().map(|(_, definition)| definition.json.len() + 1).sum()
    }

    /// The definitions as one JSON array.
    pub fn tools_json(&self) -> String {
        self.tools_json_parts().collect()
    }

    /// The same, piece by piece.
    pub fn tools_json_parts(&self) -> impl Iterator<Item = &str> {
        let (open, close) = if self.tools.is_empty() { ("[", "]") } else { self.format.frame() };
        let definitions = self.definitions().enumerate();
        let pieces = definitions.flat_map(|(i, (_, one))| [if i > 0 { "," } else { "" }, one.json.as_str()]);
        [open].into_iter().chain(pieces).chain([close])
    }

    /// The tools and their definitions. A tool without one is not in the list.
    pub fn definitions(&self) -> impl Iterator<Item = (&CatalogTool, &Definition)> {
        self.tools.iter().filter_map(|tool| Some((&**tool, tool.definition(self.format).ok()?)))
    }

    /// With stable visibility: the piece that names the tools that work. Else empty.
    pub fn allowed_json(&self) -> String {
        match self.visibility {
            Visibility::Hide => String::new(),
            Visibility::Stable => self.format.allowed(&self.alive().collect::<Vec<_>>()).unwrap_or_default(),
        }
    }

    /// The exposed names of the tools that work.
    pub(super) fn alive(&self) -> impl Iterator<Item = &str> {
        let alive = self.definitions().filter(|(tool, _)| tool.is_available());
        alive.map(|(_, definition)| &*definition.exposed_name)
    }

    fn hash(&self) -> String {
        let mut hash = ContentHash::new("toolpulse list 1");
        hash.text(self.format.label());
        for (_, definition) in self.definitions() {
            hash.bytes(&definition.digest);
        }
        if self.visibility == Visibility::Stable {
            hash.text("stable");
            for name in self.alive() {
                hash.text(name);
            }
        }
        hex(&hash.finish()[..16])
    }
}

impl Listing {
    /// What `encode` makes of it: the first time it is asked for, and then as long as the list lives.
    pub fn encoded(&self, encode: impl FnOnce(&Self) -> Bytes) -> Bytes {
        self.encoded.get_or_init(|| encode(self)).clone()
    }

    /// Whether the budget cut a tool.
    pub fn cuts(&self, tool: &CatalogTool) -> bool {
        let name = &tool.stored.key.name;
        self.cut.binary_search_by(|cut| cut.stored.key.name.cmp(name)).is_ok()
    }

    /// The tools that fit a query best, the best first, with their scores.
    pub fn search(&self, query: &str, limit: usize) -> Vec<Hit<'_>> {
        self.index.get_or_init(|| Index::new(&self.tools)).search(&self.tools, query, limit)
    }
}

impl Catalog {
    /// What an agent may use now.
    pub fn list(&self, filter: &Filter, server: &ServerAllowlist) -> Arc<Listing> {
        self.list_after(None, filter, server)
    }

    /// The same, for somebody who had an earlier list of the same selection: where it was the same filter then, only what
    /// changed is looked at.
    pub fn list_after(
        &self,
        before: Option<&Contents>,
        filter: &Filter,
        server: &ServerAllowlist,
    ) -> Arc<Listing> {
        let names: Option<Vec<&str>> =
            filter.allowed.as_ref().map(|allowed| allowed.names().iter().map(String::as_str).collect());
        let names = names.as_deref();
        if let Some(ready) = self.ready(filter, names) {
            return ready;
        }
        let led_on = before.and_then(|before| self.tools_after_list(before, filter, server));
        let (tools, cut) = match led_on {
            Some(tools) => (tools, Vec::new()),
            None => self.selected(filter, server),
        };
        let listing = Arc::new(self.make_listing(tools, cut, filter));
        if let Some(namespace) = self.namespaces.get(&filter.namespace) {
            namespace.listings.keep(&filter.shape, names, &listing);
        }
        listing
    }

    /// Names what agents may see in a namespace: while it is equal, each selection gives the list that it gave.
    pub fn shown_at(&self, namespace: &Namespace) -> (u64, u64) {
        (self.shown_in(namespace), self.rules_changed)
    }

    /// The list, if it is ready. `names`: the request's allowlist, sorted and each once; that of the filter plays no part, so
    /// that it need not be parsed.
    pub fn ready(&self, filter: &Filter, names: Option<&[&str]>) -> Option<Arc<Listing>> {
        self.namespaces.get(&filter.namespace)?.listings.get(&filter.shape, names)
    }

    /// Tools that the agent could use if nothing stood in the way, sorted by name, and what does. Left out are those that it
    /// may not know of, and those that the request itself leaves out: the caller knows. With stable visibility, those that do
    /// not work are named as well.
    pub fn hidden<'a>(
        &'a self,
        filter: &'a Filter,
        server: &'a ServerAllowlist,
        listing: &'a Listing,
    ) -> impl Iterator<Item = Hidden<'a>> {
        let told = |tool: &&Arc<CatalogTool>| {
            let passes = |stage| filter.passes(stage, tool, server);
            passes(Stage::Request) && passes(Stage::Policy) && passes(Stage::Labels)
        };
        self.eligible(filter).filter(told).filter_map(|tool| {
            let cut = || listing.cuts(tool).then_some(Stage::Budget);
            Some(Hidden { tool, stage: filter.stopped_at(tool, server).or_else(cut)? })
        })
    }

    /// Names of the request's allowlist that no tool has which the agent may know of. `listed`: tools that it sees, so that
    /// these need not be looked up again.
    fn unknown(&self, filter: &Filter, listed: &[Arc<CatalogTool>]) -> Vec<String> {
        let Some(allowed) = &filter.allowed else { return Vec::new() };
        let mut seen: Vec<&str> = listed.iter().map(|tool| tool.stored.key.name.as_str()).collect();
        seen.sort_unstable();
        let known = |name: &str| {
            seen.binary_search(&name).is_ok()
                || self.find(&filter.namespace, name).is_some_and(|tool| filter.may_know(tool))
        };
        allowed.unknown_in(&filter.namespace, known)
    }

    /// The tools of a namespace and what is built in, sorted by name.
    pub(super) fn candidates<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> impl Iterator<Item = &'a Arc<CatalogTool>> {
        let mut builtin = self.builtin(namespace);
        let mut tools = self.tools(namespace).peekable();
        std::iter::from_fn(move || {
            let first = match (builtin, tools.peek()) {
                (Some(builtin), Some(tool)) => builtin.stored.key.name < tool.stored.key.name,
                (builtin, _) => builtin.is_some(),
            };
            if first { builtin.take() } else { tools.next() }
        })
    }

    /// The tools that no allowlist keeps from the agent, sorted by name. Where one names them, no other is looked at.
    fn eligible<'a>(&'a self, filter: &'a Filter) -> impl Iterator<Item = &'a Arc<CatalogTool>> {
        let named = filter.named();
        let all = named.is_none().then(|| self.candidates(&filter.namespace));
        let found = named.into_iter().flatten().filter_map(|name| self.find(&filter.namespace, name));
        found.chain(all.into_iter().flatten())
    }

    /// The tools of a list, sorted by exposed name, and what the budget cut.
    pub(super) fn selected(
        &self,
        filter: &Filter,
        server: &ServerAllowlist,
    ) -> (Vec<Arc<CatalogTool>>, Vec<Arc<CatalogTool>>) {
        let format = filter.shape.format;
        let holds = |tool: &&Arc<CatalogTool>| filter.holds(tool, server);
        let mut tools: Vec<Arc<CatalogTool>> = self.eligible(filter).filter(holds).cloned().collect();
        let cut = cut(&mut tools, filter);
        tools.sort_by(|a, b| exposed_name(a, format).cmp(&exposed_name(b, format)));
        (tools, cut)
    }

    /// The tools of a list, from those of an earlier one and what changed since. None: not enough is known, or it would be no
    /// less work; a budget judges the whole list.
    fn tools_after_list(
        &self,
        before: &Contents,
        filter: &Filter,
        server: &ServerAllowlist,
    ) -> Option<Vec<Arc<CatalogTool>>> {
        let (namespace, format) = (&filter.namespace, filter.shape.format);
        let budget = filter.shape.budget != super::Budget::default();
        if budget || before.shape != filter.shape || !self.knows(before.shown) {
            return None;
        }
        let changed = self.changed_after(namespace, before.shown, None).map(|tool| &tool.stored.key);
        let departed = self.departed_after(namespace, before.shown).map(|(_, tool)| &tool.stored.key);
        let builtin = self.builtin.iter().map(|tool| &tool.stored.key);
        let most = before.tools.len() / 8 + MANY;
        let keys: Vec<&ToolKey> = changed.chain(departed).chain(builtin).take(most + 1).collect();
        if keys.len() > most {
            return None;
        }
        let mut tools = before.tools.clone();
        for name in keys.into_iter().map(|key| &key.name).collect::<BTreeSet<_>>() {
            let key = ToolKey { namespace: namespace.clone(), name: name.clone() };
            let exposed = format.exposed_name(&key);
            let at = tools.binary_search_by(|tool| exposed_name(tool, format).cmp(&Some(&exposed)));
            let now = self.find(namespace, name.as_str()).filter(|tool| filter.holds(tool, server));
            match (at, now) {
                (Ok(at), Some(now)) => tools[at] = Arc::clone(now),
                (Err(at), Some(now)) => tools.insert(at, Arc::clone(now)),
                (Ok(at), None) => drop(tools.remove(at)),
                (Err(_), None) => {}
            }
        }
        Some(tools)
    }

    pub(super) fn make_listing(
        &self,
        tools: Vec<Arc<CatalogTool>>,
        cut: Vec<Arc<CatalogTool>>,
        filter: &Filter,
    ) -> Listing {
        let Shape { format, visibility, .. } = filter.shape;
        let shown = self.shown_in(&filter.namespace);
        let shape = filter.shape.clone();
        let unknown = self.unknown(filter, &tools);
        let contents = Contents { tools, format, visibility, etag: Arc::default(), shape, shown };
        let contents = Contents { etag: contents.hash().into(), ..contents };
        Listing {
            contents: Arc::new(contents),
            unknown,
            cut,
            encoded: OnceLock::new(),
            index: OnceLock::new(),
        }
    }
}

/// Takes what is over the budget out of `tools`, and gives it: the lowest priorities go first, among equals the last names.
fn cut(tools: &mut Vec<Arc<CatalogTool>>, filter: &Filter) -> Vec<Arc<CatalogTool>> {
    let budget = filter.shape.budget;
    if budget.tools == 0 && budget.tokens == 0 {
        return Vec::new();
    }
    // Sorted by name before, and the sort is stable.
    tools.sort_by_key(|tool| Reverse(priority(tool)));
    let mut keep = tools.len();
    if budget.tools > 0 {
        keep = keep.min(budget.tools as usize);
    }
    if budget.tokens > 0 {
        // The frame, with a comma after each but the last.
        let (open, close) = filter.shape.format.frame();
        let mut bytes = (open.len() + close.len()).saturating_sub(1);
        let fits = |tool: &&Arc<CatalogTool>| {
            bytes += tool.definition(filter.shape.format).map_or(0, |d| d.json.len() + 1);
            tokens(bytes) <= budget.tokens
        };
        keep = keep.min(tools.iter().take_while(fits).count());
    }
    let mut cut = tools.split_off(keep);
    cut.sort_by(|a, b| a.stored.key.name.cmp(&b.stored.key.name));
    cut
}

fn priority(tool: &CatalogTool) -> i64 {
    labels::priority(&tool.stored.spec.labels).unwrap_or(0)
}

pub(super) fn exposed_name(tool: &CatalogTool, format: Format) -> Option<&str> {
    tool.definition(format).ok().map(|definition| definition.exposed_name.as_str())
}

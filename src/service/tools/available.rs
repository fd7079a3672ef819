//! ListAvailableTools: what an agent may use now, from the snapshot.
//!
//! Every agent asks this before every turn, so what is the same in each reply with one list is encoded once, with the list.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use prost::{
    Message,
    encoding::{self, WireType},
};
use tokio::time::timeout;

use super::{ToolService, check, patience};
use crate::{
    catalog::{Catalog, CatalogTool, Definition, Filter, Hidden, Listing, Selection, Stage, tokens},
    core::{
        allowlist::ServerAllowlist,
        name::DEFAULT_NAMESPACE,
        refusal::{Fault, Refusal},
    },
    proto::v1,
    service::{
        convert::{self, selection},
        prepared::Prepared,
    },
};

/// How long a list waits for the registry to settle after a start.
const SETTLING: Duration = Duration::from_secs(5);
/// When to ask again if it did not.
const SETTLING_RETRY: Duration = Duration::from_secs(1);
/// The largest `max_age`: agents hear of changes that no window announces.
const MAX_AGE: Duration = Duration::from_secs(5);
/// What clients accept by default.
const DEFAULT_REPLY: usize = 4 << 20;
/// The largest reply that a client may ask for.
const LARGEST_REPLY: usize = 64 << 20;
/// Most hidden tools that are named in one reply.
const MAX_HIDDEN: usize = 1_000;
/// Most losses that are told in one reply.
const MAX_LOSSES: usize = 1_000;
/// Most tools that a refusal of a strict list names.
const MAX_NAMED: usize = 5;
/// Longest key and length of a field.
const MAX_KEY: usize = 16;
/// What to do about a list that is too large.
const ADVICE: &str =
    "name fewer in allowed_tools, set max_tools, or raise max_reply_bytes and the client's own limit";

/// What a request without fault asks for.
#[derive(Debug)]
pub(super) struct Known {
    request: v1::ListAvailableToolsRequest,
    /// All but the names.
    selection: Selection,
    /// Sorted, each once.
    names: Option<Vec<String>>,
}

impl Known {
    fn listing(&self, catalog: &Catalog) -> Option<Arc<Listing>> {
        let names: Option<Vec<&str>> =
            self.names.as_ref().map(|names| names.iter().map(String::as_str).collect());
        catalog.ready(&catalog.resolve(self.selection.clone()), names.as_deref())
    }
}

impl ToolService {
    pub(super) async fn available(
        &self,
        request: v1::ListAvailableToolsRequest,
        deadline: Option<Duration>,
    ) -> Result<Prepared, Refusal> {
        let (catalog, listing) = match self.ready(&request) {
            Some(ready) => ready,
            None => {
                let selection = parse(&request)?;
                self.settled(deadline).await?;
                let catalog = self.reader.load();
                let listing = catalog.list(&catalog.resolve(selection), self.reader.allowlist());
                (catalog, listing)
            }
        };
        self.reply(&request, &catalog, &listing)
    }

    /// The answer to a request that is known, if its list is ready. What is refused is left to the longer way.
    pub(super) fn answer_known(&self, known: &Known) -> Option<Prepared> {
        if !self.reader.is_settled() {
            return None;
        }
        let catalog = self.reader.load();
        let listing = known.listing(&catalog)?;
        self.reply(&known.request, &catalog, &listing).ok()
    }

    fn reply(
        &self,
        request: &v1::ListAvailableToolsRequest,
        catalog: &Catalog,
        listing: &Listing,
    ) -> Result<Prepared, Refusal> {
        let mut reply = v1::ListAvailableToolsResponse {
            not_modified: !request.if_etag.is_empty() && *request.if_etag == *listing.etag,
            max_age: Some(convert::to_proto_duration(self.max_age(catalog, &request.namespace))),
            epoch: catalog.epoch.to_string(),
            revision: catalog.revision,
            ..Default::default()
        };
        if request.strict {
            let filter = catalog.resolve(parse(request)?);
            strictly(catalog, listing, &filter, self.reader.allowlist())?;
        }
        if request.include_hidden {
            let filter = catalog.resolve(parse(request)?);
            let mut hidden: Vec<v1::HiddenTool> = Vec::new();
            for one in catalog.hidden(&filter, self.reader.allowlist(), listing) {
                reply.hidden_count += 1;
                if hidden.len() < MAX_HIDDEN {
                    hidden.push(hidden_to_proto(&one, &filter));
                }
            }
            reply.hidden = hidden;
        }
        let prepared = if reply.not_modified {
            reply.etag = listing.etag.to_string();
            reply.unknown_tools.clone_from(&listing.unknown);
            reply.visibility_used = selection::visibility_to_proto(listing.visibility).into();
            Prepared::new(&reply, Bytes::new())
        } else {
            Prepared::new(&reply, listing.encoded(encode))
        };
        check_size(prepared.len(), listing.tools.len(), request.max_reply_bytes, ADVICE)?;
        Ok(prepared)
    }

    /// The list, where the same was asked for before. Only what is without fault gets a list, so nothing is parsed again.
    fn ready(&self, request: &v1::ListAvailableToolsRequest) -> Option<(Arc<Catalog>, Arc<Listing>)> {
        if !self.reader.is_settled() {
            return None;
        }
        let selection = all_but_names(request)?;
        let names = request.allowed_tools.as_ref().map(|allowed| sorted(&allowed.names));
        let catalog = self.reader.load();
        let listing = catalog.ready(&catalog.resolve(selection), names.as_deref())?;
        Some((catalog, listing))
    }

    /// What a request asks for, where its list is ready.
    pub(super) fn known(&self, request: v1::ListAvailableToolsRequest) -> Option<Known> {
        let names = request.allowed_tools.as_ref().map(|allowed| sorted(&allowed.names));
        let names = names.map(|names| names.into_iter().map(str::to_owned).collect());
        let known = Known { selection: all_but_names(&request)?, names, request };
        known.listing(&self.reader.load()).is_some().then_some(known)
    }

    /// Waits until every probe had its turn since the start: an empty list must not be a merely ignorant one.
    pub(super) async fn settled(&self, deadline: Option<Duration>) -> Result<(), Refusal> {
        let mut settled = self.reader.settled();
        if *settled.borrow() {
            return Ok(());
        }
        match timeout(patience(SETTLING, deadline), settled.wait_for(|settled| *settled)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(Refusal::Draining),
            Err(_) => Err(Refusal::Settling { retry_after: SETTLING_RETRY }),
        }
    }

    fn max_age(&self, catalog: &Catalog, namespace: &str) -> Duration {
        let namespace = if namespace.is_empty() { DEFAULT_NAMESPACE } else { namespace };
        let until = catalog.next_window_end(namespace).map_or(MAX_AGE, |end| end.since(self.clock.now()));
        until.min(MAX_AGE)
    }
}

fn asked(request: &v1::ListAvailableToolsRequest) -> selection::Asked<'_> {
    selection::Asked {
        namespace: &request.namespace,
        agent_id: &request.agent_id,
        allowed_tools: request.allowed_tools.as_ref(),
        label_selector: &request.label_selector,
        format: request.format,
        visibility: request.visibility,
        max_tools: request.max_tools,
        max_tokens: request.max_tokens,
    }
}

/// What a request selects but for its names; none if something is wrong with it.
fn all_but_names(request: &v1::ListAvailableToolsRequest) -> Option<Selection> {
    if request.max_reply_bytes as usize > LARGEST_REPLY {
        return None;
    }
    let mut faults = Vec::new();
    let selection = selection::Asked { allowed_tools: None, ..asked(request) }.parse(&mut faults);
    faults.is_empty().then_some(selection)
}

fn parse(request: &v1::ListAvailableToolsRequest) -> Result<Selection, Refusal> {
    let mut faults = Vec::new();
    let selection = asked(request).parse(&mut faults);
    if request.max_reply_bytes as usize > LARGEST_REPLY {
        let message = format!("is {}; at most {LARGEST_REPLY}", request.max_reply_bytes);
        faults.push(Fault::new("max_reply_bytes", message));
    }
    check(faults)?;
    Ok(selection)
}

fn sorted(names: &[String]) -> Vec<&str> {
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The number of ListAvailableToolsResponse.tools_json.
const TOOLS_JSON: u32 = 1;

/// The fields that are the same in every reply with this list. Protobuf puts a message together from its parts in any order, so
/// each tool is encoded once, however many lists hold it, and the array is copied once.
fn encode(listing: &Listing) -> Bytes {
    let json_len = listing.tools_json_parts().map(str::len).sum();
    let rest = v1::ListAvailableToolsResponse {
        unknown_tools: listing.unknown.clone(),
        etag: listing.etag.to_string(),
        token_estimate: tokens(json_len),
        losses: losses(listing).collect(),
        allowed_json: listing.allowed_json(),
        visibility_used: selection::visibility_to_proto(listing.visibility).into(),
        ..Default::default()
    };
    let tools: Vec<&[u8]> =
        listing.definitions().map(|(one, definition)| field_of(one, definition)).collect();
    let tools_len: usize = tools.iter().map(|tool| tool.len()).sum();
    let mut bytes = BytesMut::with_capacity(json_len + tools_len + rest.encoded_len() + MAX_KEY);
    encoding::encode_key(TOOLS_JSON, WireType::LengthDelimited, &mut bytes);
    encoding::encode_varint(json_len as u64, &mut bytes);
    listing.tools_json_parts().for_each(|part| bytes.extend_from_slice(part.as_bytes()));
    tools.into_iter().for_each(|tool| bytes.extend_from_slice(tool));
    // Nothing is too long for a buffer that grows.
    let _ = rest.encode(&mut bytes);
    bytes.freeze()
}

/// A message with one tool and nothing else.
fn field_of<'a>(one: &CatalogTool, definition: &'a Definition) -> &'a [u8] {
    definition.encoded(|definition| {
        let tools = vec![tool(one, definition)];
        v1::ListAvailableToolsResponse { tools, ..Default::default() }.encode_to_vec()
    })
}

/// A tool of a list; its definition is elsewhere.
pub(super) fn tool(tool: &CatalogTool, definition: &Definition) -> v1::AvailableTool {
    v1::AvailableTool {
        name: tool.stored.key.name.to_string(),
        exposed_name: definition.exposed_name.clone(),
        spec_hash: tool.stored.spec_hash.to_string(),
        token_estimate: tokens(definition.json.len()),
        endpoint: tool.stored.spec.endpoint.clone(),
        definition_json: String::new(),
    }
}

/// What the definitions can't say of their tools.
fn losses(listing: &Listing) -> impl Iterator<Item = v1::ToolLoss> {
    let all = listing.definitions().flat_map(|(tool, definition)| {
        definition.losses.iter().map(|loss| convert::format::loss(tool.stored.key.name.as_str(), loss))
    });
    all.take(MAX_LOSSES)
}

/// Refuses a list that says less than was registered.
fn strictly(
    catalog: &Catalog,
    listing: &Listing,
    filter: &Filter,
    server: &ServerAllowlist,
) -> Result<(), Refusal> {
    let omitted = catalog.hidden(filter, server, listing).filter(|hidden| hidden.stage == Stage::Format);
    let omitted = omitted.filter_map(|hidden| {
        let omission = hidden.tool.definition(filter.shape.format).err()?;
        Some((hidden.tool.stored.key.name.to_string(), omission.pointer.clone(), omission.message.clone()))
    });
    let losses = losses(listing).map(|l| (l.name, l.pointer, l.message));
    let wrong: Vec<_> = omitted.chain(losses).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    let first = wrong.iter().take(MAX_NAMED).map(|(name, pointer, message)| match pointer.as_str() {
        "" => format!("'{name}': {message}"),
        pointer => format!("'{name}' at {pointer}: {message}"),
    });
    Err(Refusal::FormatLossy {
        format: filter.shape.format.label(),
        count: wrong.len(),
        first: first.collect::<Vec<_>>().join("; "),
    })
}

fn hidden_to_proto(hidden: &Hidden<'_>, filter: &Filter) -> v1::HiddenTool {
    let (reason, message) = filter.why(hidden.stage, hidden.tool);
    let (name, stage) = (hidden.tool.stored.key.name.to_string(), hidden.stage.label().to_owned());
    let omission = hidden.tool.definition(filter.shape.format).err();
    let omission = omission.filter(|_| hidden.stage == Stage::Format);
    let (message, pointer) =
        omission.map_or((message, String::new()), |o| (o.message.clone(), o.pointer.clone()));
    v1::HiddenTool { name, stage, reason, message, pointer }
}

/// Refuses a reply that the client could not take, and says what to do.
pub(super) fn check_size(size: usize, tools: usize, asked: u32, advice: &str) -> Result<(), Refusal> {
    let limit = if asked == 0 { DEFAULT_REPLY } else { asked as usize };
    if size <= limit {
        return Ok(());
    }
    let what = format!("the reply of {size} bytes for {tools} tools; {advice}");
    Err(Refusal::Exhausted { reason: "REPLY_TOO_LARGE", what, limit: limit as u64 })
}

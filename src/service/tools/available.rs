//! ListAvailableTools: what an agent may use now, from the snapshot.
//!
//! Every agent asks this before every turn, so what is the same in each reply with one list is encoded once, with the list.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use prost::Message;
use tokio::time::timeout;

use super::{ToolService, check, patience};
use crate::{
    catalog::{Catalog, CatalogTool, Hidden, Listing, Selection, Stage},
    core::{
        allowlist::{RequestAllowlist, ServerAllowlist},
        refusal::Refusal,
    },
    proto::v1,
    render::Format,
    service::{convert, prepared::Prepared},
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
                self.reader.list(&selection)
            }
        };
        let mut reply = v1::ListAvailableToolsResponse {
            not_modified: !request.if_etag.is_empty() && request.if_etag == listing.etag,
            max_age: Some(convert::to_proto_duration(self.max_age(&catalog))),
            epoch: catalog.epoch.to_string(),
            revision: catalog.revision,
            ..Default::default()
        };
        if request.strict {
            strictly(&catalog, &listing, &parse(&request)?, self.reader.allowlist())?;
        }
        if request.include_hidden {
            let selection = parse(&request)?;
            let mut hidden: Vec<v1::HiddenTool> = Vec::new();
            for one in catalog.hidden(&selection, self.reader.allowlist()) {
                reply.hidden_count += 1;
                if hidden.len() < MAX_HIDDEN {
                    hidden.push(hidden_to_proto(&one, selection.format));
                }
            }
            reply.hidden = hidden;
        }
        let prepared = if reply.not_modified {
            reply.etag.clone_from(&listing.etag);
            reply.unknown_tools.clone_from(&listing.unknown);
            Prepared::new(&reply, Bytes::new())
        } else {
            Prepared::new(&reply, listing.encoded(encode))
        };
        check_size(prepared.len(), listing.tools.len(), request.max_reply_bytes)?;
        Ok(prepared)
    }

    /// The list, where the same was asked for before. Only what is without fault gets a list, so nothing is parsed again.
    fn ready(&self, request: &v1::ListAvailableToolsRequest) -> Option<(Arc<Catalog>, Arc<Listing>)> {
        if request.max_reply_bytes as usize > LARGEST_REPLY || !self.reader.is_settled() {
            return None;
        }
        let namespace = convert::namespace(&request.namespace).ok()?;
        let format = convert::schema_format(request.format).ok()?;
        let names = request.allowed_tools.as_ref().map(|allowed| sorted(&allowed.names));
        let catalog = self.reader.load();
        let listing = catalog.ready(&namespace, format, names.as_deref())?;
        Some((catalog, listing))
    }

    /// Waits until every probe had its turn since the start: an empty list must not be a merely ignorant one.
    async fn settled(&self, deadline: Option<Duration>) -> Result<(), Refusal> {
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

    fn max_age(&self, catalog: &Catalog) -> Duration {
        let until = catalog.next_window_end.map_or(MAX_AGE, |end| end.since(self.clock.now()));
        until.min(MAX_AGE)
    }
}

fn parse(request: &v1::ListAvailableToolsRequest) -> Result<Selection, Refusal> {
    let mut faults = Vec::new();
    let namespace = convert::namespace(&request.namespace).map_err(|f| faults.push(f)).ok();
    let format = convert::schema_format(request.format).map_err(|f| faults.push(f)).ok();
    let allowed = match request.allowed_tools.as_ref().map(|a| RequestAllowlist::parse(&a.names)).transpose()
    {
        Ok(allowed) => allowed,
        Err(Refusal::Invalid(wrong)) => {
            faults.extend(wrong);
            None
        }
        Err(other) => return Err(other),
    };
    if request.max_reply_bytes as usize > LARGEST_REPLY {
        let message = format!("is {}; at most {LARGEST_REPLY}", request.max_reply_bytes);
        faults.push(crate::core::refusal::Fault::new("max_reply_bytes", message));
    }
    check(faults)?;
    Ok(Selection { namespace: namespace.unwrap_or_default(), format: format.unwrap_or(Format::Mcp), allowed })
}

fn sorted(names: &[String]) -> Vec<&str> {
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The fields that are the same in every reply with this list.
fn encode(listing: &Listing) -> Bytes {
    let tools = listing.definitions().map(|(tool, definition)| v1::AvailableTool {
        name: tool.stored.key.name.to_string(),
        exposed_name: definition.exposed_name.clone(),
        spec_hash: tool.stored.spec_hash.to_string(),
        token_estimate: tokens(definition.json.len()),
        endpoint: tool.stored.spec.endpoint.clone(),
    });
    let tools_json = listing.tools_json();
    let fields = v1::ListAvailableToolsResponse {
        tools: tools.collect(),
        unknown_tools: listing.unknown.clone(),
        etag: listing.etag.clone(),
        token_estimate: tokens(tools_json.len()),
        tools_json,
        losses: losses(listing).collect(),
        ..Default::default()
    };
    fields.encode_to_vec().into()
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
    selection: &Selection,
    server: &ServerAllowlist,
) -> Result<(), Refusal> {
    let omitted = catalog.hidden(selection, server).filter(|hidden| hidden.stage == Stage::Format);
    let omitted = omitted.filter_map(|hidden| {
        let omission = hidden.tool.definition(selection.format).err()?;
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
        format: selection.format.label(),
        count: wrong.len(),
        first: first.collect::<Vec<_>>().join("; "),
    })
}

fn tokens(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(4)).unwrap_or(u32::MAX)
}

fn hidden_to_proto(hidden: &Hidden<'_>, format: Format) -> v1::HiddenTool {
    let mut pointer = String::new();
    let CatalogTool { stored, status, .. } = hidden.tool;
    let (stage, reason, message) = match hidden.stage {
        Stage::ServerAllowlist => (
            "server_allowlist",
            "NOT_IN_ALLOWLIST".to_owned(),
            "the server's allowlist does not name it".to_owned(),
        ),
        Stage::RequestAllowlist => {
            ("request_allowlist", "NOT_IN_REQUEST".to_owned(), "the request does not name it".to_owned())
        }
        Stage::Availability => match &status.trouble {
            Some(trouble) => ("availability", trouble.reason.clone(), trouble.message.clone()),
            None => ("availability", "NEVER_PROBED".to_owned(), "it was never asked yet".to_owned()),
        },
        Stage::Format => match hidden.tool.definition(format) {
            Err(omission) => {
                pointer.clone_from(&omission.pointer);
                ("format", omission.reason.to_owned(), omission.message.clone())
            }
            Ok(_) => ("format", String::new(), String::new()),
        },
    };
    v1::HiddenTool { name: stored.key.name.to_string(), stage: stage.to_owned(), reason, message, pointer }
}

fn check_size(size: usize, tools: usize, asked: u32) -> Result<(), Refusal> {
    let limit = if asked == 0 { DEFAULT_REPLY } else { asked as usize };
    if size <= limit {
        return Ok(());
    }
    let what = format!(
        "the reply of {size} bytes for {tools} tools; name fewer in allowed_tools, or raise max_reply_bytes and the client's own limit"
    );
    Err(Refusal::Exhausted { reason: "REPLY_TOO_LARGE", what, limit: limit as u64 })
}

//! SearchTools: what an agent may use now, by words.

use std::time::Duration;

use prost::Message;

use super::{ToolService, available, check};
use crate::{
    core::refusal::{Fault, Refusal},
    proto::v1,
    service::convert::selection,
};

/// Longest query, in characters.
const MAX_QUERY: usize = 1_024;
/// Results where no limit is given.
const DEFAULT_LIMIT: usize = 10;
/// Most results.
const MAX_LIMIT: usize = 100;

impl ToolService {
    pub(super) async fn search(
        &self,
        request: v1::SearchToolsRequest,
        deadline: Option<Duration>,
    ) -> Result<v1::SearchToolsResponse, Refusal> {
        let mut faults = Vec::new();
        let asked = selection::Asked {
            namespace: &request.namespace,
            agent_id: &request.agent_id,
            allowed_tools: request.allowed_tools.as_ref(),
            label_selector: &request.label_selector,
            format: request.format,
            ..selection::Asked::default()
        };
        let selection = asked.parse(&mut faults);
        let query = request.query;
        let count = query.chars().count();
        if query.trim().is_empty() {
            faults.push(Fault::new("query", "is blank; must hold a word to look for"));
        } else if count > MAX_QUERY {
            faults.push(Fault::new(
                "query",
                format!("has {count} characters; at most {MAX_QUERY} are allowed"),
            ));
        }
        let limit = match usize::try_from(request.limit) {
            Ok(0) => DEFAULT_LIMIT,
            Ok(limit) if limit <= MAX_LIMIT => limit,
            _ => {
                let message =
                    format!("is {}; it must be 0 (for {DEFAULT_LIMIT}) to {MAX_LIMIT}", request.limit);
                faults.push(Fault::new("limit", message));
                DEFAULT_LIMIT
            }
        };
        check(faults)?;
        self.settled(deadline).await?;
        let catalog = self.reader.load();
        let filter = catalog.resolve(selection);
        let listing = catalog.list(&filter, self.reader.allowlist());
        // The first search of a list reads all of its tools: not on a thread that others' calls wait for.
        let results = tokio::task::spawn_blocking(move || {
            let found = listing.search(&query, limit);
            found
                .into_iter()
                .filter_map(|hit| {
                    let definition = hit.tool.definition(listing.format).ok()?;
                    let tool = v1::AvailableTool {
                        definition_json: definition.json.clone(),
                        ..available::tool(hit.tool, definition)
                    };
                    Some(v1::SearchResult { tool: Some(tool), score: hit.score.into() })
                })
                .collect()
        });
        let reply = v1::SearchToolsResponse {
            // Ends early only where the runtime does.
            results: results.await.map_err(|_| Refusal::Draining)?,
            epoch: catalog.epoch.to_string(),
            revision: catalog.revision,
        };
        let advice = "lower limit, or name fewer in allowed_tools";
        available::check_size(reply.encoded_len(), reply.results.len(), 0, advice)?;
        Ok(reply)
    }
}

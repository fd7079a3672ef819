//! Reads for owners and operators: tools with their status, namespaces, diagnostics.

use prost::Message;

use super::{ToolService, check, key, namespace};
use crate::{
    core::{allowlist::RequestAllowlist, refusal::Refusal, registry::not_found},
    proto::v1,
    service::{convert, page},
};

/// Where a page ends even if it may hold more: clients refuse replies of more than 4 MiB by default.
pub(in crate::service) const MAX_PAGE_BYTES: usize = 3_584 * 1_024;

impl ToolService {
    pub(super) fn get(&self, request: &v1::GetToolRequest) -> Result<v1::GetToolResponse, Refusal> {
        let key = key(&request.namespace, &request.name)?;
        let catalog = self.reader.load();
        let tool = catalog.get(&key).ok_or_else(|| not_found(&key))?;
        Ok(v1::GetToolResponse { tool: Some(convert::status::tool(tool, &self.clock)) })
    }

    pub(super) fn list(&self, request: &v1::ListToolsRequest) -> Result<v1::ListToolsResponse, Refusal> {
        let mut faults = Vec::new();
        let parsed = convert::namespace(&request.namespace).map_err(|f| faults.push(f)).ok();
        let verdict = convert::verdict_filter(request.verdict).map_err(|f| faults.push(f)).ok().flatten();
        let size = convert::page_size(request.page_size).map_err(|f| faults.push(f)).unwrap_or_default();
        let filter = page::Filter {
            rpc: "ListTools",
            namespace: parsed.as_ref().map_or("", |n| n.as_str()),
            owner: &request.owner,
            verdict: request.verdict,
        };
        let after = page::decode(&request.page_token, &filter).map_err(|f| faults.push(f)).ok().flatten();
        check(faults)?;
        let namespace = parsed.clone().unwrap_or_default();

        let catalog = self.reader.load();
        let mut tools = Vec::new();
        let mut bytes = 0;
        let mut next_page_token = String::new();
        let wanted = catalog.tools_after(&namespace, after.as_deref()).filter(|tool| {
            (request.owner.is_empty() || *tool.stored.owner == *request.owner)
                && verdict.is_none_or(|v| convert::status::verdict(tool.status.verdict) == v)
        });
        for tool in wanted {
            let tool = convert::status::tool(tool, &self.clock);
            bytes += tool.encoded_len() + 8;
            if tools.len() == size || (bytes > MAX_PAGE_BYTES && !tools.is_empty()) {
                next_page_token = page::encode(&filter, last_name(&tools));
                break;
            }
            tools.push(tool);
        }
        let (epoch, revision) = (catalog.epoch.to_string(), catalog.revision);
        Ok(v1::ListToolsResponse { tools, next_page_token, epoch, revision })
    }

    pub(super) fn namespaces(
        &self,
        request: &v1::ListNamespacesRequest,
    ) -> Result<v1::ListNamespacesResponse, Refusal> {
        let mut faults = Vec::new();
        let size = convert::page_size(request.page_size).map_err(|f| faults.push(f)).unwrap_or_default();
        let filter = page::Filter { rpc: "ListNamespaces", ..page::Filter::default() };
        let after = page::decode(&request.page_token, &filter).map_err(|f| faults.push(f)).ok().flatten();
        check(faults)?;
        let catalog = self.reader.load();
        let from = after.as_deref().map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let mut all = catalog.namespaces.range::<str, _>((from, std::ops::Bound::Unbounded));
        let namespaces: Vec<v1::NamespaceSummary> = all
            .by_ref()
            .take(size)
            .map(|(name, namespace)| {
                let (tools, available) = namespace.counts();
                v1::NamespaceSummary { name: name.to_string(), tools, available }
            })
            .collect();
        let last = namespaces.last().filter(|_| all.next().is_some());
        let next_page_token = last.map(|last| page::encode(&filter, &last.name)).unwrap_or_default();
        Ok(v1::ListNamespacesResponse { namespaces, next_page_token })
    }

    pub(super) fn diagnostics(
        &self,
        request: &v1::GetAllowlistDiagnosticsRequest,
    ) -> Result<v1::GetAllowlistDiagnosticsResponse, Refusal> {
        let all = request.namespace.is_empty();
        let namespace = (!all).then(|| namespace(&request.namespace)).transpose()?;
        let asked = request.allowed_tools.as_ref().map(|a| RequestAllowlist::parse(&a.names)).transpose()?;
        let catalog = self.reader.load();
        let registered = catalog.registered();
        let found = self.reader.allowlist().diagnostics(&registered, namespace.as_ref(), asked.as_ref());
        let collisions = catalog
            .collisions
            .iter()
            .filter(|c| namespace.as_ref().is_none_or(|n| *n == c.key.namespace))
            .map(|c| v1::Collision {
                namespace: c.key.namespace.to_string(),
                name: c.key.name.to_string(),
                owner: c.owner.to_string(),
                offered_by: c.offered_by.to_string(),
            });
        Ok(v1::GetAllowlistDiagnosticsResponse {
            env_var_name: found.env_var_name,
            env_value: found.env_value,
            is_ci: found.is_ci,
            whitelist: found.whitelist.map(|names| v1::AllowedTools { names }),
            registered_before_filter: found.registered_before_filter,
            registered_after_filter: found.registered_after_filter,
            dropped_tools: found.dropped_tools,
            unknown_tools: found.unknown_tools,
            collisions: collisions.collect(),
        })
    }
}

fn last_name(tools: &[v1::Tool]) -> &str {
    tools.last().and_then(|tool| tool.spec.as_ref()).map_or("", |spec| &spec.name)
}

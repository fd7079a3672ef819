//! Reads for owners and operators: tools with their status, namespaces, diagnostics.

use std::{collections::HashMap, sync::Arc};

use prost::Message;

use super::{ToolService, check};
use crate::{
    catalog::{Catalog, CatalogTool, Filter, Selection},
    core::{
        allowlist::{RequestAllowlist, ServerAllowlist, View},
        name::{Namespace, ToolKey},
        policy::AgentId,
        refusal::Refusal,
        registry::not_found,
    },
    proto::v1,
    service::{convert, convert::selection, page},
};

/// Where a page ends even if it may hold more: clients refuse replies of more than 4 MiB by default.
pub(in crate::service) const MAX_PAGE_BYTES: usize = 3_584 * 1_024;

impl ToolService {
    pub(super) fn get(&self, request: &v1::GetToolRequest) -> Result<v1::GetToolResponse, Refusal> {
        let mut faults = Vec::new();
        let namespace = convert::namespace(&request.namespace).map_err(|f| faults.push(f)).ok();
        let name = convert::tool_name("name", &request.name).map_err(|f| faults.push(f)).ok();
        let agent = selection::agent("agent_id", &request.agent_id).map_err(|f| faults.push(f));
        let (Some(namespace), Some(name), Ok(agent)) = (namespace, name, agent) else {
            return Err(Refusal::Invalid(faults));
        };
        let key = ToolKey { namespace, name };
        let catalog = self.reader.load();
        let permitted = |tool: &&Arc<CatalogTool>| {
            agent.is_none() || {
                let (namespace, agent) = (key.namespace.clone(), agent.clone());
                let filter = catalog.resolve(Selection { namespace, agent, ..Selection::default() });
                filter.permits(tool, self.reader.allowlist())
            }
        };
        let tool = catalog.get(&key).filter(permitted).ok_or_else(|| not_found(&key))?;
        let tool = convert::status::tool_with_transitions(tool, &self.clock);
        Ok(v1::GetToolResponse { tool: Some(tool), prober_suspicion: suspicion(&catalog) })
    }

    pub(super) fn list(&self, request: &v1::ListToolsRequest) -> Result<v1::ListToolsResponse, Refusal> {
        let mut faults = Vec::new();
        let parsed = convert::namespace(&request.namespace).map_err(|f| faults.push(f)).ok();
        let verdict = convert::verdict_filter(request.verdict).map_err(|f| faults.push(f)).ok().flatten();
        let size = convert::page_size(request.page_size).map_err(|f| faults.push(f)).unwrap_or_default();
        let labels = selection::selector("label_selector", &request.label_selector);
        let labels = labels.map_err(|f| faults.push(f)).unwrap_or_default();
        let labels_text = labels.to_string();
        let filter = page::Filter {
            rpc: "ListTools",
            namespace: parsed.as_ref().map_or("", |n| n.as_str()),
            owner: &request.owner,
            verdict: request.verdict,
            labels: &labels_text,
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
                && labels.matches(&tool.stored.spec.labels)
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
        let prober_suspicion = suspicion(&catalog);
        Ok(v1::ListToolsResponse { tools, next_page_token, epoch, revision, prober_suspicion })
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
        let mut faults = Vec::new();
        let one = (!request.namespace.is_empty()).then(|| convert::namespace(&request.namespace));
        let namespace = one.transpose().map_err(|f| faults.push(f)).ok().flatten();
        let agent =
            selection::agent("agent_id", &request.agent_id).map_err(|f| faults.push(f)).ok().flatten();
        let asked = selection::allowed(request.allowed_tools.as_ref());
        let asked = asked.map_err(|wrong| faults.extend(wrong)).ok().flatten();
        check(faults)?;
        let catalog = self.reader.load();
        let server = self.reader.allowlist();
        let registered = catalog.registered();
        let look = agent.map(|agent| Look::new(&catalog, agent, asked.clone(), server));
        let may_know = |key: &ToolKey| look.as_ref().is_none_or(|look| look.may_know(key));
        let view = View { namespace: namespace.as_ref(), request: asked.as_ref(), may_know: &may_know };
        let found = match &look {
            Some(look) => server.diagnose(&registered, &view, |key| look.permits(key)),
            None => server.diagnose(&registered, &view, |_| true),
        };
        let collisions = catalog
            .collisions
            .iter()
            .filter(|c| namespace.as_ref().is_none_or(|n| *n == c.key.namespace) && may_know(&c.key))
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

/// Why the prober suspects itself, if it does.
pub(super) fn suspicion(catalog: &Catalog) -> String {
    catalog.prober_suspicion.as_ref().map(|suspicion| suspicion.text.to_string()).unwrap_or_default()
}

/// The registry as an agent may know it. It may have a policy in each namespace.
struct Look<'a> {
    catalog: &'a Catalog,
    server: &'a ServerAllowlist,
    filters: HashMap<Namespace, Filter>,
    /// For namespaces without a registered tool.
    elsewhere: Filter,
}

impl<'a> Look<'a> {
    fn new(
        catalog: &'a Catalog,
        agent: AgentId,
        allowed: Option<RequestAllowlist>,
        server: &'a ServerAllowlist,
    ) -> Self {
        let filter = |namespace: &Namespace| {
            catalog.resolve(Selection {
                namespace: namespace.clone(),
                agent: Some(agent.clone()),
                allowed: allowed.clone(),
                ..Selection::default()
            })
        };
        let filters = catalog.namespaces.keys().map(|n| (n.clone(), filter(n))).collect();
        Self { catalog, server, filters, elsewhere: filter(&Namespace::default()) }
    }

    fn filter(&self, key: &ToolKey) -> &Filter {
        self.filters.get(&key.namespace).unwrap_or(&self.elsewhere)
    }

    fn tool(&self, key: &ToolKey) -> Option<&CatalogTool> {
        self.catalog.find(&key.namespace, key.name.as_str()).map(|tool| &**tool)
    }

    fn may_know(&self, key: &ToolKey) -> bool {
        self.tool(key).is_some_and(|tool| self.filter(key).may_know(tool))
    }

    fn permits(&self, key: &ToolKey) -> bool {
        self.tool(key).is_some_and(|tool| self.filter(key).permits(tool, self.server))
    }
}

fn last_name(tools: &[v1::Tool]) -> &str {
    tools.last().and_then(|tool| tool.spec.as_ref()).map_or("", |spec| &spec.name)
}

//! AgentPolicyService: parse, ask the owner or the catalog, reply.

use std::sync::Arc;

use prost::Message;
use tonic::{Request, Response, Status};

use super::{convert, error::refusal_to_status, page, tools::MAX_PAGE_BYTES};
use crate::{
    catalog::Reader,
    core::{
        allowlist::RequestAllowlist,
        name::Namespace,
        policy::{AgentId, Policy, Rules},
        refusal::{Fault, Refusal},
        registry::access::Over,
    },
    owner::Handle,
    proto::v1::{self, agent_policy_service_server::AgentPolicyService},
};

/// Most names of one policy.
const MAX_NAMES: usize = 10_000;

/// What the service is made of.
#[derive(Clone, Debug)]
pub struct PolicyService {
    handle: Handle,
    reader: Reader,
}

impl PolicyService {
    /// A service that asks `handle` for changes and answers reads from `reader`.
    pub fn new(handle: Handle, reader: Reader) -> Self {
        Self { handle, reader }
    }

    async fn set(&self, request: v1::SetAgentPolicyRequest) -> Result<v1::SetAgentPolicyResponse, Refusal> {
        let Some(given) = request.policy else { return Err(Refusal::invalid("policy", "must be given")) };
        let over = match (request.create_only, given.etag.as_str()) {
            (true, _) => Over::Nothing,
            (false, "") => Over::Any,
            (false, etag) => Over::Etag(etag.to_owned()),
        };
        let both = (request.create_only && !given.etag.is_empty()).then(|| {
            Fault::new("create_only", "must be false where policy.etag is set: no policy has it yet")
        });
        let under = |faults: Vec<Fault>| faults.into_iter().map(|f| f.under("policy"));
        let policy = match (parse(given), both) {
            (Ok(policy), None) => policy,
            (parsed, both) => {
                let faults = under(parsed.err().unwrap_or_default()).chain(both);
                return Err(Refusal::Invalid(faults.collect()));
            }
        };
        let revision = self.handle.set_policy(policy.clone(), over).await?;
        let epoch = self.reader.load().epoch.to_string();
        Ok(v1::SetAgentPolicyResponse { policy: Some(to_proto(&policy)), epoch, revision })
    }

    fn get(&self, request: &v1::GetAgentPolicyRequest) -> Result<v1::GetAgentPolicyResponse, Refusal> {
        let (namespace, agent) = key(&request.namespace, &request.agent_id)?;
        let catalog = self.reader.load();
        let policy = catalog.policy(&namespace, &agent).ok_or_else(|| Refusal::PolicyNotFound {
            namespace: namespace.to_string(),
            agent_id: agent.to_string(),
        })?;
        Ok(v1::GetAgentPolicyResponse { policy: Some(to_proto(policy)) })
    }

    fn list(&self, request: &v1::ListAgentPoliciesRequest) -> Result<v1::ListAgentPoliciesResponse, Refusal> {
        let mut faults = Vec::new();
        let parsed = convert::namespace(&request.namespace).map_err(|f| faults.push(f)).ok();
        let size = convert::page_size(request.page_size).map_err(|f| faults.push(f)).unwrap_or_default();
        let filter = page::Filter {
            rpc: "ListAgentPolicies",
            namespace: parsed.as_ref().map_or("", |n| n.as_str()),
            ..page::Filter::default()
        };
        let after = page::decode(&request.page_token, &filter).map_err(|f| faults.push(f)).ok().flatten();
        let after = after.map(|id| AgentId::parse(&id)).transpose();
        let after = after.map_err(|message| faults.push(Fault::new("page_token", message))).ok().flatten();
        if !faults.is_empty() {
            return Err(Refusal::Invalid(faults));
        }
        let namespace = parsed.clone().unwrap_or_default();
        let catalog = self.reader.load();
        let (mut policies, mut bytes) = (Vec::new(), 0);
        let mut next_page_token = String::new();
        let mut last = String::new();
        for policy in catalog.policies_after(&namespace, after.unwrap_or_else(AgentId::least)) {
            let pb = to_proto(policy);
            bytes += pb.encoded_len() + 8;
            if policies.len() == size || (bytes > MAX_PAGE_BYTES && !policies.is_empty()) {
                next_page_token = page::encode(&filter, &last);
                break;
            }
            last.clone_from(&pb.agent_id);
            policies.push(pb);
        }
        Ok(v1::ListAgentPoliciesResponse { policies, next_page_token })
    }

    async fn delete(
        &self,
        request: v1::DeleteAgentPolicyRequest,
    ) -> Result<v1::DeleteAgentPolicyResponse, Refusal> {
        let key = key(&request.namespace, &request.agent_id)?;
        let revision = self.handle.delete_policy(key, request.etag).await?;
        Ok(v1::DeleteAgentPolicyResponse { epoch: self.reader.load().epoch.to_string(), revision })
    }
}

fn key(namespace: &str, agent: &str) -> Result<(Namespace, AgentId), Refusal> {
    let namespace = convert::namespace(namespace);
    match (namespace, required_agent(agent)) {
        (Ok(namespace), Ok(agent)) => Ok((namespace, agent)),
        (namespace, agent) => Err(Refusal::Invalid(namespace.err().into_iter().chain(agent.err()).collect())),
    }
}

fn required_agent(text: &str) -> Result<AgentId, Fault> {
    AgentId::parse(text).map_err(|message| Fault::new("agent_id", message))
}

/// A policy that may be stored.
fn parse(pb: v1::AgentPolicy) -> Result<Policy, Vec<Fault>> {
    let v1::AgentPolicy {
        namespace,
        agent_id,
        allowed_tools,
        denied_tools,
        deny_all,
        label_selector,
        max_tools,
        etag: _,
    } = pb;
    let mut faults = Vec::new();
    let namespace = convert::namespace(&namespace).map_err(|f| faults.push(f)).ok();
    let agent = required_agent(&agent_id).map_err(|f| faults.push(f)).ok();
    let allowed = convert::selection::allowed(allowed_tools.as_ref());
    let allowed = allowed.map_err(|wrong| faults.extend(wrong)).ok().flatten();
    let denied =
        (!denied_tools.is_empty()).then(|| RequestAllowlist::parse_at("denied_tools", &denied_tools));
    let denied = denied.transpose().map_err(|wrong| faults.extend(wrong)).ok().flatten();
    let names = allowed_tools.map_or(0, |list| list.names.len()) + denied_tools.len();
    if names > MAX_NAMES && faults.is_empty() {
        let message = format!("has {names} names together with allowed_tools; at most {MAX_NAMES}");
        faults.push(Fault::new("denied_tools", message));
    }
    let selector = convert::selection::selector("label_selector", &label_selector);
    let selector = selector.map_err(|f| faults.push(f)).unwrap_or_default();
    match (namespace, agent) {
        (Some(namespace), Some(agent)) if faults.is_empty() => {
            let rules = Rules { allowed, denied, deny_all, selector, max_tools };
            Ok(Policy { namespace, agent, rules: Arc::new(rules) })
        }
        _ => Err(faults),
    }
}

fn to_proto(policy: &Policy) -> v1::AgentPolicy {
    let Rules { allowed, denied, deny_all, selector, max_tools } = &*policy.rules;
    v1::AgentPolicy {
        namespace: policy.namespace.to_string(),
        agent_id: policy.agent.to_string(),
        allowed_tools: allowed.as_ref().map(|list| v1::AllowedTools { names: list.names().to_vec() }),
        denied_tools: denied.as_ref().map(|list| list.names().to_vec()).unwrap_or_default(),
        deny_all: *deny_all,
        label_selector: selector.to_string(),
        max_tools: *max_tools,
        etag: policy.etag(),
    }
}

fn reply<T>(answer: Result<T, Refusal>) -> Result<Response<T>, Status> {
    answer.map(Response::new).map_err(|refusal| refusal_to_status(&refusal))
}

#[tonic::async_trait]
impl AgentPolicyService for PolicyService {
    async fn set_agent_policy(
        &self,
        request: Request<v1::SetAgentPolicyRequest>,
    ) -> Result<Response<v1::SetAgentPolicyResponse>, Status> {
        reply(self.set(request.into_inner()).await)
    }

    async fn get_agent_policy(
        &self,
        request: Request<v1::GetAgentPolicyRequest>,
    ) -> Result<Response<v1::GetAgentPolicyResponse>, Status> {
        reply(self.get(&request.into_inner()))
    }

    async fn list_agent_policies(
        &self,
        request: Request<v1::ListAgentPoliciesRequest>,
    ) -> Result<Response<v1::ListAgentPoliciesResponse>, Status> {
        reply(self.list(&request.into_inner()))
    }

    async fn delete_agent_policy(
        &self,
        request: Request<v1::DeleteAgentPolicyRequest>,
    ) -> Result<Response<v1::DeleteAgentPolicyResponse>, Status> {
        reply(self.delete(request.into_inner()).await)
    }
}

//! Registering, unregistering, clearing.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use tokio::time::{Instant, timeout_at};

use super::{ToolService, check, patience};
use crate::{
    core::{
        availability::{Defaults, Verdict, Windows},
        name::{Namespace, ToolKey},
        refusal::{Fault, Refusal},
        registry::plan::{Registered, Registration},
        tool::{ToolSpec, spec_hash, warnings},
    },
    owner::{Registering, Unregistering},
    prober::{carry, egress},
    proto::v1,
    render::mapped_names,
    service::{convert, error::refusal_to_proto},
};

/// Most tools of one batch, and most names to unregister at once.
const MAX_BATCH: usize = 10_000;

/// Tools that are judged before others get their turn.
const TURN: usize = 32;

/// Judges specs: their fields, their windows, where their probes go.
#[derive(Clone, Debug)]
pub struct Judge {
    /// The server's default windows.
    pub defaults: Defaults,
    /// Where probes may go.
    pub egress: egress::Policy,
    /// What probes may carry.
    pub rules: carry::Rules,
}

/// Who registers, and how.
#[derive(Clone, Debug)]
pub struct Manner {
    /// The tools' namespace.
    pub namespace: Namespace,
    /// Who.
    pub owner: Arc<str>,
    /// Replace different specs.
    pub overwrite: bool,
    /// Replace others'.
    pub force: bool,
    /// Declared by the server's manifest.
    pub from_manifest: bool,
}

impl Judge {
    /// A spec that may be registered.
    ///
    /// # Errors
    /// All faults of the spec, with paths relative to it.
    pub fn spec(&self, pb: v1::ToolSpec, manner: &Manner) -> Result<Registration, Vec<Fault>> {
        let spec = convert::tool_spec(pb)?;
        let mut faults = Vec::new();
        if !spec.probes.is_empty()
            && let Err(wrong) = Windows::derive(&spec.windows, &self.defaults)
        {
            faults.extend(wrong);
        }
        for (i, probe) in spec.probes.iter().enumerate() {
            if let Some(endpoint) = probe.kind.endpoint()
                && let Err(message) = self.egress.check_literal(endpoint)
            {
                faults.push(Fault::new(format!("probes[{i}].{}", probe.kind.label()), message));
            }
            if let Err(message) = self.rules.judge(&probe.kind) {
                let field = format!("probes[{i}].{}.tls.insecure_skip_verify", probe.kind.label());
                faults.push(Fault::new(field, message));
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let key = ToolKey { namespace: manner.namespace.clone(), name: spec.name.clone() };
        Ok(Registration {
            namespace: manner.namespace.clone(),
            spec_hash: spec_hash(&spec),
            mapped_names: mapped_names(&key),
            spec: Arc::new(spec),
            owner: Arc::clone(&manner.owner),
            overwrite: manner.overwrite,
            force: manner.force,
            from_manifest: manner.from_manifest,
        })
    }

    /// What is allowed in a spec and still worth telling the one who registers it.
    pub(crate) async fn warnings(&self, spec: &ToolSpec) -> Vec<v1::Warning> {
        let mut found = warnings(spec);
        found.extend(self.rules.warnings(spec).await);
        convert::format::warnings(&found)
    }
}

impl ToolService {
    pub(super) async fn register_one(
        &self,
        request: v1::RegisterToolRequest,
        deadline: Option<Duration>,
    ) -> Result<v1::RegisterToolResponse, Refusal> {
        let v1::RegisterToolRequest {
            namespace,
            tool,
            overwrite,
            force,
            owner,
            validate_only,
            wait_for_probe,
        } = request;
        let mut faults = Vec::new();
        // Whatever is wrong with the manner is a fault already; the spec's own faults are told beside it.
        let manner = manner(&mut faults, &namespace, &owner, overwrite, force).unwrap_or_default();
        let wait = wait(&mut faults, wait_for_probe.as_ref());
        let item = match tool {
            None => {
                faults.push(Fault::new("tool", "must be given"));
                None
            }
            Some(mut spec) => {
                self.recall(&mut spec, &manner);
                let judged = self.judge.spec(spec, &manner);
                judged.map_err(|wrong| faults.extend(wrong.into_iter().map(|f| f.under("tool")))).ok()
            }
        };
        check(faults)?;
        let Some(item) = item else { return Err(Refusal::invalid("tool", "must be given")) };
        let key = item.key();
        let spec = Arc::clone(&item.spec);
        let registering = Registering { items: vec![Ok(item)], all_or_nothing: false, validate_only };
        let mut answer = self.handle.register(registering).await?;
        let (result, registered) = answer.results.remove(0).map_err(|refusal| refusal.under("tool"))?;
        if !validate_only {
            self.wait_for_probes(&[(key.clone(), registered.generation)], patience(wait, deadline)).await;
        }
        let catalog = self.reader.load();
        // What this call registered, and not what another one made of it meanwhile: its generation vouches for results.
        let tool = match catalog.get(&key).filter(|tool| tool.stored.generation == registered.generation) {
            Some(tool) => Some(convert::status::tool(tool, &self.clock)),
            None if validate_only => catalog.get(&key).map(|tool| convert::status::tool(tool, &self.clock)),
            None => Some(convert::status::stored(&registered)),
        };
        Ok(v1::RegisterToolResponse {
            tool,
            result: result_to_proto(result, validate_only).into(),
            epoch: catalog.epoch.to_string(),
            revision: answer.revision.max(catalog.revision),
            warnings: self.judge.warnings(&spec).await,
            formats: if validate_only { convert::format::verdicts(&key, &spec) } else { Vec::new() },
        })
    }

    pub(super) async fn register_many(
        &self,
        request: v1::RegisterToolsRequest,
        deadline: Option<Duration>,
    ) -> Result<v1::RegisterToolsResponse, Refusal> {
        let v1::RegisterToolsRequest { namespace, tools, overwrite, force, owner, validate_only, .. } =
            &request;
        let mut faults = Vec::new();
        let asked = manner(&mut faults, namespace, owner, *overwrite, *force);
        let wait = wait(&mut faults, request.wait_for_probe.as_ref());
        if tools.len() > MAX_BATCH {
            faults.push(Fault::new("tools", format!("has {} tools; at most {MAX_BATCH}", tools.len())));
        }
        check(faults)?;
        let manner = asked.unwrap_or_default();
        let names: Vec<String> = tools.iter().map(|tool| tool.name.clone()).collect();
        let validate_only = *validate_only;
        let all_or_nothing = request.all_or_nothing;
        let items = self.judge_batch(request.tools, &names, &manner).await;
        let specs: Vec<_> =
            items.iter().map(|item| item.as_ref().ok().map(|i| Arc::clone(&i.spec))).collect();
        let answer = self.handle.register(Registering { items, all_or_nothing, validate_only }).await?;
        let key = |name: &str| {
            let name = crate::core::name::ToolName::parse(name).ok()?;
            Some(ToolKey { namespace: manner.namespace.clone(), name })
        };
        if !validate_only && !wait.is_zero() {
            let registered: Vec<(ToolKey, u64)> = names
                .iter()
                .zip(&answer.results)
                .filter_map(|(name, result)| Some((key(name)?, result.as_ref().ok()?.1.generation)))
                .collect();
            self.wait_for_probes(&registered, patience(wait, deadline)).await;
        }
        let catalog = self.reader.load();
        let mut results = Vec::with_capacity(names.len());
        for (i, ((name, result), spec)) in names.into_iter().zip(answer.results).zip(specs).enumerate() {
            results.push(match result {
                Ok((result, registered)) => {
                    let spec = spec.as_deref();
                    let told = match spec {
                        Some(spec) => self.judge.warnings(spec).await,
                        None => Vec::new(),
                    };
                    let formats = spec.filter(|_| validate_only).and_then(|s| Some((key(&name)?, s)));
                    if formats.is_some() {
                        // Seven formats of many tools: others get their turn.
                        tokio::task::yield_now().await;
                    }
                    let tool = key(&name)
                        .and_then(|key| catalog.get(&key))
                        .filter(|tool| !validate_only && tool.stored.generation == registered.generation);
                    v1::RegisterToolResult {
                        name,
                        result: result_to_proto(result, validate_only).into(),
                        generation: if validate_only { 0 } else { registered.generation },
                        verdict: tool.map_or(0, |tool| convert::status::verdict(tool.status.verdict).into()),
                        error: None,
                        warnings: told,
                        formats: formats
                            .map(|(key, s)| convert::format::verdicts(&key, s))
                            .unwrap_or_default(),
                    }
                }
                Err(refusal) => v1::RegisterToolResult {
                    name,
                    result: v1::RegisterResult::Rejected.into(),
                    error: Some(refusal_to_proto(&refusal.under(&format!("tools[{i}]")))),
                    ..Default::default()
                },
            });
        }
        Ok(v1::RegisterToolsResponse {
            results,
            epoch: catalog.epoch.to_string(),
            revision: answer.revision.max(catalog.revision),
        })
    }

    pub(super) async fn unregister(
        &self,
        request: v1::UnregisterToolsRequest,
    ) -> Result<v1::UnregisterToolsResponse, Refusal> {
        let v1::UnregisterToolsRequest { namespace, names, owner, force } = request;
        let mut faults = Vec::new();
        let asked = manner(&mut faults, &namespace, &owner, false, force);
        if names.is_empty() || names.len() > MAX_BATCH {
            faults
                .push(Fault::new("names", format!("has {} names; 1 to {MAX_BATCH} are right", names.len())));
        }
        let mut parsed = Vec::new();
        for (i, name) in names.iter().enumerate().take(MAX_BATCH) {
            match convert::tool_name(&format!("names[{i}]"), name) {
                Ok(name) => parsed.push(name),
                Err(fault) => faults.push(fault),
            }
        }
        check(faults)?;
        let Manner { namespace, owner, .. } = asked.unwrap_or_default();
        let keys: BTreeSet<ToolKey> =
            parsed.into_iter().map(|name| ToolKey { namespace: namespace.clone(), name }).collect();
        let unregistering = Unregistering { keys, owner: owner.to_string(), force };
        let answer = self.handle.unregister(unregistering).await?;
        let names = |keys: Vec<ToolKey>| keys.into_iter().map(|key| key.name.to_string()).collect();
        Ok(v1::UnregisterToolsResponse {
            unregistered: names(answer.unregistered),
            not_found: names(answer.not_found),
            denied: names(answer.denied),
            epoch: self.epoch(),
            revision: answer.revision,
        })
    }

    pub(super) async fn clear(
        &self,
        request: v1::ClearToolsRequest,
    ) -> Result<v1::ClearToolsResponse, Refusal> {
        let v1::ClearToolsRequest { namespace, owner, all } = request;
        let mut faults = Vec::new();
        let asked = manner(&mut faults, &namespace, &owner, false, false);
        if owner.is_empty() != all {
            faults.push(Fault::new("all", "exactly one of owner and all = true must be given"));
        }
        check(faults)?;
        let Manner { namespace, owner, .. } = asked.unwrap_or_default();
        let answer = self.handle.clear(namespace, (!all).then(|| owner.to_string())).await?;
        Ok(v1::ClearToolsResponse {
            unregistered: answer.count,
            epoch: self.epoch(),
            revision: answer.revision,
        })
    }

    /// Puts back what replies hide of the tool that is there already.
    fn recall(&self, spec: &mut v1::ToolSpec, manner: &Manner) {
        let Ok(name) = convert::tool_name("name", &spec.name) else { return };
        let key = ToolKey { namespace: manner.namespace.clone(), name };
        if let Some(tool) = self.reader.load().get(&key) {
            convert::recall(spec, &tool.stored, &manner.owner);
        }
    }

    /// Fields in the refusals are relative to their tool.
    async fn judge_batch(
        &self,
        tools: Vec<v1::ToolSpec>,
        names: &[String],
        manner: &Manner,
    ) -> Vec<Result<Registration, Refusal>> {
        let mut count: HashMap<&str, usize> = HashMap::new();
        for name in names {
            *count.entry(name).or_default() += 1;
        }
        let judge = |mut spec: v1::ToolSpec| {
            self.recall(&mut spec, manner);
            let mut faults: Vec<Fault> = Vec::new();
            let twice = count.get(spec.name.as_str()).is_some_and(|n| *n > 1);
            if twice && !spec.name.is_empty() {
                let message = format!("name '{}' is in this batch more than once", spec.name);
                faults.push(Fault::new("name", message));
            }
            match self.judge.spec(spec, manner) {
                Ok(registration) if faults.is_empty() => return Ok(registration),
                Ok(_) => {}
                Err(wrong) => faults.extend(wrong),
            }
            Err(Refusal::Invalid(faults))
        };
        let mut judged = Vec::with_capacity(tools.len());
        for tool in tools {
            judged.push(judge(tool));
            if judged.len() % TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
        judged
    }

    /// Waits until none of the tools is pending, or the time is up.
    async fn wait_for_probes(&self, tools: &[(ToolKey, u64)], patience: Duration) {
        let deadline = Instant::now() + patience;
        let mut revisions = self.reader.revisions();
        loop {
            revisions.borrow_and_update();
            let catalog = self.reader.load();
            let pending = |(key, generation): &(ToolKey, u64)| {
                catalog.get(key).is_some_and(|tool| {
                    tool.stored.generation == *generation && tool.status.verdict == Verdict::Pending
                })
            };
            let done = patience.is_zero() || !tools.iter().any(pending);
            if done || !matches!(timeout_at(deadline, revisions.changed()).await, Ok(Ok(()))) {
                return;
            }
        }
    }
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            namespace: Namespace::default(),
            owner: crate::core::name::ANONYMOUS.into(),
            overwrite: false,
            force: false,
            from_manifest: false,
        }
    }
}

fn manner(
    faults: &mut Vec<Fault>,
    namespace: &str,
    owner: &str,
    overwrite: bool,
    force: bool,
) -> Option<Manner> {
    let namespace = convert::namespace(namespace).map_err(|fault| faults.push(fault)).ok();
    let owner = convert::owner(owner).map_err(|fault| faults.push(fault)).ok();
    Some(Manner { namespace: namespace?, owner: owner?.into(), overwrite, force, from_manifest: false })
}

fn wait(faults: &mut Vec<Fault>, given: Option<&prost_types::Duration>) -> Duration {
    let Some(given) = given else { return Duration::ZERO };
    convert::duration("wait_for_probe", given, convert::WAIT).unwrap_or_else(|fault| {
        faults.push(fault);
        Duration::ZERO
    })
}

fn result_to_proto(result: Registered, validate_only: bool) -> v1::RegisterResult {
    match result {
        _ if validate_only => v1::RegisterResult::Valid,
        Registered::Created => v1::RegisterResult::Created,
        Registered::Unchanged => v1::RegisterResult::Unchanged,
        Registered::Replaced => v1::RegisterResult::Replaced,
    }
}

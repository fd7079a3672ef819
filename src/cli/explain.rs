//! `tools explain`, `search`, `enable`, `disable` and `approve-labels`: why an agent sees a tool or not, and what an operator does about it.

use clap::Args;
use serde_json::{Value, json};

use super::{
    Failure,
    client::{self, CALL, request},
    json, print,
    selection::{AgentArgs, BudgetArgs},
};
use crate::{
    config::ClientSettings,
    core::name::clean,
    proto::v1::{
        ApproveToolLabelsRequest, ExplainToolRequest, ExplainToolResponse, ExplainedStage, ListToolsRequest,
        SearchToolsRequest, SetToolEnabledRequest,
    },
};

/// Longest sentence, in characters: it must hold names and a command.
const MAX_LINE: usize = 1_000;
/// Characters of a description in a table.
const SHORT: usize = 60;

/// Which tool to explain, and for whom.
#[derive(Clone, Debug, Args)]
pub struct ExplainArgs {
    /// The tool's name
    pub name: String,
    /// For whom.
    #[command(flatten)]
    pub who: AgentArgs,
    /// How much the list may hold.
    #[command(flatten)]
    pub budget: BudgetArgs,
}

/// What to search for, and for whom.
#[derive(Clone, Debug, Args)]
pub struct SearchArgs {
    /// Words to look for
    #[arg(required = true, value_name = "QUERY")]
    pub query: Vec<String>,
    /// At most so many tools
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub limit: i32,
    /// For whom.
    #[command(flatten)]
    pub who: AgentArgs,
}

/// Explains; the exit code is 1 where the agent does not see the tool.
pub(super) async fn explain(args: ExplainArgs, settings: &ClientSettings) -> Result<(), Failure> {
    let reply = explanation(&args.name, &args.who, &args.budget, settings).await?;
    if settings.json {
        let stages: Vec<Value> = reply.stages.iter().map(stage_json).collect();
        print::json(&json!({
            "visible": reply.visible,
            "stages": stages,
            "epoch": reply.epoch,
            "revision": reply.revision,
        }))?;
    } else {
        print::line(&headline(&args.name, &args.who.agent, &reply))?;
        print::line("")?;
        let rows: Vec<Vec<String>> = reply.stages.iter().map(row).collect();
        print::table(&["STAGE", "PASSED", "REASON", "SINCE", "MESSAGE"], &rows)?;
    }
    if reply.visible { Ok(()) } else { Err(Failure::Silent(1)) }
}

async fn explanation(
    name: &str,
    who: &AgentArgs,
    budget: &BudgetArgs,
    settings: &ClientSettings,
) -> Result<ExplainToolResponse, Failure> {
    let message = ExplainToolRequest {
        namespace: settings.namespace.to_string(),
        name: name.to_owned(),
        agent_id: who.agent.clone(),
        allowed_tools: who.allowed(),
        label_selector: who.selector.clone(),
        format: who.format(),
        max_tools: budget.max_tools,
        max_tokens: budget.max_tokens,
    };
    let reply = client::tools(settings).await?.explain_tool(request(message, CALL)).await;
    Ok(reply.map_err(|status| Failure::call(&status))?.into_inner())
}

/// The answer in one sentence.
fn headline(name: &str, agent: &str, reply: &ExplainToolResponse) -> String {
    let who = print::who(agent);
    let line = match reply.stages.iter().find(|stage| !stage.passed) {
        None => format!("'{name}' is visible to {who}"),
        // There is nothing that could be hidden.
        Some(stage) if ["registered", "namespace"].contains(&stage.stage.as_str()) => stage.message.clone(),
        Some(stage) => format!("'{name}' is hidden from {who} by {}: {}", stage.stage, why(stage)),
    };
    clean(&line, MAX_LINE)
}

/// Why a stage judges as it does, in the best words that there are.
fn why(stage: &ExplainedStage) -> &str {
    if stage.message.is_empty() { &stage.reason } else { &stage.message }
}

/// Says why a list is empty: there is nothing, or one of the tools that there are, for an example, and what hides it.
pub(super) async fn empty_list(
    who: &AgentArgs,
    budget: &BudgetArgs,
    settings: &ClientSettings,
) -> Result<(), Failure> {
    let namespace = settings.namespace.to_string();
    let nothing = format!("no tools for {} in namespace '{namespace}'", print::who(&who.agent));
    let first = ListToolsRequest { namespace, page_size: 1, ..Default::default() };
    let first = client::tools(settings).await?.list_tools(request(first, CALL)).await;
    let first = first.map_err(|status| Failure::call(&status))?.into_inner().tools;
    let Some(name) = first.into_iter().find_map(|tool| tool.spec).map(|spec| spec.name) else {
        print::note(&format!("{nothing}: none is registered"));
        return Ok(());
    };
    let explained = explanation(&name, who, budget, settings).await?;
    let Some(stage) = explained.stages.iter().find(|stage| !stage.passed) else {
        print::note(&nothing);
        return Ok(());
    };
    let (stage, why) = (&stage.stage, why(stage));
    print::note(&format!(
        "{nothing}; '{name}', for one, is hidden by {stage}: {why}. 'toolpulse tools list --all' shows what is \
         registered, 'toolpulse tools explain {name}', with the same flags, what hides it"
    ));
    Ok(())
}

fn row(stage: &ExplainedStage) -> Vec<String> {
    let passed = if stage.passed { "yes" } else { "NO" };
    let since = print::time(stage.since.as_ref());
    vec![stage.stage.clone(), passed.to_owned(), stage.reason.clone(), since, stage.message.clone()]
}

fn stage_json(stage: &ExplainedStage) -> Value {
    json!({
        "stage": stage.stage,
        "passed": stage.passed,
        "reason": stage.reason,
        "message": stage.message,
        "since": stage.since.as_ref().map(ToString::to_string),
    })
}

pub(super) async fn search(args: SearchArgs, settings: &ClientSettings) -> Result<(), Failure> {
    let message = SearchToolsRequest {
        namespace: settings.namespace.to_string(),
        agent_id: args.who.agent.clone(),
        allowed_tools: args.who.allowed(),
        label_selector: args.who.selector.clone(),
        format: args.who.format(),
        query: args.query.join(" "),
        limit: args.limit,
    };
    let reply = client::tools(settings).await?.search_tools(request(message, CALL)).await;
    let reply = reply.map_err(|status| Failure::call(&status))?.into_inner();
    let tools = reply.results.into_iter().map(|found| (found.tool.unwrap_or_default(), found.score));
    if settings.json {
        let results: Vec<Value> = tools
            .map(|(tool, score)| {
                json!({
                    "name": tool.name,
                    "exposed_name": tool.exposed_name,
                    "score": score,
                    "spec_hash": tool.spec_hash,
                    "token_estimate": tool.token_estimate,
                    "endpoint": tool.endpoint,
                    "definition_json": tool.definition_json,
                })
            })
            .collect();
        return print::json(&json!({"results": results}));
    }
    let rows: Vec<Vec<String>> = tools
        .map(|(tool, score)| {
            let definition: Value = serde_json::from_str(&tool.definition_json).unwrap_or_default();
            let function = definition.get("function").unwrap_or(&definition);
            let description = function.get("description").and_then(Value::as_str).unwrap_or_default();
            vec![tool.name, format!("{score:.2}"), tool.endpoint, print::short(description, SHORT)]
        })
        .collect();
    let none = format!("no tool that {} may use now fits", print::who(&args.who.agent));
    print::table_or(&["NAME", "SCORE", "ENDPOINT", "DESCRIPTION"], &rows, &none)
}

/// Throws the switch of one tool.
pub(super) async fn switch(
    name: String,
    enabled: bool,
    message: String,
    settings: &ClientSettings,
) -> Result<(), Failure> {
    let namespace = settings.namespace.to_string();
    let message = SetToolEnabledRequest { namespace, name: name.clone(), enabled, message };
    let reply = client::tools(settings).await?.set_tool_enabled(request(message, CALL)).await;
    let reply = reply.map_err(|status| Failure::call(&status))?.into_inner();
    if settings.json {
        return print::json(&json!({
            "status": reply.status.as_ref().map(json::status),
            "epoch": reply.epoch,
            "revision": reply.revision,
        }));
    }
    let what = if enabled { "enabled" } else { "disabled: no agent sees it" };
    print::line(&print::cell(&format!("'{name}' is {what}")))
}

/// Approves the labels of one tool as they are.
pub(super) async fn approve_labels(name: String, settings: &ClientSettings) -> Result<(), Failure> {
    let message = ApproveToolLabelsRequest { namespace: settings.namespace.to_string(), name: name.clone() };
    let reply = client::tools(settings).await?.approve_tool_labels(request(message, CALL)).await;
    let reply = reply.map_err(|status| Failure::call(&status))?.into_inner();
    if settings.json {
        return print::json(&json!({
            "tool": reply.tool.as_ref().map(json::tool),
            "epoch": reply.epoch,
            "revision": reply.revision,
        }));
    }
    let labels = reply.tool.and_then(|tool| tool.spec).map(|spec| print::labels(&spec.labels));
    let labels = labels.unwrap_or_default();
    print::line(&clean(&format!("the labels of '{name}' are approved: {labels}"), MAX_LINE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_stage_that_stops_it_is_the_answer() {
        let stage = |stage: &str, passed, reason: &str, message: &str| ExplainedStage {
            stage: stage.to_owned(),
            passed,
            reason: reason.to_owned(),
            message: message.to_owned(),
            since: None,
        };
        for (missing, message) in [
            ("registered", "no tool 'a' in namespace 'default'; did you mean 'b'?"),
            ("namespace", "tool 'a' is in namespace 'other', not in 'default'"),
        ] {
            let stages = vec![stage(missing, false, "X", message)];
            let reply = ExplainToolResponse { stages, ..Default::default() };
            assert_eq!(headline("a", "bot", &reply), message);
        }
        let mut reply = ExplainToolResponse { visible: true, ..Default::default() };
        reply.stages = vec![stage("registered", true, "", "")];
        assert_eq!(headline("a", "", &reply), "'a' is visible to an agent without a policy");
        reply.stages.push(stage("policy", false, "DENIED", "the policy of 'bot' denies it by name"));
        reply.stages.push(stage("availability", false, "X", "y"));
        assert_eq!(
            headline("a", "bot", &reply),
            "'a' is hidden from agent 'bot' by policy: the policy of 'bot' denies it by name"
        );
    }
}

//! One tool: all that is known of it, and what its probes say now.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{
    super::{
        Failure,
        client::{self, CALL, request},
        json, print,
    },
    verdict,
};
use crate::{
    catalog::approve_command,
    config::ClientSettings,
    proto::v1::{
        ErrorClass, GetToolRequest, ProbeOutcome, ProbeRun, ProbeToolRequest, ProbeWindows, Tool, ToolStatus,
        Transition, Warning,
    },
};

pub(super) async fn get(name: String, agent_id: String, settings: &ClientSettings) -> Result<(), Failure> {
    let message = GetToolRequest { namespace: settings.namespace.to_string(), name, agent_id };
    let reply = client::tools(settings).await?.get_tool(request(message, CALL)).await;
    let reply = reply.map_err(|status| Failure::call(&status))?.into_inner();
    let tool = reply.tool.unwrap_or_default();
    if settings.json {
        print::json(&json::tool(&tool))?
    } else {
        print_tool(&tool)?
    }
    warn_of(&reply.prober_suspicion);
    Ok(())
}

/// What the prober suspects of itself stands beside every verdict.
pub(super) fn warn_of(suspicion: &str) {
    if !suspicion.is_empty() {
        print::warn(&format!("the prober suspects its own network: {suspicion}"));
    }
}

fn print_tool(tool: &Tool) -> Result<(), Failure> {
    print::line(&lines(&tool_lines(tool)))?;
    let status = tool.status.clone().unwrap_or_default();
    if status.probes.is_empty() {
        return Ok(());
    }
    let targets: HashMap<String, String> = tool.spec.iter().flat_map(|s| &s.probes).map(target).collect();
    let rows: Vec<Vec<String>> = status
        .probes
        .iter()
        .map(|p| {
            vec![
                p.name.clone(),
                json::verdict(p.verdict).trim_start_matches("VERDICT_").to_owned(),
                json::outcome(p.outcome).trim_start_matches("PROBE_OUTCOME_").to_owned(),
                print::took(p.last_probe_duration.as_ref()),
                targets.get(&p.name).cloned().unwrap_or_default(),
                p.message.clone(),
            ]
        })
        .collect();
    print::line("")?;
    print::table(&["PROBE", "VERDICT", "LAST", "TOOK", "TARGET", "MESSAGE"], &rows)?;
    if tool.transitions.is_empty() {
        return Ok(());
    }
    print::line("")?;
    let rows: Vec<Vec<String>> = tool.transitions.iter().rev().map(transition_row).collect();
    print::table(&["TURNED", "FROM", "TO", "PROBE", "REASON", "MESSAGE"], &rows)
}

fn transition_row(turn: &Transition) -> Vec<String> {
    let verdict = |value| json::verdict(value).trim_start_matches("VERDICT_").to_owned();
    let reason = match turn.error_class() {
        ErrorClass::Unspecified => turn.reason.clone(),
        class => class.as_str_name().trim_start_matches("ERROR_CLASS_").to_owned(),
    };
    vec![
        print::time(turn.time.as_ref()),
        verdict(turn.from),
        verdict(turn.to),
        turn.probe.clone(),
        reason,
        turn.message.clone(),
    ]
}

/// A probe's name, the kind's where it has none, and what it asks.
fn target(probe: &crate::proto::v1::ProbeSpec) -> (String, String) {
    use crate::proto::v1::probe_spec::Kind;
    let (kind, target) = match &probe.kind {
        Some(Kind::Http(http)) => ("http", http.url.clone()),
        Some(Kind::Grpc(grpc)) if grpc.service.is_empty() => ("grpc", grpc.target.clone()),
        Some(Kind::Grpc(grpc)) => ("grpc", format!("{} {}", grpc.target, grpc.service)),
        Some(Kind::Tcp(tcp)) => ("tcp", tcp.address.clone()),
        Some(Kind::Mcp(mcp)) => ("mcp", mcp.url.clone()),
        Some(Kind::Report(_)) => ("report", String::new()),
        None => ("", String::new()),
    };
    let name = if probe.name.is_empty() { kind.to_owned() } else { probe.name.clone() };
    (name, target)
}

/// What is set of a tool, as names and values.
fn tool_lines(tool: &Tool) -> Vec<(&'static str, String)> {
    let spec = tool.spec.clone().unwrap_or_default();
    let status = tool.status.clone().unwrap_or_default();
    let labels = if spec.labels.is_empty() { String::new() } else { print::labels(&spec.labels) };
    let (approved, approve) = match &tool.approved_labels {
        None => (String::new(), String::new()),
        Some(approved) => (
            format!("{}; policies ask for these as well", print::labels(&approved.labels)),
            approve_command(&tool.namespace, &spec.name),
        ),
    };
    let disabled = match (status.enabled, status.disabled_message.as_str()) {
        (true, _) => String::new(),
        (false, "") => "yes".to_owned(),
        (false, message) => format!("yes: {message}"),
    };
    let unregister_after = match &spec.unregister_after {
        Some(_) if tool.from_manifest => String::new(),
        Some(after) => format!("{after} without a break unavailable"),
        None => String::new(),
    };
    let manifest = if tool.from_manifest { " (manifest)" } else { "" };
    let why = match status.message.is_empty() {
        true => status.reason.clone(),
        false => format!("{}: {}", status.reason, status.message),
    };
    let all = [
        ("name", format!("{}/{}", tool.namespace, spec.name)),
        ("title", spec.title),
        ("description", print::short(&spec.description, 100)),
        ("owner", format!("{}{manifest}", tool.owner)),
        ("verdict", verdict(&status)),
        ("reason", why),
        ("disabled", disabled),
        ("since", print::time(status.since.as_ref())),
        ("last success", print::time(status.last_success_time.as_ref())),
        ("generation", tool.generation.to_string()),
        ("created", print::time(tool.create_time.as_ref())),
        ("updated", print::time(tool.update_time.as_ref())),
        ("thresholds", thresholds(tool.windows.as_ref())),
        ("goes after", unregister_after),
        ("endpoint", spec.endpoint),
        ("labels", labels),
        ("approved", approved),
        ("to approve", approve),
        ("input schema", spec.input_schema_json),
        ("output schema", spec.output_schema_json),
        ("annotations", spec.annotations_json),
        ("extra", spec.extra_json),
    ];
    let warning = |w: &Warning| ("warning", format!("{} at {}: {}", w.code, w.pointer, w.message));
    let warnings = tool.warnings.iter().map(warning);
    all.into_iter().filter(|(_, value)| !value.is_empty()).chain(warnings).collect()
}

/// The thresholds in force, where they are others than the rule.
fn thresholds(windows: Option<&ProbeWindows>) -> String {
    match windows {
        Some(w) if (w.success_threshold, w.failure_threshold) != (1, 1) => {
            format!("success {}, failure {}", w.success_threshold, w.failure_threshold)
        }
        _ => String::new(),
    }
}

fn lines(pairs: &[(&'static str, String)]) -> String {
    let lines = pairs.iter().map(|(name, value)| format!("{:<15}{}", format!("{name}:"), print::cell(value)));
    lines.collect::<Vec<_>>().join("\n")
}

pub(super) async fn probe(name: String, settings: &ClientSettings) -> Result<(), Failure> {
    let message = ProbeToolRequest { namespace: settings.namespace.to_string(), name };
    // A probe takes up to a minute.
    let reply = client::tools(settings).await?.probe_tool(request(message, CALL * 3)).await;
    let reply = reply.map_err(|status| Failure::call(&status))?.into_inner();
    let status = reply.status.clone().unwrap_or_default();
    if settings.json {
        let results: Vec<Value> = reply.results.iter().map(json::run).collect();
        print::json(&json!({"results": results, "status": json::status(&status)}))?;
    } else {
        let rows: Vec<Vec<String>> = reply.results.iter().map(run_row).collect();
        print::table(&["PROBE", "OUTCOME", "REASON", "TOOK", "ADDRESS", "SENT", "MESSAGE"], &rows)?;
        print::line(&format!("verdict: {}{}", verdict(&status), why(&status)))?;
    }
    let passed = reply.results.iter().all(|run| run.outcome() == ProbeOutcome::Pass);
    if passed { Ok(()) } else { Err(Failure::Silent(1)) }
}

/// Why a verdict is no plain one.
fn why(status: &ToolStatus) -> String {
    match (status.reason.as_str(), status.message.as_str()) {
        ("", _) => String::new(),
        (reason, "") => format!(": {}", print::cell(reason)),
        (reason, message) => format!(": {}: {}", print::cell(reason), print::cell(message)),
    }
}

fn run_row(run: &ProbeRun) -> Vec<String> {
    vec![
        run.name.clone(),
        json::outcome(run.outcome).trim_start_matches("PROBE_OUTCOME_").to_owned(),
        run.reason.clone(),
        print::took(run.duration.as_ref()),
        run.address.clone(),
        run.sent.clone(),
        run.message.clone(),
    ]
}

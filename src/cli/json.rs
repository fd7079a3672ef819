//! Messages as JSON: names as in the proto, enums by name, times as RFC 3339, durations as `1.5s`, unset as null.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Display,
};

use serde_json::{Map, Value, json};

use super::failure::describe;
use crate::proto::v1::{
    Collision, ErrorClass, FormatOutcome, FormatVerdict, GatewaySnapshot, GatewayStatus,
    GetAllowlistDiagnosticsResponse, HiddenTool, ProbeHeader, ProbeOutcome, ProbeRun, ProbeSpec, ProbeStatus,
    ProbeTls, ProbeWindows, RegisterResult, RegisterToolResult, SchemaFormat, Tool, ToolLoss, ToolSpec,
    ToolStatus, Transition, Verdict, Warning, probe_header::Content, probe_spec::Kind,
};

/// A timestamp or a duration in its text form, or null.
fn text<T: Display>(value: Option<&T>) -> Value {
    value.map_or(Value::Null, |v| Value::String(v.to_string()))
}

/// A verdict's name. A value that this build doesn't know is UNSPECIFIED.
pub(super) fn verdict(value: i32) -> &'static str {
    Verdict::try_from(value).unwrap_or_default().as_str_name()
}

/// An outcome's name.
pub(super) fn outcome(value: i32) -> &'static str {
    ProbeOutcome::try_from(value).unwrap_or_default().as_str_name()
}

/// An error class's name.
pub(super) fn class(value: i32) -> &'static str {
    ErrorClass::try_from(value).unwrap_or_default().as_str_name()
}

/// The name of what a registration did.
pub(super) fn result(value: i32) -> &'static str {
    RegisterResult::try_from(value).unwrap_or_default().as_str_name()
}

pub(super) fn tool(t: &Tool) -> Value {
    json!({
        "spec": t.spec.as_ref().map(spec),
        "namespace": t.namespace,
        "owner": t.owner,
        "generation": t.generation,
        "create_time": text(t.create_time.as_ref()),
        "update_time": text(t.update_time.as_ref()),
        "spec_hash": t.spec_hash,
        "from_manifest": t.from_manifest,
        "status": t.status.as_ref().map(status),
        "windows": t.windows.as_ref().map(windows),
        "warnings": t.warnings.iter().map(warning).collect::<Vec<_>>(),
        "transitions": t.transitions.iter().map(transition).collect::<Vec<_>>(),
        "approved_labels": t.approved_labels.as_ref().map(|approved| labels(&approved.labels)),
    })
}

fn transition(t: &Transition) -> Value {
    json!({
        "time": text(t.time.as_ref()),
        "from": verdict(t.from),
        "to": verdict(t.to),
        "probe": t.probe,
        "reason": t.reason,
        "message": t.message,
        "error_class": class(t.error_class),
    })
}

fn labels(labels: &HashMap<String, String>) -> BTreeMap<&str, &str> {
    labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect()
}

pub(super) fn warning(w: &Warning) -> Value {
    json!({"pointer": w.pointer, "code": w.code, "message": w.message})
}

pub(super) fn loss(l: &ToolLoss) -> Value {
    json!({"name": l.name, "pointer": l.pointer, "message": l.message})
}

/// A format by the name that `--format` takes.
pub(super) fn format(value: i32) -> String {
    let name = SchemaFormat::try_from(value).unwrap_or_default().as_str_name();
    name.trim_start_matches("SCHEMA_FORMAT_").to_lowercase().replace('_', "-")
}

/// What becomes of a tool in a format, in one word.
pub(super) fn format_outcome(value: i32) -> &'static str {
    let name = FormatOutcome::try_from(value).unwrap_or_default().as_str_name();
    name.trim_start_matches("FORMAT_OUTCOME_")
}

pub(super) fn format_verdict(f: &FormatVerdict) -> Value {
    json!({
        "format": format(f.format),
        "verdict": format_outcome(f.verdict),
        "reason": f.reason,
        "pointer": f.pointer,
        "message": f.message,
        "losses": f.losses.iter().map(loss).collect::<Vec<_>>(),
        "rules_version": f.rules_version,
    })
}

fn windows(w: &ProbeWindows) -> Value {
    json!({
        "interval": text(w.interval.as_ref()),
        "timeout": text(w.timeout.as_ref()),
        "ttl": text(w.ttl.as_ref()),
        "grace": text(w.grace.as_ref()),
        "success_threshold": w.success_threshold,
        "failure_threshold": w.failure_threshold,
    })
}

fn spec(s: &ToolSpec) -> Value {
    json!({
        "name": s.name,
        "title": s.title,
        "description": s.description,
        "input_schema_json": s.input_schema_json,
        "output_schema_json": s.output_schema_json,
        "endpoint": s.endpoint,
        "annotations_json": s.annotations_json,
        "extra_json": s.extra_json,
        "labels": labels(&s.labels),
        "probes": s.probes.iter().map(probe).collect::<Vec<_>>(),
        "interval": text(s.interval.as_ref()),
        "timeout": text(s.timeout.as_ref()),
        "ttl": text(s.ttl.as_ref()),
        "grace": text(s.grace.as_ref()),
        "success_threshold": s.success_threshold,
        "failure_threshold": s.failure_threshold,
        "unregister_after": text(s.unregister_after.as_ref()),
    })
}

fn probe(p: &ProbeSpec) -> Value {
    let tls = |tls: &Option<ProbeTls>| {
        tls.as_ref().map(|tls| {
            json!({
                "server_name": tls.server_name,
                "ca_ref": tls.ca_ref,
                "client_cert_ref": tls.client_cert_ref,
                "client_key_ref": tls.client_key_ref,
                "insecure_skip_verify": tls.insecure_skip_verify,
            })
        })
    };
    let (kind, what) = match &p.kind {
        Some(Kind::Http(h)) => (
            "http",
            json!({
                "url": h.url,
                "method": h.method().as_str_name(),
                "expected_statuses": h.expected_statuses,
                "no_statuses": h.no_statuses,
                "tls": tls(&h.tls),
                "headers": h.headers.iter().map(header).collect::<Vec<_>>(),
                "body": h.body.as_ref().map(|_| json!({"hidden": true})),
            }),
        ),
        Some(Kind::Grpc(g)) => (
            "grpc",
            json!({
                "target": g.target,
                "service": g.service,
                "tls": tls(&g.tls),
                "headers": g.headers.iter().map(header).collect::<Vec<_>>(),
            }),
        ),
        Some(Kind::Tcp(t)) => ("tcp", json!({"address": t.address})),
        Some(Kind::Mcp(m)) => (
            "mcp",
            json!({
                "url": m.url,
                "expected_statuses": m.expected_statuses,
                "tls": tls(&m.tls),
                "headers": m.headers.iter().map(header).collect::<Vec<_>>(),
            }),
        ),
        Some(Kind::Report(_)) => ("report", json!({})),
        None => return json!({"name": p.name}),
    };
    json!({"name": p.name, kind: what})
}

/// A header without its value, which no server tells.
fn header(h: &ProbeHeader) -> Value {
    match &h.content {
        Some(Content::SecretRef(name)) => json!({"name": h.name, "secret_ref": name}),
        Some(Content::BearerSecretRef(name)) => json!({"name": h.name, "bearer_secret_ref": name}),
        Some(Content::Value(_) | Content::Hidden(_)) | None => json!({"name": h.name, "hidden": true}),
    }
}

pub(super) fn status(s: &ToolStatus) -> Value {
    json!({
        "verdict": verdict(s.verdict),
        "last_good": s.last_good,
        "reason": s.reason,
        "message": s.message,
        "error_class": class(s.error_class),
        "since": text(s.since.as_ref()),
        "last_success_time": text(s.last_success_time.as_ref()),
        "last_probe_time": text(s.last_probe_time.as_ref()),
        "last_probe_duration": text(s.last_probe_duration.as_ref()),
        "next_probe_time": text(s.next_probe_time.as_ref()),
        "consecutive_errors": s.consecutive_errors,
        "flapping": s.flapping,
        "enabled": s.enabled,
        "disabled_message": s.disabled_message,
        "probes": s.probes.iter().map(probe_status).collect::<Vec<_>>(),
    })
}

fn probe_status(p: &ProbeStatus) -> Value {
    json!({
        "name": p.name,
        "verdict": verdict(p.verdict),
        "last_good": p.last_good,
        "outcome": outcome(p.outcome),
        "reason": p.reason,
        "message": p.message,
        "error_class": class(p.error_class),
        "last_success_time": text(p.last_success_time.as_ref()),
        "last_probe_time": text(p.last_probe_time.as_ref()),
        "last_probe_duration": text(p.last_probe_duration.as_ref()),
        "next_probe_time": text(p.next_probe_time.as_ref()),
        "consecutive_errors": p.consecutive_errors,
        "consecutive_passes": p.consecutive_passes,
        "noes": p.noes,
    })
}

pub(super) fn run(r: &ProbeRun) -> Value {
    json!({
        "name": r.name,
        "outcome": outcome(r.outcome),
        "class": class(r.class),
        "reason": r.reason,
        "message": r.message,
        "duration": text(r.duration.as_ref()),
        "address": r.address,
        "sent": r.sent,
    })
}

pub(super) fn hidden(h: &HiddenTool) -> Value {
    json!({"name": h.name, "stage": h.stage, "reason": h.reason, "message": h.message, "pointer": h.pointer})
}

/// One tool's result; the namespace is added, as one command may register into several.
pub(super) fn registered(namespace: &str, r: &RegisterToolResult) -> Value {
    json!({
        "namespace": namespace,
        "name": r.name,
        "result": result(r.result),
        "generation": r.generation,
        "verdict": verdict(r.verdict),
        "warnings": r.warnings.iter().map(warning).collect::<Vec<_>>(),
        "formats": r.formats.iter().map(format_verdict).collect::<Vec<_>>(),
        "error": r.error.as_ref().map(|e| json!({
            "code": e.code,
            "message": e.message,
            "text": describe(&rejection(e)),
        })),
    })
}

/// A `google.rpc.Status` inside a reply, as the status that a call of its own would have had.
pub(super) fn rejection(error: &tonic_types::Status) -> tonic::Status {
    let details = prost::Message::encode_to_vec(error);
    tonic::Status::with_details(tonic::Code::from_i32(error.code), error.message.clone(), details.into())
}

pub(super) fn snapshot(s: &GatewaySnapshot) -> Value {
    json!({
        "gateway_id": s.gateway_id,
        "namespace": s.namespace,
        "status": s.status.as_ref().map(gateway_status),
        "sequence": s.sequence,
        "observed_at": text(s.observed_at.as_ref()),
        "received_at": text(s.received_at.as_ref()),
        "ttl": text(s.ttl.as_ref()),
        "stale": s.stale,
        "error": s.error,
        "text": s.text,
    })
}

fn gateway_status(s: &GatewayStatus) -> Value {
    let mut channels: Vec<_> = s.sessions_by_channel.iter().collect();
    channels.sort();
    let channels: Map<String, Value> = channels.into_iter().map(|(k, v)| (k.clone(), (*v).into())).collect();
    let degraded = s.degraded.iter().map(|d| json!({"owner": d.owner, "reason": d.reason}));
    json!({
        "run": s.run,
        "queued": s.queued,
        "active_sessions": s.active_sessions,
        "sessions_by_channel": channels,
        "delivery_json": s.delivery_json,
        "degraded": degraded.collect::<Vec<_>>(),
        "detail": s.detail,
    })
}

pub(super) fn diagnostics(d: &GetAllowlistDiagnosticsResponse) -> Value {
    json!({
        "env_var_name": d.env_var_name,
        "env_value": d.env_value,
        "is_ci": d.is_ci,
        "whitelist": d.whitelist.as_ref().map(|w| &w.names),
        "registered_before_filter": d.registered_before_filter,
        "registered_after_filter": d.registered_after_filter,
        "dropped_tools": d.dropped_tools,
        "unknown_tools": d.unknown_tools,
        "collisions": d.collisions.iter().map(collision).collect::<Vec<_>>(),
    })
}

fn collision(c: &Collision) -> Value {
    json!({"namespace": c.namespace, "name": c.name, "owner": c.owner, "offered_by": c.offered_by})
}

//! From the catalog to the wire: tools, their status, the runs of their probes.

use std::{sync::Arc, time::Duration};

use super::{spec_to_proto, timestamp, to_proto_duration};
use crate::{
    catalog::{CatalogTool, ProbeStatus, Trouble},
    clock::Clock,
    core::{
        availability::Verdict,
        probe::{ErrorClass, Outcome, ProbeSpec},
        time::Moment,
        tool::StoredTool,
    },
    proto::v1,
};

/// Code of a transition that a PASS caused.
const PASSED: &str = "PROBE_PASSED";

/// A tool with everything known of it.
pub fn tool(tool: &CatalogTool, clock: &Clock) -> v1::Tool {
    let windows = (!tool.stored.spec.probes.is_empty()).then(|| v1::ProbeWindows {
        interval: Some(to_proto_duration(tool.windows.interval)),
        timeout: Some(to_proto_duration(tool.windows.timeout)),
        ttl: Some(to_proto_duration(tool.windows.ttl)),
        grace: Some(to_proto_duration(tool.windows.grace)),
        success_threshold: tool.windows.success_threshold,
        failure_threshold: tool.windows.failure_threshold,
    });
    v1::Tool {
        status: Some(status(tool, clock)),
        windows,
        warnings: super::format::warnings(&tool.warnings()),
        ..stored(&tool.stored)
    }
}

/// A tool with everything known of it, and how its verdict turned.
pub fn tool_with_transitions(tool: &CatalogTool, clock: &Clock) -> v1::Tool {
    let transitions = tool.status.transitions.iter().map(|turn| {
        let probe = tool.stored.spec.probes.get(turn.probe);
        let trouble = Trouble::of(turn);
        let (reason, message, class) = self::trouble(trouble.as_ref());
        v1::Transition {
            time: wall(Some(turn.at), clock),
            from: verdict(turn.from).into(),
            to: verdict(turn.to).into(),
            probe: probe.map(|probe| probe.name.to_string()).unwrap_or_default(),
            reason: if trouble.is_some() { reason } else { PASSED.to_owned() },
            message,
            error_class: class.into(),
        }
    });
    v1::Tool { transitions: transitions.collect(), ..self::tool(tool, clock) }
}

/// What is durable of a tool.
pub fn stored(tool: &StoredTool) -> v1::Tool {
    v1::Tool {
        spec: Some(spec_to_proto(&tool.spec)),
        namespace: tool.key.namespace.to_string(),
        owner: tool.owner.to_string(),
        generation: tool.generation,
        create_time: Some(from_ms(tool.create_time_ms)),
        update_time: Some(from_ms(tool.update_time_ms)),
        spec_hash: tool.spec_hash.to_string(),
        from_manifest: tool.from_manifest,
        approved_labels: tool.approved.as_ref().map(|approved| v1::ApprovedLabels {
            labels: approved.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        }),
        ..v1::Tool::default()
    }
}

/// What is observed of a tool.
pub fn status(tool: &CatalogTool, clock: &Clock) -> v1::ToolStatus {
    let status = &tool.status;
    let probes = &status.probes;
    let newest = probes.iter().filter(|p| p.last_probe.is_some()).max_by_key(|p| p.last_probe);
    let (reason, message, class) = trouble(status.trouble.as_ref());
    v1::ToolStatus {
        verdict: verdict(status.verdict).into(),
        last_good: status.last_good,
        reason,
        message,
        error_class: class.into(),
        since: wall(Some(status.since), clock),
        last_success_time: wall(probes.iter().filter_map(|p| p.last_success).max(), clock),
        last_probe_time: wall(newest.and_then(|p| p.last_probe), clock),
        last_probe_duration: newest.map(|p| to_proto_duration(p.duration)),
        next_probe_time: wall(probes.iter().filter_map(|p| p.next).min(), clock),
        consecutive_errors: probes.iter().map(|p| p.consecutive_errors).max().unwrap_or(0),
        probes: probes.iter().map(|p| probe(p, clock)).collect(),
        enabled: tool.disabled.is_none(),
        flapping: status.flapping,
        disabled_message: tool.disabled.as_ref().map(|off| off.message.to_string()).unwrap_or_default(),
    }
}

/// The newest run of a probe.
pub fn run(probe: &ProbeStatus, spec: &ProbeSpec) -> v1::ProbeRun {
    let (outcome, reason, message, class) = outcome(probe.outcome.as_ref());
    v1::ProbeRun {
        name: probe.name.to_string(),
        outcome: outcome.into(),
        class: class.into(),
        reason,
        message,
        duration: Some(to_proto_duration(probe.duration)),
        address: probe.address.map(|a| a.to_string()).unwrap_or_default(),
        sent: spec.kind.sent(),
    }
}

/// A verdict.
pub fn verdict(verdict: Verdict) -> v1::Verdict {
    match verdict {
        Verdict::Available => v1::Verdict::Available,
        Verdict::Unavailable => v1::Verdict::Unavailable,
        Verdict::Pending => v1::Verdict::Pending,
    }
}

fn probe(probe: &ProbeStatus, clock: &Clock) -> v1::ProbeStatus {
    let (outcome, reason, message, class) = outcome(probe.outcome.as_ref());
    v1::ProbeStatus {
        name: probe.name.to_string(),
        verdict: verdict(probe.verdict).into(),
        last_good: probe.last_good,
        outcome: outcome.into(),
        reason,
        message,
        error_class: class.into(),
        last_success_time: wall(probe.last_success, clock),
        last_probe_time: wall(probe.last_probe, clock),
        last_probe_duration: probe.last_probe.map(|_| to_proto_duration(probe.duration)),
        next_probe_time: wall(probe.next, clock),
        consecutive_errors: probe.consecutive_errors,
        consecutive_passes: probe.consecutive_passes,
        noes: probe.noes,
    }
}

fn trouble(trouble: Option<&Trouble>) -> (String, String, v1::ErrorClass) {
    match trouble {
        Some(t) => (t.reason.clone(), t.message.clone(), error_class(t.class)),
        None => (String::new(), String::new(), v1::ErrorClass::Unspecified),
    }
}

fn outcome(outcome: Option<&Outcome>) -> (v1::ProbeOutcome, String, String, v1::ErrorClass) {
    let none = v1::ErrorClass::Unspecified;
    match outcome {
        None => (v1::ProbeOutcome::Unspecified, String::new(), String::new(), none),
        Some(Outcome::Pass) => (v1::ProbeOutcome::Pass, String::new(), String::new(), none),
        Some(Outcome::No(why)) => {
            (v1::ProbeOutcome::No, why.reason.to_string(), Arc::clone(&why.message).to_string(), none)
        }
        Some(Outcome::Error(class, why)) => (
            v1::ProbeOutcome::Error,
            why.reason.to_string(),
            Arc::clone(&why.message).to_string(),
            error_class(Some(*class)),
        ),
    }
}

fn error_class(class: Option<ErrorClass>) -> v1::ErrorClass {
    match class {
        None => v1::ErrorClass::Unspecified,
        Some(ErrorClass::Dns) => v1::ErrorClass::Dns,
        Some(ErrorClass::Connect) => v1::ErrorClass::Connect,
        Some(ErrorClass::Tls) => v1::ErrorClass::Tls,
        Some(ErrorClass::Timeout) => v1::ErrorClass::Timeout,
        Some(ErrorClass::Status) => v1::ErrorClass::Status,
        Some(ErrorClass::Protocol) => v1::ErrorClass::Protocol,
        Some(ErrorClass::Oversize) => v1::ErrorClass::Oversize,
        Some(ErrorClass::Stale) => v1::ErrorClass::Stale,
        Some(ErrorClass::Blocked) => v1::ErrorClass::Blocked,
        Some(ErrorClass::Reported) => v1::ErrorClass::Reported,
        Some(ErrorClass::Secret) => v1::ErrorClass::Secret,
    }
}

fn wall(moment: Option<Moment>, clock: &Clock) -> Option<prost_types::Timestamp> {
    moment.map(|m| timestamp(clock.wall(m)))
}

fn from_ms(ms: i64) -> prost_types::Timestamp {
    let nanos = Duration::from_millis(ms.rem_euclid(1_000).unsigned_abs()).subsec_nanos();
    prost_types::Timestamp { seconds: ms.div_euclid(1_000), nanos: i32::try_from(nanos).unwrap_or(0) }
}

//! Between the wire and the core's gateway types.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use super::hidden::{self, Joined};
use crate::{
    clock::Clock,
    core::{
        gateway::{
            self, GatewayId, GivenContent, GivenReport, GivenStatus, NewReport, Report, Snapshot, Status,
            WallTime, parse_report, with_capabilities,
        },
        name::Namespace,
        refusal::Fault,
        time::Moment,
    },
    proto::v1::{
        self, PublishGatewayStatusRequest, ReportGatewayStatusRequest, publish_gateway_status_request,
        report_gateway_status_request,
    },
    service::convert::{namespace, timestamp, to_proto_duration},
};

/// The last second that RFC 3339 can write.
const END_OF_9999: Duration = Duration::from_secs(253_402_300_799);

/// Parses a report.
///
/// # Errors
/// All faults.
pub(super) fn report(
    given: ReportGatewayStatusRequest,
) -> Result<(Namespace, GatewayId, NewReport), Vec<Fault>> {
    let content = given.report.map(|content| match content {
        report_gateway_status_request::Report::Status(given) => GivenContent::Status(status(given)),
        report_gateway_status_request::Report::Error(error) => GivenContent::Error(error),
    });
    let new = parse_report(GivenReport {
        content,
        instance: given.instance,
        sequence: given.sequence,
        ttl: given.ttl.map(|ttl| (ttl.seconds, ttl.nanos)),
        observed_at: given.observed_at.map(|at| WallTime { seconds: at.seconds, nanos: at.nanos }),
    });
    match (namespace(&given.namespace), super::gateway(&given.gateway_id), new) {
        (Ok(namespace), Ok(id), Ok(new)) => Ok((namespace, id, new)),
        (namespace, id, new) => {
            Err(namespace.err().into_iter().chain(id.err()).chain(new.err().into_iter().flatten()).collect())
        }
    }
}

/// A report of a stream as one of its own.
pub(super) fn published(given: PublishGatewayStatusRequest) -> ReportGatewayStatusRequest {
    use publish_gateway_status_request::Report as Published;
    use report_gateway_status_request::Report;
    ReportGatewayStatusRequest {
        namespace: given.namespace,
        gateway_id: given.gateway_id,
        report: given.report.map(|report| match report {
            Published::Status(status) => Report::Status(status),
            Published::Error(error) => Report::Error(error),
        }),
        instance: given.instance,
        sequence: given.sequence,
        ttl: given.ttl,
        observed_at: given.observed_at,
    }
}

fn status(given: v1::GatewayStatus) -> GivenStatus {
    GivenStatus {
        run: given.run,
        queued: given.queued,
        active_sessions: given.active_sessions,
        sessions_by_channel: given.sessions_by_channel.into_iter().collect(),
        delivery_json: given.delivery_json,
        degraded: given.degraded.into_iter().map(|entry| (entry.owner, entry.reason)).collect(),
        detail: given.detail,
    }
}

/// A snapshot on the wire, with what joins its status.
pub(super) fn snapshot(snapshot: &Snapshot, joined: &Joined, clock: &Clock) -> v1::GatewaySnapshot {
    let joined = match &snapshot.report {
        Report::Status(status) if !joined.is_empty() && !snapshot.stale => {
            let names = joined.tools.iter().map(|name| (name.as_str(), hidden::REASON));
            let report = Report::Status(Arc::new(with_capabilities(status, joined.suspect, names)));
            Some(Snapshot { report, ..snapshot.clone() })
        }
        _ => None,
    };
    let shown = joined.as_ref().unwrap_or(snapshot);
    v1::GatewaySnapshot {
        gateway_id: shown.id.to_string(),
        namespace: shown.namespace.to_string(),
        status: shown.status().filter(|_| !shown.stale).map(|status| status_to_proto(status)),
        sequence: shown.sequence,
        observed_at: shown
            .observed_at
            .map(|at| prost_types::Timestamp { seconds: at.seconds, nanos: at.nanos }),
        received_at: Some(timestamp(clock.wall(shown.received))),
        ttl: Some(to_proto_duration(shown.ttl)),
        stale: shown.stale,
        error: shown.error().unwrap_or_default().to_owned(),
        text: gateway::text(shown, &rfc3339(clock, shown.received)),
    }
}

fn status_to_proto(status: &Status) -> v1::GatewayStatus {
    let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    v1::GatewayStatus {
        run: status.run.clone(),
        queued: count(status.queued),
        active_sessions: count(status.active_sessions),
        sessions_by_channel: status.sessions_by_channel.iter().map(|(k, n)| (k.clone(), count(*n))).collect(),
        delivery_json: status.delivery.clone(),
        degraded: status
            .degraded
            .iter()
            .map(|entry| v1::DegradedOwner { owner: entry.owner.clone(), reason: entry.reason.clone() })
            .collect(),
        detail: status.detail.clone(),
    }
}

/// A wall clock that was never set may stand anywhere; what can't be written is written as the nearest that can.
fn rfc3339(clock: &Clock, moment: Moment) -> String {
    let time = clock.wall(moment).clamp(UNIX_EPOCH, UNIX_EPOCH + END_OF_9999);
    humantime::format_rfc3339_seconds(time).to_string()
}

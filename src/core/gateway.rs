//! Gateway status: what gateways report of themselves, how long it counts, and what agents read.
//!
//! A gateway never turns "idle" by itself: without news it is stale, then gone, and the text says so.

mod delivery;
mod given;
mod state;
mod status;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

pub use self::{
    given::{GivenContent, GivenReport, GivenStatus, parse_report, status_faults},
    state::{Changed, End, Gateways, NewReport, ReportEffect, Saved, Source, StreamId},
    status::{DegradedOwner, Status, to_text, with_capabilities},
};
use super::{
    name::{Namespace, quote},
    python,
    time::Moment,
};

/// Longest gateway id.
pub const MAX_GATEWAY_ID: usize = 128;
/// Most gateways in one namespace.
pub const MAX_GATEWAYS: usize = 10_000;
/// The text where no gateway is live.
pub const NO_GATEWAY: &str = "No active gateway: gateway_status is only available inside a running bot/gateway \
     (e.g. Telegram, Slack, Discord). It is unavailable for CLI/one-shot runs.";
/// Most ids in a text: a model reads it.
const MAX_LISTED_IDS: usize = 100;

/// A gateway's id: 1 to 128 of `[A-Za-z0-9_.:/-]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GatewayId(Arc<str>);

impl GatewayId {
    /// Parses an id.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let ok = (1..=MAX_GATEWAY_ID).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.:/-".contains(&b));
        if ok {
            Ok(Self(text.into()))
        } else {
            Err(format!(
                "gateway id {} must be 1 to {MAX_GATEWAY_ID} characters of [A-Za-z0-9_.:/-]",
                quote(text)
            ))
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Sorts before every id, and is none: where a range begins.
    pub fn least() -> Self {
        Self("".into())
    }
}

impl fmt::Display for GatewayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for GatewayId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// What a gateway says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// Its status.
    Status(Arc<Status>),
    /// That reading its status failed, and why.
    Error(String),
}

/// A wall time as it is on the wire: seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WallTime {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanos: i32,
}

/// What is known of one gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its id.
    pub id: GatewayId,
    /// The newest report.
    pub report: Report,
    /// The newest report's sequence.
    pub sequence: u64,
    /// The run of the gateway's process that sent it; may be empty.
    pub instance: Arc<str>,
    /// How long a report counts.
    pub ttl: Duration,
    /// When the gateway looked at itself, by its own clock.
    pub observed_at: Option<WallTime>,
    /// When the newest report came.
    pub received: Moment,
    /// No report for the ttl, or the stream was lost, or it is from before the server's restart.
    pub stale: bool,
}

impl Snapshot {
    /// The reported status. It is there in a stale snapshot as well.
    pub fn status(&self) -> Option<&Arc<Status>> {
        match &self.report {
            Report::Status(status) => Some(status),
            Report::Error(_) => None,
        }
    }

    /// The reported failure.
    pub fn error(&self) -> Option<&str> {
        match &self.report {
            Report::Status(_) => None,
            Report::Error(error) => Some(error),
        }
    }
}

/// What a `gateway_status` tool hands to the model. `received`: [`Snapshot::received`] as RFC 3339 wall time.
pub fn text(snapshot: &Snapshot, received: &str) -> String {
    match &snapshot.report {
        _ if snapshot.stale => error_text(&format!("no report since {received}")),
        Report::Status(status) => to_text(status),
        Report::Error(error) => error_text(error),
    }
}

/// The text where several gateways are live and none was named. `ids`: those the caller may see, sorted.
pub fn name_one_of(ids: &[&GatewayId]) -> String {
    error_text(&format!("name one of {}", python::repr_list_bounded(ids, MAX_LISTED_IDS)))
}

fn error_text(error: &str) -> String {
    format!("Error reading gateway status: {error}")
}

/// What a reader gets who names no gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice<'a> {
    /// None is live: [`NO_GATEWAY`].
    None,
    /// The only live one.
    One(&'a Arc<Snapshot>),
    /// Several are live: [`name_one_of`].
    Several(Vec<&'a GatewayId>),
}

/// Chooses among the gateways that a reader may see, sorted by id.
pub fn choose<'a>(gateways: impl IntoIterator<Item = &'a Arc<Snapshot>>) -> Choice<'a> {
    let live: Vec<&Arc<Snapshot>> = gateways.into_iter().filter(|snapshot| !snapshot.stale).collect();
    match live.as_slice() {
        [] => Choice::None,
        [one] => Choice::One(one),
        several => Choice::Several(several.iter().map(|snapshot| &snapshot.id).collect()),
    }
}

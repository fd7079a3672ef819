//! Reports as they come in: checked whole, with every fault at once.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    Report, WallTime, delivery,
    state::NewReport,
    status::{DegradedOwner, Status, to_text},
};
use crate::core::{python, refusal::Fault};

/// Most degraded owners.
pub(super) const MAX_DEGRADED: usize = 256;
const MAX_CHANNELS: usize = 256;
/// Longest channel and owner, in characters.
const MAX_PART: usize = 256;
const MAX_RUN: usize = 64;
const MAX_REASON: usize = 1_024;
const MAX_ERROR: usize = 1_024;
const MAX_INSTANCE: usize = 128;
const MAX_DETAIL_BYTES: usize = 4 * 1024;
const MAX_DELIVERY_BYTES: usize = 16 * 1024;
/// Longest text of a status: a snapshot holds the fields and the text, and has to fit into a watch message of 256 KiB.
const MAX_TEXT_BYTES: usize = 64 * 1024;
/// Most faults that are told of one report: a status has to fit into response headers.
const MAX_FAULTS: usize = 32;
const DEFAULT_TTL: Duration = Duration::from_secs(30);
const MIN_TTL: Duration = Duration::from_secs(1);
const MAX_TTL: Duration = Duration::from_secs(3_600);
/// 0001-01-01 and the end of 9999: what a protobuf timestamp may hold.
const WALL_SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// A status as it was sent.
#[derive(Clone, Debug, Default)]
pub struct GivenStatus {
    /// `run`.
    pub run: String,
    /// `queued`.
    pub queued: i64,
    /// `active_sessions`.
    pub active_sessions: i64,
    /// `sessions_by_channel`.
    pub sessions_by_channel: BTreeMap<String, i64>,
    /// `delivery_json`.
    pub delivery_json: String,
    /// `degraded`: owner and reason.
    pub degraded: Vec<(String, String)>,
    /// `detail`.
    pub detail: String,
}

/// The `report` of a message.
#[derive(Clone, Debug)]
pub enum GivenContent {
    /// `status`.
    Status(GivenStatus),
    /// `error`.
    Error(String),
}

/// A report as it was sent; who sent it is not part of it.
#[derive(Clone, Debug, Default)]
pub struct GivenReport {
    /// `report`.
    pub content: Option<GivenContent>,
    /// `instance`.
    pub instance: String,
    /// `sequence`.
    pub sequence: u64,
    /// `ttl`: seconds and nanoseconds.
    pub ttl: Option<(i64, i32)>,
    /// `observed_at`.
    pub observed_at: Option<WallTime>,
}

/// Checks a report and fills in its defaults.
///
/// # Errors
/// Every fault (the first 32), at its path in the message.
pub fn parse_report(given: GivenReport) -> Result<NewReport, Vec<Fault>> {
    let mut faults = Vec::new();
    let report = match given.content {
        None => {
            faults.push(Fault::new("report", "must be given: exactly one of status and error"));
            None
        }
        Some(GivenContent::Error(error)) => {
            if error.is_empty() {
                faults.push(Fault::new("error", format!("is empty; must be 1 to {MAX_ERROR} characters")));
            }
            too_long(&mut faults, "error", &error, MAX_ERROR);
            Some(Report::Error(error))
        }
        Some(GivenContent::Status(status)) => {
            faults.extend(status_faults(&status).into_iter().map(|fault| fault.under("status")));
            Some(Report::Status(Arc::new(status.fill())))
        }
    };
    too_long(&mut faults, "instance", &given.instance, MAX_INSTANCE);
    let ttl = given.ttl.map_or(Some(DEFAULT_TTL), duration).filter(|ttl| (MIN_TTL..=MAX_TTL).contains(ttl));
    if ttl.is_none() {
        faults.push(Fault::new("ttl", "must be from 1 s to 1 h; unset means 30 s"));
    }
    if let Some(WallTime { seconds, nanos }) = given.observed_at
        && !(WALL_SECONDS.contains(&seconds) && (0..1_000_000_000).contains(&nanos))
    {
        faults.push(Fault::new("observed_at", "must be a time in the years 1 to 9999"));
    }
    faults.truncate(MAX_FAULTS);
    match (report, ttl) {
        (Some(report), Some(ttl)) if faults.is_empty() => Ok(NewReport {
            report,
            instance: given.instance.into(),
            sequence: given.sequence,
            ttl,
            observed_at: given.observed_at,
        }),
        _ => Err(faults),
    }
}

/// Everything that is wrong with a status; paths begin inside of it.
pub fn status_faults(given: &GivenStatus) -> Vec<Fault> {
    let mut faults = Vec::new();
    too_long(&mut faults, "run", &given.run, MAX_RUN);
    negative(&mut faults, "queued", given.queued);
    negative(&mut faults, "active_sessions", given.active_sessions);
    if too_many(&mut faults, "sessions_by_channel", given.sessions_by_channel.len(), MAX_CHANNELS) {
        for (channel, count) in &given.sessions_by_channel {
            let field = channel_field(channel);
            too_long(&mut faults, &field, channel, MAX_PART);
            negative(&mut faults, &field, *count);
        }
    }
    if too_big(&mut faults, "delivery_json", &given.delivery_json, MAX_DELIVERY_BYTES)
        && !given.delivery_json.is_empty()
        && let Err(fault) = delivery::check(&given.delivery_json)
    {
        let at = if fault.pointer.is_empty() { "" } else { "#" };
        faults.push(Fault::new(format!("delivery_json{at}{}", fault.pointer), fault.message));
    }
    if too_many(&mut faults, "degraded", given.degraded.len(), MAX_DEGRADED) {
        for (i, (owner, reason)) in given.degraded.iter().enumerate() {
            let field = format!("degraded[{i}].owner");
            if owner.is_empty() {
                faults.push(Fault::new(&*field, format!("is empty; must be 1 to {MAX_PART} characters")));
            }
            too_long(&mut faults, &field, owner, MAX_PART);
            too_long(&mut faults, &format!("degraded[{i}].reason"), reason, MAX_REASON);
        }
    }
    too_big(&mut faults, "detail", &given.detail, MAX_DETAIL_BYTES);
    if faults.is_empty() {
        let size = to_text(&given.clone().fill()).len();
        if size > MAX_TEXT_BYTES {
            faults.push(Fault::new("", format!("is {size} bytes as JSON text; at most {MAX_TEXT_BYTES}")));
        }
    }
    faults
}

impl GivenStatus {
    /// The status, with the defaults filled in. Counts are known not to be negative.
    fn fill(self) -> Status {
        let or = |text: String, default: &str| if text.is_empty() { default.to_owned() } else { text };
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        Status {
            run: or(self.run, "idle"),
            queued: count(self.queued),
            active_sessions: count(self.active_sessions),
            sessions_by_channel: self.sessions_by_channel.into_iter().map(|(k, n)| (k, count(n))).collect(),
            delivery: or(self.delivery_json, "{}"),
            degraded: self
                .degraded
                .into_iter()
                .map(|(owner, reason)| DegradedOwner { owner, reason })
                .collect(),
            detail: self.detail,
        }
    }
}

fn duration((seconds, nanos): (i64, i32)) -> Option<Duration> {
    let nanos = u32::try_from(nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(seconds).ok()?, nanos))
}

/// `sessions_by_channel["x"]`, cut where the key is over-long.
fn channel_field(channel: &str) -> String {
    let shown: String = channel.chars().take(80).collect();
    let mut field = String::from("sessions_by_channel[");
    python::push_json(&mut field, &shown);
    field.push(']');
    field
}

fn negative(faults: &mut Vec<Fault>, field: &str, count: i64) {
    if count < 0 {
        faults.push(Fault::new(field, format!("is {count}; must not be negative")));
    }
}

fn too_long(faults: &mut Vec<Fault>, field: &str, text: &str, max: usize) {
    let length = text.chars().count();
    if length > max {
        faults.push(Fault::new(field, format!("has {length} characters; at most {max}")));
    }
}

/// Says whether the size is right.
fn too_big(faults: &mut Vec<Fault>, field: &str, text: &str, max: usize) -> bool {
    let ok = text.len() <= max;
    if !ok {
        faults.push(Fault::new(field, format!("is {} bytes; at most {max}", text.len())));
    }
    ok
}

/// Says whether the number is right.
fn too_many(faults: &mut Vec<Fault>, field: &str, count: usize, max: usize) -> bool {
    let ok = count <= max;
    if !ok {
        faults.push(Fault::new(field, format!("has {count} entries; at most {max}")));
    }
    ok
}

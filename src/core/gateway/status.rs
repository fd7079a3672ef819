//! The seven fields, and how they print.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{delivery, given::MAX_DEGRADED};
use crate::core::{name::clean, python};

/// Most bytes that joined entries may add to a status's text. Together with the bound of what gateways send, it keeps one
/// snapshot below the size of a watch message.
const MAX_JOINED_BYTES: usize = 32 * 1024;
/// Longest reason of a joined entry, in characters.
const MAX_JOINED_REASON: usize = 256;

/// The joined entry of a prober that suspects itself.
const PROBER: &str = "toolpulse:prober";
/// What it says. It is the same as long as it stands.
const SUSPECT: &str = "prober_suspect";

/// A gateway's account of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// What it does: `idle`, `busy`, `queued` or another word.
    pub run: String,
    /// Turns waiting behind the current one.
    pub queued: u64,
    /// Sessions open now.
    pub active_sessions: u64,
    /// Sessions by channel.
    pub sessions_by_channel: BTreeMap<String, u64>,
    /// Facts about delivery: JSON text of an object, as it was sent.
    pub delivery: String,
    /// What is configured but does not work.
    pub degraded: Vec<DegradedOwner>,
    /// Anything else that the model should know.
    pub detail: String,
}

/// A part of a gateway that is configured but does not work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DegradedOwner {
    /// The part.
    pub owner: String,
    /// Why.
    pub reason: String,
}

impl Default for Status {
    fn default() -> Self {
        Self {
            run: "idle".to_owned(),
            queued: 0,
            active_sessions: 0,
            sessions_by_channel: BTreeMap::new(),
            delivery: "{}".to_owned(),
            degraded: Vec::new(),
            detail: String::new(),
        }
    }
}

/// The status as one JSON object, as Python's `json.dumps` prints it, map keys sorted.
pub fn to_text(status: &Status) -> String {
    let mut out = String::from("{\"run\": ");
    python::push_json(&mut out, &status.run);
    out.push_str(&format!(
        ", \"queued\": {}, \"active_sessions\": {}, \"sessions_by_channel\": {{",
        status.queued, status.active_sessions
    ));
    for (i, (channel, count)) in status.sessions_by_channel.iter().enumerate() {
        out.push_str(if i > 0 { ", " } else { "" });
        python::push_json(&mut out, channel);
        out.push_str(&format!(": {count}"));
    }
    out.push_str("}, \"delivery\": ");
    delivery::push(&mut out, &status.delivery);
    out.push_str(", \"degraded\": [");
    for (i, degraded) in status.degraded.iter().enumerate() {
        out.push_str(if i > 0 { ", " } else { "" });
        push_degraded(&mut out, degraded);
    }
    out.push_str("], \"detail\": ");
    python::push_json(&mut out, &status.detail);
    out.push('}');
    out
}

/// The status joined with an entry for the prober, where it suspects itself, and with one `capability:<tool>` for each hidden
/// tool, so that gating and status agree.
///
/// What the gateway reported stays in front, in its order, and wins over an entry for the same owner. The joined entries are
/// sorted, behind the prober's; those that don't fit (256 entries in all, 32 KiB of text) are left out.
pub fn with_capabilities<'a>(
    status: &Status,
    suspects_itself: bool,
    hidden: impl Iterator<Item = (&'a str, &'a str)>,
) -> Status {
    let reported: BTreeSet<&str> = status.degraded.iter().map(|entry| entry.owner.as_str()).collect();
    let joined: BTreeMap<String, &str> = hidden
        .map(|(tool, reason)| (format!("capability:{tool}"), reason))
        .filter(|(owner, _)| !reported.contains(owner.as_str()))
        .collect();
    let mut degraded = status.degraded.clone();
    if suspects_itself && !reported.contains(PROBER) && degraded.len() < MAX_DEGRADED {
        degraded.push(DegradedOwner { owner: PROBER.to_owned(), reason: SUSPECT.to_owned() });
    }
    let mut text = String::new();
    for (owner, reason) in joined.into_iter().take(MAX_DEGRADED.saturating_sub(degraded.len())) {
        let entry = DegradedOwner { owner, reason: clean(reason, MAX_JOINED_REASON) };
        text.push_str(", ");
        push_degraded(&mut text, &entry);
        if text.len() > MAX_JOINED_BYTES {
            break;
        }
        degraded.push(entry);
    }
    Status { degraded, ..status.clone() }
}

fn push_degraded(out: &mut String, degraded: &DegradedOwner) {
    out.push_str("{\"owner\": ");
    python::push_json(out, &degraded.owner);
    out.push_str(", \"reason\": ");
    python::push_json(out, &degraded.reason);
    out.push('}');
}

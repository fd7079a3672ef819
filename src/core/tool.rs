//! What an owner registers, and what the registry keeps of it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    name::{ToolKey, ToolName},
    probe::ProbeSpec,
};

/// A valid tool spec. The JSON fields are texts, exactly as they were sent; empty means absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Unique in the namespace.
    pub name: ToolName,
    /// For people.
    pub title: String,
    /// For the model.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: String,
    /// JSON Schema of the result.
    pub output_schema: String,
    /// Where the tool is called; opaque.
    pub endpoint: String,
    /// MCP annotations.
    pub annotations: String,
    /// Further MCP fields.
    pub extra: String,
    /// The owner's labels.
    pub labels: BTreeMap<String, String>,
    /// How to find out whether it works.
    pub probes: Vec<ProbeSpec>,
    /// The four durations that the owner gave.
    pub windows: GivenWindows,
}

/// The durations that an owner gave; what is left out is derived from the server's defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GivenWindows {
    /// How often each probe runs.
    pub interval: Option<Duration>,
    /// The one deadline of a run.
    pub timeout: Option<Duration>,
    /// How long a result may be used without a new one.
    pub ttl: Option<Duration>,
    /// How long a success outlives errors.
    pub grace: Option<Duration>,
}

/// A registered tool: what is durable of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTool {
    /// Namespace and name.
    pub key: ToolKey,
    /// What the owner asked for.
    pub spec: Arc<ToolSpec>,
    /// `sha256:...` over the spec's content without its labels.
    pub spec_hash: Arc<str>,
    /// Who registered it.
    pub owner: Arc<str>,
    /// A new number per different spec, from the store's counter: it never repeats.
    pub generation: u64,
    /// Whether the server's manifest declares it.
    pub from_manifest: bool,
    /// Wall clock, milliseconds since 1970.
    pub create_time_ms: i64,
    /// Wall clock, milliseconds since 1970.
    pub update_time_ms: i64,
}

//! Between wire types and the core's: everything that comes in is judged here, once, and all faults are told together.

mod carry;
pub mod format;
mod hidden;
mod json;
mod probe;
mod recall;
mod scalar;
pub mod selection;
pub mod status;
mod target;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

pub use recall::recall;
pub use scalar::{
    INTERVAL, KEEP, REPORT_TTL, TIMEOUT, UNREGISTER_AFTER, WAIT, duration, format_to_proto, namespace,
    outcome, owner, page_size, schema_format, timestamp, to_proto_duration, tool_name, verdict_filter,
};

use crate::{
    core::{
        name::quote,
        refusal::Fault,
        tool::{GivenWindows, ToolSpec},
    },
    proto::v1,
};

/// Longest title, in characters.
pub const MAX_TITLE: usize = 256;
/// Longest description, in bytes.
pub const MAX_DESCRIPTION: usize = 16 * 1024;
/// Longest endpoint, in characters.
pub const MAX_ENDPOINT: usize = 2_048;
/// Most labels of one tool.
pub const MAX_LABELS: usize = 32;
/// Longest label key or value.
pub const MAX_LABEL: usize = 63;

/// Highest threshold: on the fast interval of 2 s, ten results fit into the default grace.
pub const MAX_THRESHOLD: u32 = 10;

/// Collects faults, so that an owner learns all of them at once.
#[derive(Debug, Default)]
struct Faults(Vec<Fault>);

impl Faults {
    fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(Fault::new(field, message));
    }

    /// The value, or its fault noted.
    fn keep<T>(&mut self, judged: Result<T, Fault>) -> Option<T> {
        judged.map_err(|fault| self.0.push(fault)).ok()
    }
}

/// Parses a tool spec. Fields are named relative to it: `probes[2].http.url`.
///
/// # Errors
/// All faults.
pub fn tool_spec(pb: v1::ToolSpec) -> Result<ToolSpec, Vec<Fault>> {
    let mut faults = Faults::default();
    let name = faults.keep(tool_name("name", &pb.name));
    text(&mut faults, "title", &pb.title, MAX_TITLE);
    description(&mut faults, &pb.description);
    endpoint(&mut faults, &pb.endpoint);
    json::judge(&mut faults, &pb);
    let labels = labels(&mut faults, pb.labels);
    let probes = probe::all(&mut faults, pb.probes);
    let mut window =
        |field, given: &Option<_>, range| given.as_ref().and_then(|d| faults.keep(duration(field, d, range)));
    let windows = GivenWindows {
        interval: window("interval", &pb.interval, INTERVAL),
        timeout: window("timeout", &pb.timeout, TIMEOUT),
        ttl: window("ttl", &pb.ttl, KEEP),
        grace: window("grace", &pb.grace, KEEP),
        success_threshold: threshold(&mut faults, "success_threshold", pb.success_threshold),
        failure_threshold: threshold(&mut faults, "failure_threshold", pb.failure_threshold),
    };
    let unregister_after = pb
        .unregister_after
        .as_ref()
        .and_then(|after| faults.keep(duration("unregister_after", after, UNREGISTER_AFTER)));
    match name {
        Some(name) if faults.0.is_empty() => Ok(ToolSpec {
            name,
            title: pb.title,
            description: pb.description,
            input_schema: pb.input_schema_json,
            output_schema: pb.output_schema_json,
            endpoint: pb.endpoint,
            annotations: pb.annotations_json,
            extra: pb.extra_json,
            labels,
            probes,
            windows,
            unregister_after,
        }),
        _ => Err(faults.0),
    }
}

/// The spec as its owner sent it: JSON texts byte for byte. What was left out stays out, but each probe has its name.
pub fn spec_to_proto(spec: &ToolSpec) -> v1::ToolSpec {
    let window = |given: Option<_>| given.map(to_proto_duration);
    v1::ToolSpec {
        name: spec.name.to_string(),
        title: spec.title.clone(),
        description: spec.description.clone(),
        input_schema_json: spec.input_schema.clone(),
        output_schema_json: spec.output_schema.clone(),
        endpoint: spec.endpoint.clone(),
        annotations_json: spec.annotations.clone(),
        extra_json: spec.extra.clone(),
        labels: spec.labels.clone().into_iter().collect(),
        probes: spec.probes.iter().map(probe::to_proto).collect(),
        interval: window(spec.windows.interval),
        timeout: window(spec.windows.timeout),
        ttl: window(spec.windows.ttl),
        grace: window(spec.windows.grace),
        success_threshold: spec.windows.success_threshold.unwrap_or_default(),
        failure_threshold: spec.windows.failure_threshold.unwrap_or_default(),
        unregister_after: window(spec.unregister_after),
    }
}

/// A threshold; 0 is left out.
fn threshold(faults: &mut Faults, field: &str, given: u32) -> Option<u32> {
    if given > MAX_THRESHOLD {
        faults.add(field, format!("is {given}; it must be 1 to {MAX_THRESHOLD}, or 0 for 1"));
    }
    (given > 0).then_some(given)
}

/// A text of one line or more, in characters.
fn text(faults: &mut Faults, field: &str, text: &str, max: usize) {
    let count = text.chars().count();
    if count > max {
        faults.add(field, format!("has {count} characters; at most {max} are allowed"));
    }
    no_nul(faults, field, text);
}

fn description(faults: &mut Faults, text: &str) {
    if text.len() > MAX_DESCRIPTION {
        faults.add("description", format!("has {} bytes; at most {MAX_DESCRIPTION} are allowed", text.len()));
    }
    no_nul(faults, "description", text);
}

/// C programs and some databases end a text at NUL.
fn no_nul(faults: &mut Faults, field: &str, text: &str) {
    if text.contains('\0') {
        faults.add(field, "must not contain a NUL character");
    }
}

fn endpoint(faults: &mut Faults, text: &str) {
    let count = text.chars().count();
    if count > MAX_ENDPOINT {
        faults.add("endpoint", format!("has {count} characters; at most {MAX_ENDPOINT} are allowed"));
    }
    if text.chars().any(char::is_control) {
        faults.add("endpoint", "must not contain control characters");
    }
}

fn labels(faults: &mut Faults, given: HashMap<String, String>) -> BTreeMap<String, String> {
    if given.len() > MAX_LABELS {
        faults.add("labels", format!("has {} labels; at most {MAX_LABELS} are allowed", given.len()));
        return BTreeMap::new();
    }
    let fits = |text: &str, min: usize| {
        (min..=MAX_LABEL).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_./-".contains(&b))
    };
    // Sorted first, so that faults come in the same order each time.
    let sorted: BTreeMap<String, String> = given.into_iter().collect();
    for (key, value) in &sorted {
        let field = format!("labels[{}]", quote(key));
        if !fits(key, 1) {
            faults.add(field, format!("a key must be 1 to {MAX_LABEL} characters of [A-Za-z0-9_./-]"));
        } else if !fits(value, 0) {
            let value = quote(value);
            faults.add(
                field,
                format!("value {value} must be at most {MAX_LABEL} characters of [A-Za-z0-9_./-]"),
            );
        }
    }
    sorted
}

/// Bytes of a message as an entry of a repeated field with a number below 16.
pub fn field_len(message: &impl prost::Message) -> usize {
    let len = message.encoded_len();
    1 + prost::length_delimiter_len(len) + len
}

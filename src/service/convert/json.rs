//! The four JSON texts of a tool spec.

use super::Faults;
use crate::{
    core::schema::{
        self, Budget, JsonFault, Kind,
        lint::{self, Role},
        tree::Json,
    },
    proto::v1,
};

/// Members of an MCP definition that have a field of their own.
const RESERVED: [(&str, &str); 6] = [
    ("name", "name"),
    ("title", "title"),
    ("description", "description"),
    ("inputSchema", "input_schema_json"),
    ("outputSchema", "output_schema_json"),
    ("annotations", "annotations_json"),
];

/// Judges all four, against bounds that hold for them together.
pub(super) fn judge(faults: &mut Faults, pb: &v1::ToolSpec) {
    let texts = [
        ("input_schema_json", &pb.input_schema_json),
        ("output_schema_json", &pb.output_schema_json),
        ("annotations_json", &pb.annotations_json),
        ("extra_json", &pb.extra_json),
    ];
    let total: usize = texts.iter().map(|(_, text)| text.len()).sum();
    if total > schema::MAX_BYTES {
        // Blames the field where cutting helps the most.
        let (field, text) = texts.into_iter().max_by_key(|(_, text)| text.len()).unwrap_or(texts[0]);
        let max = schema::MAX_BYTES;
        faults.add(
            field,
            format!(
                "has {} of the {total} bytes of JSON of this tool; at most {max} are allowed",
                text.len()
            ),
        );
        return;
    }
    let mut budget = Budget::default();
    for (field, text) in texts {
        // Past the bound on values nothing can be judged; that fault is told already.
        if text.is_empty() || budget.is_overdrawn() {
            continue;
        }
        match schema::check(text, &mut budget) {
            Ok(Kind::Object) if field == "input_schema_json" => schema(faults, field, text, Role::Input),
            Ok(Kind::Object) if field == "output_schema_json" => schema(faults, field, text, Role::Output),
            Ok(Kind::Object) if field == "extra_json" => reserved(faults, text),
            Ok(Kind::Object) => {}
            Ok(kind) => faults.add(field, format!("must be a JSON object, not {kind}")),
            Err(fault) if fault.pointer.is_empty() => faults.add(field, fault.message),
            Err(fault) => faults.add(format!("{field}#{}", fault.pointer), fault.message),
        }
    }
}

/// All that is wrong with a schema.
fn schema(faults: &mut Faults, field: &str, text: &str, role: Role) {
    let Some(schema) = Json::parse(text) else { return };
    for JsonFault { pointer, message } in lint::faults(&schema, role) {
        faults.add(if pointer.is_empty() { field.to_owned() } else { format!("{field}#{pointer}") }, message);
    }
}

fn reserved(faults: &mut Faults, extra: &str) {
    for member in schema::members(extra) {
        if let Some((key, field)) = RESERVED.iter().find(|(key, _)| *key == member.key) {
            faults.add(format!("extra_json#/{key}"), format!("must not repeat {key}; set the field {field}"));
        }
    }
}

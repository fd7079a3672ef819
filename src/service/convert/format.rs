//! What providers would get of a tool, for the wire.

use super::format_to_proto;
use crate::{
    core::{
        name::ToolKey,
        tool::{SpecWarning, ToolSpec},
    },
    proto::v1,
    render::{Format, Loss, RULES_VERSION, Rendered},
};

/// What each provider would get of a tool.
pub fn verdicts(key: &ToolKey, spec: &ToolSpec) -> Vec<v1::FormatVerdict> {
    Format::ALL.iter().map(|format| verdict(*format, key, spec)).collect()
}

fn verdict(format: Format, key: &ToolKey, spec: &ToolSpec) -> v1::FormatVerdict {
    let mut told = v1::FormatVerdict {
        format: format_to_proto(format).into(),
        rules_version: RULES_VERSION,
        ..Default::default()
    };
    match format.render(key, spec) {
        Rendered::Omitted(omission) => {
            told.set_verdict(v1::FormatOutcome::Omitted);
            told.reason = omission.reason.to_owned();
            told.pointer = omission.pointer;
            told.message = omission.message;
        }
        Rendered::Ok { losses, converted, .. } => {
            told.set_verdict(match (losses.is_empty(), converted) {
                (false, _) => v1::FormatOutcome::Lossy,
                (true, true) => v1::FormatOutcome::Converted,
                (true, false) => v1::FormatOutcome::Pass,
            });
            told.losses = losses.iter().map(|one| loss(spec.name.as_str(), one)).collect();
        }
    }
    told
}

/// What a definition no longer says of a tool.
pub fn loss(name: &str, loss: &Loss) -> v1::ToolLoss {
    v1::ToolLoss { name: name.to_owned(), pointer: loss.pointer.clone(), message: loss.message.clone() }
}

/// What is odd about a spec.
pub fn warnings(found: &[SpecWarning]) -> Vec<v1::Warning> {
    let warning = |w: &SpecWarning| v1::Warning {
        pointer: w.field.clone(),
        code: w.code.to_owned(),
        message: w.message.clone(),
    };
    found.iter().map(warning).collect()
}

//! Definitions as Anthropic's messages take them.

use super::{
    Object, common, dialect,
    rule::{At, Effect, Rule},
};
use crate::core::tool::ToolSpec;

pub(super) const RULES: &[Rule] = &[
    // "input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12": what older drafts write otherwise is
    // rewritten (AlexGladkov/claude-in-mobile#55: tuples), and no other dialect is declared.
    Rule { id: "DIALECT", at: At::With(&["$schema"]), effect: Effect::Convert, apply: dialect::drop_dialect },
    Rule {
        id: "OLDER_DRAFT",
        at: At::With(common::OLDER),
        effect: Effect::Convert,
        apply: common::modernise,
    },
    Rule { id: "ROOT_REFERENCE", at: At::Root, effect: Effect::Omit, apply: common::root_reference_stuck },
    Rule { id: "ROOT_REFERENCE", at: At::Root, effect: Effect::Convert, apply: common::root_reference },
    // anthropics/claude-code#88049, #28620: "input_schema does not support oneOf, allOf, or anyOf at the top level".
    Rule { id: "ROOT_COMBINATOR", at: At::Root, effect: Effect::Convert, apply: common::root_unions },
    // anthropic SDK, ToolParam.input_schema: type "object" is required.
    Rule { id: "ROOT_TYPE", at: At::Root, effect: Effect::Convert, apply: common::root_type },
    // beautyfree/appstore-connect-mcp#2: "property keys should match pattern"; only at the top, as measured in
    // aws-solutions-library-samples/accelerated-intelligent-document-processing-on-aws#709.
    Rule { id: "PARAMETER_NAME", at: At::Root, effect: Effect::Omit, apply: common::parameter_names },
];

/// anthropic SDK, ToolParam.
pub(super) fn definition(exposed_name: &str, input_schema: &str, spec: &ToolSpec) -> String {
    Object::new()
        .text("name", exposed_name)
        .text("description", &spec.description)
        .json("input_schema", input_schema)
        .finish()
}

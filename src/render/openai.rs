//! Definitions as OpenAI's chat completions and responses take them.

use super::{
    Object, common, dialect,
    rule::{At, Effect, Rule},
};
use crate::core::tool::ToolSpec;

pub(super) const RULES: &[Rule] = &[
    // promptfoo#5965: best without $schema.
    Rule { id: "DIALECT", at: At::With(&["$schema"]), effect: Effect::Convert, apply: dialect::drop_dialect },
    // Without $schema the schema counts as 2020-12. AlexGladkov/claude-in-mobile#55: a tuple of draft-07 is refused.
    Rule {
        id: "OLDER_DRAFT",
        at: At::With(common::OLDER),
        effect: Effect::Convert,
        apply: common::modernise,
    },
    // Below: the root has to be an object in plain sight.
    Rule { id: "ROOT_REFERENCE", at: At::Root, effect: Effect::Omit, apply: common::root_reference_stuck },
    Rule { id: "ROOT_REFERENCE", at: At::Root, effect: Effect::Convert, apply: common::root_reference },
    // Error text "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level"
    // (anthropics/claude-code#88049, #28620 have Anthropic's).
    Rule { id: "ROOT_COMBINATOR", at: At::Root, effect: Effect::Convert, apply: common::root_combinators },
    // As above: "schema must be a JSON Schema of type object".
    Rule { id: "ROOT_TYPE", at: At::Root, effect: Effect::Convert, apply: common::root_type },
    // langchain-ai/langchain-mcp-adapters#137: "object schema missing properties".
    Rule { id: "ROOT_PROPERTIES", at: At::Root, effect: Effect::Convert, apply: common::root_properties },
    // The custom subset has no boolean schemas but for additionalProperties.
    Rule { id: "BOOLEAN_SCHEMA", at: At::Each, effect: Effect::Convert, apply: common::boolean_schemas },
    // can1357/oh-my-pi#2711: an enum must fit the type beside it.
    Rule {
        id: "ENUM_WITHOUT_FIT",
        at: At::With(&["enum"]),
        effect: Effect::Omit,
        apply: common::enum_without_fit,
    },
    Rule {
        id: "ENUM_OUTSIDE_TYPE",
        at: At::With(&["enum"]),
        effect: Effect::Convert,
        apply: common::enum_outside_type,
    },
    // spring-projects/spring-ai#2561: "array schema missing items"; {} is accepted.
    Rule { id: "ARRAY_ITEMS", at: At::Each, effect: Effect::Convert, apply: common::array_items },
    // MCP 2026-07-28: the keyword is for MCP clients.
    Rule {
        id: "HEADER_KEYWORD",
        at: At::With(&["x-mcp-header"]),
        effect: Effect::Convert,
        apply: common::drop_header_keyword,
    },
];

/// openai SDK, ChatCompletionFunctionToolParam: `strict` is off if it is left out.
pub(super) fn chat(exposed_name: &str, parameters: &str, spec: &ToolSpec) -> String {
    let function = Object::new()
        .text("name", exposed_name)
        .text("description", &spec.description)
        .json("parameters", parameters)
        .finish();
    Object::new().text("type", "function").json("function", &function).finish()
}

/// openai SDK, FunctionToolParam: `parameters` and `strict` are required keys; left out, `strict` would be tried.
pub(super) fn responses(exposed_name: &str, parameters: &str, spec: &ToolSpec) -> String {
    Object::new()
        .text("type", "function")
        .text("name", exposed_name)
        .text("description", &spec.description)
        .json("parameters", parameters)
        .json("strict", "false")
        .finish()
}

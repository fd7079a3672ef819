"""Definitions that providers refuse: `providers.py` must see each of them, or its silence on others would mean nothing."""

import json

import providers

OBJECT = {"type": "object"}
WRAP = {
    "MCP": lambda schema, name: {"name": name, "description": "d", "inputSchema": schema},
    "OPENAI_CHAT": lambda schema, name: {
        "type": "function",
        "function": {"name": name, "description": "d", "parameters": schema},
    },
    "OPENAI_RESPONSES": lambda schema, name: {
        "type": "function",
        "name": name,
        "description": "d",
        "parameters": schema,
        "strict": False,
    },
    "ANTHROPIC": lambda schema, name: {"name": name, "description": "d", "input_schema": schema},
    "GEMINI": lambda schema, name: {"name": name, "description": "d", "parametersJsonSchema": schema},
    "GEMINI_OPENAPI": lambda schema, name: {"name": name, "description": "d", "parameters": schema},
    "BEDROCK": lambda schema, name: {"toolSpec": {"name": name, "description": "d", "inputSchema": {"json": schema}}},
}
OPENAI, CLAUDE = ["OPENAI_CHAT", "OPENAI_RESPONSES"], ["ANTHROPIC", "BEDROCK"]
JSON_SCHEMA = ["MCP", *OPENAI, *CLAUDE, "GEMINI"]


def having(schema, **more):
    return {**OBJECT, "properties": {"a": schema}, **more}


# Which formats refuse the schema, and the end of the pointer that says where.
SCHEMAS = [
    (JSON_SCHEMA, {"type": "string"}, "/type"),
    (["GEMINI_OPENAPI"], {"type": "STRING"}, "/type"),
    (JSON_SCHEMA, having({"type": "int"}), "/properties/a/type"),
    (JSON_SCHEMA, having({"type": "string", "minLength": -1}), "/properties/a/minLength"),
    (JSON_SCHEMA, having({"type": "string"}, required=["a", "a"]), "/required"),
    (JSON_SCHEMA, having({"$ref": "#/$defs/A"}), "/properties/a/$ref"),
    (JSON_SCHEMA, having({"anyOf": []}), "/properties/a/anyOf"),
    ([*OPENAI, *CLAUDE, "GEMINI"], having({"$id": "#a"}), "/properties/a/$id"),
    ([*OPENAI, *CLAUDE, "GEMINI"], having({"$recursiveAnchor": True}), "/properties/a/$recursiveAnchor"),
    (OPENAI, OBJECT, "/properties"),
    (OPENAI, having({"type": "array"}), "/properties/a/items"),
    (OPENAI, having({"type": "string", "enum": ["x", 1]}), "/properties/a/enum/1"),
    (OPENAI, having({}, **{"not": {"required": ["b"]}}), "/not"),
    ([*OPENAI, *CLAUDE], having({}, anyOf=[{"required": ["a"]}]), "/anyOf"),
    ([*OPENAI, *CLAUDE, "GEMINI"], having({}, **{"$schema": "http://json-schema.org/draft-07/schema#"}), "/$schema"),
    ([*OPENAI, *CLAUDE, "GEMINI"], having({"type": "array", "items": [{"type": "number"}]}), "/properties/a/items"),
    (CLAUDE, {**OBJECT, "properties": {"a[b]": {}}}, "/properties/a[b]"),
    (["GEMINI"], {**OBJECT, "properties": {}}, ""),
    (["MCP"], having({"type": "number", "x-mcp-header": "A"}), "/properties/a/x-mcp-header"),
    (["MCP"], having({"type": "string", "x-mcp-header": "A B"}), "/properties/a/x-mcp-header"),
    (["MCP"], having({"items": {"type": "string", "x-mcp-header": "A"}}), "/properties/a/items/x-mcp-header"),
    *(
        (["GEMINI_OPENAPI"], schema, pointer)
        for schema, pointer in [
            ({**OBJECT, "properties": {}}, "/properties"),
            ({**OBJECT, "properties": {"a-b": {"type": "STRING"}}}, "/properties/a-b"),
            (having({}), "/properties/a/type"),
            (having(True), "/properties/a"),
            (having({"type": ["string", "null"]}), "/properties/a/type"),
            (having({"type": "OBJECT"}), "/properties/a/properties"),
            (having({"type": "ARRAY"}), "/properties/a/items"),
            (having({"type": "ARRAY", "items": {}}), "/properties/a/items/type"),
            (having({"type": "INTEGER", "enum": [1]}), "/properties/a/enum"),
            (having({"type": "STRING", "enum": [""]}), "/properties/a/enum/0"),
            (having({"type": "STRING", "enum": []}), "/properties/a/enum"),
            (having({"type": "STRING", "format": "enum"}), "/properties/a/enum"),
            (having({"type": "STRING", "maxLength": 2**63}), "/properties/a/maxLength"),
            (having({"type": "STRING", "const": "x"}), "/properties/a/const"),
            (having({"type": "STRING", "format": "uri"}), "/properties/a/format"),
            (having({"type": "INTEGER", "exclusiveMinimum": 0}), "/properties/a/exclusiveMinimum"),
            (having({"type": "STRING", "properties": {"b": {"type": "STRING"}}}), "/properties/a/properties"),
            (having({"anyOf": [{"type": "STRING"}], "description": "d"}), "/properties/a"),
            (having({"anyOf": [{"type": "STRING", "title": 1}]}), "/properties/a/anyOf/0/title"),
            (having({"type": "STRING"}, required=["b"]), "/required/0"),
            (having({"type": "STRING"}, additionalProperties=False), "/additionalProperties"),
            (having({"type": "STRING"}, **{"$schema": "x"}), "/$schema"),
        ]
    ),
]
FINE = having({"type": "STRING"})
NAMES = {
    "MCP": ["", "a b", "a/b", "a" * 129],
    **dict.fromkeys([*OPENAI, *CLAUDE], ["", "a.b", "é", "a" * 65]),
    **dict.fromkeys(["GEMINI", "GEMINI_OPENAPI"], ["", "3d", "a b", "a" * 65]),
}
TEXTS = [
    ("MCP", "{}"),
    ("MCP", '[{"name":"t","name":"t","inputSchema":{"type":"object"}}]'),
    ("MCP", '[{"name":"t"}]'),
    ("MCP", '[{"name":"t","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":"yes"}}]'),
    ("MCP", '[{"name":"t","inputSchema":{"type":"object"}},{"name":"t","inputSchema":{"type":"object"}}]'),
    ("OPENAI_CHAT", '[{"type":"function","name":"t","parameters":{"type":"object","properties":{}}}]'),
    ("OPENAI_RESPONSES", '[{"type":"function","name":"t","parameters":{"type":"object","properties":{}}}]'),
    ("ANTHROPIC", '[{"name":"t","input_schema":{"type":"object"},"inputSchema":{}}]'),
    ("GEMINI", '[{"name":"t"}]'),
    ("GEMINI", '[{"functionDeclarations":[]}]'),
    ("BEDROCK", '[{"toolSpec":{"name":"t","description":"","inputSchema":{"json":{"type":"object"}}}}]'),
]


def unseen():
    """The cases that `providers.py` lets pass."""
    for forms, schema, pointer in SCHEMAS:
        for form in forms:
            _, violations = providers.check(form, json.dumps(listed(form, schema, "t")))
            if not any(v.pointer.endswith(pointer) for v in violations):
                yield f"{form} {json.dumps(schema)} at {pointer}: {[str(v) for v in violations]}"
    for form, names in NAMES.items():
        fine = FINE if form == "GEMINI_OPENAPI" else having({"type": "string"})
        _, violations = providers.check(form, json.dumps(listed(form, fine, "t")))
        if violations:
            yield f"{form}: refuses a good one, {violations[0]}"
        for name in names:
            _, violations = providers.check(form, json.dumps(listed(form, fine, name)))
            if [v.pointer.rpartition("/")[2] for v in violations] != ["name"]:
                yield f"{form} takes the name {name!r}"
    for form, text in TEXTS:
        if not providers.check(form, text)[1]:
            yield f"{form} {text}"


def listed(form, schema, name):
    tools = [WRAP[form](schema, name)]
    return [{"functionDeclarations": tools}] if form.startswith("GEMINI") else tools

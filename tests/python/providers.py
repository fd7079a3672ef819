"""What each provider takes as `tools`: a second implementation of its rules, written from its SDK, its documentation and the
errors it gives, not from the server's own tables. Every rule has its source beside it.

`check(format, text)` returns the definitions of a `tools_json` and the violations: which tool, where, which rule.
"""

import re
from typing import NamedTuple

from schemas import COUNT, FLAG, NAMES, NUMBER, SCHEMA, SCHEMA_MAP, SCHEMAS, TEXT
from schemas import fits, join, json_schema, parse, subschemas, type_of, types_of

FORMATS = ["MCP", "OPENAI_CHAT", "OPENAI_RESPONSES", "ANTHROPIC", "GEMINI", "GEMINI_OPENAPI", "BEDROCK"]
DIALECT_2020 = "json-schema.org/draft/2020-12/schema"


class Violation(NamedTuple):
    tool: str
    pointer: str
    rule: str

    def __str__(self):
        return f"{self.tool} at {self.pointer or 'its root'}: {self.rule}"


class Definition(NamedTuple):
    name: str
    # The definition, without the wrappers of its provider.
    body: dict
    # The schema of its arguments, or None where the provider is given none.
    schema: dict | None


def root_object(schema):
    if not isinstance(schema, dict):
        yield "", "must be an object"
    elif schema.get("type") != "object":
        yield "/type", "must be `object`"


def refused_at_root(schema, keywords, source):
    for key in keywords:
        if key in schema:
            yield f"/{key}", f"refused at the top level ({source})"


# --- MCP --------------------------------------------------------------------------------------------------------------------

# modelcontextprotocol.io/specification/2026-07-28/server/tools, and 2025-11-25 for `execution`.
MCP_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
MCP_FIELDS = {"title": str, "description": str, "icons": list, "annotations": dict, "_meta": dict, "execution": dict}
MCP_HINTS = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"]
# RFC 9110 section 5.6.2: what a header's name may hold.
HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


def mcp(tool):
    name = tool.get("name")
    if not isinstance(name, str) or not MCP_NAME.fullmatch(name):
        yield "/name", "1 to 128 of [A-Za-z0-9._-] (tools, names)"
    for key, kind in MCP_FIELDS.items():
        if key in tool and not isinstance(tool[key], kind):
            yield f"/{key}", f"must be a {kind.__name__} (schema.ts, Tool)"
    notes = tool.get("annotations")
    if isinstance(notes, dict):
        for hint in MCP_HINTS:
            if not isinstance(notes.get(hint, True), bool):
                yield f"/annotations/{hint}", "must be true or false (schema.ts, ToolAnnotations)"
        if not isinstance(notes.get("title", ""), str):
            yield "/annotations/title", "must be a string (schema.ts, ToolAnnotations)"
    for index, icon in enumerate(tool.get("icons") or []):
        if not isinstance(icon, dict) or not isinstance(icon.get("src"), str):
            yield f"/icons/{index}/src", "an icon has a source (schema.ts, Icon)"
    schema = tool.get("inputSchema")
    yield from below("/inputSchema", root_object(schema))
    if isinstance(schema, dict):
        yield from below("/inputSchema", of_its_dialect(schema))
        yield from below("/inputSchema", mcp_headers(schema))
    if "outputSchema" in tool:
        if not isinstance(tool["outputSchema"], dict):
            yield "/outputSchema", "must be an object (schema.ts, Tool)"
        else:
            yield from below("/outputSchema", of_its_dialect(tool["outputSchema"]))


def of_its_dialect(schema):
    """Older dialects have other meta-schemas; only their references are looked at."""
    old = DIALECT_2020 not in schema.get("$schema", DIALECT_2020)
    return (fault for fault in json_schema(schema) if not (old and fault[1].startswith("JSON Schema 2020-12")))


def mcp_headers(schema):
    """Transports, custom headers: clients leave a tool out whose `x-mcp-header` is wrong."""
    seen = set()
    for pointer, part in subschemas(schema):
        if "x-mcp-header" not in part:
            continue
        header, where = part["x-mcp-header"], join(pointer, "x-mcp-header")
        if not re.fullmatch(r"(/properties/[^/]+)+", pointer):
            yield where, "not reachable from the root by properties alone"
        elif not isinstance(header, str) or not HEADER_NAME.fullmatch(header):
            yield where, "not the name of a header"
        elif part.get("type") not in ("string", "integer", "boolean"):
            yield where, "only on a string, an integer or a boolean"
        elif header.lower() in seen:
            yield where, "there twice"
        else:
            seen.add(header.lower())


# --- OpenAI -----------------------------------------------------------------------------------------------------------------

# platform.openai.com/docs/api-reference/chat: "a-z, A-Z, 0-9, or contain underscores and dashes, with a maximum length of 64".
OPENAI_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def openai_function(function, keys):
    yield from members(function, {"name": str, "parameters": dict}, keys)
    yield from name_is(function, OPENAI_NAME, "openai SDK, FunctionDefinition.name")
    schema = function.get("parameters")
    if isinstance(schema, dict):
        yield from below("/parameters", openai_schema(schema))


def openai_schema(schema):
    yield from root_object(schema)
    # "object schema missing properties" (containers/kubernetes-mcp-server#340).
    if not isinstance(schema.get("properties"), dict):
        yield "/properties", "must be there: `object schema missing properties`"
    # "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level".
    yield from refused_at_root(schema, ["oneOf", "anyOf", "allOf", "enum", "not"], "OpenAI's error of that text")
    # promptfoo#5965.
    if "$schema" in schema:
        yield "/$schema", "dropped before it is sent (promptfoo#5965)"
    # "[...] is not of type 'object', 'boolean'": OpenAI judges by a meta-schema, and refuses items that are an array.
    yield from json_schema(schema)
    for pointer, part in subschemas(schema):
        # "array schema missing items".
        if "array" in types_of(part) and not isinstance(part.get("items"), (dict, bool)):
            yield join(pointer, "items"), "an array must say of what: `array schema missing items`"
        yield from enum_fits(pointer, part)


def enum_fits(pointer, part):
    """can1357/oh-my-pi#2711: "enum value ... does not validate against {'type': ...}"."""
    if not types_of(part) or not isinstance(part.get("enum"), list):
        return
    for index, value in enumerate(part["enum"]):
        if not type_of(value) & set(types_of(part)):
            yield join(pointer, "enum", index), f"is no {part['type']} (can1357/oh-my-pi#2711)"


def openai_chat(tool):
    yield from members(tool, {"type": str, "function": dict}, {"type", "function"})
    if tool.get("type") != "function":
        yield "/type", "must be `function` (openai SDK, ChatCompletionFunctionToolParam)"
    if isinstance(tool.get("function"), dict):
        yield from below("/function", openai_function(tool["function"], {"name", "description", "parameters", "strict"}))


def openai_responses(tool):
    if tool.get("type") != "function":
        yield "/type", "must be `function` (openai SDK, FunctionToolParam)"
    # `strict` is required there; without it Responses tries to be strict.
    if not isinstance(tool.get("strict"), bool):
        yield "/strict", "must be true or false (openai SDK, FunctionToolParam)"
    rest = {key: value for key, value in tool.items() if key != "type"}
    yield from openai_function(rest, {"name", "description", "parameters", "strict"})


# --- Anthropic and Bedrock --------------------------------------------------------------------------------------------------

# 128 at the API, 64 in `tool_reference` and in connectors (NetApp#38, cloudflare/skills#11).
ANTHROPIC_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
# "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'", at the top level only (appstore-connect-mcp#2, aws-idp#709).
ANTHROPIC_PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


def anthropic(tool):
    yield from members(tool, {"name": str, "input_schema": dict}, {"name", "description", "input_schema"})
    yield from name_is(tool, ANTHROPIC_NAME, "Anthropic API, tools")
    if isinstance(tool.get("input_schema"), dict):
        yield from below("/input_schema", claude_schema(tool["input_schema"]))


def claude_schema(schema):
    yield from root_object(schema)
    # "input_schema does not support oneOf, allOf, or anyOf at the top level".
    yield from refused_at_root(schema, ["oneOf", "allOf", "anyOf"], "Anthropic's error of that text")
    # "JSON schema is invalid. It must match JSON Schema draft 2020-12".
    if DIALECT_2020 not in str(schema.get("$schema", DIALECT_2020)):
        yield "/$schema", "must be draft 2020-12"
    yield from json_schema(schema)
    if isinstance(schema.get("properties"), dict):
        for name in schema["properties"]:
            if not ANTHROPIC_PROPERTY.fullmatch(name):
                yield join("/properties", name), "1 to 64 of [a-zA-Z0-9_.-] (Anthropic's error)"


# botocore, bedrock-runtime, ToolName.
BEDROCK_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def bedrock(tool):
    yield from members(tool, {"toolSpec": dict}, {"toolSpec"})
    spec = tool.get("toolSpec")
    if not isinstance(spec, dict):
        return
    allowed = {"name", "description", "inputSchema", "strict"}
    yield from below("/toolSpec", members(spec, {"name": str, "inputSchema": dict}, allowed))
    yield from below("/toolSpec", name_is(spec, BEDROCK_NAME, "botocore, ToolName"))
    # botocore, ToolSpecification: description has min 1 (LibreChat#13209).
    if spec.get("description") == "":
        yield "/toolSpec/description", "must not be empty (botocore, NonEmptyString)"
    schema = spec.get("inputSchema")
    if isinstance(schema, dict):
        yield from below("/toolSpec/inputSchema", members(schema, {"json": dict}, {"json"}))
        if isinstance(schema.get("json"), dict):
            # Most who call tools there call Claude, which refuses what it refuses at home.
            yield from below("/toolSpec/inputSchema/json", claude_schema(schema["json"]))


# --- Gemini -----------------------------------------------------------------------------------------------------------------

# google-genai, FunctionDeclaration.name; 128 now, 64 before 2026.
GEMINI_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")
# google-genai, FunctionDeclaration.parameters.
GEMINI_PROPERTY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


# What a schema may hold and still say nothing of arguments.
NO_ARGUMENTS = {"type", "title", "description", "$defs", "definitions", "$id", "$comment", "examples", "default"}


def gemini(function):
    yield from members(function, {"name": str}, {"name", "description", "parametersJsonSchema"})
    yield from name_is(function, GEMINI_NAME, "google-genai, FunctionDeclaration.name")
    if "parametersJsonSchema" not in function:
        return
    schema = function["parametersJsonSchema"]
    yield from below("/parametersJsonSchema", gemini_json(schema))


def gemini_json(schema):
    yield from root_object(schema)
    if not isinstance(schema, dict):
        return
    says = {key for key, value in schema.items() if value not in ({}, [])} - {"additionalProperties"}
    if says <= NO_ARGUMENTS and schema.get("additionalProperties", False) is False:
        yield "", "a function without arguments has no schema (google-genai: `this can be left unset`)"
    for pointer, part in subschemas(schema):
        # GetStream/Vision-Agents#513.
        if "$schema" in part:
            yield join(pointer, "$schema"), "unknown there (GetStream/Vision-Agents#513)"
    yield from json_schema(schema)


# google-genai, types.Schema, in the wire's spelling. `additionalProperties`, `$ref` and `$defs` were added to it in 2026;
# what Vertex and older clients know has none of the three.
OPENAPI = {
    **dict.fromkeys(["minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"], COUNT),
    **dict.fromkeys(["minimum", "maximum"], NUMBER),
    **dict.fromkeys(["title", "description", "format", "pattern", "type"], TEXT),
    **dict.fromkeys(["required", "propertyOrdering"], NAMES),
    "anyOf": SCHEMAS,
    "items": SCHEMA,
    "properties": SCHEMA_MAP,
    "nullable": FLAG,
    "enum": "an array",
    "default": None,
    "example": None,
}
OPENAPI_TYPES = {"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"}
# "only 'enum' and 'date-time' are supported for STRING type" (google-gemini/gemini-cli#3178); Schema.format for numbers.
OPENAPI_FORMATS = {"STRING": {"enum", "date-time"}, "NUMBER": {"float", "double"}, "INTEGER": {"int32", "int64"}}


def gemini_openapi(function):
    yield from members(function, {"name": str}, {"name", "description", "parameters"})
    yield from name_is(function, GEMINI_NAME, "google-genai, FunctionDeclaration.name")
    if "parameters" not in function:
        return
    schema = function["parameters"]
    if not isinstance(schema, dict) or str(schema.get("type")).upper() != "OBJECT":
        yield "/parameters/type", "must be OBJECT"
        return
    for name in schema.get("properties", {}):
        if not GEMINI_PROPERTY.fullmatch(name):
            yield join("/parameters/properties", name), "a letter or _, then 63 of [A-Za-z0-9_] (google-genai, parameters)"
    yield from openapi(schema, "/parameters")


def openapi(schema, pointer):
    if not isinstance(schema, dict):
        yield pointer, "must be an object: a Schema is a message"
        return
    for key, value in schema.items():
        if key not in OPENAPI:
            yield join(pointer, key), "`Unknown name`: not a field of Schema (google-genai, types.Schema)"
        elif OPENAPI[key] and not fits(value, OPENAPI[key]):
            yield join(pointer, key), f"must be {OPENAPI[key]} (google-genai, types.Schema)"
        elif OPENAPI[key] == COUNT and value >= 2**63:
            yield join(pointer, key), "is no int64 (google.ai.generativelanguage, Schema)"
    if "anyOf" in schema:
        # "schema specified other fields alongside any_of. When using any_of, it must be the only field set" (litellm#11164).
        if len(schema) > 1:
            others = ", ".join(key for key in schema if key != "anyOf")
            yield pointer, f"Vertex: anyOf must be the only field set, not with {others} (BerriAI/litellm#11164)"
    else:
        yield from openapi_typed(schema, pointer, str(schema.get("type")).upper())
    properties = schema.get("properties")
    for name, member in properties.items() if isinstance(properties, dict) else ():
        yield from openapi(member, join(pointer, "properties", name))
    if "items" in schema:
        yield from openapi(schema["items"], join(pointer, "items"))
    for index, member in enumerate(schema["anyOf"]) if isinstance(schema.get("anyOf"), list) else ():
        yield from openapi(member, join(pointer, "anyOf", index))


def openapi_typed(schema, pointer, kind):
    # ai.google.dev/api/caching#Schema: type is required; an empty schema is refused, as `items` above all.
    if kind not in OPENAPI_TYPES:
        yield join(pointer, "type"), f"must be one of {', '.join(sorted(OPENAPI_TYPES))} (google-genai, types.Type)"
    if kind == "OBJECT" and not schema.get("properties"):
        yield join(pointer, "properties"), "should be non-empty for OBJECT type"
    if kind == "ARRAY" and not schema.get("items"):
        yield join(pointer, "items"), "`items: missing field`: an array must say of what"
    for key, owner in [("properties", "OBJECT"), ("required", "OBJECT"), ("items", "ARRAY")]:
        if key in schema and kind != owner:
            yield join(pointer, key), f"`only allowed for {owner} type`"
    known = schema.get("properties") if isinstance(schema.get("properties"), dict) else {}
    for key in ("required", "propertyOrdering"):
        for index, name in enumerate(schema.get(key) or []):
            if name not in known:
                yield join(pointer, key, index), f"{name}: `property is not defined`"
    if "enum" in schema and isinstance(schema["enum"], list):
        # decolua/9router#359, elastic/kibana#286302, microsoft/azure-devops-mcp#145.
        if kind != "STRING":
            yield join(pointer, "enum"), "`only allowed for STRING type`"
        if not schema["enum"]:
            yield join(pointer, "enum"), "should be non-empty"
        for index, value in enumerate(schema["enum"]):
            if not isinstance(value, str) or value == "":
                yield join(pointer, "enum", index), "must be a string, and not empty (`enum[0]: cannot be empty`)"
    if schema.get("format") == "enum" and not schema.get("enum"):
        # elastic/kibana#286302.
        yield join(pointer, "enum"), "`should be non-empty for STRING type with enum format`"
    if "format" in schema and schema["format"] not in OPENAPI_FORMATS.get(kind, set()):
        yield join(pointer, "format"), f"{schema['format']} is not supported for {kind} (google-gemini/gemini-cli#3178)"


# --- all --------------------------------------------------------------------------------------------------------------------


def members(value, needed, allowed):
    for key, kind in needed.items():
        if not isinstance(value.get(key), kind):
            yield f"/{key}", f"must be there, a {kind.__name__}"
    for key in value:
        if key not in allowed:
            yield join("", key), "not a member that the provider knows"
    if not isinstance(value.get("description", ""), str):
        yield "/description", "must be a string"


def name_is(value, pattern, source):
    if not isinstance(value.get("name"), str) or not pattern.fullmatch(value["name"]):
        yield "/name", f"{value.get('name')!r} does not match {pattern.pattern} ({source})"


def below(prefix, faults):
    return ((prefix + pointer, rule) for pointer, rule in faults)


RULES = {
    "MCP": (mcp, lambda t: (t, t.get("inputSchema"))),
    "OPENAI_CHAT": (openai_chat, lambda t: (t["function"], t["function"].get("parameters"))),
    "OPENAI_RESPONSES": (openai_responses, lambda t: (t, t.get("parameters"))),
    "ANTHROPIC": (anthropic, lambda t: (t, t.get("input_schema"))),
    "GEMINI": (gemini, lambda t: (t, t.get("parametersJsonSchema"))),
    "GEMINI_OPENAPI": (gemini_openapi, lambda t: (t, t.get("parameters"))),
    "BEDROCK": (bedrock, lambda t: (t["toolSpec"], t["toolSpec"]["inputSchema"].get("json"))),
}


def check(form, text):
    """The definitions of a `tools_json`, and what their provider would refuse."""
    whole = "(all)"
    try:
        tools = parse(text)
    except ValueError as error:
        return [], [Violation(whole, "", str(error))]
    if not isinstance(tools, list):
        return [], [Violation(whole, "", "must be an array")]
    if form.startswith("GEMINI") and tools:
        # google-genai, types.Tool: one tool with all declarations.
        if len(tools) != 1 or list(tools[0]) != ["functionDeclarations"] or not tools[0]["functionDeclarations"]:
            return [], [Violation(whole, "", "must be one object with functionDeclarations")]
        tools = tools[0]["functionDeclarations"]
    judge, inner = RULES[form]
    definitions, violations, seen = [], [], set()
    for index, tool in enumerate(tools):
        try:
            body, schema = inner(tool)
            name = body["name"]
        except (AttributeError, KeyError, TypeError) as error:
            violations.append(Violation(f"(number {index})", "", f"has not the form of {form}: {error!r}"))
            continue
        definitions.append(Definition(name, body, schema))
        violations.extend(Violation(name, pointer, rule) for pointer, rule in judge(tool))
        if name in seen:
            violations.append(Violation(name, "/name", "is there twice"))
        seen.add(name)
    return definitions, violations

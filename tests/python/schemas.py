"""JSON that keeps what it was given, and JSON Schema 2020-12 as far as a provider's judge needs it."""

import json
import re
from decimal import Decimal

# --- JSON -----------------------------------------------------------------------------------------------------------------


def parse(text):
    """JSON as it stands: numbers keep their digits, a key that is there twice is an error."""

    def no_twins(pairs):
        keys = [key for key, _ in pairs]
        if len(set(keys)) < len(keys):
            raise ValueError(f"an object has a key twice: {keys}")
        return dict(pairs)

    def no_constant(name):
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, object_pairs_hook=no_twins, parse_float=Decimal, parse_constant=no_constant)


def same(a, b, ordered=True):
    """Equal in structure: 1 is not True and not 1.0, and members have one order."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        keys = list(a) == list(b) if ordered else a.keys() == b.keys()
        return keys and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    # A decimal's own equality forgets zeros at the end.
    return str(a) == str(b)


def is_int(value):
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value):
    return is_int(value) or isinstance(value, Decimal)


def join(pointer, *steps):
    return pointer + "".join("/" + str(s).replace("~", "~0").replace("/", "~1") for s in steps)


def resolve(document, pointer):
    """What a pointer points to; KeyError if nothing. References on the way are followed, as are those at the end."""
    here = deref(document, document)
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(here, list) and step.isdecimal() and int(step) < len(here):
            here = here[int(step)]
        elif isinstance(here, dict) and step in here:
            here = here[step]
        else:
            raise KeyError(pointer)
        here = deref(document, here)
    return here


def deref(document, schema):
    for _ in range(64):
        if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
            return schema
        target = local_target(document, schema["$ref"])
        if target is None:
            return schema
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**target, **rest} if isinstance(target, dict) else target
    return schema


def local_target(document, reference):
    """What a reference inside one document points to, or None."""
    if reference in ("#", ""):
        return document
    if not reference.startswith("#"):
        return next((s for s in every_object(document) if reference in (s.get("$id"), s.get("id"))), None)
    if not reference.startswith("#/"):
        names = (reference[1:], reference)
        return next(
            (s for s in every_object(document) if {s.get("$anchor"), s.get("$dynamicAnchor"), s.get("$id")} & set(names)),
            None,
        )
    here = document
    for step in reference[2:].split("/"):
        step = re.sub("%([0-9A-Fa-f]{2})", lambda m: chr(int(m[1], 16)), step).replace("~1", "/").replace("~0", "~")
        if isinstance(here, list) and step.isdecimal() and int(step) < len(here):
            here = here[int(step)]
        elif isinstance(here, dict) and step in here:
            here = here[step]
        else:
            return None
    return here


def every_object(value):
    if isinstance(value, dict):
        if all(not isinstance(value.get(key), (dict, list)) for key in ("$id", "id", "$anchor", "$dynamicAnchor")):
            yield value
        for member in value.values():
            yield from every_object(member)
    elif isinstance(value, list):
        for member in value:
            yield from every_object(member)


# --- JSON Schema ------------------------------------------------------------------------------------------------------------

SCHEMA, SCHEMAS, SCHEMA_MAP = "a schema", "a non-empty array of schemas", "an object of schemas"
COUNT, NUMBER, TEXT, FLAG, NAMES = "a number of things", "a number", "a string", "true or false", "an array of unique strings"
# From the meta-schema of 2020-12 (json-schema.org/draft/2020-12): what each keyword may hold.
KEYWORDS = {
    **dict.fromkeys(
        "not if then else contains additionalProperties propertyNames items unevaluatedItems unevaluatedProperties "
        "contentSchema".split(),
        SCHEMA,
    ),
    **dict.fromkeys("allOf anyOf oneOf prefixItems".split(), SCHEMAS),
    **dict.fromkeys("properties patternProperties dependentSchemas $defs definitions".split(), SCHEMA_MAP),
    **dict.fromkeys(
        "minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains".split(), COUNT
    ),
    **dict.fromkeys("minimum maximum exclusiveMinimum exclusiveMaximum multipleOf".split(), NUMBER),
    **dict.fromkeys(
        "title description $comment format pattern $ref $dynamicRef $anchor $dynamicAnchor $recursiveAnchor $recursiveRef "
        "$id $schema contentEncoding contentMediaType".split(),
        TEXT,
    ),
    **dict.fromkeys("uniqueItems readOnly writeOnly deprecated".split(), FLAG),
    "required": NAMES,
    "examples": "an array",
    "enum": "an array",
    "type": "a type",
}
ANCHOR = re.compile("[A-Za-z_][-A-Za-z0-9._]*")
IDENTIFIERS = {
    "$id": re.compile("[^#]*#?"),
    **dict.fromkeys(["$anchor", "$dynamicAnchor", "$recursiveAnchor"], ANCHOR),
}
TYPES = {"string", "number", "integer", "boolean", "array", "object", "null"}


def fits(value, wanted):
    if wanted == SCHEMA:
        return isinstance(value, (dict, bool))
    if wanted == SCHEMAS:
        return isinstance(value, list) and value != [] and all(fits(v, SCHEMA) for v in value)
    if wanted == SCHEMA_MAP:
        return isinstance(value, dict) and all(fits(v, SCHEMA) for v in value.values())
    if wanted == COUNT:
        return is_number(value) and value >= 0 and value == int(value)
    if wanted == NUMBER:
        return is_number(value)
    if wanted == TEXT:
        return isinstance(value, str)
    if wanted == FLAG:
        return isinstance(value, bool)
    if wanted == NAMES:
        return isinstance(value, list) and all(isinstance(v, str) for v in value) and len(set(value)) == len(value)
    if wanted == "a type":
        names = value if isinstance(value, list) else [value]
        return names != [] and fits(names, NAMES) and set(names) <= TYPES
    return isinstance(value, list)


def subschemas(schema, pointer=""):
    """The schema and all below it, each with its pointer; data (enum, default, ...) is not walked."""
    if not isinstance(schema, dict):
        return
    yield pointer, schema
    for key, value in schema.items():
        kind = KEYWORDS.get(key)
        if kind == SCHEMA and isinstance(value, list):
            kind = SCHEMAS
        if kind == SCHEMA:
            yield from subschemas(value, join(pointer, key))
        elif kind == SCHEMAS and isinstance(value, list):
            for index, member in enumerate(value):
                yield from subschemas(member, join(pointer, key, index))
        elif (kind == SCHEMA_MAP or key == "dependencies") and isinstance(value, dict):
            for name, member in value.items():
                yield from subschemas(member, join(pointer, key, name))


def types_of(schema):
    kinds = schema.get("type", [])
    return kinds if isinstance(kinds, list) else [kinds]


def type_of(value):
    if isinstance(value, bool):
        return {"boolean"}
    if is_int(value) or isinstance(value, Decimal) and value == int(value):
        return {"integer", "number"}
    names = {Decimal: "number", str: "string", list: "array", dict: "object", type(None): "null"}
    return {names[type(value)]}


def json_schema(schema):
    """Faults against the meta-schema of 2020-12, and references that lead nowhere."""
    for pointer, part in subschemas(schema):
        for key, value in part.items():
            wanted = KEYWORDS.get(key)
            if wanted and not fits(value, wanted):
                yield join(pointer, key), f"JSON Schema 2020-12: {key} must be {wanted}"
        for key in ("$ref", "$dynamicRef"):
            if isinstance(part.get(key), str) and local_target(schema, part[key]) is None:
                yield join(pointer, key), f"{part[key]} points to nothing in the schema"
        for key, pattern in IDENTIFIERS.items():
            if isinstance(part.get(key), str) and not pattern.fullmatch(part[key]):
                yield join(pointer, key), f"JSON Schema 2020-12: {key} must match {pattern.pattern}"
        if part.get("multipleOf") is not None and is_number(part["multipleOf"]) and part["multipleOf"] <= 0:
            yield join(pointer, "multipleOf"), "JSON Schema 2020-12: multipleOf must be over 0"

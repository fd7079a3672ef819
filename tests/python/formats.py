"""Registers real definitions, lists them in every format, and has each list judged by `providers.py` and, where they are
installed, by the providers' own SDKs.

usage: formats.py HOST:PORT [FOLDER ...]   (PYTHONPATH has the stubs of gen.sh)

The definitions are those of tests/data and of each FOLDER: files of `{"tools": [...]}` as an MCP server lists them, and of
`[{"id", "tool", "expect"}, ...]`, which are judged one by one.
"""

import json
import pathlib
import re
import sys
from collections import Counter
from decimal import Decimal
from typing import NamedTuple

import grpc

import bad_tools
import providers
import schemas
import sdks
from toolpulse.v1 import tool_pb2 as tool
from toolpulse.v1 import tool_registry_pb2 as api
from toolpulse.v1 import tool_registry_pb2_grpc as api_rpc

DEADLINE = 60
# Well under the 4 MiB that a request may have.
BATCH = 10
OWN = pathlib.Path(__file__).parent.parent / "data"
FIELDS = {"inputSchema": "input_schema_json", "outputSchema": "output_schema_json", "annotations": "annotations_json"}
TEXTS = ["name", "title", "description"]
# Names that a format admits are kept; others become this.
MAPPED_NAME = re.compile(r"[A-Za-z0-9_-]{1,55}_[0-9a-f]{8}")
NAMES = {
    "MCP": providers.MCP_NAME,
    "OPENAI_CHAT": providers.OPENAI_NAME,
    "OPENAI_RESPONSES": providers.OPENAI_NAME,
    "ANTHROPIC": providers.ANTHROPIC_NAME,
    "GEMINI": providers.GEMINI_NAME,
    "GEMINI_OPENAPI": providers.GEMINI_NAME,
    "BEDROCK": providers.BEDROCK_NAME,
}


class Source(NamedTuple):
    namespace: str
    tools: list[dict]
    # Whether the registry is to refuse it.
    refused: bool = False


# --- what goes in -----------------------------------------------------------------------------------------------------------


def read(folder):
    for path in sorted(folder.glob("*.json")):
        content = schemas.parse(path.read_text(encoding="utf-8"))
        stem = re.sub("[^a-z0-9]", "-", path.stem.lower())
        if isinstance(content, dict) and isinstance(content.get("tools"), list):
            yield Source(stem[:63].strip("-"), content["tools"])
        elif isinstance(content, list):
            for vector in content:
                tools = vector.get("tool") if isinstance(vector, dict) else None
                if tools:
                    tools = tools if isinstance(tools, list) else [tools]
                    refused = "reject" in str(vector.get("expect", {}).get("register", ""))
                    yield Source(f"{stem}-{vector['id']}"[:63].strip("-").lower(), tools, refused)


def dump(value):
    """JSON text in which every number keeps its digits."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{dump(member)}" for key, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dump, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value)


def spec(definition):
    made = {key: definition[key] for key in TEXTS if key in definition}
    made.update((FIELDS[key], dump(definition[key])) for key in FIELDS if key in definition)
    extra = {key: value for key, value in definition.items() if key not in FIELDS and key not in TEXTS}
    return tool.ToolSpec(**made, extra_json=dump(extra) if extra else "")


# --- what comes out ---------------------------------------------------------------------------------------------------------


class Run:
    def __init__(self, address):
        options = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", 64 << 20)]
        self.tools = api_rpc.ToolRegistryServiceStub(grpc.insecure_channel(address, options=options))
        self.judges, self.with_ = sdks.found()
        self.faults = []
        self.seen = Counter()

    def fault(self, place, text):
        self.faults.append(f"{place}: {text}")

    def of(self, source):
        sent = self.register(source)
        if source.refused or not sent:
            return
        for form in providers.FORMATS:
            request = api.ListAvailableToolsRequest(
                namespace=source.namespace,
                format=f"SCHEMA_FORMAT_{form}",
                include_hidden=True,
                max_reply_bytes=64 << 20,
            )
            reply = self.tools.ListAvailableTools(request, timeout=DEADLINE)
            self.judge(form, source.namespace, sent, reply)

    def register(self, source):
        """The definitions that were taken, by name."""
        taken = {}
        for start in range(0, len(source.tools), BATCH):
            batch = source.tools[start : start + BATCH]
            request = api.RegisterToolsRequest(namespace=source.namespace, tools=map(spec, batch), owner="formats")
            reply = self.tools.RegisterTools(request, timeout=DEADLINE)
            for definition, result in zip(batch, reply.results, strict=True):
                place = f"{source.namespace}/{definition['name']}"
                if result.result == api.REGISTER_RESULT_CREATED:
                    taken[definition["name"]] = definition
                    if source.refused:
                        self.fault(place, "was registered, and must be refused")
                elif not source.refused:
                    self.fault(place, f"was refused: {result.error.message}")
        self.seen["registered"] += len(taken)
        return taken

    def judge(self, form, namespace, sent, reply):
        place = f"{form} {namespace}"
        if re.search(r"\s", re.sub(r'"(?:[^"\\]|\\.)*"', "", reply.tools_json)):
            self.fault(place, "tools_json has white space that means nothing")
        definitions, violations = providers.check(form, reply.tools_json)
        for violation in violations:
            self.fault(place, violation)
        for name, judge in self.judges.get(form, []):
            self.by_sdk(place, name, judge, json.loads(reply.tools_json))
        exposed = [entry.exposed_name for entry in reply.tools]
        if [d.name for d in definitions] != exposed:
            self.fault(place, "tools_json and tools differ in names or order")
        if exposed != sorted(exposed, key=str.encode):
            self.fault(place, "not sorted by exposed name")
        self.all_are_there(place, sent, reply)
        lossy = {loss.name for loss in reply.losses}
        self.seen[f"{form} listed"] += len(reply.tools)
        self.seen[f"{form} hidden"] += len(reply.hidden)
        self.seen[f"{form} lossy"] += len(lossy)
        for definition, entry in zip(definitions, reply.tools):
            self.is_the_owners(form, f"{place}/{entry.name}", definition, entry, sent[entry.name], entry.name in lossy)

    def by_sdk(self, place, name, judge, tools):
        """All at once, and one by one only to say which of them it is."""
        try:
            judge(tools)
        except Exception:
            key = "functionDeclarations"
            grouped = bool(tools) and key in tools[0]
            for one in tools[0][key] if grouped else tools:
                try:
                    judge([{key: [one]}] if grouped else [one])
                except Exception as error:
                    text = " ".join(str(error).split())[:400]
                    self.fault(place, f"{name} refuses {json.dumps(one)[:80]}...: {text}")

    def all_are_there(self, place, sent, reply):
        """Each registered tool is listed or named as hidden, with all that an operator needs to know of it."""
        names = Counter(entry.name for entry in reply.tools) + Counter(entry.name for entry in reply.hidden)
        if names != Counter(sent.keys()):
            self.fault(place, f"neither listed nor hidden, or twice: {sorted((names - Counter(sent)) + (Counter(sent) - names))}")
        for hidden in reply.hidden:
            where = f"{place}/{hidden.name}"
            if hidden.stage != "format" or not re.fullmatch("[A-Z][A-Z0-9_]+", hidden.reason) or not hidden.message:
                self.fault(where, f"hidden at {hidden.stage!r} for {hidden.reason!r}: {hidden.message!r}")
            self.points(f"{where} hidden", sent[hidden.name], hidden.pointer)
        for loss in reply.losses:
            if loss.name not in {entry.name for entry in reply.tools} or not loss.message:
                self.fault(place, f"a loss of {loss.name!r}: {loss.message!r}")
            self.points(f"{place}/{loss.name} loss", sent[loss.name], loss.pointer)

    def points(self, place, definition, pointer):
        """A pointer leads into the schema that was sent; what it points to may be what is missing there."""
        try:
            if pointer:
                schemas.resolve(definition["inputSchema"], pointer.rpartition("/")[0])
        except KeyError:
            self.fault(place, f"points to {pointer!r}, which is not there")
        if pointer and not pointer.startswith("/"):
            self.fault(place, f"{pointer!r} is no JSON pointer")

    def is_the_owners(self, form, place, definition, entry, sent, lossy):
        kept = NAMES[form].fullmatch(entry.name)
        if entry.exposed_name != entry.name if kept else not MAPPED_NAME.fullmatch(entry.exposed_name):
            self.fault(place, f"is exposed as {entry.exposed_name}")
        if form == "MCP":
            # Empty texts are as good as none.
            wanted = {key: value for key, value in sent.items() if key not in TEXTS or value}
            if not schemas.same(definition.body, wanted, ordered=False):
                changed = [k for k in {**wanted, **definition.body} if not same_member(wanted, definition.body, k)]
                self.fault(place, f"came out of MCP as something else: {changed}")
            return
        description = sent.get("description") or (sent["name"] if form == "BEDROCK" else "")
        if definition.body.get("description", "") != description and not lossy:
            self.fault(place, "has another description")
        schema = schemas.deref(sent["inputSchema"], sent["inputSchema"])
        if not lossy and not {"allOf", "anyOf", "oneOf"} & schema.keys():
            listed = schemas.deref(definition.schema, definition.schema) if definition.schema else {}
            if list(listed.get("properties", {})) != list(schema.get("properties", {})):
                self.fault(place, "has other arguments, or in another order")


def same_member(a, b, key):
    return key in a and key in b and schemas.same(a[key], b[key])


def main(address, *folders):
    run = Run(address)
    for case in bad_tools.unseen():
        run.fault("providers.py does not see", case)
    sources = [source for folder in (OWN, *map(pathlib.Path, folders)) for source in read(folder)]
    for source in sources:
        run.of(source)
    print(f"* judged by providers.py{''.join(f', {name}' for name in run.with_)}")
    print(f"* {len(sources)} lists: " + ", ".join(f"{what} {count}" for what, count in run.seen.items() if count))
    if run.seen["registered"] < 8:
        run.fault("all", "hardly anything was registered")
    for text in run.faults:
        print(f"! {text}")
    if run.faults:
        sys.exit(f"{len(run.faults)} faults")
    print("* done")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])

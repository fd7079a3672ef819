"""The whole of Toolpulse as a Python client sees it: register, list, watch, report, and what errors look like.

usage: tour.py HOST:PORT   (PYTHONPATH has the stubs of gen.sh; the server's TOOLPULSE_PROBE_ALLOW has 127.0.0.0/8)
"""

import contextlib
import http.server
import json
import sys
import threading
import time
from concurrent import futures

import grpc
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_status import rpc_status

from toolpulse.v1 import gateway_status_pb2 as gw
from toolpulse.v1 import gateway_status_pb2_grpc as gw_rpc
from toolpulse.v1 import tool_pb2 as tool
from toolpulse.v1 import tool_registry_pb2 as api
from toolpulse.v1 import tool_registry_pb2_grpc as api_rpc

SPACE = "tour"
DEADLINE = 10
SCHEMA = '{"type":"object","properties":{"zebra":{"type":"number","default":1.0},"apple":{"type":"string"}},"required":["apple"]}'


def say(text):
    print(f"* {text}", flush=True)


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: got {got!r}, wanted {wanted!r}")


def eventually(what, check, within=20):
    """Polls until `check` returns something true."""
    deadline = time.monotonic() + within
    while True:
        last = check()
        if last:
            return last
        if time.monotonic() > deadline:
            sys.exit(f"not within {within} s: {what}")
        time.sleep(0.05)


def seconds(n):
    return duration_pb2.Duration(seconds=int(n), nanos=int(n % 1 * 1e9))


class HttpTarget(http.server.BaseHTTPRequestHandler):
    """Python's own HTTP server, whose status the tour switches."""

    status = 200

    def do_GET(self):
        self.send_response(HttpTarget.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def http_target():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), HttpTarget)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/health"
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def grpc_target():
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    servicer.set("maps", health_pb2.HealthCheckResponse.SERVING)
    server.start()
    try:
        yield f"127.0.0.1:{port}", servicer
    finally:
        server.stop(None)


class Tour:
    def __init__(self, address):
        self.channel = grpc.insecure_channel(address)
        grpc.channel_ready_future(self.channel).result(timeout=DEADLINE)
        self.tools = api_rpc.ToolRegistryServiceStub(self.channel)
        self.gateways = gw_rpc.GatewayStatusServiceStub(self.channel)

    def listed(self, **selection):
        reply = self.tools.ListAvailableTools(
            api.ListAvailableToolsRequest(namespace=SPACE, **selection), timeout=DEADLINE
        )
        return reply, json.loads(reply.tools_json)

    def names(self):
        return [t.name for t in self.listed()[0].tools]

    def run(self):
        self.health_and_reflection()
        with http_target() as url, grpc_target() as (target, servicer):
            self.register(url, target)
            self.list_forms()
            self.fail_and_recover(servicer)
        self.reports()
        self.gateway()
        self.errors()
        self.clean_up()

    def health_and_reflection(self):
        stub = health_pb2_grpc.HealthStub(self.channel)
        reply = stub.Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE)
        expect("health of the server", reply.status, health_pb2.HealthCheckResponse.SERVING)
        first = next(iter(stub.Watch(health_pb2.HealthCheckRequest(), timeout=DEADLINE)))
        expect("health as watched", first.status, health_pb2.HealthCheckResponse.SERVING)
        services = set(ProtoReflectionDescriptorDatabase(self.channel).get_services())
        wanted = {
            "toolpulse.v1.ToolRegistryService",
            "toolpulse.v1.GatewayStatusService",
            "grpc.health.v1.Health",
        }
        expect("services that reflection lacks", wanted - services, set())
        say("the server is healthy, and reflection names its services")

    def register(self, url, target):
        specs = [
            tool.ToolSpec(
                name="weather",
                description="The weather at a place.",
                input_schema_json=SCHEMA,
                probes=[{"http": {"url": url}}],
                interval=seconds(1),
            ),
            tool.ToolSpec(
                name="maps.route",
                description="A way from here to there.",
                input_schema_json=SCHEMA,
                probes=[{"grpc": {"target": target, "service": "maps"}}],
                interval=seconds(1),
            ),
            tool.ToolSpec(name="clock", description="The time."),
        ]
        for spec in specs:
            reply = self.tools.RegisterTool(
                api.RegisterToolRequest(namespace=SPACE, tool=spec, owner="tour", wait_for_probe=seconds(5)),
                timeout=DEADLINE,
            )
            expect(f"result of {spec.name}", reply.result, api.REGISTER_RESULT_CREATED)
            expect(f"verdict of {spec.name}", reply.tool.status.verdict, tool.VERDICT_AVAILABLE)
            registered = reply.tool.spec
            for probe in registered.probes:
                expect("the name in force", probe.name, probe.WhichOneof("kind"))
                probe.ClearField("name")
                if probe.HasField("http"):
                    expect("the method in force", probe.http.method, tool.HTTP_METHOD_GET)
                    probe.http.method = tool.HTTP_METHOD_UNSPECIFIED
            expect(f"spec of {spec.name}", registered, spec)
        again = self.tools.RegisterTool(
            api.RegisterToolRequest(namespace=SPACE, tool=specs[0], owner="tour"), timeout=DEADLINE
        )
        expect("registered again", again.result, api.REGISTER_RESULT_UNCHANGED)
        say("three tools are registered, and their targets were asked: an HTTP server, a gRPC health server, none")

    def list_forms(self):
        reply, tools = self.listed()
        expect("tools in MCP form", [t["name"] for t in tools], ["clock", "maps.route", "weather"])
        expect("schema in MCP form", json.dumps(tools[2]["inputSchema"], separators=(",", ":")), SCHEMA)
        same, _ = self.listed()
        expect("tools_json, asked again", same.tools_json, reply.tools_json)
        unchanged = self.tools.ListAvailableTools(
            api.ListAvailableToolsRequest(namespace=SPACE, if_etag=reply.etag), timeout=DEADLINE
        )
        expect("not_modified", unchanged.not_modified, True)
        reply, tools = self.listed(format=api.SCHEMA_FORMAT_OPENAI_CHAT)
        functions = {t["function"]["name"]: t["function"] for t in tools if t["type"] == "function"}
        expect("names in OpenAI form", list(functions), [t.exposed_name for t in reply.tools])
        mapped = {t.name: t.exposed_name for t in reply.tools}
        expect("a name that OpenAI admits", mapped["weather"], "weather")
        expect("a name that OpenAI refuses", mapped["maps.route"].startswith("maps_route_"), True)
        expect("parameters", json.dumps(functions["weather"]["parameters"], separators=(",", ":")), SCHEMA)
        reply, tools = self.listed(allowed_tools=api.AllowedTools(names=["clock", "nope"]))
        expect("an allowlisted agent's tools", [t["name"] for t in tools], ["clock"])
        expect("unknown names", list(reply.unknown_tools), ["nope"])
        say(f"an agent gets them as its provider's SDK takes them: {', '.join(functions)}")

    def fail_and_recover(self, servicer):
        HttpTarget.status = 403
        eventually("weather is hidden after a NO", lambda: self.names() == ["clock", "maps.route"])
        reply, _ = self.listed(include_hidden=True)
        hidden = {h.name: h for h in reply.hidden}
        expect("hidden tools", list(hidden), ["weather"])
        expect("stage", hidden["weather"].stage, "availability")
        say(f"the HTTP target answers 403: weather is gone ({hidden['weather'].reason}: {hidden['weather'].message})")
        servicer.set("maps", health_pb2.HealthCheckResponse.NOT_SERVING)
        eventually("maps.route is hidden", lambda: self.names() == ["clock"])
        say("the gRPC target says NOT_SERVING: maps.route is gone")
        HttpTarget.status = 200
        servicer.set("maps", health_pb2.HealthCheckResponse.SERVING)
        run = self.tools.ProbeTool(api.ProbeToolRequest(namespace=SPACE, name="weather"), timeout=DEADLINE)
        expect("outcome of a run on demand", [r.outcome for r in run.results], [tool.PROBE_OUTCOME_PASS])
        eventually("both are back", lambda: self.names() == ["clock", "maps.route", "weather"])
        say("both recover and are listed again")

    def reports(self):
        spec = tool.ToolSpec(name="database", description="Asks the database.", probes=[{"report": {}}])
        reply = self.tools.RegisterTool(
            api.RegisterToolRequest(namespace=SPACE, tool=spec, owner="tour"), timeout=DEADLINE
        )
        expect("verdict before a report", reply.tool.status.verdict, tool.VERDICT_PENDING)
        for outcome, verdict in [
            ("PROBE_OUTCOME_PASS", tool.VERDICT_AVAILABLE),
            ("PROBE_OUTCOME_NO", tool.VERDICT_UNAVAILABLE),
            ("PROBE_OUTCOME_PASS", tool.VERDICT_AVAILABLE),
        ]:
            status = self.report(outcome, reply.tool.generation).status
            expect(f"verdict after {outcome}", status.verdict, verdict)
            expect("listed", "database" in self.names(), verdict == tool.VERDICT_AVAILABLE)
        error = self.failure(lambda: self.report("PROBE_OUTCOME_PASS", reply.tool.generation + 1000))
        expect("a report of another generation", self.reason(error), "STALE_GENERATION")
        say("an owner pushes results of its own check: PASS shows the tool, NO hides it")

    def report(self, outcome, generation):
        request = api.ReportProbeResultRequest(
            namespace=SPACE, name="database", outcome=outcome, message="by the tour", generation=generation
        )
        return self.tools.ReportProbeResult(request, timeout=DEADLINE)

    def gateway(self):
        def get():
            return self.gateways.GetGatewayStatus(
                gw.GetGatewayStatusRequest(namespace=SPACE, gateway_id="bot-1"), timeout=DEADLINE
            ).snapshot

        expect("text without a gateway", get().text.startswith("No active gateway: "), True)
        self.push(run="idle", sequence=1)
        stream = self.gateways.WatchGatewayStatus(gw.WatchGatewayStatusRequest(namespace=SPACE), timeout=30)
        state, revision = self.until_synced(stream)
        expect("first state", {k: s.status.run for k, s in state.items()}, {"bot-1": "idle"})
        degraded = [{"owner": "channel:telegram", "reason": "credential_unavailable"}]
        self.push(
            run="busy", queued=2, sessions_by_channel={"slack": 3}, degraded=degraded,
            delivery_json='{"dlq": 1}', sequence=2,
        )
        state, newer = self.until_synced(stream)
        expect("changed state", state["bot-1"].status.run, "busy")
        expect("revision grows", newer > revision, True)
        text = json.loads(state["bot-1"].text)
        expect("order of the seven fields", list(text), [
            "run", "queued", "active_sessions", "sessions_by_channel", "delivery", "degraded", "detail",
        ])
        expect("degraded", text["degraded"], degraded)
        expect("delivery", text["delivery"], {"dlq": 1})
        expect("text by Get", get().text, state["bot-1"].text)
        stream.cancel()
        reply = self.push(run="late", sequence=1)
        expect("an old sequence is accepted", reply.accepted, False)
        say(f"a gateway's status is watched live: {state['bot-1'].text}")

    def push(self, sequence, **status):
        return self.gateways.ReportGatewayStatus(
            gw.ReportGatewayStatusRequest(
                namespace=SPACE, gateway_id="bot-1", instance="tour", sequence=sequence, status=gw.GatewayStatus(**status)
            ),
            timeout=DEADLINE,
        )

    def until_synced(self, stream):
        """Reads one batch of a watch: the snapshots by id, and the revision."""
        state = {}
        for message in stream:
            state.update((s.gateway_id, s) for s in message.snapshots)
            if message.synced and state:
                return state, message.revision
            if not message.synced:
                expect("revision before synced", message.revision, 0)
        sys.exit("the watch ended")

    def errors(self):
        def get(name):
            return self.tools.GetTool(api.GetToolRequest(namespace=SPACE, name=name), timeout=DEADLINE)

        def register(spec, **more):
            request = api.RegisterToolRequest(namespace=SPACE, tool=spec, **more)
            return self.tools.RegisterTool(request, timeout=DEADLINE)

        error = self.failure(lambda: get("nope"))
        expect("code of an unknown tool", error.code(), grpc.StatusCode.NOT_FOUND)
        expect("details of an unknown tool", bool(self.reason(error)), True)

        bad = tool.ToolSpec(name="two words", input_schema_json="[1]", probes=[{"http": {"url": "localhost/health"}}])
        error = self.failure(lambda: register(bad))
        expect("code of a bad tool", error.code(), grpc.StatusCode.INVALID_ARGUMENT)
        fields = [v.field for v in self.detail(error, error_details_pb2.BadRequest).field_violations]
        for field in ["tool.name", "tool.input_schema_json", "tool.probes[0].http.url"]:
            expect(f"{field} among {fields}", any(f.split("#")[0] == field for f in fields), True)

        other = tool.ToolSpec(name="clock", description="Another time.")
        error = self.failure(lambda: register(other, owner="tour"))
        expect("code of a taken name", error.code(), grpc.StatusCode.ALREADY_EXISTS)
        error = self.failure(lambda: register(other, owner="somebody-else", overwrite=True))
        expect("code for another owner", error.code(), grpc.StatusCode.PERMISSION_DENIED)
        expect("reason for another owner", self.reason(error), "OWNER_MISMATCH")

        missing = self.channel.unary_unary("/toolpulse.v1.ToolRegistryService/Nope")
        error = self.failure(lambda: missing(b"", timeout=DEADLINE))
        expect("code of a missing method", error.code(), grpc.StatusCode.UNIMPLEMENTED)
        expect("details of a missing method", bool(self.reason(error)), True)
        get_bytes = self.channel.unary_unary("/toolpulse.v1.ToolRegistryService/GetTool")
        error = self.failure(lambda: get_bytes(b"\xff\xff\xff", timeout=DEADLINE))
        expect("details of bytes that are no message", bool(self.reason(error)), True)
        say("errors carry a reason, and name the fields that are wrong")

    def failure(self, call):
        try:
            call()
        except grpc.RpcError as error:
            return error
        return sys.exit("a call succeeded that should have failed")

    def detail(self, error, kind):
        status = rpc_status.from_call(error)
        for packed in status.details if status else []:
            found = kind()
            if packed.Unpack(found):
                return found
        return sys.exit(f"{error.code()} {error.details()!r} carries no {kind.DESCRIPTOR.full_name}")

    def reason(self, error):
        info = self.detail(error, error_details_pb2.ErrorInfo)
        expect("domain of an error", info.domain, "toolpulse.dev")
        return info.reason

    def clean_up(self):
        reply = self.tools.UnregisterTools(
            api.UnregisterToolsRequest(namespace=SPACE, names=["clock", "nope"], owner="tour"), timeout=DEADLINE
        )
        expect("unregistered", list(reply.unregistered), ["clock"])
        expect("not found", list(reply.not_found), ["nope"])
        cleared = self.tools.ClearTools(api.ClearToolsRequest(namespace=SPACE, owner="tour"), timeout=DEADLINE)
        expect("cleared", cleared.unregistered, 3)
        expect("tools left", self.listed()[1], [])
        say("everything is unregistered again")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    Tour(sys.argv[1]).run()
    say("done")

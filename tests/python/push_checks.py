import importlib.util, os, sys, time, grpc
from toolpulse.v1 import tool_registry_pb2 as api, tool_registry_pb2_grpc as rpc
registry = rpc.ToolRegistryServiceStub(grpc.insecure_channel(sys.argv[1]))
checks = {  # the name of a probe: what is wrong, or None
    "api-key": lambda: None if os.environ.get("SEARCH_API_KEY") else "SEARCH_API_KEY is not set",
    "driver": lambda: None if importlib.util.find_spec("sqlite3") else "module sqlite3 is missing"}
tool = {"name": "web_search", "probes": [{"name": name, "report": {}} for name in checks]}
while True:
    try:  # Registering the same spec again changes nothing.
        now = registry.RegisterTool(api.RegisterToolRequest(tool=tool, overwrite=True, owner="search"), timeout=5)
        for name, check in checks.items():
            report = {"outcome": "PROBE_OUTCOME_NO" if (wrong := check()) else "PROBE_OUTCOME_PASS", "message": wrong}
            registry.ReportProbeResult(api.ReportProbeResultRequest(name="web_search", probe=name, generation=now.tool.generation, **report), timeout=5)
    except grpc.RpcError as error: print(error.details(), file=sys.stderr)
    time.sleep(5)

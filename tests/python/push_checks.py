import importlib.util, os, sys, time, grpc
from toolpulse.v1 import tool_registry_pb2 as api, tool_registry_pb2_grpc as rpc

server = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"
registry = rpc.ToolRegistryServiceStub(grpc.insecure_channel(server))
checks = {  # name of a probe: says what is wrong, or None
    "api-key": lambda: None if os.environ.get("SEARCH_API_KEY") else "SEARCH_API_KEY is not set",
    "driver": lambda: None if importlib.util.find_spec("sqlite3") else "module sqlite3 is not installed",
}
tool = {"name": "web_search", "probes": [{"name": name, "report": {}} for name in checks]}
while True:
    try:  # Registering the same again changes nothing.
        request = api.RegisterToolRequest(tool=tool, overwrite=True, owner="search")
        generation = registry.RegisterTool(request, timeout=5).tool.generation
        for name, check in checks.items():
            problem = check()
            outcome = "PROBE_OUTCOME_NO" if problem else "PROBE_OUTCOME_PASS"
            report = {"name": "web_search", "probe": name, "outcome": outcome, "message": problem, "generation": generation}
            registry.ReportProbeResult(api.ReportProbeResultRequest(**report), timeout=5)
    except grpc.RpcError as error:
        print(error.details(), file=sys.stderr)
    time.sleep(5)

"""Follows the tools that an agent may use: applies what changes, and goes on where a stream ended.

usage: watch_tools.py HOST:PORT [AGENT]   (PYTHONPATH has the stubs of gen.sh)
"""

import json
import random
import sys
import time

import grpc

from toolpulse.v1 import tool_registry_pb2 as api
from toolpulse.v1 import tool_registry_pb2_grpc as rpc


def follow(registry, agent):
    """Yields the definitions by name, each time that they changed and are complete."""
    tools, etag, position, wait = {}, "", None, 0.1
    while True:
        # Changes count once they are complete: what a cut stream left half told is told again.
        draft, end = dict(tools), "the stream was cut"
        try:
            request = api.WatchAvailableToolsRequest(agent_id=agent, resume=position)
            for message in registry.WatchAvailableTools(request):
                if message.HasField("goodbye"):
                    end, wait = "goodbye", message.goodbye.retry_after.ToMilliseconds() / 1000
                    continue
                if message.reset:
                    draft.clear()
                for name in message.removed:
                    draft.pop(name, None)
                for tool in message.upserts:
                    draft[tool.exposed_name] = json.loads(tool.definition_json)
                if message.synced:
                    tools, wait = dict(draft), 0.1
                    position = {"epoch": message.epoch, "revision": message.revision}
                    if message.etag not in ("", etag):  # Heartbeats have none: they only move the position.
                        etag = message.etag
                        yield tools
        except grpc.RpcError as error:
            if end != "goodbye":
                end = error.details()
        print(f"{end}; again in {wait:.1f} s", file=sys.stderr, flush=True)
        time.sleep(wait)
        wait = min(wait * 2, 30) * random.uniform(0.8, 1.2)


for now in follow(rpc.ToolRegistryServiceStub(grpc.insecure_channel(sys.argv[1])), "".join(sys.argv[2:3])):
    print(json.dumps(sorted(now)), flush=True)

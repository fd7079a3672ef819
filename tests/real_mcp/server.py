"""An MCP server on a Python SDK: server.py SDK PORT [json] [stateless]. /sessions says how many it has opened, and how many are open."""

import gc
import sys

import uvicorn

sdk, port, options = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
how = {"json_response": "json" in options, "stateless_http": "stateless" in options}
if sdk == "fastmcp":
    from fastmcp import FastMCP

    app = FastMCP("test").http_app(**how)
elif sdk == "mcp1":
    from mcp.server.fastmcp import FastMCP

    app = FastMCP("test", **how).streamable_http_app()
else:
    from mcp.server import MCPServer

    app = MCPServer("test").streamable_http_app(**how)

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

opened = 0


async def counting(scope, receive, send):
    global opened
    if scope["type"] == "http" and scope["path"] == "/sessions":
        managers = [m for m in gc.get_objects() if isinstance(m, StreamableHTTPSessionManager)]
        # Older SDKs keep what is ended.
        left = sum(not getattr(s, "_terminated", False) for m in managers for s in m._server_instances.values())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        return await send({"type": "http.response.body", "body": f"{opened} {left}".encode()})
    known = dict(scope.get("headers", [])).get(b"mcp-session-id")

    async def noting(message):
        global opened
        if message["type"] == "http.response.start" and not known:
            opened += any(name.lower() == b"mcp-session-id" for name, _ in message["headers"])
        await send(message)

    await app(scope, receive, noting)


uvicorn.run(counting, host="127.0.0.1", port=port, log_level="warning")

// An MCP server that speaks 2025-03-26 at most, with sessions: sessions.mjs PORT.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { McpServer } from 'sdk-1.11/server/mcp.js';
import { StreamableHTTPServerTransport } from 'sdk-1.11/server/streamableHttp.js';

const transports = new Map();

createServer(async (request, response) => {
  let transport = transports.get(request.headers['mcp-session-id']);
  if (!transport) {
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => {
        console.log(`Session initialized with ID: ${id}`);
        transports.set(id, transport);
      },
    });
    const mcp = new McpServer({ name: 'test', version: '1' });
    const opened = transport;
    mcp.server.onclose = () => {
      console.log(`Transport closed for session ${opened.sessionId}`);
      transports.delete(opened.sessionId);
    };
    await mcp.connect(transport);
  }
  await transport.handleRequest(request, response);
}).listen(Number(process.argv[2]), '127.0.0.1');

// An MCP server that speaks 2026-07-28 alone: stateless.mjs PORT.
import { createServer } from 'node:http';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { McpServer, createMcpHandler } from '@modelcontextprotocol/server';

const handler = createMcpHandler(() => new McpServer({ name: 'test', version: '1' }), { legacy: 'reject' });
createServer(toNodeHandler(handler)).listen(Number(process.argv[2]), '127.0.0.1');

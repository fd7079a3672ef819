// Follows the tools that an agent may use: applies what changes, and goes on where a stream ended.
//
// usage: watch_tools.js HOST:PORT [AGENT]   (NODE_PATH has the packages of package.json)

const path = require('node:path')
const { setTimeout: sleep } = require('node:timers/promises')
const grpc = require('@grpc/grpc-js')
const loader = require('@grpc/proto-loader')

const includeDirs = [path.join(__dirname, '../../proto')]
// Revisions are 64 bits long: as numbers they would lose some.
const options = { includeDirs, longs: String, defaults: true }
const definition = loader.loadSync('toolpulse/v1/tool_registry.proto', options)
const { ToolRegistryService } = grpc.loadPackageDefinition(definition).toolpulse.v1

// Yields the definitions by name, each time that they changed and are complete.
async function* follow(registry, agentId) {
  let tools = new Map()
  let etag = ''
  let resume = null
  let wait = 100
  for (;;) {
    // Changes count once they are complete: what a cut stream left half told is told again.
    const draft = new Map(tools)
    let end = 'the stream was cut'
    try {
      for await (const message of registry.watchAvailableTools({ agentId, resume })) {
        if (message.goodbye) {
          const { seconds, nanos } = message.goodbye.retryAfter
          end = 'goodbye'
          wait = seconds * 1000 + nanos / 1e6
          continue
        }
        if (message.reset) draft.clear()
        for (const name of message.removed) draft.delete(name)
        for (const tool of message.upserts) draft.set(tool.exposedName, JSON.parse(tool.definitionJson))
        if (message.synced) {
          tools = new Map(draft)
          wait = 100
          resume = { epoch: message.epoch, revision: message.revision }
          // Heartbeats have none: they only move the position.
          if (message.etag && message.etag !== etag) {
            etag = message.etag
            yield tools
          }
        }
      }
    } catch (error) {
      if (end !== 'goodbye') end = error.details
    }
    console.error(`${end}; again in ${Math.round(wait)} ms`)
    await sleep(wait)
    wait = Math.min(wait * 2, 30_000) * (0.8 + 0.4 * Math.random())
  }
}

async function main([address, agentId = '']) {
  const registry = new ToolRegistryService(address, grpc.credentials.createInsecure())
  for await (const tools of follow(registry, agentId)) console.log(JSON.stringify([...tools.keys()].sort()))
}

main(process.argv.slice(2))

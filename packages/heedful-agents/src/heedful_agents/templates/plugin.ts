// heedful answers the events of this agent; `heedful hook uninstall` removes the file.
// A failure or a delay of heedful changes nothing: then there is no answer.
import { spawnSync } from "node:child_process"

const ask = (event: string, data: object, timeout = $milliseconds): any => {
  try {
    const line = $command + " " + event + " --agent " + $agent
    const input = JSON.stringify(data)
    const { status, stdout } = spawnSync(line, { shell: true, input, timeout, killSignal: "SIGKILL" })
    return status === 0 && stdout.length ? JSON.parse(stdout.toString()).hookSpecificOutput ?? {} : {}
  } catch {
    return {}
  }
}

// A model writes the prompts of a session that another one began. What a session has read
// before, because it was resumed or forked, heedful may not know.
const sources: any = {}
const begin = async (client: any, session_id: string, cwd: string, message: any) => {
  const path = { id: session_id }
  const { data: session } = await client.session.get({ path })
  const { data: messages } = await client.session.messages({ path })
  const isNew = messages?.every(({ info }: any) => info.id === message?.id)
  if (!isNew) ask("SessionStart", { session_id, cwd, source: "resume" })
  return session && !session.parentID ? "user" : "system"
}

export const Heedful = async ({ client, directory: cwd }: any) => ({
  "chat.message": async ({ sessionID: session_id, messageID: prompt_id }: any, { message, parts }: any) => {
    const part = parts?.find((other: any) => other.type === "text" && !other.synthetic)
    if (!part) return
    const source = (sources[session_id] ??= await begin(client, session_id, cwd, message).catch(() => "system"))
    const { additionalContext } = ask("UserPromptSubmit", { session_id, cwd, prompt_id, source, prompt: part.text })
    if (additionalContext) part.text += "\n\n" + additionalContext
  },
  "tool.execute.before": async ({ tool: tool_name, sessionID: session_id, callID: tool_use_id }: any, output: any) => {
    const data = { session_id, cwd, tool_name, tool_use_id, tool_input: output?.args }
    const { permissionDecision, permissionDecisionReason } = ask("PreToolUse", data)
    if (permissionDecision === "deny") throw new Error(permissionDecisionReason)
  },
  "tool.execute.after": async ({ tool: tool_name, sessionID: session_id, callID: tool_use_id, args }: any, output: any) => {
    const tool_response = { output: output?.output, exit_code: output?.metadata?.exit ?? 0 }
    const data = { session_id, cwd, tool_name, tool_use_id, tool_input: args, tool_response }
    const { additionalContext } = ask("PostToolUse", data)
    if (additionalContext && typeof output?.output === "string") output.output += "\n\n" + additionalContext
  },
  event: async ({ event: { type, properties } }: any) => {
    const session_id = properties?.sessionID ?? properties?.info?.id
    if (type !== "session.deleted") return
    delete sources[session_id]
    ask("SessionEnd", { session_id, cwd })
  },
})

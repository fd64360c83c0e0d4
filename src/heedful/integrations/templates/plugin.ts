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

export const Heedful = async ({ directory: cwd }: any) => ({
  "chat.message": async ({ sessionID: session_id, messageID: prompt_id }: any, { parts }: any) => {
    const part = parts?.find((other: any) => other.type === "text" && !other.synthetic)
    if (!part) return
    const { additionalContext } = ask("UserPromptSubmit", { session_id, cwd, prompt_id, prompt: part.text })
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
    if (type === "session.deleted") ask("SessionEnd", { session_id, cwd })
  },
})

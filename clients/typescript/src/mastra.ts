// A processor for agents of Mastra: it stands in `inputProcessors`, where it shows what
// memory says, and in `outputProcessors`, where it hears what the model answers.
//
// It changes the prompt of a model call only, so nothing of it is stored in a thread.

import type { Processor } from "@mastra/core/processors";

import { Heedful } from "./client.ts";
import type { Finding, Loop, OpenOptions, Verdict } from "./client.ts";
import { consult, feedbackOf, localFeedback, openRun } from "./judged.ts";
import { Conversation, callIds, taskOf, taskPlace } from "./prompt.ts";
import type { Part, Prompt } from "./prompt.ts";
import { Watch, watchOf } from "./run.ts";

export { judged } from "./judged.ts";

export interface ProcessorOptions extends Omit<OpenOptions, "recall"> {
  /** What is wrong with an answer; then a rejected answer is tried again. */
  check?: (answer: string) => Finding[] | Promise<Finding[]>;
  /** Is called for each answer that was checked; null if the service gave no verdict. */
  onVerdict?: (verdict: Verdict | null, answer: string) => void;
}

type Steps =
  | "processInputStep"
  | "processLLMRequest"
  | "processLLMResponse"
  | "processOutputStep"
  | "processOutputResult";

/** The processor, as an agent takes it: with the steps that it has. */
export type HeedfulProcessor = Processor<"heedful"> & Required<Pick<Processor, Steps>>;

/** What a request of an agent has in the state of the processor. */
interface Request {
  conversation?: Conversation;
  /** The loop that judges the answers; null if the service gave none, so the check judges alone. */
  loop?: Loop | null;
  attempts: number;
  isDone: boolean;
  run?: string;
  tokens: { calls: number; prompt_tokens: number; completion_tokens: number };
}

// The policy of a loop ends it much earlier.
const MAX_RETRIES = 100;
// A run that waits for a person may go on much later; the oldest are forgotten first.
const MAX_OPEN_CALLS = 1_000;

/** The state of a request, which Mastra keeps for all methods of a processor. */
function requestOf(state: Record<string, unknown>): Request {
  state.request ??= { attempts: 0, isDone: false, tokens: { calls: 0, prompt_tokens: 0, completion_tokens: 0 } };
  return state.request as Request;
}

/** A chunk of Mastra as a part of an answer. */
function partOf({ type, payload }: { type: string; payload: unknown }): Part {
  const part = { ...(payload as object), type } as Part;
  return type === "tool-call" ? { ...part, input: part.args } : part;
}

/** The processor of heedful, for the input and the output of an agent. */
export function heedfulProcessor(
  memory: Heedful | Watch,
  options: ProcessorOptions = {},
): HeedfulProcessor {
  const watch = watchOf(memory);
  const { check, onVerdict, ...loopOptions } = options;
  // By the ids of their calls: Mastra begins a state anew where a suspended run goes on.
  const open = new Map<string, Request>();

  function keep(request: Request, callId: string): void {
    open.set(callId, request);
    const [oldest] = open.keys();
    if (open.size > MAX_OPEN_CALLS && oldest !== undefined) open.delete(oldest);
  }

  async function begin(request: Request, prompt: Prompt): Promise<Conversation> {
    const id = `run-${crypto.randomUUID()}`;
    if (request.run !== undefined) return new Conversation(watch.run(request.run), "");
    if (check === undefined) return new Conversation(watch.run(id));
    request.loop = await openRun(watch, id, taskOf(prompt), loopOptions);
    return new Conversation(watch.run(request.loop?.id ?? id), request.loop?.lessons ?? "");
  }

  return {
    id: "heedful",

    processInputStep({ providerOptions, state }) {
      const own: any = providerOptions?.heedful;
      if (typeof own?.run === "string") requestOf(state).run = own.run;
    },

    async processLLMRequest({ prompt, state }) {
      const messages = prompt as unknown as Prompt;
      if (taskPlace(messages) < 0) return undefined;
      if (state.request === undefined) {
        const id = callIds(messages).find((callId) => open.has(callId));
        if (id !== undefined) state.request = open.get(id);
      }
      const request = requestOf(state);
      request.conversation ??= await begin(request, messages);
      return { prompt: (await request.conversation.advised(messages)) as unknown as typeof prompt };
    },

    processLLMResponse({ chunks, state }) {
      const { conversation } = requestOf(state);
      conversation?.heard(chunks.map(partOf));
    },

    async processOutputStep({ messages, toolCalls = [], text = "", usage, state, abort }) {
      const request = requestOf(state);
      const { conversation, tokens } = request;
      tokens.calls += 1;
      tokens.prompt_tokens += usage?.inputTokens ?? 0;
      tokens.completion_tokens += usage?.outputTokens ?? 0;
      const ownCalls = toolCalls.filter((call) => !conversation?.isOfProvider(call.toolCallId));
      for (const call of ownCalls) {
        conversation?.called({ ...call, input: call.args });
        keep(request, call.toolCallId);
      }
      const { loop } = request;
      const isAnswer = ownCalls.length === 0 && !request.isDone;
      if (loop === undefined || check === undefined || !isAnswer) return messages;

      const findings = await check(text);
      const report = { findings, usage: { ...tokens } };
      Object.assign(tokens, { calls: 0, prompt_tokens: 0, completion_tokens: 0 });
      request.attempts += 1;
      let verdict: Verdict | null = null;
      if (loop !== null) {
        verdict = await consult<Verdict | null>(watch, (call) => loop.report(text, report, call), null);
      }
      // Later reports would leave out this attempt.
      if (verdict === null) request.loop = null;
      const feedback =
        verdict === null ? localFeedback(findings, request.attempts, options.policy) : feedbackOf(verdict);
      request.isDone = feedback === null;
      onVerdict?.(verdict, text);
      if (feedback !== null) abort(feedback, { retry: true });
      return messages;
    },

    processOutputResult({ messages, state }) {
      const request = requestOf(state);
      for (const [id, other] of open) if (other === request) open.delete(id);
      if (request.run === undefined) void request.conversation?.run.end();
      return messages;
    },
  };
}

/** The options of an agent that has memory: `new Agent({ …, ...withHeedful(memory) })`.
 *
 * An agent with processors of its own has `heedfulProcessor` among them instead.
 */
export function withHeedful(memory: Heedful | Watch, options: ProcessorOptions = {}) {
  const processor = heedfulProcessor(memory, options);
  return {
    inputProcessors: [processor],
    outputProcessors: [processor],
    maxProcessorRetries: MAX_RETRIES,
  };
}

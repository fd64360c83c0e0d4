// An agent whose answer is judged: your check says what is wrong, the service decides
// whether the agent tries again, and the best answer is the result.

import { HeedfulError, taskText } from "./client.ts";
import type { CallOptions, Finding, Heedful, Loop, OpenOptions, Usage, Verdict } from "./client.ts";
import { watchOf } from "./run.ts";
import type { Watch } from "./run.ts";

/** A message as the AI SDK and Mastra take it. */
export interface TextMessage {
  role: "system" | "user" | "assistant";
  content: string;
}

export interface Attempt {
  number: number;
  /** The id of the run; `heedful/ai-sdk` finds it in `providerOptions`. */
  id: string;
  /** The whole prompt: the task, what memory says, and what was wrong last. */
  prompt: string;
  /** The same as messages, for `generateText({ messages })` or `agent.generate(messages)`. */
  messages: TextMessage[];
  /** For `generateText({ providerOptions })`, so that the model's middleware knows the run. */
  providerOptions: { heedful: { run: string; recall: false } };
}

export interface JudgedOptions<R> extends Omit<OpenOptions, "recall"> {
  memory: Heedful | Watch;
  task: string;
  /** What is wrong with an answer; none if it passes. */
  check: (answer: string, result: R) => Finding[] | Promise<Finding[]>;
  /** The id of the loop: the same id goes on with it. */
  id?: string;
  /** The answer of a result; by default its `text`. */
  answer?: (result: R) => string;
}

export interface Judged<R> {
  /** The result of the best attempt. */
  result: R;
  /** Null if heedful failed: then the result is the last one, and nobody decided. */
  verdict: Verdict | null;
  attempts: number;
}

function tokens(value: unknown): number {
  return typeof value === "number" && value >= 0 ? Math.round(value) : 0;
}

/** The usage of a result of the AI SDK or of Mastra. */
export function usageOf(result: any): Usage {
  const usage = result?.totalUsage ?? result?.usage ?? {};
  return {
    calls: Array.isArray(result?.steps) ? Math.max(1, result.steps.length) : 1,
    prompt_tokens: tokens(usage.inputTokens),
    completion_tokens: tokens(usage.outputTokens),
  };
}

/** Open the loop of a run; if the id is another's or has ended, a new one. */
export async function openRun(
  memory: Watch,
  id: string,
  task: string,
  options: OpenOptions,
): Promise<Loop | null> {
  const open = async (call: CallOptions) => {
    try {
      const loop = await memory.client.open(id, task, options, call);
      if (!loop.done) return loop;
    } catch (error) {
      if (!(error instanceof HeedfulError) || error.status !== 409) throw error;
    }
    const other = `${id.slice(0, 150)}-${crypto.randomUUID()}`;
    return memory.client.open(other, task, options, call);
  };
  return memory.guarded<Loop | null>(open, null);
}

/** Let an agent try until the service says that it is done; return the best result.
 *
 * `attempt` is called with the prompt of each attempt. What it or `check` throws is
 * thrown here. If the service does not answer, the last answer is the result.
 */
export async function judged<R extends { text: string }>(
  options: JudgedOptions<R>,
  attempt: (attempt: Attempt) => PromiseLike<R> | R,
): Promise<Judged<R>> {
  const { memory, task, check, id, answer, ...fields } = options;
  const watch = watchOf(memory);
  const loop = await openRun(watch, id ?? `run-${crypto.randomUUID()}`, task, fields);
  const run = watch.run(loop?.id);
  const results = new Map<number, R>();
  let rejected = "";
  for (;;) {
    const number = (loop?.attempts ?? 0) + 1;
    const providerOptions: Attempt["providerOptions"] = { heedful: { run: run.id, recall: false } };
    const result = await attempt({ number, id: run.id, ...asked(loop, task, rejected), providerOptions });
    results.set(number, result);
    let verdict: Verdict | null = null;
    if (loop !== null) {
      const text = answer ? answer(result) : result.text;
      const report = { findings: await check(text, result), usage: usageOf(result) };
      verdict = await watch.guarded<Verdict | null>((call) => loop.report(text, report, call), null);
      rejected = text;
    }
    if (verdict?.decision !== "again") {
      void run.end();
      const best = results.get(verdict?.best ?? number) ?? result;
      return { result: best, verdict, attempts: results.size };
    }
  }
}

/** What an attempt is asked: as one prompt, and as turns. */
function asked(
  loop: Loop | null,
  task: string,
  rejected: string,
): Pick<Attempt, "prompt" | "messages"> {
  const first = [task, loop?.lessons].filter(Boolean).join("\n\n");
  const messages: TextMessage[] = [{ role: "user", content: first }];
  if (rejected) messages.push({ role: "assistant", content: taskText(rejected) });
  const feedback = loop?.verdict?.feedback;
  if (feedback) messages.push({ role: "user", content: feedback });
  return { prompt: loop?.prompt ?? task, messages };
}

// An agent whose answer is judged: your check says what is wrong, the service decides
// whether the agent tries again, and the best answer is the result. While the service
// does not answer, the check alone decides.

import { HeedfulError, UsageError, taskText } from "./client.ts";
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
  /** Whether the best attempt passed. */
  passed: boolean;
  /** The last decision of the service. Null if it gave none: then only your check judged. */
  verdict: Verdict | null;
  attempts: number;
}

// What the service does by default.
const MAX_ATTEMPTS = 4;

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

/** The result of calls of the service, or `otherwise` if heedful fails. Throws UsageError. */
export async function consult<T>(
  memory: Watch,
  work: (call: CallOptions) => Promise<T>,
  otherwise: T,
  deadline?: number,
): Promise<T> {
  let mistake: UsageError | undefined;
  const asked = async (call: CallOptions) => {
    try {
      return await work(call);
    } catch (error) {
      if (!(error instanceof UsageError)) throw error;
      mistake = error;
      return otherwise;
    }
  };
  const result = await memory.guarded(asked, otherwise, deadline);
  if (mistake !== undefined) throw mistake;
  return result;
}

/** Open the loop of a run; if the id is another's or has ended, a new one. */
export async function openRun(
  memory: Watch,
  id: string,
  task: string,
  options: OpenOptions,
): Promise<Loop | null> {
  const deadline = Date.now() + memory.waitMs;
  const fields = { ...options, recall: false };
  const open = async (call: CallOptions) => {
    try {
      const loop = await memory.client.open(id, task, fields, call);
      if (!loop.done) return loop;
    } catch (error) {
      if (!(error instanceof HeedfulError) || error.status !== 409) throw error;
    }
    const other = `${id.slice(0, 150)}-${crypto.randomUUID()}`;
    return memory.client.open(other, task, fields, call);
  };
  const loop = await consult<Loop | null>(memory, open, null, deadline);
  // A loop is judged, also if its lessons come too late.
  if (loop !== null) await consult(memory, (call) => loop.recall(call), "", deadline);
  return loop;
}

function errorsOf(findings: readonly Finding[]): number {
  return findings.filter(({ level = "error" }) => level === "error").length;
}

/** What to say to the model where only the check judges; null if it is not asked again. */
export function localFeedback(
  findings: readonly Finding[],
  attempts: number,
  policy: OpenOptions["policy"],
): string | null {
  const [, limit = MAX_ATTEMPTS] = /attempts\.limit=(\d+)/.exec(typeof policy === "string" ? policy : "") ?? [];
  if (errorsOf(findings) === 0 || attempts >= Number(limit)) return null;
  const lines = findings.map(({ check, message, fix = "" }) => `- ${check}: ${message}. ${fix}`.trimEnd());
  return ["The last answer was not accepted:", ...lines].join("\n");
}

interface Trial<R> {
  number: number;
  result: R;
  errors: number;
}

/** The first attempt with the fewest errors. */
function fewestErrors<R>(trials: readonly Trial<R>[], last: Trial<R>): Trial<R> {
  return trials.reduceRight((best, trial) => (trial.errors <= best.errors ? trial : best), last);
}

/** Let an agent try until the service says that it is done; return the best result.
 *
 * `attempt` is called with the prompt of each attempt. What it or `check` throws is
 * thrown here, and so is a UsageError: the service cannot use the options. If the
 * service does not answer, the check alone decides, on four attempts at most.
 */
export async function judged<R extends { text: string }>(
  options: JudgedOptions<R>,
  attempt: (attempt: Attempt) => PromiseLike<R> | R,
): Promise<Judged<R>> {
  const { memory, task, check, id, answer, ...fields } = options;
  const watch = watchOf(memory);
  const loop = await openRun(watch, id ?? `run-${crypto.randomUUID()}`, task, fields);
  const run = watch.run(loop?.id);
  const providerOptions: Attempt["providerOptions"] = { heedful: { run: run.id, recall: false } };
  const earlier = loop?.attempts ?? 0;
  const trials: Trial<R>[] = [];
  let isServed = loop !== null;
  let rejected = "";
  let feedback = loop?.verdict?.feedback ?? "";
  for (;;) {
    const number = earlier + trials.length + 1;
    const words = asked(task, loop?.lessons ?? "", rejected, feedback);
    const result = await attempt({ number, id: run.id, ...words, providerOptions });
    const text = answer ? answer(result) : result.text;
    const findings = await check(text, result);
    const trial = { number, result, errors: errorsOf(findings) };
    trials.push(trial);

    let verdict: Verdict | null = null;
    if (loop !== null && isServed) {
      const report = { findings, usage: usageOf(result) };
      verdict = await consult<Verdict | null>(watch, (call) => loop.report(text, report, call), null);
    }
    // Later reports would leave out this attempt.
    isServed = verdict !== null;
    const next = verdict === null ? localFeedback(findings, number, fields.policy) : feedbackOf(verdict);
    if (next === null) {
      void run.end();
      const attempts = trials.length;
      if (verdict === null) {
        const best = fewestErrors(trials, trial);
        return { result: best.result, passed: best.errors === 0, verdict, attempts };
      }
      // The best attempt may be one of an earlier process.
      const best = trials.find((other) => other.number === verdict.best) ?? trial;
      return { result: best.result, passed: verdict.passed, verdict, attempts };
    }
    rejected = text;
    feedback = next;
  }
}

/** What the service says to the model; null if it is not asked again. */
export function feedbackOf(verdict: Verdict): string | null {
  return verdict.decision === "again" ? verdict.feedback : null;
}

/** What an attempt is asked: as one prompt, and as turns. */
function asked(
  task: string,
  lessons: string,
  rejected: string,
  feedback: string,
): Pick<Attempt, "prompt" | "messages"> {
  const first = [task, lessons].filter(Boolean).join("\n\n");
  const messages: TextMessage[] = [{ role: "user", content: first }];
  const last = taskText(rejected);
  if (last) messages.push({ role: "assistant", content: last });
  if (feedback) messages.push({ role: "user", content: feedback });
  const parts = [first, last && `Your last answer:\n${last}`, feedback];
  return { prompt: parts.filter(Boolean).join("\n\n"), messages };
}

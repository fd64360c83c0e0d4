// heedful beside an agent: what an agent does is told to the service as the events of
// hooks, and what memory says comes back. Nothing here throws: while the service does
// not answer, it is as if heedful had nothing to say.

import { Heedful, HeedfulError, Refused, Unreachable } from "./client.ts";
import type { CallOptions } from "./client.ts";

export interface WatchOptions {
  /** How long an agent waits for an answer; 2,000 by default. */
  waitMs?: number;
  /** How long heedful stays silent after it got no answer; 30,000 by default. */
  pauseMs?: number;
  /** Is called once in a row of failures; by default it writes a warning. */
  onProblem?: (error: Error) => void;
}

// The shape of events that coding agents share; the service knows it by this name.
const EVENTS = "/v1/hooks/claude-code";
// The service redacts a text and then keeps less of its ends: it sees whole secrets there.
const MAX_TEXT_CHARS = 80_000;
// The service never says more than this at once.
const MAX_ADVICE_CHARS = 20_000;
const MAX_VALUES = 2_000;
// A run that waits for a person may go on much later; the oldest are forgotten first.
export const MAX_OPEN_RUNS = 1_000;
// A value that is too large ends with this line.
export const VALUES_LEFT_OUT = "[more values are left out]";

/** A text without its middle if it is long, and without the lines that the cut splits. */
function cut(text: string): string {
  if (text.length <= MAX_TEXT_CHARS) return text;
  const half = MAX_TEXT_CHARS / 2;
  const head = text.slice(0, half).replace(/\n[^\n]{0,2000}$|\s\S{0,200}$/, "");
  const tail = text.slice(-half).replace(/^[^\n]{0,2000}\n|^\S{0,200}\s/, "");
  const omitted = text.length - head.length - tail.length;
  return `${head}\n[${omitted} characters are left out]\n${tail}`;
}

/** A value as JSON data of bounded size; what JSON cannot say becomes text. */
function plain(value: unknown): unknown {
  if (typeof value === "string") return cut(value);
  let values = 0;
  try {
    const text = JSON.stringify(value, (_name, part) => {
      values += 1;
      if (values > MAX_VALUES) return values === MAX_VALUES + 1 ? VALUES_LEFT_OUT : undefined;
      return typeof part === "string" ? cut(part) : typeof part === "bigint" ? String(part) : part;
    });
    if (text === undefined) return null;
    return text.length > MAX_TEXT_CHARS ? cut(text) : JSON.parse(text);
  } catch {
    return cut(String(value));
  }
}

/** The arguments of a call as an object. */
function argumentsOf(input: unknown): Record<string, unknown> {
  const value = plain(input);
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject ? (value as Record<string, unknown>) : { input: value };
}

/** The text of an error that a tool threw. */
export function errorText(error: unknown): string {
  if (error instanceof Error) return `${error.name}: ${error.message}`;
  const value = plain(error);
  return typeof value === "string" ? value : JSON.stringify(value);
}

function tooLate(waitMs: number): Unreachable {
  return new Unreachable("timeout", `no answer within waitMs (${waitMs} ms); what comes later is not used`);
}

function warn(error: Error): void {
  console.warn(`heedful is silent: ${error.message}`);
}

/** heedful beside the agents of a process: it asks, waits a little, and never throws. */
export class Watch {
  readonly client: Heedful;
  readonly waitMs: number;
  readonly #pauseMs: number;
  readonly #onProblem: (error: Error) => void;
  readonly #pending = new Set<Promise<unknown>>();
  readonly #runs = new Map<string, Run>();
  #silentUntil = 0;
  #said = "";

  constructor(client: Heedful, options: WatchOptions = {}) {
    this.client = client;
    this.waitMs = options.waitMs ?? 2_000;
    this.#pauseMs = options.pauseMs ?? 30_000;
    this.#onProblem = options.onProblem ?? warn;
  }

  /** A run of an agent; the id of an earlier run continues it. */
  run(id: string = `run-${crypto.randomUUID()}`): Run {
    const run = this.#runs.get(id) ?? new Run(this, id);
    this.#runs.delete(id);
    this.#runs.set(id, run);
    const [oldest] = this.#runs.keys();
    if (this.#runs.size > MAX_OPEN_RUNS && oldest !== undefined) this.#runs.delete(oldest);
    return run;
  }

  /** Forget a run that has ended: its id begins another. */
  forget(run: Run): void {
    if (this.#runs.get(run.id) === run) this.#runs.delete(run.id);
  }

  /** Wait until all that was told has arrived, or was given up. */
  async settled(): Promise<void> {
    while (this.#pending.size) await Promise.all(this.#pending);
  }

  /** The result of calls of the service, or `otherwise` if they fail or are late. */
  async guarded<T>(
    work: (call: CallOptions) => Promise<T>,
    otherwise: T,
    deadline: number = Date.now() + this.waitMs,
  ): Promise<T> {
    const now = Date.now();
    if (now < this.#silentUntil) return otherwise;
    const late = new AbortController();
    const stop = () => late.abort(tooLate(this.waitMs));
    if (now >= deadline) stop();
    const timer = setTimeout(stop, deadline - now);
    try {
      late.signal.throwIfAborted();
      const result = await work({ signal: late.signal, retries: 0 });
      this.#said = "";
      return result;
    } catch (error) {
      this.#problem(error);
      return otherwise;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Keep a promise that nobody waits for. */
  keep<T>(work: Promise<T>): Promise<T> {
    this.#pending.add(work);
    void work.finally(() => this.#pending.delete(work));
    return work;
  }

  #problem(error: unknown): void {
    const problem = error instanceof Error ? error : new Error(String(error));
    const code = problem instanceof HeedfulError ? problem.code : problem.name;
    const status = problem instanceof HeedfulError ? problem.status : 0;
    // Another call may be accepted, if it is only this one that the service refuses.
    const isOfCall = status === 404 || status === 409 || status === 413 || status === 422;
    // A first lookup may be slow alone: only the second late answer in a row is a pause.
    const isFirstLate = code === "timeout" && this.#said !== code;
    if (!isOfCall && !isFirstLate) {
      const asked = problem instanceof Refused ? (problem.retryAfter ?? 0) * 1_000 : 0;
      this.#silentUntil = Date.now() + Math.max(this.#pauseMs, asked);
    }
    if (this.#said === code) return;
    this.#said = code;
    try {
      this.#onProblem(problem);
    } catch {
      // The agent goes on, whatever the listener does.
    }
  }
}

const watches = new WeakMap<Heedful, Watch>();

/** The one watch of a client, or the given one. */
export function watchOf(memory: Heedful | Watch): Watch {
  if (memory instanceof Watch) return memory;
  const watch = watches.get(memory) ?? new Watch(memory);
  watches.set(memory, watch);
  return watch;
}

/** One run of an agent, from its task to its end: its events arrive in order. */
export class Run {
  readonly id: string;
  readonly #watch: Watch;
  #last: Promise<unknown> = Promise.resolve();

  constructor(watch: Watch, id: string) {
    this.id = id;
    this.#watch = watch;
  }

  /** What memory has for the task of the run, as text for its prompt; "" for nothing. */
  recall(task: string): Promise<string> {
    return this.#tell("UserPromptSubmit", { prompt: cut(task) });
  }

  /** How this call failed before, and what fixed it. */
  before(tool: string, input: unknown, call: string): Promise<string> {
    return this.#tell("PreToolUse", this.#call(tool, input, call));
  }

  /** Tell what a call returned; the answer is about results that report a failure. */
  after(tool: string, input: unknown, call: string, output: unknown): Promise<string> {
    const event = { ...this.#call(tool, input, call), tool_response: plain(output) };
    return this.#tell("PostToolUse", event);
  }

  /** Tell with which error a call failed; the answer is what fixed it before. */
  seen(tool: string, input: unknown, call: string, error: unknown): Promise<string> {
    const event = { ...this.#call(tool, input, call), error: cut(errorText(error)) };
    return this.#tell("PostToolUseFailure", event);
  }

  /** End the run: the service learns from it. */
  end(): Promise<unknown> {
    this.#watch.forget(this);
    return this.#tell("SessionEnd", {});
  }

  #call(tool: string, input: unknown, call: string): Record<string, unknown> {
    return { tool_name: tool, tool_input: argumentsOf(input), tool_use_id: call };
  }

  #tell(name: string, event: Record<string, unknown>): Promise<string> {
    // The wait begins now: events that wait for others have less time, not more.
    const deadline = Date.now() + this.#watch.waitMs;
    const body = { session_id: this.id, hook_event_name: name, ...event };
    const send = (call: CallOptions) => this.#send(body, call);
    const answer = this.#last.then(() => this.#watch.guarded(send, "", deadline));
    this.#last = answer;
    return this.#watch.keep(answer);
  }

  async #send(body: Record<string, unknown>, call: CallOptions): Promise<string> {
    const answer = await this.#watch.client.call("POST", EVENTS, body, call);
    const said = answer.hookSpecificOutput ?? {};
    const text = said.additionalContext ?? said.permissionDecisionReason ?? "";
    if (typeof text !== "string" || text.length > MAX_ADVICE_CHARS) {
      throw new Unreachable("not_heedful", `an advice of ${String(text).length} characters`, 200);
    }
    return text;
  }
}

// The client of a heedful service, over `fetch` alone.

import type { operations } from "./api.ts";

type Body<Name extends keyof operations> = operations[Name] extends {
  requestBody: { content: { "application/json": infer B } };
}
  ? B
  : never;
type Answer<Name extends keyof operations> = operations[Name] extends {
  responses: { 200: { content: { "application/json": infer A } } };
}
  ? A
  : never;
type NewLoop = Body<"loops_begin">;
type NewAttempt = Body<"loops_attempt">;
type NewRecall = Body<"recall_recall">;
type Evaluation = NonNullable<NewAttempt["evaluation"]>;
type AnyFinding = NonNullable<Evaluation["findings"]>[number];

/** What is wrong with an output: the check that found it, what, and how to fix it. */
export type Finding = Pick<AnyFinding, "check" | "message"> & Partial<AnyFinding>;
/** The cost of an attempt. */
export type Usage = Partial<NonNullable<Evaluation["usage"]>>;
/** What memory has for a task. */
export type Recalled = Answer<"recall_recall">;
/** How a call failed before, and what fixed it. */
export type History = Answer<"reflections_before">;

/** An error as the service tells it (RFC 9457); `code` is stable. */
export interface Problem {
  type: string;
  title: string;
  status: number;
  code: string;
  detail: string;
  errors?: { in: string; pointer: string; detail: string }[];
  [member: string]: unknown;
}

/** Whether the loop goes on, and what to say to the model if it does. */
export interface Verdict {
  decision: "again" | "done";
  attempt: number;
  /** The number of the best attempt. */
  best: number | null;
  passed: boolean;
  /** Which of the loop's models makes the next attempt, from 1. */
  rung: number;
  stopped_by: { rule: string; detail: string }[];
  reasons: { code: string; detail: string; reason: string }[];
  /** What was wrong with the last answer, for the next prompt. */
  feedback: string;
  state: string;
  /** The command that releases the lessons of this loop, "" if none waits. */
  release: string;
}

/** How often an error was seen, and the lessons about it. */
export interface Seen {
  signature: string;
  count: number;
  lessons: { id: number; text: string; state: string; trust: string; seen: number }[];
  grouped: boolean;
  /** The known errors of a text with several lines. */
  lines: string[];
  release: string;
}

export interface HeedfulOptions {
  /** The address of the service, such as `http://127.0.0.1:8765`. */
  url: string;
  /** A key of the service; none is needed while it has none and runs on this machine. */
  key?: string | undefined;
  /** A project of the key; by default its first. */
  project?: string;
  fetch?: typeof globalThis.fetch;
  /** How long a call may take, with its retries; 10,000 by default. */
  timeoutMs?: number;
  /** How often a call is tried again where nobody answers or the service is busy. */
  retries?: number;
  /** Send the key over http to another machine, too. */
  insecure?: boolean;
}

export interface CallOptions {
  timeoutMs?: number;
  retries?: number;
  signal?: AbortSignal | undefined;
}

export interface OpenOptions {
  context?: unknown;
  goals?: NewLoop["goals"];
  /** As text, such as `default, attempts.limit=3`, or as an object. */
  policy?: NewLoop["policy"];
  /** What loops of one key got wrong is told to the later ones, whatever their tasks. */
  memoryKey?: string;
  model?: string;
  rungs?: string[];
  /** False: do not ask memory for the task. */
  recall?: boolean;
}

export interface Report {
  /** What your own checks found; none means that they passed. */
  findings?: Finding[];
  /** In place of `findings`: findings, scores and preference. */
  evaluation?: Partial<Evaluation>;
  /** Checks that the service runs. */
  checks?: NewAttempt["checks"];
  usage?: Usage;
  digest?: string;
  model?: string;
}

export type RecallOptions = Partial<
  Pick<NewRecall, "loop" | "limit" | "budget" | "tags" | "match" | "form">
>;

// A longer answer is none of a heedful service.
const MAX_ANSWER_BYTES = 4 * 1024 * 1024;
const MAX_TASK_CHARS = 100_000;
const FIRST_PAUSE_MS = 100;
const LOCAL_HOST = /^(localhost|127(\.\d+){3}|\[::1\])$/;
// What these refuse, they refuse again.
const MISTAKES: ReadonlySet<number> = new Set([400, 404, 405, 415, 422]);
const CURES: Record<string, string> = {
  unreachable: "start it with `heedful serve`, or correct the url",
  timeout: "look at its load and at /readyz, or give more time: waitMs of a Watch, timeoutMs of a client",
  not_heedful: "look at what answers at this url, such as a proxy",
  invalid_url: "give one such as http://127.0.0.1:8765",
  insecure_url: "use https, or give insecure: true",
  key_refused: "give a key that `heedful key list` shows",
  forbidden: "make a key with `heedful key create --may …`",
  too_many_requests: "wait as long as retryAfter says",
};

/** The reason why a call has no result: `code` is stable, `cure` says what to do. */
export class HeedfulError extends Error {
  override readonly name: string = "HeedfulError";
  readonly code: string;
  /** The status of the answer, 0 without one. */
  readonly status: number;
  readonly cure: string;

  constructor(code: string, detail: string, status = 0, options: ErrorOptions = {}) {
    const cure = CURES[code] ?? "";
    super(`${code}: ${detail}${cure && `; ${cure}`}`, options);
    this.code = code;
    this.status = status;
    this.cure = cure;
  }
}

/** The service refused a call; `problem` is its answer. */
export class Refused extends HeedfulError {
  override readonly name: string = "Refused";
  readonly problem: Problem;
  readonly requestId: string;
  /** How many seconds to wait before the next try, if the service says so. */
  readonly retryAfter: number | undefined;

  constructor(problem: Problem, headers: Headers) {
    super(problem.code, problem.detail, problem.status);
    this.problem = problem;
    this.requestId = headers.get("x-request-id") ?? "";
    const seconds = Number(headers.get("retry-after") ?? Number.NaN);
    this.retryAfter = Number.isFinite(seconds) ? seconds : undefined;
  }
}

/** The service cannot use what the call gave, such as an unknown policy: correct the program. */
export class UsageError extends Refused {
  override readonly name: string = "UsageError";
}

/** Nobody answered in time, or what answered is no heedful service. */
export class Unreachable extends HeedfulError {
  override readonly name = "Unreachable";
}

/** The body of an answer as text. Throws Unreachable if it is too long. */
async function readText(answer: Response, status: number): Promise<string> {
  if (answer.body === null) return "";
  const reader = answer.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    size += value.byteLength;
    if (size > MAX_ANSWER_BYTES) {
      await reader.cancel().catch(() => undefined);
      throw new Unreachable(
        "not_heedful",
        `an answer has more than ${MAX_ANSWER_BYTES} bytes`,
        status,
      );
    }
    text += decoder.decode(value, { stream: true });
  }
}

function isProblem(value: any): value is Problem {
  return typeof value?.code === "string" && typeof value?.detail === "string";
}

/** The answer as JSON data. Throws Refused or UsageError, and Unreachable if it is something else. */
async function readAnswer(answer: Response): Promise<any> {
  const text = await readText(answer, answer.status);
  let data: any;
  try {
    data = JSON.parse(text);
  } catch {
    data = undefined;
  }
  if (answer.ok && typeof data === "object" && data !== null) return data;
  if (!answer.ok && isProblem(data)) {
    const kind = MISTAKES.has(answer.status) ? UsageError : Refused;
    throw new kind(data, answer.headers);
  }
  const start = text.slice(0, 80).replaceAll(/\s+/g, " ");
  throw new Unreachable(
    "not_heedful",
    `status ${answer.status} with ${JSON.stringify(start)} where JSON was expected`,
    answer.status,
  );
}

/** Whether another try may help. */
function isPassing(error: unknown): boolean {
  if (!(error instanceof HeedfulError)) return false;
  if (error.code === "at_work") return true;
  return error.code === "unreachable" || error.status === 429 || error.status >= 500;
}

/** Wait, or end with the reason of the signal. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) stop();
  });
}

/** The result of some work, or the reason of the signal: also if the work hears nothing. */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  let stop = () => {};
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason);
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) stop();
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener("abort", stop);
    work.catch(() => undefined);
  }
}

/** A value as JSON text, in a form that the service takes.
 *
 * Texts of models may have null characters, and half a character where they were cut.
 */
function jsonOf(data: unknown): string {
  return JSON.stringify(data, (_name, value) => {
    if (typeof value !== "string") return value;
    return value.replaceAll("\0", "\ufffd").replaceAll(/\p{Surrogate}/gu, "\ufffd");
  });
}

/** A task as memory takes it. */
export function taskText(task: unknown): string {
  const text = typeof task === "string" ? task : (JSON.stringify(task) ?? String(task));
  return text.slice(0, MAX_TASK_CHARS);
}

/** The client of a heedful service. Its methods throw `UsageError`, `Refused` and `Unreachable`. */
export class Heedful {
  readonly url: string;
  readonly #key: string;
  readonly #project: string;
  readonly #fetch: typeof globalThis.fetch;
  readonly #timeoutMs: number;
  readonly #retries: number;

  constructor(options: HeedfulOptions) {
    const address = URL.parse(options.url);
    if (address === null || !/^https?:$/.test(address.protocol)) {
      throw new HeedfulError("invalid_url", JSON.stringify(options.url));
    }
    if (address.username || address.password) {
      throw new HeedfulError("invalid_url", `${address.origin} with a name or a password`);
    }
    const isSafe = address.protocol === "https:" || LOCAL_HOST.test(address.hostname);
    if (options.key && !isSafe && !options.insecure) {
      throw new HeedfulError("insecure_url", `${address.origin} would get the key unencrypted`);
    }
    this.url = options.url.replace(/\/+$/, "");
    this.#key = options.key ?? "";
    this.#project = options.project ?? "";
    this.#fetch = options.fetch ?? ((...request) => globalThis.fetch(...request));
    this.#timeoutMs = options.timeoutMs ?? 10_000;
    this.#retries = options.retries ?? 3;
  }

  /** Open a loop, or continue it if it exists, and ask memory what fits its task. */
  async open(
    id: string,
    task: unknown,
    options: OpenOptions = {},
    call: CallOptions = {},
  ): Promise<Loop> {
    const { recall = true, memoryKey, ...fields } = options;
    const body = { task, memory_key: memoryKey, ...fields };
    const state = await this.call("PUT", `/v1/loops/${encodeURIComponent(id)}`, body, call);
    const loop = new Loop(this, id, task, state);
    if (recall && !loop.done) await loop.recall(call);
    return loop;
  }

  /** Report an attempt of a loop, from 1; repeating a report changes nothing. */
  async report(
    id: string,
    attempt: number,
    output: unknown,
    report: Report = {},
    call: CallOptions = {},
  ): Promise<Verdict> {
    const { findings, evaluation, ...fields } = report;
    const judged = evaluation ?? (findings && { findings });
    const body = { output, evaluation: judged, ...fields };
    const path = `/v1/loops/${encodeURIComponent(id)}/attempts/${attempt}`;
    const verdict = await this.call("PUT", path, body, call);
    // A caller that goes on until it is done would never end.
    if (verdict.decision !== "again" && verdict.decision !== "done") {
      throw new Unreachable("not_heedful", `no verdict, but ${JSON.stringify(verdict).slice(0, 80)}`, 200);
    }
    return verdict;
  }

  /** What memory has for a task: with a `loop`, what it shows is recorded and counted. */
  async recall(task: string, options: RecallOptions = {}, call: CallOptions = {}): Promise<Recalled> {
    return this.call("POST", "/v1/recall", { task: taskText(task), ...options }, call);
  }

  /** The failures that this call of a tool surely has, and what fixed them. */
  async before(
    tool: string,
    args: Record<string, unknown> | string,
    call: CallOptions = {},
  ): Promise<History> {
    return this.call("POST", "/v1/before", { tool, arguments: args }, call);
  }

  /** How often this error of a tool was seen, and the lessons about it. */
  async seen(tool: string, error: string, call: CallOptions = {}): Promise<Seen> {
    return this.call("POST", "/v1/seen", { error_type: tool, text: error }, call);
  }

  /** Call any route; a POST takes effect once, however often it is tried. */
  async call(method: string, path: string, body?: unknown, options: CallOptions = {}): Promise<any> {
    const timeoutMs = options.timeoutMs ?? this.#timeoutMs;
    const retries = options.retries ?? this.#retries;
    const late = new AbortController();
    const timer = setTimeout(
      () => late.abort(new Unreachable("timeout", `no answer from ${this.url} in ${timeoutMs} ms`)),
      timeoutMs,
    );
    const signals = options.signal ? [late.signal, options.signal] : [late.signal];
    const signal = AbortSignal.any(signals);
    const request = this.#request(method, body, signal);
    try {
      for (let tries = 0; ; tries++) {
        try {
          return await unlessAborted(this.#once(path, request), signal);
        } catch (error) {
          if (signal.aborted) throw signal.reason;
          if (tries >= retries || !isPassing(error)) throw error;
          const asked = error instanceof Refused ? (error.retryAfter ?? 0) * 1_000 : 0;
          // Nobody waits longer than the call may take.
          if (asked >= timeoutMs) throw error;
          await pause(asked + Math.random() * FIRST_PAUSE_MS * 2 ** tries, signal);
        }
      }
    } finally {
      clearTimeout(timer);
    }
  }

  #request(method: string, body: unknown, signal: AbortSignal): RequestInit {
    const headers: Record<string, string> = { Accept: "application/json" };
    if (this.#key) headers.Authorization = `Bearer ${this.#key}`;
    if (method === "POST") headers["Idempotency-Key"] = crypto.randomUUID();
    const request: RequestInit = { method, headers, signal, redirect: "manual" };
    if (body !== undefined) {
      headers["Content-Type"] = "application/json";
      request.body = jsonOf(body);
    }
    return request;
  }

  async #once(path: string, request: RequestInit): Promise<any> {
    const address = new URL(this.url + path);
    if (this.#project) address.searchParams.set("project", this.#project);
    let answer: Response;
    try {
      answer = await this.#fetch(address.href, request);
    } catch (error) {
      throw lost(this.url, error);
    }
    try {
      return await readAnswer(answer);
    } catch (error) {
      throw error instanceof HeedfulError ? error : lost(this.url, error);
    }
  }
}

/** The error of a connection that could not be made, or was lost. */
function lost(url: string, error: unknown): Unreachable {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  const reason = cause instanceof Error ? cause.message || cause.name : String(cause);
  return new Unreachable("unreachable", `no answer from ${url}: ${reason}`, 0, { cause: error });
}

/** A loop whose attempts your program makes: the service judges and decides. */
export class Loop {
  readonly id: string;
  readonly task: unknown;
  /** The last verdict, null before the first attempt. */
  verdict: Verdict | null;
  readonly #client: Heedful;
  readonly #outputs = new Map<number, unknown>();
  #lessons = "";
  /** How many attempts were reported. */
  attempts: number;

  constructor(client: Heedful, id: string, task: unknown, state: any) {
    this.id = id;
    this.task = task;
    this.verdict = state.verdict ?? null;
    this.#client = client;
    this.attempts = state.attempts ?? 0;
  }

  /** What memory says about the task, as text for a prompt. */
  get lessons(): string {
    return this.#lessons;
  }

  /** Ask memory what fits the task; `open` does so. */
  async recall(call: CallOptions = {}): Promise<string> {
    const { text } = await this.#client.recall(taskText(this.task), { loop: this.id, form: "text" }, call);
    this.#lessons = text ?? "";
    return this.#lessons;
  }

  /** True if another attempt is not to be made. */
  get done(): boolean {
    return this.verdict?.decision === "done";
  }

  /** The output of the best attempt that this process reported. */
  get best(): unknown {
    return this.#outputs.get(this.verdict?.best ?? 0);
  }

  /** The prompt of the next attempt: the task, the lessons, and what was wrong last. */
  get prompt(): string {
    const last = this.#outputs.get(this.attempts);
    const parts = [taskText(this.task), this.lessons];
    if (last !== undefined) parts.push(`Your last answer:\n${taskText(last)}`);
    if (!this.done) parts.push(this.verdict?.feedback ?? "");
    return parts.filter(Boolean).join("\n\n");
  }

  /** Report the next attempt. */
  async report(output: unknown, report: Report = {}, call: CallOptions = {}): Promise<Verdict> {
    const attempt = this.attempts + 1;
    this.verdict = await this.#client.report(this.id, attempt, output, report, call);
    this.attempts = attempt;
    this.#outputs.set(attempt, output);
    return this.verdict;
  }
}

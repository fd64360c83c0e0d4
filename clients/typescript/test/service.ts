// A service of this project for tests, in a folder of its own.

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Heedful, Watch } from "../src/index.ts";
import type { Finding, HeedfulOptions } from "../src/index.ts";

// The command line of heedful, such as `python -m heedful`.
const [PROGRAM = "heedful", ...WORDS] = (process.env.HEEDFUL_COMMAND ?? "heedful").split(" ");

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}

export interface HeardEvent {
  run: string;
  name: string;
  call: string | undefined;
}

export interface Service {
  url: string;
  client(options?: Partial<HeedfulOptions>): Heedful;
  /** A watch that waits as long as a busy machine needs, and throws on a problem. */
  watch(project?: string): Watch;
  /** Such a watch, and the events that it sends: run, name, id of the call. */
  heard(): { watch: Watch; events: HeardEvent[] };
  /** What a command of heedful prints. */
  command(...words: string[]): string;
  stop(): Promise<void>;
}

/** Start a service with its own memory and settings; without an embedder, so nothing is fetched. */
export async function startService(settings = ""): Promise<Service> {
  const folder = await mkdtemp(join(tmpdir(), "heedful-"));
  await writeFile(join(folder, "heedful.toml"), settings);
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const env = { ...process.env, HEEDFUL_EMBEDDER: "none", HEEDFUL_PORT: String(port) };
  const started = spawn(PROGRAM, [...WORDS, "serve"], {
    cwd: folder,
    env,
    stdio: ["ignore", "ignore", "pipe"],
  });
  let errors = "";
  started.stderr.on("data", (text) => (errors += text));
  const isReady = () => fetch(`${url}/readyz`).then((answer) => answer.ok, () => false);
  while (!(await isReady())) {
    if (started.exitCode !== null) throw new Error(`heedful serve ended: ${errors}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return {
    url,
    client: (options = {}) => new Heedful({ url, timeoutMs: 30_000, ...options }),
    watch: (project = "") => new Watch(new Heedful({ url, project }), { waitMs: 30_000, onProblem: fail }),
    heard() {
      const events: HeardEvent[] = [];
      const fetch: typeof globalThis.fetch = (address, init) => {
        const event = JSON.parse(String(init?.body));
        events.push({
          run: event.session_id,
          name: event.hook_event_name,
          call: event.tool_use_id,
        });
        return globalThis.fetch(address, init);
      };
      return { watch: new Watch(new Heedful({ url, fetch }), { waitMs: 30_000, onProblem: fail }), events };
    },
    command(...words) {
      const done = spawnSync(PROGRAM, [...WORDS, ...words], { cwd: folder, env, encoding: "utf8" });
      if (done.status !== 0) throw new Error(done.stderr);
      return done.stdout;
    },
    async stop() {
      started.kill();
      if (started.exitCode === null) await once(started, "exit");
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** How many calls of tools each run has. */
export function callsOfRuns(events: readonly HeardEvent[]): number[] {
  const ids = new Map<string, Set<string>>();
  for (const { run, call } of events) {
    if (call === undefined) continue;
    ids.set(run, (ids.get(run) ?? new Set()).add(call));
  }
  return [...ids.values()].map((known) => known.size);
}

function fail(error: Error): void {
  process.exitCode = 1;
  console.error("heedful had a problem:", error);
}

/** Wait until something is true. */
export async function until(isTrue: () => Promise<boolean>): Promise<void> {
  while (!(await isTrue())) await new Promise((resolve) => setTimeout(resolve, 20));
}

/** Five tasks that share no words. */
export const UNLIKE_TASKS = [
  "Checkout answers 500 since noon",
  "A typo on the pricing page",
  "Login loops forever in Safari",
  "Dark mode flickers once",
  "Backups have not run for two days",
];

/** What is wrong with an answer to one of them. */
export function severity(answer: string): Finding[] {
  if (/^P[0-3]$/.test(answer)) return [];
  return [{ check: "severity", message: "no severity", fix: "Answer with one of P0 to P3" }];
}

/** The answer of a model that follows the rule if its prompt has it. */
export function ratingOf(prompt: unknown): string {
  return JSON.stringify(prompt).includes("one of P0 to P3") ? "P1" : "high";
}

export const ORDER_ERROR = "Error: id must have the form A-7";

/** Teach what puts a wrong order number right: three runs of an agent. */
export async function teachOrders(service: Service): Promise<void> {
  const watch = service.watch();
  for (const number of [1, 2, 3]) {
    const run = watch.run(`taught-${number}`);
    void run.recall(`Where is order ${number}?`);
    void run.before("find_order", { id: "A7" }, "c1");
    void run.seen("find_order", { id: "A7" }, "c1", ORDER_ERROR);
    void run.before("find_order", { id: "A-7" }, "c2");
    void run.after("find_order", { id: "A-7" }, "c2", { state: "sent" });
    await run.end();
    await until(async () => {
      const { failures } = await service.client().before("find_order", { id: "A7" });
      const { lessons } = await service.client().seen("find_order", ORDER_ERROR);
      return failures.length > 0 || lessons.some((lesson) => lesson.seen >= number);
    });
  }
}

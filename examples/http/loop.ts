// A loop from TypeScript, with fetch alone: node loop.ts
//
//   HEEDFUL_URL=http://127.0.0.1:8765 HEEDFUL_KEY=heedful_… node loop.ts
//
// HEEDFUL_KEY may be left out where the service listens on this machine only.

const url: string = process.env.HEEDFUL_URL ?? "http://127.0.0.1:8765";
const key: string | undefined = process.env.HEEDFUL_KEY;

type Finding = { check: string; message: string; fix?: string };
type Verdict = {
  decision: "again" | "done";
  attempt: number;
  passed: boolean;
  feedback: string;
  best: number | null;
};
type Message = { role: "user" | "assistant"; content: string };
type Problem = { status: number; code: string; detail: string };

class Refused extends Error {
  problem: Problem;
  constructor(problem: Problem) {
    super(`${problem.status} ${problem.code}: ${problem.detail}`);
    this.problem = problem;
  }
}

/** One call. It is tried again where nobody answers or the service is busy, and done once. */
async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
  const headers: Record<string, string> = { "Content-Type": "application/json" };
  if (key) headers["Authorization"] = `Bearer ${key}`;
  if (method === "POST") headers["Idempotency-Key"] = crypto.randomUUID();
  for (let tries = 0; ; tries++) {
    let wait = Math.random() * 200 * 2 ** tries; // milliseconds
    try {
      const answer = await fetch(url + path, {
        method,
        headers,
        body: body === undefined ? undefined : JSON.stringify(body),
        signal: AbortSignal.timeout(30_000),
      });
      if (answer.ok) return (await answer.json()) as T;
      const problem = (await answer.json()) as Problem;
      const again = answer.status === 429 || answer.status >= 500;
      if (!again || tries === 5) throw new Refused(problem);
      wait += 1000 * Number(answer.headers.get("Retry-After") ?? 0);
    } catch (error) {
      if (error instanceof Refused || tries === 5) throw error;
    }
    await new Promise((done) => setTimeout(done, wait));
  }
}

/** What your own check finds wrong with an answer. */
function check(answer: string): Finding[] {
  if (answer.endsWith("EUR")) return [];
  return [{ check: "currency", message: "no currency", fix: "write EUR after the number" }];
}

/** Your model: it is given the worked examples of earlier loops, the task, and what was wrong. */
function model(examples: Message[], task: string, feedback: string): string {
  return examples.length || feedback ? "12.50 EUR" : "12.5";
}

/** One task, until the service says that it is done; how many attempts that took. */
async function solve(id: string, task: string): Promise<number> {
  const loop = `/v1/loops/${encodeURIComponent(id)}`;
  await call("PUT", loop, { task, policy: "default, attempts.limit=3" });
  const shown = await call<{ messages: Message[] }>("POST", "/v1/recall", {
    task,
    loop: id,
    form: "messages",
  });
  let verdict: Verdict | undefined;
  for (let attempt = 1; verdict?.decision !== "done"; attempt++) {
    const output = model(shown.messages, task, verdict?.feedback ?? "");
    verdict = await call<Verdict>("PUT", `${loop}/attempts/${attempt}`, {
      output,
      evaluation: { findings: check(output) },
    });
    console.log(`${id}, attempt ${attempt}: ${output}, ${verdict.decision}`);
  }
  return verdict.attempt;
}

const run = Math.floor(Math.random() * 1e9);
const first = await solve(`ticket-${run}-a`, "What does ticket 7 cost?");
const second = await solve(`ticket-${run}-b`, "What does ticket 8 cost?");
console.log(`attempts: ${first}, then ${second}`);

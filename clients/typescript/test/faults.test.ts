// A service that is down, slow, broken or another: the client says so, an agent goes on.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import { after, test } from "node:test";

import { Heedful, HeedfulError, Refused, Unreachable, Watch, judged } from "../src/index.ts";

type Answer = (request: IncomingMessage, response: ServerResponse) => void;
const stops: (() => void)[] = [];
after(() => stops.forEach((stop) => stop()));

/** The address of a server that answers like this. */
async function serve(answer: Answer): Promise<string> {
  const server = createServer((request, response) => {
    request.resume();
    request.on("end", () => answer(request, response));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  stops.push(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = server.address();
  return typeof address === "object" ? `http://127.0.0.1:${address?.port}` : "";
}

function send(status: number, body: unknown, headers: Record<string, string> = {}): Answer {
  const isText = typeof body === "string";
  return (_, response) => {
    response.writeHead(status, {
      "content-type": isText ? "text/html" : "application/json",
      ...headers,
    });
    response.end(isText ? body : JSON.stringify(body));
  };
}

function problem(status: number, code: string): unknown {
  return { type: "about:blank", title: code, status, code, detail: `it is ${code}` };
}

const HTML = "<html><body>502 Bad Gateway</body></html>";
const LONG = "x".repeat(5 * 1024 * 1024);
const advice = (text: string) => ({ hookSpecificOutput: { additionalContext: text } });
type Kind = typeof Refused | typeof Unreachable;
const FAULTS: [name: string, code: string, kind: Kind, answer: Answer | null][] = [
  ["nobody listens", "unreachable", Unreachable, null],
  ["no answer ever", "timeout", Unreachable, () => undefined],
  ["headers, then nothing", "timeout", Unreachable, (_, response) => response.writeHead(200).write("{")],
  ["a body that breaks off", "unreachable", Unreachable, (_, response) => {
    response.writeHead(200, { "content-length": "100" });
    response.write("{", () => response.destroy());
  }],
  ["a connection that breaks", "unreachable", Unreachable, (_, response) => response.destroy()],
  ["401", "key_refused", Refused, send(401, problem(401, "key_refused"))],
  ["429", "too_many_requests", Refused, send(429, problem(429, "too_many_requests"), { "retry-after": "60" })],
  ["503", "busy", Refused, send(503, problem(503, "busy"))],
  ["500 with HTML", "not_heedful", Unreachable, send(500, HTML)],
  ["200 with HTML", "not_heedful", Unreachable, send(200, HTML)],
  ["a page to move to", "not_heedful", Unreachable, send(302, "", { location: "https://example.com" })],
  ["JSON of another kind", "not_heedful", Unreachable, send(500, { error: "no" })],
  ["a text as JSON", "not_heedful", Unreachable, send(200, '"text"')],
  ["5 MB", "not_heedful", Unreachable, send(200, advice(LONG))],
];

/** How long to wait, in milliseconds: long where the wait is not what is tested. */
function patience(code: string): number {
  return code === "timeout" ? 200 : 30_000;
}

for (const [name, code, kind, answer] of FAULTS) {
  test(`the client says what is wrong: ${name}`, async () => {
    const url = answer === null ? "http://127.0.0.1:9" : await serve(answer);
    const heedful = new Heedful({ url, timeoutMs: patience(code), retries: 1 });
    await assert.rejects(heedful.recall("a task"), (error: HeedfulError) => {
      assert.ok(error instanceof kind);
      assert.equal(error.code, code);
      assert.ok(error.message.length < 400, error.message);
      return true;
    });
  });

  test(`an agent goes on, and it is said once: ${name}`, async () => {
    const url = answer === null ? "http://127.0.0.1:9" : await serve(answer);
    const problems: string[] = [];
    const onProblem = (error: Error) => problems.push((error as HeedfulError).code);
    const watch = new Watch(new Heedful({ url }), { waitMs: patience(code), onProblem });
    const run = watch.run();
    assert.equal(await run.recall("a task"), "");
    assert.equal(await run.before("Bash", { command: "ls" }, "c1"), "");
    assert.equal(await run.seen("Bash", { command: "ls" }, "c1", new Error("no")), "");
    const { result, verdict } = await judged(
      { memory: watch, task: "a task", check: () => [{ check: "a", message: "no" }] },
      async () => ({ text: "an answer" }),
    );
    assert.equal(result.text, "an answer");
    assert.equal(verdict, null);
    assert.deepEqual(problems, [code]);
  });
}

test("a fetch that hears no signal does not hold an agent", async () => {
  const fetch = () => new Promise<Response>(() => undefined);
  const watch = new Watch(new Heedful({ url: "http://localhost", fetch }), { waitMs: 50, onProblem: () => {} });
  assert.equal(await watch.run().recall("a task"), "");
});

test("a listener that throws does not break an agent", async () => {
  const onProblem = () => {
    throw new Error("of the listener");
  };
  const watch = new Watch(new Heedful({ url: "http://127.0.0.1:9" }), { onProblem });
  assert.equal(await watch.run().recall("a task"), "");
});

test("heedful speaks again after its pause, and the next failure is said", async () => {
  let isDown = true;
  const url = await serve((request, response) =>
    (isDown ? send(503, problem(503, "busy")) : send(200, advice("a fact")))(request, response),
  );
  const problems: Error[] = [];
  const watch = new Watch(new Heedful({ url }), { pauseMs: 0, onProblem: (error) => problems.push(error) });
  assert.equal(await watch.run().recall("one"), "");
  assert.equal(await watch.run().recall("two"), "");
  isDown = false;
  assert.equal(await watch.run().recall("three"), "a fact");
  isDown = true;
  assert.equal(await watch.run().recall("four"), "");
  assert.equal(problems.length, 2);
});

test("an advice that is too long for one of heedful is not shown", async () => {
  const url = await serve(send(200, advice("x".repeat(100_000))));
  const watch = new Watch(new Heedful({ url }), { onProblem: () => {} });
  assert.equal(await watch.run().recall("a task"), "");
});

test("the events of a run arrive in order, also if the first is slow", async () => {
  const names: string[] = [];
  const url = await serve((_, response) => {
    setTimeout(() => send(200, {})(_, response), names.length === 0 ? 50 : 0);
  });
  const fetch: typeof globalThis.fetch = async (address, init) => {
    const answer = await globalThis.fetch(address, init);
    names.push(JSON.parse(String(init?.body)).hook_event_name);
    return answer;
  };
  const watch = new Watch(new Heedful({ url, fetch }));
  const run = watch.run();
  void run.before("Bash", "ls", "c1");
  void run.after("Bash", "ls", "c1", "a file");
  void run.end();
  await watch.settled();
  assert.deepEqual(names, ["PreToolUse", "PostToolUse", "SessionEnd"]);
});

test("what JSON cannot say, and what is long, is sent as a short text", async () => {
  const sizes: number[] = [];
  const circle: Record<string, unknown> = {};
  circle.circle = circle;
  const fetch: typeof globalThis.fetch = async (_, init) => {
    sizes.push(String(init?.body).length);
    return new Response("{}");
  };
  const watch = new Watch(new Heedful({ url: "http://localhost", fetch }));
  const run = watch.run();
  const many = Array.from({ length: 100_000 }, (_, index) => `${index}`.repeat(10));
  for (const value of [circle, 1n, undefined, LONG, { LONG }, many, () => 1, Symbol("a")]) {
    await run.after("Bash", value, "c1", value);
    await run.seen("Bash", value, "c1", value);
  }
  assert.equal(sizes.length, 16);
  assert.ok(Math.max(...sizes) < 200_000, String(sizes));
});

test("all tries of a call share one idempotency key", async () => {
  const keys: (string | string[] | undefined)[] = [];
  const url = await serve((request, response) => {
    keys.push(request.headers["idempotency-key"]);
    const answer = keys.length < 3 ? send(503, problem(503, "busy")) : send(200, { text: "" });
    answer(request, response);
  });
  assert.equal((await new Heedful({ url }).recall("a task")).text, "");
  assert.equal(keys.length, 3);
  assert.equal(new Set(keys).size, 1);
});

test("a wait that the service asks for and that takes too long is not begun", async () => {
  let calls = 0;
  const url = await serve((request, response) => {
    calls += 1;
    send(429, problem(429, "too_many_requests"), { "retry-after": "60" })(request, response);
  });
  await assert.rejects(new Heedful({ url }).recall("a task"), { retryAfter: 60 });
  assert.equal(calls, 1);
});

test("a caller's signal ends a call with its own reason", async () => {
  const url = await serve(() => undefined);
  const reason = new Error("of the caller");
  const call = new Heedful({ url }).recall("a task", {}, { signal: AbortSignal.abort(reason) });
  await assert.rejects(call, reason);
});

test("the key is not sent over http to another machine", () => {
  const url = "http://heedful.example.com";
  assert.throws(() => new Heedful({ url, key: "heedful_x" }), { code: "insecure_url" });
  assert.throws(() => new Heedful({ url: "nonsense" }), { code: "invalid_url" });
  for (const safe of ["https://heedful.example.com", "http://[::1]:1", "http://127.0.0.1", "http://localhost"]) {
    assert.equal(new Heedful({ url: safe, key: "heedful_x" }).url, safe);
  }
  assert.equal(new Heedful({ url, key: "heedful_x", insecure: true }).url, url);
});

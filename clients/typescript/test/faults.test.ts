// A service that is down, slow, broken or another: the client says so, an agent goes on.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Heedful, HeedfulError, UsageError, Watch, judged } from "../src/index.ts";
import { FAULTS, LONG, advice, patience, problem, send, serve, urlOf } from "./faults.ts";

for (const [name, code, kind, answer] of FAULTS) {
  test(`the client says what is wrong: ${name}`, async () => {
    const url = await urlOf(answer);
    const heedful = new Heedful({ url, timeoutMs: patience(code), retries: 1 });
    await assert.rejects(heedful.recall("a task"), (error: HeedfulError) => {
      assert.ok(error instanceof kind);
      assert.equal(error.code, code);
      assert.ok(error.message.length < 400, error.message);
      return true;
    });
  });

  test(`an agent goes on, and it is said once: ${name}`, async () => {
    const url = await urlOf(answer);
    const problems: string[] = [];
    const onProblem = (error: Error) => problems.push((error as HeedfulError).code);
    const watch = new Watch(new Heedful({ url }), { waitMs: patience(code), onProblem });
    const run = watch.run();
    assert.equal(await run.recall("a task"), "");
    assert.equal(await run.before("Bash", { command: "ls" }, "c1"), "");
    assert.equal(await run.seen("Bash", { command: "ls" }, "c1", new Error("no")), "");
    const { result, passed, verdict, attempts } = await judged(
      { memory: watch, task: "a task", check: () => [{ check: "a", message: "no" }] },
      async ({ number }) => ({ text: `answer ${number}` }),
    );
    assert.equal(result.text, "answer 1");
    assert.equal(passed, false);
    assert.equal(verdict, null);
    assert.equal(attempts, 4);
    assert.deepEqual(problems, [code]);
  });
}

const silent = () => new Watch(new Heedful({ url: "http://127.0.0.1:9" }), { onProblem: () => {} });
const CURRENCY = { check: "currency", message: "no currency", fix: "write EUR" };
const currency = (answer: string) => (answer.endsWith("EUR") ? [] : [CURRENCY]);

test("without a service the check alone judges, and the model is told what was wrong", async () => {
  const prompts: string[] = [];
  const { result, passed, verdict, attempts } = await judged(
    { memory: silent(), task: "The price?", check: currency },
    async ({ prompt, messages }) => {
      prompts.push(prompt);
      assert.equal(messages.length, 2 * prompts.length - 1);
      return { text: prompt.includes("write EUR") ? "12 EUR" : "12" };
    },
  );
  assert.deepEqual([result.text, passed, verdict, attempts], ["12 EUR", true, null, 2]);
  const feedback = "The last answer was not accepted:\n- currency: no currency. write EUR";
  assert.deepEqual(prompts, ["The price?", `The price?\n\nYour last answer:\n12\n\n${feedback}`]);
});

test("without a service the limit of the policy holds, and warnings pass", async () => {
  const attempt = async () => ({ text: "12" });
  const limited = { memory: silent(), task: "The price?", check: currency, policy: "default, attempts.limit=1" };
  assert.equal((await judged(limited, attempt)).attempts, 1);
  const check = () => [{ ...CURRENCY, level: "warning" as const }];
  const warned = await judged({ memory: silent(), task: "The price?", check }, attempt);
  assert.deepEqual([warned.attempts, warned.passed], [1, true]);
});

test("a service that goes away in the middle of a run: the check judges the rest", async () => {
  const reports: string[] = [];
  const url = await serve((request, response) => {
    const path = request.url ?? "";
    if (path.includes("/attempts/")) reports.push(path);
    const verdict = { decision: "again", feedback: "write the currency", best: 1 };
    const answer = reports.length > 1 ? send(503, problem(503, "busy")) : send(200, reports.length ? verdict : {});
    answer(request, response);
  });
  const memory = new Watch(new Heedful({ url }), { pauseMs: 0, onProblem: () => {} });
  const feedbacks: (string | undefined)[] = [];
  const { result, passed, verdict, attempts } = await judged(
    { memory, task: "The price?", check: currency },
    async ({ number, messages }) => {
      feedbacks.push(messages.at(-1)?.content);
      return { text: number === 3 ? "12 EUR" : "12" };
    },
  );
  assert.deepEqual([result.text, passed, verdict, attempts], ["12 EUR", true, null, 3]);
  assert.equal(feedbacks[1], "write the currency");
  assert.match(feedbacks[2] ?? "", /write EUR/);
  assert.equal(reports.length, 2);
});

test("lessons that come too late are said with waitMs, and the run is judged", async () => {
  const problems: string[] = [];
  const url = await serve((request, response) => {
    if (request.url?.includes("/recall")) return;
    send(200, { decision: "done", passed: true, best: 1 })(request, response);
  });
  const onProblem = (error: Error) => problems.push(error.message);
  const memory = new Watch(new Heedful({ url }), { waitMs: 200, onProblem });
  const judge = () => judged({ memory, task: "a task", check: () => [] }, async () => ({ text: "an answer" }));
  for (let run = 0; run < 2; run++) assert.equal((await judge()).verdict?.passed, true);
  assert.equal(problems.length, 2);
  assert.match(problems[0] ?? "", /^timeout: .*waitMs \(200 ms\)/);
});

test("the second late answer in a row is a pause", async () => {
  let calls = 0;
  const url = await serve(() => {
    calls += 1;
  });
  const memory = new Watch(new Heedful({ url }), { waitMs: 200, onProblem: () => {} });
  for (const task of ["one", "two", "three", "four"]) assert.equal(await memory.run().recall(task), "");
  assert.equal(calls, 2);
});

for (const status of [400, 404, 422]) {
  test(`a refusal that the caller has to correct is thrown, and is no pause: ${status}`, async () => {
    const problems: Error[] = [];
    const url = await serve(send(status, problem(status, "invalid_request")));
    const memory = new Watch(new Heedful({ url }), { onProblem: (error) => problems.push(error) });
    const options = { memory, task: "a task", check: () => [] };
    for (let run = 0; run < 2; run++) {
      await assert.rejects(judged(options, async () => ({ text: "an answer" })), UsageError);
    }
    assert.equal(problems.length, 0);
  });
}

test("an answer without a verdict ends a loop", async () => {
  const loop = await new Heedful({ url: await serve(send(200, {})) }).open("a", "a task");
  await assert.rejects(loop.report("an output", { findings: [] }), { code: "not_heedful" });
});

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

test("what is left out of a text or a value is said, and no line is split", async () => {
  const results: string[] = [];
  const fetch: typeof globalThis.fetch = async (_, init) => {
    results.push(JSON.stringify(JSON.parse(String(init?.body)).tool_response));
    return new Response("{}");
  };
  const run = new Watch(new Heedful({ url: "http://localhost", fetch })).run();
  for (let before = 39_900; before < 40_100; before += 7) {
    const line = "\nPGPASSWORD=Zornxkqwvbty host=db failed\n";
    const text = `${"x".repeat(before)}${line}${"a line\n".repeat(9_000)}`;
    await run.after("Bash", "ls", "c1", text);
    await run.after("Bash", "ls", "c1", `${"a line\n".repeat(9_000)}${line}${"x".repeat(before)}`);
  }
  for (const result of results) {
    assert.match(result, /\\n\[\d+ characters are left out\]\\n/);
    assert.equal(result.includes("Zorn"), result.includes("PGPASSWORD=Zornxkqwvbty host=db failed"));
  }
  await run.after("Bash", "ls", "c1", Array.from({ length: 5_000 }, () => 1));
  assert.match(results.at(-1) ?? "", /"\[more values are left out\]"/);
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
  for (const wrong of ["nonsense", "ftp://127.0.0.1", "http://me:secret@127.0.0.1"]) {
    assert.throws(() => new Heedful({ url: wrong }), (error: HeedfulError) => {
      assert.equal(error.code, "invalid_url");
      assert.doesNotMatch(error.message, /secret/);
      return true;
    });
  }
  for (const safe of ["https://heedful.example.com", "http://[::1]:1", "http://127.0.0.1", "http://localhost"]) {
    assert.equal(new Heedful({ url: safe, key: "heedful_x" }).url, safe);
  }
  assert.equal(new Heedful({ url, key: "heedful_x", insecure: true }).url, url);
});

const advised = (text: unknown) => JSON.stringify({ hookSpecificOutput: { additionalContext: text } });
const HOSTILE: [name: string, body: string][] = [
  ["a list", "[]"],
  ["nothing in it", "{}"],
  ["null for each field", '{"hookSpecificOutput": null, "text": null, "decision": null, "best": null}'],
  ["a number for a text", advised(7)],
  ["a list for a text", advised([["a"]])],
  ["an object for a text", advised({ toString: "x", length: 1e9 })],
  ["another prototype", '{"__proto__": {"polluted": 1}, "constructor": {"prototype": {"polluted": 1}}}'],
  ["a prototype inside", '{"hookSpecificOutput": {"__proto__": {"additionalContext": "x", "polluted": 1}}}'],
  ["lists in lists", "[".repeat(100_000) + "]".repeat(100_000)],
  ["objects in objects", '{"a":'.repeat(50_000) + "1" + "}".repeat(50_000)],
  ["a decision that there is not", '{"decision": "burn", "feedback": {"a": 1}, "best": "x", "attempt": -1}'],
  ["a best attempt that nobody made", '{"decision": "done", "passed": true, "best": 1e308, "attempt": 7}'],
];
for (const [name, body] of HOSTILE) {
  test(`an agent goes on, whatever a service answers: ${name}`, async () => {
    const url = await serve((_, response) => {
      response.writeHead(200, { "content-type": "application/json" });
      response.end(body);
    });
    const memory = new Watch(new Heedful({ url }), { onProblem: () => {}, pauseMs: 0 });
    const run = memory.run();
    const told = [
      await run.recall("a task"),
      await run.before("Bash", { command: "ls" }, "c1"),
      await run.seen("Bash", { command: "ls" }, "c1", new Error("no")),
    ];
    for (const text of told) assert.equal(typeof text, "string");
    const { result } = await judged(
      { memory, task: "a task", check: () => [{ check: "a", message: "no" }] },
      async ({ number }) => ({ text: `answer ${number}` }),
    );
    assert.match(result.text, /^answer \d$/);
    assert.equal(({} as { polluted?: unknown }).polluted, undefined);
  });
}

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { Refused, UsageError, judged } from "../src/index.ts";
import type { Finding } from "../src/index.ts";
import { ORDER_ERROR, UNLIKE_TASKS, ratingOf, severity, startService, teachOrders } from "./service.ts";
import type { Service } from "./service.ts";

let service: Service;
before(async () => {
  service = await startService();
});
after(() => service.stop());

const FIX = "write EUR after the number";

function check(answer: string): Finding[] {
  if (answer.endsWith("EUR")) return [];
  return [{ check: "currency", message: "no currency", fix: FIX }];
}

/** A model that writes the currency if its prompt says so. */
function model(prompt: string): string {
  return prompt.includes("EUR") ? "12.50 EUR" : "12.5";
}

test("a loop goes on until its check passes, and the next task is right at once", async () => {
  const heedful = service.client();
  const attempts: number[] = [];
  for (const task of ["What does ticket 7 cost?", "What does ticket 8 cost?"]) {
    const loop = await heedful.open(task, task, { policy: "default, attempts.limit=3" });
    while (!loop.done) {
      const output = model(loop.prompt);
      await loop.report(output, { findings: check(output), usage: { calls: 1 } });
    }
    assert.equal(loop.verdict?.passed, true);
    assert.equal(loop.best, "12.50 EUR");
    attempts.push(loop.attempts);
  }
  assert.deepEqual(attempts, [2, 1]);
});

test("the prompt has the task, the last answer and what was wrong with it", async () => {
  const loop = await service.client().open("prompt", "Unlike all others.", { recall: false });
  assert.equal(loop.prompt, "Unlike all others.");
  const verdict = await loop.report("twelve", { findings: check("twelve") });
  assert.equal(verdict.decision, "again");
  assert.match(loop.prompt, /Unlike all others\.\n\nYour last answer:\ntwelve\n\n.*currency/s);
  assert.match(loop.prompt, new RegExp(FIX));
});

test("another client goes on with a loop", async () => {
  const first = await service.client().open("continued", "Write it.", { recall: false });
  await first.report("1", { findings: check("1") });
  const second = await service.client().open("continued", "Write it.", { recall: false });
  assert.equal(second.attempts, 1);
  assert.equal(second.verdict?.decision, "again");
  const verdict = await second.report("1 EUR", { findings: [] });
  assert.equal(verdict.attempt, 2);
  assert.equal(verdict.state, "passed");
});

test("the policy of a loop ends it, and the best attempt is told", async () => {
  const loop = await service.client().open("limited", "Say it.", {
    policy: "default, attempts.limit=2",
    recall: false,
  });
  await loop.report("a", { findings: [...check("a"), { check: "length", message: "short" }] });
  const verdict = await loop.report("bb", { findings: check("bb") });
  assert.equal(verdict.decision, "done");
  assert.equal(verdict.passed, false);
  assert.equal(verdict.stopped_by.length, 1);
  assert.equal(loop.best, "bb");
});

test("a refusal has the code and the words of the service", async () => {
  const heedful = service.client();
  const loop = await heedful.open("refused", "Say it.", { recall: false });
  await loop.report("a EUR", { findings: [] });
  await assert.rejects(heedful.report("refused", 1, "another"), (error: Refused) => {
    assert.ok(error instanceof Refused);
    assert.equal(error.code, "attempt_conflict");
    assert.equal(error.status, 409);
    assert.match(error.message, /attempt 1 of 'refused'/);
    assert.notEqual(error.requestId, "");
    return true;
  });
  await assert.rejects(heedful.report("unknown", 1, "a"), { code: "not_found", status: 404 });
  await assert.rejects(heedful.recall(""), (error: Refused) => {
    assert.equal(error.problem.errors?.[0]?.pointer, "/task");
    return true;
  });
});

test("what an agent's run taught is told to the next", async () => {
  await teachOrders(service);
  const heedful = service.client();
  const { count, lessons } = await heedful.seen("find_order", ORDER_ERROR);
  assert.equal(count, 3);
  assert.match(lessons[0]?.text ?? "", /A-7/);
  const { failures } = await heedful.before("find_order", { id: "A7" });
  const history = failures.map((failure) => failure.fix).join();

  const run = service.watch().run();
  const early = await run.before("find_order", { id: "A7" }, "c1");
  const late = await run.seen("find_order", { id: "A7" }, "c1", new Error(ORDER_ERROR));
  assert.match(history + early + late, /A-7/);
});

test("judged returns the best result with the verdict", async () => {
  const prompts: string[] = [];
  const { result, verdict, attempts } = await judged(
    { memory: service.watch(), task: "The price of a red bicycle?", check, policy: "default, attempts.limit=3" },
    async ({ prompt, messages, number }) => {
      prompts.push(messages.at(-1)?.content ?? "");
      const text = number === 1 ? "10" : model(prompt);
      return { text, steps: [{}, {}], totalUsage: { inputTokens: 7, outputTokens: 3 } };
    },
  );
  assert.equal(result.text, "12.50 EUR");
  assert.equal(verdict?.passed, true);
  assert.equal(attempts, 2);
  assert.match(prompts[1] ?? "", new RegExp(FIX));
});

test("judged counts the usage of each attempt", async () => {
  const usage = { totalUsage: { inputTokens: 7, outputTokens: 3 }, steps: [{}, {}] };
  await judged(
    { memory: service.watch(), task: "The weight?", check: () => [], id: "counted" },
    async () => ({ text: "1 kg", ...usage }),
  );
  const loop = await service.client().call("GET", "/v1/loops/counted");
  assert.deepEqual(loop.usage, { calls: 2, completion_tokens: 3, prompt_tokens: 7 });
});

test("judged takes another id if its loop has ended", async () => {
  const options = { memory: service.watch(), task: "The length?", check: () => [], id: "again" };
  const ids: string[] = [];
  for (let run = 0; run < 2; run++) {
    const { verdict } = await judged(options, async ({ id }) => {
      ids.push(id);
      return { text: "1 m" };
    });
    assert.equal(verdict?.passed, true);
  }
  assert.equal(ids[0], "again");
  assert.match(ids[1] ?? "", /^again-/);
});

for (const memoryKey of ["triage", ""]) {
  const isTold = memoryKey !== "";
  const expected = isTold ? [2, 1, 1, 1, 1] : [2, 2, 2, 2, 2];

  test(`unlike tasks ${isTold ? "with a memory key are told the rule" : "without one are not"}: loop`, async () => {
    const heedful = service.client({ project: `loop-${memoryKey}` });
    const attempts: number[] = [];
    for (const task of UNLIKE_TASKS) {
      const loop = await heedful.open(crypto.randomUUID(), task, { memoryKey });
      while (!loop.done) {
        const output = ratingOf(loop.prompt);
        await loop.report(output, { findings: severity(output) });
      }
      attempts.push(loop.attempts);
    }
    assert.deepEqual(attempts, expected);
  });

  test(`unlike tasks ${isTold ? "with a memory key are told the rule" : "without one are not"}: judged`, async () => {
    const numbers: number[] = [];
    for (const task of UNLIKE_TASKS) {
      const { passed, verdict, attempts } = await judged(
        { memory: service.watch(`judged-${memoryKey}`), task, check: severity, memoryKey },
        async ({ prompt }) => ({ text: ratingOf(prompt) }),
      );
      assert.equal(passed, true);
      assert.equal(verdict?.passed, true);
      numbers.push(attempts);
    }
    assert.deepEqual(numbers, expected);
  });
}

for (const [name, options] of Object.entries({
  "an unknown policy": { policy: "nonsense" },
  "a wrong setting": { policy: "default, attempts.limit=many" },
  "a goal that is none": { goals: ["good"] },
  "a memory key that is too long": { memoryKey: "k".repeat(300) },
  "an unknown option": { key: "triage" } as object,
  "no task": { task: "" },
})) {
  test(`judged throws what its caller has to correct: ${name}`, async () => {
    let calls = 0;
    const run = judged({ memory: service.watch(), task: "Say it.", check: () => [], ...options }, async () => {
      calls += 1;
      return { text: "it" };
    });
    await assert.rejects(run, (error: UsageError) => {
      assert.ok(error instanceof UsageError);
      assert.ok(error instanceof Refused);
      assert.equal(error.status, 422);
      return true;
    });
    assert.equal(calls, 0);
  });
}

test("judged throws if the findings of its check are none", async () => {
  const check = () => [{ check: "", message: "no name" }];
  const run = judged({ memory: service.watch(), task: "Say it.", check }, async () => ({ text: "it" }));
  await assert.rejects(run, { name: "UsageError", code: "invalid_request" });
});

test("half characters and null characters of a model do not break a run", async () => {
  const text = "a \ud83d b \0 c";
  const check = () => [{ check: "form", message: text, level: "warning" as const }];
  const { result, verdict } = await judged({ memory: service.watch(), task: text, check }, async () => ({ text }));
  assert.equal(result.text, text);
  assert.equal(verdict?.passed, true);
});

test("a project has its own memory", async () => {
  const other = service.client({ project: "other" });
  assert.equal((await other.seen("find_order", ORDER_ERROR)).count, 0);
});

test("a service with keys refuses a call without one", async () => {
  const locked = await startService();
  try {
    const key = locked.command("key", "create", "--name", "ts").split("\n")[0] ?? "";
    const code = async (client = locked.client()) =>
      client.seen("", "x").then(() => "accepted", (error: Refused) => error.code);
    for (let last = ""; last !== "key_refused"; last = await code());
    assert.equal(await code(locked.client({ key })), "accepted");
    assert.equal(await code(locked.client({ key: `${key}x` })), "key_refused");
  } finally {
    await locked.stop();
  }
});

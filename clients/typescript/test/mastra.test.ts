import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { Mastra } from "@mastra/core";
import { Agent } from "@mastra/core/agent";
import type { AgentConfig } from "@mastra/core/agent";
import { MockMemory } from "@mastra/core/memory";
import { MastraLanguageModelV2Mock, simulateReadableStream } from "@mastra/core/test-utils/llm-mock";
import { InMemoryStore } from "@mastra/core/storage";
import { createTool } from "@mastra/core/tools";
import { z } from "zod";

import { Heedful, Watch } from "../src/index.ts";
import type { Finding, Verdict } from "../src/index.ts";
import { heedfulProcessor, judged, withHeedful } from "../src/mastra.ts";
import { FAULTS, patience, urlOf } from "./faults.ts";
import { ORDER_ERROR, UNLIKE_TASKS, callsOfRuns, ratingOf, severity, startService, teachOrders, until } from "./service.ts";
import type { Service } from "./service.ts";

type Options = Parameters<MastraLanguageModelV2Mock["doGenerate"]>[0];
type Part = { type: "text"; text: string } | Call;
type Call = { type: "tool-call"; toolCallId: string; toolName: string; input: string };

let service: Service;
before(async () => {
  service = await startService();
  await teachOrders(service);
});
after(() => service.stop());

const QUESTION = "Where is order 4?";
const ANSWER = "It was sent.";
const USAGE = { inputTokens: 7, outputTokens: 3, totalTokens: 10 };

let calls = 0;
/** A call of the tool, with an id of its own. */
function findOrder(id: string): Call {
  calls += 1;
  return {
    type: "tool-call",
    toolCallId: `call-${calls}`,
    toolName: "find_order",
    input: JSON.stringify({ id }),
  };
}

/** A model that first writes the number wrongly, and puts it right after the error. */
function nextPart({ prompt }: Options): Part {
  const results = prompt.filter((message) => message.role === "tool");
  if (results.length >= 2) return { type: "text", text: ANSWER };
  return findOrder(results.length === 0 ? "A7" : "A-7");
}

function streamOf(part: Part) {
  const finishReason = part.type === "text" ? ("stop" as const) : ("tool-calls" as const);
  const words =
    part.type === "tool-call"
      ? [part]
      : [
          { type: "text-start" as const, id: "1" },
          ...part.text.split(/(?<= )/).map((delta) => ({ type: "text-delta" as const, id: "1", delta })),
          { type: "text-end" as const, id: "1" },
        ];
  return simulateReadableStream({ chunks: [...words, { type: "finish" as const, finishReason, usage: USAGE }] });
}

/** Mastra's own double of a model, which says `next` of each prompt. */
function modelOf(next: (options: Options) => Part): MastraLanguageModelV2Mock {
  return new MastraLanguageModelV2Mock({
    doGenerate: async (options) => {
      const part = next(options);
      const finishReason = part.type === "text" ? "stop" : "tool-calls";
      return { content: [part], finishReason, usage: USAGE, warnings: [] };
    },
    doStream: async (options) => ({ stream: streamOf(next(options)) }),
  });
}

/** The prompts that a double got, as text without the times that Mastra writes there. */
function prompts(model: MastraLanguageModelV2Mock): string[] {
  const all = [...model.doGenerateCalls, ...model.doStreamCalls];
  return all.map((call) => JSON.stringify(call.prompt).replaceAll(/"createdAt":\d+/g, ""));
}

/** The tool of the agent: it takes an id of one form. */
const find_order = createTool({
  id: "find_order",
  description: "Find an order.",
  inputSchema: z.object({ id: z.string() }),
  execute: async ({ id }) => {
    if (id !== "A-7") throw new Error("id must have the form A-7");
    return { state: "sent" };
  },
});

type AgentOptions = Partial<AgentConfig<string, {}, undefined, unknown>>;

/** The rest of an agent: its lines beside those of heedful. */
function agentOf(model: MastraLanguageModelV2Mock, options: AgentOptions = {}): Agent {
  return new Agent({
    id: "orders",
    name: "orders",
    instructions: "Answer.",
    // The types of the double do not fit where optional fields are exact.
    model: model as never,
    tools: { find_order },
    ...options,
  });
}

const answerOf = {
  generate: async (agent: Agent) => (await agent.generate(QUESTION)).text,
  stream: async (agent: Agent) => (await agent.stream(QUESTION)).text,
};

for (const [name, ask] of Object.entries(answerOf)) {
  test(`a failed tool's result has what fixed it before: ${name}`, async () => {
    const model = modelOf(nextPart);
    const agent = agentOf(model, withHeedful(service.watch()));
    assert.equal(await ask(agent), ANSWER);
    const told = prompts(model);
    assert.equal(told.length, 3);
    assert.match(told[1] ?? "", /fix: .*A-7/);
  });
}

test("what runs of Mastra do teaches the next: count, and the fix", async () => {
  const taught = await startService();
  try {
    const client = taught.client();
    const watch = taught.watch();
    for (const ask of [answerOf.generate, answerOf.stream, answerOf.generate]) {
      assert.equal(await ask(agentOf(modelOf(nextPart), withHeedful(watch))), ANSWER);
      await watch.settled();
    }
    const known = () => client.seen("find_order", ORDER_ERROR);
    await until(async () => (await known()).lessons.length > 0);
    assert.equal((await known()).count, 3);
    assert.match((await known()).lessons[0]?.text ?? "", /A-7/);
  } finally {
    await taught.stop();
  }
});

const DAY = { check: "day", message: "no day", fix: "say when it was sent" };
const check = (answer: string): Finding[] => (answer.includes("Monday") ? [] : [DAY]);

/** A model that finds the order and tells its day if it is asked to. */
function dayPart({ prompt }: Options): Part {
  const text = JSON.stringify(prompt);
  if (!text.includes("tool-result")) return findOrder("A-7");
  return { type: "text", text: text.includes(DAY.fix) ? "Sent on Monday." : ANSWER };
}

for (const way of ["generate", "stream"] as const) {
  test(`an answer is judged and tried again, and its usage is counted: ${way}`, async () => {
    const verdicts: (Verdict | null)[] = [];
    const model = modelOf(dayPart);
    const onVerdict = (verdict: Verdict | null) => verdicts.push(verdict);
    const agent = agentOf(model, withHeedful(service.watch(), { check, onVerdict, memoryKey: way }));
    const task = `When was order 7 sent? (${way})`;
    const result = way === "stream" ? await agent.stream(task) : await agent.generate(task);
    assert.equal(await result.text, "Sent on Monday.");
    assert.deepEqual(verdicts.map((verdict) => verdict?.decision), ["again", "done"]);
    assert.equal(verdicts[1]?.passed, true);
    assert.equal(prompts(model).length, 3);
    const { items } = await service.client().call("GET", `/v1/loops?limit=1`);
    const loop = await service.client().call("GET", `/v1/loops/${items[0].id}`);
    assert.deepEqual(loop.usage, { calls: 3, completion_tokens: 9, prompt_tokens: 21 });
  });
}

test("a mistake of one task is not made in unlike ones", async () => {
  const numbers: number[] = [];
  const watch = service.watch("unlike");
  for (const task of UNLIKE_TASKS) {
    const model = modelOf(({ prompt }) => ({ type: "text", text: ratingOf(prompt) }));
    await agentOf(model, withHeedful(watch, { check: severity, memoryKey: "mastra" })).generate(task);
    numbers.push(prompts(model).length);
  }
  assert.deepEqual(numbers, [2, 1, 1, 1, 1]);
});

test("an option that the service cannot use, and a finding that is none, are thrown", async () => {
  const ask = (options: object) =>
    agentOf(modelOf(dayPart), withHeedful(service.watch(), { check, ...options })).generate("When was order 1 sent?");
  await assert.rejects(ask({ policy: "nonsense" }), { name: "UsageError", message: /^unknown_name/ });
  await assert.rejects(ask({ check: () => [{ check: "", message: "" }] }), /invalid_request/);
});

test("without a service the check alone judges, four times at most", async () => {
  const model = modelOf(() => ({ type: "text", text: ANSWER }));
  const memory = new Watch(new Heedful({ url: "http://127.0.0.1:9" }), { onProblem: () => {} });
  const { text } = await agentOf(model, withHeedful(memory, { check })).generate("When was it sent?");
  assert.equal(text, ANSWER);
  assert.equal(prompts(model).length, 4);
});

test("the policy of a loop ends the tries, and the last answer is the result", async () => {
  const verdicts: (Verdict | null)[] = [];
  const model = modelOf(() => ({ type: "text", text: ANSWER }));
  const onVerdict = (verdict: Verdict | null) => verdicts.push(verdict);
  const options = { check, onVerdict, policy: "default, attempts.limit=3" };
  const agent = agentOf(model, withHeedful(service.watch(), options));
  const result = await agent.generate("When was order 9 sent, exactly?");
  assert.equal(result.text, ANSWER);
  assert.equal(result.tripwire, undefined);
  assert.equal(verdicts.at(-1)?.decision, "done");
  assert.equal(verdicts.at(-1)?.passed, false);
});

test("judged is the outer loop of an agent of Mastra", async () => {
  const model = modelOf(dayPart);
  const watch = service.watch();
  const agent = agentOf(model, withHeedful(watch));
  const { result, verdict, attempts } = await judged(
    { memory: watch, task: "When was order 8 sent?", check, id: "order-8" },
    ({ messages, providerOptions }) => agent.generate(messages as never, { providerOptions }),
  );
  assert.equal(result.text, "Sent on Monday.");
  assert.equal(verdict?.passed, true);
  assert.equal(attempts, 2);
  const loop = await service.client().call("GET", "/v1/loops/order-8");
  assert.deepEqual(loop.usage, { calls: 4, completion_tokens: 12, prompt_tokens: 28 });
});

test("what memory says is in no message of the result", async () => {
  const agent = agentOf(modelOf(nextPart), withHeedful(service.watch()));
  const result = await agent.generate(QUESTION);
  assert.doesNotMatch(JSON.stringify(result.response.messages), /fix: /);
});

test("a processor stands among others, and runs at the same time do not mix", async () => {
  const { watch, events } = service.heard();
  const memory = heedfulProcessor(watch);
  const steps: string[] = [];
  const other = {
    id: "other",
    processLLMRequest({ prompt }: { prompt: unknown }) {
      steps.push(JSON.stringify(prompt));
      return undefined;
    },
  };
  const options = { inputProcessors: [memory, other], outputProcessors: [memory] };
  const agent = agentOf(modelOf(nextPart), options);
  const answers = await Promise.all([1, 2, 3].map(() => agent.generate(QUESTION)));
  await watch.settled();
  assert.deepEqual(answers.map((answer) => answer.text), [ANSWER, ANSWER, ANSWER]);
  assert.deepEqual(callsOfRuns(events), [2, 2, 2]);
  assert.equal(steps.filter((step) => step.includes("fix: ")).length, 6);
});

test("a run that waits for a person goes on as the same run, and is judged", async () => {
  const { watch, events } = service.heard();
  const verdicts: (Verdict | null)[] = [];
  const onVerdict = (verdict: Verdict | null) => verdicts.push(verdict);
  const told = withHeedful(watch, { check, onVerdict });
  const slow = createTool({
    id: "find_order",
    description: "Find an order.",
    inputSchema: z.object({ id: z.string() }),
    requireApproval: true,
    execute: async () => ({ state: "sent" }),
  });
  const agent = agentOf(modelOf(dayPart), { ...told, tools: { find_order: slow } as never });
  new Mastra({ agents: { agent }, storage: new InMemoryStore() });
  const waiting = await agent.generate("When was order 6 sent?");
  assert.equal(waiting.finishReason, "suspended");
  const { toolCallId } = waiting.suspendPayload as { toolCallId: string };
  const { text } = await agent.approveToolCallGenerate({ runId: waiting.runId ?? "", toolCallId });
  assert.equal(text, "Sent on Monday.");
  assert.deepEqual(verdicts.map((verdict) => verdict?.attempt), [1, 2]);
  await watch.settled();
  const names = events.map((event) => event.name).filter(Boolean);
  assert.deepEqual(names, ["PreToolUse", "PostToolUse", "SessionEnd"]);
  assert.deepEqual(callsOfRuns(events), [1]);
});

test("the words of a stream have rejected answers, its text has not", async () => {
  const agent = agentOf(modelOf(dayPart), withHeedful(service.watch(), { check }));
  const stream = await agent.stream("When was order 3 sent?");
  let words = "";
  for await (const word of stream.textStream) words += word;
  assert.equal(words, `${ANSWER}Sent on Monday.`);
  assert.equal(await stream.text, "Sent on Monday.");
});

test("the words of a stream pass as the model makes them", async () => {
  const model = modelOf(() => ({ type: "text", text: "one two three" }));
  const { textStream } = await agentOf(model, withHeedful(service.watch())).stream("Count.");
  const words: string[] = [];
  for await (const word of textStream) words.push(word);
  assert.deepEqual(words, ["one ", "two ", "three"]);
});

test("a rejected answer is in no thread", async () => {
  const memory = new MockMemory();
  const told = withHeedful(service.watch(), { check });
  // The types of this double do not fit, either.
  const agent = agentOf(modelOf(dayPart), { ...told, memory: memory as never });
  await agent.generate("When was order 5 sent?", { memory: { thread: "thread", resource: "user" } });
  const { messages } = await memory.recall({ threadId: "thread", resourceId: "user" });
  const thread = JSON.stringify(messages);
  assert.match(thread, /Sent on Monday/);
  assert.ok(!thread.includes(ANSWER) && !thread.includes(DAY.fix));
});

for (const [name, code, , answer] of FAULTS) {
  test(`an agent does what it does without heedful: ${name}`, async () => {
    const problems: Error[] = [];
    const client = new Heedful({ url: await urlOf(answer) });
    const onProblem = (error: Error) => problems.push(error);
    const watch = new Watch(client, { waitMs: patience(code), onProblem });
    for (const ask of [answerOf.generate, answerOf.stream]) {
      const told: string[][] = [];
      for (const options of [{}, withHeedful(watch)]) {
        calls = 0;
        const model = modelOf(nextPart);
        assert.equal(await ask(agentOf(model, options)), ANSWER);
        told.push(prompts(model));
      }
      assert.deepEqual(told[1], told[0]);
    }
    const verdicts: unknown[] = [];
    const onVerdict = (verdict: Verdict | null) => verdicts.push(verdict);
    const checked = agentOf(modelOf(dayPart), withHeedful(watch, { check, onVerdict }));
    assert.equal((await checked.generate("When was order 2 sent?")).text, "Sent on Monday.");
    assert.deepEqual(verdicts, [null, null]);
    await watch.settled();
    assert.equal(problems.length, 1);
  });
}

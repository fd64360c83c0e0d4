import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { ToolLoopAgent, generateText, isStepCount, streamText, tool, wrapLanguageModel } from "ai";
import type { ModelMessage } from "ai";
import { MockLanguageModelV3, MockLanguageModelV4, simulateReadableStream } from "ai/test";
import { z } from "zod";

import { heedfulMiddleware, judged } from "../src/ai-sdk.ts";
import { Heedful, Watch } from "../src/index.ts";
import type { Finding } from "../src/index.ts";
import { FAULTS, patience, urlOf } from "./faults.ts";
import { ORDER_ERROR, UNLIKE_TASKS, callsOfRuns, ratingOf, severity, startService, teachOrders, until } from "./service.ts";
import type { Service } from "./service.ts";

type Options = Parameters<MockLanguageModelV4["doGenerate"]>[0];
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
const USAGE = {
  inputTokens: { total: 7, noCache: 7, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 3, text: 3, reasoning: 0 },
};

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
function nextPart({ prompt }: Pick<Options, "prompt">): Part {
  const results = prompt.filter((message) => message.role === "tool");
  if (results.length >= 2) return { type: "text", text: ANSWER };
  return findOrder(results.length === 0 ? "A7" : "A-7");
}

function finish(part: Part) {
  const unified = part.type === "text" ? ("stop" as const) : ("tool-calls" as const);
  return { unified, raw: undefined };
}

function streamOf(part: Part) {
  const told =
    part.type === "tool-call"
      ? [part]
      : [
          { type: "text-start" as const, id: "1" },
          ...part.text.split(/(?<= )/).map((delta) => ({ type: "text-delta" as const, id: "1", delta })),
          { type: "text-end" as const, id: "1" },
        ];
  const end = { type: "finish" as const, finishReason: finish(part), usage: USAGE };
  return simulateReadableStream({ chunks: [...told, end] });
}

/** The SDK's own double of a model, which says `next` of each prompt. */
function modelOf(next: (options: Options) => Part): MockLanguageModelV4 {
  return new MockLanguageModelV4({
    doGenerate: async (options) => {
      const part = next(options);
      return { content: [part], finishReason: finish(part), usage: USAGE, warnings: [] };
    },
    doStream: async (options) => ({ stream: streamOf(next(options)) }),
  });
}

/** The tool of the agent: it takes an id of one form. */
const tools = {
  find_order: tool({
    description: "Find an order.",
    inputSchema: z.object({ id: z.string() }),
    execute: async ({ id }) => {
      if (id !== "A-7") throw new Error("id must have the form A-7");
      return { state: "sent" };
    },
  }),
};
/** The events of a run with one failure. */
const RUN = [
  "UserPromptSubmit",
  "PreToolUse",
  "PostToolUseFailure",
  "PreToolUse",
  "PostToolUse",
  "SessionEnd",
];
const stopWhen = isStepCount(5);

/** All that a prompt says, as text. */
function said(options: Pick<Options, "prompt"> | undefined): string {
  return JSON.stringify(options?.prompt);
}

test("a failed tool's result has what fixed it before; the caller's has not", async () => {
  const model = modelOf(nextPart);
  const middleware = heedfulMiddleware(service.watch());
  const result = await generateText({
    model: wrapLanguageModel({ model, middleware }),
    tools,
    stopWhen,
    prompt: QUESTION,
  });
  assert.equal(result.text, ANSWER);
  const afterFailure = model.doGenerateCalls[1]?.prompt.at(-1);
  assert.match(JSON.stringify(afterFailure), /fix: .*A-7/);
  const bare = modelOf(nextPart);
  await generateText({ model: bare, tools, stopWhen, prompt: QUESTION });
  const without = bare.doGenerateCalls[1]?.prompt.at(-1);
  assert.ok(JSON.stringify(afterFailure).length > JSON.stringify(without).length);
  const failure = result.steps[0]?.content.find((part) => part.type === "tool-error");
  assert.equal(String(failure?.type === "tool-error" && failure.error), "Error: id must have the form A-7");
});

test("what runs of the SDK do teaches the next: count, and the fix", async () => {
  const taught = await startService();
  try {
    const client = taught.client();
    const middleware = heedfulMiddleware(taught.watch());
    const model = wrapLanguageModel({ model: modelOf(nextPart), middleware });
    for (const ask of [generateText, streamText, generateText]) {
      const result = ask({ model, tools, stopWhen, prompt: QUESTION });
      assert.equal(await (await result).text, ANSWER);
      await middleware.settled();
    }
    const known = () => client.seen("find_order", ORDER_ERROR);
    await until(async () => (await known()).lessons.length > 0);
    assert.equal((await known()).count, 3);
    assert.match((await known()).lessons[0]?.text ?? "", /A-7/);
  } finally {
    await taught.stop();
  }
});

test("what memory has for a task stands in the message of the user", async () => {
  const heedful = service.client();
  const check = (answer: string): Finding[] =>
    answer.endsWith("EUR") ? [] : [{ check: "currency", message: "none", fix: "write EUR after the number" }];
  const loop = await heedful.open("taught", "What does ticket 7 cost?", { recall: false });
  await loop.report("12.5", { findings: check("12.5") });
  await loop.report("12.50 EUR", { findings: [] });

  const model = modelOf(() => ({ type: "text", text: "9.00 EUR" }));
  const wrapped = wrapLanguageModel({ model, middleware: heedfulMiddleware(service.watch()) });
  const task = "What does ticket 8 cost?";
  await generateText({ model: wrapped, instructions: "Answer.", prompt: task });
  const [system, user] = model.doGenerateCalls[0]?.prompt ?? [];
  assert.deepEqual(system?.content, "Answer.");
  assert.match(JSON.stringify(user), /What does ticket 8 cost\?.*EUR/s);

  const messages = [
    { role: "user" as const, content: "Hello." },
    { role: "assistant" as const, content: "Hello." },
    { role: "user" as const, content: task },
  ];
  await generateText({ model: wrapped, messages });
  const prompt = model.doGenerateCalls[1]?.prompt ?? [];
  assert.doesNotMatch(JSON.stringify(prompt.slice(0, 2)), /EUR/);
  assert.match(JSON.stringify(prompt[2]), /EUR/);
});

test("judged tries again with the feedback, and counts all steps of all attempts", async () => {
  const model = modelOf(({ prompt }) => {
    const text = JSON.stringify(prompt);
    if (!text.includes('"tool"')) return findOrder("A-7");
    return { type: "text", text: text.includes("say when") ? "Sent on Monday." : ANSWER };
  });
  const watch = service.watch();
  const wrapped = wrapLanguageModel({ model, middleware: heedfulMiddleware(watch) });
  const check = (answer: string): Finding[] =>
    answer.includes("Monday") ? [] : [{ check: "day", message: "no day", fix: "say when it was sent" }];
  const { result, verdict, attempts } = await judged(
    { memory: watch, task: "When was order 7 sent?", check, id: "order-7" },
    ({ messages, providerOptions }) =>
      generateText({ model: wrapped, tools, stopWhen, messages, providerOptions }),
  );
  assert.equal(result.text, "Sent on Monday.");
  assert.equal(verdict?.passed, true);
  assert.equal(attempts, 2);
  const loop = await service.client().call("GET", "/v1/loops/order-7");
  assert.deepEqual(loop.usage, { calls: 4, completion_tokens: 12, prompt_tokens: 28 });
  assert.deepEqual(model.doGenerateCalls.map((call) => call.providerOptions?.heedful), Array(4).fill(undefined));
});

test("a mistake of one task is not made in unlike ones", async () => {
  const model = modelOf(({ prompt }) => ({ type: "text", text: ratingOf(prompt) }));
  const watch = service.watch("unlike");
  const wrapped = wrapLanguageModel({ model, middleware: heedfulMiddleware(watch) });
  const numbers: number[] = [];
  for (const task of UNLIKE_TASKS) {
    const before = model.doGenerateCalls.length;
    await judged(
      { memory: watch, task, check: severity, memoryKey: "ai-sdk" },
      ({ messages, providerOptions }) => generateText({ model: wrapped, messages, providerOptions }),
    );
    numbers.push(model.doGenerateCalls.length - before);
  }
  assert.deepEqual(numbers, [2, 1, 1, 1, 1]);
});

test("a stream passes as the model makes it", async () => {
  const part: Part = { type: "text", text: "one two three" };
  const parts = async (model: MockLanguageModelV4 | ReturnType<typeof wrapLanguageModel>) => {
    const seen: string[] = [];
    for await (const text of streamText({ model, prompt: "Count." }).textStream) seen.push(text);
    return seen;
  };
  const middleware = heedfulMiddleware(service.watch());
  const wrapped = wrapLanguageModel({ model: modelOf(() => part), middleware });
  assert.deepEqual(await parts(wrapped), ["one ", "two ", "three"]);
  assert.deepEqual(await parts(wrapped), await parts(modelOf(() => part)));
});

test("the first words of a stream arrive before its last", async () => {
  let more = () => {};
  const gate = new Promise<void>((resolve) => (more = resolve));
  const model = new MockLanguageModelV4({
    doStream: async () => ({
      stream: new ReadableStream({
        async start(controller) {
          controller.enqueue({ type: "text-start", id: "1" });
          controller.enqueue({ type: "text-delta", id: "1", delta: "first" });
          await gate;
          controller.enqueue({ type: "text-end", id: "1" });
          controller.enqueue({ type: "finish", finishReason: { unified: "stop", raw: "" }, usage: USAGE });
          controller.close();
        },
      }),
    }),
  });
  const wrapped = wrapLanguageModel({ model, middleware: heedfulMiddleware(service.watch()) });
  const words: string[] = [];
  for await (const word of streamText({ model: wrapped, prompt: "Count." }).textStream) {
    words.push(word);
    more();
  }
  assert.deepEqual(words, ["first"]);
});

test("a stream that is aborted ends its run, and the next is as before", async () => {
  const { watch, events } = service.heard();
  const middleware = heedfulMiddleware(watch);
  let isEndless = true;
  const model = new MockLanguageModelV4({
    doStream: async () => {
      if (!isEndless) return { stream: streamOf({ type: "text", text: "an answer" }) };
      const stream = new ReadableStream({
        start(controller) {
          controller.enqueue({ type: "text-start", id: "1" });
        },
        async pull(controller) {
          await new Promise((resolve) => setImmediate(resolve));
          controller.enqueue({ type: "text-delta", id: "1", delta: "more " });
        },
      });
      return { stream };
    },
  });
  const wrapped = wrapLanguageModel({ model, middleware });
  const abort = new AbortController();
  let words = 0;
  const endless = streamText({ model: wrapped, prompt: "Count.", abortSignal: abort.signal });
  for await (const _word of endless.textStream) {
    words += 1;
    if (words === 3) abort.abort();
  }
  await until(async () => events.some(({ name }) => name === "SessionEnd"));
  isEndless = false;
  assert.equal(await streamText({ model: wrapped, prompt: "Count." }).text, "an answer");
  await middleware.settled();
  const names = events.map((event) => event.name);
  assert.deepEqual(names, ["UserPromptSubmit", "SessionEnd", "UserPromptSubmit", "SessionEnd"]);
});

test("runs at the same time do not mix", async () => {
  const { watch, events } = service.heard();
  const middleware = heedfulMiddleware(watch);
  const model = wrapLanguageModel({ model: modelOf(nextPart), middleware });
  const runs = [1, 2, 3, 4].map(() => generateText({ model, tools, stopWhen, prompt: QUESTION }));
  await Promise.all(runs);
  await middleware.settled();
  assert.deepEqual(callsOfRuns(events), [2, 2, 2, 2]);
});

test("a run that waits for a person goes on as the same run", async () => {
  const { watch, events } = service.heard();
  const middleware = heedfulMiddleware(watch);
  const model = wrapLanguageModel({ model: modelOf(nextPart), middleware });
  const messages: ModelMessage[] = [{ role: "user", content: QUESTION }];
  const toolApproval = { find_order: "user-approval" as const };
  const waiting = await generateText({ model, tools, stopWhen, toolApproval, messages });
  const request = waiting.content.find((part) => part.type === "tool-approval-request");
  const approvalId = request?.approvalId ?? "";
  const approval = { type: "tool-approval-response" as const, approvalId, approved: true };
  messages.push(...waiting.response.messages, { role: "tool", content: [approval] });
  assert.equal((await generateText({ model, tools, stopWhen, messages })).text, ANSWER);
  await middleware.settled();
  assert.deepEqual(events.map((event) => event.name), RUN);
  assert.deepEqual(callsOfRuns(events), [2]);
});

test("an agent of the SDK and a model of its third version have memory, too", async () => {
  const last: Options[] = [];
  const model = new MockLanguageModelV3({
    doGenerate: async (options) => {
      last.push(options as Options);
      const part = nextPart(options as Options);
      return { content: [part], finishReason: finish(part), usage: USAGE, warnings: [] };
    },
  });
  const agent = new ToolLoopAgent({
    model: wrapLanguageModel({ model, middleware: heedfulMiddleware(service.watch()) }),
    tools,
    stopWhen,
  });
  const { text } = await agent.generate({ prompt: QUESTION });
  assert.equal(text, ANSWER);
  const bare = modelOf(nextPart);
  await generateText({ model: bare, tools, stopWhen, prompt: QUESTION });
  assert.ok(said(last[1]).length > said(bare.doGenerateCalls[1]).length);
});

test("an error of the model is the caller's, as it is", async () => {
  const failure = new Error("of the model");
  const model = modelOf(() => {
    throw failure;
  });
  const wrapped = wrapLanguageModel({ model, middleware: heedfulMiddleware(service.watch()) });
  await assert.rejects(generateText({ model: wrapped, prompt: "Fail.", maxRetries: 0 }), failure);
});

for (const [name, code, , answer] of FAULTS) {
  test(`an agent does what it does without heedful: ${name}`, async () => {
    const problems: Error[] = [];
    const client = new Heedful({ url: await urlOf(answer) });
    const onProblem = (error: Error) => problems.push(error);
    const middleware = heedfulMiddleware(new Watch(client, { waitMs: patience(code), onProblem }));
    for (const ask of [generateText, streamText]) {
      const told: string[][] = [];
      for (const isWrapped of [false, true]) {
        calls = 0;
        const bare = modelOf(nextPart);
        const model = isWrapped ? wrapLanguageModel({ model: bare, middleware }) : bare;
        const result = await ask({ model, tools, stopWhen, prompt: QUESTION });
        assert.equal(await result.text, ANSWER);
        told.push([...bare.doGenerateCalls, ...bare.doStreamCalls].map(said));
      }
      assert.deepEqual(told[1], told[0]);
    }
    await middleware.settled();
    assert.equal(problems.length, 1);
  });
}

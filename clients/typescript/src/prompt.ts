// What stands in the prompt of a model call, as the AI SDK and Mastra write it: the task,
// the calls of tools since then, and their results. The prompt of each step has all of
// it, so one place is enough to tell memory what happened, and to show what it says.

import { VALUES_LEFT_OUT } from "./run.ts";
import type { Run } from "./run.ts";

type Part = { type: string; [field: string]: any };
type Message = { role: string; content: string | Part[]; [field: string]: any };
export type Prompt = readonly Message[];

interface Call {
  tool: string;
  input: unknown;
  advice: Promise<string>[];
}

/** What a call of a model says: the text, the tools that the agent has to run. */
export interface ToolCall {
  type: string;
  toolCallId: string;
  toolName: string;
  input: unknown;
  providerExecuted?: boolean | undefined;
}

/** The arguments of a call, which a model writes as text. */
export function inputOf(input: unknown): unknown {
  if (typeof input !== "string") return input;
  try {
    return JSON.parse(input);
  } catch {
    return input;
  }
}

function textOf(message: Message): string {
  if (typeof message.content === "string") return message.content;
  const texts = message.content.filter((part) => part.type === "text");
  return texts.map((part) => part.text).join("\n");
}

/** The place of the task: the last message of a user with words; -1 without one. */
export function taskPlace(prompt: Prompt): number {
  return prompt.findLastIndex((message) => message.role === "user" && textOf(message).trim() !== "");
}

/** The words of the task. */
export function taskOf(prompt: Prompt): string {
  const message = prompt[taskPlace(prompt)];
  return message === undefined ? "" : textOf(message);
}

/** The ids of the calls since the task. */
export function callIds(prompt: Prompt): string[] {
  const since = prompt.slice(taskPlace(prompt) + 1);
  const parts = since.flatMap((message) => (Array.isArray(message.content) ? message.content : []));
  return parts.filter((part) => part.type === "tool-call").map((part) => part.toolCallId);
}

/** A user's message with more text, in the form that it has. */
function withText(message: Message, text: string): Message {
  if (typeof message.content === "string") {
    return { ...message, content: `${message.content}\n\n${text}` };
  }
  return { ...message, content: [...message.content, { type: "text", text }] };
}

/** The output of a tool with advice after it, in a form that each provider takes. */
function withAdvice(output: Part, advice: string): Part {
  switch (output.type) {
    case "text":
    case "error-text":
      return { ...output, value: `${output.value}\n\n${advice}` };
    case "json":
      return { ...output, type: "text", value: `${JSON.stringify(output.value)}\n\n${advice}` };
    case "error-json":
      return { ...output, type: "error-text", value: `${JSON.stringify(output.value)}\n\n${advice}` };
    case "content":
      return { ...output, value: [...output.value, { type: "text", text: advice }] };
    default:
      return output;
  }
}

/** The value of an output, as the tool returned it. */
function valueOf(output: Part): unknown {
  if (output.type !== "content") return output.value;
  return output.value.filter((part: Part) => part.type === "text").map((part: Part) => part.text);
}

/** The words of a part, and what a call or a result has in place of words. */
function wordsOf(part: Part): string {
  const value = part.output === undefined ? (part.text ?? part.input ?? part) : valueOf(part.output);
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** What the model has read before its task, but for the words of the user and the system. */
function earlierWords(prompt: Prompt): string {
  const messages = prompt.filter((message) => message.role === "assistant" || message.role === "tool");
  const texts = messages.flatMap((message) =>
    typeof message.content === "string" ? [message.content] : message.content.map(wordsOf),
  );
  return texts.join("\n");
}

/** Whether a part of an answer is of a tool that the provider of the model runs. */
export function isProvided(part: Part): boolean {
  return part.type === "tool-result" || part.type === "source" || part.providerExecuted === true;
}

/** What is known of one run: its task, its calls, and what memory said about them. */
export class Conversation {
  readonly run: Run;
  #lessons: Promise<string> | undefined;
  readonly #calls = new Map<string, Call>();
  readonly #told = new Set<string>();
  #isBegun = false;

  /** With `lessons`, memory was asked for the task already. */
  constructor(run: Run, lessons?: string) {
    this.run = run;
    this.#lessons = lessons === undefined ? undefined : Promise.resolve(lessons);
  }

  /** Tell memory that a tool is called, before it runs; nobody waits for the answer. */
  called(call: Pick<ToolCall, "toolCallId" | "toolName" | "input">): void {
    if (this.#calls.has(call.toolCallId)) return;
    const input = inputOf(call.input);
    const advice = [this.run.before(call.toolName, input, call.toolCallId)];
    this.#calls.set(call.toolCallId, { tool: call.toolName, input, advice });
  }

  /** Tell memory that a tool of the provider has run: the model may have read more than this. */
  provided(part: Part): void {
    const id: string = part.toolCallId ?? part.id ?? "";
    const key = `${part.type} ${id}`;
    if (this.#told.has(key)) return;
    this.#told.add(key);
    const words = part.result === undefined ? wordsOf(part) : JSON.stringify(part.result);
    void this.run.read("provider_tools", key, `${words}\n${VALUES_LEFT_OUT}`);
  }

  /** Tell memory what the prompt has of results; return the prompt with what it says. */
  async advised<P extends Prompt>(prompt: P): Promise<P> {
    const place = taskPlace(prompt);
    const task = prompt[place];
    if (task === undefined) return prompt;
    this.#lessons ??= this.run.recall(textOf(task));
    if (!this.#isBegun) {
      this.#isBegun = true;
      const words = earlierWords(prompt.slice(0, place));
      if (words) void this.run.read("earlier_turns", "earlier", words);
    }
    for (const message of prompt.slice(place + 1)) this.#read(message);

    const messages = prompt.map((message, index) => {
      if (index === place) return this.#lessons!.then((text) => (text ? withText(message, text) : message));
      return index > place && message.role === "tool" ? this.#answered(message) : message;
    });
    return (await Promise.all(messages)) as unknown as P;
  }

  /** Tell memory the calls and results of a message that it was not told yet. */
  #read(message: Message): void {
    if (typeof message.content === "string") return;
    for (const part of message.content) {
      if (message.role === "assistant" && isProvided(part)) this.provided(part);
      else if (part.type === "tool-call") this.called(part as ToolCall & Part);
      if (part.type === "tool-result" && message.role === "tool") this.#result(part);
    }
  }

  #result(part: Part): void {
    const id = part.toolCallId;
    const call = this.#calls.get(id);
    const { output } = part;
    // A person refused the call, so the tool neither worked nor failed.
    if (call === undefined || this.#told.has(id) || output?.type === "execution-denied") return;
    this.#told.add(id);
    const failed = output.type === "error-text" || output.type === "error-json";
    const value = valueOf(output);
    const answer = failed
      ? this.run.seen(call.tool, call.input, id, value)
      : this.run.after(call.tool, call.input, id, value);
    call.advice.push(answer);
  }

  /** A message of results with what memory says about each. */
  async #answered(message: Message): Promise<Message> {
    if (typeof message.content === "string") return message;
    const parts = message.content.map(async (part) => {
      const call = this.#calls.get(part.toolCallId);
      if (part.type !== "tool-result" || call === undefined) return part;
      const advice = (await Promise.all(call.advice)).filter(Boolean).join("\n\n");
      return advice ? { ...part, output: withAdvice(part.output, advice) } : part;
    });
    return { ...message, content: await Promise.all(parts) };
  }
}

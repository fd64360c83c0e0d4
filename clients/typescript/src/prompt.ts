// What stands in the prompt of a model call, as the AI SDK and Mastra write it: the task,
// the calls of tools since then, and their results. The prompt of each step has all of
// it, so one place is enough to tell memory what happened, and to show what it says.

import { VALUES_LEFT_OUT } from "./run.ts";
import type { Run } from "./run.ts";

export type Part = { type: string; [field: string]: any };
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

/** The value of an output, as the tool returned it; a mark stands for a file. */
function valueOf(output: Part): unknown {
  if (output.type !== "content") return output.value;
  return output.value.map((part: Part) => (part.type === "text" ? part.text : VALUES_LEFT_OUT));
}

/** The parts of a message. */
function partsOf({ content }: Message): readonly Part[] {
  return typeof content === "string" ? [{ type: "text", text: content }] : content;
}

/** What is known of one run: its task, its calls, and what memory said. */
export class Conversation {
  readonly run: Run;
  #lessons: Promise<string> | undefined;
  readonly #calls = new Map<string, Call>();
  readonly #providerIds = new Set<string>();
  readonly #told = new Set<string>();

  /** With `lessons`, memory was asked for the task already. */
  constructor(run: Run, lessons?: string) {
    this.run = run;
    this.#lessons = lessons === undefined ? undefined : Promise.resolve(lessons);
  }

  /** Hear parts of an answer of the model, whole or as they come. */
  heard(parts: readonly Part[]): void {
    for (const part of parts) if (part.type === "tool-call") this.#heardCall(part as Part & ToolCall);
  }

  /** Whether the provider of the model made this call. */
  isOfProvider(call: string): boolean {
    return this.#providerIds.has(call);
  }

  /** Tell memory that a tool is called, before it runs; nobody waits for the answer. */
  called(call: Pick<ToolCall, "toolCallId" | "toolName" | "input">): void {
    if (this.#calls.has(call.toolCallId)) return;
    const input = inputOf(call.input);
    const advice = [this.run.before(call.toolName, input, call.toolCallId)];
    this.#calls.set(call.toolCallId, { tool: call.toolName, input, advice });
  }

  /** Tell memory what the prompt has of results; return the prompt with what it says. */
  async advised<P extends Prompt>(prompt: P): Promise<P> {
    const place = taskPlace(prompt);
    const task = prompt[place];
    if (task === undefined) return prompt;
    this.#lessons ??= this.run.recall(textOf(task));
    for (const message of prompt.slice(place + 1)) this.#hear(message);

    const messages = prompt.map((message, index) => {
      if (index === place) return this.#lessons!.then((text) => (text ? withText(message, text) : message));
      return index > place && message.role === "tool" ? this.#answered(message) : message;
    });
    return (await Promise.all(messages)) as unknown as P;
  }

  /** Tell memory what a message since the task has that it was not told yet. */
  #hear(message: Message): void {
    for (const part of partsOf(message)) {
      if (part.type === "tool-call") this.#heardCall(part as Part & ToolCall);
      else if (part.type === "tool-result") this.#result(part);
    }
  }

  #heardCall(call: Part & ToolCall): void {
    if (call.providerExecuted) this.#providerIds.add(call.toolCallId);
    else this.called(call);
  }

  /** Tell memory the result of a call of this run, once. */
  #result(part: Part): void {
    const id = part.toolCallId;
    const call = this.#calls.get(id);
    // A person refused the call, so the tool neither worked nor failed.
    const isRefused = part.output?.type === "execution-denied";
    if (call === undefined || this.#told.has(id) || isRefused) return;
    this.#told.add(id);
    this.#answer(call, id, part.output);
  }

  #answer(call: Call, id: string, output: Part): void {
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

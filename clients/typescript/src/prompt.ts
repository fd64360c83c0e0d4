// What stands in the prompt of a model call, as the AI SDK and Mastra write it: the task,
// the calls of tools since then, and their results. The prompt of each step has all of
// it, so one place is enough to tell memory what happened, and to show what it says.
//
// All else that the model reads is not the agent's own: earlier turns, other messages,
// and what tools of its provider said. Memory is told it, so that a fix in words of a
// page is known as such.

import { VALUES_LEFT_OUT } from "./run.ts";
import type { Run } from "./run.ts";

export type Part = { type: string; [field: string]: any };
type Message = { role: string; content: string | Part[]; [field: string]: any };
export type Prompt = readonly Message[];

interface EarlierCall {
  tool: string;
  input: unknown;
}

interface Call extends EarlierCall {
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

/** A text without blanks: an SDK may put other ones between the words of a model. */
function withoutBlanks(text: string): string {
  return text.replaceAll(/\s+/g, "");
}

/** What is known of one run: its task, its calls, what memory said, and what was read. */
export class Conversation {
  readonly run: Run;
  #lessons: Promise<string> | undefined;
  readonly #calls = new Map<string, Call>();
  readonly #earlierCalls = new Map<string, EarlierCall>();
  // The calls of the provider's tools that have no result yet.
  readonly #providerCalls = new Map<string, Part>();
  readonly #providerIds = new Set<string>();
  readonly #told = new Set<string>();
  // The other words that memory was told.
  readonly #known = new Set<string>();
  // What the model said in this run, without blanks.
  #said = "";

  /** With `lessons`, memory was asked for the task already. */
  constructor(run: Run, lessons?: string) {
    this.run = run;
    this.#lessons = lessons === undefined ? undefined : Promise.resolve(lessons);
  }

  /** Hear parts of an answer of the model, whole or as they come. */
  heard(parts: readonly Part[]): void {
    for (const part of parts) {
      switch (part.type) {
        case "text":
        case "text-delta":
        case "reasoning":
        case "reasoning-delta":
          this.#said += withoutBlanks(part.text ?? part.delta ?? "");
          break;
        case "tool-call":
          this.#heardCall(part as Part & ToolCall, true);
          break;
        case "tool-result":
          this.#providerCalls.delete(part.toolCallId);
          if (!part.preliminary && !this.#calls.has(part.toolCallId)) this.#provided(part);
          break;
        case "source":
        case "custom":
          this.#provided(part);
      }
    }
  }

  /** Whether the provider of the model made this call. */
  isOfProvider(call: string): boolean {
    return this.#providerIds.has(call);
  }

  /** Tell memory that the model answered; a tool of its provider may show it what nobody sees. */
  answered(): void {
    for (const part of this.#providerCalls.values()) this.#provided(part);
    this.#providerCalls.clear();
  }

  /** Tell memory that a tool is called, before it runs; nobody waits for the answer. */
  called(call: Pick<ToolCall, "toolCallId" | "toolName" | "input">): void {
    if (this.#calls.has(call.toolCallId)) return;
    // What the model read before it made this call.
    this.answered();
    const input = inputOf(call.input);
    const advice = [this.run.before(call.toolName, input, call.toolCallId)];
    this.#calls.set(call.toolCallId, { tool: call.toolName, input, advice });
  }

  /** Tell memory what the prompt has of results; return the prompt with what it says. */
  async advised<P extends Prompt>(prompt: P): Promise<P> {
    const place = taskPlace(prompt);
    const task = prompt[place];
    if (task === undefined) return prompt;
    // The task is told by the question for lessons; what was read before it, goes with it.
    const isAsked = this.#lessons === undefined;
    if (isAsked) this.#known.add(textOf(task));
    for (const [index, message] of prompt.entries()) this.#hear(message, index > place);
    this.answered();
    if (isAsked) this.#lessons = this.run.recall(textOf(task));

    const messages = prompt.map((message, index) => {
      if (index === place) return this.#lessons!.then((text) => (text ? withText(message, text) : message));
      return index > place && message.role === "tool" ? this.#answered(message) : message;
    });
    return (await Promise.all(messages)) as unknown as P;
  }

  /** Tell memory what a message has that it was not told yet; `isSince` the task. */
  #hear(message: Message, isSince: boolean): void {
    const parts = partsOf(message);
    if (message.role === "user" || message.role === "system") {
      this.#words("user", textOf(message));
      if (parts.some((part) => part.type !== "text")) this.#words("other", VALUES_LEFT_OUT);
      return;
    }
    for (const part of parts) {
      switch (part.type) {
        case "text":
        case "reasoning":
          // The words of an earlier answer may be those of a page that is gone.
          if (!this.#said.includes(withoutBlanks(part.text))) this.#words("other", part.text);
          break;
        case "tool-call":
          this.#heardCall(part as Part & ToolCall, isSince);
          break;
        case "tool-result":
          this.#result(part);
          break;
        case "custom":
          this.#provided(part);
          break;
        case "file":
        case "reasoning-file":
          if (!isSince) this.#words("other", VALUES_LEFT_OUT);
      }
    }
  }

  #heardCall(call: Part & ToolCall, isSince: boolean): void {
    if (call.providerExecuted) {
      this.#providerIds.add(call.toolCallId);
      this.#providerCalls.set(call.toolCallId, call);
    } else if (isSince) {
      this.called(call);
    } else {
      this.#earlierCalls.set(call.toolCallId, { tool: call.toolName, input: inputOf(call.input) });
    }
  }

  /** Tell memory words that the agent has read, once. */
  #words(by: "user" | "other", text: string): void {
    if (text.trim() === "" || this.#known.has(text) || this.run.hasWritten(text)) return;
    this.#known.add(text);
    this.run.read({ by, text });
  }

  /** Tell memory what a tool of the provider said, once. */
  #provided(part: Part): void {
    const key = part.toolCallId ? `${part.type} ${part.toolCallId}` : JSON.stringify(part);
    if (!this.#known.has(key)) this.run.read({ by: "provider", item: part });
    this.#known.add(key);
  }

  /** Tell memory the result of a call, once: of this run, of an earlier one, or of the provider. */
  #result(part: Part): void {
    const id = part.toolCallId;
    this.#providerCalls.delete(id);
    // A person refused the call, so the tool neither worked nor failed.
    if (this.#told.has(id) || part.output?.type === "execution-denied") return;
    this.#told.add(id);
    const call = this.#calls.get(id);
    const earlier = this.#earlierCalls.get(id);
    if (call !== undefined) this.#answer(call, id, part.output);
    else if (earlier !== undefined) this.run.read({ by: "tool", ...earlier, output: valueOf(part.output) });
    else this.#provided(part);
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

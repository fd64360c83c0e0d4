// Middleware for models of the Vercel AI SDK: `wrapLanguageModel({ model, middleware })`.
//
// It changes what the model reads, never what a tool or the caller gets: memory stands
// in the message of the user, advice about a call stands in its result. The types are
// those that the middleware uses, so it fits each release of the SDK that has them.

import { Heedful } from "./client.ts";
import { Conversation, callIds, taskPlace } from "./prompt.ts";
import type { Prompt, ToolCall } from "./prompt.ts";
import { Watch, watchOf } from "./run.ts";

export { judged } from "./judged.ts";

interface Params {
  prompt: Prompt;
  providerOptions?: Record<string, any> | undefined;
}

type StreamPart = { type: string };

/** The middleware of a model; its types are the part of the SDK's that it uses. */
export interface HeedfulMiddleware {
  specificationVersion: any;
  transformParams<P>(options: { params: P }): Promise<P>;
  wrapGenerate<P, R>(options: { doGenerate: () => PromiseLike<R>; params: P }): Promise<R>;
  wrapStream<P, R>(options: { doStream: () => PromiseLike<R>; params: P }): Promise<R>;
  /** Wait until all that was told has arrived: for programs that end at once. */
  settled(): Promise<void>;
}

// A run that waits for a person may go on much later; the oldest are forgotten first.
const MAX_OPEN_RUNS = 1_000;

/** The runs that have not ended: by their names, and by the ids of their calls. */
class OpenRuns {
  readonly #watch: Watch;
  readonly #named = new Map<string, Conversation>();
  readonly #byCall = new Map<string, Conversation>();
  // A call that the SDK tries again has the same prompt.
  readonly #byPrompt = new WeakMap<object, Conversation>();

  constructor(watch: Watch) {
    this.#watch = watch;
  }

  /** The run of a prompt: that of its name, of its calls, or a new one. */
  of(prompt: Prompt, name: string | undefined, lessons: string | undefined): Conversation {
    if (name !== undefined) {
      const known = this.#named.get(name) ?? new Conversation(this.#watch.run(name), lessons);
      return this.#keep(this.#named, name, known);
    }
    const call = callIds(prompt).find((id) => this.#byCall.has(id));
    const known = call === undefined ? this.#byPrompt.get(prompt) : this.#byCall.get(call);
    const conversation = known ?? new Conversation(this.#watch.run(), lessons);
    this.#byPrompt.set(prompt, conversation);
    return conversation;
  }

  called(conversation: Conversation, call: ToolCall): void {
    conversation.called(call);
    this.#keep(this.#byCall, call.toolCallId, conversation);
  }

  ended(conversation: Conversation): void {
    for (const [id, other] of this.#byCall) if (other === conversation) this.#byCall.delete(id);
    void conversation.run.end();
  }

  #keep(runs: Map<string, Conversation>, id: string, conversation: Conversation): Conversation {
    runs.delete(id);
    runs.set(id, conversation);
    for (const oldest of runs.keys()) {
      if (runs.size <= MAX_OPEN_RUNS) break;
      runs.delete(oldest);
    }
    return conversation;
  }
}

/** Middleware by which each call of a model has memory in its prompt.
 *
 * A run is what `generateText` or `streamText` does with one task; it ends with an
 * answer that calls no tool. `providerOptions: { heedful: { run: "id" } }` names a run
 * that does not end by itself; `judged` gives such a name.
 */
export function heedfulMiddleware(memory: Heedful | Watch): HeedfulMiddleware {
  const watch = watchOf(memory);
  const runs = new OpenRuns(watch);
  const conversations = new WeakMap<object, { conversation: Conversation; named: boolean }>();

  /** Tell memory what a model answered. */
  function answered(params: unknown, calls: readonly ToolCall[]): void {
    const known = conversations.get(params as object);
    if (known === undefined) return;
    for (const call of calls) runs.called(known.conversation, call);
    if (calls.length === 0 && !known.named) runs.ended(known.conversation);
  }

  return {
    specificationVersion: "v4",

    async transformParams<P>({ params }: { params: P }): Promise<P> {
      const { prompt, providerOptions } = params as Params;
      const { heedful: own, ...others } = providerOptions ?? {};
      const rest = own === undefined ? params : { ...params, providerOptions: others };
      if (taskPlace(prompt) < 0) return rest as P;
      const name = typeof own?.run === "string" ? own.run : undefined;
      // Who names a judged run has asked memory for its task.
      const conversation = runs.of(prompt, name, own?.recall === false ? "" : undefined);
      const advised = { ...rest, prompt: await conversation.advised(prompt) };
      conversations.set(advised, { conversation, named: name !== undefined });
      return advised as P;
    },

    async wrapGenerate({ doGenerate, params }) {
      const result: any = await doGenerate();
      answered(params, toolCalls(result.content));
      return result;
    },

    async wrapStream({ doStream, params }) {
      const result: any = await doStream();
      const calls: ToolCall[] = [];
      // The platform knows `cancel`; the types of TypeScript 5.9 do not.
      const listener: Transformer<StreamPart, StreamPart> & { cancel(): void } = {
        transform(part, controller) {
          const known = conversations.get(params as object);
          for (const call of toolCalls([part])) {
            calls.push(call);
            // The SDK runs a tool as soon as its call is complete.
            if (known) runs.called(known.conversation, call);
          }
          controller.enqueue(part);
        },
        flush() {
          answered(params, calls);
        },
        // Nobody goes on with a stream that was aborted or that broke.
        cancel() {
          answered(params, []);
        },
      };
      const heard = new TransformStream(listener);
      return { ...result, stream: result.stream.pipeThrough(heard) };
    },

    settled: () => watch.settled(),
  };
}

/** The calls in an answer that the agent has to make. */
function toolCalls(parts: readonly any[]): ToolCall[] {
  return parts.filter((part) => part.type === "tool-call" && !part.providerExecuted);
}

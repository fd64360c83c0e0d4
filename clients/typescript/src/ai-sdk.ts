// Middleware for models of the Vercel AI SDK: `wrapLanguageModel({ model, middleware })`.
//
// It changes what the model reads, never what a tool or the caller gets: memory stands
// in the message of the user, advice about a call stands in its result. The types are
// those that the middleware uses, so it fits each release of the SDK that has them.

import { Heedful } from "./client.ts";
import { Conversation, callIds, taskPlace } from "./prompt.ts";
import type { Part, Prompt } from "./prompt.ts";
import { MAX_OPEN_RUNS, Watch, watchOf } from "./run.ts";

export { judged } from "./judged.ts";

interface Params {
  prompt: Prompt;
  providerOptions?: Record<string, any> | undefined;
}

/** The middleware of a model; its types are the part of the SDK's that it uses. */
export interface HeedfulMiddleware {
  specificationVersion: any;
  transformParams<P>(options: { params: P }): Promise<P>;
  wrapGenerate<P, R>(options: { doGenerate: () => PromiseLike<R>; params: P }): Promise<R>;
  wrapStream<P, R>(options: { doStream: () => PromiseLike<R>; params: P }): Promise<R>;
  /** Wait until all that was told has arrived: for programs that end at once. */
  settled(): Promise<void>;
}

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
      const run = this.#watch.run(name);
      const known = this.#named.get(name);
      // A name that has ended begins another run.
      const conversation = known?.run === run ? known : new Conversation(run, lessons);
      return this.#keep(this.#named, name, conversation);
    }
    const call = callIds(prompt).find((id) => this.#byCall.has(id));
    const known = call === undefined ? this.#byPrompt.get(prompt) : this.#byCall.get(call);
    const conversation = known ?? new Conversation(this.#watch.run(), lessons);
    this.#byPrompt.set(prompt, conversation);
    return conversation;
  }

  /** Hear parts of an answer; return whether they have calls that the agent makes. */
  heard(conversation: Conversation, parts: readonly Part[]): boolean {
    conversation.heard(parts);
    const calls = parts.filter((part) => part.type === "tool-call" && !part.providerExecuted);
    for (const call of calls) this.#keep(this.#byCall, call.toolCallId, conversation);
    return calls.length > 0;
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

  /** End the run of an answer that is complete, unless it has calls, or a name. */
  function answered(params: unknown, hasCalls: boolean): void {
    const known = conversations.get(params as object);
    if (known !== undefined && !hasCalls && !known.named) runs.ended(known.conversation);
  }

  /** Tell memory parts of an answer; return whether they have calls that the agent makes. */
  function heard(params: unknown, parts: readonly Part[]): boolean {
    const known = conversations.get(params as object);
    return known !== undefined && runs.heard(known.conversation, parts);
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
      answered(params, heard(params, result.content));
      return result;
    },

    async wrapStream({ doStream, params }) {
      const result: any = await doStream();
      let hasCalls = false;
      // The platform knows `cancel`; the types of TypeScript 5.9 do not.
      const listener: Transformer<Part, Part> & { cancel(): void } = {
        transform(part, controller) {
          // The SDK runs a tool as soon as its call is complete.
          if (heard(params, [part])) hasCalls = true;
          controller.enqueue(part);
        },
        flush() {
          answered(params, hasCalls);
        },
        // Nobody goes on with a stream that was aborted or that broke.
        cancel() {
          answered(params, false);
        },
      };
      const heardStream = result.stream.pipeThrough(new TransformStream(listener));
      return { ...result, stream: heardStream };
    },

    settled: () => watch.settled(),
  };
}

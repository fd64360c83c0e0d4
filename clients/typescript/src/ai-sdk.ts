// Middleware for models of the Vercel AI SDK: `wrapLanguageModel({ model, middleware })`.
//
// It changes what the model reads, never what a tool or the caller gets: memory stands
// in the message of the user, advice about a call stands in its result. The types are
// those that the middleware uses, so it fits each release of the SDK that has them.

import { Heedful } from "./client.ts";
import { Conversation, callIds, isProvided, taskPlace } from "./prompt.ts";
import type { Prompt } from "./prompt.ts";
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

  /** Tell memory of a part of an answer; return whether it is a call that the agent makes. */
  heard(conversation: Conversation, part: any): boolean {
    if (isProvided(part)) conversation.provided(part);
    else if (part.type === "tool-call") {
      conversation.called(part);
      this.#keep(this.#byCall, part.toolCallId, conversation);
      return true;
    }
    return false;
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

  /** Tell memory a part of what a model answers; return whether it is a call of the agent. */
  function heard(params: unknown, part: any): boolean {
    const known = conversations.get(params as object);
    return known !== undefined && runs.heard(known.conversation, part);
  }

  /** End the run of an answer that calls no tool, unless it has a name. */
  function answered(params: unknown, calls: number): void {
    const known = conversations.get(params as object);
    if (known !== undefined && calls === 0 && !known.named) runs.ended(known.conversation);
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
      // In the order of the answer: what the model read comes before what it does then.
      const calls = result.content.filter((part: any) => heard(params, part));
      answered(params, calls.length);
      return result;
    },

    async wrapStream({ doStream, params }) {
      const result: any = await doStream();
      let calls = 0;
      // The platform knows `cancel`; the types of TypeScript 5.9 do not.
      const listener: Transformer<StreamPart, StreamPart> & { cancel(): void } = {
        transform(part, controller) {
          // The SDK runs a tool as soon as its call is complete.
          if (heard(params, part)) calls += 1;
          controller.enqueue(part);
        },
        flush() {
          answered(params, calls);
        },
        // Nobody goes on with a stream that was aborted or that broke.
        cancel() {
          answered(params, 0);
        },
      };
      const told = new TransformStream(listener);
      return { ...result, stream: result.stream.pipeThrough(told) };
    },

    settled: () => watch.settled(),
  };
}

// What can be wrong with a service, and with what answers in its place.

import { once } from "node:events";
import { createServer } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import { after } from "node:test";

import { Refused, Unreachable } from "../src/index.ts";

export type Answer = (request: IncomingMessage, response: ServerResponse) => void;
const stops: (() => void)[] = [];
after(() => stops.forEach((stop) => stop()));

/** The address of a server that answers like this. */
export async function serve(answer: Answer): Promise<string> {
  const server = createServer((request, response) => {
    request.resume();
    request.on("end", () => answer(request, response));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  stops.push(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = server.address();
  return typeof address === "object" ? `http://127.0.0.1:${address?.port}` : "";
}

export function send(status: number, body: unknown, headers: Record<string, string> = {}): Answer {
  const isText = typeof body === "string";
  return (_, response) => {
    response.writeHead(status, {
      "content-type": isText ? "text/html" : "application/json",
      ...headers,
    });
    response.end(isText ? body : JSON.stringify(body));
  };
}

export function problem(status: number, code: string): unknown {
  return { type: "about:blank", title: code, status, code, detail: `it is ${code}` };
}

const HTML = "<html><body>502 Bad Gateway</body></html>";
export const LONG = "x".repeat(5 * 1024 * 1024);
export const advice = (text: string) => ({ hookSpecificOutput: { additionalContext: text } });
type Kind = typeof Refused | typeof Unreachable;
export const FAULTS: [name: string, code: string, kind: Kind, answer: Answer | null][] = [
  ["nobody listens", "unreachable", Unreachable, null],
  ["no answer ever", "timeout", Unreachable, () => undefined],
  ["headers, then nothing", "timeout", Unreachable, (_, response) => response.writeHead(200).write("{")],
  ["a body that breaks off", "unreachable", Unreachable, (_, response) => {
    response.writeHead(200, { "content-length": "100" });
    response.write("{", () => response.destroy());
  }],
  ["a connection that breaks", "unreachable", Unreachable, (_, response) => response.destroy()],
  ["401", "key_refused", Refused, send(401, problem(401, "key_refused"))],
  ["429", "too_many_requests", Refused, send(429, problem(429, "too_many_requests"), { "retry-after": "60" })],
  ["503", "busy", Refused, send(503, problem(503, "busy"))],
  ["500 with HTML", "not_heedful", Unreachable, send(500, HTML)],
  ["200 with HTML", "not_heedful", Unreachable, send(200, HTML)],
  ["a page to move to", "not_heedful", Unreachable, send(302, "", { location: "https://example.com" })],
  ["JSON of another kind", "not_heedful", Unreachable, send(500, { error: "no" })],
  ["a text as JSON", "not_heedful", Unreachable, send(200, '"text"')],
  ["5 MB", "not_heedful", Unreachable, send(200, advice(LONG))],
];

/** How long to wait, in milliseconds: long where the wait is not what is tested. */
export function patience(code: string): number {
  return code === "timeout" ? 200 : 30_000;
}

/** The address of a server with a fault; where nobody listens, if it has none. */
export async function urlOf(answer: Answer | null): Promise<string> {
  return answer === null ? "http://127.0.0.1:9" : serve(answer);
}

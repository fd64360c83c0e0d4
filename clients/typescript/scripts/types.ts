// Makes src/api.ts from docs/openapi.json: the types of the routes that the client calls.
//
//   node scripts/types.ts            writes the file (needs npm install)
//   node scripts/types.ts --check    fails if it is stale (needs nothing)

import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";

const DESCRIPTION = new URL("../../../docs/openapi.json", import.meta.url);
const TYPES = new URL("../src/api.ts", import.meta.url);
const ROUTES: Record<string, string> = {
  "/v1/loops/{id}": "put",
  "/v1/loops/{id}/attempts/{n}": "put",
  "/v1/recall": "post",
  "/v1/before": "post",
  "/v1/seen": "post",
};

type Json = Record<string, any>;

/** The names of all schemas that a part of the description refers to. */
function references(part: unknown, schemas: Json, names = new Set<string>()): Set<string> {
  const text = JSON.stringify(part);
  for (const [, name] of text.matchAll(/"#\/components\/schemas\/([^"]+)"/g)) {
    if (name === undefined || names.has(name)) continue;
    names.add(name);
    references(schemas[name], schemas, names);
  }
  return names;
}

/** Data without the members of one name; a property may have this name, and stays. */
function without(member: string, data: unknown): any {
  const text = JSON.stringify(data, (name, value) => {
    const isObject = value !== null && typeof value === "object" && !Array.isArray(value);
    if (!isObject || name === "properties") return value;
    const { [member]: _, ...rest } = value;
    return rest;
  });
  return JSON.parse(text);
}

/** The part of the description that the client uses. */
function used(description: Json): Json {
  const paths: Json = {};
  for (const [path, method] of Object.entries(ROUTES)) {
    paths[path] = { [method]: description.paths[path][method] };
  }
  const all = description.components.schemas;
  const schemas: Json = {};
  for (const name of [...references(paths, all)].sort()) schemas[name] = all[name];
  const info = { title: description.info.title, version: "" };
  const part = { openapi: description.openapi, info, paths, components: { schemas } };
  return without("example", part);
}

const part = used(JSON.parse(await readFile(DESCRIPTION, "utf8")));
// Other words make the types no other.
const worded = JSON.stringify(without("description", part));
const digest = createHash("sha256").update(worded).digest("hex");
const header = `// Made by scripts/types.ts from docs/openapi.json, whose types have the SHA-256\n// ${digest}.\n\n`;

if (process.argv.includes("--check")) {
  const written = await readFile(TYPES, "utf8");
  if (!written.startsWith(header)) {
    console.error(
      "src/api.ts is not made from docs/openapi.json as it is: " +
        "npm install && npm run types, in clients/typescript",
    );
    process.exitCode = 1;
  }
} else {
  // Security schemes are left out: the client sends its key itself.
  for (const operations of Object.values<Json>(part.paths)) {
    for (const operation of Object.values<Json>(operations)) delete operation.security;
  }
  const { default: openapiTypes, astToString } = await import("openapi-typescript");
  await writeFile(TYPES, header + astToString(await openapiTypes(part as never)));
}

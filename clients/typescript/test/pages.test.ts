// The package as it is installed: it is packed, and the programs of its pages run with it.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdir, mkdtemp, readFile, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { startService } from "./service.ts";
import type { Service } from "./service.ts";

const PACKAGE = fileURLToPath(new URL("..", import.meta.url));
const MODULES = join(PACKAGE, "node_modules");
const PAGES = ["README.md", "../../docs/typescript.md"];
const FENCE = /^```(\w+)(?: title="(.+?)")?\n(.*?)^```$/gms;
const STRICT = "--noEmit --strict --skipLibCheck --module nodenext --target es2023 --lib es2023,dom --types node";

let folder: string;
let service: Service;
before(async () => {
  folder = await mkdtemp(join(tmpdir(), "heedful-pages-"));
  service = await startService();
  run("npm", ["pack", "--pack-destination", folder], PACKAGE);
  const installed = join(folder, "node_modules", "heedful");
  await mkdir(installed, { recursive: true });
  const archive = (await readdir(folder)).find((name) => name.endsWith(".tgz")) ?? "";
  run("tar", ["-xzf", join(folder, archive), "-C", installed, "--strip-components=1"], folder);
  for (const name of ["ai", "@mastra", "@types"]) {
    await symlink(join(MODULES, name), join(folder, "node_modules", name));
  }
  await writeFile(join(folder, "package.json"), '{ "type": "module" }');
});
after(async () => {
  await service.stop();
  await rm(folder, { recursive: true });
});

/** What a program prints. */
function run(program: string, words: string[], cwd: string): string {
  const done = spawnSync(program, words, { cwd, encoding: "utf8" });
  assert.equal(done.status, 0, `${program} ${words.join(" ")}: ${done.stdout}${done.stderr}${done.error ?? ""}`);
  return done.stdout;
}

/** The programs of a page, with what each prints if the page says so. */
async function programs(page: string): Promise<[name: string, body: string, output: string][]> {
  const text = await readFile(join(PACKAGE, page), "utf8");
  const found: [string, string, string][] = [];
  for (const [, language, title = "", body = ""] of text.matchAll(FENCE)) {
    const last = found.at(-1);
    if (language === "ts") found.push([title, body, ""]);
    if (language === "text" && last) last[2] = body;
  }
  return found;
}

test("the package has what its exports name, and no dependency", async () => {
  const { exports, dependencies, version } = JSON.parse(await readFile(join(PACKAGE, "package.json"), "utf8"));
  assert.equal(dependencies, undefined);
  const files = Object.values<Record<string, string>>(exports).flatMap(Object.values);
  for (const file of files) await readFile(join(folder, "node_modules", "heedful", file));
  const project = await readFile(join(PACKAGE, "../../packages/heedful/pyproject.toml"), "utf8");
  assert.ok(project.includes(`version = "${version}"`), version);
});

for (const page of PAGES) {
  test(`the programs of a page do what it shows, and their types fit: ${page}`, async () => {
    const shown = await programs(page);
    assert.ok(shown.length >= 2);
    for (const [name, body] of shown) {
      assert.notEqual(name, "");
      await writeFile(join(folder, name), body.replaceAll("http://127.0.0.1:8765", service.url));
    }
    const names = shown.map(([name]) => name);
    run(join(MODULES, ".bin", "tsc"), [...STRICT.split(" "), ...names], folder);
    for (const [name, , output] of shown) {
      const words = run(process.execPath, [name], folder);
      // Mastra logs what it tries again on the same channel.
      const lines = words.split("\n").filter((line) => !/^\[WORKFLOW\]|^ {4}at |^- /.test(line));
      assert.equal(lines.join("\n"), output);
    }
  });
}

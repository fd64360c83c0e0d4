// Look at the pages in Chromium: node pages.mjs ADDRESS look|states|hostile|pictures [FOLDER]
import { createRequire } from "node:module";
import fs from "node:fs";
import path from "node:path";

const modules = process.env.NODE_MODULES ?? path.join(import.meta.dirname, "node_modules");
const require = createRequire(path.join(modules, "index.js"));
const { chromium } = require("playwright-core");
const axe = fs.readFileSync(path.join(modules, "axe-core/axe.min.js"), "utf8");
const [, , address, what, folder] = process.argv;
const origin = new URL(address).origin;
const wrong = [];
const fail = (text) => { wrong.push(text); console.log(`  ✗ ${text}`); };
const check = (holds, text) => { if (!holds) fail(text); };

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
let cookies = [];

async function context(options = {}) {
  const made = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  if (cookies.length) await made.addCookies(cookies);
  return made;
}

async function open(where, ignored = /^$/) {
  const page = await where.newPage();
  page.on("console", (one) => { if (one.type() === "error" && !ignored.test(one.text())) fail(`console: ${one.text()}`); });
  page.on("pageerror", (one) => fail(`error in a page: ${one}`));
  page.on("request", (one) => { if (!one.url().startsWith(origin)) fail(`a request elsewhere: ${one.url()}`); });
  page.on("dialog", (one) => { fail(`a script ran: ${one.message()}`); one.dismiss(); });
  return page;
}

async function go(page, to) {
  const answer = await page.goto(`${origin}${to}`, { waitUntil: "load" });
  check(answer.status() === 200, `${to}: ${answer.status()}`);
}

const data = async (where, to) => (await where.request.get(`${origin}/ui${to}`)).json();

async function addresses(where, most) {
  const of = async (list, name, key) => (await data(where, `/${list}.json`))[name].slice(0, most)
    .map((one) => `/ui/${list}/${encodeURI(one[key]).replaceAll("?", "%3F").replaceAll("#", "%23")}`);
  const lists = ["", "/loops", "/lessons", "/inbox", "/proof", "/work",
    "/lessons?task=Bug+9+login+hangs&key=triage",
    "/loops?text=nothing+like+it"].map((one) => `/ui${one}`);
  const loop = (await data(where, "/loops.json?state=stopped")).loops.slice(0, most).map((one) => `/ui/loops/${encodeURIComponent(one.id)}`);
  return [...lists, ...loop, ...await of("lessons", "lessons", "id"), ...await of("inbox", "queue", "id"),
    ...(await data(where, "/work.json")).pipelines.slice(0, most).map((one) => `/ui/runs/${encodeURI(one.id)}`),
    ...(await data(where, "/work.json")).agents.slice(0, most).map((one) => `/ui/traces/${one.id}`)];
}

async function violations(where, page) {
  const devtools = await where.newCDPSession(page);
  await devtools.send("Page.setBypassCSP", { enabled: true });
  await page.evaluate(axe);
  const found = await page.evaluate(async () => (await axe.run({ rules: { "target-size": { enabled: true } } })).violations.map((one) => `${one.id}: ${one.nodes[0].target}`));
  await devtools.detach();
  return found;
}

// Each page in four looks; with a folder, there is a picture of each.
async function look(folder) {
  let seen = 0;
  for (const width of [1280, 360]) for (const colorScheme of ["light", "dark"]) {
    const where = await context({ viewport: { width, height: 900 }, colorScheme });
    const page = await open(where);
    for (const [n, to] of (await addresses(where, folder ? 2 : 4)).entries()) {
      const say = (text) => fail(`${to}, ${width} px, ${colorScheme}: ${text}`);
      await go(page, to);
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (over > 0) say(`${over} px wider than the screen`);
      for (const one of await violations(where, page)) say(one);
      const narrow = await page.evaluate(() => Math.min(...[...document.querySelectorAll("td.task")].map((one) => one.clientWidth)));
      if (narrow < 250) say(`the words of a row are ${narrow} px wide`);
      const name = to.replace(/^\/ui\/?/, "").replace(/[^a-z]+/gi, "-").slice(0, 24) || "home";
      if (folder) await page.screenshot({ path: path.join(folder, `${n} ${name} ${width} ${colorScheme}.png`), fullPage: true });
      seen += 1;
    }
    await where.close();
  }
  console.log(`  ${seen} looks at pages, 1280 and 360 px, light and dark`);
}

// Press Tab until the focus is on what is asked for.
async function tabTo(page, selector) {
  for (let n = 0; n < 400; n += 1) {
    if (await page.evaluate((one) => document.activeElement?.matches(one), selector)) return;
    await page.keyboard.press("Tab");
  }
  throw new Error(`no way by keyboard to ${selector} on ${page.url()}`);
}

async function act(page, to, form, button = "button", fold = "", tick = true) {
  await go(page, to);
  if (fold) {
    await tabTo(page, fold);
    await page.keyboard.press("Enter");
  }
  await tabTo(page, `${form} input[name="why"]`);
  await page.keyboard.type("a reason");
  if (tick && (await page.locator(`${form} input[type="checkbox"]`).count())) {
    await tabTo(page, `${form} input[type="checkbox"]`);
    await page.keyboard.press("Space");
  }
  await tabTo(page, `${form} ${button}`);
  await Promise.all([page.waitForLoadState("load"), page.waitForResponse((one) => one.request().method() === "POST"), page.keyboard.press("Enter")]);
  await page.waitForSelector(`[role="status"]`, { timeout: 5000 });
  console.log(`  by keyboard: ${(await page.textContent('[role="status"]')).trim()}`);
}

async function keys() {
  const where = await context();
  const page = await open(where);
  await go(page, "/ui");
  await page.keyboard.press("?");
  check(await page.evaluate(() => document.querySelector("#keys").open), "? opens no help");
  await page.keyboard.press("Escape");
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await page.keyboard.press("k");
  await Promise.all([page.waitForURL(/\/ui\/./), page.keyboard.press("Enter")]);
  await page.keyboard.press("h");
  await page.waitForURL(/\/ui(\?|$)/);
  await go(page, "/ui/loops");
  await page.keyboard.press("/");
  await page.keyboard.type("incident");
  await Promise.all([page.waitForURL(/text=incident/), page.keyboard.press("Enter")]);
  check((await page.locator("tbody tr").count()) === 1, "the search finds another number of loops");
  await go(page, "/ui/loops/incident-summary");
  await tabTo(page, ".matrix thead a");
  await page.keyboard.press("Enter");
  check(await page.evaluate(() => location.hash && document.querySelector(location.hash)?.matches("details.step")), "a column of the matrix leads to no attempt");
  await go(page, (await addresses(where, 1)).find((one) => one.includes("/traces/")));
  await page.keyboard.press("n");
  check(await page.evaluate(() => document.activeElement.closest(".step.failed")?.open), "n leads to no failure");
  const lesson = (await data(where, "/lessons.json?state=unverified")).lessons[0].id;
  const rows = (await data(where, "/inbox.json")).queue;
  await act(page, "/ui/loops/incident-summary", 'form[action="/ui/do/override"]', "button", "#override > summary");
  await act(page, "/ui/loops/open-1", 'form[action="/ui/do/cancel"]', "button", "#cancel > summary");
  await act(page, `/ui/lessons/${lesson}`, 'form[action="/ui/do/amend"]', 'button[value="pin"]');
  await go(page, `/ui/lessons/${lesson}`);
  await tabTo(page, "#words > summary");
  await page.keyboard.press("Enter");
  await tabTo(page, 'textarea[name="text"]');
  await page.keyboard.type("In plain words: ");
  await tabTo(page, 'form:has(textarea) input[name="why"]');
  await page.keyboard.type("plainer");
  await tabTo(page, 'button[value="edit"]');
  await Promise.all([page.waitForResponse((one) => one.request().method() === "POST"), page.keyboard.press("Enter")]);
  await page.waitForSelector("#v1");
  const last = rows.at(-1);
  const [source] = (await data(where, `/inbox/${last.id}.json`)).case.text.provenance.sources;
  await act(page, `/ui/inbox/${last.id}?revoke=${encodeURIComponent(source)}`, 'form[action="/ui/do/revoke"]');
  await inbox(where, page);
  await where.close();
}

// Enter in a reason decides nothing; after a key, it decides. No reason is offered, and another key empties one.
async function inbox(where, page) {
  const waiting = async () => (await data(where, "/inbox.json")).texts;
  const before = await waiting();
  await go(page, "/ui/inbox");
  await tabTo(page, '#rule input[name="why"]');
  await page.keyboard.type("no ruling yet");
  await page.keyboard.press("Enter");
  check((await waiting()) === before, "Enter in a reason rules");
  await page.fill('#rule input[name="why"]', "");
  await page.keyboard.press("Escape");
  const looks = await page.locator("#rule button:not(.unseen)").evaluateAll((buttons) => buttons.map((one) => {
    const style = getComputedStyle(one);
    return [style.color, style.backgroundColor, style.borderColor, style.fontWeight].join();
  }));
  check(new Set(looks).size === 1, "a button that decides stands out");
  await page.keyboard.press("a");
  await page.keyboard.type("for a release");
  await page.keyboard.press("Escape");
  await page.keyboard.press("r");
  check((await page.inputValue('#rule input[name="why"]')) === "", "the reason of a release is offered for a rejection");
  for (const [key, done] of [["r", "rejected"], ["a", "released"], ["r", "rejected"]]) {
    const answer = page.waitForResponse((one) => one.request().method() === "POST");
    await page.evaluate(() => document.activeElement.blur());
    const left = await waiting();
    await page.keyboard.press(key);
    check((await page.inputValue('#rule input[name="why"]')) === "", `${key} offers a reason`);
    check((await waiting()) === left, `${key} alone rules`);
    await page.keyboard.type(`${done}: read`);
    await page.keyboard.press("Enter");
    await answer;
    await page.locator('[role="status"]', { hasText: done }).waitFor({ timeout: 5000 });
  }
  check((await waiting()) < before, "a and r do not rule");
  console.log("  by keyboard: a and r, each with a reason");
}

// A link in a mail or a chat leads to its page, although no cookie comes with the click.
async function linked() {
  const where = await context();
  const page = await where.newPage();
  await page.route("http://chat.example/", (route) => route.fulfill({ body: `<a href="${origin}/ui/loops?project=default&amp;state=open">look</a>`, contentType: "text/html" }));
  await page.goto("http://chat.example/");
  await page.click("a");
  await page.waitForURL(`${origin}/ui/loops?project=default&state=open`);
  await page.waitForSelector('h1:text("Loops")', { timeout: 5000 }).catch(() => fail("a link from elsewhere does not lead to its page"));
  await where.close();
}

async function live() {
  const where = await context();
  const [watching, acting] = [await open(where), await open(where)];
  await go(watching, "/ui/loops?text=ticket+open-2");
  await watching.waitForTimeout(700);
  await go(acting, "/ui/loops/open-2");
  await acting.click("#cancel > summary");
  await acting.fill('form[action="/ui/do/cancel"] input[name="why"]', "enough");
  await acting.check('form[action="/ui/do/cancel"] input[type="checkbox"]');
  const answered = acting.waitForResponse((one) => one.request().method() === "POST").then(() => performance.now());
  await acting.click('form[action="/ui/do/cancel"] button');
  await watching.waitForSelector("tr:has(a[href*=open-2]) .badge.stopped", { timeout: 5000 });
  const took = Math.max(0, performance.now() - (await answered));
  console.log(`  live: ${took.toFixed(0)} ms after the commit`);
  check(took <= 1000, `a change was shown ${took.toFixed(0)} ms after the commit`);
  const page = await open(where);
  await go(page, "/ui");
  await page.waitForFunction(() => performance.getEntriesByName("first-contentful-paint").length);
  const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0);
  console.log(`  first paint of Home: ${paint.toFixed(0)} ms`);
  check(paint <= 1000, `Home paints after ${paint.toFixed(0)} ms`);
  await where.close();
}

async function plain() {
  const where = await context({ javaScriptEnabled: false });
  const page = await open(where);
  for (const to of await addresses(where, 2)) await go(page, to);
  await act(page, "/ui/loops/open-3", 'form[action="/ui/do/cancel"]', "button", "#cancel > summary");
  const live = await context();
  const watching = await open(live);
  await go(watching, "/ui/loops/open-1");
  await tabTo(page, 'form[action="/ui/sign-out"] button');
  await Promise.all([page.waitForURL(/sign-in/), page.keyboard.press("Enter")]);
  await watching.waitForSelector("#live a", { timeout: 1000 });
  const left = await watching.evaluate(() => `${document.title}\n${document.body.innerText}`);
  check(/This session has ended/.test(left) && !/open-1|default|answer/.test(left), `a page keeps texts of an ended session: ${left}`);
  await Promise.all([watching.waitForURL(/sign-in\?next=.*open-1/), watching.click("#live a")]);
  console.log("  without JavaScript: every page, a change, and out, which empties the pages of other tabs");
  await Promise.all([where.close(), live.close()]);
}

// Whole pages, many in one document and without the policy of the site: what escaping misses, runs.
async function hostile() {
  const where = await context();
  const details = [];
  const texts = [];
  for (const [list, name, of] of [["loops", "loops", (one) => `loops/${one.id}`], ["lessons", "lessons", (one) => `lessons/${one.id}`],
    ["inbox", "queue", (one) => `inbox/${one.id}`], ["work", "agents", (one) => one.path.slice(1)], ["work", "pipelines", (one) => one.path.slice(1)]]) {
    for (let query = ""; ;) {
      texts.push(await (await where.request.get(`${origin}/ui/${list}${query}`)).text());
      const found = await data(where, `/${list}.json${query}`);
      details.push(...found[name].map((one) => `/ui/${of(one).split("/").map(encodeURIComponent).join("/")}`));
      const next = found.next ?? found.tables?.find((one) => one.kind === name)?.next;
      if (!next || !found[name].length) break;
      query = next.slice(next.indexOf("?"));
    }
  }
  for (const to of ["", "/proof", "/lessons?task=alert"]) texts.push(await (await where.request.get(`${origin}/ui${to}`)).text());
  let missing = 0;
  for (let n = 0; n < details.length; n += 8) {
    const answers = await Promise.all(details.slice(n, n + 8).map((to) => where.request.get(origin + to)));
    for (const [k, one] of answers.entries()) if (one.status() === 200) texts.push(await one.text()); else { missing += 1; if (missing < 4) console.log(one.status(), details[n + k]); }
  }
  check(!missing, `${missing} pages did not answer`);
  const bare = await browser.newContext();
  let ran = 0;
  for (let n = 0; n < texts.length; n += 25) {
    const page = await bare.newPage();
    page.on("dialog", (one) => { ran += 1; fail(`a script ran: ${one.message()}`); one.dismiss(); });
    page.on("request", (one) => { if (!one.url().startsWith(origin)) { ran += 1; fail(`a request: ${one.url().slice(0, 200)}`); } });
    const body = texts.slice(n, n + 25).join("\n").replaceAll(/<link [^>]*>|<script src="\/ui\/static\/ui.js" defer><\/script>/g, "");
    await page.route(`${origin}/bare`, (route) => route.fulfill({ body, contentType: "text/html; charset=utf-8" }));
    await page.goto(`${origin}/bare`, { waitUntil: "load" });
    const bad = await page.evaluate(() => [window.pwned && "pwned", document.title === "pwned" && "title",
      ...[...document.querySelectorAll("script, iframe, object, embed, base, img, math, meta[http-equiv], a[href^='javascript:' i]")].map((one) => one.outerHTML.slice(0, 200)),
      ...[...document.querySelectorAll("*")].flatMap((one) => [...one.attributes].filter((each) => each.name.startsWith("on")).map((each) => each.name))].filter(Boolean));
    for (const one of bad.slice(0, 5)) fail(`markup of a text: ${one}`);
    ran += bad.length;
    await page.close();
  }
  const page = await open(where);
  for (const to of details.filter((_, n) => n % Math.ceil(details.length / 100) === 0)) await go(page, to);
  console.log(`  ${texts.length} pages of hostile texts: ${ran} executions`);
  await where.close();
}

async function pictures() {
  const where = await context({ viewport: { width: 1000, height: 720 }, deviceScaleFactor: 0.8, colorScheme: "light" });
  const page = await open(where);
  for (const [name, to] of Object.entries({ home: "/ui", loop: "/ui/loops/incident-summary", loops: "/ui/loops", lessons: "/ui/lessons",
    lesson: (await addresses(where, 8)).filter((one) => one.includes("/lessons/")).at(-1),
    inbox: (await addresses(where, 1)).find((one) => one.includes("/inbox/")), proof: "/ui/proof",
    pipeline: (await addresses(where, 1)).find((one) => one.includes("/runs/")),
    trace: (await addresses(where, 1)).find((one) => one.includes("/traces/")) })) {
    await go(page, to);
    await page.screenshot({ path: path.join(folder, `${name}.png`) });
  }
  await where.close();
}

const first = await context();
const page = await open(first);
await page.goto(address, { waitUntil: "load" });
cookies = await first.cookies();
check(cookies.length === 1 && cookies[0].httpOnly && cookies[0].sameSite === "Strict", "the cookie is not HttpOnly and SameSite=Strict");
try {
  if (what === "look") { if (!process.env.QUICK) await look(); await keys(); await linked(); await live(); await plain(); }
  else if (what === "states") await look(folder);
  else if (what === "hostile") await hostile();
  else await pictures();
} catch (error) { fail(String(error.stack)); }
await browser.close();
process.exit(wrong.length ? 1 : 0);

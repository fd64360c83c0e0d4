// Keys, copy buttons and live updates. Every page works without this file.
"use strict";
const $ = (what, within = document) => within.querySelector(what);
const all = (what) => [...document.querySelectorAll(what)];
const typing = () => document.activeElement?.type !== "checkbox" && /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
document.documentElement.classList.add("js"); // what needs this file is shown

// A form with somebody's words in it is not replaced.
const edited = () => all("main form[method=post] :is(input, textarea)").some((one) =>
  one.value !== one.defaultValue || one.checked !== one.defaultChecked);

function say(text) {
  const note = $("#live") ?? $("main").insertAdjacentElement("afterbegin", document.createElement("p"));
  Object.assign(note, { id: "live", className: "note wrong", textContent: text, hidden: !text });
  note.setAttribute("role", "status");
}

const site = new URL("..", document.currentScript.src).pathname; // "/ui/", perhaps below a path of a proxy
const mustSignIn = (answer) => new URL(answer.url).pathname === `${site}sign-in`;

// The session has ended: the page keeps nothing that only the session may see.
function leave() {
  const link = Object.assign(document.createElement("a"), { textContent: "Sign in", href: `${site}sign-in?${new URLSearchParams({ next: `/ui/${location.pathname.slice(site.length)}${location.search}` })}` });
  document.title = "Signed out · heedful";
  for (const one of all("header nav, header .who, main > *")) one.remove();
  say("This session has ended. ");
  $("#live").append(link);
  link.focus();
}

async function refresh() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html", "Heedful-Live": "1" } });
  if (mustSignIn(answer)) return leave();
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const open = new Set(all("main details[open]").map((one) => one.id));
  const focus = document.activeElement?.closest("[data-row]")?.id;
  asked = undefined;
  $("main").replaceWith(document.adoptNode($("main", page)));
  for (const one of all("main details")) if (open.has(one.id)) one.open = true;
  if (focus) $(`#${CSS.escape(focus)} a`)?.focus();
}

let at = -1;
function move(by) {
  const rows = all("main [data-row]").filter((one) => !one.parentElement.closest("details:not([open])"));
  if (!rows.length) return;
  at = Math.max(0, Math.min(rows.length - 1, at + by));
  ($("a, summary, button", rows[at]) ?? rows[at]).focus();
  rows[at].scrollIntoView({ block: "nearest" });
}

// The failure after the focus, or the first one.
function fail() {
  const failures = all("main [data-failed]");
  const here = document.activeElement?.closest("[data-failed]");
  const next = failures[(failures.indexOf(here) + 1) % failures.length];
  if (!next) return;
  $("summary, a", next).focus();
  next.scrollIntoView({ block: "center" });
}

// A button that decides asks for its reason: a key only asks, and Enter in the reason or a second click decides. No reason is
// offered, and one that was typed for another decision goes.
let asked;
const asks = (button) => (asked ? asked !== button : !button.form.why.value);
function ask(button) {
  if (asked && asked !== button) button.form.why.value = "";
  asked = button;
  button.form.why.focus();
  button.form.why.select();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && typing()) return document.activeElement.blur();
  if (event.key === "Enter" && event.target.name === "why" && asked?.form === event.target.form) { event.preventDefault(); asked.click(); }
  if (typing()) return;
  const keys = { j: () => move(1), k: () => move(-1), n: fail, "?": () => $("#keys").showModal(),
    "/": () => { const field = $("main input[type=search], #search"); field?.closest("details")?.setAttribute("open", ""); field?.focus(); }, h: () => $(".brand").click() };
  const own = $(`main [data-key="${CSS.escape(event.key)}"]`); // of this page: a button
  if (own) keys[event.key] = () => { ask(own); };
  if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-decides]");
  if (button && asks(button)) { event.preventDefault(); ask(button); }
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.dataset.copy);
  const was = button.textContent;
  button.textContent = "copied";
  setTimeout(() => { button.textContent = was; }, 1200);
});

function listen() {
  const source = new EventSource(document.body.dataset.live);
  source.addEventListener("changed", () => (edited() ? say("Something changed since; load this page again.") : typing() || refresh()));
  source.addEventListener("open", () => { if ($("#live")) say(""); });
  source.addEventListener("error", () => say(source.readyState === EventSource.CLOSED ? "This page is not live any more: load it again." : "This page is not live now: heedful does not answer."));
  source.addEventListener("ended", () => { source.close(); leave(); });
  addEventListener("pagehide", () => source.close(), { once: true });
}
if (document.body.dataset.live) {
  listen();
  // The browser restores a page that was left as it was, without its stream.
  addEventListener("pageshow", (event) => { if (event.persisted) { listen(); edited() || refresh(); } });
}

"""The pages about loops: what needs a person, the list, and one loop attempt by
attempt.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any

from heedful.errors import HeedfulError, StoreError
from heedful.loop.codec import policy_from
from heedful.loop.decide import Again, decide
from heedful.loop.record import Loop
from heedful.loop.stop import (
    LIFTABLE_RULES,
    All,
    Echo,
    Fatigue,
    MaxAttempts,
    Plateau,
    Repeat,
    StopRule,
    flat,
    rule_name,
)
from heedful.pages.report import counted
from heedful.store import loops as loop_store
from heedful.store.records import StoredLoop
from heedful.web import figures
from heedful.web.site import Document, Visit, action, cursor_links, page

MAX_LIST_ROWS = 50  # rows of a list
MAX_PAGE_ATTEMPTS = 20  # attempts on one page


async def queues(visit: Visit) -> list[Document]:
    """Return how many jobs wait, run and failed in each queue; if that fails, why."""
    try:
        return [asdict(one) for one in await visit.caller.setup.work.depth()]
    except StoreError as error:
        return [{"queue": str(error), "state": "failed", "number": 0, "oldest": 0.0}]


@page("/(?:home)?", "home", "Home")
async def home(visit: Visit) -> Document:
    """Show what needs a person, and how the loops of the last days went."""
    read = visit.caller.read
    waiting, texts, _ = await read(
        figures.waiting, limit=5 * visit.may("read"), before=0, source="", trust=""
    )
    failing = await read(figures.failing)
    stopping = await read(figures.stopping)
    lifted = await read(figures.overrides)
    stopped = await read(figures.listed, 5, state="stopped")
    failed = (await visit.get("/v1/episodes", state="failed", limit=5))["items"]
    jobs = [one for one in await queues(visit) if one["state"] == "failed"]
    reviews = [dict(row) for row in await read(figures.rows, "reviews", limit=5)]
    return {
        "jobs": jobs,
        "reviews": reviews,
        "waiting": [asdict(one) for one in waiting],
        "texts": texts * visit.may("read"),
        "unsolved": stopped[0],
        "failed": [
            {k: one.get(k) for k in ("digest", "name", "error", "at")} for one in failed
        ],
        "overrides": lifted,
        "failing": failing,
        "stopping": stopping,
        **await read(figures.home),
    }


def since(visit: Visit) -> float:
    """Return the beginning of the last `days` that the address asks for; 0 without."""
    days = visit.number("days", most=10_000)
    return time.time() - days * figures.FIGURE_DAY_SECONDS if days else 0.0


@page("/loops", "loops", "Loops")
async def loops(visit: Visit) -> Document:
    """Show the newest loops that fit the filters."""
    names = ("state", "rule", "check", "key", "text", "days")
    filters = {name: visit.query.get(name, "") for name in names}
    only: Document = {name: filters[name] for name in ("state", "rule", "key", "text")}
    only |= {
        "tag": filters["check"],
        "before": visit.number("cursor"),
        "since": since(visit),
    }
    found, following = await visit.caller.read(figures.listed, MAX_LIST_ROWS, **only)
    links = cursor_links(visit, str(following) if following else None)
    return {
        "loops": found,
        "filters": filters,
        "searched": figures.MAX_SEARCHED_LOOPS,
        **links,
    }


@page("/loops/{id}", "loop", "Loop")
async def loop(visit: Visit, id: str) -> Document:
    """Show a loop: its attempts, what was decided and why, and what would have changed
    it.
    """
    read = visit.caller.read
    made = await read(figures.window, id, visit.number("from"), MAX_PAGE_ATTEMPTS)
    made |= {"lifted": _lifted(made), "most": figures.MAX_REDECIDED_ATTEMPTS}
    if made["long"]:  # deciding all of it again would take seconds
        return {**made, "readings": _recorded(made["latest"])}
    stored = await read(loop_store.read, id)
    facts = await asyncio.to_thread(_facts, stored, made["policy"], visit.query)
    return {**made, **facts}


def _lifted(made: Document) -> list[str]:
    """Return the rules that an override of this loop can lift, those that stopped it
    first.
    """
    names = {rule_name(part) for part in flat(policy_from(made["policy"]).rules)} - {
        "budget"
    }
    stops = {part for rule in made["stopped_by"] for part in rule.split("+")}
    if made["state"] != "stopped" or not stops <= names:
        return []
    return sorted(LIFTABLE_RULES & names, key=lambda name: (name not in stops, name))


def _recorded(latest: Document) -> list[Document]:
    """Return what the last decision of a long loop says of its rules."""
    return [
        {"rule": one["rule"], "now": 0, "of": 0, "stops": one["detail"]}
        for one in latest.get("stopped_by", ())
    ]


def _facts(stored: StoredLoop, plain: Document, query: Mapping[str, str]) -> Document:
    """Return what is known of a loop after deciding it again."""
    policy = policy_from(plain)
    knobs = _knobs(plain)
    loop = replace(stored.loop, improves=policy.improvement)
    why = stored.explain()
    tried = {k: v for k, v in query.items() if k in knobs and v}
    return {
        "best": loop.best,
        "tokens": loop.usage.tokens,
        "cost": loop.usage.cost,
        "overrides": [asdict(one) for one in loop.overrides],
        "would_change": [str(one) for one in why.would_change],
        "otherwise": why.otherwise,
        "readings": readings(loop, policy.rules),
        "knobs": [
            {"name": k, "was": was, "now": tried.get(k, was)}
            for k, was in knobs.items()
        ],
        "again": _decide_again(loop, plain, tried),
    }


def readings(loop: Loop, rules: tuple[StopRule, ...]) -> list[Document]:
    """Return how near each rule of a policy is to stopping a loop; `of` is its limit.

    A rule of several that must all stop has a row for each of them.
    """
    rows = []
    for whole in rules:
        for rule in flat((whole,)):
            now, of = _reading(loop, rule)
            name = rule_name(whole) + (
                f": {rule_name(rule)}" if whole is not rule else ""
            )
            rows.append({"rule": name, "now": now, "of": of, "stops": rule(loop) or ""})
    return rows


def _reading(loop: Loop, rule: StopRule) -> tuple[float, float]:
    match rule:
        case MaxAttempts():
            return len(loop.attempts), rule.limit
        case Fatigue():
            return rule.level(loop), rule.limit
        case Echo():
            return max(rule.counts(loop).values(), default=0), rule.times
        case Repeat():
            since = loop.repeats(rule.near)[loop.last_improvement + 1 :]
            return sum(one is not None for one in since), rule.times
        case Plateau():
            return max(
                0, len(loop.attempts) - 1 - loop.last_improvement
            ), rule.patience or 0
        case _:
            return 0, 0


def _knobs(plain: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a policy that a slider can change, as `rule.field`."""
    found = dict[str, float]()
    for rule in policy_from(plain).rules:
        if is_dataclass(rule) and not isinstance(rule, (All, type)):
            values = ((one.name, getattr(rule, one.name)) for one in fields(rule))
            numbers = ((name, it) for name, it in values if type(it) in (int, float))
            found |= {f"{rule_name(rule)}.{name}": it for name, it in numbers}
    return found


def _decide_again(
    loop: Loop, plain: Mapping[str, Any], tried: Mapping[str, str]
) -> Document:
    """Decide a loop again with other numbers; say what is decided after each
    attempt.
    """
    made: Document = {"wrong": "", "ends": 0, "verdict": "again", "why": "", "each": []}
    try:
        numbers = {name: float(value) for name, value in tried.items()}
        rules = [_changed(one, numbers) for one in plain["rules"]]
        changed = policy_from({**plain, "rules": rules})
        loop = replace(loop, improves=changed.improvement, overrides=(), cancelled="")
    except (ValueError, HeedfulError) as error:
        return {**made, "wrong": str(error)}
    for end in range(1, len(loop.attempts) + 1):
        verdict = decide(loop.upto(end), changed)
        if not isinstance(verdict, Again):
            why = "; ".join(
                f"{stop.rule}: {stop.detail}" for stop in verdict.stopped_by
            )
            kind = "passed" if verdict.passed else "stopped"
            return {
                **made,
                "ends": end,
                "verdict": kind,
                "why": why,
                "each": [*made["each"], kind],
            }
        made["each"].append("again")
    return made


def _changed(rule: Mapping[str, Any], numbers: Mapping[str, float]) -> Document:
    names = {f"{rule['rule']}.{field}": field for field in rule}
    return {
        **rule,
        **{
            names[k]: _same(rule[names[k]], v) for k, v in numbers.items() if k in names
        },
    }


def _same(was: Any, value: float) -> float:
    return int(value) if isinstance(was, int) and value == int(value) else value


@action("approve")
async def override(visit: Visit) -> str:
    """Let a loop go on past a rule."""
    id = visit.form.get("id", "")
    rule = visit.form.get("rule", "")
    decisions = visit.number("decisions", 1, least=1)
    body = {"rule": rule, "why": visit.form.get("why", ""), "decisions": decisions}
    verdict = await visit.ask("POST", f"/v1/loops/{id}/overrides", body)
    stops = ", ".join(one["rule"] for one in verdict["stopped_by"])
    end = (
        f"is still stopped by {stops}"
        if stops
        else "is open; resume it in the program that ran it"
    )
    return f"{rule} is suspended for {counted(decisions, 'decision')}; the loop {end}."


@action("write")
async def cancel(visit: Visit) -> str:
    """End a loop."""
    path = f"/v1/loops/{visit.form.get('id', '')}/cancel"
    await visit.ask("POST", path, {"why": visit.form.get("why", "")})
    return "The loop is cancelled."

"""The pages about loops: what needs a person, the list, and one loop attempt by attempt."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from heedful.errors import HeedfulError, InvalidInput
from heedful.loop.codec import policy_from
from heedful.loop.decide import Again, decide
from heedful.loop.record import Loop
from heedful.loop.stop import (
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
from heedful.store import loops as loop_store
from heedful.web import figures
from heedful.web.site import Document, Visit, action, cursor_links, page

SHOWN = 50  # rows of a list
ATTEMPTS = 20  # attempts on one page
LIFTED = ("attempts", "echo", "repeat", "fatigue", "plateau")


@page("/(?:home)?", "home", "Home")
async def home(visit: Visit) -> Document:
    """Show what needs a person, and how the loops of the last days went."""
    read = visit.caller.read
    waiting = await visit.get("/v1/quarantine", limit=5) if visit.may("read") else {"items": []}
    counted = await read(figures.home)
    failing, stopping = await read(figures.failing), await read(figures.stopping)
    lifted = await read(figures.overrides)
    stopped = await read(figures.listed, 5, state="stopped")
    failed = (await visit.get("/v1/episodes", state="failed", limit=5))["items"]
    return {
        "waiting": waiting["items"],
        "unsolved": stopped,
        "failed": [{k: one.get(k) for k in ("digest", "name", "error", "at")} for one in failed],
        "overrides": lifted,
        "failing": failing,
        "stopping": stopping,
        **counted,
    }


def _number(visit: Visit, name: str, default: int, most: int = 2**63 - 1) -> int:
    """Return a whole number of the address. Raises InvalidInput."""
    value = visit.query.get(name) or str(default)
    if not value.isdecimal() or int(value) > most:
        raise InvalidInput(name, value, f"a whole number, at most {most}")
    return int(value)


@page("/loops", "loops", "Loops")
async def loops(visit: Visit) -> Document:
    """Show the newest loops that fit the filters."""
    names = ("state", "rule", "check", "key", "text", "days")
    filters = {name: visit.query.get(name, "") for name in names}
    days = _number(visit, "days", 0, 10_000)
    only: Document = {name: filters[name] for name in ("state", "rule", "key", "text")}
    found = await visit.caller.read(
        figures.listed,
        SHOWN + 1,
        **only,
        tag=filters["check"],
        since=time.time() - days * figures.DAY if days else 0.0,
        before=_number(visit, "cursor", 0),
    )
    following = str(found[SHOWN - 1]["n"]) if len(found) > SHOWN else None
    return {"loops": found[:SHOWN], "filters": filters, **cursor_links(visit, following)}


@page("/loops/{id}", "loop", "Loop")
async def loop(visit: Visit, id: str) -> Document:
    """Show a loop: its attempts, what was decided and why, and what would have changed it."""
    stored = await visit.caller.read(loop_store.read, id)
    record = await visit.get(f"/v1/loops/{id}")
    why = await visit.get(f"/v1/loops/{id}/explain")
    first = _number(visit, "from", max(1, len(record["made"]) - ATTEMPTS + 1))
    knobs = _knobs(record["policy"])
    tried = {k: v for k, v in visit.query.items() if k in knobs and v}
    return {
        **record,
        "made": record["made"][max(0, first - 2) : first + ATTEMPTS - 1],
        "first": first,
        "told": list(stored.briefing.lines) if stored.briefing else [],
        "fed": _fed(record),
        "why": why,
        "readings": readings(stored.loop, policy_from(record["policy"]).rules),
        "knobs": [{"name": k, "was": was, "now": tried.get(k, was)} for k, was in knobs.items()],
        "again": await asyncio.to_thread(_decide_again, stored.loop, record["policy"], tried),
        "lifted": LIFTED,
        "name": id,
    }


def _fed(record: Mapping[str, Any]) -> dict[int, str]:
    return {
        one["attempt"]: one["verdict"].get("feedback", "")
        for one in record["decisions"]
        if one["verdict"]["verdict"] == "again"
    }


def readings(loop: Loop, rules: tuple[StopRule, ...]) -> list[Document]:
    """Return how near each rule of a policy is to stopping a loop; `of` is its limit."""
    return [
        {"rule": rule_name(rule), "now": now, "of": of, "stops": rule(loop) or ""}
        for rule in flat(rules)
        if not isinstance(rule, All)
        for now, of in [_reading(loop, rule)]
    ]


def _reading(loop: Loop, rule: StopRule) -> tuple[float, float]:
    match rule:
        case MaxAttempts():
            return len(loop.attempts), rule.limit
        case Fatigue():
            return rule.level(loop), rule.limit
        case Echo():
            return max(rule.counts(loop).values(), default=0), rule.times
        case Repeat():
            return sum(one.repeats is not None for one in loop.attempts), rule.times
        case Plateau():
            return _still(loop), rule.patience or 0
        case _:
            return 0, 0


def _still(loop: Loop) -> int:
    """Return how many attempts were made since the last improvement."""
    better = [n for n, improved in enumerate(loop.improved) if improved]
    return len(loop.improved) - 1 - max(better, default=0) if loop.improved else 0


def _knobs(plain: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a policy that a slider can change, as `rule.field`."""
    found = dict[str, float]()
    for rule in policy_from(plain).rules:
        if is_dataclass(rule) and not isinstance(rule, (All, type)):
            values = ((one.name, getattr(rule, one.name)) for one in fields(rule))
            numbers = ((name, it) for name, it in values if type(it) in (int, float))
            found |= {f"{rule_name(rule)}.{name}": it for name, it in numbers}
    return found


def _decide_again(loop: Loop, plain: Mapping[str, Any], tried: Mapping[str, str]) -> Document:
    """Decide a loop again with other numbers; say after which attempt it ends."""
    try:
        numbers = {name: float(value) for name, value in tried.items()}
        changed = policy_from(
            {**plain, "rules": [_changed(one, numbers) for one in plain["rules"]]}
        )
    except (ValueError, HeedfulError) as error:
        return {"wrong": str(error), "ends": 0, "verdict": "", "why": ""}
    for end in range(1, len(loop.attempts) + 1):
        verdict = decide(loop.upto(end), changed)
        if not isinstance(verdict, Again):
            why = "; ".join(f"{stop.rule}: {stop.detail}" for stop in verdict.stopped_by)
            kind = "passed" if verdict.passed else "stopped"
            return {"wrong": "", "ends": end, "verdict": kind, "why": why}
    return {"wrong": "", "ends": 0, "verdict": "again", "why": ""}


def _changed(rule: Mapping[str, Any], numbers: Mapping[str, float]) -> Document:
    names = {f"{rule['rule']}.{field}": field for field in rule}
    return {
        **rule,
        **{names[k]: _same(rule[names[k]], v) for k, v in numbers.items() if k in names},
    }


def _same(was: Any, value: float) -> float:
    return int(value) if isinstance(was, int) and value == int(value) else value


@action("approve")
async def override(visit: Visit) -> str:
    """Let a loop go on past a rule."""
    form = visit.form
    body: Document = {"rule": form.get("rule", ""), "why": form.get("why", "")}
    if form.get("decisions", "").isdecimal():
        body["decisions"] = int(form["decisions"])
    await visit.ask("POST", f"/v1/loops/{form.get('id', '')}/overrides", body)
    return f"The loop may go on past {body['rule']}."


@action("write")
async def cancel(visit: Visit) -> str:
    """End a loop."""
    path = f"/v1/loops/{visit.form.get('id', '')}/cancel"
    await visit.ask("POST", path, {"why": visit.form.get("why", "")})
    return "The loop is cancelled."

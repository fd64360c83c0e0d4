"""What must hold of a store after `stepping`, judged from its rows and the logs alone.

Limits that can be counted are counted by hand; each decision is made again from what was there.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from heedful.loop.codec import decision_from, from_document, policy_from
from heedful.loop.decide import Again, Decision, Done, decide, standing_of
from heedful.loop.record import Attempt, Loop, Override, Usage
from heedful.loop.stop import Echo, counts_scope
from tests.soak.stepping import EXPECTED, FAILED
from tests.soak.stepping import policy as allowed

ERRORS = {error.__name__ for error in (*EXPECTED, *FAILED)} | {""}
CUT = {"", "TimeoutError", "LeaseLost", "StoreUnavailable"}


@dataclass
class Step:
    """One action of a thread on a loop, when its session read the loop, and its result."""

    id: str
    do: str
    loop: str
    opened: float
    said: str = ""


@dataclass(frozen=True)
class Call:
    """A call of a generator; its answer may be lost if it failed or its step was cut."""

    time: float
    step: Step
    loop: str
    attempt: int
    number: int
    fails: bool

    @property
    def lost(self) -> bool:
        return self.fails or self.step.said in CUT


class Log:
    """All that the processes wrote. The last line of a process that was killed may be torn."""

    def __init__(self, folder: Path) -> None:
        self.steps: dict[str, Step] = {}
        self.calls: list[Call] = []
        self.checks: list[tuple[Step, str, int]] = []
        self._opened: dict[str, float] = {}
        for path in folder.glob("*.log"):
            for line in path.read_text().rpartition("\n")[0].splitlines():
                self._read(*json.loads(line))

    def _read(self, kind: str, at: float, id: str, *what: Any) -> None:
        match kind, what:
            case "begin", (do, loop, session, fresh):
                if fresh or session not in self._opened:
                    self._opened[session] = at
                self.steps[id] = Step(id, do, loop, self._opened[session])
            case "end", (said,):
                self.steps[id].said = said
            case "generate", (loop, attempt, number, fails):
                self.calls.append(Call(at, self.steps[id], loop, attempt, number, fails))
            case "check", (loop, attempt):
                self.checks.append((self.steps[id], loop, attempt))
            case _:
                raise AssertionError((kind, what))


class Case:
    """The rows of one loop, in the order in which they were written."""

    def __init__(self, db: sqlite3.Connection, row: sqlite3.Row) -> None:
        def rows(table: str, order: str) -> list[dict[str, Any]]:
            query = f"select * from {table} where loop = ? order by {order}"
            return [dict(one) for one in db.execute(query, (row["n"],))]

        self.row, self.id = row, str(row["id"])
        self.policy = policy_from(json.loads(row["policy"]))
        self.rules: list[dict[str, Any]] = json.loads(row["policy"])["rules"]
        self.extra = Usage(**json.loads(row["extra"]))
        self.attempts, self.overrides = rows("attempt", "number"), rows("override", "seq")
        self.records = tuple(from_document(Attempt, json.loads(a["record"])) for a in self.attempts)
        self.pending, found = rows("step", "key"), rows("decision", "seq")
        self.seqs = [one["seq"] for one in found]
        self.decisions = [
            decision_from(json.loads(one["record"]), one["attempt"], one["created"])
            for one in found
        ]
        # The call that an answer came from, which is its price -> the number of its attempt.
        prices = [json.loads(step["record"])[1][3] for step in self.pending]
        self.answers = {int(price): len(self.attempts) + 1 for price in prices}
        self.answers |= {int(a.usage.cost): a.number for a in self.records}

    def lifts(self, attempt: int) -> Iterator[frozenset[str]]:
        """The rules that each decision to go on after an attempt lifted."""
        for one in self.decisions:
            if one.attempt == attempt and isinstance(one.verdict, Again):
                yield frozenset(lift.stop.rule for lift in one.verdict.lifted)


def _stops(decision: Decision) -> set[str]:
    verdict = decision.verdict
    return {stop.rule for stop in verdict.stopped_by} if isinstance(verdict, Done) else set()


# -- what must hold of one loop


def numbered(case: Case) -> Iterator[str]:
    """Nothing is missing or doubled, and each attempt has one decision of its own time."""
    for what, numbers in (
        ("attempts", [a["number"] for a in case.attempts]),
        ("attempts, as recorded,", [a.number for a in case.records]),
        ("decisions", case.seqs),
        ("overrides", [o["seq"] for o in case.overrides]),
    ):
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"{what} are numbered {numbers}"
    created = {a["number"]: a["created"] for a in case.attempts}
    own = Counter(d.attempt for d in case.decisions if d.at == created.get(d.attempt))
    for number in created:
        if own[number] != 1:
            yield f"attempt {number} has {own[number]} decisions"
    times = [d.at for d in case.decisions]
    if times != sorted(set(times)):
        yield "two decisions were made at once"
    if case.policy != allowed(case.id):
        yield f"the policy is {case.policy}"


def continued(case: Case) -> Iterator[str]:
    """An attempt follows only a verdict to go on, and a loop that passed has ended."""
    silent = {"echo"} if any(map(counts_scope, case.policy.rules)) else set()
    for number in range(1, len(case.attempts) + 1):
        group = [d.verdict for d in case.decisions if d.attempt == number - 1]
        last = group[-1] if group else Again()
        if isinstance(last, Done) or (number > 1 and not group):
            yield f"attempt {number} follows {last if group else 'no decision'}"
        stops = {rule for d in case.decisions if d.attempt == number - 1 for rule in _stops(d)}
        kept = stops - {one.stop.rule for one in getattr(last, "lifted", ())} - silent
        if kept or any(isinstance(one, Done) and one.passed for one in group):
            yield f"attempt {number} was made though {kept or 'the loop had passed'}"
    state = "open"
    if case.decisions and isinstance(ended := case.decisions[-1].verdict, Done):
        state = "passed" if ended.passed else "stopped"
    if case.row["state"] != state:
        yield f"its state is {case.row['state']!r}, its verdict says {state!r}"
    says = ["cancelled" in _stops(one) for one in case.decisions]
    if says != sorted(says) or any(says) != bool(case.row["cancelled"]):
        yield f"cancelled by {case.row['cancelled']!r}, and decisions say {says}"


def answered(case: Case) -> Iterator[str]:
    """Every override could be given, and was consumed by just the decisions that it lifted."""
    flat = [part for rule in case.rules for part in rule.get("rules", (rule,))]
    names = {rule["rule"] for rule in flat} - {"budget"}
    lifted = Counter(
        index
        for decision in case.decisions
        if isinstance(decision.verdict, Again)
        for index in {one.override for one in decision.verdict.lifted}
    )
    for index, one in enumerate(case.overrides):
        if one["rule"] not in names or not one["by"].strip() or one["decisions"] < 1:
            yield f"override {index} cannot be given: {one}"
        if not lifted[index] == one["used"] <= one["decisions"]:
            yield f"override {index}, used {one['used']} of {one['decisions']}: {lifted[index]}"
    for index in lifted.keys() - range(len(case.overrides)):
        yield f"override {index} lifted {lifted[index]} decisions and is not recorded"


def counted(case: Case) -> Iterator[str]:
    """The limits on attempts, calls and tokens, counted without the code under test."""
    for rule in case.rules:
        if rule["rule"] == "attempts":
            for number in range(rule["limit"], len(case.attempts)):
                if "attempts" not in [frozenset(), *case.lifts(number)][-1]:
                    yield f"{number} of {rule['limit']} attempts were made, and one more"
        for what in ("calls", "tokens") if rule["rule"] == "budget" else ():
            made = [getattr(a.usage, what) for a in case.records]
            vain, limit = getattr(case.extra, what), rule[what]
            over = limit and sum(made) + vain >= limit + max((*made, 1))
            if limit and (over or sum(made[:-1]) >= limit):
                yield f"{made} {what} and {vain} in vain were spent of {limit}"


def judged(case: Case) -> Iterator[str]:
    """Each decision is what the loop, as it was then, leads to."""
    used: Counter[int] = Counter()
    failed = 0
    for seq, decision in enumerate(case.decisions, 1):
        leading = (
            loop.extra.calls
            for loop in prefixes(case, decision, used, failed)
            if decide(loop, case.policy) == decision.verdict
            and standing_of(loop, case.policy) == decision.standing
        )
        calls = next(leading, None)
        if calls is None:
            yield f"decision {seq}, after attempt {decision.attempt}, cannot be: {decision}"
            return
        failed = calls
        if isinstance(decision.verdict, Again):
            used.update({one.override for one in decision.verdict.lifted})


def prefixes(case: Case, decision: Decision, used: Counter[int], failed: int) -> Iterator[Loop]:
    """The loop at a decision, for each number of calls that may have failed by then."""
    overrides = tuple(
        Override(o["rule"], o["by"], o["why"], o["decisions"], used[index], o["until"])
        for index, o in enumerate(case.overrides)
        if o["created"] <= decision.at
    )
    loop = Loop(case.id, (), case.records[: decision.attempt], overrides)
    echo = next((rule for rule in case.policy.rules if isinstance(rule, Echo)), Echo())
    if echo.across == "scope":
        own, heard = echo.counts(loop), decision.standing.echoes
        loop = replace(loop, echoes={key: heard[key] - own.get(key, 0) for key in heard})
    cancelled = case.row["cancelled"] if "cancelled" in _stops(decision) else ""
    for calls in range(failed, case.extra.calls + 1):
        yield replace(loop, extra=Usage(calls), cancelled=cancelled, at=decision.at)


OF_ONE = (numbered, continued, answered, counted, judged)


# -- what must hold between the rows and the logs


def called(cases: Sequence[Case], log: Log) -> Iterator[str]:
    """Of all calls for an attempt one is kept; the others failed, or were in flight when cut."""
    kept = {call: (case.id, number) for case in cases for call, number in case.answers.items()}
    if len(kept) != sum(len(case.attempts) + len(case.pending) for case in cases):
        yield "two attempts have the same answer"
    for unknown in kept.keys() - {call.number for call in log.calls}:
        yield f"nobody made the call {unknown}, whose answer is kept for {kept[unknown]}"
    winners = {(c.loop, c.attempt): c for c in log.calls if c.number in kept}
    for call in log.calls:
        where = kept.get(call.number)
        if where is not None and (where != (call.loop, call.attempt) or call.fails):
            yield f"the answer of {call} is kept for {where}"
        if where is None and not call.lost:
            yield f"the answer of {call} is lost"
        winner = winners.get((call.loop, call.attempt))
        if winner is not None and call.step.opened > winner.time:
            yield f"{call} was made again, after {winner}"


def acknowledged(cases: Sequence[Case], log: Log) -> Iterator[str]:
    """What a step was told is there, is there once."""
    given = Counter(one["why"] for case in cases for one in case.overrides)
    ended = {case.id for case in cases if case.row["cancelled"]}
    attempts = {(case.id, one["number"]) for case in cases for one in case.attempts}
    for step in log.steps.values():
        done = step.said not in ERRORS
        if step.do == "override" and not done <= given[step.id] <= 1:
            yield f"{given[step.id]} overrides came of {step}"
        if step.said == "cancelled" and step.loop not in ended:
            yield f"not to end like this: {step}"
    for step, loop, number in log.checks:
        if step.said not in ERRORS and (loop, number) not in attempts:
            yield f"attempt {number} is not there, after {step}"


def problems(folder: Path) -> list[str]:
    db = sqlite3.connect(folder / "limits.db")
    db.row_factory = sqlite3.Row
    try:
        said = [row["integrity_check"] for row in db.execute("pragma integrity_check")]
        found = [what for what in said if what != "ok"]
        found += [str(tuple(row)) for row in db.execute("pragma foreign_key_check")]
        cases = [Case(db, row) for row in db.execute("select * from loop order by n")]
    finally:
        db.close()
    log = Log(folder)
    for case in cases:
        found += [f"{case.id}: {what}" for ask in OF_ONE for what in ask(case)]
    return [*found, *called(cases, log), *acknowledged(cases, log)]

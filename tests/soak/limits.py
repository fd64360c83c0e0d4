"""What must hold of a store after `stepping`, judged from its rows and the processes' logs alone.

Limits that can be counted are counted by hand; each decision is made anew from what was there.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from heedful.loop.codec import decision_from, from_document, policy_from
from heedful.loop.decide import Again, Decision, Done, Verdict, count_echoes, decide, standing_of
from heedful.loop.record import Attempt, Loop, Override, Usage
from heedful.loop.stop import Echo, Stop, counts_scope
from tests.soak.stepping import EXPECTED, FAILED, lease_seconds
from tests.soak.stepping import policy as allowed

Row = Mapping[str, Any]
Plain = dict[str, Any]
NEVER = float("inf")


# -- the logs of the processes


@dataclass
class Step:
    """What a thread did to a loop: what it had read of it and when, what came of it and when."""

    id: str
    begun: float
    do: str
    loop: str
    opened: float
    said: str = ""
    ended: float = NEVER

    @property
    def cut(self) -> bool:
        """What it wrote last need not be there: it was killed, given up, or not let in."""
        return self.said in ("", "TimeoutError", "LeaseLost", "StoreUnavailable")

    @property
    def landed(self) -> float:
        """From when on what it wrote is there for certain."""
        return NEVER if self.cut else self.ended


@dataclass(frozen=True)
class Call:
    """A call of a generator."""

    time: float
    step: Step
    loop: str
    attempt: int
    number: int
    fails: bool

    @property
    def failed(self) -> bool:
        """It failed for certain, and that was written down."""
        return self.fails and self.step.said in ("GenerateFailed", "ModelError")


class Log:
    """All that the processes wrote. The last line of one that was killed may be torn."""

    def __init__(self, folder: Path) -> None:
        self.steps: dict[str, Step] = {}
        self.calls: list[Call] = []
        self.checks: dict[tuple[str, str, int], list[tuple[float, Step]]] = defaultdict(list)
        self._sessions: dict[str, str] = {}
        self._opened: dict[str, float] = {}
        for path in folder.glob("*.log"):
            for line in path.read_text().rpartition("\n")[0].splitlines():
                self._read(*json.loads(line))

    def _read(self, kind: str, at: float, id: str, *what: Any) -> None:
        match kind, what:
            case "begin", (do, loop, session, fresh):
                if fresh or session not in self._opened:
                    self._opened[session] = at
                alone = do in ("outside", "read")
                self._sessions[id] = session
                self.steps[id] = Step(id, at, do, loop, at if alone else self._opened[session])
            case "end", (said,):
                self.steps[id].said, self.steps[id].ended = said, at
            case "generate", (loop, attempt, number, fails):
                self.calls.append(Call(at, self.steps[id], loop, attempt, number, fails))
            case "check", (loop, attempt):
                key = self._sessions[id], loop, attempt
                self.checks[key].append((at, self.steps[id]))
            case _:
                raise AssertionError((kind, what))


# -- the rows of the store


class Case:
    """One loop as its rows are, in the order in which they were written."""

    def __init__(self, db: sqlite3.Connection, row: Row, log: Log) -> None:
        def rows(table: str, order: str) -> list[Plain]:
            query = f"select * from {table} where loop = ? order by {order}"
            return [dict(one) for one in db.execute(query, (row["n"],))]

        self.row, self.log, self.id = row, log, str(row["id"])
        self.scope = (row["tenant"], row["project"])
        self.policy = policy_from(json.loads(row["policy"]))
        self.rules: Sequence[Plain] = json.loads(row["policy"])["rules"]
        self.extra = Usage(**json.loads(row["extra"]))
        self.attempts = rows("attempt", "number")
        self.records = tuple(from_document(Attempt, json.loads(a["record"])) for a in self.attempts)
        self.overrides = rows("override", "seq")
        self.pending = rows("step", "key")
        self.seqs = [d["seq"] for d in rows("decision", "seq")]
        self.decisions = [
            decision_from(json.loads(d["record"]), d["attempt"], d["created"])
            for d in rows("decision", "seq")
        ]

    @cached_property
    def created(self) -> dict[int, float]:
        """When each attempt was written, by its number."""
        return {a["number"]: a["created"] for a in self.attempts}

    @cached_property
    def answers(self) -> dict[int, int]:
        """The call that an answer came from, which is its price -> the number of its attempt."""
        return {int(a.usage.cost): a.number for a in self.records}

    @cached_property
    def waiting(self) -> dict[int, int]:
        """The same of answers that are written down and not evaluated yet."""
        prices = [json.loads(step["record"])[1][3] for step in self.pending]
        return {int(price): len(self.attempts) + 1 for price in prices}

    def after(self, number: int) -> list[Decision]:
        """What was decided after that attempt and before the next one."""
        return [d for d in self.decisions if d.attempt == number]

    def given(self, at: float) -> list[Plain]:
        """The overrides that there were at a time."""
        return [o for o in self.overrides if o["created"] <= at]

    def evaluating(self, number: int) -> tuple[float, Step] | None:
        """When the evaluation of a recorded attempt began at the latest, and in which step."""
        if not 0 < number <= len(self.records):
            return None
        session = self.records[number - 1].labels.get("session", "")
        asked = self.log.checks[session, self.id, number]
        return max((a for a in asked if a[0] <= self.created[number]), default=None, key=_first)

    def source(self, decision: Decision) -> tuple[float, Step] | None:
        """The step that made a decision, and a moment in it from which on it was made."""
        if decision.at == self.created.get(decision.attempt):
            return self.evaluating(decision.attempt)
        whys = [o["why"] for o in self.overrides if o["created"] == decision.at]
        if not whys and _says(decision, "cancelled"):
            whys = [self.row["cancelled"]]
        step = self.log.steps.get(whys[0]) if whys else None
        return (step.begun, step) if step else None

    def earliest(self, decision: Decision) -> float:
        """No decision was made before that."""
        source = self.source(decision)
        if source is not None:
            return source[0]
        records = [*self.created.values(), *(d.at for d in self.decisions)]
        return max((at for at in records if at < decision.at), default=0.0)


def _first(one: tuple[float, Step]) -> float:
    return one[0]


def _says(decision: Decision, *rules: str) -> bool:
    verdict = decision.verdict
    return isinstance(verdict, Done) and any(stop.rule in rules for stop in verdict.stopped_by)


def _spoke(verdict: Verdict) -> tuple[Stop, ...]:
    stops = verdict.stopped_by if isinstance(verdict, Done) else ()
    return *stops, *(one.stop for one in verdict.lifted)


def _flat(rules: Sequence[Plain]) -> Iterator[Plain]:
    for rule in rules:
        yield from _flat(rule["rules"]) if rule["rule"] == "all" else (rule,)


# -- what must hold of one loop


def numbered(case: Case) -> Iterator[str]:
    """Nothing is missing or doubled, and one was written after the other."""
    for what, numbers in (
        ("attempts", [a["number"] for a in case.attempts]),
        ("attempts, as recorded,", [a.number for a in case.records]),
        ("decisions", case.seqs),
        ("overrides", [o["seq"] for o in case.overrides]),
    ):
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"{what} are numbered {numbers}"
    for times in (list(case.created.values()), [d.at for d in case.decisions]):
        if times != sorted(times):
            yield "what came later is older"
    if case.policy != allowed(case.id):
        yield f"the policy is {case.policy}"
    for step in case.pending:
        if step["key"] != f"{len(case.attempts) + 1}/answer":
            yield f"the journal holds {step['key']} after {len(case.attempts)} attempts"


def decided(case: Case) -> Iterator[str]:
    """One decision an attempt, one an override of a stopped loop, one where it was ended."""
    own = Counter(d.attempt for d in case.decisions if d.at == case.created.get(d.attempt))
    for number in case.created:
        if own[number] != 1:
            yield f"attempt {number} has {own[number]} decisions"
    if len({decision.at for decision in case.decisions}) < len(case.decisions):
        yield "two decisions were made at once"
    moments = {one["created"] for one in case.overrides}
    before: Decision | None = None
    for seq, decision in enumerate(case.decisions, 1):
        if before is not None and decision.attempt < before.attempt:
            yield f"decision {seq} goes back to attempt {decision.attempt}"
        anew = decision.at in moments
        if anew is not (before is not None and isinstance(before.verdict, Done)):
            yield f"decision {seq}: {'the loop had not' if anew else 'the loop had'} ended"
        ends = _says(decision, "cancelled", "budget")
        if not (anew or ends or decision.at == case.created.get(decision.attempt)):
            yield f"decision {seq} belongs to nothing"
        before = decision


def reopened(case: Case) -> Iterator[str]:
    """An override of a loop that had ended was decided at once."""
    decisions = {decision.at for decision in case.decisions}
    for index, one in enumerate(case.overrides):
        last = [d.verdict for d in case.decisions if d.at < one["created"]][-1:]
        if last and isinstance(last[0], Done) and one["created"] not in decisions:
            yield f"override {index} of a loop that had ended has no decision"


def answered(case: Case) -> Iterator[str]:
    """Every override could be given, and was consumed by just the decisions that it lifted."""
    names = {rule["rule"] for rule in _flat(case.rules)} - {"budget"}
    lifted = Counter(
        index
        for decision in case.decisions
        if isinstance(decision.verdict, Again)
        for index in {one.override for one in decision.verdict.lifted}
    )
    for index, one in enumerate(case.overrides):
        step = case.log.steps.get(one["why"])
        if one["rule"] not in names or not one["by"].strip() or one["decisions"] < 1:
            yield f"override {index} cannot be given: {one}"
        if step is None or (one["until"] is not None and one["until"] <= step.begun):
            yield f"override {index} had expired when it was given"
        if not lifted[index] == one["used"] <= one["decisions"]:
            yield f"override {index}, used {one['used']} of {one['decisions']}: {lifted[index]}"
    for index in lifted.keys() - range(len(case.overrides)):
        yield f"override {index} lifted {lifted[index]} decisions and is not recorded"


def continued(case: Case) -> Iterator[str]:
    """An attempt follows only where all that had ended the loop was lifted.

    What echoes over the scope may fall silent by itself: other loops have mended it since.
    """
    silent = {"echo"} if any(map(counts_scope, case.policy.rules)) else set()
    for number in case.created:
        group = [decision.verdict for decision in case.after(number - 1)]
        last = group[-1] if group else Again()
        if isinstance(last, Done) or (number > 1 and not group):
            yield f"attempt {number} follows {last if group else 'no decision'}"
        spoke = {stop.rule for verdict in group for stop in _spoke(verdict)}
        kept = spoke - {one.stop.rule for one in last.lifted} - silent
        if kept or any(isinstance(verdict, Done) and verdict.passed for verdict in group):
            yield f"attempt {number} was made though {kept or 'the loop had passed'}"


def told(case: Case) -> Iterator[str]:
    """The state of the loop is that of its last verdict."""
    state = "open"
    if case.decisions and isinstance(last := case.decisions[-1].verdict, Done):
        state = "passed" if last.passed else "stopped"
    if case.row["state"] != state:
        yield f"its state is {case.row['state']!r}, its verdict says {state!r}"


def cancelled(case: Case) -> Iterator[str]:
    """From the cancellation on every decision says so, and none before."""
    says = [_says(decision, "cancelled") for decision in case.decisions]
    if says != sorted(says) or any(says) != bool(case.row["cancelled"]):
        yield f"cancelled by {case.row['cancelled']!r}, and decisions say {says}"


def counted(case: Case) -> Iterator[str]:
    """The limits on attempts, calls and tokens, counted without the code under test."""
    usages = [attempt.usage for attempt in case.records]
    calls = [used.calls for used in usages]
    tokens = [used.prompt_tokens + used.completion_tokens for used in usages]
    for rule in case.rules:
        if rule["rule"] == "attempts":
            yield from _attempts(case, rule["limit"])
        if rule["rule"] == "budget":
            yield from _spent("calls", calls, case.extra.calls, rule["calls"])
            yield from _spent("tokens", tokens, case.extra.tokens, rule["tokens"])


def _attempts(case: Case, limit: int) -> Iterator[str]:
    """Each attempt beyond the limit follows a decision in which just that was lifted."""
    for number in range(limit, len(case.attempts)):
        last = [{one.stop.rule for one in d.verdict.lifted} for d in case.after(number)[-1:]]
        if not last or "attempts" not in last[0]:
            yield f"{number} of {limit} attempts were made, and one more"


def _spent(what: str, made: list[int], failed: int, limit: int | None) -> Iterator[str]:
    """Whenever a call was made, the limit was not reached."""
    if limit is not None and (
        sum(made[:-1]) >= limit or sum(made) + failed >= limit + max((*made, 1))
    ):
        yield f"{made} {what} and {failed} in vain were spent of {limit}"


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
    """The loop at a decision, for each number of calls that may have failed by then.

    And for each moment at which it may have been made, as far as that makes a difference.
    """
    overrides = tuple(
        Override(o["rule"], o["by"], o["why"], o["decisions"], used[index], o["until"])
        for index, o in enumerate(case.given(decision.at))
    )
    cancelled = case.row["cancelled"] if _says(decision, "cancelled") else ""
    attempts, echoes = case.records[: decision.attempt], others(case, decision)
    loop = Loop(case.id, (), attempts, overrides, cancelled=cancelled, echoes=echoes)
    earliest = case.earliest(decision)
    untils = (o.until for o in overrides if o.until is not None)
    times = [decision.at, *(u - 1e-6 for u in untils if earliest < u <= decision.at)]
    for calls in range(failed, case.extra.calls + 1):
        for at in times:
            yield replace(loop, extra=Usage(calls), at=at)


def others(case: Case, decision: Decision) -> dict[str, int]:
    """In how many attempts of other loops each finding was seen, as the decision says."""
    echo = next((rule for rule in case.policy.rules if isinstance(rule, Echo)), Echo())
    if echo.across == "loop":
        return {}
    own = echo.counts(Loop(case.id, (), case.records[: decision.attempt]))
    heard = decision.standing.echoes
    return {key: heard[key] - own.get(key, 0) for key in heard}


ASKED: tuple[Callable[[Case], Iterator[str]], ...] = (
    numbered,
    decided,
    reopened,
    answered,
    continued,
    told,
    cancelled,
    counted,
    judged,
)


# -- what must hold between loops, and of the calls


def echoed(cases: Sequence[Case]) -> Iterator[str]:
    """Counts over the scope are those of the store at the time when the loop was read."""
    scopes: dict[Any, list[tuple[Case, Sounds]]] = defaultdict(list)
    for case in cases:
        scopes[case.scope].append((case, _sounds(case)))
    for case in cases:
        for decision in case.decisions:
            source = case.source(decision)
            opened = source[1].opened if source else 0.0
            for key, said in others(case, decision).items():
                least = most = 0
                for other, heard in scopes[case.scope]:
                    if other is not case:
                        heards = _meanwhile(heard, opened, decision.at)
                        span = [counts.get(key, 0) for counts in heards]
                        least, most = least + min(span), most + max(span)
                if not least <= said <= most:
                    yield f"{case.id}: {key} {said} times in other loops, not {least} to {most}"


Sounds = Sequence[tuple[float, float, Mapping[str, int]]]


def _sounds(case: Case) -> Sounds:
    """What echoes after each attempt: from when it was written, known from when it had landed."""
    found: list[tuple[float, float, Mapping[str, int]]] = [(0.0, 0.0, {})]
    for attempt in case.records:
        made = case.evaluating(attempt.number)
        records = case.records[: attempt.number]
        loop = Loop(case.id, (), records, improves=case.policy.improvement)
        landed = made[1].landed if made else NEVER
        found.append((case.created[attempt.number], landed, count_echoes(loop)))
    return found


def _meanwhile(heard: Sounds, opened: float, at: float) -> Iterator[Mapping[str, int]]:
    """What may have been heard of a loop by one who looked between two moments."""
    first = max(n for n, (_, landed, _) in enumerate(heard) if landed <= opened or n == 0)
    for written, _, counts in heard[first:]:
        if written <= at:
            yield counts


def called(cases: Sequence[Case], log: Log) -> Iterator[str]:
    """Of all calls for an attempt one is kept; the others failed, or were in flight when cut."""
    recorded = {call: (case.id, n) for case in cases for call, n in case.answers.items()}
    waiting = {call: (case.id, n) for case in cases for call, n in case.waiting.items()}
    kept = recorded | waiting
    if len(kept) != sum(len(case.attempts) + len(case.pending) for case in cases):
        yield "two attempts have the same answer"
    for unknown in kept.keys() - {call.number for call in log.calls}:
        yield f"nobody made the call {unknown}, whose answer is kept for {kept[unknown]}"
    for call in log.calls:
        where = kept.get(call.number)
        if where is not None and (where != (call.loop, call.attempt) or call.fails):
            yield f"the answer of {call} is kept for {where}"
        if where is None and not call.step.cut and not call.failed:
            yield f"the answer of {call} is lost"
    made = {case.id: case.created for case in cases}
    winners = {(c.loop, c.attempt): c for c in log.calls if c.number in kept}
    for call in log.calls:
        winner = winners.get((call.loop, call.attempt))
        yield from _in_turn(call, made.get(call.loop, {}), winner)


def _in_turn(call: Call, created: Mapping[int, float], kept: Call | None) -> Iterator[str]:
    """Made after the attempt before was written, and not again by one who could know better."""
    if call.attempt > 1 and not created.get(call.attempt - 1, NEVER) <= call.time:
        yield f"{call} was made before its turn"
    if kept is call and call.time > created.get(call.attempt, NEVER):
        yield f"{call} was made after its attempt"
    if kept is not None and call.step.opened > kept.time:
        yield f"{call} was made again, after {kept}"


def acknowledged(cases: Sequence[Case], log: Log) -> Iterator[str]:
    """What a step was told is there, is there once."""
    errors = {error.__name__ for error in (*EXPECTED, *FAILED)} | {""}
    given = Counter(one["why"] for case in cases for one in case.overrides)
    ended = {case.id for case in cases if case.row["cancelled"]}
    attempts = {(case.id, number) for case in cases for number in case.created}
    for step in log.steps.values():
        told = step.said not in errors
        if step.do in ("override", "outside") and not told <= given[step.id] <= 1:
            yield f"{given[step.id]} overrides came of {step}"
        if step.do == "cancel" and step.said == "cancelled" and step.loop not in ended:
            yield f"nothing came of {step}"
    for (_, loop, number), asked in log.checks.items():
        lost = [step for _, step in asked if step.said not in errors]
        if lost and (loop, number) not in attempts:
            yield f"attempt {number} is not there, after {lost}"


def held(log: Log) -> Iterator[str]:
    """No loop was taken from one that had claimed it and was at work, before its lease ended."""
    for call in log.calls:
        step = call.step
        claimed = step.opened == step.begun and step.said == "LeaseLost"
        if claimed and step.ended - step.begun < lease_seconds(int(step.id.split(".")[0]))[0]:
            yield f"while it was at work, the loop was taken from {step}"


def failed(cases: Sequence[Case], log: Log) -> Iterator[str]:
    """Calls that failed are counted once each; where the process was killed, perhaps not."""
    least = Counter(call.loop for call in log.calls if call.failed)
    most = Counter(call.loop for call in log.calls if call.fails)
    for case in cases:
        bounds = least[case.id], most[case.id]
        if not bounds[0] <= case.extra.calls <= bounds[1] or case.extra.tokens:
            yield f"{case.id}: {case.extra} was spent in vain, in {bounds} calls"


def refused(log: Log) -> Iterator[str]:
    """Nothing that is not allowed was done, and nothing that is allowed was refused."""
    errors = {error.__name__ for error in (*EXPECTED, *FAILED)}
    for step in log.steps.values():
        over = step.said in ("OverrideRefused", "NotFound", "Conflict")
        may = {"step": not over, "cancel": step.cut, "illegal": step.cut or over}
        wrong = not may.get(step.do, True) if step.said in errors else step.said == "accepted"
        if wrong:
            yield f"not to end like this: {step}"


def problems(folder: Path) -> list[str]:
    """All that is wrong with a store and its logs."""
    db = sqlite3.connect(folder / "limits.db")
    db.row_factory = sqlite3.Row
    try:
        said = [row["integrity_check"] for row in db.execute("pragma integrity_check")]
        found = [what for what in said if what != "ok"]
        found += [str(tuple(row)) for row in db.execute("pragma foreign_key_check")]
        log = Log(folder)
        cases = [Case(db, row, log) for row in db.execute("select * from loop order by n")]
    finally:
        db.close()
    for case in cases:
        found += [f"{case.id}: {what}" for ask in ASKED for what in ask(case)]
    found += [*echoed(cases), *called(cases, log), *failed(cases, log)]
    return [*found, *acknowledged(cases, log), *held(log), *refused(log)]

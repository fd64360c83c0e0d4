"""The newest loops: how each ended, what it used, and why those stopped that did.

No index has what loops used or which checks they failed, so these are read from the
records of `MAX_READ_ROWS` loops. All that pages and the terminal count of loops is
counted here.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import NamedTuple

from heedful.display import counted
from heedful.lessons.scope import MIN_UNBROKEN_CASES, Scope
from heedful.lessons.signature import signature
from heedful.loop import codec
from heedful.loop.ladder import add_costs
from heedful.loop.record import DOUBT_STATES, Attempt, Evaluation, Finding, Usage
from heedful.loop.share import Share, percent
from heedful.loop.stop import describe_rule_name
from heedful.store.connection import MAX_READ_ROWS, MAX_ROWS, Db, Row, bulk
from heedful.store.loops import MAX_REPLAY_BYTES
from heedful.validation import MAX_READ_BYTES, MAX_SHOWN_TEXT_CHARS, Document

# Somebody has to look at such a loop: no rule let it go on, or a check is broken.
FAILED_STATES = ("stopped", "not_validated")
CANCELLED = "cancelled"  # why a loop stopped that no rule stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentLoop:
    """A loop of the newest ones: how it went, and what it used.

    The `state` is as every face shows it. `checks` had an error in one of its attempts;
    `first_error` is the first one of its first attempt, and `error` that of its last
    one, or its check that raised an error instead of judging: None if these have none.
    `failure` is the exception that left it open, or "". `stops` are the rules that
    stopped it. `size` is that of its records, in characters; above `MAX_READ_BYTES`,
    its errors are unknown.
    """

    n: int
    id: str
    kind: str
    state: str
    memory_key: str
    created: float
    updated: float
    size: int
    attempts: int
    rung: int
    usage: Usage
    checks: tuple[str, ...]
    first_error: Finding | None
    error: Finding | None
    failure: str
    stops: tuple[str, ...]

    @property
    def why(self) -> str:
        """What left it open, what was wrong in its last attempt, or why it stopped."""
        if self.failure:
            return self.failure
        if self.error:
            return self.error.message
        if self.state != "stopped":
            return ""
        return ", ".join(map(describe_rule_name, self.stops)) or CANCELLED


class RecentLoops(NamedTuple):
    """Loops, newest first; `oldest` is the number below which there are more, or 0."""

    loops: list[RecentLoop]
    oldest: int


@bulk
def read_recent(
    db: Db,
    scope: Scope,
    known: Mapping[int, RecentLoop] | None = None,
    *,
    before: int = 0,
    numbers: Sequence[int] | None = None,
) -> RecentLoops:
    """Return the newest loops, as many as have at most `MAX_REPLAY_BYTES` of records.

    The records are those of their attempts. With `before`, only loops with a lower
    number are returned; with `numbers`, only those with one of these numbers. `known`
    are loops that were returned before, by number: those that have not changed since
    are returned as they are, and their records are not read again.
    """
    numbers_json = ""
    lowest_number = 0
    if numbers is not None:
        numbers_json = json.dumps(list(numbers))
        lowest_number = min(numbers, default=MAX_ROWS)
    # One row more than are read, to see whether there are more.
    newest = db.all(
        "recent_loops",
        scope,
        before=before or MAX_ROWS,
        numbers=numbers_json,
        least=lowest_number,
        limit=MAX_READ_ROWS + 1,
    )
    # `total` is the size of the records of a loop and of all newer ones. The newest
    # loop is read whatever its size, so that each page has one.
    loop_rows = [
        row
        for place, row in enumerate(newest[:MAX_READ_ROWS])
        if not place or row["total"] <= MAX_REPLAY_BYTES
    ]
    unchanged = {}
    for row in loop_rows:
        loop = (known or {}).get(row["n"])
        if loop and loop.updated == row["updated"] and loop.size == row["size"]:
            unchanged[row["n"]] = loop

    changed = [row["n"] for row in loop_rows if row["n"] not in unchanged]
    records = defaultdict[int, list[str]](list)
    for row in db.all("attempts_of_loops", scope, numbers=json.dumps(changed)):
        records[row["n"]].append(row["record"])
    loops = [
        unchanged.get(row["n"]) or _recent_loop(row, records[row["n"]])
        for row in loop_rows
    ]
    oldest = loop_rows[-1]["n"] if len(newest) > len(loop_rows) else 0
    return RecentLoops(loops, oldest)


def _recent_loop(row: Row, records: Sequence[str]) -> RecentLoop:
    """Return a loop from its row and the JSON records of its attempts."""
    attempts = [codec.from_document(Attempt, json.loads(text)) for text in records]
    state = row["state"]
    # "passed" may mean that nothing has judged the answer: then the attempt says so.
    if attempts and state == "passed":
        state = attempts[-1].doubt_state or state
    failure = ""
    if row["failure"]:
        state = "failed"
        failure = json.loads(row["failure"])["error"]

    evaluations = [attempt.evaluation or Evaluation() for attempt in attempts]
    # The errors of a loop whose records are very large count as unknown.
    if not attempts or row["size"] > MAX_READ_BYTES:
        evaluations = [Evaluation()]  # it has no errors
    first = evaluations[0]
    last = evaluations[-1]
    errors = chain.from_iterable(evaluation.errors for evaluation in evaluations)

    # Calls that failed belong to no attempt.
    failed_calls = Usage(**json.loads(row["extra"]))
    stops = json.loads(row["stops"] or "[]")
    return RecentLoop(
        n=row["n"],
        id=row["id"],
        kind=row["kind"],
        state=state,
        memory_key=row["memory_key"],
        created=row["created"],
        updated=row["updated"],
        size=row["size"],
        attempts=len(attempts),
        rung=max([attempt.rung for attempt in attempts], default=1),
        usage=sum([attempt.usage for attempt in attempts], failed_calls),
        checks=tuple(dict.fromkeys(error.check for error in errors)),
        first_error=_first_shortened(first.errors),
        error=_first_shortened([*last.errors, *last.unvalidated]),
        failure=failure,
        stops=tuple(dict.fromkeys(stop["rule"] for stop in stops)),
    )


def _first_shortened(findings: Sequence[Finding]) -> Finding | None:
    """Return the first finding, shortened to the beginning of its message, or None."""
    if not findings:
        return None
    message = findings[0].message[:MAX_SHOWN_TEXT_CHARS]
    return replace(findings[0], message=message, fix="", evidence="")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopFigures:
    """How loops went, and what they used: all of them, or those of a memory `key`.

    `stages` of them are stages of pipelines.
    `right` are those whose first answer passed, `solved` those that passed after a
    retry, `passed` both of them, each a share of the loops that have ended.
    """

    key: str = ""
    loops: int
    stages: int
    right: Share
    solved: Share
    passed: Share
    stopped: int
    unjudged: int
    open: int
    calls: int
    tokens: int
    cost: float
    seconds: float

    @property
    def plain(self) -> Document:
        """The figures as JSON data, with the sentence."""
        shares = {
            "right": self.right.plain,
            "solved": self.solved.plain,
            "passed": self.passed.plain,
        }
        return {**asdict(self), **shares, "sentence": self.sentence}

    @property
    def sentence(self) -> str:
        """How the loops ended: "90 % of 40 loops solved, 70 % at the first try".

        Of few loops it has numbers, because their shares say nothing. If none has
        ended, it says how many are open or were judged by nothing.
        """
        ended = self._count(self.passed.of)
        if not self.passed.of:
            judged = f"{self.unjudged} that nothing judged" if self.unjudged else ""
            parts = filter(None, (judged, f"{self.open} open" if self.open else ""))
            return f"{self._count(self.loops)}: {', '.join(parts)}"
        if self.passed.of < MIN_UNBROKEN_CASES:
            solved = f"{self.passed.number} of {ended} solved"
            return f"{solved}, {self.right.number} at the first try"
        solved = f"{percent(self.passed.value)} of {ended} solved"
        return f"{solved}, {percent(self.right.value)} at the first try"

    def _count(self, number: int) -> str:
        """Return a number in words: "3 loops", "3 stages" or "3 loops and stages"."""
        if self.stages == self.loops:
            return counted(number, "stage")
        words = counted(number, "loop")
        return f"{words} and stages" if self.stages else words


def sum_loops(loops: Iterable[RecentLoop], key: str = "") -> LoopFigures:
    """Return how many of the loops passed, stopped or are open, and what all used.

    The memory `key` that they share only labels the result.
    """
    loops = list(loops)
    states = [loop.state for loop in loops]
    right = sum(loop.state == "passed" and loop.attempts < 2 for loop in loops)
    passed = states.count("passed")
    stopped = states.count("stopped")
    ended = passed + stopped
    return LoopFigures(
        key=key,
        loops=len(loops),
        stages=sum(loop.kind == "stage" for loop in loops),
        right=Share(right, ended),
        solved=Share(passed - right, ended),
        passed=Share(passed, ended),
        stopped=stopped,
        unjudged=sum(map(states.count, DOUBT_STATES)),
        open=states.count("open") + states.count("failed"),
        **add_costs([loop.usage for loop in loops]),
    )


def count_keys(loops: Iterable[RecentLoop]) -> list[LoopFigures]:
    """Return how the loops went, by the function they serve, most loops first.

    Their memory key names this function.
    """
    groups = defaultdict[str, list[RecentLoop]](list)
    for loop in loops:
        groups[loop.memory_key].append(loop)
    figures = [sum_loops(group, key) for key, group in groups.items()]
    return sorted(figures, key=lambda figure: (-figure.loops, figure.key))


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCause:
    """Why loops stopped: a check with a `finding`, or else the rule that stopped them.

    `signature` is that of the error, as memory has it: what loops have in common.
    `since` is when the first of these loops stopped, and `last` when the newest one,
    `loop`, did; the finding is that of the newest one. It may be the `stage` of a run.
    """

    signature: str
    check: str
    finding: str
    loops: int
    since: float
    last: float
    loop: str
    stage: bool


def group_causes(loops: Iterable[RecentLoop]) -> list[FailureCause]:
    """Return why loops stopped or were not validated, the most frequent cause first.

    Not validated are loops whose check failed itself. Loops with the same error, or
    without one with the same reason, have one cause: it shows the newest of them.
    """
    groups = defaultdict[str, list[RecentLoop]](list)
    for loop in loops:
        if loop.state in FAILED_STATES:
            groups[cause_of(loop)].append(loop)

    causes = []
    for cause_name, group in groups.items():
        newest = max(group, key=lambda loop: loop.updated)
        cause = FailureCause(
            signature=cause_name,
            check=newest.error.check if newest.error else "",
            finding=newest.why,
            loops=len(group),
            since=min(loop.updated for loop in group),
            last=newest.updated,
            loop=newest.id,
            stage=newest.kind == "stage",
        )
        causes.append(cause)
    return sorted(causes, key=lambda cause: (-cause.loops, -cause.last))


def cause_of(loop: RecentLoop) -> str:
    """Return what loops that failed for the same cause have in common, as a text.

    It is the digest of the check and the pattern of its last error, so that two checks
    that report the same words have two causes. Without an error, it is why it stopped.
    """
    if loop.error is None:
        return loop.why
    return signature(loop.error.check, loop.error.key).digest

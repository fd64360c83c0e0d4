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
    `stops` are the rules that stopped it. `size` is that of its records, in characters;
    above `MAX_READ_BYTES`, its errors are unknown.
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
    stops: tuple[str, ...]

    @property
    def why(self) -> str:
        """What was wrong in its last attempt, or else why it stopped."""
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
    """Return the newest loops, of at most `MAX_REPLAY_BYTES` of records.

    These are loops with a number below `before`, if that is given, and perhaps only
    those with one of the `numbers`. The records of `known` loops that have not changed
    are not read again.
    """
    only = ""
    least = 0
    if numbers is not None:
        only = json.dumps(list(numbers))
        least = min(numbers, default=MAX_ROWS)
    newest = db.all(
        "recent_loops",
        scope,
        before=before or MAX_ROWS,
        numbers=only,
        least=least,
        limit=MAX_READ_ROWS + 1,
    )
    heads = [
        row
        for place, row in enumerate(newest[:MAX_READ_ROWS])
        if not place or row["total"] <= MAX_REPLAY_BYTES
    ]
    same = {}
    for row in heads:
        loop = (known or {}).get(row["n"])
        if loop and loop.updated == row["updated"] and loop.size == row["size"]:
            same[row["n"]] = loop

    changed = [row["n"] for row in heads if row["n"] not in same]
    records = defaultdict[int, list[str]](list)
    for row in db.all("attempts_of_loops", scope, numbers=json.dumps(changed)):
        records[row["n"]].append(row["record"])
    loops = [same.get(row["n"]) or _loop(row, records[row["n"]]) for row in heads]
    oldest = heads[-1]["n"] if len(newest) > len(heads) else 0
    return RecentLoops(loops, oldest)


def _loop(head: Row, records: Sequence[str]) -> RecentLoop:
    """Return a loop from its row and the records of its attempts."""
    attempts = [codec.from_document(Attempt, json.loads(text)) for text in records]
    state = head["state"]
    if attempts and state == "passed":
        state = attempts[-1].doubt_state or state

    evaluations = [attempt.evaluation or Evaluation() for attempt in attempts]
    if head["size"] > MAX_READ_BYTES:
        evaluations = []
    first = evaluations[0] if evaluations else Evaluation()
    last = evaluations[-1] if evaluations else Evaluation()
    errors = chain.from_iterable(evaluation.errors for evaluation in evaluations)

    # Calls that failed belong to no attempt.
    extra = Usage(**json.loads(head["extra"]))
    stops = json.loads(head["stops"] or "[]")
    return RecentLoop(
        n=head["n"],
        id=head["id"],
        kind=head["kind"],
        state=state,
        memory_key=head["memory_key"],
        created=head["created"],
        updated=head["updated"],
        size=head["size"],
        attempts=len(attempts),
        rung=max([attempt.rung for attempt in attempts], default=1),
        usage=sum([attempt.usage for attempt in attempts], extra),
        checks=tuple(dict.fromkeys(error.check for error in errors)),
        first_error=_shown(first.errors),
        error=_shown([*last.errors, *last.unvalidated]),
        stops=tuple(dict.fromkeys(stop["rule"] for stop in stops)),
    )


def _shown(findings: Sequence[Finding]) -> Finding | None:
    """Return the first of the findings with the beginning of its message, if any."""
    for finding in findings:
        message = finding.message[:MAX_SHOWN_TEXT_CHARS]
        return replace(finding, message=message, fix="", evidence="")
    return None


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
        """How the loops ended, in words; shares of few loops say nothing."""
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
        """Return a number of these in words: of loops, stages, or both."""
        if self.stages == self.loops:
            return counted(number, "stage")
        words = counted(number, "loop")
        return f"{words} and stages" if self.stages else words


def sum_loops(loops: Iterable[RecentLoop], key: str = "") -> LoopFigures:
    """Return how loops went."""
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
        open=states.count("open"),
        calls=sum(loop.usage.calls for loop in loops),
        tokens=sum(loop.usage.tokens for loop in loops),
        cost=sum(loop.usage.cost for loop in loops),
        seconds=sum(loop.usage.seconds for loop in loops),
    )


def count_keys(loops: Iterable[RecentLoop]) -> list[LoopFigures]:
    """Return how the loops of each memory key went, those with the most loops first."""
    groups = defaultdict[str, list[RecentLoop]](list)
    for loop in loops:
        groups[loop.memory_key].append(loop)
    figures = [sum_loops(group, key) for key, group in groups.items()]
    return sorted(figures, key=lambda one: (-one.loops, one.key))


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
    """Return why loops stopped or were not validated, the most frequent cause first."""
    groups = defaultdict[str, list[RecentLoop]](list)
    for loop in loops:
        if loop.state in FAILED_STATES:
            groups[cause_of(loop)].append(loop)

    causes = []
    for name, group in groups.items():
        newest = max(group, key=lambda loop: loop.updated)
        cause = FailureCause(
            signature=name,
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
    """Return the signature of the error for which a loop stopped, or else its reason.

    Two checks that report the same words have two causes.
    """
    if loop.error is None:
        return loop.why
    return signature(loop.error.check, loop.error.key).digest

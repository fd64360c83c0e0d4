"""An override from outside: whoever answers for a loop lets it go on, without driving it.

Host (c): somebody else makes the attempts and reports them; here they are judged and decided.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from heedful import telemetry
from heedful.checks.evaluate import Check, Context, check_name, evaluated
from heedful.drive.drive import given
from heedful.drive.generate import journalable
from heedful.drive.journal import (
    LoopRecorder,
    Snapshot,
    attempted,
    cancelled,
    decided,
    retry_on_conflict,
    text_of,
)
from heedful.errors import (
    AttemptTaken,
    Conflict,
    InvalidInput,
    LoopEnded,
    OutOfOrder,
    OverrideRefused,
)
from heedful.lessons.lesson import Scope
from heedful.lessons.ranking import Briefing
from heedful.loop import policies
from heedful.loop.codec import (
    is_complete,
    policy_from,
    policy_to,
    to_document,
    verdict_from,
    verdict_to,
)
from heedful.loop.decide import Again, Done, Policy, Verdict, apply_override, decide, latest_verdict
from heedful.loop.record import NOTHING, Attempt, Candidate, Evaluation, Goal, Loop, Override, Usage
from heedful.loop.stop import find_near_repeat, rule_name
from heedful.memory.memory import Memory, placed, space_of
from heedful.redact import redact, redact_data
from heedful.store import loops, open_store
from heedful.store.records import Head, JournalEntry, StoredLoop
from heedful.store.runs import reworded
from heedful.store.store import Store


async def override(
    loop: str,
    rule: str,
    *,
    by: str,
    why: str = "",
    decisions: int = 1,
    until: float | None = None,
    store: Store | str = "heedful.db",
    scope: Scope | None = None,
) -> Verdict:
    """Let a stored loop go on past one rule; one that has stopped reopens, and can be resumed.

    `decisions` is how many it lifts, `until` (seconds since 1970) when it expires. The override
    and the new decision are one transaction. Raises OverrideRefused where `Run.override` does, and
    where the loop was stopped by what is the host's own code; NotFound; LeaseLost where another
    process drives the loop just now.
    """
    opened = open_store(store) if isinstance(store, str) else store
    given = Override(rule, by, why, decisions, until=until)

    async def lifted(turn: Snapshot) -> Verdict:
        stored = turn.known.stored
        was = latest_verdict(stored.decisions)
        policy = _policy(stored)
        before = replace(stored.loop, improves=policy.improvement, at=time.time())
        before = replace(before, echoes=turn.known.echoes)
        after, verdict = apply_override(before, policy, was, given)
        turn.free()
        verdict = reworded(after, verdict)
        stopped = isinstance(was, Done)
        entry = decided(before, policy, verdict) if stopped else JournalEntry(loop, 0)
        await turn.commit(replace(entry, override=given))
        return verdict

    return await retry_on_conflict(opened, scope or Scope(), loop, lifted)


def _policy(stored: StoredLoop) -> Policy:
    """The policy as it is stored. Raises OverrideRefused where that is not all that stops it."""
    policy = policy_from(stored.head.policy)
    known = {rule_name(rule) for rule in policy.rules} | {"cancelled", "unscored"}
    last = latest_verdict(stored.decisions)
    stops = [stop.rule for stop in last.stopped_by] if isinstance(last, Done) else []
    own = [f"{rule!r}, a rule" for rule in stops if rule not in known]
    if stops and stored.head.policy.get("min_gain") is None:
        own.append(f"{stops[0]!r} under an improvement")
    if own:
        raise OverrideRefused(
            f"the loop was stopped by {own[0]} that is code of its host; "
            "override it there, with Run.override"
        )
    return policy


LONGEST = 200  # characters of an id: it stands in addresses and lists
# Who judged an attempt, one name a line; `REPORT` where its evaluation came with it.
EVALUATED_BY = "evaluated_by"
REPORT = "report"
# An attempt with this label came with an evaluation of somebody whose word is no measurement.
UNVOUCHED = "unvouched"


@dataclass(frozen=True, slots=True)
class Told:
    """What is reported of an attempt: its output, or a digest of it; what it was judged; its cost.

    `checks` judge the output here, besides the evaluation that is given, if any. `said` is what
    else tells this report from another one of the same attempt, as JSON data: the names and
    arguments of the checks, say. Where nobody has `vouched` for the evaluation that is given, what
    the loop teaches is a model's word, and nothing has verified it.
    """

    output: Any = None
    digest: str = ""
    evaluation: Evaluation | None = None
    checks: Sequence[Check] = ()
    usage: Usage = NOTHING
    labels: Mapping[str, str] = field(default_factory=dict)
    said: Any = None
    vouched: bool = True

    @property
    def name(self) -> str:
        """Tells it from every other report: 32 hex digits of SHA-256 over canonical JSON."""
        judged = self.evaluation and to_document(self.evaluation)
        usage = to_document(self.usage)
        parts = (self.output, self.digest, judged, usage, dict(self.labels), self.said)
        text = json.dumps(parts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def candidate(self, loop: str, number: int) -> Candidate:
        """Of which nothing is told is like no other."""
        if self.output is None:
            return Candidate(self.digest or Candidate.of(f"{loop}/{number}").digest)
        made = Candidate.of(self.output)
        return replace(made, digest=self.digest) if self.digest else made


@dataclass(frozen=True, slots=True)
class Reported:
    """What came of a report: the loop up to that attempt, and the verdict on it.

    `new` is false where the same report had come before: its verdict is that of then.
    """

    loop: Loop
    verdict: Verdict
    new: bool

    @property
    def attempt(self) -> int:
        """The number of the attempt."""
        return len(self.loop.attempts)

    @property
    def evaluated_by(self) -> list[str]:
        """The checks and critics that judged it, `report` where the report did; else nothing."""
        return self.loop.attempts[-1].labels.get(EVALUATED_BY, "").splitlines()


async def open_loop(
    store: Store,
    scope: Scope,
    id: str,
    task: Any,
    *,
    goals: Sequence[Goal] = (),
    policy: Policy = policies.default,
    context: Any = None,
) -> tuple[StoredLoop, bool]:
    """The loop of that id, created where it is new, and whether it is; nobody drives it.

    `context` is what checks find as `Context.data`. Raises InvalidInput, and Conflict where there
    is one with another task, context, goals or policy.
    """
    given(id, (), goals, policy, None, None)
    if not (0 < len(id) <= LONGEST and id.isprintable()):
        raise InvalidInput("id", id, f"1 to {LONGEST} printable characters")
    plain = policy_to(policy)
    if not is_complete(plain):
        raise InvalidInput("policy", policy.name, "made of shipped rules: no code of the host")
    listed = [to_document(goal) for goal in tuple(goals) or policy.goals]
    return await store.write(scope, loops.begin, id, Head(task, listed, plain, context))


async def report(
    store: Store, scope: Scope, id: str, number: int, told: Told, memory: Memory | None = None
) -> Reported:
    """Decide on an attempt, and keep it: one transaction that reads, one that writes.

    The same report again changes nothing and gets the verdict that it got. With `memory`, which is
    of the same store and scope, a loop that ends teaches what it learnt, and what it was shown is
    proven by it. Raises NotFound,
    AttemptTaken for another report of that attempt, OutOfOrder where one before it is missing,
    LoopEnded, LeaseLost where a process drives the loop, Conflict where code of its host decides
    it, CheckFailed, ModelError, and NotJournalable.
    """
    journalable(told.output)
    judging = _Judging(told)

    async def made(turn: Snapshot) -> Reported:
        stored = turn.known.stored
        if 0 < number <= len(stored.loop.attempts):
            return _before(stored, number, told.name)
        policy = _open(turn, number)
        attempt = await judging.attempt(stored, number)
        before = replace(stored.loop, improves=policy.improvement, echoes=turn.known.echoes)
        loop = attempted(before, attempt, time.time())
        verdict = _stored(decide(loop, policy))
        entry = replace(decided(loop, policy, verdict), attempt=attempt, value=told.output)
        record = await _record(turn, memory, verdict, loop)
        await record.commit(entry, loop)
        telemetry.record_decision(loop, verdict)
        return Reported(loop, verdict, new=True)

    return await retry_on_conflict(store, scope, id, made)


async def cancel(
    store: Store, scope: Scope, id: str, by: str, why: str = "", memory: Memory | None = None
) -> Verdict:
    """End a loop that nobody drives; one that has ended stays as it is. Raises as `report`."""

    async def ended(turn: Snapshot) -> Verdict:
        stored = turn.known.stored
        was = latest_verdict(stored.decisions)
        if isinstance(was, Done):
            return was
        turn.free()
        policy = policy_from(stored.head.policy)
        before = replace(stored.loop, improves=policy.improvement, echoes=turn.known.echoes)
        who = redact(f"{by}: {why}" if why else by)
        loop, verdict, entry = cancelled(before, policy, who, time.time())
        record = await _record(turn, memory, verdict, loop)
        await record.commit(entry, loop)
        return verdict

    return await retry_on_conflict(store, scope, id, ended)


def _stored(verdict: Verdict) -> Verdict:
    """The verdict as it will be read again: a name before a text can make a secret of it."""
    return verdict_from(redact_data(verdict_to(verdict)))


def _before(stored: StoredLoop, number: int, name: str) -> Reported:
    """What the same report got before. Raises AttemptTaken for another one."""
    loop = stored.loop.upto(number)
    if loop.attempts[-1].report != name:
        raise AttemptTaken(f"attempt {number} of {stored.id!r} was reported with other content")
    first = next(one for one in stored.decisions if one.attempt == number)
    return Reported(loop, first.verdict, new=False)


def _open(turn: Snapshot, number: int) -> Policy:
    """The policy of a loop whose next attempt has that number, and that goes on."""
    stored = turn.known.stored
    following = len(stored.loop.attempts) + 1
    if number != following:
        told = f"attempt {number} of {stored.id!r} is reported, but {following} comes next"
        raise OutOfOrder(told)
    last = latest_verdict(stored.decisions)
    if isinstance(last, Done):
        how = "passed" if last.passed else f"was stopped by {last.stopped_by[0].rule}"
        raise LoopEnded(f"loop {stored.id!r} {how}; attempt {number} comes too late")
    turn.free()
    if not is_complete(stored.head.policy):
        raise Conflict(f"loop {stored.id!r} is decided by code of its host, not here")
    return policy_from(stored.head.policy)


@dataclass(slots=True)
class _Judging:
    """A report and what it is judged: once, however often the loop has to be read again."""

    told: Told
    _judged: Evaluation | None = None

    async def attempt(self, stored: StoredLoop, number: int) -> Attempt:
        """The attempt that is reported."""
        told, earlier = self.told, stored.loop.attempts
        names = [check_name(check) for check in told.checks]
        names += [REPORT] if told.evaluation is not None else []
        if names and self._judged is None:
            self._judged = await self._evaluated(stored, number)
        judged, candidate = self._judged, told.candidate(stored.id, number)
        usage = told.usage + judged.usage if judged is not None else told.usage
        labels = {**told.labels, **({EVALUATED_BY: "\n".join(names)} if names else {})}
        if told.evaluation is not None and not told.vouched:
            labels[UNVOUCHED] = "true"
        seen = find_near_repeat(candidate, earlier) if earlier else None
        return Attempt(number, candidate, judged, usage, seen, labels, report=told.name)

    async def _evaluated(self, stored: StoredLoop, number: int) -> Evaluation:
        told, last = self.told, latest_verdict(stored.decisions)
        at = Context(
            stored.head.task,
            number,
            stored.id,
            last.feedback if isinstance(last, Again) else "",
            stored.values[-1] if stored.values else None,
            stored.head.context,
            began=stored.created,
        )
        own = None if told.evaluation is None else _Given(told.evaluation)
        return await evaluated(told.output, at, told.checks, own)


@dataclass(frozen=True, slots=True)
class _Given:
    """Evaluates as the report does."""

    evaluation: Evaluation
    pure: ClassVar[bool] = True

    def __call__(self, candidate: Any, at: Context) -> Evaluation:
        return self.evaluation


async def _record(
    turn: Snapshot, memory: Memory | None, verdict: Verdict, loop: Loop
) -> LoopRecorder:
    """The journal of the loop and its memory, told what it was shown."""
    known, task = turn.known, text_of(turn.known.stored.head.task)
    vouched = not any(UNVOUCHED in one.labels for one in loop.attempts)
    record = LoopRecorder(turn, memory, task, judged=True, measured=vouched)
    if memory is None:
        return record
    if not turn.shares(memory.store, memory.scope):
        raise InvalidInput("memory", memory, "one in the store and the scope of the loop")
    ids = tuple(id for one in known.exposures for id in one.examples)
    briefing = Briefing(shown=ids, exposures=known.exposures)
    if memory.embedder is not None and isinstance(verdict, Done) and verdict.passed:
        (vector,) = await placed(memory.embedder, [redact(task)])
        briefing = replace(briefing, space=space_of(memory.embedder), vector=vector)
    record.told(briefing)
    return record

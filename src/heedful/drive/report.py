"""Decide on attempts that an outside orchestrator makes and reports."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from heedful import errors, telemetry
from heedful.checks.evaluate import Check, Context, evaluated
from heedful.drive import drive, journal
from heedful.drive.generate import whole_hint
from heedful.lessons.briefing import Briefing
from heedful.lessons.lesson import Scope
from heedful.loop import codec, decide, policies, record, runs, stop
from heedful.loop.explain import Explanation
from heedful.memory.memory import Memory
from heedful.memory.vectors import embed, space_of
from heedful.models.contract import answer_of, usage_of
from heedful.redact import redact, redact_data
from heedful.store import loops, open_store
from heedful.store.records import Head, JournalEntry, StoredLoop
from heedful.store.store import Store
from heedful.validation import check_integer, check_options, require

MAX_LOOP_ID_CHARS = 200  # characters of an id, which appears in addresses and lists
REPORT_JUDGE = (
    "report"  # the name of a report's own evaluation among the judges of an attempt
)


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """An attempt as an orchestrator reports it: its output or a digest, its evaluation,
    its cost.

    The `output` may be the answer of an SDK, and `usage` its usage. heedful also runs
    `checks` on the output. `request` is further JSON data of the report, such as the
    arguments of the checks; it is part of the `name`. If nobody has `vouched` for
    evaluation and checks, or the loop has other goals than `goals`, its lessons wait in
    quarantine. Raises InvalidInput, UsageError.
    """

    output: Any = None
    digest: str = ""
    _: KW_ONLY
    evaluation: record.Evaluation | None = None
    checks: Sequence[Check] = ()
    usage: record.Usage = record.NO_USAGE
    labels: Mapping[str, str] = field(default_factory=dict)
    reported_as: str = ""
    request: Any = None
    vouched: bool = True
    goals: Sequence[record.Goal] | None = None

    def __post_init__(self) -> None:
        output = self.output
        spent = self.usage
        if not isinstance(output, str | dict | None) and (answer := answer_of(output)):
            output = answer.text
            spent = answer.usage if spent == record.NO_USAGE else spent
        spent = spent if isinstance(spent, record.Usage) else usage_of(spent)
        require(
            spent is not None, "usage", self.usage, "a Usage, or the usage of an SDK"
        )
        if not isinstance(self.evaluation, record.Evaluation | None):
            raise errors.InvalidInput(
                "evaluation", self.evaluation, "an Evaluation, or None"
            )
        require(
            isinstance(self.checks, Sequence), "checks", self.checks, "a list of checks"
        )
        given = self.digest or self.checks or self.request
        if output is None and self.evaluation is None and not given:
            raise errors.UsageError(
                "the report is empty: give output, digest or evaluation"
            )
        object.__setattr__(self, "output", output)
        object.__setattr__(self, "usage", spent)

    @property
    def name(self) -> str:
        """The identity of the report: 32 hex digits of a SHA-256 over its JSON."""
        evaluation = self.evaluation and codec.to_document(self.evaluation)
        made = (
            record.as_data(self.output),
            self.digest,
            evaluation,
            codec.to_document(self.usage),
        )
        parts = (*made, dict(self.labels), self.request, self.reported_as)
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[
            :32
        ]

    def attempt(
        self, loop: record.Loop, number: int, evaluation: record.Evaluation | None
    ) -> record.Attempt:
        """Return the attempt. If it has no output and no digest, it never counts as a
        repeat.
        """
        given = self.output is not None
        own = record.Candidate.of(self.output if given else f"{loop.id}/{number}")
        candidate = record.Candidate(
            self.digest or own.digest, own.text if given else None
        )
        judges = (
            *map(stop.rule_name, self.checks),
            *[REPORT_JUDGE] * (self.evaluation is not None),
        )
        usage = self.usage + evaluation.usage if evaluation is not None else self.usage
        near = (
            stop.find_near_repeat(candidate, loop.attempts) if loop.attempts else None
        )
        vouched = self.vouched and (
            self.goals is None or set(self.goals) == set(loop.goals)
        )
        return record.Attempt(
            number,
            candidate,
            evaluation=evaluation,
            usage=usage,
            repeats=near,
            labels=self.labels,
            report=self.name,
            reported_as=self.reported_as,
            judged_by=judges,
            vouched=vouched,
        )


@dataclass(frozen=True, slots=True)
class ReportResult:
    """The loop up to the reported attempt, and the verdict on the attempt.

    `new` is False if the same report arrived before; then `verdict` is the verdict of
    that report.
    """

    loop: record.Loop
    verdict: decide.Verdict
    new: bool


async def report(
    store: Store,
    scope: Scope,
    id: str,
    number: int,
    attempt_report: AttemptReport,
    memory: Memory | None = None,
    load: Callable[[], Awaitable[Sequence[Check]]] | None = None,
) -> ReportResult:
    """Decide on an attempt and store it; if the same report came before, return its
    verdict again.

    `load` returns the checks of a new attempt. It is not called for a report that came
    before, which changed settings may refuse. With a `memory` of the same store and
    scope, a loop that ends adds lessons to the memory. Raises NotFound; AttemptTaken if
    the attempt was reported with other content; OutOfOrder if an earlier attempt is
    missing; LoopEnded; LeaseLost if a process drives the loop; Conflict if the policy
    contains user code; CheckFailed, ModelError, NotJournalable.
    """
    data = journal.journalable(attempt_report.output)
    judged = list[
        tuple[AttemptReport, record.Evaluation | None]
    ]()  # at most one, if read again

    async def decide_on(snapshot: journal.Snapshot) -> ReportResult:
        stored = snapshot.state.stored
        if 0 < number <= len(stored.loop.attempts):
            known = stored.loop.upto(number)
            if known.attempts[-1].report != attempt_report.name:
                other = f"attempt {number} of {id!r} was reported with other content"
                raise errors.AttemptTaken(other)
            first = next(each for each in stored.decisions if each.attempt == number)
            return ReportResult(known, first.verdict, new=False)
        policy = _next_policy(snapshot, number)
        if not judged:
            new = (
                replace(attempt_report, checks=await load()) if load else attempt_report
            )
            judged.append((new, await _evaluation(new, stored)))
        [(new, evaluation)] = judged
        attempt = new.attempt(stored.loop, number, evaluation)
        loop = journal.append_attempt(_loop(snapshot, policy), attempt, time.time())
        # Redact as the store does: joined texts can form a secret that no part
        # contains.
        verdict = codec.verdict_from(
            redact_data(codec.verdict_to(decide.decide(loop, policy)))
        )
        entry = journal.decision_entry(
            loop, policy, verdict=verdict, attempt=attempt, value=data
        )
        await _commit(snapshot, memory, entry, loop)
        telemetry.record_decision(loop, verdict)
        return ReportResult(loop, verdict, new=True)

    return await journal.retry_on_conflict(store, scope, id, decide_on)


@dataclass(eq=False, repr=False)
class ReportedLoop:
    """A loop whose attempts your own program makes, such as a graph of agents.

    `created` is True if `open_loop` made the loop, `stored` is the loop after the last
    call. `briefing` is what memory told before the first attempt; its `examples` are
    chat turns.
    """

    store: Store
    scope: Scope
    _: KW_ONLY
    stored: StoredLoop
    created: bool
    memory: Memory | None = None
    checks: Sequence[Check] = ()
    briefing: Briefing = Briefing()

    @property
    def loop(self) -> record.Loop:
        """The loop with its attempts."""
        return self.stored.loop

    @property
    def verdict(self) -> decide.Verdict:
        """The last verdict; Again before the first attempt."""
        return decide.latest_verdict(self.stored.decisions)

    @property
    def ended(self) -> bool:
        """True if no further attempt is to be made."""
        return isinstance(self.verdict, decide.Done)

    @property
    def passed(self) -> bool:
        """True if the loop has ended with a candidate that has no error and meets every
        goal.
        """
        return decide.state_after(self.verdict) == "passed"

    @property
    def candidate(self) -> Any:
        """The best candidate so far as text or JSON data; None before the first
        evaluation.
        """
        return self.stored.values[self.loop.best - 1] if self.loop.best else None

    @property
    def hint(self) -> str:
        """What memory tells, then what was wrong with the last attempt; "" for
        neither.
        """
        at = _context(self.stored)
        told = self.briefing
        return whole_hint(replace(at, examples=told.examples, advice=told.advice))

    async def report(
        self, output: Any = None, *, attempt: int | None = None, **fields: Any
    ) -> decide.Verdict:
        """Report an attempt, by default the next one, and return the verdict on it.

        `output` and further `fields` are those of AttemptReport; `checks` are by
        default those of the loop. The same report of the same `attempt` again changes
        nothing. Raises as `run` does, and AttemptTaken, OutOfOrder, LoopEnded,
        InvalidInput, UsageError for an empty report.
        """
        check_options("a report", fields, AttemptReport.__slots__)
        made = AttemptReport(output, **fields)
        made = made if "checks" in fields else replace(made, checks=self.checks)
        number = len(self.loop.attempts) + 1 if attempt is None else attempt
        check_integer("attempt", number)
        result = await report(
            self.store,
            scope=self.scope,
            id=self.stored.id,
            number=number,
            attempt_report=made,
            memory=self.memory,
        )
        self.stored = await self.store.read(self.scope, loops.read, self.stored.id)
        return result.verdict

    def explain(self) -> Explanation:
        """Explain why the loop continued, why it ended, and what would have changed
        that.
        """
        return self.stored.explain()


async def open_loop(
    id: str,
    task: Any,
    *,
    checks: Sequence[Check] = (),
    goals: Sequence[record.Goal | str] = (),
    policy: decide.Policy | str = policies.default,
    context: Any = None,
    memory: Memory | Store | str | None = None,
    memory_key: str = "",
    store: Store | str = "heedful.db",
    scope: Scope | None = None,
) -> ReportedLoop:
    """Begin a loop whose attempts your own program makes, or continue the loop with
    this `id`.

    Your program reports its attempts with `ReportedLoop.report`; heedful checks them
    and decides. With a `memory`, whose store and scope the loop then has, it is told
    what earlier loops learnt, and teaches when it ends; loops with the same
    `memory_key` tell each other the rules that they broke. Checks find `context` as
    `Context.data`. Raises InvalidInput, StoreError, and Conflict if the loop exists
    with another task, context, goals, policy or memory key.
    """
    policy, aims = drive.validate_arguments(
        id, checks, goals, policy, memory_key=memory_key
    )
    journal.check_json(task=task, context=context)
    if not (
        isinstance(id, str) and 0 < len(id) <= MAX_LOOP_ID_CHARS and id.isprintable()
    ):
        raise errors.InvalidInput(
            "id", id, f"1 to {MAX_LOOP_ID_CHARS} printable characters"
        )
    plain = codec.policy_to(policy)
    allowed = "made of shipped rules: no code of the host"
    require(codec.is_complete(plain), "policy", policy.name, allowed)
    known = memory if memory is None else Memory.of(memory, scope)
    held = (
        known.store
        if known
        else store
        if isinstance(store, Store)
        else open_store(store)
    )
    scope = known.scope if known else scope or Scope()
    require(isinstance(scope, Scope), "scope", scope, "a Scope")
    head = Head(
        task=task,
        goals=list(map(codec.to_document, aims)),
        policy=plain,
        context=context,
        memory_key=memory_key,
    )
    stored, created = await held.write(scope, loops.begin, id, head)
    opened = ReportedLoop(
        held, scope, stored=stored, created=created, memory=known, checks=checks
    )
    if known is not None:
        names = stop.check_names(checks)
        new = not opened.loop.attempts
        brief = await known.brief(
            journal.text_of(task),
            loop=id,
            begins=new,
            memory_key=memory_key,
            checks=names,
        )
        await held.write(scope, loops.brief, id, brief)
        opened.briefing = brief
    return opened


async def learn(
    id: str, task: Any, attempts: Sequence[AttemptReport], **options: Any
) -> ReportedLoop:
    """Learn from a loop that your program has finished; the last attempt is the answer
    you kept.

    It counts as accepted only if its evaluation has no error. Takes the `options` of
    `open_loop`, without a policy. Raises the errors of `open_loop` and of
    `ReportedLoop.report`.
    """
    if not attempts or not all(isinstance(made, AttemptReport) for made in attempts):
        raise errors.InvalidInput("attempts", attempts, "a list of AttemptReport")
    policy = decide.Policy((stop.MaxAttempts(len(attempts)),), name="as made")
    loop = await open_loop(id, task, policy=policy, **options)
    for number, made in enumerate(attempts, 1):
        await report(
            loop.store,
            scope=loop.scope,
            id=id,
            number=number,
            attempt_report=made,
            memory=loop.memory,
        )
    loop.stored = await loop.store.read(loop.scope, loops.read, id)
    return loop


async def cancel(
    store: Store,
    scope: Scope,
    id: str,
    by: str,
    why: str = "",
    memory: Memory | None = None,
) -> decide.Verdict:
    """Cancel a loop for the actor `by`; return the verdict. An ended loop does not
    change.

    Raises NotFound, and LeaseLost if a process drives the loop.
    """

    async def end(snapshot: journal.Snapshot) -> decide.Verdict:
        last = decide.latest_verdict(snapshot.state.stored.decisions)
        if isinstance(last, decide.Done):
            return last
        snapshot.check_free()
        policy = snapshot.state.policy
        actor = redact(f"{by}: {why}" if why else by)
        loop = _loop(snapshot, policy)
        loop, verdict, entry = journal.cancel_loop(loop, policy, actor, time.time())
        await _commit(snapshot, memory, entry, loop)
        return verdict

    return await journal.retry_on_conflict(store, scope, id, end)


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
) -> decide.Verdict:
    """Let a stored loop continue past `rule`; a loop that the rule stopped is open
    again.

    Takes the arguments of `Run.override` and raises its errors. Also raises
    OverrideRefused if user code stopped the loop, NotFound, and LeaseLost if a process
    drives the loop.
    """
    new = record.Override(rule, by, why=why, decisions=decisions, until=until)

    async def lift(snapshot: journal.Snapshot) -> decide.Verdict:
        head = snapshot.state.stored.head
        last = decide.latest_verdict(snapshot.state.stored.decisions)
        policy = snapshot.state.policy
        entry = JournalEntry(id=loop, epoch=0)
        known = {stop.rule_name(rule) for rule in policy.rules} | {
            "cancelled",
            "unscored",
        }
        stops = (
            [each.rule for each in last.stopped_by]
            if isinstance(last, decide.Done)
            else []
        )
        if unknown := [one for one in stops if one not in known]:
            raise errors.OverrideRefused(
                f"the loop was stopped by {unknown[0]!r}, a rule that is user code; "
                "override it in the program with this code, with Run.override"
            )
        before = replace(_loop(snapshot, policy), at=time.time())
        after, verdict = decide.apply_override(before, policy, last, new)
        snapshot.check_free()
        verdict = runs.with_stage_feedback(verdict, after, head.stage)
        if isinstance(last, decide.Done):
            entry = journal.decision_entry(before, policy, verdict)
        await snapshot.commit(replace(entry, override=new))
        return verdict

    held = store if isinstance(store, Store) else open_store(store)
    return await journal.retry_on_conflict(held, scope or Scope(), loop, lift)


def _loop(snapshot: journal.Snapshot, policy: decide.Policy) -> record.Loop:
    """Return the stored loop with the improvement and the counts of findings that
    `policy` uses.
    """
    loop = snapshot.state.stored.loop
    return replace(loop, improves=policy.improvement, echoes=snapshot.state.echoes)


def _next_policy(snapshot: journal.Snapshot, number: int) -> decide.Policy:
    """Return the policy that judges attempt `number`. Raises OutOfOrder, LoopEnded,
    Conflict.
    """
    stored = snapshot.state.stored
    following = len(snapshot.state.stored.loop.attempts) + 1
    if number != following:
        what = (
            f"attempt {number} of {stored.id!r} is reported, but {following} comes next"
        )
        raise errors.OutOfOrder(what)
    last = decide.latest_verdict(stored.decisions)
    if isinstance(last, decide.Done):
        how = "passed" if last.passed else f"was stopped by {last.stopped_by[0].rule}"
        raise errors.LoopEnded(
            f"loop {stored.id!r} {how}; attempt {number} comes too late"
        )
    snapshot.check_free()
    if not codec.is_complete(stored.head.policy):
        raise errors.Conflict(
            f"loop {stored.id!r} contains user code; continue it where it began"
        )
    return snapshot.state.policy


async def _evaluation(
    report: AttemptReport, stored: StoredLoop
) -> record.Evaluation | None:
    """Return the evaluation in the report, combined with the findings of its checks."""
    if report.evaluation is None and not report.checks:
        return None

    async def as_reported(*_: object) -> record.Evaluation:
        return report.evaluation or record.Evaluation()

    own = None if report.evaluation is None else as_reported
    return await evaluated(report.output, _context(stored), report.checks, own)


def _context(stored: StoredLoop) -> Context:
    last = decide.latest_verdict(stored.decisions)
    head = stored.head
    hint = last.feedback if isinstance(last, decide.Again) else ""
    previous = stored.values[-1] if stored.values else None
    number = len(stored.values) + 1
    return Context(
        head.task,
        number,
        loop_id=stored.id,
        hint=hint,
        previous=previous,
        data=head.context,
        began=stored.created,
    )


async def _commit(
    snapshot: journal.Snapshot,
    memory: Memory | None,
    entry: JournalEntry,
    loop: record.Loop,
) -> None:
    """Write `entry`. With a `memory`, write the lessons and the outcome of the loop,
    too.
    """
    task = journal.text_of(snapshot.state.stored.head.task)
    brief = Briefing(snapshot.state.stored.head.memory_key)
    teaches = False
    if memory is not None:
        if memory.store is not snapshot.store or memory.scope != snapshot.scope:
            raise errors.InvalidInput(
                "memory", memory, "one in the store and scope of the loop"
            )
        done = entry.verdict if isinstance(entry.verdict, decide.Done) else None
        teaches = bool(done and (brief.memory_key or done.passed) and memory.embedder)
        if teaches and memory.embedder and memory.later is None:
            (vector,) = await embed(memory.embedder, [redact(task)])
            brief = replace(brief, space=space_of(memory.embedder), vector=vector)
    measured = all(attempt.vouched for attempt in loop.attempts)
    known: Any = {
        "together": True,
        "measured": measured,
        "briefing": brief,
        "exposed": True,
    }
    await journal.LoopRecorder(
        write=snapshot.commit, memory=memory, task=task, **known
    ).commit(entry, loop)
    if teaches and memory and memory.later:
        await memory.later()

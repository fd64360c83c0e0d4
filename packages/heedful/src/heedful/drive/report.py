"""Decide on attempts that an outside orchestrator makes and reports.

A report is decided on a snapshot of its loop, and written only if the loop is still as
it was read; otherwise the report is decided again. A repeated report returns the stored
verdict and changes nothing.
"""

import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any, ParamSpec, TypeVar

from heedful import errors, telemetry
from heedful.checks.evaluate import Check, Context, check_id, evaluated, whole_hint
from heedful.checks.output import remaining_fault
from heedful.checks.refusal import Refusing
from heedful.drive import journal
from heedful.drive.generate import key_of_checks
from heedful.drive.judgement import find_repeat
from heedful.drive.options import (
    LoopSettings,
    knows_options,
    validate_checks,
    validate_refusing,
)
from heedful.lessons.briefing import Briefing
from heedful.lessons.check_findings import add_findings
from heedful.lessons.lesson import Scope
from heedful.lessons.telling import Tell
from heedful.loop import codec, decide, policies, record, runs, stop
from heedful.loop.explain import Explanation
from heedful.loop.ladder import Ladder
from heedful.memory.memory import Memory, open_memory
from heedful.models.answers import answer_of, unfinished, usage_of
from heedful.models.embedding import embed, space_of
from heedful.redact import redact, redact_data
from heedful.store import (
    DEFAULT_STORE,
    loops,
    open_beside,
    open_store,
    shown,
)
from heedful.store.loop_columns import entry_columns, head_columns
from heedful.store.offload import MAX_INLINE_CHARS, offload
from heedful.store.records import Head, JournalEntry, StoredLoop
from heedful.store.store import Store
from heedful.validation import (
    MAX_NAME_CHARS,
    check_integer,
    check_name,
    check_options,
    hex_digest,
    refuses_unknown_options,
    require,
)

P = ParamSpec("P")
T = TypeVar("T")
# The name of a report's own evaluation among the judges of an attempt.
REPORT_JUDGE = "report"


@refuses_unknown_options
@dataclass(frozen=True, slots=True)
class AttemptReport:
    """An attempt as an orchestrator reports it: output or digest, evaluation, cost.

    The `output` may be the answer of an SDK, and `usage` its usage. `model` names the
    model that wrote the output; by default, the answer or the loop names it. heedful
    also runs `checks` on the output; `refuse` is that of `run`. `request` is further
    JSON data of the report, such as the arguments of the checks; it is part of the
    `name`. Checks get what is `judged` in place of the output, such as the object
    whose JSON data it is. A `fault` says what is wrong with how a provider ended the
    output; by default, the answer says it. If its evaluation is not `measured` by
    trusted judges, or the loop has other goals than `goals`, its lessons wait in
    quarantine. Raises InvalidInput, UsageError.
    """

    output: Any = None
    digest: str = ""
    _: KW_ONLY
    evaluation: record.Evaluation | None = None
    checks: Sequence[Check] = ()
    refuse: Refusing = ()
    usage: record.Usage = record.NO_USAGE
    labels: Mapping[str, str] = field(default_factory=dict)
    reported_as: str = ""
    request: Any = None
    measured: bool = True
    goals: Sequence[record.Goal] | None = None
    model: str = ""
    fault: record.Finding | None = None
    judged: Any = None

    def __post_init__(self) -> None:
        output = self.output
        usage: Any = self.usage
        model = self.model
        if not isinstance(output, str | dict | None):
            answer = answer_of(output)
            if answer is not None:
                output = answer.text
                object.__setattr__(self, "fault", unfinished(answer))
                model = model or answer.model
                usage = answer.usage if usage == record.NO_USAGE else usage

        if not isinstance(usage, record.Usage):
            usage = usage_of(usage)

        check_name("model", self.model)
        require(
            usage is not None, "usage", self.usage, "a Usage, or the usage of an SDK"
        )

        require(
            isinstance(self.evaluation, record.Evaluation | None),
            "evaluation",
            self.evaluation,
            "an Evaluation, or None",
        )
        validate_checks(self.checks)
        validate_refusing(self.refuse)

        has_detail = self.digest or self.checks or self.request
        if output is None and self.evaluation is None and not has_detail:
            raise errors.UsageError(
                "the report is empty: give output, digest, evaluation, checks or "
                "request"
            )

        object.__setattr__(self, "output", output)
        object.__setattr__(self, "usage", usage)
        object.__setattr__(self, "model", model)

    @property
    def name(self) -> str:
        """The identity of the report: 32 hex digits of a SHA-256 over its JSON."""
        evaluation = self.evaluation and codec.to_document(self.evaluation)
        document = (
            record.as_data(self.output),
            self.digest,
            evaluation,
            codec.to_document(self.usage),
            dict(self.labels),
            self.request,
            self.reported_as,
            *filter(None, [self.model]),
        )
        text = json.dumps(document, sort_keys=True)
        return hex_digest(text)[:32]

    @property
    def size(self) -> int:
        """The characters of its output and its findings, not counting other data.

        An output that cannot be stored counts as 0.
        """
        output = ""
        if isinstance(self.output, str):
            output = self.output
        elif self.output is not None:
            with suppress(TypeError, ValueError, RecursionError):
                output = json.dumps(record.as_data(self.output))

        findings = self.evaluation.findings if self.evaluation else ()
        return len(output) + sum(
            # 100 characters are its JSON without a message.
            len(finding.message) + len(finding.fix) + 100
            for finding in findings
        )

    def attempt(
        self,
        loop: record.Loop,
        number: int,
        evaluation: record.Evaluation | None,
        rung: int,
        model: str,
    ) -> record.Attempt:
        """Return the attempt, which the `rung` of the loop's ladder made.

        Its model is `model`, unless the report names one. Without output and digest, it
        is never a repeat.
        """
        if self.output is None:
            # A text that no other attempt has.
            unique = record.Candidate.of(f"{loop.id}/{number}")
            candidate = record.Candidate(self.digest or unique.digest)
        else:
            candidate = record.Candidate.of(self.output)
            if self.digest:
                candidate = replace(candidate, digest=self.digest)

        usage = self.usage
        if evaluation is not None:
            usage = usage + evaluation.usage

        judges = tuple(stop.rule_name(check) for check in self.checks)
        if self.evaluation is not None:
            judges = (*judges, REPORT_JUDGE)

        same_goals = self.goals is None or set(self.goals) == set(loop.goals)
        return record.Attempt(
            number,
            candidate,
            evaluation=evaluation,
            usage=usage,
            repeats=find_repeat(candidate, loop, rung),
            labels=self.labels,
            report=self.name,
            reported_as=self.reported_as,
            judged_by=judges,
            measured=self.measured and same_goals,
            model=self.model or model,
            rung=rung,
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
    load_checks: Callable[[], Awaitable[Sequence[Check]]] | None = None,
    max_chars: int | None = None,
    needs_judgement: bool = False,
    tell: Tell = "both",
) -> ReportResult:
    """Decide on an attempt and store it; return the old verdict on an old report.

    `load_checks` returns the checks of a new attempt. It is not called for a report
    that came before, which changed settings may refuse. The JSON of the loop may have
    at most `max_chars` characters. With a `memory` of the same store and scope, a loop
    that ends adds lessons to the memory, without outputs if it may `tell` only rules.
    With `needs_judgement`, a report that nobody
    judged and that would end the loop as unscored raises InvalidInput. Raises NotFound;
    AttemptTaken if the attempt was reported with other content; OutOfOrder if an
    earlier attempt is missing; LoopEnded; LeaseLost if a process drives the loop;
    Conflict if the policy contains user code; UsageUnknown if the policy limits what no
    report of the loop counts; LoopTooLarge, CheckFailed, ModelError, NotJournalable.
    """
    is_data = not isinstance(attempt_report.output, str | None)
    report_size = await _call(is_data, lambda: attempt_report.size)
    is_large = report_size > MAX_INLINE_CHARS
    value = await _call(is_large, journal.journalable, attempt_report.output)
    # The report with its checks, and its evaluation. They are made once, even if
    # another process writes meanwhile and the loop is read again.
    judged: tuple[AttemptReport, record.Evaluation | None] | None = None

    async def decide_on(snapshot: journal.Snapshot) -> ReportResult:
        """Judge and write the attempt, and decide; judge only once if called again."""
        nonlocal judged
        stored_loop = snapshot.state.stored
        large = is_large or stored_loop.size > MAX_INLINE_CHARS
        if 0 < number <= len(stored_loop.loop.attempts):
            return await _call(
                large, _repeated_report, stored_loop, number, report=attempt_report
            )

        policy = _next_policy(snapshot, number)
        size = stored_loop.size + report_size
        if max_chars is not None and size > max_chars:
            raise errors.LoopTooLarge(id, size, max_chars)

        if judged is None:
            new_report = attempt_report
            checks = () if load_checks is None else await load_checks()
            if checks:
                new_report = replace(attempt_report, checks=checks)
            evaluation = await _evaluate(new_report, stored_loop)
            if memory is not None and snapshot.state.checks:
                evaluation = _with_lesson_findings(evaluation, new_report, snapshot)
            judged = (new_report, evaluation)

        new_report, evaluation = judged
        ends_unscored = evaluation is None and policy.unscored == "stop"
        allowed = "given, or checks: nobody judged the attempt; the loop stays open"
        is_decidable = not (needs_judgement and ends_unscored)
        require(is_decidable, "evaluation", value=None, allowed=allowed)
        call = partial(_decide, snapshot, policy, number, report=new_report)
        loop, verdict, entry = await _call(
            large, call, evaluation=evaluation, value=value
        )
        if large:
            entry = replace(entry, columns=await offload(entry_columns, entry))
        await _write_entry(
            snapshot,
            memory,
            entry,
            loop,
            judges=new_report.checks,
            tell=tell,
            large=large,
        )
        telemetry.record_decision(loop, verdict)
        return ReportResult(loop, verdict, new=True)

    return await journal.retry_on_conflict(store, scope, id, decide_on)


async def _call(
    large: bool, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Return the value of a call; while a `large` one runs, the event loop goes on."""
    if large:
        return await offload(function, *args, **kwargs)
    return function(*args, **kwargs)


def _decide(
    snapshot: journal.Snapshot,
    policy: decide.Policy,
    number: int,
    report: AttemptReport,
    evaluation: record.Evaluation | None,
    value: Any,
) -> tuple[record.Loop, decide.Verdict, JournalEntry]:
    """Return the loop with the attempt, the verdict on it, and the entry for both.

    `value` is the output as JSON data. Raises UsageUnknown before another attempt that
    nobody counts.
    """
    stored_loop = snapshot.state.stored
    verdict = stored_loop.verdict
    rung = verdict.rung if isinstance(verdict, decide.Again) else stored_loop.loop.rung
    model = stored_loop.head.model
    if rung > 1 and stored_loop.loop.ladder is not None:
        model = stored_loop.loop.ladder.names[rung - 1]
    attempt = report.attempt(stored_loop.loop, number, evaluation, rung, model=model)
    loop = journal.append_attempt(_loop_with_policy(snapshot, policy), attempt)
    # A repeated report gets this verdict from the store, which has no secrets. Texts
    # that were joined can form a secret that none of them contains.
    document = redact_data(codec.verdict_to(decide.decide(loop, policy)))
    verdict = codec.verdict_from(document)
    units = stop.uncounted(policy.rules, loop.of_rung().attempts)
    if units and isinstance(verdict, decide.Again):
        raise errors.UsageUnknown("the report", units)
    entry = journal.decision_entry(loop, policy, verdict, attempt=attempt, value=value)
    return loop, verdict, entry


def _repeated_report(
    stored_loop: StoredLoop, number: int, report: AttemptReport
) -> ReportResult:
    """Return the stored verdict of a report. Raises AttemptTaken for another report."""
    loop = stored_loop.loop.upto(number)
    if loop.attempts[-1].report != report.name:
        raise errors.AttemptTaken(
            f"attempt {number} of {stored_loop.id!r} was reported with other content"
        )

    for decision in stored_loop.decisions:
        if decision.attempt == number:
            return ReportResult(loop, decision.verdict, new=False)

    raise errors.StoreCorrupt(f"attempt {number} of {stored_loop.id!r} has no decision")


@dataclass(eq=False, repr=False)
class ReportedLoop:
    """A loop whose attempts your own program makes, such as a graph of agents.

    `created` is True if `open_loop` made the loop, `stored` is the loop after the last
    call. `briefing` is what memory showed before the first attempt; its `examples` are
    chat turns.
    """

    store: Store
    scope: Scope
    _: KW_ONLY
    stored: StoredLoop
    created: bool
    memory: Memory | None = None
    checks: Sequence[Check] = ()
    refuse: Refusing = ()
    tell: Tell = "both"
    briefing: Briefing = Briefing()

    @property
    def loop(self) -> record.Loop:
        """The loop with its attempts."""
        return self.stored.loop

    @property
    def verdict(self) -> decide.Verdict:
        """The last verdict; Again before the first attempt."""
        return self.stored.verdict

    @property
    def ended(self) -> bool:
        """True if no further attempt is to be made."""
        return isinstance(self.verdict, decide.Done)

    @property
    def passed(self) -> bool:
        """True if the loop ended with a candidate that passes."""
        return decide.state_after(self.verdict) == "passed"

    @property
    def candidate(self) -> Any:
        """The best candidate as text or JSON data; None before the first evaluation."""
        best = self.loop.best
        return None if best is None else self.stored.values[best - 1]

    @property
    def hint(self) -> str:
        """What memory tells, then what was wrong with the last attempt, if anything."""
        briefing = self.briefing
        context = replace(
            _next_context(self.stored),
            examples=briefing.examples,
            advice=briefing.advice,
        )
        return whole_hint(context)

    async def report(
        self, output: Any = None, *, attempt: int | None = None, **fields: Any
    ) -> decide.Verdict:
        """Report an attempt, by default the next one, and return the verdict on it.

        `output` and further `fields` are those of AttemptReport; `checks` and `refuse`
        are by default those of the loop. A repeated report of the same `attempt`
        changes nothing. Raises as `run` does, and AttemptTaken, OutOfOrder, LoopEnded,
        InvalidInput, UsageError for an empty report.
        """
        check_options("a report", fields, AttemptReport.__slots__)
        AttemptReport(output, **fields)  # refuses an empty one
        fields = {"checks": self.checks, "refuse": self.refuse, **fields}
        attempt_report = AttemptReport(output, **fields)

        number = len(self.loop.attempts) + 1 if attempt is None else attempt
        check_integer("attempt", number)

        result = await report(
            self.store,
            scope=self.scope,
            id=self.stored.id,
            number=number,
            attempt_report=attempt_report,
            memory=self.memory,
            tell=self.tell,
        )
        self.stored = await self.store.read(self.scope, loops.read, self.stored.id)
        return result.verdict

    def explain(self) -> Explanation:
        """Explain why the loop went on and ended, and what would have changed that."""
        return self.stored.explain()


@knows_options
async def open_loop(
    id: str,
    task: Any,
    *,
    checks: Sequence[Check] = (),
    goals: Sequence[record.Goal | str] = (),
    policy: decide.Policy | str = policies.default,
    context: Any = None,
    memory: Memory | Store | str | None = None,
    memory_key: str | None = None,
    model: str = "",
    rungs: Sequence[str] = (),
    store: Store | str = DEFAULT_STORE,
    scope: Scope | None = None,
    refuse: Refusing = (),
    tell: Tell = "both",
) -> ReportedLoop:
    """Begin a loop whose attempts your own program makes, or continue the loop `id`.

    Your program reports its attempts with `ReportedLoop.report`; heedful checks them
    and decides. With a `memory`, the loop is in its store and scope, gets what earlier
    loops learnt, and teaches when it ends; loops with the same `memory_key` tell each
    other the rules that they broke. By default the key of a new loop is the names of
    its checks, if all are functions of a module or script. `model` names the model that
    makes the attempts, if their reports do not. `rungs` name several, cheapest first:
    then `Again.rung` says which of them, counted from 1, makes the next attempt. Checks
    find `context` as `Context.data`. `refuse` and `tell` are those of `run`. Raises
    InvalidInput, StoreError, and Conflict if the loop exists with another task,
    context, goals, policy, memory key or other rungs.
    """
    settings = LoopSettings[Any](
        id=id,
        checks=checks,
        goals=goals,
        policy=policies.policy(policy),
        memory_key=memory_key,
        model=model,
        scope=scope,
        refuse=refuse,
        tell=tell,
    )
    ladder = _ladder_of(rungs)
    is_text = isinstance(task, str) and context is None
    may_be_large = not is_text or len(task) > MAX_INLINE_CHARS
    await _call(may_be_large, journal.check_json, task=task, context=context)

    is_valid_id = isinstance(id, str) and 0 < len(id) <= MAX_NAME_CHARS
    allowed = f"1 to {MAX_NAME_CHARS} printable characters"
    require(is_valid_id and id.isprintable(), "id", id, allowed)

    policy_document = codec.policy_to(settings.policy)
    allowed = "made of shipped rules: no code of the host"
    is_complete = codec.is_complete(policy_document)
    require(is_complete, "policy", settings.policy.name, allowed)

    if memory is not None:
        memory = open_memory(memory, scope)
        store = _store_of_memory(store, memory)
        scope = memory.scope
    store = open_store(store)
    scope = scope or Scope()

    key = key_of_checks(checks) if memory_key is None else memory_key
    head = Head(
        task=task,
        goals=[codec.to_document(goal) for goal in settings.loop_goals],
        policy=policy_document,
        context=context,
        memory_key=key,
        model=model or (rungs[0] if rungs else ""),
        ladder=ladder,
    )
    if may_be_large:
        head = replace(head, columns=await offload(head_columns, head))
    stored_loop = await store.write(
        scope, loops.begin, id, head, any_key=memory_key is None
    )
    created = stored_loop is not None
    if stored_loop is None:
        stored_loop = await store.read(scope, loops.read, id)
        if rungs:
            _check_rungs(stored_loop, ladder)
    loop = ReportedLoop(
        store,
        scope,
        stored=stored_loop,
        created=created,
        memory=memory,
        checks=checks,
        refuse=refuse,
        tell=tell,
    )

    if memory is not None:
        loop.briefing = await memory.brief(
            record.text_of(task),
            loop=id,
            begins=not loop.loop.attempts,
            memory_key=stored_loop.head.memory_key,
            checks=stop.check_names(checks),
            check_ids=[check_id(check) for check in checks],
            tell=tell,
            model=model,
            withholds=loop.loop.rung == 1,
        )
        await store.write(scope, loops.brief, id, loop.briefing)

    return loop


def _store_of_memory(store: Store | str, memory: Memory) -> Store:
    """Return the store of a memory. Raises InvalidInput if the caller chose another."""
    other = open_beside(store, memory.store)
    if other is not None and other != memory.store:
        allowed = (
            "left out: the loop is stored beside its memory, in "
            f"{shown(memory.store.url)}"
        )
        raise errors.InvalidInput("store", shown(other.url), allowed)
    return memory.store


def _ladder_of(rungs: Sequence[str]) -> Ladder | None:
    """Return the ladder of rungs with these names; one rung needs none.

    Raises InvalidInput.
    """
    is_list = isinstance(rungs, Sequence) and not isinstance(rungs, str)
    allowed = 'a list of names, such as ["small", "large"]'
    require(is_list, "rungs", rungs, allowed)
    for name in rungs:
        check_name("rung", name)
        require(name, "rung", name, "a name")
    allowed = "names that differ"
    require(len(set(rungs)) == len(rungs), "rungs", rungs, allowed)
    return Ladder(names=tuple(rungs)) if len(rungs) > 1 else None


def _check_rungs(stored_loop: StoredLoop, ladder: Ladder | None) -> None:
    """Raise Conflict unless a stored loop has the rungs of `ladder`."""
    stored_ladder = stored_loop.loop.ladder
    names = () if ladder is None else ladder.names
    stored_names = () if stored_ladder is None else stored_ladder.names
    if names != stored_names:
        rungs = ", ".join(stored_names) or "one rung"
        raise errors.Conflict(
            f"loop {stored_loop.id!r} has other rungs: {rungs}; give another id"
        )


async def learn(
    id: str, task: Any, attempts: Sequence[AttemptReport], **options: Any
) -> ReportedLoop:
    """Learn from a loop that your program has finished; its last attempt was kept.

    The attempt counts as accepted only if its evaluation has no error. Takes the
    `options` of `open_loop`, without a policy. Raises the errors of `open_loop` and of
    `ReportedLoop.report`.
    """
    are_reports = attempts and all(
        isinstance(attempt, AttemptReport) for attempt in attempts
    )
    require(are_reports, "attempts", attempts, "a list of AttemptReport")

    policy = decide.Policy((stop.MaxAttempts(len(attempts)),), name="as made")
    loop = await open_loop(id, task, policy=policy, **options)

    for number, attempt_report in enumerate(attempts, 1):
        await report(
            loop.store,
            scope=loop.scope,
            id=id,
            number=number,
            attempt_report=attempt_report,
            memory=loop.memory,
            tell=loop.tell,
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
    """Cancel a loop for the actor `by`; return the verdict.

    An ended loop does not change. Raises NotFound, and LeaseLost if a process drives
    the loop.
    """

    async def end(snapshot: journal.Snapshot) -> decide.Verdict:
        """Cancel the loop, unless it has ended; return its verdict."""
        last = snapshot.state.stored.verdict
        if isinstance(last, decide.Done):
            return last

        snapshot.check_free()
        policy = snapshot.state.policy
        actor = redact(f"{by}: {why}" if why else by)
        loop, verdict, entry = journal.cancel_loop(
            _loop_with_policy(snapshot, policy), policy, actor
        )
        await _write_entry(snapshot, memory, entry, loop)
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
    key: str = "",
    store: Store | str = "heedful.db",
    scope: Scope | None = None,
) -> decide.Verdict:
    """Let a stored loop continue past `rule`, even if this rule has stopped it.

    Takes the arguments of `Run.override` and raises its errors. Also raises
    OverrideRefused if user code stopped the loop, NotFound, and LeaseLost if a process
    drives the loop.
    """
    override = record.Override(rule, by, why=why, decisions=decisions, until=until)

    async def lift(snapshot: journal.Snapshot) -> decide.Verdict:
        """Apply the override and decide again; return the new verdict."""
        stored_loop = snapshot.state.stored
        policy = snapshot.state.policy
        last = stored_loop.verdict
        _check_no_user_code(last, policy)

        before = replace(_loop_with_policy(snapshot, policy), at=time.time())
        after, verdict = decide.apply_override(before, policy, last, override)
        snapshot.check_free()
        verdict = runs.with_stage_feedback(verdict, after, stored_loop.head.stage)

        entry = journal.override_entry(
            before, after, policy=policy, last=last, verdict=verdict
        )
        await snapshot.journal().write(entry, before)
        return verdict

    store = open_store(store)
    scope = scope or Scope()
    return await journal.override_once(
        store,
        scope,
        loop,
        override,
        key=key,
        lift=partial(journal.retry_on_conflict, store, scope, loop, lift),
    )


def _check_no_user_code(verdict: decide.Verdict, policy: decide.Policy) -> None:
    """Raise OverrideRefused if a rule that is user code stopped the loop."""
    if not isinstance(verdict, decide.Done):
        return

    shipped = {stop.rule_name(rule) for rule in policy.rules}
    shipped |= {"cancelled", "unscored", "closed"}

    for reason in verdict.stopped_by:
        if reason.rule not in shipped:
            raise errors.OverrideRefused(
                f"the loop was stopped by {reason.rule!r}, a rule that is user code; "
                "override it in the program with this code, with Run.override"
            )


def _loop_with_policy(snapshot: journal.Snapshot, policy: decide.Policy) -> record.Loop:
    """Return the stored loop with the improvement and the echoes of `policy`."""
    loop = snapshot.state.stored.loop
    return replace(loop, improves=policy.improvement, echoes=snapshot.state.echoes)


def _next_policy(snapshot: journal.Snapshot, number: int) -> decide.Policy:
    """Return the policy that judges attempt `number`.

    Raises OutOfOrder, LoopEnded, LeaseLost, Conflict.
    """
    stored_loop = snapshot.state.stored
    following = len(stored_loop.loop.attempts) + 1
    if number != following:
        raise errors.OutOfOrder(
            f"attempt {number} of {stored_loop.id!r} is reported, "
            f"but {following} comes next"
        )

    last = stored_loop.verdict
    if isinstance(last, decide.Done):
        end = "passed" if last.passed else f"was stopped by {last.stopped_by[0].rule}"
        raise errors.LoopEnded(
            f"loop {stored_loop.id!r} {end}; attempt {number} comes too late"
        )

    snapshot.check_free()
    if not codec.is_complete(stored_loop.head.policy):
        raise errors.Conflict(
            f"loop {stored_loop.id!r} contains user code; continue it where it began"
        )
    return snapshot.state.policy


async def _evaluate(
    report: AttemptReport, stored_loop: StoredLoop
) -> record.Evaluation | None:
    """Return the evaluation in the report, combined with the findings of its checks.

    None means that the report has neither.
    """
    reported = report.evaluation
    if reported is None and not report.checks and report.fault is None:
        return None

    async def as_reported(*_: object) -> record.Evaluation:
        """Return the reported evaluation, as an evaluator."""
        return reported or record.Evaluation()

    evaluate = None if reported is None else as_reported
    return await evaluated(
        report.output if report.judged is None else report.judged,
        _next_context(stored_loop),
        report.checks,
        evaluate,
        refuse=report.refuse,
        fault=remaining_fault(report.fault, report.checks),
    )


def _with_lesson_findings(
    evaluation: record.Evaluation | None,
    report: AttemptReport,
    snapshot: journal.Snapshot,
) -> record.Evaluation | None:
    """Return the evaluation with what the checks of lessons find in the output."""
    if report.output is None:
        return evaluation

    # Only a trusted host may overrule a check that a person accepted.
    judges = None
    if report.evaluation is None or not report.measured:
        judges = stop.check_names(report.checks)
    return add_findings(evaluation, report.output, snapshot.state.checks, judges)


def _next_context(stored_loop: StoredLoop) -> Context:
    """Return what checks may know of the next attempt."""
    values = stored_loop.values
    verdict = stored_loop.verdict
    hint = verdict.feedback if isinstance(verdict, decide.Again) else ""
    return Context(
        stored_loop.head.task,
        len(values) + 1,
        loop_id=stored_loop.id,
        hint=hint,
        previous=values[-1] if values else None,
        data=stored_loop.head.context,
        began=stored_loop.created,
    )


async def _write_entry(
    snapshot: journal.Snapshot,
    memory: Memory | None,
    entry: JournalEntry,
    loop: record.Loop,
    *,
    judges: Sequence[Check] = (),
    tell: Tell = "both",
    large: bool = False,
) -> None:
    """Write `entry` and, with a `memory`, the lessons and the outcome of the loop.

    `judges` are the checks of the attempt: what they declare is no particular of it.
    If the loop ends with lessons, they get the vector of its task: now, or afterwards
    by the program that set `memory.later`. What a `large` loop teaches is found while
    the event loop goes on.
    """
    if memory is None:
        await snapshot.journal().write(entry, loop)
        return

    is_beside = memory.store is snapshot.store and memory.scope == snapshot.scope
    require(is_beside, "memory", memory, "one in the store and scope of the loop")

    head = snapshot.state.stored.head
    task = await _call(large, record.text_of, head.task)

    briefing = Briefing(head.memory_key, checks=snapshot.state.checks)
    needs_vector = False
    if isinstance(entry.verdict, decide.Done) and memory.embedder:
        needs_vector = bool(head.memory_key) or entry.verdict.passed
        if needs_vector and memory.later is None:
            [vector] = await embed(memory.embedder, [redact(task)])
            space = space_of(memory.embedder)
            briefing = replace(briefing, space=space, vector=vector)

    is_measured = all(attempt.measured for attempt in loop.attempts)
    loop_memory = journal.LoopMemory(
        memory=memory,
        task=task,
        shares_transaction=True,
        evidence="measured" if is_measured else "outside",
        briefing=briefing,
        judges=judges,
        tell=tell,
        is_large=large,
    )
    await snapshot.journal(loop_memory).write(entry, loop)

    if needs_vector and memory.later:
        await memory.later()

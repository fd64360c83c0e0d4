"""Loop guardrails with the names of earlier systems, on stored loops.

A caller knows each attempt by a name: the loop's id for the first, then the name that
the last answer gave. Names of attempts are looked up in the store; the number of an
attempt is never parsed from a name, because `user_report_1` is an id.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from heedful.drive import journal, report
from heedful.errors import AttemptTaken, Conflict, InvalidInput, NotFound
from heedful.lessons import loop_lessons
from heedful.lessons.lesson import Scope
from heedful.loop import codec, decide, record, stop
from heedful.loop.policies import LoopLimits
from heedful.loop.runs import iso
from heedful.memory.memory import Memory
from heedful.pipeline.thresholds import read_settings
from heedful.redact import redact
from heedful.sanitize import clean
from heedful.store import DEFAULT_DATABASE_FILE, loops as loop_store, open_store
from heedful.store.loops import NOTED_FINDING_PREFIX as BIAS_PREFIX
from heedful.store.records import Head, StoredLoop
from heedful.store.store import Store
from heedful.validation import (
    MAX_NAME_CHARS,
    Document,
    Fields,
    as_float,
    as_integer,
    check_integer,
    check_sequence,
    check_share,
    check_texts,
    require,
)
from heedful_compat import answers
from heedful_compat.answers import LoopView, select, select_echo
from heedful_compat.completions import (
    BiasTags,
    Completion,
    Judge,
    checks_of_missing_scores,
)

# A name of a rerun is a loop's id with an ending such as `_r1`.
MAX_RERUN_NAME_CHARS = MAX_NAME_CHARS + 20
# The name of who reflects.
DEFAULT_PERSONA = "SAGE"
# The only status that `process_loop_completion` accepts, and its answer to others.
DONE_STATUS = "done"
NOT_DONE_MESSAGE = "Invalid reflection status. Must be 'done'."
# The key of the note of `log_rerun_reasoning`.
REASONING_NOTE = "reasoning"
# The name of the policy of a loop that follows the limits of each call.
FOLLOWING_POLICY_NAME = "guardrails"
# The same for a loop that has a limit of reruns of its own.
OWN_RERUNS_POLICY_NAME = f"{FOLLOWING_POLICY_NAME}+max_reruns"
FOLLOWING_POLICY_NAMES = (FOLLOWING_POLICY_NAME, OWN_RERUNS_POLICY_NAME)
_log = logging.getLogger("heedful")


class LoopGuardrails(LoopLimits):
    """The limits that decide when a loop runs again and when it must end."""

    __slots__ = ()

    @classmethod
    def of(cls, settings: Fields) -> "LoopGuardrails":
        """Read settings from a mapping such as `os.environ`; ignore other names.

        Case does not matter. A name with the prefix `HEEDFUL_` has priority. Raises
        InvalidInput.
        """
        return read_settings(cls, settings, {})


_DEFAULT_LIMITS = asdict(LoopGuardrails())
# From this field on, they are the limits of fatigue.
_FATIGUE_PLACE = list(_DEFAULT_LIMITS).index("base_increment")
# Callers may change these mappings; each call of a function of this module reads them.
RERUN_CONFIG: Document = dict(list(_DEFAULT_LIMITS.items())[:_FATIGUE_PLACE])
FATIGUE_CONFIG: Document = dict(list(_DEFAULT_LIMITS.items())[_FATIGUE_PLACE:])


def current_limits() -> LoopGuardrails:
    """Return the limits in RERUN_CONFIG and FATIGUE_CONFIG. Raises InvalidInput."""
    limits = RERUN_CONFIG | FATIGUE_CONFIG
    unknown = sorted(limits.keys() - _DEFAULT_LIMITS.keys())
    if unknown:
        allowed = f"one of {', '.join(_DEFAULT_LIMITS)}"
        raise InvalidInput("RERUN_CONFIG", unknown[0], allowed)
    return LoopGuardrails(**limits)


@dataclass(frozen=True, slots=True)
class GuardedLoops:
    """The loops of a scope, under guardrails.

    Without `settings`, the limits in RERUN_CONFIG and FATIGUE_CONFIG apply, as they are
    at each call, also to loops that are already open. The `judge` gives scores that
    callers do not report: a Model, or a function of the messages. Without it, callers
    must report them. With a `memory` of the same store and
    scope, lessons of finished loops are stored. `overriding(loop_id, rule)` is called
    before an override is written. If `measured(loop_id)` is false, reported scores do
    not count as measured, and lessons based on them are quarantined. The reason of an
    override also notes the name that the caller `named`.
    """

    store: Store
    scope: Scope = Scope()
    settings: LoopLimits | None = None
    judge: Judge | None = None
    memory: Memory | None = None
    overriding: Callable[[str, str], None] | None = None
    measured: Callable[[str], bool] = lambda loop: True
    named: str = ""

    @classmethod
    def of(cls, store: "GuardedLoops | Store | str", **more: Any) -> "GuardedLoops":
        """Return the guarded loops of a store or of the store with this name."""
        if isinstance(store, GuardedLoops):
            return store
        opened = store if isinstance(store, Store) else open_store(store)
        return cls(store=opened, **more)

    def _policy(self, max_reruns: int | None = None) -> decide.Policy:
        """Return the policy of a new loop with this limit; None for the usual one."""
        limits = self.settings or current_limits()
        if max_reruns is None:
            return replace(limits.policy, name=FOLLOWING_POLICY_NAME)

        limits = replace(limits, max_reruns=max_reruns)
        return replace(limits.policy, name=OWN_RERUNS_POLICY_NAME)

    async def complete(
        self,
        name: str,
        completion: Completion,
        personas: Mapping[str, str],
        rules: Sequence[str],
        by: str,
    ) -> tuple[LoopView, int]:
        """Store a completion; return the state of its loop, and its attempt's number.

        Those of the `rules` that ended the loop are overridden by the person `by`. An
        equal second completion changes nothing; a different one raises AttemptTaken.
        Raises NotFound for an unknown loop without content, and as
        `heedful.drive.report.report`.
        """
        stored_loop, number = await self.find(name)
        completion = await self._with_tracked_tags(
            name, completion, stored_loop, number
        )

        task = completion.task
        stored_task = stored_loop.head.task
        if stored_loop.created and task is not None and redact(task) != stored_task:
            shown_task = str(stored_task)[:80]
            raise Conflict(
                f"loop {stored_loop.id!r} is about another task: {shown_task}"
            )

        if number > len(stored_loop.loop.attempts):
            await self._report(
                name,
                completion,
                stored_loop=stored_loop,
                number=number,
                personas=personas,
            )

        view = await self.view(stored_loop.id)
        if not completion.agrees(view.loop.attempts[number - 1]):
            raise AttemptTaken(
                f"the completion of {name!r} was reported with other content"
            )

        rules_to_lift = [rule for rule in rules if rule in view.stopped_by]
        if rules_to_lift:
            await self.lift(stored_loop.id, rules_to_lift, by)
            view = await self.view(stored_loop.id)

        return view, number

    async def _with_tracked_tags(
        self, name: str, completion: Completion, stored_loop: StoredLoop, number: int
    ) -> Completion:
        """Add the bias tags that `track_bias` noted for this attempt."""
        attempts = stored_loop.loop.attempts
        pending = number > len(attempts)
        if not pending and completion.bias_tags is None:
            return completion

        notes = await self.store.read(self.scope, loop_store.notes, name)
        evaluation = None if pending else attempts[number - 1].evaluation

        tags = []
        for key, tag in notes.items():
            # A tag that was noted after the report is not part of it.
            is_reported = evaluation is not None and key in evaluation.keys
            if key.startswith(BIAS_PREFIX) and (pending or is_reported):
                tags.append(tag)
        if not tags:
            return completion

        # A tag of the completion comes last, because it has priority.
        return replace(completion, bias_tags=[*tags, *(completion.bias_tags or ())])

    async def _report(
        self,
        name: str,
        completion: Completion,
        *,
        stored_loop: StoredLoop,
        number: int,
        personas: Mapping[str, str],
    ) -> None:
        """Judge and store an attempt that is not stored; begin its loop if need be."""
        is_new = not stored_loop.created
        if completion.is_empty and not is_new:
            raise InvalidInput(
                "summary",
                None,
                "given: the summary, the output or the scores of this attempt",
            )
        if completion.is_empty:
            remedy = (
                "; if this is its first attempt, send the summary, output or scores"
            )
            raise NotFound(kind="loop", id=name, where=self.store.url, remedy=remedy)

        goal = completion.goal or ""
        context = stored_loop.head.context
        if not goal and isinstance(context, Mapping):
            goal = str(context.get("goal") or "")
        checks = checks_of_missing_scores(completion, self.judge, goal)

        if is_new:
            await report.open_loop(
                stored_loop.id,
                completion.task or goal or name,
                policy=self._policy(completion.max_reruns),
                store=self.store,
                scope=self.scope,
                context={"goal": goal} if goal else None,
            )
        else:
            limited = self._limit_reruns(stored_loop, completion.max_reruns)
            await self._update_policy(limited)

        reason = await self._reason_for(name, stored_loop, number)
        labels = (
            {**personas, loop_lessons.RERUN_REASON_LABEL: reason}
            if reason
            else personas
        )
        attempt_report = report.AttemptReport(
            completion.value,
            evaluation=completion.evaluation,
            checks=checks,
            labels=labels,
            reported_as=name,
            measured=self.measured(stored_loop.id) or completion.evaluation is None,
        )
        # If another completion of the same attempt was first, `complete` compares them.
        with suppress(AttemptTaken):
            await report.report(
                self.store,
                scope=self.scope,
                id=stored_loop.id,
                number=number,
                attempt_report=attempt_report,
                memory=self.memory,
            )

    async def _reason_for(self, name: str, stored_loop: StoredLoop, number: int) -> str:
        """Return the words in which a person said why this rerun is made, or ""."""
        if number == 1:
            return ""
        # They are logged under the name of the rerun, or of the attempt before it.
        names = (name, answers.name_of(stored_loop, number - 1))
        words: list[str] = []
        for attempt_name in names:
            reasons = await self.logged_reasons(attempt_name)
            triggers = _trigger_detail(reasons.get("rerun_trigger", ()))
            texts = (
                reasons.get("rerun_reason", ""),
                reasons.get("rerun_reason_detail", ""),
            )
            # A code has no blank, and a list of triggers says nothing new.
            words += [text for text in texts if " " in text and text != triggers]
        return redact(" ".join(dict.fromkeys(words)))

    async def view(self, id: str, number: int | None = None) -> LoopView:
        """Return the state of a stored loop, now or after the attempt `number`.

        Raises StoreError.
        """
        (stored_loop,) = await self._read([id])
        return LoopView(stored_loop, await self._next_name(stored_loop), number)

    async def find(self, name: str) -> tuple[StoredLoop, int]:
        """Return the loop and the number of the attempt called `name`.

        The name is the id of a loop (for its first attempt) or the name of a rerun. An
        unknown name gives a new loop that is not stored; its `created` is 0. Raises
        InvalidInput, StoreError.
        """
        is_name = isinstance(name, str) and name.isprintable()
        if not is_name or not 0 < len(name) <= MAX_RERUN_NAME_CHARS:
            allowed = f"1 to {MAX_RERUN_NAME_CHARS} printable characters"
            raise InvalidInput("loop_id", name, allowed)

        # A rerun has the name of its loop and an ending: a_b_r1 may be one of a_b or a.
        ends = [end for end in range(len(name) - 1, 0, -1) if name[end] == "_"]
        ids = [name, *(name[:end] for end in ends)]

        for stored_loop in await self._read(ids):
            if stored_loop.id == name:
                return stored_loop, 1

            next_number = len(stored_loop.loop.attempts) + 1
            for number in range(2, next_number):
                if answers.name_of(stored_loop, number) == name:
                    return stored_loop, number

            if next_number > 1 and await self._next_name(stored_loop) == name:
                return stored_loop, next_number

        policy = self._policy()
        new_loop = StoredLoop(
            id=name,
            head=Head(task="", policy=codec.policy_to(policy)),
            loop=record.Loop(name, policy.goals),
            values=(),
            decisions=(),
            journal={},
            epoch=0,
            created=0.0,
            updated=0.0,
        )
        return new_loop, 1

    async def find_stored(self, name: str) -> tuple[StoredLoop, int]:
        """Return what `find` returns. Raises NotFound if the loop is not stored."""
        stored_loop, number = await self.find(name)
        if not stored_loop.created:
            raise NotFound("loop", name, self.store.url)
        return stored_loop, number

    async def lift(self, id: str, rules: Sequence[str], by: str, why: str = "") -> None:
        """Override all of these rules, or none if one is refused.

        Raises OverrideRefused.
        """
        (stored_loop,) = await self._read([id])
        if self.named:
            # The request says who overrides the limits; its key is recorded as `by`.
            note = f"named by the caller: {self.named}"
            why = f"{why}; {note}" if why else note

        # All rules are checked before the first is overridden.
        verdict = stored_loop.verdict
        policy = codec.policy_from(stored_loop.head.policy)
        for rule in rules:
            decide.check_override(record.Override(rule, by, why=why), verdict, policy)
        await self._update_policy(stored_loop)

        for rule in rules:
            if self.overriding is not None:
                self.overriding(id, rule)
        names = ",".join(rules)
        await report.override(
            id, names, by=by, why=why, store=self.store, scope=self.scope
        )

    async def logged_reasons(self, name: str) -> Document:
        """Return what `log_rerun_reasoning` wrote about the attempt `name`."""
        return _reasons_in(await self.store.read(self.scope, loop_store.notes, name))

    async def count_tags(
        self,
        stored_loop: StoredLoop,
        findings: Iterable[record.Finding],
        counted_keys: Collection[str],
    ) -> dict[str, int]:
        """Count how often the scope has had these bias tags, by their names.

        Each counts once more than the store knows, but for those that are counted.
        """
        earlier = await self.store.read(
            self.scope, loop_store.echoes, stored_loop.id, journal.ECHO_WINDOW_LOOPS
        )
        in_loop = stored_loop.loop.count_findings()
        counts = {}
        for finding in findings:
            key = finding.key
            times = earlier.get(key, 0) + in_loop.get(key, 0)
            if key not in counted_keys:
                times += 1
            counts[key.removeprefix(BIAS_PREFIX)] = times
        return counts

    async def _read(self, ids: Sequence[str]) -> list[StoredLoop]:
        """Return the stored loops with these ids.

        Those that follow the limits of each call get the policy that applies now.
        """
        stored_loops = await self.store.read(self.scope, loop_store.read_many, ids)
        for place, stored_loop in enumerate(stored_loops):
            name = stored_loop.head.policy["name"]
            max_reruns = None
            if name == OWN_RERUNS_POLICY_NAME:
                max_reruns = _max_reruns(stored_loop)
            if name in FOLLOWING_POLICY_NAMES:
                policy = self._policy(max_reruns)
                stored_loops[place] = _with_policy(stored_loop, policy)

        return stored_loops

    def _limit_reruns(
        self, stored_loop: StoredLoop, max_reruns: int | None
    ) -> StoredLoop:
        """Return the loop with this limit of reruns; None changes nothing.

        Raises Conflict if the loop has a policy of its own with another limit.
        """
        if max_reruns is None or max_reruns == _max_reruns(stored_loop):
            return stored_loop
        if stored_loop.head.policy["name"] in FOLLOWING_POLICY_NAMES:
            return _with_policy(stored_loop, self._policy(max_reruns))

        raise Conflict(
            f"loop {stored_loop.id!r} was opened with a policy of its own, whose "
            f"max_reruns is {_max_reruns(stored_loop)}, not {max_reruns}; leave it out"
        )

    async def _update_policy(self, stored_loop: StoredLoop) -> None:
        """Write the policy that `_read` gave a loop, if it follows the limits."""
        if stored_loop.head.policy["name"] in FOLLOWING_POLICY_NAMES:
            await self.store.write(
                self.scope, loop_store.set_policy, stored_loop.id, stored_loop.head
            )

    async def _next_name(self, stored_loop: StoredLoop) -> str:
        """Return a new name for the next attempt, such as `ID_r1`.

        It is never the id of a loop: in that case, it gets one more underscore.
        """
        suffix = f"_r{len(stored_loop.loop.attempts)}"
        while await self._read([f"{stored_loop.id}{suffix}"]):
            suffix = f"_{suffix}"
        return f"{stored_loop.id}{suffix}"


# What holds the loops that a function is about.
LoopStore = GuardedLoops | Store | str


def _reasons_in(notes: Fields) -> Document:
    """Return the fields that `log_rerun_reasoning` noted about an attempt."""
    reasons = notes.get(REASONING_NOTE, {})
    return {name: value for name, value in reasons.items() if value is not None}


def _trigger_detail(rerun_trigger: Sequence[str]) -> str:
    """Return the detail of a reason for which nobody gives one."""
    return f"Triggered by {', '.join(rerun_trigger)}"


def _max_reruns(stored_loop: StoredLoop) -> int:
    """Return how many reruns the stored policy of a loop allows."""
    policy = codec.policy_from(stored_loop.head.policy)
    return decide.rule_of(policy, stop.MaxAttempts).limit - 1


def _with_policy(stored_loop: StoredLoop, policy: decide.Policy) -> StoredLoop:
    """Return a loop with another policy and its goals."""
    goals = [codec.to_document(goal) for goal in policy.goals]
    document = codec.policy_to(policy)
    return replace(
        stored_loop,
        head=replace(stored_loop.head, policy=document, goals=goals),
        loop=replace(stored_loop.loop, goals=policy.goals),
    )


async def process_loop_completion(
    loop_id: str,
    reflection_status: str,
    orchestrator_persona: str | None = None,
    override_fatigue: bool = False,
    override_max_reruns: bool = False,
    override_by: str | None = None,
    *,
    store: LoopStore = DEFAULT_DATABASE_FILE,
    override_bias_echo: bool = False,
    reflection_persona: str | None = None,
    **content: Any,
) -> Document:
    """Report a completed run of a loop, and return whether the loop runs again.

    The reflection is about this run; the decision is the loop's latest. `content` has
    the fields of `Completion`. docs/earlier-systems/guardrails.md lists
    the fields of the answer; it has `warnings` if part of a bias tag is not stored. A
    status other than "done" gives an answer with status "error". Raises NotFound,
    InvalidInput, Conflict, OverrideRefused, ModelError, CheckFailed, StoreError.
    """
    if reflection_status != DONE_STATUS:
        return {
            "status": "error",
            "message": NOT_DONE_MESSAGE,
            "loop_id": redact(loop_id),
        }

    personas = {"reflection_persona": reflection_persona or DEFAULT_PERSONA}
    if orchestrator_persona:
        personas["orchestrator_persona"] = orchestrator_persona
    rules = _overridden_rules(override_fatigue, override_max_reruns, override_bias_echo)
    completion = Completion(**content)
    view, number = await GuardedLoops.of(store).complete(
        loop_id,
        completion,
        personas=personas,
        rules=rules,
        by=_actor(override_by),
    )
    run = LoopView(view.stored, "", number)
    bias_analysis = {"bias_tags_detail": run.bias_tags}
    reflection = {
        **run.scores,
        **select_echo(run.echo),
        **select(run.fatigue, "reflection_fatigue"),
        "agent_results": {"pessimist": {"bias_analysis": bias_analysis}},
    }
    persona = orchestrator_persona or reflection["reflection_persona"]
    decided_at = view.decision.at if view.decision else view.stored.created

    return {
        "status": "success",
        "loop_id": loop_id,
        "reflection_result": reflection,
        "decision_result": view.decided,
        "orchestrator_persona": persona,
        "timestamp": iso(decided_at),
        **_warnings(completion),
    }


async def process_loop_reflection(
    loop_id: str,
    override_fatigue: bool = False,
    override_max_reruns: bool = False,
    override_by: str | None = None,
    **options: Any,
) -> Document:
    """Return the `reflection_result` of `process_loop_completion`.

    `options` are further arguments of that function.
    """
    answer = await process_loop_completion(
        loop_id,
        DONE_STATUS,
        override_fatigue=override_fatigue,
        override_max_reruns=override_max_reruns,
        override_by=override_by,
        **options,
    )
    return dict(answer["reflection_result"])


async def make_rerun_decision(
    loop_id: str,
    override_fatigue: bool = False,
    override_max_reruns: bool = False,
    override_by: str | None = None,
    **options: Any,
) -> Document:
    """Return the `decision_result` of `process_loop_completion`.

    `options` are further arguments of that function.
    """
    answer = await process_loop_completion(
        loop_id,
        DONE_STATUS,
        override_fatigue=override_fatigue,
        override_max_reruns=override_max_reruns,
        override_by=override_by,
        **options,
    )
    return dict(answer["decision_result"])


async def get_guardrails_status(
    loop_id: str, *, store: LoopStore = DEFAULT_DATABASE_FILE
) -> Document:
    """Return the state of a loop with the logged reasons, and the scores of one run.

    The scores are those of the run called `loop_id`, None before it is reported. Raises
    NotFound, StoreError.
    """
    loops = GuardedLoops.of(store)
    stored_loop, number = await loops.find_stored(loop_id)
    view = await loops.view(stored_loop.id)
    scores = LoopView(view.stored, "", number).scores

    # The reasons logged for the decided attempt, or for the rerun that is asked about.
    reasons = await loops.logged_reasons(view.name(max(number, view.number, 1)))
    reasons = {**view.reasons, **scores, **reasons}
    status = {
        "loop_id": loop_id,
        **select(view.decided, "rerun_count", "max_reruns"),
        "rerun_limit_reached": view.is_at_limit,
        "bias_echo": view.echo["bias_echo"],
        "reflection_fatigue": view.fatigue["reflection_fatigue"],
        "fatigue_threshold_exceeded": view.fatigue["threshold_exceeded"],
        "force_finalize": view.decided["force_finalize"],
        **select(reasons, "rerun_reason", "rerun_trigger", *view.scores),
    }
    return {"status": "success", "guardrails_status": status}


async def override_guardrails(
    loop_id: str,
    override_fatigue: bool = False,
    override_max_reruns: bool = False,
    override_by: str | None = None,
    override_reason: str | None = None,
    *,
    override_bias_echo: bool = False,
    store: LoopStore = DEFAULT_DATABASE_FILE,
) -> Document:
    """Override limits of a loop for the next decision in which they would end it.

    A loop that has ended is decided again immediately. Raises NotFound, StoreError,
    InvalidInput without a flag, and OverrideRefused for a loop that passed.
    """
    rules = _overridden_rules(override_fatigue, override_max_reruns, override_bias_echo)
    allowed = (
        "true, or override_max_reruns or override_bias_echo: say which limit to "
        "override"
    )
    require(rules, "override_fatigue", override_fatigue, allowed)

    loops = GuardedLoops.of(store)
    stored_loop, _ = await loops.find_stored(loop_id)
    await loops.lift(stored_loop.id, rules, _actor(override_by), override_reason or "")

    return {
        "status": "success",
        "loop_id": loop_id,
        "override_fatigue": override_fatigue,
        "override_max_reruns": override_max_reruns,
        "overridden_by": override_by,
        "override_reason": override_reason,
    }


async def get_loop_trace(
    loop_id: str, *, store: LoopStore = DEFAULT_DATABASE_FILE
) -> Document:
    """Return all fields of an attempt, with the logged reasons.

    Raises NotFound, StoreError.
    """
    loops = GuardedLoops.of(store)
    stored_loop, number = await loops.find(loop_id)
    notes = await loops.store.read(loops.scope, loop_store.notes, loop_id)
    if not stored_loop.created and not notes:
        raise NotFound("loop", loop_id, loops.store.url)

    attempts = len(stored_loop.loop.attempts)
    view = LoopView(stored_loop, "")
    if attempts:
        view = await loops.view(stored_loop.id, min(number, attempts))

    status = "completed"
    if number > attempts:
        status = "pending"
    elif view.decision is not None and not view.again:
        status = "finalized"

    return {
        "loop_id": loop_id,
        "status": status,
        "timestamp": iso(view.decision.at) if view.decision else None,
        "rerun_of": view.name(number - 1) if number > 1 else None,
        "rerun_depth": number - 1,
        **select(view.decided, "rerun_count", "max_reruns"),
        **select_echo(view.echo),
        **view.echo,
        **view.fatigue,
        **view.reasons,
        **select(view.decided, "force_finalize", "overridden_by"),
        "orchestrator_persona": view.labels.get("orchestrator_persona"),
        "reflection_persona": view.labels.get("reflection_persona"),
        # What `log_rerun_reasoning` noted replaces what follows from the decision.
        **_reasons_in(notes),
    }


async def enforce_rerun_limits(
    loop_id: str,
    override_max_reruns: bool = False,
    override_by: str | None = None,
    *,
    store: LoopStore = DEFAULT_DATABASE_FILE,
) -> Document:
    """Return whether a loop has used up its reruns.

    `override_max_reruns` allows one more. A second override before the next rerun has
    no effect. An unknown loop has 0 reruns. Raises OverrideRefused, StoreError.
    """
    loops = GuardedLoops.of(store)
    stored_loop, _ = await loops.find(loop_id)
    now = time.time()
    view = LoopView(stored_loop, "")
    was_reached = view.is_at_limit

    wants_override = override_max_reruns and stored_loop.created
    if wants_override and was_reached and not view.limit_lifted_by(now):
        await loops.lift(stored_loop.id, ["attempts"], _actor(override_by))
        view = await loops.view(stored_loop.id)

    actor = view.limit_lifted_by(now) if was_reached else ""
    return {
        **select(view.decided, "rerun_count", "max_reruns"),
        "limit_reached": view.is_at_limit,
        "force_finalize": was_reached and not actor,
        "overridden": bool(actor),
        "overridden_by": answers.named_actor(actor),
    }


async def detect_bias_repetition(
    loop_id: str,
    bias_tags: BiasTags,
    threshold: int | None = None,
    *,
    store: LoopStore = DEFAULT_DATABASE_FILE,
) -> Document:
    """Return whether these bias tags of the attempt `loop_id` are an echo.

    If they are, the rule Echo stops the loop. An attempt that is reported counts once,
    as in its completion; any other counts as if it had these tags. Occurrences in other
    loops of the scope count. By default, `threshold` is the limit of the loop: 3, or
    the value in RERUN_CONFIG. Stores nothing. Raises InvalidInput, StoreError.
    """
    loops = GuardedLoops.of(store)
    completion = Completion(bias_tags=bias_tags)
    stored_loop, number = await loops.find(loop_id)
    if threshold is None:
        threshold = _echo_threshold(stored_loop)
    threshold = as_integer(threshold)
    check_integer("threshold", threshold)

    attempts = stored_loop.loop.attempts[number - 1 : number]
    reported = attempts[0].evaluation if attempts else None
    counted_keys = reported.keys if reported else ()
    counts = await loops.count_tags(stored_loop, completion.findings, counted_keys)
    echo = answers.echo_fields(counts, threshold)
    return {"bias_repetition": echo["bias_echo"], **echo, **_warnings(completion)}


async def track_bias(
    loop_id: str,
    bias_tags: BiasTags,
    *,
    store: LoopStore = DEFAULT_DATABASE_FILE,
) -> Document:
    """Note the bias tags of an attempt; return how often the scope has had them.

    Each tag counts once for the attempt. The tags become part of its completion,
    whether that is reported before or later. Raises InvalidInput, StoreError.
    """
    loops = GuardedLoops.of(store)
    completion = Completion(bias_tags=bias_tags)
    stored_loop, number = await loops.find(loop_id)

    notes = {finding.key: answers.bias_tag(finding) for finding in completion.findings}
    await loops.store.write(
        loops.scope, loop_store.note, stored_loop.id, loop_id, notes
    )

    # In an attempt that is reported, the store counts the notes.
    counted_keys = notes if number <= len(stored_loop.loop.attempts) else ()
    counts = await loops.count_tags(stored_loop, completion.findings, counted_keys)
    answer = answers.echo_fields(counts, _echo_threshold(stored_loop))
    return {**select_echo(answer), **_warnings(completion)}


async def calculate_fatigue_score(
    loop_id: str,
    alignment_score: float,
    drift_score: float,
    previous_fatigue: float | None = None,
    *,
    store: LoopStore = DEFAULT_DATABASE_FILE,
) -> Document:
    """Return the fatigue that a loop would have if its next attempt had these scores.

    The first attempt has fatigue 0.0. Stores nothing. Raises InvalidInput, StoreError.
    """
    loops = GuardedLoops.of(store)
    completion = Completion(alignment_score=alignment_score, drift_score=drift_score)
    previous_fatigue = as_float(previous_fatigue)
    check_share("previous_fatigue", previous_fatigue or 0.0)

    stored_loop, _ = await loops.find(loop_id)
    policy = codec.policy_from(stored_loop.head.policy)
    rule = decide.rule_of(policy, stop.Fatigue)
    loop = replace(stored_loop.loop, improves=policy.improvement)
    before = rule.level(loop) if previous_fatigue is None else previous_fatigue

    next_attempt = record.Attempt(
        len(loop.attempts) + 1,
        record.Candidate("reported"),
        evaluation=completion.evaluation or record.Evaluation(),
    )
    next_loop = loop.then(next_attempt)
    improved = False
    level = before
    if len(next_loop.attempts) > 1:
        improved = next_loop.improved[-1]
        level = rule.after(before, improved)

    answer = answers.fatigue_fields(level, before, policy, improved)
    answer["critical_threshold"] = rule.limit
    answer["force_finalize"] = answer["threshold_exceeded"]
    return answer


async def log_rerun_reasoning(
    loop_id: str,
    rerun_trigger: Sequence[str],
    rerun_reason: str,
    rerun_reason_detail: str | None = None,
    overridden_by: str | None = None,
    reflection_persona: str | None = None,
    *,
    store: LoopStore = DEFAULT_DATABASE_FILE,
) -> Document:
    """Write why a loop runs again to its trace and to the logger `heedful`.

    Returns the reasons. A second call for the same attempt replaces them. If the loop
    has a memory and the rerun passes, a reason in words becomes a lesson. Raises
    InvalidInput, StoreError.
    """
    check_texts(loop_id=loop_id, rerun_reason=rerun_reason)
    check_sequence("rerun_trigger", rerun_trigger, str, "a list of names")
    detail = rerun_reason_detail or _trigger_detail(rerun_trigger)
    loops = GuardedLoops.of(store)
    _log.info(
        "loop %s runs again: %s (%s)",
        _log_text(loop_id),
        _log_text(rerun_reason),
        _log_text(detail),
        extra=asdict(loops.scope),
    )

    reasons = {
        "rerun_trigger": list(rerun_trigger),
        "rerun_reason": rerun_reason,
        "rerun_reason_detail": detail,
        "overridden_by": overridden_by,
        "reflection_persona": reflection_persona,
    }
    stored_loop, _ = await loops.find(loop_id)
    await loops.store.write(
        loops.scope, loop_store.note, stored_loop.id, loop_id, {REASONING_NOTE: reasons}
    )

    return {**reasons, "timestamp": iso(time.time())}


def _log_text(text: str) -> str:
    """Return a text as one short line of a log, without secrets."""
    return clean(redact(text), 200)


def _actor(override_by: str | None) -> str:
    """Return who overrides a limit; earlier systems do not ask for a name."""
    return answers.UNNAMED_ACTOR if override_by is None else override_by


def _warnings(completion: Completion) -> dict[str, list[str]]:
    """Return the warnings of an answer, and log them; {} without any."""
    for warning in completion.warnings:
        _log.warning("heedful: %s", _log_text(warning))
    return {"warnings": completion.warnings} if completion.warnings else {}


def _overridden_rules(fatigue: bool, attempts: bool, echo: bool) -> list[str]:
    """Return the names of the rules whose flag is set."""
    flags = {"fatigue": fatigue, "attempts": attempts, "echo": echo}
    return [rule for rule, is_set in flags.items() if is_set]


def _echo_threshold(stored_loop: StoredLoop) -> int:
    """Return how often a bias tag must occur to be an echo in this loop."""
    policy = codec.policy_from(stored_loop.head.policy)
    return decide.rule_of(policy, stop.Echo).times

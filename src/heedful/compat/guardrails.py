"""Loop guardrails under the names that callers of earlier systems know, over the same loops.

A completion is a report of an attempt, its override flags are Overrides, and `decide` decides.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from heedful.codec import policy_from
from heedful.compat.completion import Completion, Judge, reflecting
from heedful.compat.names import NAME, Place, find, next_name
from heedful.compat.settings import LoopGuardrails
from heedful.compat.told import Told, action, decided, moment, result, rule_of, status, tag, traced
from heedful.decisions import latest
from heedful.errors import AttemptTaken, Conflict, InvalidInput, NotFound
from heedful.evaluate import Check
from heedful.journal import ECHO_WINDOW
from heedful.loop.decide import admit
from heedful.loop.feedback import clean
from heedful.loop.record import Attempt, Candidate, Evaluation, Loop, Override
from heedful.loop.stop import Echo, Fatigue
from heedful.memory.arguments import fraction, several, texts
from heedful.memory.memory import Memory
from heedful.overrides import override
from heedful.protocols import Scope, Store, Stored
from heedful.redact import redacted
from heedful.reporting import Told as Report
from heedful.reporting import open_loop, report
from heedful.store import open_store

STORE = "heedful.db"
DONE = "done"
NOT_DONE = "Invalid reflection status. Must be 'done'."
DEFAULT = LoopGuardrails()
# What the flags fatigue, max_reruns and bias_echo of a caller lift.
RULES = ("fatigue", "attempts", "echo")
_log = logging.getLogger("heedful")


@dataclass(frozen=True, slots=True)
class Guarded:
    """The loops of a scope, under guardrails.

    `judge` and the host's own `critics`, by role, judge what callers do not tell. With `memory`,
    of the same store and scope, a loop that ends teaches what it learnt. `overriding` is called
    with a loop and a rule before an override is written. `vouched`: what callers tell of scores and
    tags counts as measured.
    """

    store: Store
    scope: Scope = Scope()
    settings: LoopGuardrails = DEFAULT
    judge: Judge | None = None
    critics: Mapping[str, Check] = field(default_factory=dict)
    memory: Memory | None = None
    overriding: Callable[[str, str], None] | None = None
    vouched: bool = True

    @classmethod
    def of(cls, store: Guarded | Store | str, **more: Any) -> Guarded:
        """The loops of a store, or of the store of that name."""
        if isinstance(store, Guarded):
            return store
        return cls(open_store(store) if isinstance(store, str) else store, **more)

    async def complete(
        self, name: str, one: Completion, personas: Mapping[str, str], rules: Sequence[str], by: str
    ) -> Told:
        """How the loop stands after a completion; those `rules` that ended it are lifted.

        The same completion again changes nothing. Raises AttemptTaken for another one, NotFound
        for an unknown loop of which nothing is told, and as `heedful.reporting.report`.
        """
        place = await find(self.store, self.scope, name)
        stored = place.stored or await self._opened(name, one)
        if not one.about(stored.head.task):
            raise Conflict(f"loop {place.id!r} is about another task: {str(stored.head.task)[:80]}")
        if not place.made:
            await self._report(stored, place.number, name, one, personas)
        told = await self.told(place.id)
        if not one.agrees(told.loop.attempts[place.number - 1]):
            raise AttemptTaken(f"the completion of {name!r} was reported with other content")
        lifted = [rule for rule in rules if rule in told.stopped_by]
        if not lifted:
            return told
        await self.lift(place.id, lifted, by)
        return await self.told(place.id)

    async def told(self, id: str, number: int | None = None) -> Told:
        """How a loop stands, or stood after an attempt. Raises NotFound, StoreError."""
        stored = await self.store.read(self.scope, id)
        return Told(stored, await next_name(self.store, self.scope, stored), number)

    async def known(self, name: str) -> Place:
        """The loop that a name stands for. Raises NotFound, StoreError."""
        place = await find(self.store, self.scope, name)
        if place.stored is None:
            raise NotFound("loop", name, self.store.url)
        return place

    async def lift(self, id: str, rules: Sequence[str], by: str, why: str = "") -> None:
        """Let a loop go on past rules, all of which may be lifted. Raises OverrideRefused."""
        stored = await self.store.read(self.scope, id)
        for rule in rules:
            given = Override(rule, by, why)
            admit(given, latest(stored.decisions), policy_from(stored.head.policy))
        for rule in rules:
            if self.overriding is not None:
                self.overriding(id, rule)
            await override(id, rule, by=by, why=why, store=self.store, scope=self.scope)

    async def _opened(self, name: str, one: Completion) -> Stored:
        if not one.reports:
            raise NotFound("loop", name, self.store.url)
        reflecting(one, self.judge, self.critics, "")  # raises before anything is stored
        task = one.task or one.goal or name
        goal = {"goal": one.goal} if one.goal else None
        policy = self.settings.policy
        found = await open_loop(self.store, self.scope, name, task, policy=policy, context=goal)
        return found[0]

    async def _report(
        self, stored: Stored, number: int, name: str, one: Completion, personas: Mapping[str, str]
    ) -> None:
        if not one.reports:
            allowed = "told: a summary, an output or the scores of this attempt, to reflect on"
            raise InvalidInput("summary", None, allowed)
        context = stored.head.context if isinstance(stored.head.context, Mapping) else {}
        goal = one.goal or str(context.get("goal") or "")
        told = Report(
            one.value,
            evaluation=one.evaluation,
            checks=reflecting(one, self.judge, self.critics, goal),
            labels={NAME: name, **personas},
            vouched=self.vouched,
        )
        with suppress(AttemptTaken):  # by this completion, judged otherwise; or by another one
            await report(self.store, self.scope, stored.id, number, told, self.memory)


async def process_loop_completion(
    loop_id: str,
    reflection_status: str,
    orchestrator_persona: str | None = None,
    override_fatigue: bool = False,
    override_max_reruns: bool = False,
    override_by: str | None = None,
    *,
    store: Guarded | Store | str = STORE,
    override_bias_echo: bool = False,
    **told: Any,
) -> dict[str, Any]:
    """Decide whether a loop that was run is run again; see the reference for what it answers.

    `told` are the fields of `Completion`. A status other than "done" is answered with an error.
    Raises NotFound, InvalidInput, Conflict, OverrideRefused, ModelError, CheckFailed, StoreError.
    """
    if reflection_status != DONE:
        return {"status": "error", "message": NOT_DONE, "loop_id": loop_id}
    loops, one = Guarded.of(store), Completion(**told)
    flags = override_fatigue, override_max_reruns, override_bias_echo
    personas = {"reflection_persona": loops.settings.reflection_persona}
    if orchestrator_persona:
        personas["orchestrator_persona"] = orchestrator_persona
    stands = await loops.complete(loop_id, one, personas, _rules(flags), override_by or "")
    reflected = result(stands)
    return {
        "status": "success",
        "loop_id": loop_id,
        "reflection_result": reflected,
        "decision_result": decided(stands),
        "orchestrator_persona": orchestrator_persona or reflected["reflection_persona"],
        "timestamp": moment(stands.at),
    }


async def get_guardrails_status(
    loop_id: str, *, store: Guarded | Store | str = STORE
) -> dict[str, Any]:
    """How a loop stands. Raises NotFound, StoreError."""
    loops = Guarded.of(store)
    stands = await loops.told((await loops.known(loop_id)).id)
    return {"status": "success", "guardrails_status": status(stands, loop_id)}


async def override_guardrails(
    loop_id: str,
    override_fatigue: bool = False,
    override_max_reruns: bool = False,
    override_by: str | None = None,
    override_reason: str | None = None,
    *,
    override_bias_echo: bool = False,
    store: Guarded | Store | str = STORE,
) -> dict[str, Any]:
    """Let a loop go on past limits: the next decision in which one speaks consumes it.

    One that has ended is decided anew at once. Raises NotFound, OverrideRefused for a loop that
    passed and without an actor, StoreError.
    """
    loops = Guarded.of(store)
    flags = override_fatigue, override_max_reruns, override_bias_echo
    place = await loops.known(loop_id)
    await loops.lift(place.id, _rules(flags), override_by or "", override_reason or "")
    return {
        "status": "success",
        "loop_id": loop_id,
        "override_fatigue": override_fatigue,
        "override_max_reruns": override_max_reruns,
        "overridden_by": override_by,
        "override_reason": override_reason,
    }


async def get_loop_trace(loop_id: str, *, store: Guarded | Store | str = STORE) -> dict[str, Any]:
    """All that is on record of one attempt, under the names of a trace. Raises NotFound."""
    loops = Guarded.of(store)
    place = await loops.known(loop_id)
    number = place.number if place.made else place.number - 1
    return traced(await loops.told(place.id, number), place.number)


async def enforce_rerun_limits(
    loop_id: str,
    override_max_reruns: bool = False,
    override_by: str | None = None,
    *,
    store: Guarded | Store | str = STORE,
) -> dict[str, Any]:
    """Whether a loop has had its reruns; where it has, an override lets it have one more.

    Asked again, the same override is not given twice. A loop that is unknown has had none. Raises
    OverrideRefused, StoreError.
    """
    loops = Guarded.of(store)
    place = await find(loops.store, loops.scope, loop_id)
    if place.stored is None:
        most = loops.settings.max_reruns
        spent = {"rerun_count": 0, "max_reruns": most, "limit_reached": most == 0}
        return {**spent, "force_finalize": most == 0, "overridden": False, "overridden_by": None}
    stands = await loops.told(place.id)
    reached, now = stands.limits()["limit_reached"], time.time()
    if override_max_reruns and reached and not stands.lifting("attempts", now):
        await loops.lift(place.id, ["attempts"], override_by or "")
        stands = await loops.told(place.id)
    limits, by = stands.limits(), stands.lifting("attempts", now)
    return {
        **limits,
        "force_finalize": reached and not by,
        "overridden": bool(reached and by),
        "overridden_by": by if reached and by else None,
    }


async def detect_bias_repetition(
    loop_id: str,
    bias_tags: Sequence[Mapping[str, Any]],
    threshold: int = 3,
    *,
    store: Guarded | Store | str = STORE,
) -> dict[str, Any]:
    """Whether tags come again and again, over the scope, were they those of the next attempt.

    Asks and writes nothing: a completion writes its tags. Raises InvalidInput, StoreError.
    """
    loops, one = Guarded.of(store), Completion(bias_tags=bias_tags)
    echo, place = Echo(threshold, across="scope"), await find(loops.store, loops.scope, loop_id)
    before = place.stored.loop if place.stored else Loop(loop_id)
    earlier = await loops.store.echoes(loops.scope, place.id, ECHO_WINDOW)
    loop = _then(replace(before, echoes=earlier), one.evaluation or Evaluation())
    counts = {tag(key): n for key, n in echo.counts(loop).items()}
    repeated = [one for one, n in counts.items() if n >= threshold]
    return {
        "bias_repetition": bool(repeated),
        "repeated_tags": repeated,
        "repetition_counts": counts,
        "threshold": threshold,
        "bias_echo": bool(repeated),
        **action(bool(repeated)),
    }


async def calculate_fatigue_score(
    loop_id: str,
    alignment_score: float,
    drift_score: float,
    previous_fatigue: float | None = None,
    *,
    store: Guarded | Store | str = STORE,
) -> dict[str, Any]:
    """How tired a loop would be, were these the scores of its next attempt; 0.0 at its first.

    Asks and writes nothing: a completion writes its scores. Raises InvalidInput, StoreError.
    """
    loops = Guarded.of(store)
    one = Completion(alignment_score=alignment_score, drift_score=drift_score)
    fraction("previous_fatigue", previous_fatigue or 0.0)
    place = await find(loops.store, loops.scope, loop_id)
    policy = policy_from(place.stored.head.policy) if place.stored else loops.settings.policy
    tired = rule_of(policy, Fatigue)
    loop = place.stored.loop if place.stored else Loop(loop_id, policy.goals)
    loop = replace(loop, improves=policy.improvement)
    base = tired.level(loop) if previous_fatigue is None else previous_fatigue
    after = _then(loop, one.evaluation or Evaluation())
    rerun, better = len(after.attempts) > 1, after.improved[-1]
    level = tired.after(base, better) if rerun else base
    spoken = level >= tired.limit
    return {
        "reflection_fatigue": level,
        "previous_fatigue": base,
        "fatigue_increment": round(level - base, 3),
        "fatigue_increased": level > base,
        "improvement_detected": rerun and better,
        "threshold_exceeded": spoken,
        "critical_threshold": tired.limit,
        "force_finalize": spoken,
    }


async def log_rerun_reasoning(
    loop_id: str,
    rerun_trigger: Sequence[str],
    rerun_reason: str,
    rerun_reason_detail: str | None = None,
    overridden_by: str | None = None,
    reflection_persona: str | None = None,
) -> dict[str, Any]:
    """Say in the log `heedful` why a loop runs again; the reasoning with its time.

    What the store keeps of it comes with the decision itself. Raises InvalidInput.
    """
    texts(loop_id=loop_id, rerun_reason=rerun_reason)
    several("rerun_trigger", rerun_trigger, str, "a list of names")
    detail = rerun_reason_detail or f"Triggered by {', '.join(rerun_trigger)}"
    told = [clean(redacted(text), 200) for text in (loop_id, rerun_reason, detail)]
    _log.info("loop %s runs again: %s (%s)", *told)
    return {
        "rerun_trigger": list(rerun_trigger),
        "rerun_reason": rerun_reason,
        "rerun_reason_detail": detail,
        "overridden_by": overridden_by,
        "reflection_persona": reflection_persona,
        "timestamp": moment(time.time()),
    }


def _rules(flags: Sequence[bool]) -> list[str]:
    return [rule for rule, given in zip(RULES, flags, strict=True) if given]


def _then(loop: Loop, evaluation: Evaluation) -> Loop:
    """The loop with one more attempt, of which nothing but its evaluation is known."""
    return loop.then(Attempt(len(loop.attempts) + 1, Candidate(""), evaluation))

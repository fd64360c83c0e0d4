"""Loop guardrails under the names of earlier systems, on the same stored loops.

A completion reports one run of a loop. Critics or a model judge what it leaves out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from heedful.checks import critic
from heedful.checks.critique import BIASES
from heedful.checks.evaluate import Check, Context, evaluated
from heedful.compat import shapes
from heedful.compat.shapes import ALIGNMENT, BIAS, DRIFT, LoopGuardrails, LoopView, Place
from heedful.drive.journal import ECHO_WINDOW
from heedful.drive.report import AttemptReport, open_loop, override, report
from heedful.errors import AttemptTaken, Conflict, InvalidInput, NotFound
from heedful.lessons.lesson import Scope, check_sequence, check_texts
from heedful.loop import record
from heedful.loop.codec import policy_from
from heedful.loop.decide import check_override, latest_verdict
from heedful.loop.stop import Echo, Fatigue
from heedful.memory.memory import Memory
from heedful.models.contract import Embedder, Model
from heedful.redact import redact
from heedful.store import loops as loop_store
from heedful.store import open_store
from heedful.store.records import StoredLoop
from heedful.store.runs import iso
from heedful.store.store import Store

SEVERITY = 0.5  # the severity of a bias tag without one
PESSIMIST, SUMMARY = "pessimist", "summary"
Judge = Model | Embedder


@dataclass(frozen=True, slots=True)
class Completion:
    """One run of a loop as a caller reports it; None means that a value is missing.

    Scores are in 0..1. A bias tag has its `tag`, and if known its `severity` in 0..1. Raises
    InvalidInput.
    """

    task: str | None = None
    goal: str | None = None
    summary: str | None = None
    output: str | None = None
    alignment_score: float | None = None
    drift_score: float | None = None
    bias_tags: Sequence[Mapping[str, Any]] | None = None

    def __post_init__(self) -> None:
        words = {name: getattr(self, name) for name in ("task", "goal", "summary", "output")}
        check_texts(**{name: text for name, text in words.items() if text is not None})
        for name, score in self.scores.items():
            record.check_share(f"{name}_score", score)
        tags = self.bias_tags or ()
        check_sequence("bias_tags", tags, Mapping, "a list of objects, each with a tag")
        for one in tags:
            tag = one.get("tag")
            if not isinstance(tag, str) or not tag.strip():
                raise InvalidInput("tag", tag, "the name of a bias, a text")
            record.check_share(f"severity of {tag}", one.get("severity", SEVERITY))

    @property
    def reports(self) -> bool:
        """Return True if the completion reports any result."""
        return bool(self.scores) or self.value is not None or self.bias_tags is not None

    @property
    def scores(self) -> dict[str, float]:
        """Return the scores that were sent."""
        scores = {ALIGNMENT: self.alignment_score, DRIFT: self.drift_score}
        return {name: score for name, score in scores.items() if score is not None}

    @property
    def evaluation(self) -> record.Evaluation | None:
        """Return the scores and bias tags that were sent, each tag once; None without any."""
        findings = tuple({one["tag"]: bias(one) for one in self.bias_tags or ()}.values())
        scores = {name: float(score) for name, score in self.scores.items()}
        return record.Evaluation(findings, scores) if findings or scores else None

    @property
    def value(self) -> Any:
        """Return the output, the summary, or both; None without either."""
        if self.output is None or self.summary is None:
            return self.summary if self.output is None else self.output
        return {"output": self.output, "summary": self.summary}

    def agrees(self, attempt: record.Attempt) -> bool:
        """Return True if everything in the completion equals the stored attempt."""
        stored = attempt.evaluation or record.Evaluation()
        sent = self.evaluation or record.Evaluation()
        tags, known = (
            {one.key: one.severity for one in of.findings if one.key.startswith(BIAS)}
            for of in (sent, stored)
        )
        return (
            (
                self.value is None
                or record.Candidate.of(self.value).digest == attempt.candidate.digest
            )
            and sent.scores.items() <= stored.scores.items()
            and (self.bias_tags is None or tags == known)
        )


def bias(one: Mapping[str, Any]) -> record.Finding:
    """Return a bias tag as a finding, which is fed back and counted across attempts."""
    tag = redact(one["tag"])
    what = f"{tag}: it {BIASES[tag]}" if tag in BIASES else tag
    fix = "Write that part so that this no longer holds"
    severity = float(one.get("severity", SEVERITY))
    return record.Finding(
        PESSIMIST, what, fix, "warning", severity, f"{BIAS}{tag}", persistent=True
    )


def judges_of(
    one: Completion, judge: Judge | None, critics: Mapping[str, Check], goal: str
) -> list[Check]:
    """Return the check that judges the missing scores; an empty list if none is missing.

    `critics` are the host's own, by role. For the others `judge` is asked: a Model, or an Embedder,
    which can judge alignment and drift. Bias tags that were sent are not judged. Raises
    InvalidInput if nobody can judge.
    """
    missing = [name for name in (ALIGNMENT, DRIFT) if name not in one.scores]
    if not missing:
        return []
    if one.value is None:
        raise InvalidInput(f"{missing[0]}_score", None, "given, or a summary or an output to judge")
    also = [PESSIMIST] * (one.bias_tags is None) + [SUMMARY] * (one.summary is not None)
    judges = {role: critics[role] for role in (*missing, *also) if role in critics}
    able = (*missing, *also) if isinstance(judge, Model) else missing if judge is not None else ()
    for role in able:
        about = goal if role == ALIGNMENT else ""
        judges.setdefault(role, critic(role, judge, goal=about))
    for role in missing:
        if role not in judges:
            how = "given: there is no model to judge it; configure one (HEEDFUL_MODEL), or critics"
            raise InvalidInput(f"{role}_score", None, how)
    summing = [judges.pop(SUMMARY)] if SUMMARY in judges else []

    async def reflection(candidate: Any, at: Context) -> record.Evaluation:
        what = one.summary if one.output is None else one.output
        said = await evaluated(what, at, [*judges.values()], None)
        at = at if one.output is None else replace(at, data=one.output)
        summed = await evaluated(one.summary, at, summing, None)
        return replace(
            said,
            findings=(*said.findings, *summed.findings),
            scores={**said.scores, **summed.scores},
            usage=said.usage + summed.usage,
        )

    return [reflection]


STORE = "heedful.db"
DONE = "done"
NOT_DONE = "Invalid reflection status. Must be 'done'."
DEFAULT = LoopGuardrails()
# The rules that the flags fatigue, max_reruns and bias_echo lift.
RULES = ("fatigue", "attempts", "echo")
_log = logging.getLogger("heedful")


@dataclass(frozen=True, slots=True)
class GuardedLoops:
    """The loops of a scope, under guardrails.

    `judge` and the host's own `critics`, by role, judge what callers leave out. With a `memory` of
    the same store and scope, a loop that ends teaches its lessons. `overriding` is called with a
    loop and a rule before an override is written. With `vouched`, scores and tags of callers count
    as measured.
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
    def of(cls, store: GuardedLoops | Store | str, **more: Any) -> GuardedLoops:
        """Return the loops of a store, or of the store with this name."""
        if isinstance(store, GuardedLoops):
            return store
        return cls(open_store(store) if isinstance(store, str) else store, **more)

    async def complete(
        self, name: str, one: Completion, personas: Mapping[str, str], rules: Sequence[str], by: str
    ) -> LoopView:
        """Store a completion and return the state of its loop; lift those `rules` that ended it.

        The same completion again changes nothing. Raises AttemptTaken for a different one, NotFound
        for an unknown loop without content, and the errors of `heedful.drive.report.report`.
        """
        place = await self.find(name)
        stored = place.stored if place.known else await self._opened(name, one)
        if one.task is not None and redact(one.task) != stored.head.task:
            raise Conflict(
                f"loop {stored.id!r} is about another task: {str(stored.head.task)[:80]}"
            )
        if not place.made:
            await self._report(stored, place.number, name, one, personas)
        view = await self.view(stored.id)
        if not one.agrees(view.loop.attempts[place.number - 1]):
            raise AttemptTaken(f"the completion of {name!r} was reported with other content")
        lifted = [rule for rule in rules if rule in view.stopped_by]
        if not lifted:
            return view
        await self.lift(stored.id, lifted, by)
        return await self.view(stored.id)

    async def view(self, id: str, number: int | None = None) -> LoopView:
        """Return the current state of a loop, or its state after an attempt.

        Raises NotFound, StoreError.
        """
        stored = await self.store.read(self.scope, loop_store.read, id)
        return LoopView(stored, await shapes.next_name(self.store, self.scope, stored), number)

    async def find(self, name: str) -> Place:
        """Return the attempt that a name means; that of an unknown loop is its first."""
        return await shapes.find(self.store, self.scope, name, self.settings.policy)

    async def known(self, name: str) -> Place:
        """Return the attempt that a name means. Raises NotFound, StoreError."""
        place = await self.find(name)
        if not place.known:
            raise NotFound("loop", name, self.store.url)
        return place

    async def lift(self, id: str, rules: Sequence[str], by: str, why: str = "") -> None:
        """Let a loop go on past rules, if all of them may be lifted. Raises OverrideRefused."""
        stored = await self.store.read(self.scope, loop_store.read, id)
        for rule in rules:
            check_override(
                record.Override(rule, by, why),
                latest_verdict(stored.decisions),
                policy_from(stored.head.policy),
            )
        for rule in rules:
            if self.overriding is not None:
                self.overriding(id, rule)
            await override(id, rule, by=by, why=why, store=self.store, scope=self.scope)

    async def _opened(self, name: str, one: Completion) -> StoredLoop:
        if not one.reports:
            raise NotFound("loop", name, self.store.url)
        judges_of(one, self.judge, self.critics, "")  # raises before anything is stored
        task = one.task or one.goal or name
        goal = {"goal": one.goal} if one.goal else None
        policy = self.settings.policy
        stored, _ = await open_loop(self.store, self.scope, name, task, policy=policy, context=goal)
        return stored

    async def _report(
        self,
        stored: StoredLoop,
        number: int,
        name: str,
        one: Completion,
        personas: Mapping[str, str],
    ) -> None:
        if not one.reports:
            allowed = "given: a summary, an output or the scores of this attempt, to reflect on"
            raise InvalidInput("summary", None, allowed)
        context = stored.head.context if isinstance(stored.head.context, Mapping) else {}
        goal = one.goal or str(context.get("goal") or "")
        sent = AttemptReport(
            one.value,
            evaluation=one.evaluation,
            checks=judges_of(one, self.judge, self.critics, goal),
            labels=personas,
            reported_as=name,
            vouched=self.vouched,
        )
        with suppress(AttemptTaken):  # stored by another completion, or with other scores
            await report(self.store, self.scope, stored.id, number, sent, self.memory)


async def process_loop_completion(
    loop_id: str,
    reflection_status: str,
    orchestrator_persona: str | None = None,
    override_fatigue: bool = False,
    override_max_reruns: bool = False,
    override_by: str | None = None,
    *,
    store: GuardedLoops | Store | str = STORE,
    override_bias_echo: bool = False,
    **content: Any,
) -> dict[str, Any]:
    """Decide whether a loop that was run is run again; the reference lists the answer's fields.

    `content` are the fields of `Completion`. A status other than "done" is answered with an error.
    Raises NotFound, InvalidInput, Conflict, OverrideRefused, ModelError, CheckFailed, StoreError.
    """
    if reflection_status != DONE:
        return {"status": "error", "message": NOT_DONE, "loop_id": loop_id}
    loops, one = GuardedLoops.of(store), Completion(**content)
    flags = override_fatigue, override_max_reruns, override_bias_echo
    personas = {"reflection_persona": loops.settings.reflection_persona}
    if orchestrator_persona:
        personas["orchestrator_persona"] = orchestrator_persona
    stands = await loops.complete(loop_id, one, personas, _rules(flags), override_by or "")
    reflected = stands.as_(shapes.ReflectionResult)
    decided = shapes.LoopDecision(
        "success",
        loop_id,
        reflected,
        stands.as_(shapes.DecisionResult),
        orchestrator_persona or reflected.reflection_persona,
        iso(stands.at),
    )
    return asdict(decided)


async def get_guardrails_status(
    loop_id: str, *, store: GuardedLoops | Store | str = STORE
) -> dict[str, Any]:
    """Return the state of a loop. Raises NotFound, StoreError."""
    loops = GuardedLoops.of(store)
    stands = await loops.view((await loops.known(loop_id)).stored.id)
    standing = stands.as_(shapes.LoopStanding, loop_id=loop_id)
    return asdict(shapes.GuardrailsStatus("success", standing))


async def override_guardrails(
    loop_id: str,
    override_fatigue: bool = False,
    override_max_reruns: bool = False,
    override_by: str | None = None,
    override_reason: str | None = None,
    *,
    override_bias_echo: bool = False,
    store: GuardedLoops | Store | str = STORE,
) -> dict[str, Any]:
    """Let a loop go on past limits; valid for one decision that a limit would stop.

    A loop that has ended is decided again at once. Raises NotFound, StoreError, and OverrideRefused
    for a loop that passed or without an actor.
    """
    loops = GuardedLoops.of(store)
    rules = _rules((override_fatigue, override_max_reruns, override_bias_echo))
    place = await loops.known(loop_id)
    await loops.lift(place.stored.id, rules, override_by or "", override_reason or "")
    flags = override_fatigue, override_max_reruns
    given = shapes.GuardrailsOverride("success", loop_id, *flags, override_by, override_reason)
    return asdict(given)


async def get_loop_trace(
    loop_id: str, *, store: GuardedLoops | Store | str = STORE
) -> dict[str, Any]:
    """Return all recorded facts of one attempt, as a trace. Raises NotFound."""
    loops = GuardedLoops.of(store)
    place = await loops.known(loop_id)
    number = place.number if place.made else place.number - 1
    return shapes.trace(await loops.view(place.stored.id, number), place.number)


async def enforce_rerun_limits(
    loop_id: str,
    override_max_reruns: bool = False,
    override_by: str | None = None,
    *,
    store: GuardedLoops | Store | str = STORE,
) -> dict[str, Any]:
    """Return whether a loop has used up its reruns; with an override it may have one more.

    A repeated override is given only once. An unknown loop has had no reruns. Raises
    OverrideRefused, StoreError.
    """
    loops = GuardedLoops.of(store)
    place = await loops.find(loop_id)
    stands, now = LoopView(place.stored, ""), time.time()
    reached, overrides = stands.facts["rerun_limit_reached"], override_max_reruns and place.known
    if overrides and reached and not stands.lifting("attempts", now):
        await loops.lift(place.stored.id, ["attempts"], override_by or "")
        stands = await loops.view(place.stored.id)
    by = stands.lifting("attempts", now) if reached else ""
    return {
        "rerun_count": stands.facts["rerun_count"],
        "max_reruns": stands.facts["max_reruns"],
        "limit_reached": stands.facts["rerun_limit_reached"],
        "force_finalize": reached and not by,
        "overridden": bool(by),
        "overridden_by": by or None,
    }


async def detect_bias_repetition(
    loop_id: str,
    bias_tags: Sequence[Mapping[str, Any]],
    threshold: int = 3,
    *,
    store: GuardedLoops | Store | str = STORE,
) -> dict[str, Any]:
    """Return whether bias tags would be an echo in the scope if the next attempt had them.

    Writes nothing, because a completion writes its tags. Raises InvalidInput, StoreError.
    """
    loops, one = GuardedLoops.of(store), Completion(bias_tags=bias_tags)
    stored = (await loops.find(loop_id)).stored
    earlier = await loops.store.read(loops.scope, loop_store.echoes, stored.id, ECHO_WINDOW)
    loop = _then(replace(stored.loop, echoes=earlier), one)
    echoes = Echo(threshold, across="scope").counts(loop)
    counts = {shapes.tag(key): n for key, n in echoes.items()}
    found = shapes.echo(counts, threshold)
    return {
        "bias_repetition": found["bias_echo"],
        "repeated_tags": found["repeated_tags"],
        "repetition_counts": counts,
        "threshold": threshold,
        "bias_echo": found["bias_echo"],
        "trigger": found["trigger"],
        "action": found["action"],
    }


async def calculate_fatigue_score(
    loop_id: str,
    alignment_score: float,
    drift_score: float,
    previous_fatigue: float | None = None,
    *,
    store: GuardedLoops | Store | str = STORE,
) -> dict[str, Any]:
    """Return the fatigue of a loop if its next attempt had these scores; 0.0 at its first.

    Writes nothing, because a completion writes its scores. Raises InvalidInput, StoreError.
    """
    loops = GuardedLoops.of(store)
    one = Completion(alignment_score=alignment_score, drift_score=drift_score)
    record.check_share("previous_fatigue", previous_fatigue or 0.0)
    stored = (await loops.find(loop_id)).stored
    policy = policy_from(stored.head.policy)
    tired = shapes.rule_of(policy, Fatigue)
    loop = replace(stored.loop, improves=policy.improvement)
    base = tired.level(loop) if previous_fatigue is None else previous_fatigue
    after = _then(loop, one)
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
    """Log, to the logger `heedful`, why a loop runs again; return the reasoning with its time.

    The decision itself is stored elsewhere. Raises InvalidInput.
    """
    check_texts(loop_id=loop_id, rerun_reason=rerun_reason)
    check_sequence("rerun_trigger", rerun_trigger, str, "a list of names")
    detail = rerun_reason_detail or f"Triggered by {', '.join(rerun_trigger)}"
    words = [record.clean(redact(text), 200) for text in (loop_id, rerun_reason, detail)]
    _log.info("loop %s runs again: %s (%s)", *words)
    return {
        "rerun_trigger": list(rerun_trigger),
        "rerun_reason": rerun_reason,
        "rerun_reason_detail": detail,
        "overridden_by": overridden_by,
        "reflection_persona": reflection_persona,
        "timestamp": iso(time.time()),
    }


def _rules(flags: Sequence[bool]) -> list[str]:
    return [rule for rule, flag in zip(RULES, flags, strict=True) if flag]


def _then(loop: record.Loop, one: Completion) -> record.Loop:
    """Return the loop with one more attempt, which has only an evaluation."""
    evaluation = one.evaluation or record.Evaluation()
    return loop.then(record.Attempt(len(loop.attempts) + 1, record.Candidate(""), evaluation))

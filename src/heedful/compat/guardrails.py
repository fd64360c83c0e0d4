"""Loop guardrails with the names of earlier systems, on stored loops.

Names of attempts are looked up in the store; the number of an attempt is never parsed
from a name.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

from heedful.checks import critic, critique
from heedful.checks.evaluate import Check, Context, evaluated
from heedful.compat import answers
from heedful.compat.answers import LoopView
from heedful.drive import journal, report
from heedful.errors import AttemptTaken, Conflict, InvalidInput, NotFound
from heedful.lessons.lesson import Scope, check_sequence, check_texts
from heedful.loop import codec, decide, record, stop
from heedful.loop.limits import ALIGNMENT_SCORE, DRIFT_SCORE, LoopLimits
from heedful.memory.memory import Memory
from heedful.models.contract import Model
from heedful.pipeline.pipeline import read_settings
from heedful.redact import redact
from heedful.store import loops as loop_store
from heedful.store import open_store
from heedful.store.loops import BIAS_PREFIX
from heedful.store.records import Head, StoredLoop
from heedful.store.runs import iso
from heedful.store.store import Store

MAX_RERUN_NAME_CHARS = (
    report.MAX_LOOP_ID_CHARS + 20
)  # the most characters of the name of a rerun
DEFAULT_BIAS_SEVERITY = 0.5  # the severity of a bias tag without one
PESSIMIST_ROLE = "pessimist"
SUMMARY_ROLE = "summary"
DEFAULT_GUARDRAILS_STORE = "heedful.db"
DONE_STATUS = "done"
JUDGE_FIX = (
    "or configure a judge: set HEEDFUL_JUDGE to a model that passes heedful judge "
    "check, or give "
    "GuardedLoops a judge"
)
NOT_DONE_MESSAGE = "Invalid reflection status. Must be 'done'."
REASONING_NOTE = "reasoning"  # the key of the note of `log_rerun_reasoning`
# The rules that the flags fatigue, max_reruns and bias_echo override.
OVERRIDE_FLAG_RULES = ("fatigue", "attempts", "echo")
_log = logging.getLogger("heedful")


class LoopGuardrails(LoopLimits):
    """The limits that decide when a loop runs again and when it must end."""

    __slots__ = ()

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> LoopGuardrails:
        """Read settings from a mapping such as `os.environ`; ignore other names.

        Case does not matter. A name with the prefix `HEEDFUL_` has priority. Raises
        InvalidInput.
        """
        return read_settings(cls, settings, {})


_DEFAULT_LIMITS = asdict(LoopGuardrails())
# Callers may change these mappings; each call of a function of this module reads them.
RERUN_CONFIG: dict[str, Any] = dict(
    islice(_DEFAULT_LIMITS.items(), 5)
)  # the first five fields
FATIGUE_CONFIG: dict[str, Any] = {
    k: v for k, v in _DEFAULT_LIMITS.items() if k not in RERUN_CONFIG
}
# the name of the policy of a loop that follows the limits of each call
FOLLOWING_POLICY_NAME = "guardrails"


def configured() -> LoopGuardrails:
    """Return the limits in RERUN_CONFIG and FATIGUE_CONFIG. Raises InvalidInput."""
    limits = RERUN_CONFIG | FATIGUE_CONFIG
    if unknown := sorted(limits.keys() - _DEFAULT_LIMITS.keys()):
        raise InvalidInput(
            "RERUN_CONFIG", unknown[0], f"one of {', '.join(_DEFAULT_LIMITS)}"
        )
    return LoopGuardrails(**limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One run of a loop, as a caller reports it; None means that a value is missing.

    Scores are in 0..1. Each bias tag is a mapping with `tag` and, if known, `severity`
    (0..1). Raises InvalidInput.
    """

    task: str | None = None
    goal: str | None = None
    summary: str | None = None
    output: str | None = None
    alignment_score: float | None = None
    drift_score: float | None = None
    bias_tags: Sequence[Mapping[str, Any]] | None = None

    def __post_init__(self) -> None:
        words = {
            name: getattr(self, name) for name in ("task", "goal", "summary", "output")
        }
        check_texts(**{name: text for name, text in words.items() if text is not None})
        for name, score in self.scores.items():
            record.check_share(f"{name}_score", score)
        tags = self.bias_tags or ()
        check_sequence("bias_tags", tags, Mapping, "a list of objects, each with a tag")
        for each in tags:
            tag = each.get("tag")
            if not isinstance(tag, str) or not tag.strip():
                raise InvalidInput("tag", tag, "a text that names a bias")
            record.check_share(
                f"severity of {tag}", each.get("severity", DEFAULT_BIAS_SEVERITY)
            )

    @property
    def scores(self) -> dict[str, float]:
        """The reported scores by name."""
        scores = {ALIGNMENT_SCORE: self.alignment_score, DRIFT_SCORE: self.drift_score}
        return {name: score for name, score in scores.items() if score is not None}

    @property
    def evaluation(self) -> record.Evaluation | None:
        """The reported scores and bias tags, without duplicates; None if nothing was
        reported.
        """
        findings = tuple(
            {each["tag"]: bias(each) for each in self.bias_tags or ()}.values()
        )
        scores = {name: float(score) for name, score in self.scores.items()}
        return record.Evaluation(findings, scores) if findings or scores else None

    @property
    def value(self) -> Any:
        """The output or the summary; a dict if both were reported, None if neither
        was.
        """
        if self.output is None or self.summary is None:
            return self.summary if self.output is None else self.output
        return {"output": self.output, "summary": self.summary}

    def agrees(self, attempt: record.Attempt) -> bool:
        """Return True if nothing in the completion differs from the stored attempt."""
        value = self.value
        none = record.Evaluation()
        sent = self.evaluation or none
        stored = attempt.evaluation or none
        known = {
            one.key: one.severity
            for one in stored.findings
            if one.key.startswith(BIAS_PREFIX)
        }
        tags = {one.key: one.severity for one in sent.findings}
        same = (
            value is None
            or record.Candidate.of(value).digest == attempt.candidate.digest
        )
        scored = sent.scores.items() <= stored.scores.items()
        return same and scored and (self.bias_tags is None or tags == known)


def bias(given: Mapping[str, Any]) -> record.Finding:
    """Convert a bias tag to a persistent finding of level "warning"."""
    tag = redact(given["tag"])
    severity = float(given.get("severity", DEFAULT_BIAS_SEVERITY))
    what = f"{tag}: it {critique.BIASES[tag]}" if tag in critique.BIASES else tag
    finding = record.Finding(
        PESSIMIST_ROLE, what, fix="Write that part so that this no longer holds"
    )
    return replace(
        finding,
        level="warning",
        severity=severity,
        key=f"{BIAS_PREFIX}{tag}",
        persistent=True,
    )


def judges_of(completion: Completion, judge: Model | None, goal: str) -> list[Check]:
    """Return the check that judges all missing scores, in a list; [] if no score is
    missing.

    Reported bias tags are not judged again. Raises InvalidInput if nothing can judge a
    score.
    """
    missing = [
        name for name in (ALIGNMENT_SCORE, DRIFT_SCORE) if name not in completion.scores
    ]
    if not missing:
        return []
    if judge is None or completion.value is None:
        cure = JUDGE_FIX if judge is None else "or send a summary or an output to judge"
        names = [f"{role}_score" for role in missing]
        allowed = f"a number from 0 to 1 (missing: {', '.join(names)}); {cure}"
        raise InvalidInput(names[0], None, allowed)
    summary = completion.summary
    output = completion.output
    roles = [*missing, *[PESSIMIST_ROLE] * (completion.bias_tags is None)]
    judges = [
        critic(role, judge, goal=goal if role == ALIGNMENT_SCORE else "")
        for role in roles
    ]

    async def of_output(candidate: Any, at: Context) -> record.Evaluation:
        return await evaluated(
            summary if output is None else output, at, judges, evaluate=None
        )

    async def of_summary(candidate: Any, at: Context) -> record.Evaluation:
        at = at if output is None else replace(at, data=output)
        return await evaluated(
            summary, at, [critic(SUMMARY_ROLE, judge)], evaluate=None
        )

    return [of_output, *[of_summary] * (summary is not None)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedLoops:
    """The loops of a scope, under guardrails.

    Without `settings`, the limits in RERUN_CONFIG and FATIGUE_CONFIG apply, as they are
    at each call, also to loops that are already open. The `judge` gives scores that
    callers do not report; without it, they must. With a `memory` of the same store and
    scope, lessons of finished loops are stored. `overriding(loop_id, rule)` is called
    before an override is written. If `vouched(loop_id)` is false, reported scores do
    not count as measured, and lessons based on them are quarantined. The reason of an
    override also notes the name that the caller `named`.
    """

    store: Store
    scope: Scope = Scope()
    settings: LoopLimits | None = None
    judge: Model | None = None
    memory: Memory | None = None
    overriding: Callable[[str, str], None] | None = None
    vouched: Callable[[str], bool] = lambda loop: True
    named: str = ""

    @classmethod
    def of(cls, store: GuardedLoops | Store | str, **more: Any) -> GuardedLoops:
        """Return the guarded loops of a store or of the store with this name."""
        if isinstance(store, GuardedLoops):
            return store
        return cls(
            store=store if isinstance(store, Store) else open_store(store), **more
        )

    @property
    def policy(self) -> decide.Policy:
        """The policy of a new loop."""
        return replace(
            (self.settings or configured()).policy, name=FOLLOWING_POLICY_NAME
        )

    async def complete(
        self,
        name: str,
        completion: Completion,
        personas: Mapping[str, str],
        rules: Sequence[str],
        by: str,
    ) -> LoopView:
        """Store a completion, override those `rules` that ended its loop, and return
        the state.

        An equal second completion changes nothing; a different one raises AttemptTaken.
        Raises NotFound for an unknown loop without content, and as
        `heedful.drive.report.report`.
        """
        stored, number = await self.find(name)
        id = stored.id
        task = stored.head.task
        pending = number > len(stored.loop.attempts)
        if pending or completion.bias_tags is not None:
            noted = await self.store.read(self.scope, loop_store.notes, name)
            judged = None if pending else stored.loop.attempts[number - 1].evaluation
            keys = noted.keys() if pending else judged.keys if judged else ()
            tags = [
                tag
                for key, tag in noted.items()
                if key.startswith(BIAS_PREFIX) and key in keys
            ]
            if tags:  # a tag of the completion has priority
                completion = replace(
                    completion, bias_tags=[*tags, *(completion.bias_tags or ())]
                )
        if (
            stored.created
            and completion.task is not None
            and redact(completion.task) != task
        ):
            raise Conflict(f"loop {id!r} is about another task: {str(task)[:80]}")
        if pending:
            if (
                not completion.scores
                and completion.value is completion.bias_tags is None
            ):
                allowed = "given: the summary, the output or the scores of this attempt"
                if not stored.created:
                    remedy = (
                        "; if this is its first attempt, send the summary, output or "
                        "scores"
                    )
                    raise NotFound(
                        kind="loop", id=name, where=self.store.url, remedy=remedy
                    )
                raise InvalidInput("summary", None, allowed)
            known = stored.head.context
            goal = completion.goal or str(
                (isinstance(known, Mapping) and known.get("goal")) or ""
            )
            checks = judges_of(completion, self.judge, goal)
            if not stored.created:
                task = completion.task or goal or name
                about = {"goal": goal} if goal else None
                where: Any = {
                    "store": self.store,
                    "scope": self.scope,
                    "context": about,
                }
                await report.open_loop(id, task, policy=self.policy, **where)
            else:
                await self._update_policy(stored)
            vouched = self.vouched(id) or completion.evaluation is None
            source: Any = {"labels": personas, "reported_as": name, "vouched": vouched}
            judged_by: Any = {"evaluation": completion.evaluation, "checks": checks}
            made = report.AttemptReport(completion.value, **judged_by, **source)
            with suppress(
                AttemptTaken
            ):  # stored by another completion, or with other scores
                await report.report(
                    self.store,
                    scope=self.scope,
                    id=id,
                    number=number,
                    attempt_report=made,
                    memory=self.memory,
                )
        view = await self.view(id)
        if not completion.agrees(view.loop.attempts[number - 1]):
            raise AttemptTaken(
                f"the completion of {name!r} was reported with other content"
            )
        if lifted := [rule for rule in rules if rule in view.stopped_by]:
            await self.lift(id, lifted, by)
            view = await self.view(id)
        return view

    async def view(self, id: str, number: int | None = None) -> LoopView:
        """Return the state of a stored loop now or after attempt `number`. Raises
        StoreError.
        """
        (stored,) = await self._read([id])
        return LoopView(stored, await self._next_name(stored), number)

    async def find(self, name: str) -> tuple[StoredLoop, int]:
        """Return the loop and the number of the attempt called `name`.

        The name is the id of a loop (for its first attempt) or the name of a rerun. An
        unknown name gives a new loop that is not stored; its `created` is 0. Raises
        InvalidInput, StoreError.
        """
        if (
            not isinstance(name, str)
            or not 0 < len(name) <= MAX_RERUN_NAME_CHARS
            or not name.isprintable()
        ):
            raise InvalidInput(
                "loop_id", name, f"1 to {MAX_RERUN_NAME_CHARS} printable characters"
            )
        ids = [
            name,
            *(name[:end] for end in range(len(name) - 1, 0, -1) if name[end] == "_"),
        ]
        for stored in await self._read(ids):
            if stored.id == name:
                return stored, 1
            following = len(stored.loop.attempts) + 1
            for attempt in range(2, following):
                if answers.name_of(stored, attempt) == name:
                    return stored, attempt
            if following > 1 and await self._next_name(stored) == name:
                return stored, following
        policy = self.policy
        head = Head(task="", goals=(), policy=codec.policy_to(policy))
        loop = record.Loop(name, policy.goals)
        return StoredLoop(
            id=name,
            head=head,
            loop=loop,
            values=(),
            decisions=(),
            journal={},
            epoch=0,
            created=0.0,
            updated=0.0,
        ), 1

    async def known(self, name: str) -> tuple[StoredLoop, int]:
        """Do as `find`, but raise NotFound for an unknown name."""
        found = await self.find(name)
        if not found[0].created:
            raise NotFound("loop", name, self.store.url)
        return found

    async def lift(self, id: str, rules: Sequence[str], by: str, why: str = "") -> None:
        """Override all of these rules, or none if one is refused. Raises
        OverrideRefused.
        """
        (stored,) = await self._read([id])
        why = "; ".join(
            filter(None, (why, self.named and f"named by the caller: {self.named}"))
        )
        last = (
            decide.latest_verdict(stored.decisions),
            codec.policy_from(stored.head.policy),
        )
        for rule in rules:
            decide.check_override(record.Override(rule, by, why=why), *last)
        await self._update_policy(stored)
        for rule in rules:
            if self.overriding is not None:
                self.overriding(id, rule)
            await report.override(
                id, rule, by=by, why=why, store=self.store, scope=self.scope
            )

    async def _read(self, ids: Sequence[str]) -> list[StoredLoop]:
        """Return the stored loops; those that follow the limits get the limits of
        now.
        """
        found = await self.store.read(self.scope, loop_store.read_many, ids)
        policy = self.policy
        goals = [codec.to_document(goal) for goal in policy.goals]
        plain = codec.policy_to(policy)
        for n, one in enumerate(found):
            if one.head.policy["name"] == FOLLOWING_POLICY_NAME:
                head = replace(one.head, policy=plain, goals=goals)
                found[n] = replace(
                    one, head=head, loop=replace(one.loop, goals=policy.goals)
                )
        return found

    async def _update_policy(self, stored: StoredLoop) -> None:
        if stored.head.policy["name"] == FOLLOWING_POLICY_NAME:
            await self.store.write(
                self.scope, loop_store.set_policy, stored.id, stored.head
            )

    async def _next_name(self, stored: StoredLoop) -> str:
        """Return a new name for the next attempt, such as `ID_r1`; never the id of a
        loop.
        """
        dashes = "_"
        while await self._read(
            [name := f"{stored.id}{dashes}r{len(stored.loop.attempts)}"]
        ):
            dashes += "_"
        return name


async def process_loop_completion(
    loop_id: str,
    reflection_status: str,
    orchestrator_persona: str | None = None,
    override_fatigue: bool = False,
    override_max_reruns: bool = False,
    override_by: str | None = None,
    *,
    store: GuardedLoops | Store | str = DEFAULT_GUARDRAILS_STORE,
    override_bias_echo: bool = False,
    **content: Any,
) -> dict[str, Any]:
    """Report a completed run of a loop, and return whether the loop runs again.

    `content` has the fields of `Completion`. docs/reference.md lists the fields of the
    answer. A status other than "done" gives an answer with status "error". Raises
    NotFound, InvalidInput, Conflict, OverrideRefused, ModelError, CheckFailed,
    StoreError.
    """
    if reflection_status != DONE_STATUS:
        return {"status": "error", "message": NOT_DONE_MESSAGE, "loop_id": loop_id}
    loops = GuardedLoops.of(store)
    completion = Completion(**content)
    rules = _rules(override_fatigue, override_max_reruns, override_bias_echo)
    personas = {"reflection_persona": "SAGE"}  # the name of who reflects
    personas |= (
        {"orchestrator_persona": orchestrator_persona} if orchestrator_persona else {}
    )
    view = await loops.complete(
        loop_id, completion, personas=personas, rules=rules, by=override_by or ""
    )
    reflected = view.answer(answers.REFLECTION_FIELDS)
    return {
        "status": "success",
        "loop_id": loop_id,
        "reflection_result": reflected,
        "decision_result": view.answer(answers.DECISION_FIELDS),
        "orchestrator_persona": orchestrator_persona or reflected["reflection_persona"],
        "timestamp": iso(view.decision.at if view.decision else view.stored.created),
    }


async def process_loop_reflection(
    loop_id: str,
    override_fatigue: bool = False,
    override_max_reruns: bool = False,
    override_by: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Return the `reflection_result` of `process_loop_completion`, which takes
    `options`, too.
    """
    flags = override_fatigue, override_max_reruns, override_by
    answer = await process_loop_completion(
        loop_id, DONE_STATUS, None, *flags, **options
    )
    return dict(answer["reflection_result"])


async def make_rerun_decision(
    loop_id: str,
    override_fatigue: bool = False,
    override_max_reruns: bool = False,
    override_by: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Return the `decision_result` of `process_loop_completion`, which takes `options`,
    too.
    """
    flags = override_fatigue, override_max_reruns, override_by
    answer = await process_loop_completion(
        loop_id, DONE_STATUS, None, *flags, **options
    )
    return dict(answer["decision_result"])


async def get_guardrails_status(
    loop_id: str, *, store: GuardedLoops | Store | str = DEFAULT_GUARDRAILS_STORE
) -> dict[str, Any]:
    """Return the state of a loop. Raises NotFound, StoreError."""
    loops = GuardedLoops.of(store)
    stored, _ = await loops.known(loop_id)
    standing = (await loops.view(stored.id)).answer(
        answers.STATUS_FIELDS, loop_id=loop_id
    )
    return {"status": "success", "guardrails_status": standing}


async def override_guardrails(
    loop_id: str,
    override_fatigue: bool = False,
    override_max_reruns: bool = False,
    override_by: str | None = None,
    override_reason: str | None = None,
    *,
    override_bias_echo: bool = False,
    store: GuardedLoops | Store | str = DEFAULT_GUARDRAILS_STORE,
) -> dict[str, Any]:
    """Override limits of a loop for the next decision in which they would end it.

    A loop that has ended is decided again immediately. Raises NotFound, StoreError,
    InvalidInput without a flag, and OverrideRefused for a loop that passed or if
    `override_by` is missing.
    """
    loops = GuardedLoops.of(store)
    rules = _rules(override_fatigue, override_max_reruns, override_bias_echo)
    allowed = (
        "true, or override_max_reruns or override_bias_echo: say which limit to "
        "override"
    )
    record.require(rules, "override_fatigue", override_fatigue, allowed)
    stored, _ = await loops.known(loop_id)
    await loops.lift(stored.id, rules, override_by or "", override_reason or "")
    flags = {
        "override_fatigue": override_fatigue,
        "override_max_reruns": override_max_reruns,
    }
    reason = {"overridden_by": override_by, "override_reason": override_reason}
    return {"status": "success", "loop_id": loop_id, **flags, **reason}


async def get_loop_trace(
    loop_id: str, *, store: GuardedLoops | Store | str = DEFAULT_GUARDRAILS_STORE
) -> dict[str, Any]:
    """Return all fields of an attempt, with the logged reasons. Raises NotFound,
    StoreError.
    """
    loops = GuardedLoops.of(store)
    stored, number = await loops.find(loop_id)
    noted = await loops.store.read(loops.scope, loop_store.notes, loop_id)
    if not stored.created and not noted:
        raise NotFound("loop", loop_id, loops.store.url)
    made = len(stored.loop.attempts)
    view = (
        await loops.view(stored.id, min(number, made)) if made else LoopView(stored, "")
    )
    ended = "finalized" if view.decision is not None and not view.again else "completed"
    facts = {
        "loop_id": loop_id,
        "status": "pending" if number > made else ended,
        "timestamp": iso(view.decision.at) if view.decision else None,
        "rerun_of": view.name(number - 1) if number > 1 else None,
        "rerun_depth": number - 1,
    }
    logged = {
        name: it for name, it in noted.get(REASONING_NOTE, {}).items() if it is not None
    }
    return view.answer(answers.TRACE_FIELDS, **facts | logged)


async def enforce_rerun_limits(
    loop_id: str,
    override_max_reruns: bool = False,
    override_by: str | None = None,
    *,
    store: GuardedLoops | Store | str = DEFAULT_GUARDRAILS_STORE,
) -> dict[str, Any]:
    """Return whether a loop has used up its reruns; `override_max_reruns` allows one
    more.

    A second override before the next rerun has no effect. An unknown loop has 0 reruns.
    Raises OverrideRefused, StoreError.
    """
    loops = GuardedLoops.of(store)
    (stored, _) = await loops.find(loop_id)
    now = time.time()
    view = LoopView(stored, "")
    reached = view.facts["rerun_limit_reached"]
    overrides = override_max_reruns and stored.created
    if overrides and reached and not view.lifted_by("attempts", now):
        await loops.lift(stored.id, ["attempts"], override_by or "")
        view = await loops.view(stored.id)
    by = view.lifted_by("attempts", now) if reached else ""
    limit = {"limit_reached": view.facts["rerun_limit_reached"], "overridden": bool(by)}
    limit |= {"force_finalize": reached and not by, "overridden_by": by or None}
    return view.answer(answers.LIMIT_FIELDS, **limit)


async def detect_bias_repetition(
    loop_id: str,
    bias_tags: Sequence[Mapping[str, Any]],
    threshold: int | None = None,
    *,
    store: GuardedLoops | Store | str = DEFAULT_GUARDRAILS_STORE,
) -> dict[str, Any]:
    """Return whether these bias tags would be an echo if the next attempt had them.

    Occurrences in other loops of the scope count. `threshold` is by default the limit
    of the loop: 3, or what RERUN_CONFIG says. Stores nothing. Raises InvalidInput,
    StoreError.
    """
    loops = GuardedLoops.of(store)
    completion = Completion(bias_tags=bias_tags)
    stored, _ = await loops.find(loop_id)
    most = decide.rule_of(codec.policy_from(stored.head.policy), stop.Echo).times
    echo = stop.Echo(most if threshold is None else threshold, across="scope")
    earlier = await loops.store.read(
        loops.scope, loop_store.echoes, stored.id, journal.ECHO_WINDOW_LOOPS
    )
    counts = echo.counts(_then(replace(stored.loop, echoes=earlier), completion))
    return answers.echo(
        {key.removeprefix(BIAS_PREFIX): n for key, n in counts.items()}, echo.times
    )


async def track_bias(
    loop_id: str,
    bias_tags: Sequence[Mapping[str, Any]],
    *,
    store: GuardedLoops | Store | str = DEFAULT_GUARDRAILS_STORE,
) -> dict[str, Any]:
    """Count the bias tags of an attempt, each once; return how often the scope has had
    them.

    The tags become part of the completion of the attempt, whether it is reported before
    or later. Raises InvalidInput, StoreError.
    """
    completion = Completion(bias_tags=bias_tags)
    loops = GuardedLoops.of(store)
    stored, number = await loops.find(loop_id)
    findings = completion.evaluation.findings if completion.evaluation else ()
    names = {one.key: one.key.removeprefix(BIAS_PREFIX) for one in findings}
    tags = {
        one.key: {"tag": names[one.key], "severity": one.severity} for one in findings
    }
    await loops.store.write(loops.scope, loop_store.note, stored.id, loop_id, tags)
    earlier = await loops.store.read(
        loops.scope, loop_store.echoes, stored.id, journal.ECHO_WINDOW_LOOPS
    )
    own = stored.loop.count_findings()
    pending = number > len(stored.loop.attempts)
    counts = {
        names[key]: earlier.get(key, 0) + own.get(key, 0) + pending for key in tags
    }
    most = decide.rule_of(codec.policy_from(stored.head.policy), stop.Echo).times
    told = answers.echo(counts, most)
    return {
        name: told[name] for name in ("bias_echo", "repeated_tags", "repetition_counts")
    }


async def calculate_fatigue_score(
    loop_id: str,
    alignment_score: float,
    drift_score: float,
    previous_fatigue: float | None = None,
    *,
    store: GuardedLoops | Store | str = DEFAULT_GUARDRAILS_STORE,
) -> dict[str, Any]:
    """Return the fatigue that a loop would have if its next attempt had these scores.

    The first attempt has fatigue 0.0. Stores nothing. Raises InvalidInput, StoreError.
    """
    loops = GuardedLoops.of(store)
    completion = Completion(alignment_score=alignment_score, drift_score=drift_score)
    record.check_share("previous_fatigue", previous_fatigue or 0.0)
    stored, _ = await loops.find(loop_id)
    policy = codec.policy_from(stored.head.policy)
    rule = decide.rule_of(policy, stop.Fatigue)
    loop = replace(stored.loop, improves=policy.improvement)
    before = rule.level(loop) if previous_fatigue is None else previous_fatigue
    after = _then(loop, completion)
    rerun = len(after.attempts) > 1
    better = after.improved[-1]
    level = rule.after(before, better) if rerun else before
    facts = answers.fatigue(level, before, policy, rerun and better)
    ends = {
        "critical_threshold": rule.limit,
        "force_finalize": facts["threshold_exceeded"],
    }
    return facts | ends


async def log_rerun_reasoning(
    loop_id: str,
    rerun_trigger: Sequence[str],
    rerun_reason: str,
    rerun_reason_detail: str | None = None,
    overridden_by: str | None = None,
    reflection_persona: str | None = None,
    *,
    store: GuardedLoops | Store | str = DEFAULT_GUARDRAILS_STORE,
) -> dict[str, Any]:
    """Write why a loop runs again to its trace and to the logger `heedful`; return the
    reasons.

    A second call for the same attempt replaces the reasons. Raises InvalidInput,
    StoreError.
    """
    check_texts(loop_id=loop_id, rerun_reason=rerun_reason)
    check_sequence("rerun_trigger", rerun_trigger, str, "a list of names")
    detail = rerun_reason_detail or f"Triggered by {', '.join(rerun_trigger)}"
    words = [
        record.clean(redact(text), 200) for text in (loop_id, rerun_reason, detail)
    ]
    _log.info("loop %s runs again: %s (%s)", *words)
    reasons: dict[str, Any] = {
        "rerun_trigger": list(rerun_trigger),
        "rerun_reason": rerun_reason,
    }
    reasons |= {"rerun_reason_detail": detail, "overridden_by": overridden_by}
    reasons["reflection_persona"] = reflection_persona
    loops = GuardedLoops.of(store)
    notes = {REASONING_NOTE: reasons}
    stored, _ = await loops.find(loop_id)
    await loops.store.write(loops.scope, loop_store.note, stored.id, loop_id, notes)
    return {**reasons, "timestamp": iso(time.time())}


def _rules(*flags: bool) -> list[str]:
    return [rule for rule, flag in zip(OVERRIDE_FLAG_RULES, flags, strict=True) if flag]


def _then(loop: record.Loop, completion: Completion) -> record.Loop:
    """Return the loop with one more attempt, made of the completion's scores and
    tags.
    """
    evaluation = completion.evaluation or record.Evaluation()
    return loop.then(
        record.Attempt(
            len(loop.attempts) + 1, record.Candidate(""), evaluation=evaluation
        )
    )

"""Reflect on an episode: a program finds the facts, and rules or a model write the
lessons.

Spans of traces arrive in pieces and in any order; a complete trace becomes an episode.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from itertools import islice, pairwise
from typing import Any, Literal

from heedful.errors import InvalidInput, ModelError, StoreError
from heedful.lessons import lesson as records
from heedful.lessons.action import Step, action
from heedful.lessons.consolidate import DreamLesson, Proposal
from heedful.lessons.lesson import Example, Lesson, Remembered, Scope, State, Trust
from heedful.lessons.signature import strategy_signature
from heedful.lessons.trust import QuarantinedLesson, initial_state, lowest_trust
from heedful.loop.decide import Again, Done, Verdict
from heedful.loop.record import NO_USAGE, Loop, Usage
from heedful.memory import draft as drafts
from heedful.memory.citations import Claim
from heedful.memory.draft import DRAFT_BY_RULES, OUTCOME_PROMPTS, Draft, Score
from heedful.memory.memory import Memory, log_failure, write_lessons
from heedful.memory.study import Study, remove_lessons
from heedful.memory.wording import by_rules
from heedful.models.contract import Model
from heedful.redact import redact, redact_data
from heedful.sanitize import clean
from heedful.store import dreams, episodes, exposures, lessons, patterns
from heedful.store import quarantine as quarantine_store
from heedful.store.connection import Db, resumable, storable
from heedful.store.episodes import Bounds
from heedful.store.records import StoredEpisode, StoredLoop
from heedful.store.store import Store
from heedful.traces.episode import LOOP_SOURCE, Ended, Episode, Event, Fault, Limits
from heedful.traces.error_lines import error_line
from heedful.traces.messages import write
from heedful.traces.otlp import from_json, from_request
from heedful.traces.reading import read
from heedful.traces.signals import Course, Signal, given_to
from heedful.traces.spans import MAX_SPAN_BYTES as LONGEST_SPAN
from heedful.traces.spans import Piece, pieces
from heedful.traces.spans import episodes as episodes_in
from heedful.validation import check_sequence, check_share, require

_log = logging.getLogger("heedful")
# The events stored of an episode that waits.
MAX_STORED_EVENTS = 2_000
# The factor by which a strategy is more important than its reflection.
STRATEGY_IMPORTANCE_FACTOR = 1.1
MAX_PREVIOUS_STEP_CHARS = 160  # characters of the step before a failed step
REFLECTION_FAILURE_EVENT = "reflection_generation_failed"  # the event in the log
LIVE_LESSON_STATES = (
    "unverified",
    "verified",
)  # the states of lessons that may be recalled


@dataclass(frozen=True, slots=True)
class Reflected:
    """The result of reflecting on one episode.

    `lesson` says what happened, `strategy` what to do next time. `claims` are the
    sentences of the lesson with the events they cite. `dropped` are the sentences, and the strategy,
    of a model that the events do not support, each with the reason as `why`. `signals`
    are the signs of a mistake in the episode. `known` is how often the same failure was
    seen before; if it is above 0, no model was asked, and the lessons have the stored
    words unless the new ones are better. `error` says why a model's answer was not
    used. `stored` has the results of storing both lessons, now or before. `again` is
    true if this episode was reflected on before. `busy` is true if another process is
    reflecting on it, or was until a few seconds ago. `steps` are the steps of the run,
    for `Memory.before`; those that the lessons are about have 1 as their `lesson`.
    """

    lesson: Lesson
    strategy: Lesson | None
    _: KW_ONLY
    claims: tuple[Claim, ...]
    dropped: tuple[Claim, ...]
    signals: tuple[Signal, ...]
    usage: Usage = NO_USAGE
    known: int = 0
    error: str = ""
    stored: tuple[Remembered, ...] = ()
    again: bool = False
    busy: bool = False
    steps: tuple[Step, ...] = ()

    @property
    def text(self) -> str:
        """The text of the reflection."""
        return self.lesson.text

    @property
    def by(self) -> str:
        """The author of the reflection: "rules", or the name of a model."""
        return str(self.lesson.meta["by"])

    @property
    def importance(self) -> float:
        """The importance that the author claims, 0..1; by default
        `lesson.importance`, ours.
        """
        rated = self.lesson.meta.get("rated")
        return self.lesson.importance if rated is None else float(rated)

    @property
    def confidence(self) -> float:
        """How sure the author is, 0..1."""
        return float(self.lesson.meta["confidence"])

    @property
    def state(self) -> State:
        """The state of the reflection, as stored if it is stored."""
        return self.stored[0].state if self.stored else self.lesson.state

    @property
    def trust(self) -> Trust:
        """The trust of the reflection, as stored if it is stored."""
        return self.stored[0].trust if self.stored else self.lesson.trust

    @property
    def release(self) -> str:
        """The command that releases what waits in quarantine; "" if nothing was stored
        there.
        """
        return records.release_command([one.entry for one in self.stored])


def episode_of(
    loop: Loop | StoredLoop,
    task: str = "",
    verdict: Verdict | None = None,
    goal: str = "",
) -> Episode:
    """Return a finished loop as an episode: each attempt is an llm_response, then its
    findings.

    For a stored loop, `task` and `verdict` are by default its own task and last
    verdict. An error becomes an error_event with its message, its check as the code and
    its fix as the content; any other finding becomes a system_event. The outcome is
    success if the verdict passed (without a verdict: if the last evaluation passes),
    partial if the loop was cancelled or has not ended, else failure. Secrets are
    redacted.
    """
    if isinstance(loop, StoredLoop):
        verdict = verdict or (loop.verdicts[-1] if loop.decisions else None)
        known = loop.head.task
        task = task or (
            known if isinstance(known, str) else json.dumps(known, ensure_ascii=False)
        )
        loop = loop.loop
    last = loop.attempts[-1].evaluation if loop.attempts else None
    done = verdict if isinstance(verdict, Done) else None
    outcome: Ended = "failure"
    if done.passed if done else last is not None and last.passes(loop.goals):
        outcome = "success"
    elif loop.cancelled or isinstance(verdict, Again):
        outcome = "partial"
    events: list[Event] = []
    for attempt in loop.attempts:
        name = f"attempt {attempt.number}"
        events.append(
            Event("llm_response", redact(attempt.candidate.text or ""), id=name)
        )
        findings = attempt.evaluation.findings if attempt.evaluation else ()
        for place, finding in enumerate(findings, 1):
            message = redact(finding.message)
            fix = redact(finding.fix)
            wrong = ""
            type = "system_event"
            said = f"{message} {fix}".strip()
            if finding.level == "error":
                type = "error_event"
                said = fix
                wrong = message
            id = f"{name}, finding {place}"
            events.append(Event(type, said, error=wrong, code=finding.check, id=id))
    stop = done.stopped_by[0] if done and done.stopped_by else None
    fault = None if stop is None else Fault(stop.rule, redact(stop.detail))
    return Episode(
        tuple(events),
        outcome,
        task=redact(task),
        goal=redact(goal),
        fault=fault,
        id=loop.id,
        source=LOOP_SOURCE,
    )


async def reflect(
    episode: Episode,
    *,
    memory: Memory | Store | str | None = None,
    model: Model | None = None,
    prompts: Mapping[str, str] = OUTCOME_PROMPTS,
    score: Score = drafts.by_outcome,
    on_model_error: Literal["keep", "raise"] = "keep",
    store: bool = True,
    trust: Trust = "external",
    related: Sequence[str] = (),
) -> Reflected | None:
    """Return what an episode teaches, written by rules or by a `model`; None for an
    empty episode.

    If memory has seen the failure before, it counts one more sighting, and no model is
    asked. Each episode is reflected on once, even if several processes pass it in
    several times. If the model fails, or the events do not support its sentences, the
    rules write the reflection, and `error` says so. With `on_model_error="raise"` the
    error is raised, and the episode is tried again later. `prompts` are instructions
    for the model about a "failure" (also an error or a timeout), a "success", or a
    "partial" result; heedful adds the data and the format of the answer. `score`
    returns the importance, 0..1. With `store=False` nothing is written. `trust` is the
    trust of the task and of the user's words. A lesson that depends on them, or on
    results of tools, has no higher trust; a lesson with less trust than a model's is
    quarantined. `related` are ids that are stored with the lesson. Raises InvalidInput,
    ModelError, StoreError.
    """
    require(isinstance(episode, Episode), "episode", episode, "an Episode")
    require(
        on_model_error in ("keep", "raise"),
        "on_model_error",
        on_model_error,
        "keep or raise",
    )
    records.check_trust(trust)
    check_sequence("related", related, str, "ids, each a text")
    kept = None if memory is None else Memory.of(memory, None)
    work = _Reflector(
        memory=kept,
        model=model,
        prompts=prompts,
        score=score,
        on_model_error=on_model_error,
        related=related,
    )
    if not episode.events and episode.fault is None:
        return None
    if kept is None or not store:
        return await work.reflect(episode, episode.digest, trust)
    entry = await asyncio.to_thread(to_stored_episode, episode, trust)
    if state := await kept.store.write(kept.scope, episodes.admit, entry):
        study = await work.study(episode, trust)
        made = await work.lessons(study, by_rules(study), episode.digest)
        stored = await kept.store.read(
            kept.scope, lessons.remembered, [made.lesson, made.strategy]
        )
        return replace(made, stored=stored, again=True, busy=state != "reflected")
    return await work.write(kept, episode, episode.digest, trust)


async def reflect_waiting(
    memory: Memory | Store | str,
    *,
    before: float,
    digest: str = "",
    model: Model | None = None,
    prompts: Mapping[str, str] = OUTCOME_PROMPTS,
) -> Reflected | None:
    """Reflect on the oldest episode that waits or must be tried again; return None
    without one.

    Episodes that were tried since `before`, in seconds since 1970, are skipped, so a
    host can call this until it returns None. `digest` selects one episode. If the model
    fails, the error is raised and the episode waits. Raises ModelError, StoreError.
    """
    kept = Memory.of(memory, None)
    work = _Reflector(
        memory=kept,
        model=model,
        prompts=prompts,
        score=drafts.by_outcome,
        on_model_error="raise",
    )
    entry = await kept.store.write(kept.scope, episodes.take, before, digest)
    if entry is None:
        return None
    work = replace(work, keys=tuple(entry.via.split()))
    episode, trust = await asyncio.to_thread(from_stored_episode, entry)
    return await work.write(kept, episode, entry.digest, trust)


async def keep(made: Reflected, memory: Memory | Store | str) -> tuple[Remembered, ...]:
    """Store a reflection made with `store=False`; an episode is stored once.

    If it was stored before, return the answers of its lessons, and count no sighting.
    Raises StoreError, QuotaExceeded.
    """
    kept = Memory.of(memory, None)
    meta = made.lesson.meta
    session = storable(meta["session_id"])
    entry = StoredEpisode(
        digest=meta["episode"],
        name="",
        session=session,
        outcome=meta["outcome"],
        record={},
    )
    for _ in range(
        40
    ):  # another call may be storing it: wait two seconds for its answers
        if (state := await kept.store.write(kept.scope, episodes.admit, entry)) is None:
            return await _write_lessons(kept, entry.digest, made)
        if state == "reflected":
            break
        await asyncio.sleep(0.05)
    return await kept.store.read(
        kept.scope, lessons.remembered, [made.lesson, made.strategy]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reflector:
    """The arguments of one call of `reflect`, and the `keys` of a service that sent the
    episode.
    """

    memory: Memory | None
    model: Model | None
    prompts: Mapping[str, str]
    score: Score
    on_model_error: str
    related: Sequence[str] = ()
    keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.model is not None and not isinstance(self.model, Model):
            raise InvalidInput(
                "model", self.model, "a Model, as open_model gives one, or None"
            )
        if (
            not isinstance(self.prompts, Mapping)
            or not self.prompts.keys() <= OUTCOME_PROMPTS.keys()
        ):
            raise InvalidInput(
                "prompts", self.prompts, f"a mapping with {', '.join(OUTCOME_PROMPTS)}"
            )

    async def write(
        self, memory: Memory, episode: Episode, digest: str, trust: Trust
    ) -> Reflected:
        """Reflect on the episode and store the lessons; record a failure, to be tried
        again.

        Meanwhile the lease on the episode is renewed, so that no other process works on
        it.
        """
        renewal = asyncio.create_task(_renew_claim(memory, digest))
        stored = None
        try:
            made = await self.reflect(episode, digest, trust)
            stored = await _write_lessons(memory, digest, made)
        finally:
            renewal.cancel()
            if stored is None:
                await _record_failure(memory, digest, sys.exception())
        return replace(made, stored=stored)

    async def reflect(self, episode: Episode, digest: str, trust: Trust) -> Reflected:
        """Let the model write the reflection, or the rules if memory knows the
        failure.
        """
        study = await self.study(episode, trust)
        known = 0
        if self.memory is not None:
            store = self.memory.store
            scope = self.memory.scope
            seen = await store.read(scope, patterns.seen, study.signature)
            known = sum(
                each["seen"] for each in seen.lessons if each["kind"] == "reflection"
            )
        draft = by_rules(study)
        usage = NO_USAGE
        error = ""
        if self.model is not None and not known:
            prompts = {**OUTCOME_PROMPTS, **self.prompts}
            instruction = prompts.get(episode.outcome, prompts["failure"])
            try:
                draft, usage = await drafts.by_model(study, self.model, instruction)
            except ModelError as failed:
                if self.on_model_error == "raise":
                    raise
                log_failure(REFLECTION_FAILURE_EVENT, failed)
                usage = getattr(failed, "usage", None) or NO_USAGE
                error = f"{type(failed).__name__}: {failed}"
        made = await self.lessons(study, draft, digest)
        return replace(made, usage=usage, known=known, error=error)

    async def study(self, episode: Episode, trust: Trust) -> Study:
        """Study the episode without the texts that heedful put into its prompts."""
        answered = {
            Example(event.content, after.content).digest: at
            for at, (event, after) in enumerate(pairwise(episode.events))
            if event.type == "user_message" and after.type == "llm_response"
        }
        if self.memory is not None and answered:
            store = self.memory.store
            scope = self.memory.scope
            ours = await store.read(scope, episodes.known_examples, answered)
            places = (
                at for each in ours for at in (answered[each], answered[each] + 1)
            )
            episode = remove_lessons(episode, frozenset(places))
        stated = await self.memory.stated_trust() if self.memory is not None else {}
        return await asyncio.to_thread(Study.of, episode, trust, stated)

    async def lessons(self, study: Study, draft: Draft, digest: str) -> Reflected:
        """Return the lessons of a draft with their trust, importance and metadata."""
        importance = self.score(draft, study.episode)
        check_share("importance", importance)
        episode = study.episode
        ids = set[int]()
        entries: Sequence[QuarantinedLesson] = ()
        rows: Sequence[Mapping[str, Any]] = ()
        if self.memory is not None:
            store = self.memory.store
            scope = self.memory.scope
            rows = await store.read(scope, lessons.of_failure, study.signature.digest)
            if episode.source == LOOP_SOURCE and episode.id:
                past = await store.read(scope, exposures.past, episode.id)
                ids = {
                    id for each in past.exposures if each.shown for id in each.examples
                }
            entries = (
                await store.read(scope, quarantine_store.quarantined, list(ids))
                if ids
                else ()
            )
        task = redact(episode.task)[: records.MAX_EXAMPLE_TEXT_CHARS]
        floor: tuple[Trust, ...] = (study.task_trust,) if task else ()
        floor += (
            () if len(entries) == len(ids) else ("external",)
        )  # some examples are gone

        def lesson(kind: str, text: str, trust: Trust, weight: float) -> Lesson:
            name = study.signature
            tags = draft.tags
            trust = lowest_trust((trust, *floor))
            if kind == "strategy":
                name = strategy_signature(name, text)
                tags = (*tags, kind)
            tags = tuple({tag.casefold(): tag for tag in reversed(tags)}.values())[::-1]
            about: Any = {
                "state": initial_state(trust),
                "trust": trust,
                "importance": weight,
            }
            about |= {"tags": tags, "meta": self.meta(study, draft, digest, kind)}
            about |= {
                "source": f"episode:{digest[:16]}",
                "sources": (*study.sources, *self.keys),
            }
            about |= {"parents": tuple(sorted(entry.id for entry in entries))}
            said = text[: records.MAX_EXAMPLE_TEXT_CHARS]
            example = Example(task, "") if task else None
            own = Lesson(
                kind,
                name,
                error_type=name.error_type,
                text=said,
                sighting=said,
                example=example,
                **about,
            )
            if (
                kind == "strategy"
                and draft.strategy
                and draft.by == DRAFT_BY_RULES
                and not study.tool
            ):
                # the fix of a check; if another one contradicts it, a person decides
                return own
            return _with_stored_words(
                own, study, [row for row in rows if row["kind"] == kind]
            )

        reflection = lesson("reflection", draft.text(episode), draft.trust, importance)
        strategy = None
        rule = draft.strategy
        trust = draft.rule_trust
        for row in rows if not rule else ():
            if row["kind"] == "strategy":
                rule = row["text"]
                trust = lowest_trust((trust, row["trust"]))
        if rule:
            strategy = lesson("strategy", rule, trust, _stronger(importance))
        failed = {at for one in study.main_signals for at in study.failed_steps(one)}
        steps = await asyncio.to_thread(steps_of, study.course, failed)
        return Reflected(
            reflection,
            strategy,
            claims=draft.claims,
            dropped=draft.dropped,
            signals=study.signals,
            steps=steps,
        )

    def meta(
        self, study: Study, draft: Draft, digest: str, kind: str
    ) -> Mapping[str, Any]:
        """Return the metadata of a lesson."""
        episode = study.episode
        stronger = kind == "strategy"
        events = sorted({at for claim in draft.claims for at in claim.events})
        return {
            "by": draft.by,
            "layer": "rm",
            "confidence": draft.confidence,
            "rated": _stronger(draft.rated)
            if stronger and draft.rated
            else draft.rated,
            "mended": stronger and draft.mended,
            "outcome": episode.outcome,
            "task_description": redact(episode.task)[: records.MAX_EXAMPLE_TEXT_CHARS],
            "event_count": len(episode.events) + episode.omitted,
            "session_id": episode.session,
            "error_category": study.category,
            "source_event_ids": [episode.events[at].id or str(at) for at in events],
            "related_memory_ids": list(self.related),
            "episode": digest,
        }


def _stronger(importance: float) -> float:
    return min(1.0, round(importance * STRATEGY_IMPORTANCE_FACTOR, 6))


def steps_of(
    run: Course, failed: Collection[int] = (), errors: Mapping[int, str] | None = None
) -> tuple[Step, ...]:
    """Return the steps of a run that have a result.

    Those of the `failed` calls have 1 as their `lesson`, to be replaced by the id of
    the lesson about them. `errors` are the errors by call, by default the first lines
    of what failed.
    """
    steps = list[Step]()
    before = ""
    for at, event in enumerate(run.events):
        if event.type == "tool_call" and event.tool and (result := run.result[at]):
            acted = action(event.tool, given_to(event))
            text = run.failure[at] or run.failure[result]
            error = (
                (text and error_line(text)) if errors is None else errors.get(at, "")
            )
            steps.append(
                Step(
                    acted,
                    error,
                    lesson=int(at in failed),
                    state=before,
                    at=run.events[result].at or 0,
                )
            )
            before = (
                f"after {clean(f'{event.tool}: {acted.text}', MAX_PREVIOUS_STEP_CHARS)}"
            )
    return tuple(steps)


def _with_stored_words(
    own: Lesson, study: Study, rows: Sequence[Mapping[str, Any]]
) -> Lesson:
    """Return a lesson in the best of the stored words, unless its own words are
    better.
    """
    best = min(rows, key=_worth, default=None)
    fixes = own.meta.get("mended") and not any(
        row["meta"].get("mended") for row in rows
    )
    if (
        best is None
        or fixes
        or _worth({"trust": own.trust, "meta": own.meta}) < _worth(best)
    ):
        return own
    name = study.signature
    text = best["text"]
    name = name if own.kind == "reflection" else strategy_signature(name, text)
    author = ("by", "confidence", "rated", "mended", "source_event_ids")
    meta = {
        **own.meta,
        **{key: best["meta"][key] for key in author if key in best["meta"]},
    }
    weight = best["importance"]
    tags = tuple(best["tags"])
    return replace(
        own, signature=name, text=text, importance=weight, tags=tags, meta=meta
    )


def _worth(one: Mapping[str, Any]) -> tuple[int, bool]:
    """Return the order of words, best first: by trust, then those that say what
    worked.
    """
    return records.TRUST_ORDER.index(one["trust"]), not one["meta"].get("mended")


@resumable(result=list[Remembered])
def _record(
    db: Db,
    scope: Scope,
    digest: str,
    steps: Sequence[Step],
    made: Sequence[Lesson],
    **limits: Any,
) -> list[Remembered]:
    """Write the lessons of an episode; a strategy supersedes older ones that are worth
    less.
    """
    answers = episodes.record_lessons(db, scope, digest, made, **limits)
    about = [replace(step, lesson=step.lesson and answers[0].id) for step in steps]
    episodes.record_steps(db, scope, made[0].source, about)
    new = {
        answer.id
        for answer, one in zip(answers, made, strict=True)
        if one.kind == "strategy"
    }
    rows = lessons.of_failure(db, scope, made[0].signature.digest)
    live = {
        row["id"]: row
        for row in rows
        if row["kind"] == "strategy" and row["state"] in LIVE_LESSON_STATES
    }
    for id in new & live.keys():
        older = tuple(n for n, row in live.items() if _worth(live[id]) < _worth(row))
        if older:
            change = Proposal(
                "reword", older, survivor=id, why="the new rule says what worked"
            )
            expected = {
                n: DreamLesson(
                    id=row["id"],
                    kind=row["kind"],
                    signature=row["signature"],
                    error_type=row["error_type"],
                    text=row["text"],
                    state=row["state"],
                    trust=row["trust"],
                )
                for n, row in live.items()
            }
            report = {"mode": "lite", "before": lessons.count(db, scope)}
            dreams.supersede(
                db,
                scope,
                report=report,
                proposals=[change],
                expected=expected,
                by="heedful",
            )
    return answers


async def _write_lessons(
    memory: Memory, digest: str, made: Reflected
) -> tuple[Remembered, ...]:
    made_lessons = [each for each in (made.lesson, made.strategy) if each is not None]
    answers = await write_lessons(memory, made_lessons, _record, digest, made.steps)
    fields = {"id": answers[0].id, "importance": made.lesson.importance}
    _log.info("reflection_stored", extra=fields)
    return tuple(answers)


def to_stored_episode(episode: Episode, trust: Trust) -> StoredEpisode:
    """Return the stored form of an episode; a long one loses its middle events, all
    their secrets.

    Takes a second if the episode is long.
    """
    digest = episode.digest
    events = episode.events
    half = MAX_STORED_EVENTS // 2
    if len(events) > MAX_STORED_EVENTS:
        left = episode.omitted + len(events) - MAX_STORED_EVENTS
        episode = replace(
            episode, events=(*events[:half], *events[-half:]), omitted=left
        )
    (line,) = write([episode])
    record = {"episode": json.loads(line), "source": episode.source, "trust": trust}
    return StoredEpisode(
        digest=digest,
        name=storable(episode.id),
        session=storable(episode.session),
        outcome=episode.outcome,
        record=redact_data(record),
    )


def from_stored_episode(entry: StoredEpisode) -> tuple[Episode, Trust]:
    """Return a stored episode and the trust of its task."""
    line = json.dumps(entry.record["episode"]).encode("ascii")
    (episode,) = read(line, Limits(events=MAX_STORED_EVENTS, bytes=len(line)))
    return replace(episode, source=entry.record["source"]), entry.record["trust"]


async def _renew_claim(memory: Memory, digest: str) -> None:
    while True:
        await asyncio.sleep(episodes.EPISODE_LEASE_SECONDS / 3)
        with suppress(StoreError):  # the next one may get through
            await memory.store.write(memory.scope, episodes.beat, digest)


async def _record_failure(
    memory: Memory, digest: str, error: BaseException | None
) -> None:
    """Record and log an error; if the work was only interrupted, release the episode
    for others.
    """
    words = ""
    if isinstance(error, Exception):
        words = f"{type(error).__name__}: {error}"
        log_failure(REFLECTION_FAILURE_EVENT, error)
    with suppress(StoreError):  # the first error is raised
        await memory.store.write(memory.scope, episodes.record_failure, digest, words)


# Spans of a request; an exporter sends hundreds, a collector thousands.
MAX_REQUEST_SPANS = 50_000


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for the rest of a trace, in seconds since its last span; all
    above 0.

    A trace is complete `settled` seconds after its root ended; OpenTelemetry exporters
    send spans every 5 s. A trace whose root does not arrive is complete after `ending`.
    """

    settled: float = 15.0
    ending: float = 3_600.0


async def receive(
    store: Store,
    scope: Scope,
    body: Any,
    trust: Literal["external", "operator"] = "external",
    bounds: Bounds = Bounds(),
) -> Counter[str]:
    """Store the spans of an export request; return how many spans were refused, by
    reason.

    `body` is OTLP, as protobuf bytes or as JSON data. Raises InvalidInput, StoreError.
    """
    received, refused = await asyncio.to_thread(_read, body)
    refused.update(
        await store.write(scope, episodes.put_spans, received, trust, bounds)
    )
    return refused


def _read(body: Any) -> tuple[list[Piece], Counter[str]]:
    if isinstance(body, dict):  # JSON of protobuf leaves out what is empty
        body = {"resourceSpans": [], **body}
    try:
        spans = (
            from_request(body, LONGEST_SPAN)
            if isinstance(body, bytes)
            else from_json(body)
        )
        received = pieces(islice(spans, MAX_REQUEST_SPANS))
        if next(spans, None) is not None:
            raise InvalidInput(
                "spans",
                f"more than {MAX_REQUEST_SPANS}",
                f"at most {MAX_REQUEST_SPANS} in a request",
            )
        return received
    except RecursionError as error:
        raise InvalidInput(
            "spans", "nested too deeply", "nested less deeply"
        ) from error


async def gather(
    store: Store, scope: Scope, patience: Patience = Patience()
) -> tuple[str, ...]:
    """Make episodes of ended traces, and return the digests of the new ones. Raises
    StoreError.

    Several processes may do so at once. A trace without steps of an agent makes no
    episode.
    """
    now = time.time()
    digests: list[str] = []
    bounds = now - patience.settled, now - patience.ending
    for trace in await store.read(scope, episodes.ended_traces, *bounds):
        spans = await store.read(scope, episodes.spans, trace.id)
        built = await asyncio.to_thread(episodes_in, spans)
        made = (
            await asyncio.to_thread(to_stored_episode, built[0], trace.trust)
            if built
            else None
        )
        if await store.write(scope, episodes.finish_trace, trace, made) and made:
            digests.append(made.digest)
    return tuple(digests)

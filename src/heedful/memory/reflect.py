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
from itertools import chain, islice, pairwise
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
from heedful.store.connection import Db, resumable, storable
from heedful.store.episodes import Bounds
from heedful.store.quarantine import quarantined
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
# The states of lessons that may be recalled.
LIVE_LESSON_STATES = ("unverified", "verified")
# The metadata that a lesson takes over with the words of a stored one.
AUTHOR_FIELDS = ("by", "confidence", "rated", "mended", "source_event_ids")


@dataclass(frozen=True, slots=True)
class Reflected:
    """The result of reflecting on one episode.

    `lesson` says what happened, `strategy` what to do next time. `claims` are the
    sentences of the lesson with the events they cite. `dropped` are the sentences, and
    the strategy, of a model that the events do not support, each with the reason as
    `why`. `signals` are the signs of a mistake in the episode. `known` is how often the
    same failure was seen before; if it is above 0, no model was asked, and the lessons
    have the stored words unless the new ones are better. `error` says why a model's
    answer was not used. `stored` has the results of storing both lessons, now or
    before. `again` is true if this episode was reflected on before. `busy` is true if
    another process is reflecting on it, or was until a few seconds ago. `steps` are the
    steps of the run, for `Memory.before`; those that the lessons are about have 1 as
    their `lesson`.
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
        """The importance that the author claims, 0..1; by default the lesson's own."""
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
        """The command that releases what waits in quarantine; "" if nothing does."""
        return records.release_command([answer.entry for answer in self.stored])


def episode_of(
    loop: Loop | StoredLoop,
    task: str = "",
    verdict: Verdict | None = None,
    goal: str = "",
) -> Episode:
    """Return a finished loop as an episode: each attempt's response and findings.

    For a stored loop, `task` and `verdict` are by default its own task and last
    verdict. An error becomes an error_event with its message, its check as the code and
    its fix as the content; any other finding becomes a system_event. The outcome is
    success if the verdict passed (without a verdict: if the last evaluation passes),
    partial if the loop was cancelled or has not ended, else failure. Secrets are
    redacted.
    """
    if isinstance(loop, StoredLoop):
        verdict = verdict or (loop.verdicts[-1] if loop.decisions else None)
        if not task:
            task = loop.head.task
            if not isinstance(task, str):
                task = json.dumps(task, ensure_ascii=False)
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
            event = Event(
                "system_event",
                f"{message} {fix}".strip(),
                code=finding.check,
                id=f"{name}, finding {place}",
            )
            if finding.level == "error":
                event = replace(event, type="error_event", content=fix, error=message)
            events.append(event)
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
    """Return what an episode teaches, by rules or a `model`; None if it is empty.

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
    if memory is not None:
        memory = Memory.of(memory, None)
    work = _Reflector(
        memory=memory,
        model=model,
        prompts=prompts,
        score=score,
        on_model_error=on_model_error,
        related=related,
    )
    if not episode.events and episode.fault is None:
        return None
    if memory is None or not store:
        return await work.reflect(episode, episode.digest, trust)
    entry = await asyncio.to_thread(to_stored_episode, episode, trust)
    state = await memory.store.write(memory.scope, episodes.admit, entry)
    if state is None:
        return await work.write(memory, episode, episode.digest, trust)
    study = await work.study(episode, trust)
    reflection = await work.lessons(study, by_rules(study), episode.digest)
    answers = await _read_answers(memory, reflection)
    return replace(reflection, stored=answers, again=True, busy=state != "reflected")


async def reflect_waiting(
    memory: Memory | Store | str,
    *,
    before: float,
    digest: str = "",
    model: Model | None = None,
    prompts: Mapping[str, str] = OUTCOME_PROMPTS,
) -> Reflected | None:
    """Reflect on the oldest episode that waits or must be tried again, if any.

    Episodes that were tried since `before`, in seconds since 1970, are skipped, so a
    host can call this until it returns None. `digest` selects one episode. If the model
    fails, the error is raised and the episode waits. Raises ModelError, StoreError.
    """
    memory = Memory.of(memory, None)
    work = _Reflector(
        memory=memory,
        model=model,
        prompts=prompts,
        score=drafts.by_outcome,
        on_model_error="raise",
    )
    entry = await memory.store.write(memory.scope, episodes.take, before, digest)
    if entry is None:
        return None
    work = replace(work, keys=tuple(entry.via.split()))
    episode, trust = await asyncio.to_thread(from_stored_episode, entry)
    return await work.write(memory, episode, entry.digest, trust)


async def keep(
    reflection: Reflected, memory: Memory | Store | str
) -> tuple[Remembered, ...]:
    """Store a reflection made with `store=False`; an episode is stored once.

    If it was stored before, return the answers of its lessons, and count no sighting.
    Raises StoreError, QuotaExceeded.
    """
    memory = Memory.of(memory, None)
    meta = reflection.lesson.meta
    entry = StoredEpisode(
        digest=meta["episode"],
        name="",
        session=storable(meta["session_id"]),
        outcome=meta["outcome"],
        record={},
    )
    # Another call may be storing it: wait two seconds for its answers.
    for _ in range(40):
        state = await memory.store.write(memory.scope, episodes.admit, entry)
        if state is None:
            return await _write_lessons(memory, entry.digest, reflection)
        if state == "reflected":
            break
        await asyncio.sleep(0.05)
    return await _read_answers(memory, reflection)


async def _read_answers(
    memory: Memory, reflection: Reflected
) -> tuple[Remembered, ...]:
    """Return the answers that the lessons got when another call stored them."""
    both = [reflection.lesson, reflection.strategy]
    return await memory.store.read(memory.scope, lessons.remembered, both)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reflector:
    """The arguments of `reflect`, and the `keys` of a service that sent the episode."""

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
        require(
            isinstance(self.prompts, Mapping)
            and self.prompts.keys() <= OUTCOME_PROMPTS.keys(),
            "prompts",
            self.prompts,
            f"a mapping with {', '.join(OUTCOME_PROMPTS)}",
        )

    async def write(
        self, memory: Memory, episode: Episode, digest: str, trust: Trust
    ) -> Reflected:
        """Reflect on the episode and store the lessons; record a failure to try again.

        Meanwhile the lease on the episode is renewed, so that no other process works on
        it.
        """
        renewal = asyncio.create_task(_renew_claim(memory, digest))
        answers = None
        try:
            reflection = await self.reflect(episode, digest, trust)
            answers = await _write_lessons(memory, digest, reflection)
        finally:
            renewal.cancel()
            if answers is None:
                await _record_failure(memory, digest, sys.exception())
        return replace(reflection, stored=answers)

    async def reflect(self, episode: Episode, digest: str, trust: Trust) -> Reflected:
        """Let the model write the reflection; the rules, if the failure is known."""
        study = await self.study(episode, trust)
        sightings = 0
        if self.memory is not None:
            store = self.memory.store
            seen = await store.read(self.memory.scope, patterns.seen, study.signature)
            reflections = [row for row in seen.lessons if row["kind"] == "reflection"]
            sightings = sum(row["seen"] for row in reflections)
        draft = by_rules(study)
        usage = NO_USAGE
        error = ""
        if self.model is not None and not sightings:
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
        reflection = await self.lessons(study, draft, digest)
        return replace(reflection, usage=usage, known=sightings, error=error)

    async def study(self, episode: Episode, trust: Trust) -> Study:
        """Study the episode without the texts that heedful put into its prompts."""
        answered = {
            Example(event.content, after.content).digest: position
            for position, (event, after) in enumerate(pairwise(episode.events))
            if event.type == "user_message" and after.type == "llm_response"
        }
        if self.memory is not None and answered:
            store = self.memory.store
            scope = self.memory.scope
            ours = await store.read(scope, episodes.known_examples, answered)
            tasks = {answered[digest] for digest in ours}
            answers = {position + 1 for position in tasks}
            episode = remove_lessons(episode, frozenset(tasks | answers))
        stated = await self.memory.stated_trust() if self.memory is not None else {}
        return await asyncio.to_thread(Study.of, episode, trust, stated)

    async def lessons(self, study: Study, draft: Draft, digest: str) -> Reflected:
        """Return the lessons of a draft with their trust, importance and metadata."""
        importance = self.score(draft, study.episode)
        check_share("importance", importance)
        rows, entries, some_gone = await self._stored(study)
        task = redact(study.episode.task)[: records.MAX_EXAMPLE_TEXT_CHARS]
        example = Example(task, "") if task else None
        limits: list[Trust] = [study.task_trust] if task else []
        if some_gone:
            limits.append("external")

        def to_lesson(kind: str, text: str, trust: Trust, importance: float) -> Lesson:
            name = study.signature
            tags = draft.tags
            trust = lowest_trust((trust, *limits))
            if kind == "strategy":
                name = strategy_signature(name, text)
                tags = (*tags, kind)
            tags = tuple({tag.casefold(): tag for tag in reversed(tags)}.values())[::-1]
            text = text[: records.MAX_EXAMPLE_TEXT_CHARS]
            lesson = Lesson(
                kind,
                name,
                error_type=name.error_type,
                text=text,
                sighting=text,
                example=example,
                state=initial_state(trust),
                trust=trust,
                importance=importance,
                tags=tags,
                meta=self.meta(study, draft, digest, kind),
                source=f"episode:{digest[:16]}",
                sources=(*study.sources, *self.keys),
                parents=tuple(sorted(entry.id for entry in entries)),
            )
            is_fix = draft.strategy and draft.by == DRAFT_BY_RULES and not study.tool
            if kind == "strategy" and is_fix:
                # the fix of a check; if another one contradicts it, a person decides
                return lesson
            alike = [row for row in rows if row["kind"] == kind]
            return _with_stored_words(lesson, study, alike)

        text = draft.text(study.episode)
        reflection = to_lesson("reflection", text, draft.trust, importance)
        strategy = None
        rule = draft.strategy
        trust = draft.rule_trust
        for row in rows if not rule else ():
            if row["kind"] == "strategy":
                rule = row["text"]
                trust = lowest_trust((trust, row["trust"]))
        if rule:
            strategy = to_lesson("strategy", rule, trust, _stronger(importance))
        failed = set(chain.from_iterable(map(study.failed_steps, study.main_signals)))
        steps = await asyncio.to_thread(steps_of, study.course, failed)
        return Reflected(
            reflection,
            strategy,
            claims=draft.claims,
            dropped=draft.dropped,
            signals=study.signals,
            steps=steps,
        )

    async def _stored(
        self, study: Study
    ) -> tuple[Sequence[Mapping[str, Any]], Sequence[QuarantinedLesson], bool]:
        """Return the stored lessons about a failure, the examples that its loop was
        shown, and whether some of these are gone.
        """
        if self.memory is None:
            return (), (), False
        store = self.memory.store
        scope = self.memory.scope
        rows = await store.read(scope, lessons.of_failure, study.signature.digest)
        loop = study.episode.id if study.episode.source == LOOP_SOURCE else ""
        if not loop:
            return rows, (), False
        past = await store.read(scope, exposures.past, loop)
        exposed = (exposure.examples for exposure in past.exposures if exposure.shown)
        ids = set(chain.from_iterable(exposed))
        entries: Sequence[QuarantinedLesson] = ()
        if ids:
            entries = await store.read(scope, quarantined, list(ids))
        return rows, entries, len(entries) != len(ids)

    def meta(
        self, study: Study, draft: Draft, digest: str, kind: str
    ) -> Mapping[str, Any]:
        """Return the metadata of a lesson."""
        episode = study.episode
        cited = sorted(set(chain.from_iterable(claim.events for claim in draft.claims)))
        rated = draft.rated
        if kind == "strategy" and rated:
            rated = _stronger(rated)
        return {
            "by": draft.by,
            "layer": "rm",
            "confidence": draft.confidence,
            "rated": rated,
            "mended": kind == "strategy" and draft.mended,
            "outcome": episode.outcome,
            "task_description": redact(episode.task)[: records.MAX_EXAMPLE_TEXT_CHARS],
            "event_count": len(episode.events) + episode.omitted,
            "session_id": episode.session,
            "error_category": study.category,
            "source_event_ids": [episode.events[n].id or str(n) for n in cited],
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
    state = ""
    for position, event in enumerate(run.events):
        result = run.result[position]
        if event.type != "tool_call" or not event.tool or not result:
            continue
        step_action = action(event.tool, given_to(event))
        if errors is None:
            text = run.failure[position] or run.failure[result]
            error = text and error_line(text)
        else:
            error = errors.get(position, "")
        steps.append(
            Step(
                step_action,
                error,
                lesson=int(position in failed),
                state=state,
                at=run.events[result].at or 0,
            )
        )
        call = clean(f"{event.tool}: {step_action.text}", MAX_PREVIOUS_STEP_CHARS)
        state = f"after {call}"
    return tuple(steps)


def _with_stored_words(
    lesson: Lesson, study: Study, rows: Sequence[Mapping[str, Any]]
) -> Lesson:
    """Return a lesson in the best of the stored words, unless its own are better."""
    best = min(rows, key=_words_rank, default=None)
    if best is None:
        return lesson
    fixes = lesson.meta.get("mended") and not any(
        row["meta"].get("mended") for row in rows
    )
    own_rank = _words_rank({"trust": lesson.trust, "meta": lesson.meta})
    if fixes or own_rank < _words_rank(best):
        return lesson
    name = study.signature
    if lesson.kind != "reflection":
        name = strategy_signature(name, best["text"])
    author = {key: best["meta"][key] for key in AUTHOR_FIELDS if key in best["meta"]}
    return replace(
        lesson,
        signature=name,
        text=best["text"],
        importance=best["importance"],
        tags=tuple(best["tags"]),
        meta={**lesson.meta, **author},
    )


def _words_rank(lesson: Mapping[str, Any]) -> tuple[int, bool]:
    """Return the order of words: by trust, then those that say what worked first."""
    trust = records.TRUST_ORDER.index(lesson["trust"])
    return trust, not lesson["meta"].get("mended")


@resumable(result=list[Remembered])
def _record(
    db: Db,
    scope: Scope,
    digest: str,
    steps: Sequence[Step],
    new_lessons: Sequence[Lesson],
    **limits: Any,
) -> list[Remembered]:
    """Write an episode's lessons; a strategy supersedes older ones worth less."""
    answers = episodes.record_lessons(db, scope, digest, new_lessons, **limits)
    steps = [replace(step, lesson=step.lesson and answers[0].id) for step in steps]
    episodes.record_steps(db, scope, new_lessons[0].source, steps)
    for answer, lesson in zip(answers, new_lessons, strict=True):
        if lesson.kind == "strategy":
            _supersede_older(db, scope, answer.id, new_lessons[0].signature.digest)
    return answers


def _supersede_older(db: Db, scope: Scope, id: int, failure: str) -> None:
    """Let a strategy supersede those of the same failure whose words are worth less."""
    live = {
        row["id"]: row
        for row in lessons.of_failure(db, scope, failure)
        if row["kind"] == "strategy" and row["state"] in LIVE_LESSON_STATES
    }
    if id not in live:
        return
    rank = _words_rank(live[id])
    older = tuple(n for n, row in live.items() if rank < _words_rank(row))
    if not older:
        return
    change = Proposal("reword", older, survivor=id, why="the new rule says what worked")
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
    dreams.supersede(
        db,
        scope,
        report={"mode": "lite", "before": lessons.count(db, scope)},
        proposals=[change],
        expected=expected,
        by="heedful",
    )


async def _write_lessons(
    memory: Memory, digest: str, reflection: Reflected
) -> tuple[Remembered, ...]:
    both = (reflection.lesson, reflection.strategy)
    new_lessons = [lesson for lesson in both if lesson is not None]
    answers = await write_lessons(
        memory, new_lessons, _record, digest, reflection.steps
    )
    fields = {"id": answers[0].id, "importance": reflection.lesson.importance}
    _log.info("reflection_stored", extra=fields)
    return tuple(answers)


def to_stored_episode(episode: Episode, trust: Trust) -> StoredEpisode:
    """Return an episode as stored: without secrets, a long one without its middle.

    Takes a second if the episode is long.
    """
    digest = episode.digest
    events = episode.events
    if len(events) > MAX_STORED_EVENTS:
        half = MAX_STORED_EVENTS // 2
        episode = replace(
            episode,
            events=(*events[:half], *events[-half:]),
            omitted=episode.omitted + len(events) - MAX_STORED_EVENTS,
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
    """Record and log an error; if work was only interrupted, release the episode."""
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
    """How long to wait for the rest of a trace: seconds since its last span, above 0.

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
    """Store the spans of an export request; return how many were refused, by reason.

    `body` is OTLP, as protobuf bytes or as JSON data. Raises InvalidInput, StoreError.
    """
    received, refused = await asyncio.to_thread(_read_pieces, body)
    dropped = await store.write(
        scope, episodes.put_spans, received, trust=trust, bounds=bounds
    )
    refused.update(dropped)
    return refused


def _read_pieces(body: Any) -> tuple[list[Piece], Counter[str]]:
    """Return the spans of a request, and how many were refused, by reason."""
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
    """Make episodes of ended traces; return the new ones' digests. Raises StoreError.

    Several processes may do so at once. A trace without steps of an agent makes no
    episode.
    """
    now = time.time()
    digests: list[str] = []
    settled = now - patience.settled
    ending = now - patience.ending
    for trace in await store.read(scope, episodes.ended_traces, settled, ending):
        spans = await store.read(scope, episodes.spans, trace.id)
        built = await asyncio.to_thread(episodes_in, spans)
        entry = None
        if built:
            entry = await asyncio.to_thread(to_stored_episode, built[0], trace.trust)
        is_new = await store.write(scope, episodes.finish_trace, trace, entry)
        if entry and is_new:
            digests.append(entry.digest)
    return tuple(digests)

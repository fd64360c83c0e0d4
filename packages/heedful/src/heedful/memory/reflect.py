"""Reflections: what a finished episode teaches, stored as lessons.

A program studies the episode, and rules or a model draft a reflection and a strategy.
Only a mistake is a lesson: a run in which nothing failed and nobody corrected anything
teaches nothing by rules. Three like runs that succeeded by the same tools in the same
order are a procedure, which is a strategy.

Each episode is reflected on once: `reflect` does it at once, and `reflect_waiting` for
an episode that waits in the store. `memory/run_records.py` writes the lessons; a lesson
has the lowest origin of its sources.
"""

import asyncio
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from itertools import pairwise
from typing import Literal

from heedful.episodes.episode import Episode, Limits, without_secrets
from heedful.episodes.procedures import (
    MIN_PROCEDURE_TOOLS,
    Procedure,
    tools_in_order,
)
from heedful.episodes.readers.heedful import write
from heedful.episodes.reading import read
from heedful.episodes.signals import Signal
from heedful.errors import (
    AnswerRefused,
    MalformedAnswer,
    ModelError,
    StoreError,
)
from heedful.lessons import render
from heedful.lessons.call_marks import (
    Step,
)
from heedful.lessons.commands import release_command, trust_command
from heedful.lessons.lesson import (
    Example,
    Lesson,
    LessonRun,
    Remembered,
    claimed_importance,
)
from heedful.lessons.mistake import from_json, merged, without_outside
from heedful.lessons.origin import (
    Origin,
    is_outside,
    names_to_state,
    read_origin,
)
from heedful.lessons.scope import MIN_SAME_RUNS, State
from heedful.loop.record import NO_USAGE, Usage
from heedful.memory.call_memory import log_failure
from heedful.memory.citations import Claim
from heedful.memory.draft import (
    DRAFT_BY_RULES,
    OUTCOME_PROMPTS,
    Draft,
    Score,
    by_model,
    by_outcome,
    by_rules,
)
from heedful.memory.memory import (
    Memory,
    open_memory,
    write_lessons,
)
from heedful.memory.quarantine import release_stated
from heedful.memory.run_records import LessonWriter, steps_of, strategy_importance
from heedful.memory.study import Study, remove_lessons
from heedful.models.contract import Model
from heedful.redact import redact
from heedful.store import (
    episode_lessons,
    episodes,
    lessons,
    patterns,
    rule_changes,
)
from heedful.store.connection import storable
from heedful.store.episodes import StoredEpisode
from heedful.store.store import Store
from heedful.validation import (
    MAX_STORED_TEXT_CHARS,
    Fields,
    check_sequence,
    check_share,
    require,
)

_log = logging.getLogger("heedful")
# How many events of an episode that waits are stored: the first and the last ones.
MAX_STORED_EVENTS = 2_000
# The event of a failure in the log.
REFLECTION_FAILURE_EVENT = "reflection_generation_failed"


@dataclass(frozen=True, slots=True)
class Reflected:
    """The result of reflecting on one episode.

    `lesson` says what happened, None for a run without a mistake, and `strategy` what
    to do next time. `others` are lessons about the other mistakes of the run. `claims`
    are the parts of the text with the events that show them. `dropped` are the
    sentences of a model that are not used, each with the reason as `why`. `signals` are
    the signs of a mistake in the episode. `known` is how often the same failure was
    seen before; if it is above 0, no model was asked. `error` says why a model's answer
    was not used. `stored` has the results of storing the `lessons`, now or before.
    `again` is true if this episode was reflected on before. `busy` is true if another
    process is reflecting on it, or was until a few seconds ago. `steps` are the steps
    of the run, for `Memory.before`; those that the lessons are about have 1 as their
    `lesson`. `source` names the run in memory, and `procedure` is the order of its
    tools. `untrusted` are the names of the sources that the lessons wait for. `origin`
    is that of the run, and `run` is the run as its lessons have it.
    """

    lesson: Lesson | None
    strategy: Lesson | None
    _: KW_ONLY
    claims: tuple[Claim, ...] = ()
    dropped: tuple[Claim, ...] = ()
    signals: tuple[Signal, ...] = ()
    others: tuple[Lesson, ...] = ()
    usage: Usage = NO_USAGE
    known: int = 0
    error: str = ""
    stored: tuple[Remembered, ...] = ()
    again: bool = False
    busy: bool = False
    steps: tuple[Step, ...] = ()
    source: str = ""
    procedure: Procedure = Procedure()
    untrusted: tuple[str, ...] = ()
    rules: tuple[Lesson, ...] = ()
    origin: Origin = "user"
    run: LessonRun | None = field(default=None, repr=False)

    @property
    def lessons(self) -> tuple[Lesson, ...]:
        """All lessons: the reflection, the strategy, and the others."""
        lessons = (self.lesson, self.strategy, *self.others)
        return tuple(lesson for lesson in lessons if lesson is not None)

    @property
    def text(self) -> str:
        """The text of the reflection, "" for a run without a mistake."""
        return self.lesson.text if self.lesson else ""

    @property
    def _head(self) -> Lesson | None:
        """The first lesson, None if there is none."""
        return next(iter(self.lessons), None)

    @property
    def _answer(self) -> Lesson | Remembered | None:
        """The first lesson, as stored if it is stored."""
        answers: Sequence[Lesson | Remembered] = self.stored or self.lessons
        return next(iter(answers), None)

    @property
    def by(self) -> str:
        """The author of the reflection: "rules", or the name of a model."""
        run = self._head.run if self._head else None
        return run.by if run else DRAFT_BY_RULES

    @property
    def importance(self) -> float:
        """The importance that the author claims, 0..1; by default the lesson's own."""
        return claimed_importance(self._head) if self._head else 0.0

    @property
    def confidence(self) -> float:
        """How sure the author is, 0..1."""
        run = self._head.run if self._head else None
        return run.confidence if run else 0.0

    @property
    def state(self) -> State:
        """The state of the first lesson, as stored if it is stored."""
        return self._answer.state if self._answer else "unverified"

    @property
    def trust(self) -> Origin:
        """The origin of the first lesson, as stored if it is stored."""
        return self._answer.trust if self._answer else "local"

    @property
    def release(self) -> str:
        """The command that releases what waits in quarantine; "" if nothing does."""
        return release_command([answer.entry for answer in self.stored])

    @property
    def hint(self) -> str:
        """The command that states the sources for which the lessons wait.

        It is "" if nothing waits in quarantine, or if only a release helps.
        """
        states = {answer.state for answer in self.stored or self.lessons}
        return trust_command(self.untrusted) if "quarantined" in states else ""


async def reflect(
    episode: Episode,
    *,
    memory: Memory | Store | str | None = None,
    model: Model | None = None,
    prompts: Mapping[str, str] = OUTCOME_PROMPTS,
    score: Score = by_outcome,
    on_model_error: Literal["keep", "raise"] = "keep",
    store: bool = True,
    origin: Origin | None = None,
    related: Sequence[str] = (),
    keys: Sequence[str] = (),
    of_quiet_runs: bool = False,
    quotes_memory: bool = True,
) -> Reflected | None:
    """Return what an episode teaches, by rules or a `model`; None if it is empty.

    If memory has seen the failure before, it counts one more sighting, no model is
    asked, and the result has the stored words, importance and tags; those of the rules
    without `quotes_memory`, for callers who may not read the memory. Each episode is
    reflected on once, even if several processes pass it in several times. The rules
    write the reflection, and `error` says why, if the model fails or its answer is
    refused. A run without a mistake has no lesson, unless a model writes one;
    `of_quiet_runs` is for callers who store a reflection of every run, which no prompt
    is shown. With `on_model_error="raise"` the error of a model that fails is raised,
    and the episode is tried again later. `prompts` are instructions for the model about
    a "failure" (also an error or a timeout), a "success", or a "partial" result;
    heedful adds the data and the format of the answer. `score` returns the importance,
    0..1. With `store=False` nothing is written. `origin` is that of who hands in the
    run, by default that of the memory, else "user": of a run from "outside", all
    lessons wait. It is his own whatever its tools are called; what an event with the
    origin "outside" says is left out of the words of the rules. `related` are ids that
    are stored with the lesson. `keys` are the sources of the keys of a service that
    sent the episode, such as "key:3f". Raises InvalidInput, ModelError, StoreError.
    """
    require(isinstance(episode, Episode), "episode", episode, "an Episode")
    require(
        on_model_error in ("keep", "raise"),
        "on_model_error",
        on_model_error,
        "keep or raise",
    )
    check_sequence("related", related, str, "ids, each a text")
    check_sequence("keys", keys, str, "sources, each a text")

    if memory is not None:
        memory = open_memory(memory)
    own_origin = memory.origin if memory is not None else "user"
    author = read_origin(origin or own_origin)
    reflector = _Reflector(
        memory=memory,
        model=model,
        prompts=prompts,
        score=score,
        on_model_error=on_model_error,
        related=related,
        keys=tuple(keys),
        of_quiet_runs=of_quiet_runs,
        quotes_memory=quotes_memory,
    )

    if not episode.events and episode.fault is None:
        return None
    episode = await asyncio.to_thread(without_secrets, episode)
    if memory is None or not store:
        return await reflector.reflect(episode, episode.digest, author)

    entry = await asyncio.to_thread(to_stored_episode, episode, author)
    state = await memory.store.write(memory.scope, episodes.admit, entry)
    if state is None:
        return await reflector.write(memory, episode, episode.digest, author)

    # The episode is in the store, so its lessons are, or will soon be.
    study = await reflector.study(episode, author)
    draft = await asyncio.to_thread(by_rules, study)
    known_lessons = await reflector.known_lessons(study)
    reflection = await reflector.lessons(study, draft, episode.digest, known_lessons)
    answers = await _read_answers(memory, reflection)
    waiting = [answer.entry for answer in answers if answer.entry]
    if waiting:
        # Sources may be stated that nobody stated before.
        await memory.store.write(memory.scope, release_stated, waiting, memory.stated)
        answers = await _read_answers(memory, reflection)
    return replace(reflection, stored=answers, again=True, busy=state != "reflected")


async def reflect_waiting(
    memory: Memory | Store | str,
    *,
    before: float,
    digest: str = "",
    model: Model | None = None,
) -> Reflected | None:
    """Reflect on the oldest stored episode that waits or failed; None if there is none.

    Episodes that were tried since `before`, in seconds since 1970, are skipped, so a
    host can call this until it returns None. `digest` selects one episode. Without a
    `model`, rules write the reflection. If the model fails, the error is raised and the
    episode waits; if its answer is refused, the rules write the reflection. Raises
    ModelError, StoreError.
    """
    memory = open_memory(memory)
    reflector = _Reflector(
        memory=memory,
        model=model,
        prompts=OUTCOME_PROMPTS,
        score=by_outcome,
        on_model_error="raise",
        refusal=MalformedAnswer,
    )
    entry = await memory.store.write(memory.scope, episodes.take, before, digest)
    if entry is None:
        return None

    reflector = replace(reflector, keys=tuple(entry.via.split()))
    episode, trust = await asyncio.to_thread(from_stored_episode, entry)
    return await reflector.write(memory, episode, entry.digest, trust)


async def keep(
    reflection: Reflected, memory: Memory | Store | str
) -> tuple[Remembered, ...]:
    """Store the lessons of a reflection that was made with `store=False`.

    Returns what became of each lesson. The lessons of an episode are stored once: if
    they were stored before, nothing is counted, and what is stored of them is returned.
    Raises StoreError, QuotaExceeded.
    """
    memory = open_memory(memory)
    # The run as the lessons have it comes first: a caller may have changed it there.
    run = next((lesson.run for lesson in reflection.lessons), reflection.run)
    if run is None:
        return ()
    entry = StoredEpisode(
        digest=run.episode,
        name="",
        session=storable(run.session),
        outcome=run.outcome,
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
    return await memory.store.read(memory.scope, lessons.remembered, reflection.lessons)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reflector:
    """The arguments of `reflect`, and the `keys` of a service that sent the episode.

    With `on_model_error="raise"` an episode is tried again if the model fails, but not
    after a `refusal` of its answer: the same model would answer the same.
    """

    memory: Memory | None
    model: Model | None
    prompts: Mapping[str, str]
    score: Score
    on_model_error: str
    related: Sequence[str] = ()
    keys: tuple[str, ...] = ()
    refusal: type[ModelError] = AnswerRefused
    of_quiet_runs: bool = False
    quotes_memory: bool = True

    def __post_init__(self) -> None:
        require(
            isinstance(self.model, Model | None),
            "model",
            self.model,
            "a Model, as open_model gives one, or None",
        )
        require(
            isinstance(self.prompts, Mapping)
            and self.prompts.keys() <= OUTCOME_PROMPTS.keys(),
            "prompts",
            self.prompts,
            f"a mapping with {', '.join(OUTCOME_PROMPTS)}",
        )

    async def write(
        self, memory: Memory, episode: Episode, digest: str, trust: Origin
    ) -> Reflected:
        """Reflect on an episode that this process has claimed, and store its lessons.

        `digest` names the episode in the store, and `trust` is its origin. Meanwhile
        the lease on the episode is renewed, so that no other process works on it. A
        failure is recorded, so that the episode is tried again, and raised.
        """
        renewal = asyncio.create_task(_renew_claim(memory, digest))
        answers = None
        try:
            reflection = await self.reflect(episode, digest, trust)
            answers = await _write_lessons(memory, digest, reflection)
        finally:
            renewal.cancel()
            # Not only errors: the task may also have been cancelled.
            if answers is None:
                await _record_failure(memory, digest, sys.exception())
        return replace(reflection, stored=answers)

    async def reflect(self, episode: Episode, digest: str, trust: Origin) -> Reflected:
        """Return what an episode teaches, without storing anything.

        `digest` names the episode, and `trust` is its origin. A model writes the
        reflection. Rules do if there is no model, or if it fails. They also do if
        memory has seen the failure before, unless the rule that it has stored has not
        helped: then the model is asked for a better one.
        """
        scope = self.memory.scope if self.memory is not None else None
        run_fields = {
            **(asdict(scope) if scope else {}),
            "outcome": episode.outcome,
            "events": len(episode.events),
            # The name of earlier systems.
            "event_count": len(episode.events),
        }
        _log.info("reflection_generation_started", extra=run_fields)
        study = await self.study(episode, trust)
        # How often memory has reflected on this failure.
        sightings = 0
        if self.memory is not None and scope is not None:
            past = await self.memory.store.read(scope, patterns.seen, study.signature)
            reflections = [row for row in past.lessons if row["kind"] == "reflection"]
            sightings = sum(row["seen"] for row in reflections)

        known_lessons = await self.known_lessons(study)
        tried_rule = _tried_rule(known_lessons.get("strategy"), sightings)
        draft = await asyncio.to_thread(by_rules, study)
        usage = NO_USAGE
        error = ""
        if self.model is not None and (sightings == 0 or tried_rule):
            try:
                prompts = {**OUTCOME_PROMPTS, **self.prompts}
                instruction = prompts.get(episode.outcome, prompts["failure"])
                draft, usage = await by_model(
                    study, self.model, instruction, draft, tried=tried_rule
                )
            except ModelError as failed:
                is_refused = isinstance(failed, self.refusal)
                if self.on_model_error == "raise" and not is_refused:
                    raise
                log_failure(REFLECTION_FAILURE_EVENT, failed, scope)
                usage = failed.usage or usage
                error = f"{type(failed).__name__}: {failed}"

        reflection = await self.lessons(study, draft, digest, known_lessons)
        lesson = reflection.lesson
        if error and lesson and lesson.run:
            lesson = replace(lesson, run=replace(lesson.run, model_error=error))
        _log.info(
            "reflection_generated",
            extra={
                **run_fields,
                "by": reflection.by,
                "reflection_id": study.signature.digest,
                "importance": reflection.importance,
                "confidence": reflection.confidence,
                "has_strategy": reflection.strategy is not None,
            },
        )
        return replace(
            reflection, lesson=lesson, usage=usage, known=sightings, error=error
        )

    async def study(self, episode: Episode, trust: Origin) -> Study:
        """Find the mistakes of an episode, in which heedful's own words do not count.

        These are the lessons and examples that heedful put into the prompts of the run.
        `trust` is the origin of the episode; it is "outside" if a key that sent the
        episode is not believed.
        """
        if self.memory is None:
            return await asyncio.to_thread(Study.of, episode, trust)

        # Where a prompt may have an example: a task and, right after it, its answer.
        task_at = {
            Example(event.content, after.content).digest: position
            for position, (event, after) in enumerate(pairwise(episode.events))
            if event.type == "user_message" and after.type == "llm_response"
        }
        if task_at:
            own_digests = await self.memory.store.read(
                self.memory.scope, episodes.known_examples, task_at
            )
            tasks = {task_at[digest] for digest in own_digests}
            answers = {position + 1 for position in tasks}
            episode = remove_lessons(episode, frozenset(tasks | answers))

        # The sources that people declared as their own.
        stated = await self.memory.quarantine.believed()
        if any(is_outside(key, stated) for key in self.keys):
            trust = "outside"
        strict = self.memory.strict or await self.memory.quarantine.has_strict(
            self.keys
        )
        return await asyncio.to_thread(Study.of, episode, trust, stated, strict)

    async def lessons(
        self,
        study: Study,
        draft: Draft,
        digest: str,
        known_lessons: Mapping[str, Fields],
    ) -> Reflected:
        """Make the lessons of a drafted reflection, with their origin and importance.

        These are the reflection (what happened), a strategy (what to do next time), and
        a lesson for each other mistake of the run. `digest` names the episode.
        `known_lessons` are those that memory has about the failure, by their kinds:
        where the draft is by rules, their words are used again.
        """
        importance = self.score(draft, study.episode)
        check_share("importance", importance)
        if self.score is not by_outcome:
            # The caller's own score counts, whatever the model claims.
            draft = replace(draft, rated=None)

        task = study.asked[:MAX_STORED_TEXT_CHARS]
        writer = LessonWriter(
            study=study,
            draft=draft,
            digest=digest,
            task=task,
            keys=self.keys,
            related=self.related,
        )
        lesson = None
        if draft.claims or self.of_quiet_runs:
            lesson = writer.write(
                "reflection", draft.text(study.episode), draft.trust, importance
            )
        strategy = None
        raised_importance = strategy_importance(importance)
        rule = draft.strategy
        if lesson is not None and not rule and "strategy" in known_lessons:
            # Without a rule of its own, it is one more sighting for the stored one.
            rule = known_lessons["strategy"]["text"]
        if rule:
            strategy = writer.write(
                "strategy", rule, draft.rule_trust, raised_importance
            )
        if draft.by == DRAFT_BY_RULES:
            lesson = _with_known_words(lesson, known_lessons)
            strategy = _with_known_words(strategy, known_lessons)
        # Like runs that succeeded in the same way are a strategy, too.
        procedure, shared = await self._procedure(study, digest)
        if shared and strategy is None and not procedure.has_failed:
            strategy = writer.write_procedure(procedure, shared, raised_importance)
        others = tuple(
            writer.write_other(finding, importance)
            for finding in study.mistakes
            if finding != study.main
        )

        steps = await asyncio.to_thread(
            steps_of, study.course, study.errors, study.digests, stated=study.stated
        )
        sources = writer.sources if lesson or strategy else ()
        return Reflected(
            lesson,
            strategy,
            claims=draft.claims,
            dropped=draft.dropped,
            signals=study.signals,
            others=others,
            steps=steps,
            source=writer.source,
            procedure=procedure,
            untrusted=names_to_state(sources, study.stated),
            rules=writer.write_rules(),
            origin=study.origin,
            run=writer.run,
        )

    async def known_lessons(self, study: Study) -> Mapping[str, Fields]:
        """Return what memory has about the failure of a run: lessons, by their kinds.

        Lessons that wait for a review are left out: repeated by this run, their words
        would be believed as its own. A run from outside gets none: a person who refuses
        its words would refuse the stored ones with them.
        """
        if self.memory is None or study.origin == "outside" or not self.quotes_memory:
            return {}
        scope = self.memory.scope
        digest = study.signature.digest
        rows = await self.memory.store.read(scope, lessons.of_failure, digest)
        return {
            row["kind"]: row
            for row in reversed(rows)
            if row["state"] != "quarantined" and not row["unreviewed"]
        }

    async def _procedure(
        self, study: Study, digest: str
    ) -> tuple[Procedure, tuple[str, ...]]:
        """Return the procedure of a run, which is the order in which it used its tools.

        Also returns the words that its task shares with the tasks of other runs that
        succeeded by this procedure; none without enough such runs. Both are empty
        unless the run succeeded or failed, and used two tools or more. `digest` names
        the episode.
        """
        episode = study.episode
        tools = tools_in_order(study.course)
        is_over = episode.outcome in ("success", "failure")
        if self.memory is None or len(tools) < MIN_PROCEDURE_TOOLS or not is_over:
            return Procedure(), ()
        procedure = Procedure(tools=tools, task=episode.task)
        runs = await self.memory.store.read(
            self.memory.scope, episodes.tasks_done, digest
        )
        shared = procedure.shared_words(episode.task, runs)
        if episode.outcome == "failure":
            procedure = replace(procedure, has_failed=shared != (), task="")
        return procedure, shared


def _tried_rule(rule: Fields | None, sightings: int) -> str:
    """Return the text of a stored rule that has not helped; "" if it should stay.

    Its failure has come back in this many `sightings`. A model is asked for another
    rule at 2, 4, 8 and so on, so that a failure that nothing helps costs few questions.
    A rule in the words of a person stays.
    """
    # A power of two has one bit.
    is_turn = sightings >= MIN_SAME_RUNS and sightings.bit_count() == 1
    if rule is None or not is_turn or rule["trust"] == "user":
        return ""
    return str(rule["text"])


def _with_known_words(
    lesson: Lesson | None, known_lessons: Mapping[str, Fields]
) -> Lesson | None:
    """Return a lesson with the words of the stored lesson that it repeats, if any.

    It also gets the importance, the tags and the author of the stored one, which has
    the same kind and signature. The record of what went wrong stays that of its own
    run. `known_lessons` are stored lessons, by their kinds.
    """
    known_lesson = known_lessons.get(lesson.kind) if lesson else None
    if lesson is None or known_lesson is None:
        return lesson
    if known_lesson["signature"] != lesson.signature.digest:
        return lesson

    text = known_lesson["text"]
    stored_mistake = from_json(known_lesson["mistake"])
    if lesson.mistake is not None and stored_mistake is not None:
        mistake = without_outside(merged(lesson.mistake, stored_mistake))
        text = mistake.words or redact(render.text_of(lesson.kind, mistake))
    run = lesson.run
    author = known_lesson["run"]
    if run is not None and author is not None:
        run = replace(
            run, by=author.by, confidence=author.confidence, rated=author.rated
        )
    return replace(
        lesson,
        text=text,
        importance=known_lesson["importance"],
        tags=tuple(known_lesson["tags"]),
        run=run,
    )


def _with_seen_fix(lesson: Lesson) -> Lesson:
    """Return a lesson whose text also has the fix that was seen in the run.

    Only the words of a model can lack it; other lessons are returned as they are.
    """
    mistake = lesson.mistake
    # A lesson from outside waits for a review: its text is made when it is stored.
    if mistake is None or not mistake.words or lesson.trust == "outside":
        return lesson
    text = redact(render.text_of(lesson.kind, mistake))
    return replace(lesson, text=text[:MAX_STORED_TEXT_CHARS])


async def _write_lessons(
    memory: Memory, digest: str, reflection: Reflected
) -> tuple[Remembered, ...]:
    """Store the lessons of a reflection on an episode, and the steps of its run.

    `digest` names the episode. Returns what became of each lesson.
    """
    if reflection.rules:
        # The rules of the user come first: the lessons mark the episode as done, so if
        # this process ends between both, the episode is tried again.
        stated = await memory.quarantine.believed()
        await write_lessons(memory, reflection.rules, rule_changes.state, stated=stated)
    answers = await write_lessons(
        memory,
        [_with_seen_fix(lesson) for lesson in reflection.lessons],
        episode_lessons.record_lessons,
        digest,
        source=reflection.source,
        steps=reflection.steps,
        procedure=reflection.procedure,
        is_trusted=reflection.origin != "outside",
    )
    if answers:
        _log.info(
            "reflection_stored",
            extra={
                **asdict(memory.scope),
                "id": answers[0].id,
                "reflection_id": reflection.lessons[0].signature.digest,
                "importance": reflection.importance,
                "confidence": reflection.confidence,
            },
        )
    return tuple(answers)


def to_stored_episode(episode: Episode, trust: Origin) -> StoredEpisode:
    """Return an episode in the form in which it is stored, with its origin `trust`.

    Its secrets were removed before. Of a long one, only the first and the last events
    are stored. That takes a second if the episode is long.
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
        record=record,
    )


def from_stored_episode(entry: StoredEpisode) -> tuple[Episode, Origin]:
    """Return a stored episode and its origin."""
    record = entry.record
    line = json.dumps(record["episode"]).encode("ascii")
    (episode,) = read(line, Limits(events=MAX_STORED_EVENTS, bytes=len(line)))
    return replace(episode, source=record["source"]), read_origin(record["trust"])


async def _renew_claim(memory: Memory, digest: str) -> None:
    """Renew the lease on an episode three times in its duration, until cancelled."""
    while True:
        await asyncio.sleep(episodes.EPISODE_LEASE_SECONDS / 3)
        with suppress(StoreError):  # the next one may get through
            await memory.store.write(memory.scope, episodes.beat, digest)


async def _record_failure(
    memory: Memory, digest: str, error: BaseException | None
) -> None:
    """Record why reflecting on an episode failed, and log it.

    If it was only interrupted, for example cancelled, no reason is recorded, and the
    episode is free for others. `digest` names the episode.
    """
    words = ""
    if isinstance(error, Exception):
        words = f"{type(error).__name__}: {error}"
        log_failure(REFLECTION_FAILURE_EVENT, error, memory.scope)
    with suppress(StoreError):  # the first error is raised
        await memory.store.write(memory.scope, episodes.record_failure, digest, words)

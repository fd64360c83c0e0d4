"""Reflections: what a finished episode teaches, stored as lessons.

A program studies the episode, and rules or a model draft a reflection and a strategy.
Only a mistake is a lesson: a run in which nothing failed and nobody corrected anything
teaches nothing by rules. Three like runs that succeeded by the same tools in the same
order are a procedure, which is a strategy.

Each episode is reflected on once: `reflect` does it at once, and `reflect_waiting` for
an episode that waits in the store. A lesson has the lowest origin of its sources.
"""

import asyncio
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from itertools import chain, pairwise
from typing import Any, Literal

from heedful.episodes.comparison import likeness
from heedful.episodes.course import Course, given_to
from heedful.episodes.episode import Episode, Limits
from heedful.episodes.procedures import (
    MIN_PROCEDURE_TOOLS,
    Procedure,
    tools_in_order,
)
from heedful.episodes.readers.heedful import write
from heedful.episodes.reading import read
from heedful.episodes.run_mistakes import FoundMistake
from heedful.episodes.signals import Signal
from heedful.errors import (
    AnswerRefused,
    InvalidInput,
    MalformedAnswer,
    ModelError,
    StoreError,
)
from heedful.lessons import render
from heedful.lessons.action import arguments_of, command_of, path_of, relative_path
from heedful.lessons.call_marks import (
    FORGETTING_CODES,
    Step,
    call_origin,
    contract_marks,
    failed_marks,
    has_unread,
    marks_of,
    touched_path,
)
from heedful.lessons.commands import release_command, trust_command
from heedful.lessons.contracts import find_contract
from heedful.lessons.lesson import Example, Lesson, Remembered, Signature
from heedful.lessons.mistake import Mistake, with_origin, with_words
from heedful.lessons.origin import (
    Origin,
    is_outside,
    lowest_origin,
    names_to_state,
    read_origin,
)
from heedful.lessons.quarantine import initial_state
from heedful.lessons.ranking import claimed_importance
from heedful.lessons.scope import MAX_READ_CHARS, State, short_digest, source_of
from heedful.lessons.signature import signature, strategy_signature
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
from heedful.memory.study import Study, remove_lessons
from heedful.memory.user_rules import USER_SOURCE, correction_lessons
from heedful.models.contract import Model
from heedful.redact import redact, redact_data, redact_start
from heedful.store import (
    episode_lessons,
    episodes,
    lessons,
    patterns,
    user_rules,
)
from heedful.store.connection import storable
from heedful.store.episodes import StoredEpisode
from heedful.store.store import Store
from heedful.validation import (
    MAX_STORED_TEXT_CHARS,
    check_sequence,
    check_share,
    require,
)

_log = logging.getLogger("heedful")
# How many events of an episode that waits are stored: the first and the last ones.
MAX_STORED_EVENTS = 2_000
# A strategy, which can be followed, is more important than its reflection.
STRATEGY_IMPORTANCE_FACTOR = 1.1
# What a failure costs: of so many next calls, the first like it that passes ends it.
MAX_NEXT_CALLS = 20
MAX_LOST_CALLS = 5
# The importance of a failure that edits put right, or that nothing did: it may be part
# of the work, until it comes back in another run.
WORK_FAILURE_IMPORTANCE = 0.5
# The events in the log.
REFLECTION_STARTED_EVENT = "reflection_generation_started"
REFLECTION_GENERATED_EVENT = "reflection_generated"
REFLECTION_FAILURE_EVENT = "reflection_generation_failed"


@dataclass(frozen=True, slots=True)
class Reflected:
    """The result of reflecting on one episode.

    `lesson` says what happened, None for a run without a mistake, and `strategy` what
    to do next time. `others` are lessons about the other mistakes of the run. `claims`
    are the parts of the text with the events that show them. `dropped` are the
    sentences, and the strategy, of a model that are not used, each with the reason as
    `why`. `signals` are the signs of a mistake in the episode. `known` is how often the
    same failure was seen before; if it is above 0, no model was asked. `error` says why
    a model's answer was not used. `stored` has the results of storing the `lessons`,
    now or before. `again` is true if this episode was reflected on before. `busy` is
    true if another process is reflecting on it, or was until a few seconds ago. `steps`
    are the steps of the run, for `Memory.before`; those that the lessons are about have
    1 as their `lesson`. `source` names the run in memory, and `procedure` is the order
    of its tools. `untrusted` are the names of the sources that the lessons wait for.
    `origin` is that of the run, and `meta` is the metadata that its lessons begin with.
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
    meta: Mapping[str, Any] = field(default_factory=dict, repr=False)

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
        return str(self._head.meta["by"]) if self._head else DRAFT_BY_RULES

    @property
    def importance(self) -> float:
        """The importance that the author claims, 0..1; by default the lesson's own."""
        return claimed_importance(self._head) if self._head else 0.0

    @property
    def confidence(self) -> float:
        """How sure the author is, 0..1."""
        return float(self._head.meta["confidence"]) if self._head else 0.0

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
) -> Reflected | None:
    """Return what an episode teaches, by rules or a `model`; None if it is empty.

    If memory has seen the failure before, it counts one more sighting, and no model is
    asked. Each episode is reflected on once, even if several processes pass it in
    several times. The rules write the reflection, and `error` says why, if the model
    fails or its answer is refused. A run without a mistake has no lesson, unless a
    model writes one; `of_quiet_runs` is for callers who store a reflection of every
    run, which no prompt is shown. With `on_model_error="raise"` the error of a model
    that fails is raised, and the episode is tried again later. `prompts` are
    instructions for the model about a "failure" (also an error or a timeout), a
    "success", or a "partial" result; heedful adds the data and the format of the
    answer. `score` returns the importance, 0..1. With `store=False` nothing is written.
    `origin` is that of who hands in the run, by default that of the memory, else
    "user": of a run from "outside", all lessons wait. What a tool that fetches says is
    left out of the words of the rules. `related` are ids that are stored with the
    lesson. `keys` are the sources of the keys of a service that sent the episode, such
    as "key:3f". Raises InvalidInput, ModelError, StoreError.
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
    )

    if not episode.events and episode.fault is None:
        return None
    if memory is None or not store:
        return await reflector.reflect(episode, episode.digest, author)

    entry = await asyncio.to_thread(to_stored_episode, episode, author)
    state = await memory.store.write(memory.scope, episodes.admit, entry)
    if state is None:
        return await reflector.write(memory, episode, episode.digest, author)

    # The episode is in the store, so its lessons are, or will soon be.
    study = await reflector.study(episode, author)
    draft = await asyncio.to_thread(by_rules, study)
    reflection = await reflector.lessons(study, draft, episode.digest)
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
    prompts: Mapping[str, str] = OUTCOME_PROMPTS,
) -> Reflected | None:
    """Reflect on the oldest episode that waits or must be tried again, if any.

    Episodes that were tried since `before`, in seconds since 1970, are skipped, so a
    host can call this until it returns None. `digest` selects one episode. If the model
    fails, the error is raised and the episode waits; if its answer is refused, the
    rules write the reflection. Raises ModelError, StoreError.
    """
    memory = open_memory(memory)
    reflector = _Reflector(
        memory=memory,
        model=model,
        prompts=prompts,
        score=by_outcome,
        on_model_error="raise",
        waited=True,
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
    """Store a reflection made with `store=False`; an episode is stored once.

    If it was stored before, return the answers of its lessons, and count no sighting.
    Raises StoreError, QuotaExceeded.
    """
    memory = open_memory(memory)
    # The lessons' own: a caller may have changed it.
    meta = next((lesson.meta for lesson in reflection.lessons), reflection.meta)
    if not meta:
        return ()
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
    return await memory.store.read(memory.scope, lessons.remembered, reflection.lessons)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reflector:
    """The arguments of `reflect`, and the `keys` of a service that sent the episode.

    An episode that has `waited` in the store is tried again if the model fails, but not
    if its answer is refused: the same model would answer the same.
    """

    memory: Memory | None
    model: Model | None
    prompts: Mapping[str, str]
    score: Score
    on_model_error: str
    related: Sequence[str] = ()
    keys: tuple[str, ...] = ()
    waited: bool = False
    of_quiet_runs: bool = False

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
        self, memory: Memory, episode: Episode, digest: str, trust: Origin
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
            # Not only errors: the task may also have been cancelled.
            if answers is None:
                await _record_failure(memory, digest, sys.exception())
        return replace(reflection, stored=answers)

    async def reflect(self, episode: Episode, digest: str, trust: Origin) -> Reflected:
        """Reflect on the episode without storing anything.

        The model writes the reflection. The rules do if there is no model, if it fails,
        or if memory has seen the failure before.
        """
        scope = self.memory.scope if self.memory is not None else None
        run_fields = {
            **(asdict(scope) if scope else {}),
            "outcome": episode.outcome,
            "events": len(episode.events),
            # The name of earlier systems.
            "event_count": len(episode.events),
        }
        _log.info(REFLECTION_STARTED_EVENT, extra=run_fields)
        study = await self.study(episode, trust)
        sightings = 0
        if self.memory is not None and scope is not None:
            seen = await self.memory.store.read(scope, patterns.seen, study.signature)
            reflections = [row for row in seen.lessons if row["kind"] == "reflection"]
            sightings = sum(row["seen"] for row in reflections)

        draft = await asyncio.to_thread(by_rules, study)
        usage = NO_USAGE
        error = ""
        if self.model is not None and sightings == 0:
            try:
                prompts = {**OUTCOME_PROMPTS, **self.prompts}
                instruction = prompts.get(episode.outcome, prompts["failure"])
                draft, usage = await by_model(study, self.model, instruction, draft)
            except ModelError as failed:
                is_refused = isinstance(failed, AnswerRefused)
                if self.waited:
                    is_refused = isinstance(failed, MalformedAnswer)
                if self.on_model_error == "raise" and not is_refused:
                    raise
                log_failure(REFLECTION_FAILURE_EVENT, failed, scope)
                usage = getattr(failed, "usage", None) or usage
                error = f"{type(failed).__name__}: {failed}"

        reflection = await self.lessons(study, draft, digest)
        lesson = reflection.lesson
        if error and lesson:
            lesson = replace(lesson, meta={**lesson.meta, "model_error": error})
        result = {
            "by": reflection.by,
            "reflection_id": study.signature.digest,
            "importance": reflection.importance,
            "confidence": reflection.confidence,
            "has_strategy": reflection.strategy is not None,
        }
        _log.info(REFLECTION_GENERATED_EVENT, extra=run_fields | result)
        return replace(
            reflection, lesson=lesson, usage=usage, known=sightings, error=error
        )

    async def study(self, episode: Episode, trust: Origin) -> Study:
        """Study the episode without the texts that heedful put into its prompts."""
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

        stated = await self.memory.quarantine.believed()
        if any(is_outside(key, stated) for key in self.keys):
            trust = "outside"
        strict = self.memory.strict or await self.memory.quarantine.has_strict(
            self.keys
        )
        return await asyncio.to_thread(Study.of, episode, trust, stated, strict)

    async def lessons(self, study: Study, draft: Draft, digest: str) -> Reflected:
        """Return the lessons of a draft with their origin, importance and metadata."""
        importance = self.score(draft, study.episode)
        check_share("importance", importance)
        if self.score is not by_outcome:
            # The caller's own score counts, whatever the model claims.
            draft = replace(draft, rated=None)

        task = redact(study.asked)[:MAX_STORED_TEXT_CHARS]
        writer = _LessonWriter(
            study=study, draft=draft, digest=digest, task=task, reflector=self
        )
        lesson = None
        if draft.claims or self.of_quiet_runs:
            lesson = writer.write(
                "reflection", draft.text(study.episode), draft.trust, importance
            )
        strategy = None
        raised_importance = strategy_importance(importance)
        # Without a rule of its own, it is one more sighting for the stored one.
        rule = draft.strategy or await self._stored_rule(study)
        if rule:
            strategy = writer.write(
                "strategy", rule, draft.rule_trust, raised_importance
            )
        procedure, shared = await self._procedure(study, digest)
        if shared and strategy is None and not procedure.has_failed:
            strategy = writer.write_procedure(procedure, shared, raised_importance)
        others = tuple(
            writer.write_other(finding, importance)
            for finding in study.mistakes
            if finding != study.main
        )

        steps = await asyncio.to_thread(steps_of, study.course, study.errors)
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
            meta=writer.meta,
        )

    async def _stored_rule(self, study: Study) -> str:
        """Return the rule that memory has about the main mistake of a run, or "".

        What waits or is from outside is not taken: written again, it would be local.
        """
        if self.memory is None or study.main is None:
            return ""
        scope = self.memory.scope
        digest = study.signature.digest
        rows = await self.memory.store.read(scope, lessons.of_failure, digest)
        rules = (
            row["text"]
            for row in rows
            if row["kind"] == "strategy"
            and row["state"] != "quarantined"
            and row["trust"] != "outside"
        )
        return next(rules, "")

    async def _procedure(
        self, study: Study, digest: str
    ) -> tuple[Procedure, tuple[str, ...]]:
        """Return the procedure of a run, and what its task shares with others done so.

        It is empty unless the run succeeded or failed, by two tools or more.
        """
        episode = study.episode
        tools = tools_in_order(study.course)
        is_over = episode.outcome in ("success", "failure")
        if self.memory is None or len(tools) < MIN_PROCEDURE_TOOLS or not is_over:
            return Procedure(), ()
        procedure = Procedure(tools=tools, task=redact(episode.task))
        runs = await self.memory.store.read(
            self.memory.scope, episodes.tasks_done, digest
        )
        shared = procedure.shared_words(episode.task, runs)
        if episode.outcome == "failure":
            procedure = replace(procedure, has_failed=shared != (), task="")
        return procedure, shared


@dataclass(frozen=True, slots=True, kw_only=True)
class _LessonWriter:
    """What the lessons of one draft have in common.

    `digest` identifies the episode, and `task` is the beginning of its task.
    """

    study: Study
    draft: Draft
    digest: str
    task: str
    reflector: _Reflector

    @property
    def source(self) -> str:
        """The source of the lessons: a run that grew since it was read is the same."""
        episode = self.study.episode
        if not (episode.session and episode.events):
            return source_of(self.digest[:16])
        first = repr(replace(episode.events[0], id=""))
        return source_of(short_digest(f"{episode.session}\0{episode.task}\0{first}"))

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources of the words of the run."""
        return (*self.study.sources, *self.reflector.keys)

    def write(self, kind: str, text: str, trust: Origin, importance: float) -> Lesson:
        """Return a lesson of the draft; it has no higher origin than `trust`."""
        draft = self.draft
        name = self.study.signature
        tags = draft.tags
        mistake = draft.mistake
        if mistake and draft.by != DRAFT_BY_RULES:
            # What the rules would say, without and with parts from outside.
            forms = (mistake, with_origin(mistake, "local"))
            if text not in [redact(render.text_of(kind, form)) for form in forms]:
                mistake = with_words(mistake, text, trust)
        meta = {}
        if kind == "strategy":
            name = strategy_signature(name)
            tags = (*tags, kind)
            if draft.rated:
                meta = {"rated": strategy_importance(draft.rated)}
        # From the last to the first: a tag goes if an earlier one differs in case only.
        by_word = {tag.casefold(): tag for tag in reversed(tags)}
        return self._lesson(
            name,
            text,
            trust,
            kind=kind,
            importance=importance,
            mistake=mistake,
            tags=tuple(reversed(by_word.values())),
            meta=meta,
        )

    def write_other(self, finding: FoundMistake, importance: float) -> Lesson:
        """Return the lesson about another mistake of the run."""
        mistake = self.study.record(finding)
        if finding.is_of_work:
            importance = min(importance, WORK_FAILURE_IMPORTANCE)
        return self._lesson(
            signature("", finding.error),
            redact(render.lesson(mistake)),
            "local",
            importance=importance,
            mistake=mistake,
            meta={"mended": mistake.fix is not None, "by": DRAFT_BY_RULES},
        )

    def write_procedure(
        self, procedure: Procedure, shared: Sequence[str], importance: float
    ) -> Lesson:
        """Return the strategy of like runs that succeeded by the same tools."""
        return self._lesson(
            procedure.signature,
            render.procedure(procedure.tools, shared),
            "local",
            kind="strategy",
            importance=importance,
            tags=("success", "strategy", "procedure"),
            meta={"mended": True, "quiet": False},
        )

    def write_rules(self) -> tuple[Lesson, ...]:
        """Return a lesson for each rule with which the user refused an answer."""
        return tuple(
            replace(
                rule,
                trust=lowest_origin((rule.trust, self.study.origin)),
                sources=(USER_SOURCE, *self.reflector.keys),
            )
            for rule in correction_lessons(
                self.study.episode.events, task=self.task, source=self.source
            )
        )

    def _lesson(
        self,
        name: Signature,
        text: str,
        trust: Origin,
        *,
        importance: float,
        kind: str = "reflection",
        mistake: Mistake | None = None,
        tags: tuple[str, ...] = (),
        meta: Mapping[str, Any],
    ) -> Lesson:
        """Return a lesson with what all lessons of the run have in common.

        `meta` has what differs from their common metadata.
        """
        text = text[:MAX_STORED_TEXT_CHARS]
        trust = lowest_origin((trust, self.study.origin))
        example = Example(self.task, "") if self.task else None
        return Lesson(
            kind,
            name,
            error_type=name.error_type,
            text=text,
            sighting=text,
            example=example,
            state=initial_state(trust),
            trust=trust,
            importance=importance,
            tags=tags or self.draft.tags,
            meta={**self.meta, **meta},
            source=self.source,
            sources=self.sources,
            mistake=mistake,
        )

    @property
    def meta(self) -> Mapping[str, Any]:
        """Return the metadata of a lesson."""
        draft = self.draft
        episode = self.study.episode
        cited = sorted(set(chain.from_iterable(claim.events for claim in draft.claims)))
        return {
            "by": draft.by,
            "layer": "rm",
            "confidence": draft.confidence,
            "rated": draft.rated,
            "mended": draft.mended,
            "quiet": self.study.main is None and draft.by == DRAFT_BY_RULES,
            "outcome": episode.outcome,
            "task_description": self.task,
            "event_count": len(episode.events) + episode.omitted,
            "session_id": episode.session,
            "error_category": self.study.category,
            "source_event_ids": [episode.events[n].id or str(n) for n in cited],
            "related_memory_ids": list(self.reflector.related),
            "episode": self.digest,
        }


def strategy_importance(importance: float) -> float:
    """Return the importance of a strategy, at most 1, from that of its reflection."""
    return min(1.0, round(importance * STRATEGY_IMPORTANCE_FACTOR, 6))


@dataclass(frozen=True, slots=True)
class _ComparedCall:
    """A step, and the `tool` and the `text` by which its call is compared with others.

    A command is the same call whichever tool runs it, so its tool is "". Marks lack
    folders, so they do not tell calls apart.
    """

    step: Step
    tool: str
    text: str


def steps_of(
    run: Course, errors: Mapping[int, Sequence[str]], *, folder: str = ""
) -> tuple[Step, ...]:
    """Return the steps of a run that have a result, without those a person refused.

    `errors` are the error lines by call. Paths below the `folder` of the repository are
    relative to it. A call of a file that the agent has neither read nor written since
    it last forgot its context has a mark that says so.
    """
    calls: list[_ComparedCall] = []
    known_paths = set[str]()
    for position, event in enumerate(run.events):
        if event.type == "system_event" and event.code in FORGETTING_CODES:
            known_paths.clear()
        result = run.result[position]
        if event.type != "tool_call" or not event.tool or result is None:
            continue
        if position in run.refused:
            continue

        failure = run.failure[position] or run.failure[result] or ""
        error_texts = tuple(errors.get(position, ()))

        given = given_to(event)
        arguments = arguments_of(given)
        contract = None
        if error_texts:
            contract = find_contract(arguments, failure, error_texts)
        unread = has_unread(arguments, known_paths, folder)
        step = Step(
            (
                *marks_of(event.tool, arguments, folder),
                *contract_marks(event.tool, arguments, unread=unread),
            ),
            error_texts,
            failed=tuple(
                failed_marks(
                    event.tool,
                    arguments,
                    error_texts,
                    contract=contract,
                    folder=folder,
                ).items()
            ),
            path=relative_path(path_of(arguments), folder),
            at=run.events[result].at or 0,
            origin=call_origin(event.tool, arguments),
        )
        if not error_texts:
            known_paths.update(filter(None, [touched_path(arguments, folder)]))

        command = command_of(given)
        data = json.dumps(given, sort_keys=True, ensure_ascii=False, default=repr)
        tool = "" if command else event.tool.strip().lower()
        text = redact_start(command or data, MAX_READ_CHARS)
        calls.append(_ComparedCall(step, tool, text))
    return tuple(
        replace(call.step, calls=1 + _calls_until_passed(call, calls[number:]))
        if call.step.errors
        else call.step
        for number, call in enumerate(calls, start=1)
    )


def _calls_until_passed(failed: _ComparedCall, later: Sequence[_ComparedCall]) -> int:
    """Return how many calls lie between a failed call and a like one that passed.

    At most `MAX_LOST_CALLS`; 0 if none of the next `MAX_NEXT_CALLS` passed.
    """
    path = failed.step.path
    for count, call in enumerate(later[:MAX_NEXT_CALLS]):
        if call.step.errors or call.tool != failed.tool:
            continue
        is_same_file = path != "" and path == call.step.path
        if is_same_file or likeness(failed.text, call.text):
            return min(count, MAX_LOST_CALLS)
    return 0


async def _write_lessons(
    memory: Memory, digest: str, reflection: Reflected
) -> tuple[Remembered, ...]:
    """Store the lessons of an episode with its steps; return the answers."""
    if reflection.rules:
        # Before the lessons: if this process ends between both, the run is tried again.
        stated = await memory.quarantine.believed()
        await write_lessons(memory, reflection.rules, user_rules.state, stated=stated)
    answers = await write_lessons(
        memory,
        reflection.lessons,
        episode_lessons.record_lessons,
        digest,
        source=reflection.source,
        steps=reflection.steps,
        procedure=reflection.procedure,
        is_trusted=reflection.origin != "outside",
    )
    if answers:
        fields = {
            **asdict(memory.scope),
            "id": answers[0].id,
            "reflection_id": reflection.lessons[0].signature.digest,
            "importance": reflection.importance,
            "confidence": reflection.confidence,
        }
        _log.info("reflection_stored", extra=fields)
    return tuple(answers)


def to_stored_episode(episode: Episode, trust: Origin) -> StoredEpisode:
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


def from_stored_episode(entry: StoredEpisode) -> tuple[Episode, Origin]:
    """Return a stored episode and its origin."""
    line = json.dumps(entry.record["episode"]).encode("ascii")
    (episode,) = read(line, Limits(events=MAX_STORED_EVENTS, bytes=len(line)))
    episode = replace(episode, source=entry.record["source"])
    return episode, read_origin(entry.record["trust"])


async def _renew_claim(memory: Memory, digest: str) -> None:
    """Renew the lease on an episode three times in its duration, until cancelled."""
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
        log_failure(REFLECTION_FAILURE_EVENT, error, memory.scope)
    with suppress(StoreError):  # the first error is raised
        await memory.store.write(memory.scope, episodes.record_failure, digest, words)

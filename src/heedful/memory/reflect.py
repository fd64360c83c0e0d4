"""An episode -> a reflection and a strategy: what a program finds first, a model second."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from heedful.errors import InvalidInput, ModelError
from heedful.lessons.learn import with_vector
from heedful.lessons.lesson import (
    LONGEST,
    Example,
    Reflection,
    Remembered,
    Scope,
    Signature,
    Trust,
    digest_of,
)
from heedful.lessons.trust import ORDER, check_sequence, initial_state, lowest_trust
from heedful.loop.record import NOTHING, Usage, check_share
from heedful.memory.attribution import Suspect
from heedful.memory.drafting import Draft, Score, by_outcome, by_rules, name_of
from heedful.memory.episode import LOOP, Episode
from heedful.memory.filing import OnRecord, failed, file, unfiled
from heedful.memory.grounded import Claim
from heedful.memory.memory import Memory, placed, space_of
from heedful.memory.prompts import Prompts, Shown, chat, drafted, schema, shown
from heedful.memory.signal import Signal
from heedful.memory.study import Study, study, turns, unlearnt
from heedful.models.call import ask_for_json
from heedful.models.contract import Model
from heedful.redact import redact
from heedful.store import episodes, exposures, patterns, quarantine
from heedful.store.records import StoredEpisode
from heedful.store.store import Store

_log = logging.getLogger("heedful")
MAX_TOKENS = 500
# A strategy is worth more than what it was drawn from.
STRONGER = 1.1
DEFAULT = Prompts()


@dataclass(frozen=True, slots=True)
class Reflected:
    """What came of reflecting on one episode.

    `reflection` and `strategy` are the lessons as they are written, `claims` the sentences of the
    first with the events that they cite, `dropped` those that their events do not hold. `step` is
    the step that went wrong. `known` counts how often the same was seen before: then no model was
    asked. `error` says why the model's answer was not used. `stored` answers for the two lessons,
    empty where nothing was written; `again`: this very episode was reflected on before, or it is
    `busy`: another is at work on it, or was killed some seconds ago.
    """

    reflection: Reflection
    strategy: Reflection | None
    claims: tuple[Claim, ...]
    dropped: tuple[Claim, ...]
    signals: tuple[Signal, ...]
    step: Suspect | None
    usage: Usage = NOTHING
    known: int = 0
    error: str = ""
    stored: tuple[Remembered, ...] = ()
    again: bool = False
    busy: bool = False

    @property
    def text(self) -> str:
        """The reflection."""
        return self.reflection.text

    @property
    def by(self) -> str:
        """Who worded it: "rules", or the name of a model."""
        return str(self.reflection.meta["by"])

    @property
    def quarantined(self) -> bool:
        """Whether any of it waits for an operator."""
        return "quarantined" in (self.reflection.state, self.strategy and self.strategy.state)


async def reflect(
    episode: Episode,
    *,
    memory: Memory | Store | str | None = None,
    model: Model | None = None,
    prompts: Prompts = DEFAULT,
    score: Score = by_outcome,
    on_model_error: Literal["keep", "raise"] = "keep",
    store: bool = True,
    trust: Trust = "external",
    related: Sequence[str] = (),
    max_tokens: int = MAX_TOKENS,
) -> Reflected | None:
    """What an episode teaches, in the words of a program or of a `model`; None where it is empty.

    Memory is asked first: of what is known a sighting is counted, and no model is asked. An episode
    is reflected on once, however often it is handed over and by how many at a time. A model that
    fails, or whose sentences the events do not hold, leaves the words of the program, marked; or
    with "raise" the episode waits to be tried again. `score` says how much it matters, 0..1.
    Without `store` nothing is written. `trust` is from whom the task and the user's words are: what
    rests on them, or on what tools said, has no higher one, and is quarantined below that of a
    model. `related` are ids that are kept with it. Raises InvalidInput, ModelError, StoreError.
    """
    _checked(episode, on_model_error, trust, related)
    _usable(model, prompts)
    if not episode.events and episode.fault is None:
        return None
    kept = None if memory is None else Memory.of(memory, None)
    keeps = kept if store else None
    digest = episode.digest
    work = _Work(kept, model, prompts, score, on_model_error, max_tokens)
    if keeps is not None:
        filed = await asyncio.to_thread(file, episode, digest, trust)
        if state := await episodes.admit(keeps.store, keeps.scope, filed):
            found = await work.found(episode, trust)
            made = await work.lessons(found, by_rules(found), digest, related)
            return replace(made, again=True, busy=state != "reflected")
    return await work.done(episode, digest, trust, related, keeps)


async def reflect_waiting(
    memory: Memory | Store | str,
    *,
    before: float,
    digest: str = "",
    model: Model | None = None,
    prompts: Prompts = DEFAULT,
    score: Score = by_outcome,
    max_tokens: int = MAX_TOKENS,
) -> Reflected | None:
    """Reflect on the oldest episode that waits or failed, or on that of a digest; None without.

    Of those that were tried since `before`, in seconds since 1970, none, so that a host that calls
    it until it answers None comes to an end. What fails raises, and waits on. Raises ModelError,
    StoreError.
    """
    _usable(model, prompts)
    kept = Memory.of(memory, None)
    filed = await kept.store.write(kept.scope, episodes.take, before, digest)
    if filed is None:
        return None
    work = _Work(kept, model, prompts, score, "raise", max_tokens)
    episode, trust = await asyncio.to_thread(unfiled, filed)
    return await work.done(episode, filed.digest, trust, (), kept)


async def keep(made: Reflected, memory: Memory | Store | str) -> tuple[Remembered, ...]:
    """Write what was reflected on without storing it; nothing where the episode was before.

    Raises StoreError, QuotaExceeded.
    """
    kept, meta = Memory.of(memory, None), made.reflection.meta
    one = StoredEpisode(meta["episode"], "", meta["session_id"], meta["outcome"], {})
    if await episodes.admit(kept.store, kept.scope, one) is not None:
        return ()
    return await _written(kept, one.digest, made)


def _checked(episode: object, on_model_error: str, trust: str, related: object) -> None:
    if not isinstance(episode, Episode):
        raise InvalidInput("episode", episode, "an Episode")
    if on_model_error not in ("keep", "raise"):
        raise InvalidInput("on_model_error", on_model_error, "keep or raise")
    if trust not in ORDER:
        raise InvalidInput("trust", trust, f"one of {', '.join(ORDER)}")
    check_sequence("related", related, str, "ids, each a text")


def _usable(model: object, prompts: object) -> None:
    if model is not None and not isinstance(model, Model):
        raise InvalidInput("model", model, "a Model, as open_model gives one, or None")
    if not isinstance(prompts, Prompts):
        raise InvalidInput("prompts", prompts, "Prompts")


@dataclass(frozen=True, slots=True)
class _Work:
    """What one call of `reflect` works with."""

    memory: Memory | None
    model: Model | None
    prompts: Prompts
    score: Score
    on_model_error: str
    max_tokens: int

    async def done(
        self,
        episode: Episode,
        digest: str,
        trust: Trust,
        related: Sequence[str],
        keeps: Memory | None,
    ) -> Reflected:
        """The reflection, worded and written; what fails is put on record, to be tried again."""
        async with OnRecord(keeps, digest):
            return await self._reflected(episode, digest, trust, related, keeps)

    async def _reflected(
        self,
        episode: Episode,
        digest: str,
        trust: Trust,
        related: Sequence[str],
        keeps: Memory | None,
    ) -> Reflected:
        scope = self.memory.scope if self.memory else Scope()
        _tell(
            "started",
            tenant=scope.tenant,
            project=scope.project,
            outcome=episode.outcome,
            event_count=len(episode.events),
        )
        found = await self.found(episode, trust)
        known = await self._known(found.signature)
        draft, usage, wrong = await self._drafted(found, known)
        made = await self.lessons(found, draft, digest, related)
        made = replace(made, usage=usage, known=known, error=wrong)
        one = made.reflection
        _tell(
            "generated",
            importance=one.importance,
            confidence=draft.confidence,
            has_strategy=made.strategy is not None,
        )
        if keeps is not None:
            made = replace(made, stored=await _written(keeps, digest, made))
        return made

    async def found(self, episode: Episode, trust: Trust) -> Study:
        """What a program finds, without what heedful itself had put into the prompts."""
        if self.memory is not None:
            said = {Example(task, answer).digest: at for at, task, answer in turns(episode)}
            ours = (
                await self.memory.store.read(self.memory.scope, episodes.known_examples, said)
                if said
                else ()
            )
            places = frozenset(at for one in ours for at in (said[one], said[one] + 1))
            episode = unlearnt(episode, places)
        return await asyncio.to_thread(study, episode, trust)

    async def _known(self, name: Signature) -> int:
        """How often the same was reflected on."""
        if self.memory is None:
            return 0
        seen = await self.memory.store.read(self.memory.scope, patterns.seen, name)
        return sum(one["seen"] for one in seen.lessons if one["kind"] == "reflection")

    async def _drafted(self, found: Study, known: int) -> tuple[Draft, Usage, str]:
        """The words, what they cost, and why those of the model were not used."""
        if self.model is None or known:
            return by_rules(found), NOTHING, ""
        told = shown(found)
        try:
            draft, usage = await self._asked(self.model, found, told)
        except ModelError as error:
            if self.on_model_error == "raise":
                raise
            failed(error)
            usage = getattr(error, "usage", None) or NOTHING
            return by_rules(found), usage, f"{type(error).__name__}: {error}"
        return draft, usage, ""

    async def _asked(self, model: Model, found: Study, told: Shown) -> tuple[Draft, Usage]:
        instruction = self.prompts.of(found.episode.outcome)
        return await ask_for_json(
            model,
            lambda wrong: chat(instruction, told, wrong),
            lambda answer: drafted(answer, found, told, model.name),
            schema(told),
            who="reflector",
            max_tokens=self.max_tokens,
        )

    async def lessons(
        self, found: Study, draft: Draft, digest: str, related: Sequence[str]
    ) -> Reflected:
        """A draft as lessons, with what is known of them, and of whom."""
        importance = self.score(draft, found.episode)
        check_share("importance", importance)
        parents, whole = await self._shown(found.episode)
        meta = _meta(found, draft, digest, related)
        task = redact(found.episode.task)[:LONGEST]
        given: tuple[Trust, ...] = (found.given,) if task else ()
        given += () if whole else ("external",)

        def lesson(kind: str, text: str, trust: Trust, weight: float) -> Reflection:
            rule = text if kind == "strategy" else ""
            name, trust = named(found.signature, rule), lowest_trust((trust, *given))
            return Reflection(
                kind,
                name,
                name.error_type,
                text[:LONGEST],
                text[:LONGEST],
                example=Example(task, "") if task else None,
                state=initial_state(trust),
                trust=trust,
                importance=weight,
                tags=draft.tags if kind == "reflection" else (*draft.tags, "strategy"),
                source=source_of(digest),
                parents=parents,
                meta=meta,
            )

        text = draft.text(found.episode)
        one = lesson("reflection", text, draft.trust, importance)
        rule = None
        if draft.strategy:
            stronger = min(1.0, round(importance * STRONGER, 6))
            rule = lesson("strategy", draft.strategy, draft.rule_trust, stronger)
        return Reflected(one, rule, draft.claims, draft.dropped, found.signals, found.step)

    async def _shown(self, episode: Episode) -> tuple[tuple[int, ...], bool]:
        """The examples that a loop of one's own was shown, and whether all are there still."""
        if self.memory is None or episode.source != LOOP or not episode.id:
            return (), True
        store, scope = self.memory.store, self.memory.scope
        past = await store.read(scope, exposures.past, episode.id)
        ids = {id for one in past.exposures if one.shown for id in one.examples}
        there = (
            tuple(sorted(one.id for one in await store.read(scope, quarantine.entries, list(ids))))
            if ids
            else ()
        )
        return there, len(there) == len(ids)


async def _written(memory: Memory, digest: str, made: Reflected) -> tuple[Remembered, ...]:
    """Both lessons in one transaction, by the place of the task they are found by."""
    lessons = [one for one in (made.reflection, made.strategy) if one is not None]
    if memory.embedder is not None:
        texts = [one.example.task if one.example else one.text for one in lessons]
        space = space_of(memory.embedder)
        vectors = await placed(memory.embedder, texts)
        pairs = zip(lessons, vectors, strict=True)
        lessons = [each for one, at in pairs for each in with_vector([one], space, at)]
    most = memory.max_entries or 0
    answers = await memory.store.write(
        memory.scope, episodes.record_lessons, digest, lessons, most=most, quota=memory.quota
    )
    _tell("stored", id=answers[0].id, importance=made.reflection.importance)
    return tuple(answers)


def _tell(what: str, **fields: Any) -> None:
    name = {"stored": "reflection_stored", "generated": "reflection_generated"}
    _log.info(name.get(what, f"reflection_generation_{what}"), extra=fields)


def named(name: Signature, strategy: str = "") -> Signature:
    """The signature of a reflection, or of the `strategy` that came with it: one of its own.

    Lest one failure is counted twice, and another rule for it is taken for the same. It has no
    words of either: those of the failure may be trusted less than the rule.
    """
    if not strategy:
        return name
    pattern = f"of reflection {name.digest}: {digest_of('strategy', strategy)}"
    digest = digest_of("strategy", pattern)
    return Signature(digest, pattern, digest, "strategy")


def source_of(digest: str) -> str:
    """What an episode is called as a source, by which all that it taught can be revoked."""
    return f"episode:{digest[:16]}"


def _meta(found: Study, draft: Draft, digest: str, related: Sequence[str]) -> Mapping[str, Any]:
    """What is known of a lesson beside its words, as JSON data."""
    episode = found.episode
    events = sorted({at for one in draft.claims for at in one.events})
    return {
        "by": draft.by,
        "layer": "rm",
        "confidence": draft.confidence,
        "rated": draft.rated,
        "outcome": episode.outcome,
        "task_description": redact(episode.task)[:LONGEST],
        "event_count": len(episode.events) + episode.omitted,
        "session_id": episode.session,
        "error_category": found.category,
        "source_event_ids": [name_of(episode, at) for at in events],
        "related_memory_ids": list(related),
        "ungrounded": [n for n, one in enumerate(draft.claims, 1) if not one.grounded],
        "episode": digest,
    }

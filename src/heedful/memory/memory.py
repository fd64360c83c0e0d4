"""Memory of one scope: remember, seen, recall, render, and what a loop learns and is shown.

Its quarantine keeps lessons from tools and documents until a person rules on them. They never reach
a prompt before.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Literal, cast

from heedful import telemetry
from heedful.errors import InvalidInput, NotFound
from heedful.lessons import lesson as records
from heedful.lessons import patterns, proof, ranking
from heedful.lessons.learn import learn
from heedful.lessons.lesson import Example, Match, Quota, Reflection, Remembered, Scope, Trust
from heedful.lessons.patterns import Seen
from heedful.lessons.proof import Proof
from heedful.lessons.ranking import BUDGET, Briefing
from heedful.lessons.signature import signature
from heedful.lessons.trust import QuarantinedLesson, RevocationResult
from heedful.loop.record import LARGEST, Loop, check_integer, check_number
from heedful.memory.transfer import Transfers
from heedful.models.contract import Embedder, Message
from heedful.redact import redact
from heedful.store import exposures as exposure_store
from heedful.store import lessons as lesson_store
from heedful.store import open_store, search
from heedful.store import patterns as pattern_store
from heedful.store.store import Store

_log = logging.getLogger("heedful")


FACTS = ("id", "kind", "signature", "error_type", "text", "state", "seen")
AMONG = 500  # lessons that are compared for suggestions
LEG = 30  # candidates of each leg: 10 lose 0.01 of recall@5, 50 gain nothing and cost a third more
Progress = Callable[[int, int], None]  # called with how many of how many are done
# Texts that are embedded and written together: 0.1 s of a small embedder on one core.
BATCH = 32


@dataclass(frozen=True, slots=True)
class Spaces:
    """How many examples and lessons of a scope have a vector in each embedding space.

    `space` is that of the embedder in use, "" without one. `here` counts the texts in it,
    `elsewhere` those in each other space, and `nowhere` those without a vector. Recall compares
    vectors of its own space only; it finds all other texts by words.
    """

    space: str
    here: int = 0
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    nowhere: int = 0

    @classmethod
    def of(cls, counts: Mapping[str, int], space: str) -> Spaces:
        """Sort counts by space, "" for texts without a vector, as seen from one space."""
        elsewhere = {name: n for name, n in sorted(counts.items()) if name not in ("", space)}
        return cls(space, counts.get(space, 0) if space else 0, elsewhere, counts.get("", 0))

    @property
    def behind(self) -> int:
        """Return how many texts `reembed` would move; 0 without an embedder."""
        return self.nowhere + sum(self.elsewhere.values()) if self.space else 0

    def __str__(self) -> str:
        others = [f"{count} in {space}" for space, count in self.elsewhere.items()]
        nowhere = [f"{self.nowhere} without a vector"] if self.nowhere else []
        here = [f"{self.here} in {self.space}"] if self.space else []
        return ", ".join([*here, *others, *nowhere])


def space_of(embedder: Embedder | None) -> str:
    """Return the name of an embedder's space, "" without one; only equal names are compared."""
    return f"{embedder.name}/{embedder.dimensions}" if embedder is not None else ""


async def embed(embedder: Embedder, texts: Sequence[str]) -> Sequence[Sequence[float]]:
    """Return a vector for each text. Raises InvalidInput for vectors that cannot be stored."""
    vectors = await embedder.embed(texts)
    lengths = {len(vector) for vector in vectors}
    if len(vectors) != len(texts) or lengths - {embedder.dimensions}:
        found = f"{len(vectors)} vectors of {sorted(lengths)} numbers from {embedder.name}"
        wanted = f"{len(texts)} of {embedder.dimensions} numbers each"
        raise InvalidInput("embedder", found, wanted)
    if not all(isfinite(sum(vector)) for vector in vectors):
        raise InvalidInput("embedder", embedder.name, "one that gives finite numbers")
    return vectors


def log_failure(event: str, error: Exception) -> None:
    """Log an error and where it was raised, without any text that was read or answered."""
    where = "".join(traceback.format_tb(error.__traceback__))
    _log.warning(event, extra={"error": type(error).__name__, "traceback": where})


class Memory(Transfers):
    """What was learnt in one scope, kept in a store.

    `store` is a Store or its name (a path, or `:memory:`). Recall compares words, and meanings if
    there is an `embedder`. `holdout` is the share of recalled lessons that is withheld at random,
    so that loops with and without them can be compared: 0 turns it off, and it must be below 1.
    `max_entries` limits the lessons of the scope and the examples of each: the least useful lesson
    makes room for a new one, those in quarantine first, and the oldest example for a new example;
    pinned lessons stay. `quota` limits each source that is not trusted. Raises InvalidInput.
    """

    def __init__(
        self,
        store: Store | str,
        scope: Scope | None = None,
        embedder: Embedder | None = None,
        holdout: float = records.SHARE,
        max_entries: int | None = None,
        quota: Quota | None = None,
    ) -> None:
        if not isinstance(holdout, int | float) or not 0 <= holdout < 1:
            raise InvalidInput("holdout", holdout, "a share of at least 0 and below 1")
        if max_entries is not None:
            check_integer("max_entries", max_entries, 1, ", or None")
        if not isinstance(quota, Quota | None):
            raise InvalidInput("quota", quota, "a Quota, or None")
        self.store: Store = open_store(store) if isinstance(store, str) else store
        self.scope: Scope = scope or Scope()
        self.embedder = embedder
        self.holdout = holdout
        self.max_entries = max_entries
        self.quota: Quota = quota or Quota()

    @classmethod
    def of(cls, memory: Memory | Store | str, scope: Scope | None) -> Memory:
        """Return the memory itself, or a memory in that store or in the store of that name."""
        return memory if isinstance(memory, Memory) else cls(memory, scope)

    async def remember(
        self,
        error_type: str,
        text: str,
        *,
        lesson: str = "",
        example: Example | None = None,
        trust: Trust = "operator",
        tags: Sequence[str] = (),
        context: str = "",
        importance: float = 0.5,
        source: str = "",
        derived_from: Sequence[int] = (),
        pinned: bool = False,
    ) -> Remembered:
        """Count one sighting of an error; a new pattern becomes a lesson. One transaction.

        `recall` finds the lesson by the task of its example, or by its own words without one, and
        by the words of `context`, the text around it. `trust` says where the text came from, and
        `source` names the place, so that it can be revoked; text of a tool or a document is
        quarantined. A lesson `derived_from` examples, by their ids, has the lowest trust of all of
        them. `tags` and `importance` (0..1) apply to a new lesson. An operator may have it
        `pinned`. Raises InvalidInput, QuotaExceeded, StoreError; it never fails silently.
        """
        records.check_texts(error_type=error_type, text=text, lesson=lesson, context=context)
        records.check_memory(text, trust, importance, tags, example, derived_from, pinned)
        text = redact(text)  # before masking or cutting could split a secret
        reflection = Reflection(
            "error",
            signature(error_type, text),
            error_type,
            (redact(lesson) or text)[: records.LONGEST],
            text[: records.LONGEST],
            example=replace(example, context=example.context or context) if example else None,
            trust=trust,
            importance=importance,
            tags=tuple(tags),
            context=context,
            source=records.check_source(source),
            parents=tuple(derived_from),
            pinned=pinned,
        )
        return await self.keep(reflection)

    @telemetry.upsert
    async def keep(self, reflection: Reflection) -> Remembered:
        """Store a lesson as it is. Raises InvalidInput, QuotaExceeded, StoreError."""
        (answer,) = await write_lessons(self, [reflection], exposure_store.remember)
        known = f"duplicate: lesson {answer.id}, seen {answer.seen} times"
        stored = f"stored: lesson {answer.id}" if answer.created else known
        _log.info(stored if answer.id else "skipped")
        return answer

    @property
    def quarantine(self) -> Quarantine:
        """The entries that wait for a ruling: read, release or reject them; revoke a source."""
        return Quarantine(self.store, self.scope)

    async def seen(self, error_type: str, text: str) -> Seen:
        """Count the sightings of an error's pattern, and of patterns merged with it by evidence.

        Makes indexed reads only. Raises StoreError.
        """
        records.check_texts(error_type=error_type, text=text)
        return await self.store.read(
            self.scope, pattern_store.seen, signature(error_type, redact(text))
        )

    async def patterns(self, error_type: str = "") -> Sequence[Mapping[str, Any]]:
        """List the patterns that are merged or kept apart, as plain data, each with the reason."""
        return await self.store.read(self.scope, pattern_store.list_patterns, error_type)

    async def set_apart(self, *digests: str, by: str, why: str = "", apart: bool = True) -> None:
        """Count these patterns apart from all others from now on, or stop that. Recorded.

        Raises NotFound for a digest without a lesson, InvalidInput without a digest or an actor.
        """
        if not digests:
            raise InvalidInput("digests", digests, "signatures of lessons, at least one")
        records.check_sequence("digests", digests, str, "signatures of lessons, each a text")
        await self.store.write(self.scope, pattern_store.set_apart, digests, apart, by, why)

    async def suggest(self, limit: int = 20) -> Sequence[Mapping[str, Any]]:
        """Return pairs of lessons with nearly the same meaning, for a person to judge.

        Compares the `AMONG` lessons that were seen most often, and merges nothing. Left out are
        pairs of one group, patterns kept apart, and assertions. Raises InvalidInput without an
        embedder, ModelError, StoreError.
        """
        if self.embedder is None:
            raise InvalidInput("embedder", None, "an embedder, because this compares meanings")
        groups = {
            one["signature"]: "" if entry["apart"] else number
            for number, entry in enumerate(await self.patterns())
            for one in entry["patterns"]
        }
        lessons = [
            one
            for one in await self.top(AMONG)
            if one["state"] in ("candidate", "verified")
            and groups.get(one["signature"]) != ""
            and not patterns.is_assertion(one["error_type"], one["pattern"])
        ]
        vectors = await self.embedder.embed([one["text"] for one in lessons]) if lessons else []
        pairs = sorted(ranking.near_vectors(vectors), key=lambda pair: -pair[2]) if lessons else []
        found = []
        for a, b, cosine in pairs:
            one, other = lessons[a], lessons[b]
            group, theirs = (groups.get(it["signature"], it["signature"]) for it in (one, other))
            if one["error_type"] == other["error_type"] and group != theirs:
                facts = [{fact: it[fact] for fact in FACTS} for it in (one, other)]
                found.append({"cosine": round(cosine, 4), "lessons": facts})
        return found[:limit]

    @telemetry.search
    async def recall(
        self,
        task: str,
        limit: int = 5,
        *,
        tags: Sequence[str] = (),
        match: Literal["any", "all"] = "any",
        kind: str = "",
        error_type: str = "",
        importance: float = 0.0,
        since: float = 0.0,
    ) -> list[Match]:
        """Return the examples, and the lessons without one, that fit the task, best first.

        Only lessons with any of the `tags` (`match="all"`: with all), of that `kind` and
        `error_type`, of at least that `importance` (0..1), stored `since` that time (seconds since
        1970). Raises InvalidInput, StoreError.
        """
        check_integer("limit", limit)
        records.check_texts(task=task)
        chosen = tags if isinstance(tags, str) else tuple(tags)
        only = records.Filter(
            cast("tuple[str, ...]", chosen), match, kind, error_type, importance, since
        )
        space, vector = await self._embed(task)
        most = max(LEG, limit)
        found = await self.store.read(self.scope, search.search, task, space, vector, most, only)
        return ranking.rank(task, ranking.keep_important(found, only), limit, time.time())

    def render(self, found: Sequence[Match], budget: int = BUDGET) -> tuple[Message, ...]:
        """Return chat turns for a prompt: at most 3 near examples, at most 1 of them not verified.

        They have at most `budget` tokens, as heedful estimates them; an example that does not fit
        is left out. Each turn names its origin in `source`.
        """
        return ranking.as_messages(ranking.choose(found, budget=budget, now=time.time()))

    def render_text(self, found: Sequence[Match], budget: int = BUDGET) -> str:
        """Return examples and lessons as one text between delimiters that nobody can guess, or "".

        The budget includes headings and delimiters.
        """
        seed = secrets.randbits(64)
        chosen = ranking.choose(found, budget=budget, now=time.time(), advice=True, seed=seed)
        return ranking.as_text(ranking.as_messages(chosen), seed, chosen)

    @telemetry.search
    async def brief(
        self, task: str, loop: str, begins: bool = True, examples: bool | None = True
    ) -> Briefing:
        """Return what to show a loop before its task, and what is withheld of that at random.

        The draw depends on scope, loop and lesson only. A loop whose exposures are stored is shown
        the same again; a loop that no longer `begins` is shown nothing new. Without `examples` only
        lessons without an accepted output, learnt from this very task, are shown; with None both.
        """
        space, vector = await self._embed(task)
        found = await self.store.read(self.scope, search.search, task, space, vector, LEG)
        past = await self.store.read(self.scope, exposure_store.past, loop)
        if past.exposures:
            before = {id for one in past.exposures for id in one.examples}
            found = [one for one in found if one.id in before]
        now = time.time()
        chosen = ranking.choose_for_loop(task, found, now, examples)
        share = self.holdout if past.ended >= ranking.FIRST else 0.0
        seed = f"{self.scope.tenant}\0{self.scope.project}"
        exposures = past.exposures or (
            ranking.draw_exposures(chosen, loop, seed, share) if begins else ()
        )
        ids = {id for exposure in exposures for id in exposure.examples}
        found = [match for match in chosen if match.id in ids]
        shown = tuple(match.id for match in found)
        return Briefing(shown, tuple(exposures), space, vector, tuple(found))

    def lessons(
        self, loop: Loop, task: str, briefing: Briefing, outputs: bool = True
    ) -> tuple[Reflection, ...]:
        """Return the lessons of a finished loop (see `learn`), derived from what it was shown.

        So revoking a source also removes what was learnt with its text in the prompt.
        """
        origin: dict[str, Any] = {"source": f"loop:{loop.id}", "parents": briefing.shown}
        origin |= {"space": briefing.space, "vector": briefing.vector}
        return tuple(replace(lesson, **origin) for lesson in learn(loop, task, outputs))

    async def prove(self) -> Proof:
        """Return what exposures and outcomes of this scope prove about its lessons."""
        cases, pending = await self.store.read(
            self.scope, exposure_store.evidence, proof.MOST_CALLS
        )
        return await asyncio.to_thread(proof.prove_cases, cases, pending)

    async def look(self, loop: str = "") -> Sequence[str]:
        """Act on what is proven: retire harmful lessons, rank the others; return those retired.

        For a `loop` that has ended this is done only when enough loops have ended since the last
        time.
        """
        past = await self.store.read(self.scope, exposure_store.past, loop) if loop else None
        if past is not None and not proof.is_due(past.number):
            return ()
        cases, _ = await self.store.read(self.scope, exposure_store.evidence, proof.MOST_CALLS)
        found = await asyncio.to_thread(proof.find_proven, cases)  # takes seconds for many lessons
        useful = {str(one.lesson): proof.usefulness(one) for one in found}
        hurting = [one for one in found if one.conclusion == "hurts"]
        return await self.store.write(self.scope, exposure_store.conclude, useful, hurting)

    async def restore(self, id: int, *, by: str, why: str = "") -> None:
        """Bring back a lesson that a proof retired; only later evidence counts for it. Recorded.

        Raises NotFound, InvalidInput without an actor.
        """
        records.check_id(id)
        await self.store.write(self.scope, exposure_store.restore, id, by, why)

    async def top(self, limit: int = 20) -> Sequence[Mapping[str, Any]]:
        """Return the lessons seen most often, as plain data; quarantined text is left out."""
        check_integer("limit", limit, 0)
        return await self.store.read(self.scope, lesson_store.top, limit)

    async def pin(self, id: int, *, by: str, why: str = "", pinned: bool = True) -> None:
        """Protect a lesson from eviction, pruning and retirement, or stop that. Recorded.

        Raises NotFound, InvalidInput without an actor.
        """
        records.check_id(id)
        await self.store.write(self.scope, lesson_store.pin, id, pinned, by, why)

    async def prune(
        self,
        *,
        by: str,
        unused_for: float | None = None,
        keep: int | None = None,
        dry_run: bool = False,
    ) -> Sequence[Mapping[str, Any]]:
        """Remove lessons not seen or shown for `unused_for` seconds, and all but the best `keep`.

        Pinned and proven lessons stay. One transaction, recorded; returns what it removes, or with
        `dry_run` what it would remove, as plain data with `why`. Raises InvalidInput.
        """
        records.check_actor(by, "")
        if unused_for is None and keep is None:
            raise InvalidInput("prune", None, "given unused_for, keep, or both")
        if unused_for is not None:
            check_number("unused_for", unused_for, 1e-9, LARGEST)
        if keep is not None:
            check_integer("keep", keep, 0)
        bounds = unused_for or 0.0, -1 if keep is None else keep
        if dry_run:
            return await self.store.read(self.scope, lesson_store.prunable, *bounds)
        return await self.store.write(self.scope, lesson_store.prune, *bounds, by)

    async def spaces(self) -> Spaces:
        """Count the examples in each embedding space, as seen from the embedder."""
        return Spaces.of(await self.store.read(self.scope, search.spaces), space_of(self.embedder))

    async def reembed(self, progress: Progress | None = None) -> int:
        """Give each example without a vector in the embedder's space one; return how many got one.

        Works in small batches, each one transaction, while others may write. Stop it at any time;
        the next call continues. Raises InvalidInput without an embedder, ModelError, StoreError.
        """
        if self.embedder is None:
            raise InvalidInput("embedder", None, "an embedder, into whose space the examples move")
        space, last, done, total = space_of(self.embedder), 0, 0, (await self.spaces()).behind
        while batch := await self.store.read(self.scope, search.unplaced, space, last, BATCH):
            vectors = await embed(self.embedder, [text for _, text in batch])
            rows = [(*row, vector) for row, vector in zip(batch, vectors, strict=True)]
            done += await self.store.write(self.scope, search.place, space, rows)
            last = batch[-1][0]
            if progress is not None:
                progress(done, max(done, total))
        return done

    async def clear(self) -> int:
        """Forget everything learnt in this scope; return the number of lessons removed."""
        return await self.store.write(self.scope, lesson_store.clear)

    async def count(self) -> int:
        """Return the number of lessons in this scope."""
        return await self.store.read(self.scope, lesson_store.count)

    async def _embed(self, text: str) -> tuple[str, Sequence[float] | None]:
        if self.embedder is None or not text.strip():
            return "", None
        (vector,) = await embed(self.embedder, [redact(text)])
        return space_of(self.embedder), vector


async def write_lessons(
    memory: Memory, lessons: Sequence[Reflection], work: Callable[..., list[Remembered]], *key: str
) -> list[Remembered]:
    """Write lessons by the store's function `work`, with the embeddings of what finds them."""
    texts = [each.example.task if each.example else each.text for each in lessons]
    vectors = {text: await memory._embed(text) for text in dict.fromkeys(texts)}
    embedded = [
        replace(each, space=vectors[text][0], vector=vectors[text][1])
        for each, text in zip(lessons, texts, strict=True)
    ]
    most = memory.max_entries or 0
    return await memory.store.write(
        memory.scope, work, *key, embedded, most=most, quota=memory.quota
    )


class Quarantine:
    """The entries of one scope that wait for a ruling; every ruling is recorded.

    Made by `Memory.quarantine`. All methods raise StoreError.
    """

    def __init__(self, store: Store, scope: Scope) -> None:
        self._store, self._scope = store, scope

    async def waiting(self, limit: int = 50, after: int | None = None) -> list[QuarantinedLesson]:
        """Return the entries that wait, the newest first. Raises InvalidInput.

        `after` is the id of an entry: only older ones are returned.
        """
        check_integer("limit", limit)
        held = await self._store.read(self._scope, lesson_store.quarantined, None)
        older = [entry for entry in held if after is None or entry.id < after]
        return sorted(older, key=lambda entry: -entry.id)[:limit]

    async def show(self, id: int) -> QuarantinedLesson:
        """Return an entry, waiting or not, with its provenance. Raises NotFound, InvalidInput."""
        records.check_id(id)
        for entry in await self._store.read(self._scope, lesson_store.quarantined, [id]):
            provenance = await self._store.read(self._scope, lesson_store.provenance, entry)
            return replace(entry, provenance=provenance)
        where = f"the memory of {self._scope.tenant}/{self._scope.project}"
        raise NotFound("example", str(id), where)

    async def release(self, ids: Sequence[int], *, by: str, why: str = "") -> None:
        """Let these entries be recalled, with the trust of an operator: all of them, or none.

        Raises NotFound, InvalidInput without an id or an actor, and NotQuarantined if somebody
        ruled before.
        """
        records.check_sequence("ids", ids, int, "ids of what waits in quarantine")
        await self._store.write(self._scope, lesson_store.settle, ids, "release", by, why)

    async def reject(self, ids: Sequence[int], *, by: str, why: str = "") -> None:
        """Retire these entries; the same text does not return. All or none; raises as `release`."""
        records.check_sequence("ids", ids, int, "ids of what waits in quarantine")
        await self._store.write(self._scope, lesson_store.settle, ids, "reject", by, why)

    async def revoke(
        self, source: str, *, by: str = "", why: str = "", dry_run: bool = False
    ) -> RevocationResult:
        """Remove everything that depends on `source`, and its sightings, in one transaction.

        This includes what was derived from it and what loops learnt with it in their prompts. A
        lesson that other sources gave too stays in their words. With `dry_run` nothing is removed
        and no actor is needed. Raises NotFound if the source left nothing, InvalidInput without a
        name or an actor.
        """
        records.check_texts(source=source)
        if not source.strip():
            raise InvalidInput("source", source, "the name of a source")
        return await self._store.write(self._scope, lesson_store.revoke, source, by, why, dry_run)

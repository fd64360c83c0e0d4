"""What became of a text that was to be remembered, in the log `heedful`: never its content.

Where texts lie in the space of an embedder, and how a memory moves into another one.
The quarantine of one scope: what tools and documents said, until a person rules on it.
Memory, bound to one scope: remember, seen, recall, render.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Literal, cast

from heedful import telemetry
from heedful.errors import InvalidInput, NotFound
from heedful.lessons.evaluation import learn_from_evaluation
from heedful.lessons.learn import learn, with_vector
from heedful.lessons.lesson import (
    LONGEST,
    SHARE,
    Example,
    Filter,
    Match,
    Reflection,
    Remembered,
    Scope,
    Trust,
)
from heedful.lessons.patterns import Seen
from heedful.lessons.proof import MOST_CALLS, Proof, find_proven, is_due, prove_cases, usefulness
from heedful.lessons.ranking import (
    BUDGET,
    FIRST,
    Briefing,
    as_messages,
    as_text,
    choose,
    choose_for_loop,
    draw_exposures,
    keep_important,
    keep_usable,
    rank,
)
from heedful.lessons.signature import signature
from heedful.lessons.trust import (
    QuarantinedLesson,
    Quota,
    RevocationResult,
    check_bounds,
    check_digests,
    check_id,
    check_memory,
    check_prune,
    check_sequence,
    check_source,
    check_texts,
)
from heedful.loop.record import Loop, check_integer
from heedful.memory.transfer import Exported, File, Imported, Told
from heedful.models.contract import Embedder, Message
from heedful.redact import redact
from heedful.store import exposures as exposure_store
from heedful.store import lessons as lesson_store
from heedful.store import open_store, search
from heedful.store import patterns as pattern_store
from heedful.store import quarantine as quarantine_store
from heedful.store.store import Store

_log = logging.getLogger("heedful")


def noted(answer: Remembered | None) -> None:
    """One line: stored, duplicate, or skipped where nothing was learnt or there was no room."""
    if answer is None or not answer.id:
        _log.info("skipped")
    elif answer.created:
        _log.info("stored: lesson %d", answer.id)
    else:
        _log.info("duplicate: lesson %d, seen %d times", answer.id, answer.seen)


# So many of so many are done.
Progress = Callable[[int, int], None]
# Texts that are embedded and written together: 0.1 s of a small embedder on one core.
BATCH = 32


@dataclass(frozen=True, slots=True)
class Spaces:
    """Where the examples and lessons of a scope lie that recall looks through.

    `space` is that of the embedder in use, "" without one: `here` is how many lie in it,
    `elsewhere` how many in each other space, and `nowhere` how many have no vector. Recall compares
    vectors of its own space only; all else it finds by words.
    """

    space: str
    here: int = 0
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    nowhere: int = 0

    @classmethod
    def of(cls, counts: Mapping[str, int], space: str) -> Spaces:
        """The same counts, "" for those without a vector, seen from one of the spaces."""
        elsewhere = {name: n for name, n in sorted(counts.items()) if name not in ("", space)}
        return cls(space, counts.get(space, 0) if space else 0, elsewhere, counts.get("", 0))

    @property
    def behind(self) -> int:
        """How many `reembed` would move; 0 without an embedder, which needs no vectors."""
        return self.nowhere + sum(self.elsewhere.values()) if self.space else 0

    def __str__(self) -> str:
        others = [f"{count} in {space}" for space, count in self.elsewhere.items()]
        nowhere = [f"{self.nowhere} without a vector"] if self.nowhere else []
        here = [f"{self.here} in {self.space}"] if self.space else []
        return ", ".join([*here, *others, *nowhere])


def space_of(embedder: Embedder | None) -> str:
    """The name of an embedder's space: vectors of two names, or two lengths, are never compared."""
    return f"{embedder.name}/{embedder.dimensions}" if embedder is not None else ""


async def placed(embedder: Embedder, texts: Sequence[str]) -> Sequence[Sequence[float]]:
    """One vector a text. Raises InvalidInput where one is not as long as the embedder says."""
    vectors = await embedder.embed(texts)
    lengths = {len(one) for one in vectors}
    if len(vectors) != len(texts) or lengths - {embedder.dimensions}:
        found = f"{len(vectors)} vectors of {sorted(lengths)} numbers from {embedder.name}"
        wanted = f"{len(texts)} of the {embedder.dimensions} numbers that it names"
        raise InvalidInput("embedder", found, wanted)
    if not all(isfinite(sum(one)) for one in vectors):
        raise InvalidInput("embedder", embedder.name, "one that gives finite numbers")
    return vectors


async def reembed(
    store: Store, scope: Scope, embedder: Embedder | None, progress: Progress | None = None
) -> int:
    """Give every example a vector of the embedder's space that has none in it; how many got one.

    In small batches, each one transaction: it may be stopped at any time and goes on where it was
    when it is called again, and others may write meanwhile. Raises InvalidInput, ModelError,
    StoreError.
    """
    if embedder is None:
        raise InvalidInput("embedder", None, "one, whose space the examples move into")
    space, last, done = space_of(embedder), 0, 0
    total = Spaces.of(await store.read(scope, search.spaces), space).behind
    while batch := await store.read(scope, search.unplaced, space, last, BATCH):
        vectors = await placed(embedder, [text for _, text in batch])
        places: list[tuple[int, str, Any]] = [
            (id, text, vector) for (id, text), vector in zip(batch, vectors, strict=True)
        ]
        done += await store.write(scope, search.place, space, places)
        last = batch[-1][0]
        if progress is not None:
            progress(done, max(done, total))
    return done


REVIEW_BATCH = 100  # entries that are screened in one go: about 0.1 s
IDS = "ids of what waits in quarantine"


class Quarantine:
    """What waits for a ruling, and the sources of all that was learnt. Every ruling is on record.

    Bound to a scope: `Memory.quarantine`. All raise StoreError.
    """

    def __init__(self, store: Store, scope: Scope) -> None:
        self._store, self._scope = store, scope

    async def waiting(
        self,
        limit: int = 50,
        progress: Progress | None = None,
        after: tuple[float, int] | None = None,
    ) -> list[QuarantinedLesson]:
        """What waits, the worst by the screen first, then the newest. Raises InvalidInput.

        The score is an order to read in; it keeps nothing out and lets nothing in. All that waits
        is screened, beside the event loop; `progress` is told how many of how many were. `after`:
        what comes after the entry of that score and id.
        """
        check_integer("limit", limit)
        held = await self._store.read(self._scope, quarantine_store.entries, None)
        found: list[QuarantinedLesson] = []
        for n in range(0, len(held), REVIEW_BATCH):
            found += await asyncio.to_thread(screened, held[n : n + REVIEW_BATCH])
            if progress is not None:
                progress(len(found), len(held))
        if after is not None:
            found = [one for one in found if (one.score, one.id) < after]
        return sorted(found, key=lambda one: (-one.score, -one.id))[:limit]

    async def show(self, id: int) -> QuarantinedLesson:
        """An example, waiting or not, and where it comes from. Raises NotFound, InvalidInput."""
        check_id(id)
        for one in await self._store.read(self._scope, quarantine_store.entries, [id]):
            provenance = await self._store.read(self._scope, quarantine_store.provenance, one)
            return replace(_screened(one), provenance=provenance)
        where = f"the memory of {self._scope.tenant}/{self._scope.project}"
        raise NotFound("example", str(id), where)

    async def release(self, ids: Sequence[int], *, by: str, why: str = "") -> None:
        """Let these be recalled, with the trust of the operator `by`: all of them, or none.

        Raises NotFound, InvalidInput without an id or an actor, and NotQuarantined where somebody
        ruled before.
        """
        check_sequence("ids", ids, int, IDS)
        await self._store.write(self._scope, quarantine_store.settle, ids, "release", by, why)

    async def reject(self, ids: Sequence[int], *, by: str, why: str = "") -> None:
        """Retire these: the same text comes back no more. All or none; raises as `release`."""
        check_sequence("ids", ids, int, IDS)
        await self._store.write(self._scope, quarantine_store.settle, ids, "reject", by, why)

    async def revoke(
        self, source: str, *, by: str = "", why: str = "", dry_run: bool = False
    ) -> RevocationResult:
        """Remove all that rests on `source`, and what it saw, in one transaction.

        Also what was derived from it, and what loops learnt with it in their prompts. A lesson that
        others have said, too, stays in their words. With `dry_run` nothing is removed, and nobody
        need answer for it. Raises NotFound where the source left nothing, InvalidInput without a
        name or an actor.
        """
        check_texts(source=source)
        if not source.strip():
            raise InvalidInput("source", source, "the name of a source")
        return await self._store.write(
            self._scope, quarantine_store.revoke, source, by, why, dry_run
        )


def screened(held: Sequence[QuarantinedLesson]) -> list[QuarantinedLesson]:
    """The same with their scores, 0.3 ms each for 600 characters."""
    return [_screened(one) for one in held]


def _screened(one: QuarantinedLesson) -> QuarantinedLesson:
    from heedful.memory.screen import screen  # whose many words only this needs

    # Each by itself, since of a long text the screen reads the ends, and all, lest one is split.
    told = dict.fromkeys((*one.texts, "\n".join(one.texts)))
    said = max(map(screen, told), key=lambda screening: screening.score)
    return replace(one, score=said.score, why=said.why)


LEG = 30  # candidates of each leg: 10 lose 0.01 of recall@5, 50 gain nothing and cost a third more


class Memory:
    """What was learnt in one scope, kept in a store.

    `store` is a Store or its name (a path, or `:memory:`). Recall compares words, and with an
    `embedder` meanings, too. `holdout` is the share of what recall ranks into prompts that a coin
    withholds, so that there is something to compare with: at least 0, which is off, and below 1.
    `max_entries` bounds the lessons of the scope, and their examples: for a new lesson the least
    useful is evicted, what is quarantined first, for a new example the oldest; never what is
    pinned. `quota` bounds what one source that is not trusted may have. Raises InvalidInput.
    """

    def __init__(
        self,
        store: Store | str,
        scope: Scope | None = None,
        embedder: Embedder | None = None,
        holdout: float = SHARE,
        max_entries: int | None = None,
        quota: Quota | None = None,
    ) -> None:
        check_bounds(holdout, max_entries, quota)
        self.store: Store = open_store(store) if isinstance(store, str) else store
        self.scope: Scope = scope or Scope()
        self.embedder = embedder
        self.holdout = holdout
        self.max_entries = max_entries
        self.quota: Quota = quota or Quota()

    @classmethod
    def of(cls, memory: Memory | Store | str, scope: Scope | None) -> Memory:
        """The memory itself, or one in a store or in the store of that name."""
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

        `recall` finds it by the task of its example, or without one by its own words; and by the
        words of `context`, what stood around it, which has no part in its meaning. `trust` says
        where the text came from, and `source` names it, so that it can be revoked; what a tool or
        a document said is quarantined. What is `derived_from` examples, by their ids, has the
        lowest trust of all. `tags` and `importance` (0..1) are those of a new lesson. An operator
        may have it `pinned`. Raises InvalidInput, QuotaExceeded, StoreError: it never fails silent.
        """
        check_texts(error_type=error_type, text=text, lesson=lesson, context=context)
        check_memory(text, trust, importance, tags, example, derived_from, pinned)
        text = redact(text)  # before a mask or a cut parts a secret
        one = Reflection(
            "error",
            signature(error_type, text),
            error_type,
            (redact(lesson) or text)[:LONGEST],
            text[:LONGEST],
            example=replace(example, context=example.context or context) if example else None,
            trust=trust,
            importance=importance,
            tags=tuple(tags),
            context=context,
            source=check_source(source),
            parents=tuple(derived_from),
            pinned=pinned,
        )
        return await self.keep(one)

    @telemetry.upsert
    async def keep(self, one: Reflection) -> Remembered:
        """Write one lesson as it is. Raises InvalidInput, QuotaExceeded, StoreError."""
        space, vector = await self._place(one.example.task if one.example else one.text)
        found, most = with_vector([one], space, vector), self.max_entries or 0
        (answer,) = await self.store.write(
            self.scope, exposure_store.remember, found, most=most, quota=self.quota
        )
        noted(answer)
        return answer

    async def learn_from_evaluation(
        self,
        critique: str | None,
        verification: Sequence[Mapping[str, Any]] | None,
        query: str | None,
        context: str | None,
        iteration: int,
        quality_before: float | None,
        quality_after: float | None,
        *,
        trust: Trust | None = None,
        source: str = "",
    ) -> Remembered | None:
        """Remember what an evaluation from outside teaches; None where that is nothing.

        Arguments as of `heedful.lessons.evaluation.learn_from_evaluation`. Raises
        InvalidInput, QuotaExceeded, StoreError.
        """
        said = critique, verification, query, context, iteration, quality_before, quality_after
        one = learn_from_evaluation(*said, trust=trust, source=source)
        if one is None:
            noted(None)
        return None if one is None else await self.keep(one)

    @property
    def quarantine(self) -> Quarantine:
        """What tools and documents said: read, release or reject it, and revoke a source."""
        return Quarantine(self.store, self.scope)

    async def seen(self, error_type: str, text: str) -> Seen:
        """Have I seen this error before? Indexed reads. Raises StoreError.

        Counts the sightings of its pattern, and of those that evidence has merged with it.
        """
        check_texts(error_type=error_type, text=text)
        return await self.store.read(
            self.scope, pattern_store.seen, signature(error_type, redact(text))
        )

    async def patterns(self, error_type: str = "") -> Sequence[Mapping[str, Any]]:
        """Which patterns are merged, and which are kept apart, as plain data, and why."""
        return await self.store.read(self.scope, pattern_store.list_patterns, error_type)

    async def unmerge(self, *digests: str, by: str, why: str = "") -> None:
        """Count patterns apart from all others from now on; on record, and taken back by `remerge`.

        Raises NotFound for a digest without a lesson, InvalidInput without one or without an actor.
        """
        check_digests(digests)
        await self.store.write(self.scope, pattern_store.set_apart, digests, True, by, why)

    async def remerge(self, *digests: str, by: str, why: str = "") -> None:
        """Let patterns that were kept apart be grouped by evidence again. Raises as `unmerge`."""
        check_digests(digests)
        await self.store.write(self.scope, pattern_store.set_apart, digests, False, by, why)

    async def suggest(self, limit: int = 20, among: int = 500) -> Sequence[Mapping[str, Any]]:
        """Pairs of lessons whose words mean nearly the same, for a person to judge.

        Compares the `among` lessons most often seen; merges nothing. Raises InvalidInput without
        an embedder, ModelError, StoreError.
        """
        if self.embedder is None:
            raise InvalidInput("embedder", None, "one, since likeness is one of meanings")
        active = ("candidate", "verified")
        lessons = [one for one in await self.top(among) if one["state"] in active]
        vectors = await self.embedder.embed([one["text"] for one in lessons])
        from heedful.lessons.patterns import suggest_merges

        return suggest_merges(lessons, vectors, await self.patterns())[:limit]

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
        """What fits the task, best first: examples, and lessons without one; else nothing.

        Only of lessons with any of the `tags` (or all, with `match`), of that `kind` and
        `error_type`, of at least that `importance` (0..1), stored `since` that time (seconds since
        1970). Raises InvalidInput, StoreError.
        """
        check_integer("limit", limit)
        check_texts(task=task)
        chosen = tags if isinstance(tags, str) else tuple(tags)
        only = Filter(cast("tuple[str, ...]", chosen), match, kind, error_type, importance, since)
        space, vector = await self._place(task)
        found = await self.store.read(
            self.scope, search.search, task, space, vector, max(LEG, limit), only
        )
        return rank(task, keep_important(found, only), limit, time.time())

    def render(self, found: Sequence[Match], budget: int = BUDGET) -> tuple[Message, ...]:
        """Chat turns for a prompt: the near ones, at most 3, at most 1 of them not verified.

        They have at most `budget` tokens, as heedful estimates them; what does not fit is left out
        whole. Each says in its `source` where it comes from.
        """
        return as_messages(choose(found, budget=budget, now=time.time()))

    def render_text(self, found: Sequence[Match], budget: int = BUDGET) -> str:
        """The same as one text between delimiters that nobody can guess; "" for nothing.

        Lessons without an example are in it, too; headings and delimiters count.
        """
        seed = secrets.randbits(64)
        chosen = choose(found, budget=budget, now=time.time(), advice=True, seed=seed)
        return as_text(as_messages(chosen), seed, chosen)

    @telemetry.search
    async def brief(
        self, task: str, loop: str, begins: bool = True, examples: bool | None = True
    ) -> Briefing:
        """What to show a loop before its task, and what a coin withholds of that.

        The coin is of the scope, the loop and the lesson. A loop briefed before, which has written
        it down, is shown the same again; one that no longer `begins`, nothing else. Without
        `examples` lessons without an accepted output, learnt from the very task; with None both.
        """
        space, vector = await self._place(task)
        found = keep_usable(
            await self.store.read(self.scope, search.search, task, space, vector, LEG),
            task,
            examples,
        )
        past = await self.store.read(self.scope, exposure_store.past, loop)
        if past.exposures:
            before = {id for one in past.exposures for id in one.examples}
            found = [one for one in found if one.id in before]
        now = time.time()
        chosen = choose_for_loop(rank(task, keep_important(found), len(found), now), now, examples)
        share = self.holdout if past.ended >= FIRST else 0.0
        seed = f"{self.scope.tenant}\0{self.scope.project}"
        exposures = past.exposures or (draw_exposures(chosen, loop, seed, share) if begins else ())
        return Briefing.of(chosen, exposures, space, vector)

    def lessons(
        self, loop: Loop, task: str, briefing: Briefing, outputs: bool = True
    ) -> tuple[Reflection, ...]:
        """What a finished loop teaches (see `learn`); it rests on what the loop was shown.

        So to revoke a source removes what was learnt with its text in the prompt, too.
        """
        found = with_vector(learn(loop, task, outputs), briefing.space, briefing.vector)
        told, ids = f"loop:{loop.id}", briefing.shown
        return tuple(replace(one, source=told, parents=ids) for one in found)

    async def prove(self) -> Proof:
        """What the exposures and outcomes of this scope prove about its lessons."""
        cases, pending = await self.store.read(self.scope, exposure_store.evidence, MOST_CALLS)
        return await asyncio.to_thread(prove_cases, cases, pending)

    async def look(self, loop: str = "") -> Sequence[str]:
        """After a loop has ended, where it is time, or at any: prove and act; what was retired.

        Proven harm retires a lesson, what is proven of the others changes their rank.
        """
        if loop and not is_due(
            (await self.store.read(self.scope, exposure_store.past, loop)).number
        ):
            return ()
        cases, _ = await self.store.read(self.scope, exposure_store.evidence, MOST_CALLS)
        found = await asyncio.to_thread(find_proven, cases)  # seconds, where lessons are many
        useful = {str(one.lesson): usefulness(one) for one in found}
        hurting = [one for one in found if one.conclusion == "hurts"]
        return await self.store.write(self.scope, exposure_store.conclude, useful, hurting)

    async def restore(self, id: int, *, by: str, why: str = "") -> None:
        """Bring back a lesson that a proof retired; on record.

        What was proven is put aside: from now on only what comes after counts for the lesson or
        against it. Raises NotFound, InvalidInput without an actor.
        """
        check_id(id)
        await self.store.write(self.scope, exposure_store.restore, id, by, why)

    async def top(self, limit: int = 20) -> Sequence[Mapping[str, Any]]:
        """The most seen, as plain data, but for words held back. Raises InvalidInput."""
        check_integer("limit", limit, 0)
        return await self.store.read(self.scope, lesson_store.top, limit)

    async def pin(self, id: int, *, by: str, why: str = "") -> None:
        """Keep a lesson from eviction, pruning and retirement; on record.

        Raises NotFound, InvalidInput without an actor.
        """
        check_id(id)
        await self.store.write(self.scope, lesson_store.pin, id, True, by, why)

    async def unpin(self, id: int, *, by: str, why: str = "") -> None:
        """Take a pin back. Raises as `pin`."""
        check_id(id)
        await self.store.write(self.scope, lesson_store.pin, id, False, by, why)

    async def prune(
        self,
        *,
        by: str,
        unused_for: float | None = None,
        keep: int | None = None,
        dry_run: bool = False,
    ) -> Sequence[Mapping[str, Any]]:
        """Remove what was neither seen nor shown for `unused_for` seconds, and all but `keep`.

        Never what is pinned or has proved helpful. One transaction, on record; answers what is
        removed, or with `dry_run` what would be, as plain data with `why`. Raises InvalidInput.
        """
        check_prune(unused_for, keep, by)
        least = -1 if keep is None else keep
        unused = unused_for or 0.0
        if dry_run:
            return await self.store.read(self.scope, lesson_store.prunable, unused, least)
        return await self.store.write(self.scope, lesson_store.prune, unused, least, by)

    async def spaces(self) -> Spaces:
        """Where the examples lie, seen from the embedder: whether it was changed since."""
        return Spaces.of(await self.store.read(self.scope, search.spaces), space_of(self.embedder))

    async def reembed(self, progress: Progress | None = None) -> int:
        """Give a vector to each example without one in the embedder's space; how many those were.

        In small batches, so a host may run it as a task beside its work and stop it at any time.
        Raises InvalidInput without an embedder, ModelError, StoreError.
        """
        return await reembed(self.store, self.scope, self.embedder, progress)

    async def export(
        self,
        file: File,
        *,
        vectors: bool = True,
        force: bool = False,
        progress: Told | None = None,
    ) -> Exported:
        """Write all that was learnt, as of one moment, to a path or an open binary file.

        A path is written whole or not at all, one that is there only with `force`. Without
        `vectors` the file is half as large. Raises InvalidInput, StoreError.
        """
        from heedful.memory.transfer import export  # 0.6 MB, as `pathlib` is

        return await export(self.store, self.scope, file, vectors, force, progress)

    async def import_(
        self,
        file: File,
        *,
        trust: Literal["external", "operator"] = "external",
        by: str = "",
        why: str = "",
        progress: Told | None = None,
    ) -> Imported:
        """Take in what `export` wrote, each thing once, however often; or nothing if it is damaged.

        It waits in quarantine, unless an operator vouches for it, `by` name and with a reason, on
        record: then it is as it was there. Raises ExportFileError, InvalidInput, StoreError.
        """
        from heedful.memory.transfer import import_

        return await import_(self.store, self.scope, file, trust, by, why, progress)

    async def clear(self) -> int:
        """Forget everything learnt in this scope; how many lessons that were."""
        return await self.store.write(self.scope, lesson_store.clear)

    async def count(self) -> int:
        """How many lessons there are in this scope."""
        return await self.store.read(self.scope, lesson_store.count)

    async def _place(self, text: str) -> tuple[str, Sequence[float] | None]:
        if self.embedder is None or not text.strip():
            return "", None
        (vector,) = await placed(self.embedder, [redact(text)])
        return space_of(self.embedder), vector

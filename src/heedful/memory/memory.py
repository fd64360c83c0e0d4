"""Memory of one scope: remember, seen, recall, render, and what a loop learns and is shown.

Its quarantine keeps lessons from tools and documents until a person rules on them. They never reach
a prompt before.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from heedful import telemetry
from heedful.errors import InvalidInput, NotFound
from heedful.lessons.learn import learn, learn_from_evaluation, with_vector
from heedful.lessons.lesson import (
    LONGEST,
    SHARE,
    Example,
    Filter,
    Match,
    Quota,
    Reflection,
    Remembered,
    Scope,
    Trust,
    check_bounds,
    check_digests,
    check_id,
    check_memory,
    check_prune,
    check_sequence,
    check_source,
    check_texts,
)
from heedful.lessons.patterns import Seen, suggest_merges
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
from heedful.lessons.trust import QuarantinedLesson, RevocationResult
from heedful.loop.record import Loop, check_integer
from heedful.memory.spaces import Progress, Spaces, embed, reembed, space_of
from heedful.memory.transfer import (
    Exported,
    File,
    Imported,
    TransferProgress,
    export_to,
    import_from,
)
from heedful.models.contract import Embedder, Message
from heedful.redact import redact
from heedful.store import exposures as exposure_store
from heedful.store import lessons as lesson_store
from heedful.store import open_store, search
from heedful.store import patterns as pattern_store
from heedful.store.store import Store

_log = logging.getLogger("heedful")


def _log_answer(answer: Remembered | None) -> None:
    """Log stored, duplicate, or skipped if nothing was learnt or there was no room."""
    if answer is None or not answer.id:
        _log.info("skipped")
    elif answer.created:
        _log.info("stored: lesson %d", answer.id)
    else:
        _log.info("duplicate: lesson %d, seen %d times", answer.id, answer.seen)


LEG = 30  # candidates of each leg: 10 lose 0.01 of recall@5, 50 gain nothing and cost a third more


class Memory:
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
        check_texts(error_type=error_type, text=text, lesson=lesson, context=context)
        check_memory(text, trust, importance, tags, example, derived_from, pinned)
        text = redact(text)  # before masking or cutting could split a secret
        reflection = Reflection(
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
        return await self.keep(reflection)

    @telemetry.upsert
    async def keep(self, reflection: Reflection) -> Remembered:
        """Store a lesson as it is. Raises InvalidInput, QuotaExceeded, StoreError."""
        example = reflection.example
        space, vector = await self._embed(example.task if example else reflection.text)
        lessons, most = with_vector([reflection], space, vector), self.max_entries or 0
        (answer,) = await self.store.write(
            self.scope, exposure_store.remember, lessons, most=most, quota=self.quota
        )
        _log_answer(answer)
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
        """Remember what an evaluation from outside teaches; return None if it teaches nothing.

        Takes the arguments of `heedful.lessons.learn.learn_from_evaluation`. Raises
        InvalidInput, QuotaExceeded, StoreError.
        """
        values = critique, verification, query, context, iteration, quality_before, quality_after
        reflection = learn_from_evaluation(*values, trust=trust, source=source)
        if reflection is None:
            _log_answer(None)
            return None
        return await self.keep(reflection)

    @property
    def quarantine(self) -> Quarantine:
        """The entries that wait for a ruling: read, release or reject them; revoke a source."""
        return Quarantine(self.store, self.scope)

    async def seen(self, error_type: str, text: str) -> Seen:
        """Count the sightings of an error's pattern, and of patterns merged with it by evidence.

        Makes indexed reads only. Raises StoreError.
        """
        check_texts(error_type=error_type, text=text)
        return await self.store.read(
            self.scope, pattern_store.seen, signature(error_type, redact(text))
        )

    async def patterns(self, error_type: str = "") -> Sequence[Mapping[str, Any]]:
        """List the patterns that are merged or kept apart, as plain data, each with the reason."""
        return await self.store.read(self.scope, pattern_store.list_patterns, error_type)

    async def unmerge(self, *digests: str, by: str, why: str = "") -> None:
        """Count these patterns apart from all others from now on; `remerge` undoes it. Recorded.

        Raises NotFound for a digest without a lesson, InvalidInput without a digest or an actor.
        """
        check_digests(digests)
        await self.store.write(self.scope, pattern_store.set_apart, digests, True, by, why)

    async def remerge(self, *digests: str, by: str, why: str = "") -> None:
        """Let evidence group these patterns again. Raises as `unmerge`."""
        check_digests(digests)
        await self.store.write(self.scope, pattern_store.set_apart, digests, False, by, why)

    async def suggest(self, limit: int = 20, among: int = 500) -> Sequence[Mapping[str, Any]]:
        """Return pairs of lessons with nearly the same meaning, for a person to judge.

        Compares the `among` lessons that were seen most often, and merges nothing. Raises
        InvalidInput without an embedder, ModelError, StoreError.
        """
        if self.embedder is None:
            raise InvalidInput("embedder", None, "an embedder, because this compares meanings")
        active = ("candidate", "verified")
        lessons = [lesson for lesson in await self.top(among) if lesson["state"] in active]
        vectors = await self.embedder.embed([lesson["text"] for lesson in lessons])
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
        """Return the examples, and the lessons without one, that fit the task, best first.

        Only lessons with any of the `tags` (`match="all"`: with all), of that `kind` and
        `error_type`, of at least that `importance` (0..1), stored `since` that time (seconds since
        1970). Raises InvalidInput, StoreError.
        """
        check_integer("limit", limit)
        check_texts(task=task)
        chosen = tags if isinstance(tags, str) else tuple(tags)
        only = Filter(cast("tuple[str, ...]", chosen), match, kind, error_type, importance, since)
        space, vector = await self._embed(task)
        most = max(LEG, limit)
        found = await self.store.read(self.scope, search.search, task, space, vector, most, only)
        return rank(task, keep_important(found, only), limit, time.time())

    def render(self, found: Sequence[Match], budget: int = BUDGET) -> tuple[Message, ...]:
        """Return chat turns for a prompt: at most 3 near examples, at most 1 of them not verified.

        They have at most `budget` tokens, as heedful estimates them; an example that does not fit
        is left out. Each turn names its origin in `source`.
        """
        return as_messages(choose(found, budget=budget, now=time.time()))

    def render_text(self, found: Sequence[Match], budget: int = BUDGET) -> str:
        """Return examples and lessons as one text between delimiters that nobody can guess, or "".

        The budget includes headings and delimiters.
        """
        seed = secrets.randbits(64)
        chosen = choose(found, budget=budget, now=time.time(), advice=True, seed=seed)
        return as_text(as_messages(chosen), seed, chosen)

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
        """Return the lessons of a finished loop (see `learn`), derived from what it was shown.

        So revoking a source also removes what was learnt with its text in the prompt.
        """
        found = with_vector(learn(loop, task, outputs), briefing.space, briefing.vector)
        source, parents = f"loop:{loop.id}", briefing.shown
        return tuple(replace(lesson, source=source, parents=parents) for lesson in found)

    async def prove(self) -> Proof:
        """Return what exposures and outcomes of this scope prove about its lessons."""
        cases, pending = await self.store.read(self.scope, exposure_store.evidence, MOST_CALLS)
        return await asyncio.to_thread(prove_cases, cases, pending)

    async def look(self, loop: str = "") -> Sequence[str]:
        """Act on what is proven: retire harmful lessons, rank the others; return those retired.

        For a `loop` that has ended this is done only when enough loops have ended since the last
        time.
        """
        if loop and not is_due(
            (await self.store.read(self.scope, exposure_store.past, loop)).number
        ):
            return ()
        cases, _ = await self.store.read(self.scope, exposure_store.evidence, MOST_CALLS)
        found = await asyncio.to_thread(find_proven, cases)  # takes seconds for many lessons
        useful = {str(one.lesson): usefulness(one) for one in found}
        hurting = [one for one in found if one.conclusion == "hurts"]
        return await self.store.write(self.scope, exposure_store.conclude, useful, hurting)

    async def restore(self, id: int, *, by: str, why: str = "") -> None:
        """Bring back a lesson that a proof retired; only later evidence counts for it. Recorded.

        Raises NotFound, InvalidInput without an actor.
        """
        check_id(id)
        await self.store.write(self.scope, exposure_store.restore, id, by, why)

    async def top(self, limit: int = 20) -> Sequence[Mapping[str, Any]]:
        """Return the lessons seen most often, as plain data; quarantined text is left out."""
        check_integer("limit", limit, 0)
        return await self.store.read(self.scope, lesson_store.top, limit)

    async def pin(self, id: int, *, by: str, why: str = "") -> None:
        """Protect a lesson from eviction, pruning and retirement. Recorded.

        Raises NotFound, InvalidInput without an actor.
        """
        check_id(id)
        await self.store.write(self.scope, lesson_store.pin, id, True, by, why)

    async def unpin(self, id: int, *, by: str, why: str = "") -> None:
        """Undo `pin`. Raises as `pin`."""
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
        """Remove lessons not seen or shown for `unused_for` seconds, and all but the best `keep`.

        Pinned and proven lessons stay. One transaction, recorded; returns what it removes, or with
        `dry_run` what it would remove, as plain data with `why`. Raises InvalidInput.
        """
        check_prune(unused_for, keep, by)
        least = -1 if keep is None else keep
        unused = unused_for or 0.0
        if dry_run:
            return await self.store.read(self.scope, lesson_store.prunable, unused, least)
        return await self.store.write(self.scope, lesson_store.prune, unused, least, by)

    async def spaces(self) -> Spaces:
        """Count the examples in each embedding space, as seen from the embedder."""
        return Spaces.of(await self.store.read(self.scope, search.spaces), space_of(self.embedder))

    async def reembed(self, progress: Progress | None = None) -> int:
        """Give each example without a vector in the embedder's space one; return how many got one.

        Works in small batches, so a host can run it as a background task and stop it at any time.
        Raises InvalidInput without an embedder, ModelError, StoreError.
        """
        return await reembed(self.store, self.scope, self.embedder, progress)

    async def export(
        self,
        file: File,
        *,
        vectors: bool = True,
        force: bool = False,
        progress: TransferProgress | None = None,
    ) -> Exported:
        """Write everything learnt, as of one moment, to a path or an open binary file.

        A path is written whole or not at all; an existing file is replaced only with `force`.
        Without `vectors` the file is half as large. Raises InvalidInput, StoreError.
        """
        return await export_to(self.store, self.scope, file, vectors, force, progress)

    async def import_(
        self,
        file: File,
        *,
        trust: Literal["external", "operator"] = "external",
        by: str = "",
        why: str = "",
        progress: TransferProgress | None = None,
    ) -> Imported:
        """Add what `export` wrote, each record once however often; nothing of a damaged file.

        It waits in quarantine, unless an operator vouches for it, `by` name and with a reason; then
        it keeps its trust and state, and that is recorded. Raises ExportFileError, InvalidInput,
        StoreError.
        """
        return await import_from(self.store, self.scope, file, trust, by, why, progress)

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


IDS = "ids of what waits in quarantine"


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
        check_id(id)
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
        check_sequence("ids", ids, int, IDS)
        await self._store.write(self._scope, lesson_store.settle, ids, "release", by, why)

    async def reject(self, ids: Sequence[int], *, by: str, why: str = "") -> None:
        """Retire these entries; the same text does not return. All or none; raises as `release`."""
        check_sequence("ids", ids, int, IDS)
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
        check_texts(source=source)
        if not source.strip():
            raise InvalidInput("source", source, "the name of a source")
        return await self._store.write(self._scope, lesson_store.revoke, source, by, why, dry_run)

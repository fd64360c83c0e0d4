"""Memory, bound to one scope: remember, seen, recall, render."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

from heedful import telemetry
from heedful.errors import InvalidInput
from heedful.lessons import Seen
from heedful.loop.record import Loop
from heedful.memory.arguments import (
    bounds,
    integer,
    named,
    numbered,
    pruned,
    remembered,
    signatures,
    texts,
)
from heedful.memory.briefing import FIRST, Briefing, drawn, own
from heedful.memory.evaluation import learn_from_evaluation
from heedful.memory.learn import LONGEST, Example, Reflection, Trust, learn, located
from heedful.memory.noted import noted
from heedful.memory.places import Progress, Spaces, placed, reembed, space_of
from heedful.memory.proof import MOST_CALLS, SHARE, Proof, concluded, due, proven, usefulness
from heedful.memory.quarantine import Quarantine
from heedful.memory.recall import BUDGET, as_messages, as_text, briefed, choose, offered, rank
from heedful.memory.signature import signature
from heedful.memory.trust import Quota
from heedful.protocols import Embedder, Filter, Found, Message, Remembered, Scope, Store
from heedful.redact import redacted
from heedful.store import open_store

if TYPE_CHECKING:
    from heedful.memory.transfer import Exported, File, Imported, Told

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
        bounds(holdout, max_entries, quota)
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
        texts(error_type=error_type, text=text, lesson=lesson, context=context)
        remembered(text, trust, importance, tags, example, derived_from, pinned)
        text = redacted(text)  # before a mask or a cut parts a secret
        one = Reflection(
            "error",
            signature(error_type, text),
            error_type,
            (redacted(lesson) or text)[:LONGEST],
            text[:LONGEST],
            example=replace(example, context=example.context or context) if example else None,
            trust=trust,
            importance=importance,
            tags=tuple(tags),
            context=context,
            source=named(source),
            parents=tuple(derived_from),
            pinned=pinned,
        )
        return await self.keep(one)

    @telemetry.upsert
    async def keep(self, one: Reflection) -> Remembered:
        """Write one lesson as it is. Raises InvalidInput, QuotaExceeded, StoreError."""
        space, vector = await self._place(one.example.task if one.example else one.text)
        found, most = located([one], space, vector), self.max_entries or 0
        (answer,) = await self.store.remember(self.scope, found, most=most, quota=self.quota)
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

        Arguments and what is learnt as of `heedful.memory.evaluation.learn_from_evaluation`. Raises
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
        texts(error_type=error_type, text=text)
        return await self.store.seen(self.scope, signature(error_type, redacted(text)))

    async def patterns(self, error_type: str = "") -> Sequence[Mapping[str, Any]]:
        """Which patterns are merged, and which are kept apart, as plain data, and why."""
        return await self.store.patterns(self.scope, error_type)

    async def unmerge(self, *digests: str, by: str, why: str = "") -> None:
        """Count patterns apart from all others from now on; on record, and taken back by `remerge`.

        Raises NotFound for a digest without a lesson, InvalidInput without one or without an actor.
        """
        signatures(digests)
        await self.store.set_apart(self.scope, digests, True, by, why)

    async def remerge(self, *digests: str, by: str, why: str = "") -> None:
        """Let patterns that were kept apart be grouped by evidence again. Raises as `unmerge`."""
        signatures(digests)
        await self.store.set_apart(self.scope, digests, False, by, why)

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
        from heedful.memory.alike import alike

        return alike(lessons, vectors, await self.patterns())[:limit]

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
    ) -> list[Found]:
        """What fits the task, best first: examples, and lessons without one; else nothing.

        Only of lessons with any of the `tags` (or all, with `match`), of that `kind` and
        `error_type`, of at least that `importance` (0..1), stored `since` that time (seconds since
        1970). Raises InvalidInput, StoreError.
        """
        integer("limit", limit)
        texts(task=task)
        chosen = tags if isinstance(tags, str) else tuple(tags)
        only = Filter(cast("tuple[str, ...]", chosen), match, kind, error_type, importance, since)
        space, vector = await self._place(task)
        found = await self.store.search(self.scope, task, space, vector, max(LEG, limit), only)
        return rank(task, offered(found, only), limit, time.time())

    def render(self, found: Sequence[Found], budget: int = BUDGET) -> tuple[Message, ...]:
        """Chat turns for a prompt: the near ones, at most 3, at most 1 of them not verified.

        They have at most `budget` tokens, as heedful estimates them; what does not fit is left out
        whole. Each says in its `source` where it comes from.
        """
        return as_messages(choose(found, budget=budget, now=time.time()))

    def render_text(self, found: Sequence[Found], budget: int = BUDGET) -> str:
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
        found = own(await self.store.search(self.scope, task, space, vector, LEG), task, examples)
        past = await self.store.past(self.scope, loop)
        if past.exposures:
            before = {id for one in past.exposures for id in one.examples}
            found = [one for one in found if one.id in before]
        now = time.time()
        chosen = briefed(rank(task, offered(found), len(found), now), now, examples)
        share = self.holdout if past.ended >= FIRST else 0.0
        seed = f"{self.scope.tenant}\0{self.scope.project}"
        exposures = past.exposures or (drawn(chosen, loop, seed, share) if begins else ())
        return Briefing.of(chosen, exposures, space, vector)

    def lessons(
        self, loop: Loop, task: str, briefing: Briefing, outputs: bool = True
    ) -> tuple[Reflection, ...]:
        """What a finished loop teaches (see `learn`); it rests on what the loop was shown.

        So to revoke a source removes what was learnt with its text in the prompt, too.
        """
        found = located(learn(loop, task, outputs), briefing.space, briefing.vector)
        told, ids = f"loop:{loop.id}", briefing.shown
        return tuple(replace(one, source=told, parents=ids) for one in found)

    async def prove(self) -> Proof:
        """What the exposures and outcomes of this scope prove about its lessons."""
        cases, pending = await self.store.evidence(self.scope, MOST_CALLS)
        return await asyncio.to_thread(concluded, cases, pending)

    async def look(self, loop: str = "") -> Sequence[str]:
        """After a loop has ended, where it is time, or at any: prove and act; what was retired.

        Proven harm retires a lesson, what is proven of the others changes their rank.
        """
        if loop and not due((await self.store.past(self.scope, loop)).number):
            return ()
        cases, _ = await self.store.evidence(self.scope, MOST_CALLS)
        found = await asyncio.to_thread(proven, cases)  # seconds, where lessons are many
        useful = {str(one.lesson): usefulness(one) for one in found}
        hurting = [one for one in found if one.conclusion == "hurts"]
        return await self.store.conclude(self.scope, useful, hurting)

    async def restore(self, id: int, *, by: str, why: str = "") -> None:
        """Bring back a lesson that a proof retired; on record.

        What was proven is put aside: from now on only what comes after counts for the lesson or
        against it. Raises NotFound, InvalidInput without an actor.
        """
        numbered(id)
        await self.store.restore(self.scope, id, by, why)

    async def top(self, limit: int = 20) -> Sequence[Mapping[str, Any]]:
        """The most seen, as plain data, but for words held back. Raises InvalidInput."""
        integer("limit", limit, 0)
        return await self.store.reflections(self.scope, limit)

    async def pin(self, id: int, *, by: str, why: str = "") -> None:
        """Keep a lesson from eviction, pruning and retirement; on record.

        Raises NotFound, InvalidInput without an actor.
        """
        numbered(id)
        await self.store.pin(self.scope, id, True, by, why)

    async def unpin(self, id: int, *, by: str, why: str = "") -> None:
        """Take a pin back. Raises as `pin`."""
        numbered(id)
        await self.store.pin(self.scope, id, False, by, why)

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
        pruned(unused_for, keep, by)
        least = -1 if keep is None else keep
        return await self.store.prune(self.scope, unused_for or 0.0, least, by, dry_run)

    async def spaces(self) -> Spaces:
        """Where the examples lie, seen from the embedder: whether it was changed since."""
        return Spaces.of(await self.store.spaces(self.scope), space_of(self.embedder))

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
        return await self.store.clear(self.scope)

    async def count(self) -> int:
        """How many lessons there are in this scope."""
        return await self.store.count(self.scope)

    async def _place(self, text: str) -> tuple[str, Sequence[float] | None]:
        if self.embedder is None or not text.strip():
            return "", None
        (vector,) = await placed(self.embedder, [redacted(text)])
        return space_of(self.embedder), vector

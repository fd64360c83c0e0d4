"""Memory of one scope: remember, seen, recall, render, and what a loop learns and is
shown.

Lessons from tools and documents are in quarantine until a person rules on them. Until
then, no prompt contains them.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from heedful import telemetry
from heedful.errors import InvalidInput, NotFound
from heedful.lessons import lesson as records
from heedful.lessons import ranking
from heedful.lessons.action import ActionHistory, action
from heedful.lessons.lesson import (
    Example,
    Lesson,
    Match,
    Remembered,
    Scope,
    Signature,
    Trust,
)
from heedful.lessons.patterns import Seen
from heedful.lessons.ranking import PROMPT_BUDGET_TOKENS, Briefing, Choice
from heedful.lessons.signature import signature
from heedful.lessons.trust import QuarantinedLesson, RevocationResult, check_statement
from heedful.loop.record import MAX_SCORE
from heedful.memory.transfer import Transfers
from heedful.models import installed_embedder
from heedful.models.contract import Embedder, Message
from heedful.redact import redact
from heedful.store import episodes as episode_store
from heedful.store import exposures as exposure_store
from heedful.store import lessons as lesson_store
from heedful.store import open_store, search
from heedful.store import patterns as pattern_store
from heedful.store.store import Store
from heedful.validation import (
    check_actor,
    check_integer,
    check_number,
    check_sequence,
    check_share,
    check_texts,
    require,
)

if TYPE_CHECKING:  # imported when they are needed: a hook process starts for each event
    from heedful.lessons.proof import Proof

_log = logging.getLogger("heedful")
EMBEDDER_FORMS = "an embedder such as heedful.models.open_embedder(), or None"
# The most numbers in a halfvec of pgvector, and the bound of a number.
MAX_VECTOR_DIMENSIONS = 16_000
MAX_HALF_NUMBER = 65_504
# candidates of each leg: 10 lose 0.01 of recall@5, 50 gain nothing and cost a third
# more
MIN_LEG_CANDIDATES = 30
MAX_COMPARED_CHARS = 10_000  # characters of a text that are compared as a whole
MIN_QUERY_CANDIDATES = (
    200  # of a query: a person reads the results, and the importance is filtered later
)
Progress = Callable[
    [int, int], None
]  # called with how many texts are done, and how many there are
# Texts that are embedded and written together: 0.1 s of a small embedder on one core.
EMBEDDING_BATCH_TEXTS = 32


@dataclass(frozen=True, slots=True)
class Spaces:
    """How many texts (examples and lessons) have a vector in the space of the embedder
    in use.

    `space` is this space, "" without an embedder. `here` counts the texts with a vector
    in it, and `behind` the texts that `reembed` would embed. Recall finds the latter by
    words.
    """

    space: str
    here: int = 0
    behind: int = 0

    @classmethod
    def of(cls, counts: Mapping[str, int], space: str) -> Spaces:
        """Return the counts as seen from `space`; `counts` has the number of texts by
        space.
        """
        here = counts.get(space, 0)
        return cls(space, here, sum(counts.values()) - here) if space else cls("")

    def __str__(self) -> str:
        rest = f", {self.behind} without a vector" if self.behind else ""
        return f"{self.here} in {self.space}{rest}"


def space_of(embedder: Embedder | None) -> str:
    """Return the name of the embedder's space, "" for None. Vectors of one space are
    comparable.
    """
    return f"{embedder.name}/{embedder.dimensions}" if embedder is not None else ""


async def embed(embedder: Embedder, texts: Sequence[str]) -> Sequence[Sequence[float]]:
    """Return a vector for each text. Raises InvalidInput for vectors that cannot be
    stored.
    """
    answer = embedder.embed(texts)
    if not hasattr(answer, "__await__"):
        raise InvalidInput(
            "embedder", embedder.name, "one whose method `embed` is async"
        )
    vectors = await answer
    lengths = {len(vector) for vector in vectors}
    if len(vectors) != len(texts) or lengths - {embedder.dimensions}:
        found = (
            f"{len(vectors)} vectors of {sorted(lengths)} numbers from {embedder.name}"
        )
        wanted = f"{len(texts)} of {embedder.dimensions} numbers each"
        raise InvalidInput("embedder", found, wanted)
    if not 0 < embedder.dimensions <= MAX_VECTOR_DIMENSIONS:
        raise InvalidInput(
            "embedder.dimensions", embedder.dimensions, f"1 to {MAX_VECTOR_DIMENSIONS}"
        )
    import numpy as np  # slow to import

    if not (np.abs(np.asarray(vectors)) < MAX_HALF_NUMBER).all():
        allowed = f"one that gives finite numbers below {MAX_HALF_NUMBER}"
        raise InvalidInput("embedder", embedder.name, allowed)
    return vectors


def log_failure(event: str, error: Exception) -> None:
    """Log the type of an error and where it was raised, but not its text, which may
    quote data.
    """
    where = "".join(traceback.format_tb(error.__traceback__))
    _log.warning(event, extra={"error": type(error).__name__, "traceback": where})


class Memory(Transfers):
    """A memory of lessons for one scope.

    `store` is a Store or its name (a path, or `:memory:`). Recall compares words, and
    also vectors if there is an `embedder`. `holdout` is the share of recalled lessons
    that is withheld at random, so that loops with and without them can be compared; it
    is below 1, and 0 turns this off. `max_entries` limits the lessons of the scope and
    the examples of each lesson. When it is reached, a new lesson replaces the least
    useful lesson (a quarantined one first), and a new example the oldest example.
    Pinned lessons stay. `quota` limits the entries in quarantine of each source.
    `trust` is the trust of sources in sessions of agents, as for `set_trust`. Raises
    InvalidInput.
    """

    def __init__(
        self,
        store: Store | str,
        scope: Scope | None = None,
        embedder: Embedder | None = None,
        holdout: float = records.DEFAULT_HOLDOUT_SHARE,
        max_entries: int | None = None,
        quota: int = 1_000,
        trust: Mapping[str, Trust] | None = None,
    ) -> None:
        for statement in (trust or {}).items():
            check_statement(*statement)
        if not isinstance(holdout, int | float) or not 0 <= holdout < 1:
            raise InvalidInput("holdout", holdout, "a share of at least 0 and below 1")
        if max_entries is not None:
            check_integer("max_entries", max_entries, least=1, alternative=", or None")
        check_integer("quota", quota)
        if isinstance(embedder, type) or not isinstance(embedder, Embedder | None):
            raise InvalidInput("embedder", embedder, EMBEDDER_FORMS)
        self.store: Store = store if isinstance(store, Store) else open_store(store)
        self.scope: Scope = scope or Scope()
        self.embedder = embedder
        self.holdout = holdout
        self.max_entries = max_entries
        self.quota = quota
        self.trust: Mapping[str, Trust] = trust or {}
        # What is called after each write, if a job embeds what was written; else the
        # write does it.
        self.later: Callable[[], Awaitable[None]] | None = None

    @classmethod
    def of(cls, memory: Memory | Store | str, scope: Scope | None) -> Memory:
        """Return `memory` itself, or a Memory in this store.

        A string is the name of a store; its memory uses the embedder that is installed,
        if any.
        """
        if isinstance(memory, Memory):
            return memory
        return cls(
            memory, scope, installed_embedder() if isinstance(memory, str) else None
        )

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
        """Count one sighting of an error; a new pattern is stored as a lesson, in one
        transaction.

        `recall` finds the lesson by the task of its example, or by its own text if it
        has no example. It also finds the lesson by `context`, the text around the
        error. `trust` depends on who wrote the text: text of a tool or a document is
        quarantined. `source` names the origin, so that it can be revoked.
        `derived_from` are ids of examples; the lesson is trusted no more than they are.
        `tags` and `importance` (0..1) apply to a new lesson. Only a lesson of an
        operator may be `pinned`. Raises InvalidInput, QuotaExceeded, StoreError; it
        never fails silently.
        """
        check_texts(error_type=error_type, text=text, lesson=lesson, context=context)
        records.check_memory(
            text,
            trust,
            importance=importance,
            tags=tags,
            example=example,
            parents=derived_from,
            pinned=pinned,
        )
        text = redact(text)  # before masking or cutting could split a secret
        reflection = Lesson(
            "error",
            signature(error_type, text),
            error_type=error_type,
            text=(redact(lesson) or text)[: records.MAX_EXAMPLE_TEXT_CHARS],
            sighting=text[: records.MAX_EXAMPLE_TEXT_CHARS],
            example=replace(example, context=example.context or context)
            if example
            else None,
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
    async def keep(self, reflection: Lesson) -> Remembered:
        """Store a lesson unchanged. Raises InvalidInput, QuotaExceeded, StoreError."""
        (answer,) = await write_lessons(self, [reflection], exposure_store.remember)
        known = f"duplicate: lesson {answer.id}, seen {answer.seen} times"
        stored = f"stored: lesson {answer.id}" if answer.created else known
        waits = f", waits in quarantine: {answer.release}" if answer.entry else ""
        _log.info(stored + waits if answer.id else "skipped")
        return answer

    @property
    def quarantine(self) -> Quarantine:
        """The lessons in quarantine: show, release or reject them, or revoke a
        source.
        """
        return Quarantine(self.store, self.scope)

    async def stated_trust(self) -> Mapping[str, Trust]:
        """Return the trust of sources: as `set_trust` states it, or else as this memory
        has it.
        """
        return {
            **self.trust,
            **await self.store.read(self.scope, lesson_store.statements),
        }

    async def set_trust(
        self,
        source: str,
        trust: Trust | None,
        *,
        by: str,
        why: str = "",
        waiting: bool = False,
    ) -> Sequence[int]:
        """State on record how far a source is trusted from now on; None takes it back.

        A `source` is `program:NAME` or `tool:NAME`, `tool` for all others of both, or
        `user`, who talks to the agent. With `waiting`, what waits in quarantine and
        depends on this source is released if it depends on no other untrusted source.
        Returns the ids of what is released. What comes from the network is always
        quarantined. Raises InvalidInput.
        """
        check_statement(source, "tool" if trust is None else trust)
        check_actor(by, why)
        said = source, trust, by, why, self.trust if waiting else None
        return await self.store.write(self.scope, lesson_store.state_trust, *said)

    async def seen(self, error_type: str, text: str = "") -> Seen:
        """Return how often an error was seen, and its lessons, with what mended it.

        `error_type` is the type of the error, the tool that failed, or "". With one
        argument, that is the text. `text` may be a message, or all that a command
        wrote: the error lines in it are looked up, and an error is found under its
        type, its tool or none. All reads use an index. Raises InvalidInput, StoreError.
        """
        check_texts(error_type=error_type, text=text)
        error_type, text = (error_type, text) if text else ("", error_type)
        asked = await asyncio.to_thread(_asked, error_type, text)
        return await self.store.read(self.scope, pattern_store.find, *asked)

    async def before(
        self, tool: str, arguments: Mapping[str, Any] | str
    ) -> ActionHistory:
        """Return how this action failed before and what mended it; nothing if it worked
        since.

        Ask before a tool runs. `arguments` are the arguments of the call as data, or
        the text of a command. Failures of other runs also count if they named a part of
        the action that is in this one, at least 3 times. All reads use an index. Raises
        InvalidInput, StoreError.
        """
        check_texts(tool=tool)
        if not isinstance(arguments, str | Mapping):
            raise InvalidInput(
                "arguments", arguments, "a mapping, or the text of a command"
            )
        return await self.store.read(
            self.scope, episode_store.failures_of, action(tool, arguments)
        )

    async def patterns(self, error_type: str = "") -> Sequence[Mapping[str, Any]]:
        """Return the merged and the separated patterns as plain data, each with the
        reason.
        """
        return await self.store.read(
            self.scope, pattern_store.list_patterns, error_type
        )

    async def set_apart(
        self, *digests: str, by: str, why: str = "", apart: bool = True
    ) -> None:
        """Never merge these patterns with others; `apart=False` allows it again.

        The decision is recorded. Raises NotFound for a digest without a lesson,
        InvalidInput without a digest or an actor.
        """
        require(digests, "digests", digests, "signatures of lessons, at least one")
        check_sequence("digests", digests, str, "signatures of lessons, each a text")
        await self.store.write(
            self.scope, pattern_store.set_apart, digests, apart, by, why
        )

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
        """Return the examples, and the lessons without examples, that fit the task,
        best first.

        Only lessons that match the filters are returned: any of the `tags`
        (`match="all"`: all of them), the `kind`, the `error_type`, at least this
        `importance` (0..1), stored `since` this time (seconds since 1970). Raises
        InvalidInput, StoreError.
        """
        check_integer("limit", limit)
        check_texts(task=task)
        only = records.Filter(
            tags,
            match,
            kind=kind,
            error_type=error_type,
            importance=importance,
            since=since,
        )
        found = await self._search(task, max(MIN_LEG_CANDIDATES, limit), only)
        return ranking.rank(
            task, ranking.keep_important(found, only), limit, time.time()
        )

    @telemetry.search
    async def query(
        self,
        text: str = "",
        limit: int = 5,
        *,
        tags: Sequence[str] = (),
        match: Literal["any", "all"] = "any",
        kind: str | tuple[str, ...] = "",
        error_type: str = "",
        importance: float = 0.0,
        since: float = 0.0,
        waiting: bool = True,
    ) -> list[Match]:
        """Return lessons to read, best first; with a blank `text`, the most important
        lessons.

        The filters are those of `recall`; `kind` may name several. Lessons that wait in
        quarantine are returned, too, unless `waiting` is False: `state` and `trust`
        mark them, and `release` is the command that releases them. Do not put them into
        a prompt; `render` leaves them out. The order and the filter `importance` use
        what the author of a lesson claims, if the author claims any. Raises
        InvalidInput, StoreError.
        """
        check_integer("limit", limit)
        check_texts(text=text)
        only = records.Filter(
            tags, match, kind=kind, error_type=error_type, importance=0.0, since=since
        )
        check_share("importance", importance)
        found = await self._search(
            text, max(MIN_QUERY_CANDIDATES, limit), only, waiting
        )
        return ranking.rank_answers(
            text, found, limit=limit, least=importance, now=time.time()
        )

    def render(
        self, found: Sequence[Match], budget: int = PROMPT_BUDGET_TOKENS
    ) -> tuple[Message, ...]:
        """Return chat turns for a prompt: at most 3 near examples, at most 1 of them
        not verified.

        The turns have at most `budget` tokens, as heedful estimates them; an example
        that does not fit is left out. The `source` of each turn names its origin.
        """
        return ranking.as_messages(
            ranking.choose(found, budget=budget, now=time.time())
        )

    def render_text(
        self, found: Sequence[Match], budget: int = PROMPT_BUDGET_TOKENS
    ) -> str:
        """Return examples and lessons as one text between random delimiters; "" if
        nothing is near.

        The budget includes headings and delimiters.
        """
        seed = secrets.randbits(64)
        chosen = ranking.choose(
            found, budget=budget, now=time.time(), advice=True, seed=seed
        )
        return ranking.as_text(ranking.as_messages(chosen), seed, chosen)

    @telemetry.search
    async def brief(
        self,
        task: str,
        loop: str,
        begins: bool = True,
        memory_key: str = "",
        checks: Sequence[str] = (),
        tell: ranking.Tell = "both",
        every: bool = False,
    ) -> Briefing:
        """Return what to show a loop before its task, and what is withheld from it at
        random.

        What is withheld depends only on scope, loop and lesson. If the store has
        exposures of the loop, the loop is shown the same lessons again. If not, it is
        shown lessons only if it `begins`. Rules of the `memory_key`, by default that of
        the stored loop, are shown only to loops with a check that may find their
        mistake: `checks` are names, and without names all rules are shown. `tell` is
        "rules" (lessons without an accepted output), "examples" (with one) or "both".
        The choices are what is told or withheld, rules that rest, and the nearest miss
        if no lesson is told for a similar task; with `every`, they are all candidates.
        """
        space, vector = await self._embed(task)
        find = partial(
            search.search,
            text=task,
            space=space,
            vector=vector,
            limit=MIN_LEG_CANDIDATES,
        )
        read = exposure_store.brief
        found, past = await self.store.read(self.scope, read, loop, memory_key, find)
        before = frozenset(id for one in past.exposures for id in one.examples)
        chosen, others = ranking.choose_for_loop(
            task,
            found,
            now=time.time(),
            tell=tell,
            checks=checks,
            before=before if past.exposures else None,
        )
        share = (
            self.holdout if past.ended >= ranking.FIRST_LOOPS_WITHOUT_HOLDOUT else 0.0
        )
        seed = f"{self.scope.tenant}\0{self.scope.project}"
        drawn = ranking.draw_exposures(chosen, loop, seed, share) if begins else ()
        exposures = past.exposures or tuple(drawn)
        shown = {id for exposure in exposures for id in exposure.examples}
        fates: dict[bool, Any] = {
            True: ("told",),
            False: ("withheld", ranking.HOLDOUT_REASON),
        }
        choices = [
            Choice.of(one, *fates[one.id in shown]) for one in chosen if exposures
        ]
        near = any(choice.leg == "likeness" for choice in choices)
        for one, why in others:
            if every or one.cause:
                choices.append(Choice.of(one, "missed", why, every))
            elif not near:
                choices.append(Choice.of(one, "closest", why, words=False))
                break  # they are sorted
        return Briefing(
            past.memory_key,
            space,
            waiting=past.waiting,
            choices=tuple(choices),
            exposures=exposures,
            chosen=tuple(chosen),
            vector=vector,
        )

    async def prove(self) -> Proof:
        """Return what exposures and outcomes of this scope prove about its lessons."""
        from heedful.lessons import proof

        cases, pending = await self.store.read(self.scope, exposure_store.evidence)
        return await asyncio.to_thread(proof.prove_cases, cases, pending)

    async def look(self, outcomes: int | None = None) -> Sequence[str]:
        """Retire lessons proven to hurt, and update the usefulness of others.

        Lessons that an operator wrote or pinned stay until `pin(pinned=False)`; a
        ruling "review" puts them before a person. With a number of `outcomes`, do this
        only if enough loops have ended since the last time. Returns the names
        (`kind/signature`) of the retired lessons.
        """
        from heedful.lessons import proof

        if outcomes is not None and not proof.is_due(outcomes):
            return ()
        cases, _ = await self.store.read(self.scope, exposure_store.evidence)
        found = await asyncio.to_thread(
            proof.find_proven, cases
        )  # takes seconds for many lessons
        useful = {str(one.lesson): proof.usefulness(one) for one in found}
        hurting = [one for one in found if one.conclusion == "hurts"]
        return await self.store.write(
            self.scope, exposure_store.conclude, useful, hurting
        )

    async def restore(self, id: int, *, by: str, why: str = "") -> None:
        """Bring back a lesson that a proof retired; only later evidence counts for it.

        The decision is recorded. Raises NotFound, InvalidInput without an actor.
        """
        check_integer("id", id, least=0)
        await self.store.write(self.scope, exposure_store.restore, id, by, why)

    async def top(self, limit: int = 20) -> Sequence[Mapping[str, Any]]:
        """Return the lessons seen most often, as plain data; quarantined text is left
        out.
        """
        check_integer("limit", limit, least=0)
        return await self.store.read(self.scope, lesson_store.top, limit)

    async def pin(
        self, id: int, *, by: str, why: str = "", pinned: bool = True
    ) -> None:
        """Protect a lesson from eviction, pruning, retirement; `pinned=False` ends the
        protection.

        The decision is recorded. Raises NotFound, InvalidInput without an actor.
        """
        check_integer("id", id, least=0)
        await self.store.write(self.scope, lesson_store.pin, id, pinned, by, why)

    async def edit(self, id: int, text: str, *, by: str, why: str = "") -> int:
        """Give a lesson new words with the trust of an operator; the old ones stay as a
        version.

        What was measured for the old words does not count for the new ones. A lesson in
        quarantine waits on, with the new words: returns their id there, or else 0. The
        edit is recorded. Raises NotFound, InvalidInput (also for a superseded lesson,
        and for the same words).
        """
        check_integer("id", id, least=0)
        check_texts(text=text)
        vector = await self._embed(text[: records.MAX_EXAMPLE_TEXT_CHARS])
        return await self.store.write(
            self.scope, lesson_store.edit, id, text, by, why, *vector
        )

    async def prune(
        self,
        *,
        by: str,
        unused_for: float | None = None,
        keep: int | None = None,
        dry_run: bool = False,
    ) -> Sequence[Mapping[str, Any]]:
        """Remove lessons unused for `unused_for` seconds, and the least useful beyond
        `keep`.

        Unused means neither seen nor shown. Pinned and proven lessons stay. Return the
        removed lessons as plain data with the reason `why`; with `dry_run`, return what
        would be removed. The removal is one recorded transaction. Raises InvalidInput.
        """
        check_actor(by, "")
        if unused_for is None and keep is None:
            raise InvalidInput("prune", None, "called with unused_for, keep, or both")
        if unused_for is not None:
            check_number("unused_for", unused_for, low=1e-9, high=MAX_SCORE)
        if keep is not None:
            check_integer("keep", keep, least=0)
        bounds = unused_for or 0.0, -1 if keep is None else keep
        if dry_run:
            return await self.store.read(self.scope, lesson_store.prunable, *bounds)
        return await self.store.write(self.scope, lesson_store.prune, *bounds, by)

    async def spaces(self) -> Spaces:
        """Count the texts in each embedding space, and those that the current embedder
        lacks.
        """
        return Spaces.of(
            await self.store.read(self.scope, search.spaces), space_of(self.embedder)
        )

    async def reembed(
        self,
        progress: Progress | None = None,
        since: float = 0.0,
        pause: Callable[[], Awaitable[None]] | None = None,
    ) -> int:
        """Embed each text without a vector in the embedder's space; return how many
        texts got one.

        Texts stored before the time `since` (seconds since 1970) are left out. Each
        small batch is one transaction, after a `pause`, and others may write meanwhile.
        Stop it at any time; the next call continues. Raises InvalidInput without an
        embedder, ModelError, StoreError.
        """
        if self.embedder is None:
            raise InvalidInput(
                "embedder", None, "an embedder, which computes the vectors"
            )
        space = space_of(self.embedder)
        last = 0
        done = 0
        total = (await self.spaces()).behind if progress is not None else 0
        read = self.store.read
        missing = search.unplaced
        while batch := await read(
            self.scope, missing, space, last, EMBEDDING_BATCH_TEXTS, since
        ):
            if pause is not None:
                await pause()
            vectors = await embed(self.embedder, [text for _, text in batch])
            rows = [(*row, vector) for row, vector in zip(batch, vectors, strict=True)]
            done += await self.store.write(self.scope, search.place, space, rows)
            last = batch[-1][0]
            if progress is not None:
                progress(done, max(done, total))
        return done

    async def clear(self) -> int:
        """Delete everything learnt in this scope; return the number of lessons
        removed.
        """
        return await self.store.write(self.scope, lesson_store.clear)

    async def count(self) -> int:
        """Return the number of lessons in this scope."""
        return await self.store.read(self.scope, lesson_store.count)

    async def _search(
        self, text: str, most: int, only: records.Filter, waiting: bool = False
    ) -> list[Match]:
        asked = text, *await self._embed(text), most, only, waiting
        return await self.store.read(self.scope, search.search, *asked)

    async def _embed(self, text: str) -> tuple[str, Sequence[float] | None]:
        if self.embedder is None or not text.strip():
            return "", None
        (vector,) = await embed(self.embedder, [redact(text)])
        return space_of(self.embedder), vector


def _asked(error_type: str, text: str) -> tuple[Signature, list[tuple[str, Signature]]]:
    """Return the signature of a text, and its error lines, each with the signature of
    the line.
    """
    from heedful.traces.error_lines import error_lines

    whole = signature(error_type, redact(text[:MAX_COMPARED_CHARS]))
    lines = [redact(line) for line in error_lines(text.splitlines())]
    return whole, [(line, signature(error_type, line)) for line in lines]


async def write_lessons(
    memory: Memory,
    lessons: Sequence[Lesson],
    work: Callable[..., list[Remembered]],
    *key: Any,
) -> list[Remembered]:
    """Embed lessons and store them by the store's function `work`, in one
    transaction.
    """
    bounds = {"most": memory.max_entries or 0, "quota": memory.quota}
    if memory.later is not None:
        answers = await memory.store.write(memory.scope, work, *key, lessons, **bounds)
        await memory.later()
        return answers
    texts = [each.example.task if each.example else each.text for each in lessons]
    vectors = {text: await memory._embed(text) for text in dict.fromkeys(texts)}
    embedded = [
        replace(each, space=vectors[text][0], vector=vectors[text][1])
        for each, text in zip(lessons, texts, strict=True)
    ]
    return await memory.store.write(memory.scope, work, *key, embedded, **bounds)


class Quarantine:
    """The quarantine of one scope: lessons that wait for a ruling. Every ruling is
    recorded.

    `Memory.quarantine` returns one. All methods raise StoreError.
    """

    def __init__(self, store: Store, scope: Scope) -> None:
        self._store = store
        self._scope = scope

    async def waiting(
        self, limit: int = 50, after: int | None = None
    ) -> list[QuarantinedLesson]:
        """Return the newest lessons in quarantine, or the newest with ids below
        `after`.

        Raises InvalidInput.
        """
        check_integer("limit", limit)
        older = () if after is None else (after,)
        return await self._store.read(
            self._scope, lesson_store.quarantined, None, limit, *older
        )

    async def show(self, id: int) -> QuarantinedLesson:
        """Return a lesson that is or was in quarantine. Raises NotFound,
        InvalidInput.
        """
        check_integer("id", id, least=0)
        for entry in await self._store.read(
            self._scope, lesson_store.quarantined, [id]
        ):
            provenance = await self._store.read(
                self._scope, lesson_store.provenance, entry
            )
            return replace(entry, provenance=provenance)
        where = f"the memory of {self._scope.tenant}/{self._scope.project}"
        raise NotFound("example", str(id), where)

    async def release(self, ids: Sequence[int], *, by: str, why: str = "") -> None:
        """Release lessons from quarantine; they get the trust of an operator.

        If one lesson cannot be released, none is. Raises NotFound, InvalidInput without
        an id or an actor, and NotQuarantined after an earlier ruling.
        """
        check_sequence("ids", ids, int, "ids of what waits in quarantine")
        await self._store.write(
            self._scope, lesson_store.settle, ids, "release", by, why
        )

    async def reject(self, ids: Sequence[int], *, by: str, why: str = "") -> None:
        """Retire lessons in quarantine; refuse their texts in future. Raises as
        `release` does.
        """
        check_sequence("ids", ids, int, "ids of what waits in quarantine")
        await self._store.write(
            self._scope, lesson_store.settle, ids, "reject", by, why
        )

    async def revoke(
        self, source: str, *, by: str = "", why: str = "", dry_run: bool = False
    ) -> RevocationResult:
        """Remove everything that depends on `source`, and its sightings, in one
        transaction.

        This includes what was derived from the source, and what loops learnt with its
        text in their prompts. A lesson that also came from other sources stays, in the
        words of these sources. With `dry_run` nothing is removed, and no actor is
        needed. Raises NotFound for an unknown source, InvalidInput without a name or an
        actor.
        """
        check_texts(source=source)
        require(source.strip(), "source", source, "the name of a source")
        return await self._store.write(
            self._scope, lesson_store.revoke, source, by, why, dry_run
        )

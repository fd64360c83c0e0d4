"""Consolidation ("dreaming"): merge lessons that say the same, if recall stays as good.

The results of stored queries are ranked again as if the merges were done, and a merge
that makes them worse is dropped. The other merges are one transaction, which can be
rolled back. Lessons that contradict each other are listed for a person to decide about.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import chain
from typing import Any

from heedful.errors import NotFound
from heedful.lessons.consolidate import (
    DREAM_MODES,
    DreamLesson,
    Mode,
    Proposal,
    propose,
)
from heedful.lessons.lesson import Match
from heedful.lessons.ranking import rank as rank_matches
from heedful.loop.codec import from_document
from heedful.memory.memory import MIN_LEG_CANDIDATES, Memory
from heedful.memory.vectors import EMBEDDING_BATCH_TEXTS, embed, space_of
from heedful.redact import redact
from heedful.store import dreams as dream_store
from heedful.store import search
from heedful.validation import check_actor, check_integer, require

Vector = Sequence[float] | None
MIN_STORED_QUERY_RESULTS = 5  # results of a stored query that recall must keep
WORSE_RECALL_OUTCOME = "a stored query would find it further down, or not at all"


@dataclass(frozen=True, slots=True)
class Dream:
    """What a consolidation found and did; `id` is 0 for a dry run.

    `before` counts the lessons that could be recalled before it, `queries` the stored
    queries that were tried. `vetoes` counts, by reason, the similar pairs that were not
    merged. `found` says why there was nothing to merge. `at` and `undone` are in
    seconds since 1970; `undone` is None unless the dream was rolled back. `texts` has
    the texts of its lessons that still exist, by id.
    """

    id: int
    mode: Mode
    _: KW_ONLY
    by: str
    at: float
    before: int
    queries: int = 0
    proposals: tuple[Proposal, ...] = ()
    vetoes: Mapping[str, int] = field(default_factory=dict)
    found: str = ""
    undone: float | None = None
    texts: Mapping[int, str] = field(default_factory=dict)

    @property
    def done(self) -> tuple[Proposal, ...]:
        """The proposals that were carried out, or that would be without `dry_run`."""
        return tuple(
            proposal
            for proposal in self.proposals
            if proposal.outcome in ("done", "proposed")
        )

    @property
    def after(self) -> int:
        """The number of lessons that could be recalled after the dream."""
        return self.before - sum(len(proposal.members) for proposal in self.done)

    @property
    def nothing(self) -> str:
        """The reason why nothing changed; "" if something did."""
        if self.done:
            return ""
        merges = [p for p in self.proposals if p.action == "merge"]
        if not merges:
            return self.found
        outcomes = dict.fromkeys(merge.outcome for merge in merges)
        return f"each proposal was dropped: {'; '.join(outcomes)}"

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Dream:
        """Return the dream that plain data describes."""
        return from_document(cls, document)


class Dreams:
    """The dreams of a memory. All methods raise StoreError."""

    def __init__(self, memory: Memory) -> None:
        self._store = memory.store
        self._scope = memory.scope

    async def log(self, limit: int = 20, before: int | None = None) -> list[Dream]:
        """Return the newest dreams, with ids below `before`. Raises InvalidInput."""
        check_integer("limit", limit)
        rows = await self._store.read(
            self._scope, dream_store.log, limit, before=before
        )
        return [Dream.of(row) for row in rows]

    async def show(self, id: int) -> Dream:
        """Return a dream. Raises NotFound, InvalidInput."""
        check_integer("id", id, least=0)
        for row in await self._store.read(self._scope, dream_store.log, limit=1, id=id):
            return Dream.of(row)

        where = f"the memory of {self._scope.tenant}/{self._scope.project}"
        raise NotFound("dream", str(id), where)

    async def rollback(self, id: int, *, by: str, why: str = "") -> int:
        """Undo a dream but not later changes; return how many lessons are restored.

        The rollback is recorded. Raises NotFound, InvalidInput without an actor, and
        RollbackRefused if the dream was rolled back before or a later dream builds on
        it.
        """
        check_integer("id", id, least=0)
        return await self._store.write(self._scope, dream_store.undo, id, by, why)


async def consolidate(
    memory: Memory, *, mode: Mode = "lite", dry_run: bool = False, by: str = "heedful"
) -> Dream:
    """Merge lessons of a scope that say the same, unless recall would get worse.

    The mode "lite" compares all lessons, for use on demand. The mode "full" is for
    periodic use: it merges only pairs with a lesson that was seen in the last 24 hours
    and has an importance of at least 0.6, and it needs at least 3 such lessons. Rules
    for one failure that contradict each other are listed for a person. All changes are
    one recorded transaction, which `Dreams.rollback` undoes. With `dry_run` nothing is
    written.

    Raises InvalidInput, StoreError, and ModelError of the embedder.
    """
    require(mode in DREAM_MODES, "mode", mode, f"one of {', '.join(DREAM_MODES)}")
    check_actor(by, "")
    now = time.time()

    rows = await memory.store.read(
        memory.scope, dream_store.material, space_of(memory.embedder)
    )
    lessons = {lesson.id: lesson for lesson, _ in rows}
    missing = [lesson.text for lesson, vector in rows if vector is None]
    new_vectors = await _embed_texts(memory, missing)
    vectors = {
        lesson.id: new_vectors[lesson.text] if vector is None else vector
        for lesson, vector in rows
    }

    # Without an embedder no lesson has a vector, and their words are compared.
    compared = [vector for vector in vectors.values() if vector is not None] or None
    plan = await asyncio.to_thread(propose, list(lessons.values()), compared, mode, now)

    proposals, queries = await _rehearse(memory, plan.merges, lessons, vectors)
    proposals += plan.contradictions

    report = {
        "mode": mode,
        "before": len(lessons),
        "queries": queries,
        "vetoes": plan.vetoes,
        "found": plan.nothing,
    }
    id = 0
    if not dry_run:
        id, proposals = await memory.store.write(
            memory.scope, dream_store.supersede, report, proposals, lessons, by
        )

    members = chain.from_iterable(proposal.members for proposal in proposals)
    involved_ids = {*members, *(proposal.survivor for proposal in proposals)}
    return Dream(
        id,
        mode,
        by=by,
        at=now,
        before=len(lessons),
        queries=queries,
        proposals=tuple(proposals),
        vetoes=plan.vetoes,
        found=plan.nothing,
        texts={id: lesson.text for id, lesson in lessons.items() if id in involved_ids},
    )


async def _embed_texts(memory: Memory, texts: Sequence[str]) -> dict[str, Vector]:
    """Return the vector of each text; without an embedder, None for each text."""
    vectors: dict[str, Vector] = dict.fromkeys(texts)
    if memory.embedder is not None:
        for start in range(0, len(texts), EMBEDDING_BATCH_TEXTS):
            batch = texts[start : start + EMBEDDING_BATCH_TEXTS]
            new_vectors = await embed(memory.embedder, batch)
            vectors.update(zip(batch, new_vectors, strict=True))
    return vectors


async def _rehearse(
    memory: Memory,
    proposals: Sequence[Proposal],
    lessons: Mapping[int, DreamLesson],
    vectors: Mapping[int, Vector],
) -> tuple[list[Proposal], int]:
    """Return the proposals, and how many queries were tried.

    The queries are the members' texts and the stored queries that led to members. A
    query that found a member must find the survivor at the same rank or better, or else
    the proposal has the outcome `WORSE_RECALL_OUTCOME`.
    """
    # The vector of each query.
    members = list(chain.from_iterable(proposal.members for proposal in proposals))
    queries = {lessons[id].text: vectors.get(id) for id in members}
    stored_queries = await memory.store.read(memory.scope, dream_store.queries, members)
    origins = chain.from_iterable(stored_queries[id] for id in members)
    redacted = {query: redact(query) for query in origins if query not in queries}
    new_vectors = await _embed_texts(memory, list(redacted.values()))
    queries |= {query: new_vectors[text] for query, text in redacted.items()}

    # What each query finds now, and the names of the first results.
    results: dict[str, Sequence[Match]] = {}
    for query, vector in queries.items():
        results[query] = await memory.store.read(
            memory.scope,
            search.search,
            query,
            space=space_of(memory.embedder),
            vector=vector,
            limit=MIN_LEG_CANDIDATES,
        )
    names = {query: _first_names(query, rows) for query, rows in results.items()}

    rehearsed: list[Proposal] = []
    for proposal in proposals:
        gone = {lessons[id].name for id in proposal.members}
        survivor = lessons[proposal.survivor]
        outcome = proposal.outcome
        for query, before in names.items():
            ranks = [rank for rank, name in enumerate(before) if name in gone]
            if not ranks:
                continue
            after = _first_names(query, _merge_matches(results[query], gone, survivor))
            if survivor.name not in after[: ranks[0] + 1]:
                outcome = WORSE_RECALL_OUTCOME
                break
        rehearsed.append(replace(proposal, outcome=outcome))
    return rehearsed, len(queries)


def _first_names(query: str, matches: Iterable[Match]) -> list[str]:
    """Return the names of the lessons that a query finds first."""
    ranked = rank_matches(query, matches, 2 * MIN_LEG_CANDIDATES, time.time())
    names = dict.fromkeys(f"{match.kind}/{match.signature}" for match in ranked)
    return list(names)[:MIN_STORED_QUERY_RESULTS]


def _merge_matches(
    matches: Sequence[Match], gone: Collection[str], survivor: DreamLesson
) -> Iterator[Match]:
    """Yield the matches as after a merge, in which the lessons `gone` disappear.

    Their examples become those of the survivor; their texts are found no more.
    """
    for match in matches:
        if f"{match.kind}/{match.signature}" not in gone:
            yield match
        elif match.example.accepted or match.example.task != match.lesson:
            yield replace(match, kind=survivor.kind, signature=survivor.signature)

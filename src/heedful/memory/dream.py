"""Consolidation ("dreaming"): merge lessons that say the same, if recall remains as
good.

The results of stored queries are ranked again as if the merges were done, and a merge
that makes them worse is dropped. The other merges are one transaction, which can be
rolled back. Lessons that contradict each other are listed for a person to decide about.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from heedful.errors import NotFound
from heedful.lessons import consolidate as rules
from heedful.lessons.consolidate import DREAM_MODES, DreamLesson, Mode, Proposal
from heedful.lessons.lesson import Match
from heedful.lessons.ranking import rank
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
            one for one in self.proposals if one.outcome in ("done", "proposed")
        )

    @property
    def after(self) -> int:
        """The number of lessons that could be recalled after the dream."""
        return self.before - sum(len(one.members) for one in self.done)

    @property
    def nothing(self) -> str:
        """The reason why nothing changed; "" if something did."""
        if self.done:
            return ""
        why = dict.fromkeys(
            one.outcome for one in self.proposals if one.action == "merge"
        )
        return f"each proposal was dropped: {'; '.join(why)}" if why else self.found

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Dream:
        """Return the dream that plain data describes."""
        return from_document(cls, plain)


class Dreams:
    """The dreams of a memory: list, show and roll back. All methods raise
    StoreError.
    """

    def __init__(self, memory: Memory) -> None:
        self._store = memory.store
        self._scope = memory.scope

    async def log(self, limit: int = 20, before: int | None = None) -> list[Dream]:
        """Return the newest dreams, or the newest below the id `before`. Raises
        InvalidInput.
        """
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
    """Merge lessons of the memory's scope that say the same, unless recall would get
    worse.

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
    made = await _vectors(memory, [one.text for one, vector in rows if vector is None])
    lessons = {lesson.id: lesson for lesson, _ in rows}
    own = {one.id: made[one.text] if vector is None else vector for one, vector in rows}
    vectors = [vector for vector in own.values() if vector is not None] or None
    found = await asyncio.to_thread(
        rules.propose, list(lessons.values()), vectors, mode, now
    )
    proposals, queries = await _rehearse(memory, found.merges, lessons, own)
    proposals += found.contradictions
    report: dict[str, Any] = {"mode": mode, "before": len(lessons), "queries": queries}
    report |= {"vetoes": found.vetoes, "found": found.nothing}
    id = 0
    if not dry_run:
        id, proposals = await memory.store.write(
            memory.scope, dream_store.supersede, report, proposals, lessons, by
        )
    listed = {n for one in proposals for n in (*one.members, one.survivor)}
    texts = {id: lesson.text for id, lesson in lessons.items() if id in listed}
    report |= {"id": id, "by": by, "at": now, "texts": texts}
    return Dream(**report, proposals=tuple(proposals))


async def _vectors(memory: Memory, texts: Sequence[str]) -> dict[str, Vector]:
    """Return the vector of each text; without an embedder, None for each text."""
    vectors: dict[str, Vector] = dict.fromkeys(texts)
    if memory.embedder is not None:
        for n in range(0, len(texts), EMBEDDING_BATCH_TEXTS):
            batch = texts[n : n + EMBEDDING_BATCH_TEXTS]
            vectors.update(zip(batch, await embed(memory.embedder, batch), strict=True))
    return vectors


async def _rehearse(
    memory: Memory,
    proposals: Sequence[Proposal],
    lessons: Mapping[int, DreamLesson],
    own: Mapping[int, Vector],
) -> tuple[list[Proposal], int]:
    """Return the proposals, and how many queries were tried.

    The queries are the members' texts and the stored queries that led to members. A
    query that found a member must find the survivor at the same rank or better, or else
    the proposal has the outcome `WORSE_RECALL_OUTCOME`.
    """
    members = [n for one in proposals for n in one.members]
    asked: dict[str, Vector] = {lessons[n].text: own.get(n) for n in members}
    stored = await memory.store.read(memory.scope, dream_store.queries, members)
    new = {q: redact(q) for n in members for q in stored[n] if q not in asked}
    made = await _vectors(memory, list(new.values()))
    asked |= {query: made[redacted] for query, redacted in new.items()}
    found: dict[str, Sequence[Match]] = {}
    for query, vector in asked.items():
        more = (space_of(memory.embedder), vector, MIN_LEG_CANDIDATES)
        found[query] = await memory.store.read(
            memory.scope, search.search, query, *more
        )
    before = {query: _names(query, matches) for query, matches in found.items()}
    judged = []
    for one in proposals:
        gone = {lessons[n].name for n in one.members}
        into = lessons[one.survivor]
        worse = any(
            into.name not in _names(query, _moved(found[query], gone, into))[: rank + 1]
            for query, names in before.items()
            for rank, name in enumerate(names)
            if name in gone
        )
        judged.append(replace(one, outcome=WORSE_RECALL_OUTCOME) if worse else one)
    return judged, len(asked)


def _names(query: str, matches: Iterable[Match]) -> list[str]:
    ranked = rank(query, matches, 2 * MIN_LEG_CANDIDATES, time.time())
    return list(dict.fromkeys(f"{one.kind}/{one.signature}" for one in ranked))[
        :MIN_STORED_QUERY_RESULTS
    ]


def _moved(
    matches: Sequence[Match], gone: Collection[str], into: DreamLesson
) -> Iterator[Match]:
    """Yield the matches after a merge: the survivor has the examples of the lessons
    `gone`.
    """
    for match in matches:
        if f"{match.kind}/{match.signature}" not in gone:
            yield match
        elif match.example.accepted or match.example.task != match.lesson:
            yield replace(match, kind=into.kind, signature=into.signature)

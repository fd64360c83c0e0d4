"""Consolidation ("dreaming"): reflect on what recurs, end what was superseded.

Failures that recur with the same thing become a reflection of the outcome "partial",
which rules write and which cites their lessons. A rule that a newer one contradicts is
superseded. All changes are one transaction, which can be rolled back. Recall shows a
reflection only when a failure that it cites comes back.
"""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import chain
from typing import Any

from heedful.errors import NotFound
from heedful.lessons.dream_proposals import (
    PARTIAL_OUTCOME,
    DreamLesson,
    Proposal,
    Recurrence,
    Recurrences,
    find_recurrences,
    find_superseded,
)
from heedful.lessons.lesson import DREAM_AUTHOR, Lesson
from heedful.loop.codec import from_document
from heedful.memory.memory import Memory
from heedful.memory.vectors import embed, space_of
from heedful.store import dreams as dream_store, links
from heedful.validation import check_actor, check_integer

DREAM_CONFIDENCE = 0.5  # their lessons hold, but nobody has tried the whole


@dataclass(frozen=True, slots=True)
class Dream:
    """What a consolidation found and did; `id` is 0 for a dry run.

    `before` counts the lessons that could be recalled before it. `silence` says why
    there was nothing to reflect on. `at` and `undone` are in seconds since 1970;
    `undone` is None unless the dream was rolled back. `texts` has the texts of its
    lessons that still exist, by id; in a dry run, those of new reflections have ids
    below 0.
    """

    id: int
    _: KW_ONLY
    by: str
    at: float
    before: int
    proposals: tuple[Proposal, ...] = ()
    silence: str = ""
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
        return self.before - self.superseded + self.written

    @property
    def written(self) -> int:
        """The number of reflections that the dream wrote."""
        return sum(proposal.action == "reflect" for proposal in self.done)

    @property
    def superseded(self) -> int:
        """The number of lessons that others replaced; what is cited stays."""
        return sum(
            len(proposal.members)
            for proposal in self.done
            if proposal.action != "reflect"
        )

    @property
    def nothing(self) -> str:
        """The reason why nothing changed; "" if something did."""
        if self.done:
            return ""
        if not self.proposals:
            return self.silence
        outcomes = dict.fromkeys(proposal.outcome for proposal in self.proposals)
        return f"each proposal was dropped: {'; '.join(outcomes)}"

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Dream":
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
        return await self._store.write(
            self._scope, dream_store.undo, id, by=by, why=why
        )


async def consolidate(
    memory: Memory, *, dry_run: bool = False, by: str = "heedful"
) -> Dream:
    """Reflect on what recurs in a scope, and end the rules that newer ones contradict.

    Failures that recur with one tool, file or error become a reflection of the
    outcome "partial", which cites their lessons and leaves them as they are. All
    changes are one recorded transaction, which `Dreams.rollback` undoes. With `dry_run`
    nothing is written.

    Raises InvalidInput, StoreError, and ModelError of the embedder.
    """
    check_actor(by, "")
    now = time.time()

    material = await memory.store.read(memory.scope, dream_store.material)
    lessons = {lesson.id: lesson for lesson in material}
    # A dream looks at all lessons but its own reflections.
    sources = [lesson for lesson in material if lesson.by != DREAM_AUTHOR]
    superseded = await asyncio.to_thread(lambda: [*find_superseded(sources)])
    gone = set[int]()
    for proposal in superseded:
        if proposal.outcome == "proposed":
            gone.update(proposal.members)
    recurrences = await _find_recurrences(memory, sources, gone, now)
    drafts = await _draft_reflections(memory, recurrences.reflections)

    proposals = [*superseded]
    for survivor, recurrence in zip(drafts, recurrences.reflections, strict=True):
        proposal = Proposal(
            "reflect",
            recurrence.cited_ids,
            survivor=survivor,
            why=recurrence.why,
        )
        proposals.append(proposal)
    if not dry_run:
        report = {
            "before": len(lessons),
            "silence": recurrences.silence,
        }
        id, _ = await memory.store.write(
            memory.scope,
            dream_store.supersede,
            report,
            proposals=proposals,
            expected=lessons,
            by=by,
            reflections=drafts,
        )
        return await Dreams(memory).show(id)

    members = chain.from_iterable(proposal.members for proposal in proposals)
    involved_ids = {*members, *(proposal.survivor for proposal in proposals)}
    texts = {id: lessons[id].text for id in involved_ids & lessons.keys()}
    texts |= {survivor: lesson.text for survivor, lesson in drafts.items()}
    return Dream(
        0,
        by=by,
        at=now,
        before=len(lessons),
        proposals=tuple(proposals),
        silence=recurrences.silence,
        texts=texts,
    )


async def _find_recurrences(
    memory: Memory,
    sources: Sequence[DreamLesson],
    gone: Collection[int],
    now: float,
) -> Recurrences:
    """Return what recurs among the lessons without a part in quarantine.

    It leaves out the lessons `gone`, which others replace.
    """
    citable = {
        lesson.id: lesson
        for lesson in sources
        if not lesson.held and lesson.id not in gone
    }
    lesson_words = await memory.store.read(memory.scope, links.read_words)
    runs = await memory.store.read(memory.scope, dream_store.runs)
    return await asyncio.to_thread(
        find_recurrences, citable, lesson_words, runs=runs, now=now
    )


async def _draft_reflections(
    memory: Memory, recurrences: Sequence[Recurrence]
) -> dict[int, Lesson]:
    """Return a reflection on each recurrence; its key is below 0, as no id is."""
    texts = [recurrence.text for recurrence in recurrences]
    vectors: Sequence[Sequence[float] | None] = [None] * len(texts)
    if memory.embedder is not None and texts:
        vectors = await embed(memory.embedder, texts)
    drafts = {}
    for number, recurrence in enumerate(recurrences, start=1):
        lesson = Lesson(
            "reflection",
            recurrence.signature,
            error_type=PARTIAL_OUTCOME,
            text=recurrence.text,
            sighting=recurrence.text,
            trust="local",
            space=space_of(memory.embedder),
            vector=vectors[number - 1],
            source=DREAM_AUTHOR,
            meta={
                "by": DREAM_AUTHOR,
                "layer": "rm",
                "confidence": DREAM_CONFIDENCE,
                "outcome": PARTIAL_OUTCOME,
                "task_description": "",
                "event_count": 0,
                "session_id": "",
                "error_category": "",
                "source_event_ids": [],
                "related_memory_ids": [str(id) for id in recurrence.cited_ids],
            },
        )
        drafts[-number] = lesson
    return drafts

"""Consolidation ("dreaming"): reflect on what recurs, end what was superseded.

Failures that recur with the same thing become a reflection of the outcome "partial",
which rules write and which cites their lessons. A rule that a newer one contradicts is
superseded. A dream writes its report and all its changes in one transaction, which can
be rolled back: nothing is deleted, a superseded lesson comes back, and the reflections
are superseded. Recall shows a reflection only when a failure that it cites comes back.
"""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from itertools import chain

from heedful.errors import NotFound, RollbackRefused
from heedful.lessons.dream_proposals import (
    PARTIAL_OUTCOME,
    DreamLesson,
    Proposal,
    Recurrence,
    find_recurrences,
    find_superseded,
)
from heedful.lessons.lesson import DREAM_AUTHOR, Lesson, LessonRun, Scope
from heedful.lessons.links import MAX_LINKED_LESSONS, LessonWords
from heedful.lessons.mistake import from_json, without_outside
from heedful.lessons.reasons import say
from heedful.lessons.states import after
from heedful.loop.codec import from_document
from heedful.memory.memory import Memory
from heedful.models.embedding import embed, space_of
from heedful.store.connection import (
    Db,
    Row,
    bulk,
    from_row,
    key_of,
    resumable,
    storable,
)
from heedful.store.lessons import upsert
from heedful.store.rulings import name_of, rule
from heedful.validation import Document, Fields, check_actor, check_integer

Lessons = Mapping[int, DreamLesson]  # by their ids, as a dream read them
DREAM_CONFIDENCE = 0.5  # their lessons hold, but nobody has tried the whole
CHANGED_LESSON_OUTCOME = "one of its lessons changed during the dream"
# The outcomes of a reflection that is stored already, in the same words.
COUNTED_OUTCOME = "the same came back: one more sighting is counted"
KNOWN_OUTCOME = "it is stored already, and nothing came back since"
WITHDRAWN_OUTCOME = "it was rolled back or retired before"
REFUSED_OUTCOME = "its words were refused before; they wait in quarantine"


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


class Dreams:
    """The dreams of a memory. All methods raise StoreError."""

    def __init__(self, memory: Memory) -> None:
        self._store = memory.store
        self._scope = memory.scope

    async def log(self, limit: int = 20, before: int | None = None) -> list[Dream]:
        """Return the newest dreams, newest first, with ids below `before`.

        Raises InvalidInput.
        """
        check_integer("limit", limit)
        return await self._store.read(self._scope, read_log, limit, before=before)

    async def show(self, id: int) -> Dream:
        """Return a dream. Raises NotFound, InvalidInput."""
        check_integer("id", id, least=0)
        return await self._store.read(self._scope, read_one, id)

    async def rollback(self, id: int, *, by: str, why: str = "") -> int:
        """Undo a dream but not later changes; return how many lessons are restored.

        The rollback is recorded. Raises NotFound, InvalidInput without an actor, and
        RollbackRefused if the dream was rolled back before or a later dream builds on
        it.
        """
        check_integer("id", id, least=0)
        return await self._store.write(self._scope, undo, id, by=by, why=why)


async def consolidate(
    memory: Memory, *, dry_run: bool = False, by: str = "heedful", key: str = ""
) -> Dream:
    """Reflect on what recurs in a scope, and end the rules that newer ones contradict.

    Returns what was found and done, a "dream". Failures that recur with one tool, file
    or error become a reflection of the outcome "partial", which cites their lessons and
    leaves them as they are. All changes are one recorded transaction, which
    `Dreams.rollback` undoes. With `dry_run` nothing is written. `by` is who asked. A
    call that is made again with its `key` within a day returns the dream of the first
    one.

    Raises InvalidInput, StoreError, ModelError of the embedder, and Conflict if the key
    belongs to another call.
    """
    check_actor(by, "")
    if dry_run:
        now = time.time()
        plan = await _plan(memory, now)
        return Dream(
            0,
            by=by,
            at=now,
            before=len(plan.lessons),
            proposals=tuple(plan.proposals),
            silence=plan.silence,
            texts=_texts_of(plan.proposals, plan.lessons, plan.drafts),
        )

    async def dream() -> int:
        """Make a plan and carry it out; return the id of the dream."""
        plan = await _plan(memory, time.time())
        return await memory.store.write(
            memory.scope,
            store_dream,
            {"before": len(plan.lessons), "silence": plan.silence},
            proposals=plan.proposals,
            expected=plan.lessons,
            by=by,
            reflections=plan.drafts,
        )

    # A call with the same key gets the id that is stored already.
    request = "consolidate", by
    id = await memory.store.once(
        memory.scope, store_dream, dream, key=key, request=request
    )
    return await Dreams(memory).show(id)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What a dream proposes for the `lessons` that it read, by their ids.

    `drafts` are the reflections to write, by the survivors of their proposals.
    `silence` says why nothing is proposed, if so.
    """

    lessons: Lessons
    proposals: Sequence[Proposal]
    drafts: Mapping[int, Lesson]
    silence: str


async def _plan(memory: Memory, now: float) -> _Plan:
    """Read the lessons of a scope; return what a dream proposes for them.

    It proposes to replace rules that newer ones contradict, and to write a reflection
    on each thing that recurs. `now` is the time in seconds since 1970.
    """
    material = await memory.store.read(memory.scope, read_material)
    # A dream looks at all lessons but its own reflections.
    sources = [lesson for lesson in material if lesson.by != DREAM_AUTHOR]
    # The search may take long, so it runs in a thread.
    superseded = await asyncio.to_thread(list, find_superseded(sources))
    recurrences = await _find_recurrences(memory, sources, superseded, now)
    drafts = await _draft_reflections(memory, recurrences)
    reflected = [
        Proposal("reflect", recurrence.cited_ids, survivor=draft_id, why=recurrence.why)
        for draft_id, recurrence in zip(drafts, recurrences, strict=True)
    ]
    return _Plan(
        lessons={lesson.id: lesson for lesson in material},
        proposals=[*superseded, *reflected],
        drafts=drafts,
        silence="" if recurrences else say("nothing recurs"),
    )


async def _find_recurrences(
    memory: Memory,
    sources: Sequence[DreamLesson],
    superseded: Sequence[Proposal],
    now: float,
) -> list[Recurrence]:
    """Return what recurs among the `sources`: failures with the same thing.

    Lessons with a part in quarantine are left out, as what waits for a review is shown
    nowhere; so are those that `superseded` proposes to replace.
    """
    members = [
        proposal.members for proposal in superseded if proposal.outcome == "proposed"
    ]
    superseded_ids = set(chain.from_iterable(members))
    citable = {
        lesson.id: lesson
        for lesson in sources
        if not lesson.held and lesson.id not in superseded_ids
    }
    lesson_words = await memory.store.read(memory.scope, read_words)
    runs = await memory.store.read(memory.scope, read_runs)
    return await asyncio.to_thread(
        find_recurrences, citable, lesson_words, runs=runs, now=now
    )


async def _draft_reflections(
    memory: Memory, recurrences: Sequence[Recurrence]
) -> dict[int, Lesson]:
    """Return a reflection on each recurrence, by ids below 0 until they are stored.

    Each has the vector of its text if the memory has an embedder.
    """
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
            evidence="once",
            run=LessonRun(
                by=DREAM_AUTHOR,
                confidence=DREAM_CONFIDENCE,
                outcome=PARTIAL_OUTCOME,
                related=tuple(map(str, recurrence.cited_ids)),
            ),
        )
        drafts[-number] = lesson
    return drafts


def _texts_of(
    proposals: Sequence[Proposal],
    lessons: Lessons,
    drafts: Mapping[int, Lesson],
) -> dict[int, str]:
    """Return the texts of the lessons that proposals name and of all drafts, by id."""
    members = chain.from_iterable(proposal.members for proposal in proposals)
    named_ids = {*members, *(proposal.survivor for proposal in proposals)}
    texts = {id: lessons[id].text for id in named_ids & lessons.keys()}
    return texts | {id: draft.text for id, draft in drafts.items()}


def read_material(db: Db, scope: Scope) -> list[DreamLesson]:
    """Return the lessons that recall may find, sorted by kind and signature.

    Their mistakes are without the parts from outside, which nobody has reviewed.
    """
    lessons = []
    for row in db.all("material", scope):
        mistake = from_json(row["mistake"])
        local_mistake = mistake and without_outside(mistake)
        run = LessonRun.read(row["run"])
        by = run.by if run is not None else ""
        lessons.append(from_row(DreamLesson, row, mistake=local_mistake, by=by))
    return lessons


def read_runs(db: Db, scope: Scope) -> dict[int, set[str]]:
    """Return the runs in which each lesson in use was seen, by the lesson's id.

    A sighting of no loop or episode is a run of its own.
    """
    runs_by_id = defaultdict[int, set[str]](set)
    for row in db.all("runs_of_lessons", scope, limit=100_000):
        runs_by_id[row["lesson_id"]].add(row["run"])
    return runs_by_id


@bulk
def read_words(db: Db, scope: Scope) -> tuple[LessonWords, ...]:
    """Return the words of the newest lessons in use, newest first.

    Lessons whose words name the same tool, file or error are linked. Only trusted texts
    are read: the text of a tool or a document, or one that waits in quarantine, links
    no lessons. Of a text or an error, the first 2,000 characters are read; of a
    mistake, no words from outside.
    """
    lessons = []
    limit = MAX_LINKED_LESSONS
    for row in db.all("newest_linked", scope, chars=2_000, limit=limit):
        mistake = from_json(row["mistake"])
        words = LessonWords(
            id=row["id"],
            text=row["text"],
            error=row["error"] or "",
            mistake=mistake and without_outside(mistake),
        )
        lessons.append(words)
    return tuple(lessons)


@resumable(result=int, counts=True)
def store_dream(
    db: Db,
    scope: Scope,
    report: Fields,
    proposals: Sequence[Proposal],
    expected: Lessons,
    by: str,
    reflections: Mapping[int, Lesson],
) -> int:
    """Store a dream's report and carry out its proposals; return the dream's id.

    The stored report has the outcome of each proposal, too. `expected` holds the
    lessons as the dream read them, by id: a proposal is skipped if one of its lessons
    has changed since. `reflections` are those to write, each by the id below 0 that is
    the survivor of its proposal; once one is written, its own id is the survivor.
    """
    key = key_of(scope)
    # The row comes first, as the changes name its id; the report comes last, because it
    # has the outcomes.
    ruling = {
        **key,
        "action": "dream",
        "subject": "dream",
        "why": "",
        "by": storable(by),
        "at": time.time(),
    }
    id = int(db.insert_now("ruling", ruling, "returning id").fetchone()["id"])

    results = []
    for proposal in proposals:
        if proposal.action == "reflect" and proposal.outcome == "proposed":
            results += _write_reflection(
                db,
                scope,
                id,
                proposal=proposal,
                reflection=reflections[proposal.survivor],
                expected=expected,
            )
        else:
            outcome = _carry_out(db, key, id, proposal, expected)
            # A reflection that is not written gets no id.
            results.append(
                replace(proposal, survivor=max(0, proposal.survivor), outcome=outcome)
            )

    record = {**report, "proposals": [asdict(result) for result in results]}
    db.update("ruling", {"id": id}, {"record": json.dumps(record)})
    return id


def _carry_out(
    db: Db,
    key: Document,
    dream_id: int,
    proposal: Proposal,
    expected: Lessons,
) -> str:
    """Replace the members of a proposal by its survivor; return the outcome.

    Members are the ids of lessons that end, and the survivor is the one that stays.
    Nothing is replaced if one of them has changed since the dream read them. A proposal
    that has an outcome already, such as one for a person, keeps it.
    """
    if proposal.outcome != "proposed":
        return proposal.outcome

    members = [expected[id] for id in proposal.members]
    survivor = expected[proposal.survivor]
    if not all(
        _is_unchanged(db, key, lesson, lesson in members)
        for lesson in (*members, survivor)
    ):
        return CHANGED_LESSON_OUTCOME

    for lesson in members:
        link = {
            **key,
            "child": lesson.name,
            "relation": "became",
            "parent": survivor.name,
            "dream": dream_id,
            "before": lesson.state,
        }
        _supersede(db, lesson.id, link)

    return "done"


def _supersede(db: Db, id: int, link: Document) -> None:
    """End the lesson with this id; a rollback restores it by its `link`."""
    db.insert("link", link)
    state = after("supersede", link["before"])
    db.update("lesson", {"id": id}, {"state": state})


def _is_unchanged(db: Db, key: Document, lesson: DreamLesson, is_member: bool) -> bool:
    """Return True if a lesson is still as the dream read it, and free of quarantine.

    `key` selects the scope. A lesson that `is_member` would be replaced by another one,
    so it must not be pinned, either.
    """
    values = {
        **key,
        "id": lesson.id,
        "kind": lesson.kind,
        "signature": lesson.signature,
        "text": lesson.text,
        "trust": lesson.trust,
        "member": is_member,
    }
    return db.first("unchanged", values) is not None


def _write_reflection(
    db: Db,
    scope: Scope,
    dream_id: int,
    proposal: Proposal,
    reflection: Lesson,
    expected: Lessons,
) -> list[Proposal]:
    """Write a reflection that cites the lessons in a proposal; return what was done.

    That is the proposal with its outcome and, for each earlier reflection about the
    same thing that was replaced, a proposal more. A reflection that is stored already
    in the same words is only counted. Nothing is written if a cited lesson has changed
    since the dream read it as in `expected`.
    """
    key = key_of(scope)
    cited = [expected[id] for id in proposal.members]
    if not all(_is_unchanged(db, key, lesson, is_member=False) for lesson in cited):
        return [replace(proposal, survivor=0, outcome=CHANGED_LESSON_OUTCOME)]

    # A revocation of what a cited lesson says must find the reflection, too: it derives
    # from their authors, the examples whose words they show.
    cited_rows = db.all("lessons_of", scope, ids=json.dumps(proposal.members))
    authors = {row["author"] for row in cited_rows} - {None}
    reflection = replace(reflection, parents=tuple(authors))
    name = {"kind": reflection.kind, "signature": reflection.signature.digest}
    stored = db.select("*", "lesson", {**key, **name})
    if stored:
        row = stored[0]
        last_seen = max(lesson.last_seen for lesson in cited)
        outcome = _count_reflection(db, scope, reflection, row=row, last_seen=last_seen)
        return [replace(proposal, survivor=row["id"], outcome=outcome)]

    [answer] = upsert(db, scope, lessons=[reflection], now=time.time())
    for lesson in cited:
        link = {
            **key,
            "child": name_of(name),
            "relation": "cites",
            "parent": lesson.name,
            "dream": dream_id,
        }
        db.insert("link", link)
    # A person has refused these words before.
    if answer.state == "quarantined":
        return [replace(proposal, survivor=answer.id, outcome=REFUSED_OUTCOME)]

    reflected = replace(proposal, survivor=answer.id, outcome="done")
    earlier = _supersede_earlier(db, key, reflected, reflection, dream_id=dream_id)
    return [reflected, *earlier]


def _supersede_earlier(
    db: Db, key: Document, reflected: Proposal, reflection: Lesson, dream_id: int
) -> Iterator[Proposal]:
    """End the earlier reflections about the same thing; yield a proposal for each.

    `reflected` is the proposal that wrote the new `reflection`, which stands in their
    place. A rollback of the dream `dream_id` restores them.
    """
    kind = reflection.kind
    same_thing = {
        **key,
        "kind": kind,
        "pattern": reflection.signature.pattern,
        "state": "unverified",
    }
    for row in db.select("*", "lesson", same_thing):
        if row["id"] == reflected.survivor:
            continue
        link = {
            **key,
            "child": name_of(row),
            "relation": "became",
            "parent": f"{kind}/{reflection.signature.digest}",
            "dream": dream_id,
            "before": row["state"],
        }
        _supersede(db, row["id"], link)
        yield replace(
            reflected,
            action="supersede",
            members=(row["id"],),
            why="the new reflection cites what is known now",
        )


def _count_reflection(
    db: Db, scope: Scope, reflection: Lesson, row: Row, last_seen: float
) -> str:
    """Count a stored reflection if a lesson that it cites was seen since.

    Returns the outcome. `row` is the stored reflection, and `last_seen` is the last
    time that one of the cited lessons was seen. A reflection that was retired or rolled
    back is not counted.
    """
    if row["state"] not in ("unverified", "verified"):
        return WITHDRAWN_OUTCOME
    if last_seen <= row["last_seen"]:
        return KNOWN_OUTCOME

    # The stored words and their trust stay, as somebody may have edited them.
    same = replace(
        reflection,
        text=row["text"],
        sighting=row["text"],
        trust=row["trust"],
        released_by=row["released_by"],
        released_at=row["released_at"],
        vector=None,
    )
    upsert(db, scope, lessons=[same], now=time.time())
    return COUNTED_OUTCOME


def read_log(
    db: Db, scope: Scope, limit: int, id: int | None = None, before: int | None = None
) -> list[Dream]:
    """Return up to `limit` reports of consolidation ("dreams"), newest first.

    With `id`, returns only this dream; with `before`, only dreams with lower ids. Each
    has the texts of its lessons that still exist and that need no review.
    """
    dreams = []
    for row in db.all("read_dreams", scope, limit=limit, dream=id, before=before):
        report = json.loads(row["report"])
        lesson_ids = set[int]()
        for proposal in report["proposals"]:
            lesson_ids.update(proposal["members"], [proposal["survivor"]])
        lessons = db.all("lessons_of", scope, ids=json.dumps(sorted(lesson_ids)))

        columns = {name: row[name] for name in ("id", "by", "at", "undone")}
        texts = {
            lesson["id"]: lesson["text"]
            for lesson in lessons
            if not lesson["unreviewed"]
        }
        dreams.append(from_document(Dream, {**report, **columns, "texts": texts}))
    return dreams


def read_one(db: Db, scope: Scope, id: int) -> Dream:
    """Return a dream. Raises NotFound."""
    for dream in read_log(db, scope, limit=1, id=id):
        return dream
    raise NotFound("dream", str(id), f"the memory of {scope}")


@resumable(result=int)
def undo(db: Db, scope: Scope, id: int, by: str, why: str) -> int:
    """Restore the lessons that a dream superseded; return their number.

    Its own reflections are superseded. Records a ruling. Raises NotFound, InvalidInput
    if `by` is empty, and RollbackRefused if the dream was rolled back before, or if a
    later dream superseded one of its lessons.
    """
    if read_one(db, scope, id).undone is not None:
        raise RollbackRefused(
            id, "it is rolled back already; heedful consolidate log shows when"
        )
    later = db.one("superseded_later", scope, dream=id)
    if later is not None:
        event = f"dream {later['dream']} later superseded its lesson {later['child']}"
        remedy = (
            f"roll back that dream first: heedful consolidate rollback {later['dream']}"
        )
        raise RollbackRefused(id, f"{event}; {remedy}", later["dream"])

    key = key_of(scope)
    # To delete the links restores the lessons: a trigger does so.
    restored: int = sum(row["back"] for row in db.all("undo_dream", scope, dream=id))
    cites = {**key, "relation": "cites", "dream": id}
    for row in db.select("distinct child", "link", cites):
        kind, _, signature = row["child"].partition("/")
        reflection = {**key, "kind": kind, "signature": signature}
        db.update("lesson", reflection, {"state": "superseded"})

    # This checks `by`, too: its error undoes all of the transaction.
    rule(
        db,
        scope,
        action="rollback",
        subject=f"dream/{id}",
        by=by,
        why=why,
    )
    return restored

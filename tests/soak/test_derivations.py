"""Random derivations: no text is trusted more than a simple model of trust allows.

Only a release on record or a measured outcome raises trust, recall returns no
quarantined text, and revoking a source removes everything that rests on it and nothing
else.
"""

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest

from conftest import SOAK
from heedful.errors import InvalidInput, NotFound, NotQuarantined
from heedful.lessons.lesson import Example, Match, Scope
from heedful.lessons.origin import ORIGINS, Origin, lowest_origin
from heedful.memory.memory import Memory
from heedful.store import exposures, search
from heedful.store.connection import Db
from heedful.store.store import Store
from tests.engines import check_derived
from tests.soak.ledger import Ledger
from tests.store.support import opened

pytestmark = pytest.mark.soak
DERIVATIONS = 100 * SOAK
EACH = 50  # derivations of one world
TASKS = [f"convert the weight of parcel {n} to kilograms" for n in range(4)]
ANSWERS = ["1 kg", "2 kg", "3 kg"]
ERRORS = ["unit", "form", "range"]
LESSONS = [
    "",
    "Write kilograms after the number.",
    "Write the weight as a number of kilograms.",
]
ROWS = """
select e.id, e.lesson_id, e.digest, e.state, e.trust, e.lesson, l.kind, l.signature,
       l.project, l.state as lesson_state, l.trust as lesson_trust, l.author, l.text,
       e.released_by, l.released_by as lesson_released_by
from example e join lesson l on l.id = e.lesson_id
"""
Rows = dict[int, dict[str, Any]]


@dataclass(frozen=True)
class Saying:
    """What somebody said: how far it is trusted, by whom it is, and what it derives
    from.
    """

    trust: Origin
    source: str
    parents: frozenset[int] = frozenset()


@dataclass(kw_only=True)
class Text:
    """What the model knows of an example, also of one that is forgotten by now."""

    project: str
    trust: Origin
    sources: set[str]
    parents: set[int]


def said_by(row: dict[str, Any]) -> set[str]:
    """The words of an example, of its lesson and of its answer."""
    return {row["lesson"], row["text"], row["digest"]} - {""}


@dataclass(kw_only=True)
class World:
    """A store with two scopes, what is done to it at random, and a model of what that
    allows.
    """

    store: Store
    chance: random.Random
    texts: dict[int, Text] = field(default_factory=dict)
    said: dict[int, list[Saying]] = field(default_factory=lambda: defaultdict(list))
    refused: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    released: set[int] = field(default_factory=set)
    derivations: int = 0
    leaked: int = 0

    def __post_init__(self) -> None:
        self.memories = [
            Memory(self.store, Scope("t", name), holdout=0) for name in "ab"
        ]

    async def step(self) -> None:
        acts = (self.remember, self.rule, self.revoke)
        act = self.chance.choices(acts, (40, 14, 4))[0]
        await act(self.chance.choice(self.memories))

    # -- what is written

    async def remember(self, memory: Memory) -> None:
        """Remember a sighting, or a text made of up to three stored examples."""
        before = await self.rows()
        here = self.of(before, memory)
        parents = self.chance.sample(
            here, min(len(here), self.chance.choice((0, 0, 1, 2, 3)))
        )
        trust = self.chance.choice(ORIGINS)
        source = (
            f"{trust} {self.chance.randrange(3)}" if self.chance.random() < 0.9 else ""
        )
        if strangers := sorted(before.keys() - set(here)):
            with pytest.raises(InvalidInput, match="derived_from"):
                await memory.remember("e", "x", derived_from=[*parents, strangers[0]])
        example = Example(self.chance.choice(TASKS), self.chance.choice(ANSWERS))
        has_example = self.chance.random() < 0.7
        lesson = self.chance.choice(LESSONS)
        answer = await memory.remember(
            self.chance.choice(ERRORS),
            "wrong",
            example=example if has_example else None,
            lesson=lesson,
            derived_from=parents,
            origin=trust,
            source=source,
        )
        self.derivations += bool(parents)
        low = lowest_origin([trust, *(self.standing(before[id]) for id in parents)])
        source = source or (low if low == "outside" else "")
        await self.wrote(
            memory, before, {answer.id: Saying(low, source, frozenset(parents))}
        )

    async def wrote(
        self, memory: Memory, before: Rows, sayings: dict[int, Saying]
    ) -> None:
        """Compare the rows with what was said: nothing else is written or raised."""
        after = await self.rows()
        rulings = await self.store.read(memory.scope, exposures.rulings, limit=1)
        for reflection, saying in sayings.items():
            self.said[reflection].append(saying)
        assert before.keys() <= after.keys()
        for id, row in after.items():
            # Words that others replaced are of who says them again.
            is_renewed = id in before and before[id]["state"] == "superseded"
            is_renewed = is_renewed and row["state"] != "superseded"
            if id in before and row["trust"] == before[id]["trust"] and not is_renewed:
                continue
            saying = sayings[row["lesson_id"]]
            text = Text(
                project=memory.scope.project,
                trust=saying.trust,
                sources={saying.source},
                parents=set(saying.parents),
            )
            if row["trust"] == "outside" and self.refused[text.project] & said_by(row):
                # Somebody rejected these words, whoever says them now.
                text.trust = "outside"
                text.sources = {saying.source or "outside"}
            if id in before and not is_renewed:
                # Words of a higher origin raise a text; none lower it.
                trusts = [before[id]["trust"], saying.trust]
                assert lowest_origin(trusts) == before[id]["trust"]
                assert saying.trust == "local" or rulings[0]["action"] == "release"
            if id in before and any(
                id == parent or id in self.ancestors(parent)
                for parent in saying.parents
            ):
                text.sources |= self.texts[id].sources
                text.parents |= self.texts[id].parents
            text.parents -= {id}
            self.texts[id] = text
        words = {row["lesson_id"]: row["text"] for row in before.values()}
        for row in after.values():
            if words.get(row["lesson_id"]) != row["text"]:
                assert after[row["author"]]["lesson"] == row["text"]
        self.check(after)

    # -- what is ruled

    async def rule(self, memory: Memory) -> None:
        """Release or reject examples, some of which may not wait; all of them or
        none.
        """
        before = await self.rows()
        here = self.of(before, memory)
        waiting = [id for id in here if before[id]["state"] == "quarantined"]
        assert {item.id for item in await memory.quarantine.waiting(999)} == set(
            waiting
        )
        among = waiting if waiting and self.chance.random() < 0.8 else sorted(before)
        ids = self.chance.sample(among, min(len(among), self.chance.choice((1, 1, 2))))
        action = self.chance.choice(("release", "reject"))
        try:
            await getattr(memory.quarantine, action)(ids, by="ann")
        except (NotFound, NotQuarantined, InvalidInput):
            assert not ids or not set(ids) <= set(waiting)
            assert await self.rows() == before
            return
        assert set(ids) <= set(waiting)
        after = await self.rows()
        assert after.keys() == before.keys()
        rulings = await self.store.read(memory.scope, exposures.rulings, len(ids))
        assert {item["record"]["example"] for item in rulings} == set(ids)
        for id in ids:
            if action == "release":
                self.released.add(id)
            else:
                self.refused[memory.scope.project] |= said_by(before[id])
        self.check(after)

    async def revoke(self, memory: Memory) -> None:
        """Revoke a source: all that rests on it goes but what others said, too."""
        before = await self.rows()
        names = {
            name for id in self.of(before, memory) for name in self.texts[id].sources
        } - {""}
        if not names:
            return
        source = self.chance.choice(sorted(names))
        here = {
            id
            for id, text in self.texts.items()
            if text.project == memory.scope.project
        }
        rests = {id for id in here if source in self.sources(id)}
        counted = await memory.quarantine.revoke(source, dry_run=True)
        assert await self.rows() == before
        assert await memory.quarantine.revoke(source, by="ann") == counted
        after = await self.rows()
        gone = before.keys() - after.keys()
        assert gone <= rests
        assert counted.examples == len(gone)
        for id in rests & after.keys():
            others = [
                s for s in self.said[after[id]["lesson_id"]] if s.source != source
            ]
            await self.adopt(memory, after[id], others)
        rests = {id for id in here if source in self.sources(id)}
        assert not rests & after.keys()
        for id in self.of(before, memory):
            sayings = self.said[before[id]["lesson_id"]]
            sayings[:] = [
                saying
                for saying in sayings
                if saying.source != source and not saying.parents & rests
            ]
        for id in after.keys() - before.keys():  # what others saw speaks for itself
            await self.adopt(memory, after[id], self.said[after[id]["lesson_id"]])
        for id in rests:
            del self.texts[id]
        left = (
            "select o.source from occurrence o join lesson l on l.id = o.lesson_id"
            " where l.project = ?1 and o.source = ?2"
            " union all select source from lesson where project = ?1 and source = "
            "?2"
        )
        assert await self.read(left, memory.scope.project, source) == []
        self.check(after)

    async def adopt(
        self, memory: Memory, row: dict[str, Any], sayings: list[Saying]
    ) -> None:
        """Note whose an example is now: one of these said it, and is trusted so far."""
        origins = await self.read(
            "select source from origin where example = ?1", row["id"]
        )
        lineage = await self.read(
            "select parent from lineage where child = ?1", row["id"]
        )
        text = Text(
            project=memory.scope.project,
            trust=row["trust"],
            sources={name for (name,) in origins},
            parents={parent for (parent,) in lineage},
        )
        refused = row["trust"] == "outside" and self.refused[text.project] & said_by(
            row
        )
        rests_on_self = {row["id"]}
        assert (
            any(
                saying.parents - rests_on_self == text.parents
                and (refused or {saying.source} == text.sources)
                and (refused or saying.trust == text.trust)
                for saying in sayings
            )
            or self.texts.get(row["id"]) == text
        ), (row, text, sayings)
        self.texts[row["id"]] = text

    # -- what must hold

    def check(self, after: Rows) -> None:
        for id, row in after.items():
            assert row["trust"] == self.texts[id].trust
            # Only who ruled so released it, and its origin stays.
            assert not row["released_by"] or id in self.released
            for of in ("", "lesson_"):
                is_told = row[f"{of}state"] in ("unverified", "verified")
                is_unreviewed = (
                    row[f"{of}trust"] == "outside" and not row[f"{of}released_by"]
                )
                assert not (is_told and is_unreviewed)
            author = after[row["author"]]
            assert author["lesson_id"] == row["lesson_id"]
            # One that was rejected stays so, when somebody confirms all of an
            # import.
            if author["state"] != "retired":
                assert (
                    lowest_origin([row["lesson_trust"], author["trust"]])
                    == row["lesson_trust"]
                )

    async def recalls(self) -> None:
        """Count what comes back of what may not be recalled, whatever is asked."""
        rows = await self.rows()
        await check_derived(self.store)
        for memory in self.memories:
            for query in (*TASKS[:1], *LESSONS[1:]):
                matches = await memory.recall(query, 99)
                matches += await self.store.read(
                    memory.scope, search.search, query, "", None, 99
                )
                for match in matches:
                    self.leaked += not self.may_recall(memory, rows[match.id], match)
                # A brief may show several examples of a lesson, recall has the best.
                for id in (await memory.brief(query, "")).shown:
                    self.leaked += not self.may_show(memory, rows[id])

    def may_show(self, memory: Memory, row: dict[str, Any]) -> bool:
        """Return whether a prompt of this memory may have the answer of an example."""
        is_unreviewed = row["trust"] == "outside" and not row["released_by"]
        if row["project"] != memory.scope.project or is_unreviewed:
            return False
        return row["state"] in ("unverified", "verified")

    def may_recall(self, memory: Memory, row: dict[str, Any], match: Match) -> bool:
        """Return whether a prompt of this memory may have that text of an example."""
        if not self.may_show(memory, row):
            return False
        if row["lesson_trust"] == "outside" and not row["lesson_released_by"]:
            return bool(match.lesson == row["lesson"])
        return match.lesson in (row["lesson"], row["text"])

    # -- the model

    def standing(self, row: dict[str, Any]) -> Origin:
        """How far what derives from an example may be trusted."""
        return "local" if row["released_by"] else self.texts[row["id"]].trust

    def ancestors(self, id: int) -> set[int]:
        ancestors = set[int]()
        waiting = [id]
        while waiting:
            text = self.texts.get(waiting.pop())
            new = (text.parents if text else set()) - ancestors
            ancestors |= new
            waiting += new
        return ancestors

    def sources(self, id: int) -> set[str]:
        """All sources of a text; none is reached through a text that was revoked."""
        reached = [
            self.texts[reached_id]
            for reached_id in {id} | self.ancestors(id)
            if reached_id in self.texts
        ]
        return {name for text in reached for name in text.sources} - {""}

    def of(self, rows: Rows, memory: Memory) -> list[int]:
        return sorted(
            id for id, row in rows.items() if row["project"] == memory.scope.project
        )

    async def rows(self) -> Rows:
        def read(db: Db, scope: Scope) -> list[dict[str, Any]]:
            return [dict(row) for row in db.execute(ROWS)]

        return {row["id"]: row for row in await self.store.read(Scope(), read)}

    async def read(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        def read(db: Db, scope: Scope) -> list[tuple[Any, ...]]:
            return [tuple(dict(row).values()) for row in db.execute(sql, values)]

        return await self.store.read(Scope(), read)


async def test_no_text_is_trusted_more_than_it_may_be(ledger: Ledger) -> None:
    derivations = 0
    leaked = 0
    for seed in range(DERIVATIONS // EACH):
        with opened(":memory:") as store:
            world = World(store=store, chance=random.Random(seed))
            steps = 0
            while world.derivations < EACH:
                await world.step()
                steps += 1
                if steps % 10 == 0:
                    await world.recalls()
        derivations += world.derivations
        leaked += world.leaked
    ledger.settle(
        what="texts of strangers, derived, released and revoked at random",
        engine="SQLite",
        times=derivations,
        seed=0,
        leaked=leaked,
    )

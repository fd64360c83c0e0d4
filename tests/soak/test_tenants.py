"""Twenty tenants ask a store, and a service on it, for more than is theirs; nothing is
told.

Every text of a scope has the scope's mark in it, and every row its id: an answer that
has another mark, or an id of another's row, is a leak. Names of projects, loops,
sources, episodes and traces are the same everywhere, so only the scope tells them
apart.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import httpx
import pytest

from conftest import SOAK
from heedful.errors import HeedfulError, InvalidInput, NotFound
from heedful.lessons.lesson import Exposure, Outcome, Scope
from heedful.lessons.signature import signature
from heedful.memory import quarantine as quarantine_store
from heedful.memory.memory import Memory
from heedful.memory.transfer import export_lessons
from heedful.store import (
    editions,
    episodes as episode_store,
    exposures,
    keys as key_store,
    lessons as lesson_store,
    search,
)
from heedful.store.connection import Db
from heedful.store.statements import statements
from heedful.store.store import Store
from heedful.testing import FixedEmbedder
from heedful_server.app import application
from heedful_server.arrivals import Patience, gather, read_spans, receive
from heedful_server.setup import Setup
from tests.episodes.runs import document, genai
from tests.soak.ledger import Ledger
from tests.store.support import opened, rows

pytestmark = [pytest.mark.soak, pytest.mark.both_nightly]
OPERATIONS = 500 if SOAK == 1 else 1_000 * SOAK  # on each engine
SEED = 7
TENANTS = 20
MAX_LEAKS = 20  # after which nobody asks any more
PROJECTS = ("main", "side")
WORKERS = 4
LETTERS = "bcdfghjklmnpqrtvwxz"  # so that no stem of a word is another mark
MARK = re.compile(r"mark[a-z]{2}x")
ENDED = Patience(settled=0.0, ending=0.0)
OF_TENANT = (
    "/v1/keys",
    "/v1/audit",
)  # a tenant sees what it did in any of its projects
NUMBERS = count()


def word(n: int) -> str:
    """A word of letters for each number."""
    return "w" + "".join(ascii_lowercase[int(digit)] for digit in str(n))


@dataclass(kw_only=True)
class Lesson:
    id: int
    text: str
    source: str
    held: bool


@dataclass(eq=False, kw_only=True)
class Place:
    """A scope, its mark, and what is in it; it asks the store and the service."""

    crowd: Crowd
    scope: Scope
    mark: str
    key: str = ""
    lessons: dict[int, Lesson] = field(default_factory=dict)
    episodes: set[str] = field(default_factory=set)
    loops: set[str] = field(default_factory=set)
    shown: set[str] = field(default_factory=set)
    examples: set[int] = field(default_factory=set)

    def look(self, asked_for: str, answer: Any) -> Any:
        """Count an answer that has what the place may not see."""
        marks = [self.mark]
        if asked_for.startswith(OF_TENANT):
            marks = [
                place.mark
                for place in self.crowd.places
                if place.scope.tenant == self.scope.tenant
            ]
        others = set(MARK.findall(repr(answer))) - {*marks}
        if others:
            self.leak(f"{asked_for} told {self.scope} of {others}: {answer!r}")
        return answer

    def leak(self, text: str) -> None:
        self.crowd.leaks.append(text)

    async def read(self, work: Any, *arguments: Any, **more: Any) -> Any:
        answer = await self.crowd.store.read(self.scope, work, *arguments, **more)
        return self.look(work.__name__, answer)

    async def write(self, work: Any, *arguments: Any, **more: Any) -> Any:
        answer = await self.crowd.store.write(self.scope, work, *arguments, **more)
        return self.look(work.__name__, answer)

    async def ask(
        self,
        method: str,
        path: str,
        expected: int,
        json: Any = None,
        key: str = "",
        **headers: str,
    ) -> Any:
        """What the service answers."""
        path = f"/v1/{path}"
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        headers["Authorization"] = f"Bearer {key or self.key}"
        answer = await self.crowd.client.request(
            method, path, headers=headers, json=json
        )
        assert answer.status_code == expected, f"{method} {path}: {answer.text}"
        self.crowd.refused += expected >= 400
        return self.look(path, answer.json())

    async def get(self, path: str, expected: int = 200, **more: str) -> Any:
        return await self.ask("GET", path, expected, **more)

    async def post(self, path: str, expected: int, body: Any, **more: str) -> Any:
        return await self.ask("POST", path, expected, body, **more)

    @property
    def memory(self) -> Memory:
        return Memory(self.crowd.store, self.scope, self.crowd.embedder, holdout=0.0)

    async def create_key(self, *may: str, outside: bool = False) -> tuple[str, str]:
        """Return its id and the key."""
        tenant = self.scope.tenant
        by = self.mark
        created, token = await key_store.create(
            self.crowd.store,
            tenant,
            by,
            projects=[self.scope.project],
            may=may,
            by=by,
            outside=outside,
        )
        self.crowd.keys[created.id] = tenant
        return created.id, token

    def text(self) -> str:
        n = next(NUMBERS)
        return f"{self.mark} {word(n)} {word(n * 7 + 3)} went wrong in a report"

    def learnt(self, id: int, text: str, source: str, is_held: bool) -> None:
        for other in self.crowd.places:
            if id in other.lessons:
                self.leak(f"{self.scope} was given lesson {id} of {other.scope}")
        self.lessons[id] = Lesson(id=id, text=text, source=source, held=is_held)

    def owns(self, items: list[dict[str, Any]], name: str = "id") -> None:
        if not {item[name] for item in items} <= self.lessons.keys():
            self.leak(f"{self.scope} saw {items}")


Act = Callable[[Place, Place, random.Random], Awaitable[None]]


class Crowd:
    """Tenants that ask at the same time; each worker asks for tenants of its own."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.seed = seed
        self.embedder = FixedEmbedder()
        marks = (f"mark{a}{b}x" for a in LETTERS for b in LETTERS)
        scopes = [
            Scope(f"tenant-{t}", project)
            for t in range(TENANTS)
            for project in PROJECTS
        ]
        self.places = [
            Place(crowd=self, scope=scope, mark=next(marks)) for scope in scopes
        ]
        self.keys: dict[str, str] = {}  # the tenants of their ids
        self.done: Counter[str] = Counter()
        self.refused = 0
        self.leaks: list[str] = []
        setup = Setup(store=store, embedder=self.embedder, holdout=0.0)
        transport = httpx.ASGITransport(app=application(setup))
        self.client = httpx.AsyncClient(
            transport=transport, base_url="http://localhost"
        )

    async def run(self, operations: int) -> None:
        for place in self.places:
            _, place.key = await place.create_key(*key_store.KEY_PERMISSIONS)
        await asyncio.gather(
            *(self.work(n, operations // WORKERS) for n in range(WORKERS))
        )
        await self.client.aclose()

    async def work(self, number: int, operations: int) -> None:
        chance = random.Random(f"{self.seed} {number}")
        places_here = [
            p
            for n, p in enumerate(self.places)
            if n // len(PROJECTS) % WORKERS == number
        ]
        for _ in range(operations):
            if len(self.leaks) >= MAX_LEAKS:
                return
            place = chance.choice(places_here)
            act = chance.choice(ACTS)
            # Somebody else's place, or another project of the same tenant.
            other = chance.choice(
                [candidate for candidate in self.places if candidate is not place]
            )
            await act(place, other, chance)
            self.done[act.__name__] += 1


def lesson_of(place: Place, chance: random.Random) -> Lesson | None:
    return chance.choice(list(place.lessons.values())) if place.lessons else None


def example_of(place: Place, chance: random.Random) -> list[int]:
    return [chance.choice(list(place.examples))] if place.examples else []


# At the store.


async def remember(place: Place, other: Place, chance: random.Random) -> None:
    text = place.text()
    source = chance.choice(("page one", "page two"))
    is_held = chance.random() < 0.3
    answer = await place.memory.remember(
        "trouble",
        text,
        lesson=f"repair {text}",
        origin="outside" if is_held else "user",
        source=source,
        tags=[place.mark],
    )
    assert answer.created is True
    assert answer.seen == 1
    place.learnt(answer.id, text, source, is_held)
    if parents := example_of(other, chance):
        with pytest.raises(InvalidInput):
            await place.memory.remember("trouble", place.text(), derived_from=parents)


async def edit_a_strangers(place: Place, other: Place, chance: random.Random) -> None:
    if (strange := lesson_of(other, chance)) is None:
        return
    by = place.mark
    edits: list[tuple[Any, ...]] = [
        (lesson_store.pin, strange.id, True, by, ""),
        (exposures.restore, strange.id, by, ""),
        (editions.amend, strange.id, "", by, ""),
    ]
    if ids := example_of(other, chance):
        assert await place.read(quarantine_store.read_entries, ids) == []
        edits.append((quarantine_store.settle, ids, "release", by, ""))
        places = [(ids[0], "any", [0.0] * 64)]
        assert await place.write(search.place, "fixed/64", places) == 0
    with pytest.raises(NotFound):
        await place.write(*chance.choice(edits))


async def outcomes(place: Place, other: Place, chance: random.Random) -> None:
    loop = f"loop-{chance.randrange(1_000)}"
    digest = signature("trouble", place.mark).digest
    past_exposures = (await place.read(exposures.past, loop)).exposures
    assert bool(past_exposures) == (loop in place.shown)
    exposed = [
        Exposure(f"error/{digest}", loop, shown=True, signature=digest, share=0.0)
    ]
    outcome = Outcome(loop, True, calls=1, signatures=frozenset())
    await place.write(exposures.remember, (), exposures=exposed, outcome=outcome)
    place.shown.add(loop)
    assert (await place.read(exposures.past, loop)).ended == len(place.shown)
    evidence = await place.read(exposures.evidence)
    assert sum(evidence.cases_of().get(None, {}).values()) == len(place.shown)


async def traces(place: Place, other: Place, chance: random.Random) -> None:
    spans = json.loads(json.dumps(genai()).replace("order A", f"{place.mark} order A"))
    trace = f"{chance.randrange(1, 4):032x}"
    cut = chance.randrange(len(spans))
    for item in spans:
        item["traceId"] = trace
    await receive(place.crowd.store, place.scope, document(spans[cut:]))
    assert len(await place.read(read_spans, trace)) in (0, len(spans) - cut)
    assert await stored_digests(place) == place.episodes
    await gather(place.crowd.store, place.scope, ENDED)
    new_digests = await stored_digests(place) - place.episodes
    assert len(new_digests) <= 1, "one trace of this place had ended"
    place.episodes |= new_digests


async def stored_digests(place: Place) -> set[str]:
    episodes = await place.read(episode_store.page, 1_000, whole=True)
    return {episode.digest for episode in episodes}


async def export(place: Place, other: Place, chance: random.Random) -> None:
    def read(db: Db, scope: Scope) -> list[Any]:
        return [*export_lessons(db, scope)]

    records = place.look("export", await place.crowd.store.read(place.scope, read))
    assert len(records) == len(place.lessons)
    await place.read(search.unplaced, "other/9", 0, 100)


# Over HTTP.


async def http_remember(place: Place, other: Place, chance: random.Random) -> None:
    text = place.text()
    is_held = chance.random() < 0.5
    body = {
        "error_type": "trouble",
        "text": text,
        "lesson": f"repair {text}",
        "source": "page one",
    }
    key = place.key
    if is_held:
        _, key = await place.create_key("read", "write", outside=True)
    post = partial(
        place.post,
        "reflections",
        201,
        body,
        key=key,
        Idempotency_Key=f"once {next(NUMBERS)}",
    )
    created = await post()
    place.learnt(created["id"], text, "page one", is_held)
    assert await post() == created


async def cursor_of_a_stranger(
    place: Place, other: Place, chance: random.Random
) -> None:
    for path in ("reflections", "episodes", "keys", "audit"):
        if cursor := (await other.get(f"{path}?limit=1"))["next"]:
            page = await place.get(f"{path}?limit=50&cursor={cursor}")
            if path == "reflections":
                place.owns(page["items"])


async def forged_ids(place: Place, other: Place, chance: random.Random) -> None:
    if (strange := lesson_of(other, chance)) is not None:
        await place.get(f"reflections/{strange.id}", 404)
        path = f"reflections/{strange.id}"
        await place.ask(
            "PATCH", path, expected=404, json={"pinned": True}, If_Match='"0"'
        )
    for id in example_of(other, chance):
        await place.get(f"quarantine/{id}", 404)
        await place.post(
            f"quarantine/{id}/{chance.choice(('release', 'reject'))}", 404, {}
        )
    keys = reversed(place.crowd.keys.items())
    theirs = next(key for key, tenant in keys if tenant != place.scope.tenant)
    with pytest.raises(NotFound):
        await place.write(key_store.revoke, theirs, place.mark)


BODIES: dict[str, dict[str, Any]] = {
    "reflections": {"error_type": "a", "text": "b"},
    "recall": {"task": "a"},
    "seen": {"error_type": "a", "text": "b"},
    "outcomes": {"loop": "a", "right_at_once": True, "calls": 1},
    "episodes": {"events": [{"type": "a"}]},
    "quarantine/revoke": {"source": "page one"},
}


async def confused(place: Place, other: Place, chance: random.Random) -> None:
    """A key names a tenant or a project that is not its own."""
    tenant = other.scope.tenant
    project = other.scope.project
    if tenant != place.scope.tenant:
        await place.get(f"reflections?tenant={tenant}", 403)
        for path, body in BODIES.items():
            await place.post(path, 403, {**body, "tenant": tenant})
    if project != place.scope.project:
        path = chance.choice(("reflections", "episodes", "quarantine", "proof"))
        await place.get(f"{path}?project={project}", 403)


async def loops(place: Place, other: Place, chance: random.Random) -> None:
    """Loops are called the same everywhere; a stranger's loop of a name is not
    there.
    """
    id = f"told-{chance.randrange(20)}"
    path = f"loops/{id}"
    mark = place.mark
    report = {
        "output": mark,
        "evaluation": {"findings": [{"check": "wrong", "message": mark}]},
    }
    if id not in place.loops:
        await place.get(path, 404)
        await place.get(f"{path}/explain", 404)
        await place.ask("PUT", f"{path}/attempts/1", expected=404, json=report)
        await place.ask("PUT", path, expected=201, json={"task": mark})
        place.loops.add(id)
        await place.ask("PUT", f"{path}/attempts/1", expected=200, json=report)
        await place.post(f"{path}/cancel", 200, {"why": mark})
    stored_loop = await place.get(path)
    assert stored_loop["task"] == mark
    assert [item["output"] for item in stored_loop["made"]] == [mark]
    page = await place.get("loops?limit=200")
    assert {item["id"] for item in page["items"]} == place.loops
    await place.post("replay", 200, {"policies": ["default"]})
    await place.get(f"{path}/explain")


async def recall(place: Place, other: Place, chance: random.Random) -> None:
    of = chance.choice((place, other))
    text = (
        known_lesson.text if (known_lesson := lesson_of(of, chance)) else "went wrong"
    )
    answered = await place.post(
        "recall", 200, {"task": text, "limit": 20, "form": "text"}
    )
    place.owns(answered["items"], "reflection")
    seen = await place.post("seen", 200, {"error_type": "trouble", "text": text})
    place.owns(seen["lessons"])
    assert known_lesson is None or of is other or seen["count"] >= 1


async def quarantine(place: Place, other: Place, chance: random.Random) -> None:
    waiting = (await place.get("quarantine?limit=200"))["items"]
    held_count = sum(entry.held for entry in place.lessons.values())
    assert len(waiting) == min(200, held_count)
    place.examples |= {entry["id"] for entry in waiting}
    await place.get("proof")
    if waiting:
        entry = chance.choice(waiting)
        await place.get(f"quarantine/{entry['id']}")
        await place.post(f"quarantine/{entry['id']}/release", 200, {})
        released = next(
            kept_lesson
            for kept_lesson in place.lessons.values()
            if kept_lesson.text == entry["pattern"]
        )
        released.held = False
    if chance.random() < 0.3:  # so that something grows
        source = chance.choice(("page one", "page two"))
        left = {
            id: entry for id, entry in place.lessons.items() if entry.source != source
        }
        status = 404 if len(left) == len(place.lessons) else 200
        await place.post("quarantine/revoke", status, {"source": source})
        place.lessons = left


async def episode(place: Place, other: Place, chance: random.Random) -> None:
    events = [
        {"type": "user_message", "content": f"{place.mark} {chance.randrange(9)}"}
    ]
    body = {"events": events, "outcome": "failure", "id": "the same for all"}
    digest = (await place.post("episodes", 202, body))["digest"]
    place.episodes.add(digest)
    page = await place.get("episodes?limit=200")
    assert {item["digest"] for item in page["items"]} <= place.episodes
    assert len(page["items"]) == min(200, len(place.episodes))
    await place.write(episode_store.take, 4e9)
    await place.write(episode_store.record_failure, digest, f"{place.mark} was late")
    await place.read(episode_store.page, 1_000, whole=True)


async def keys(place: Place, other: Place, chance: random.Random) -> None:
    """A key that was revoked, and a key that was guessed, are refused."""
    id, key = await place.create_key("read", "write")
    await place.write(key_store.revoke, id, place.mark)
    guessed = other.key[:-4] + ("1111" if other.key.endswith("0000") else "0000")
    path = chance.choice(("reflections", "episodes", "quarantine", "proof", "keys"))
    for wrong in (key, guessed):
        await place.get(path, 401, key=wrong)
    for item in (await place.get("keys?limit=200"))["items"]:
        assert place.crowd.keys[item["id"]] == place.scope.tenant
    await place.get("audit?limit=200")


ACTS: tuple[Act, ...] = (
    *(
        remember,
        remember,
        remember,
        http_remember,
        http_remember,
        recall,
        recall,
        loops,
        traces,
    ),
    *(edit_a_strangers, outcomes, export, cursor_of_a_stranger, forged_ids, confused),
    *(quarantine, quarantine, episode, keys),
)

TABLES = "loop lesson example exposure outcome learnt ruling episode link key audit "
TABLES += "answer trace span"


def test_nobody_is_told_of_another_tenant_or_project(
    tmp_path: Path, engine: str, ledger: Ledger
) -> None:
    with opened(tmp_path / "e.db") as store:
        crowd = Crowd(store, SEED)
        asyncio.run(crowd.run(OPERATIONS))
        of = {place.mark: place.scope.tenant for place in crowd.places}
        for table in TABLES.split():
            owner = "r.tenant"
            if table == "example":
                owner = "(select tenant from lesson l where l.id = r.lesson_id)"
            for tenant, *row in rows(
                tmp_path / "e.db", f"select {owner}, r.* from {table} r"
            ):
                if not {of[mark] for mark in MARK.findall(repr(row))} <= {tenant}:
                    crowd.leaks.append(f"{table}: {row}")
    print(crowd.leaks)
    ledger.settle(
        what="twenty tenants that ask for what others have (times: operations)",
        engine="SQLite" if engine == "sqlite" else "PostgreSQL",
        times=crowd.done.total(),
        seed=SEED,
        leaked=len(crowd.leaks),
    )
    assert crowd.done.total() == OPERATIONS
    assert crowd.done.keys() == {act.__name__ for act in ACTS}
    assert crowd.refused > 0


OWN = "tenant = :tenant and project = :project"
PLANTED = {
    "list_lessons": (OWN, "project = :project"),
    "quarantine_entries": ("e.scope = :scope", "true"),
    "read_loop": (OWN, "project = :project"),
}


@pytest.mark.nightly
@pytest.mark.sqlite  # PostgreSQL has a second lock
@pytest.mark.parametrize("name", PLANTED)
def test_a_statement_that_forgets_whose_the_rows_are_is_found(
    tmp_path, monkeypatch, name
):
    sql = statements("sqlite")[name]
    assert PLANTED[name][0] in sql
    monkeypatch.setitem(statements("sqlite"), name, sql.replace(*PLANTED[name]))
    failures = (AssertionError, HeedfulError)  # it is told, or stands in the way
    with opened(tmp_path / "e.db") as store, pytest.raises(failures):
        run_without_leak(store)


def run_without_leak(store: Store) -> None:
    crowd = Crowd(store, SEED)
    asyncio.run(crowd.run(2_000))
    assert not crowd.leaks

"""Twenty tenants on one store, what each may see, and a crowd that asks for more.

Every text of a scope has the scope's mark in it, and every row its id: an answer that has another
mark, or an id of another's row, is a leak. Names of projects, loops, sources, episodes and traces
are the same everywhere, so that only the scope tells them apart.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from string import ascii_lowercase
from typing import Any

import httpx
import pytest

from heedful.errors import InvalidInput, NotFound
from heedful.lessons.lesson import Change, Exposure, Outcome, Scope
from heedful.lessons.signature import signature
from heedful.memory.ingest import Patience, gather, receive
from heedful.memory.memory import Memory
from heedful.service.app import application
from heedful.service.setup import Setup
from heedful.store import episodes as episode_store
from heedful.store import exposures, search, transfer
from heedful.store import keys as key_store
from heedful.store import lessons as lesson_store
from heedful.store import patterns as pattern_store
from heedful.store.store import Store
from heedful.testing import FixedEmbedder
from tests.traces.runs import document, genai

TENANTS = 20
PROJECTS = ("main", "side")
LETTERS = "bcdfghjklmnpqrtvwxz"  # so that no stem of a word is another mark
MARK = re.compile(r"mark[a-z]{2}x")
ALL = ("read", "write", "approve", "admin")
ENDED = Patience(settled=0.0, missing=0.0, elsewhere=0.0, ending=1e9)


def word(n: int) -> str:
    """A word of letters for each number."""
    return "w" + "".join(ascii_lowercase[int(digit)] for digit in str(n))


@dataclass
class Lesson:
    """A lesson as its scope knows it."""

    id: int
    text: str
    source: str
    held: bool


@dataclass
class Place:
    """A scope, its mark, and what is in it."""

    scope: Scope
    mark: str
    lessons: dict[int, Lesson] = field(default_factory=dict)
    episodes: set[str] = field(default_factory=set)
    loops: set[str] = field(default_factory=set)
    shown: set[str] = field(default_factory=set)
    ended: int = 0
    examples: set[int] = field(default_factory=set)


@dataclass
class Held:
    """A key, whose it is, and what it may."""

    token: str
    id: str
    tenant: str
    may: tuple[str, ...]
    projects: tuple[str, ...]
    revoked: bool = False


Act = Callable[["Crowd", Place, random.Random], Awaitable[Any]]


class Crowd:
    """Tenants that ask a store, and a service on it, at the same time."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store, self.seed = store, seed
        marks = (f"mark{a}{b}x" for a in LETTERS for b in LETTERS)
        self.places = [
            Place(Scope(f"tenant-{t}", project), next(marks))
            for t in range(TENANTS)
            for project in PROJECTS
        ]
        self.keys: list[Held] = []
        self.done: Counter[str] = Counter()
        self.refused = 0
        self._numbers = count()
        self.embedder = FixedEmbedder()
        setup = Setup(store, embedder=self.embedder, patience=ENDED, holdout=0.0)
        transport = httpx.ASGITransport(app=application(setup))
        self.client = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    async def run(self, operations: int, at_a_time: int = 4) -> None:
        """So many operations; each worker has tenants of its own, and knows the ids of all."""
        for place in self.places:
            await self.key(place, ALL)
        each = operations // at_a_time
        whose = [n // len(PROJECTS) % at_a_time for n in range(len(self.places))]
        own: list[list[Place]] = [[] for _ in range(at_a_time)]
        for place, worker in zip(self.places, whose, strict=True):
            own[worker].append(place)
        await asyncio.gather(*(self._work(w, own[w], each) for w in range(at_a_time)))
        await self.client.aclose()

    async def _work(self, number: int, own: Sequence[Place], operations: int) -> None:
        chance = random.Random(f"{self.seed} {number}")
        for _ in range(operations):
            place, act = chance.choice(own), chance.choice(ACTS)
            answer = await act(self, place, chance)
            self.look(act.__name__, place, answer)
            self.done[act.__name__] += 1

    def look(self, what: str, place: Place, answer: Any) -> None:
        """Hold an answer against what the place may see."""
        others = set(MARK.findall(repr(answer))) - {place.mark}
        assert not others, f"{what} told {place.scope} of {others}: {answer!r}"

    def stranger(self, place: Place, chance: random.Random) -> Place:
        """A place of somebody else, or another project of the same tenant."""
        while (other := chance.choice(self.places)) is place:
            pass
        return other

    def memory(self, place: Place) -> Memory:
        return Memory(self.store, place.scope, self.embedder, holdout=0.0)

    def text(self, place: Place) -> str:
        n = next(self._numbers)
        return f"{place.mark} {word(n)} {word(n * 7 + 3)} went wrong in a report"

    async def key(self, place: Place, may: Sequence[str]) -> Held:
        projects = (place.scope.project,)
        made, token = await key_store.create(
            self.store, place.scope.tenant, place.mark, projects=projects, may=may, by=place.mark
        )
        held = Held(token, made.id, place.scope.tenant, tuple(may), projects)
        self.keys.append(held)
        return held

    def held(self, place: Place, may: str) -> Held:
        """A good key of that place."""
        mine = place.scope.tenant, (place.scope.project,)
        own = (one for one in self.keys if (one.tenant, one.projects) == mine)
        return next(one for one in own if may in one.may and not one.revoked)

    async def ask(
        self, place: Place, method: str, path: str, expected: int, may: str = "admin", **given: Any
    ) -> Any:
        """What the service answers to a key of that place."""
        key = given.pop("key", None) or self.held(place, may).token
        headers = {"Authorization": f"Bearer {key}", **given.pop("headers", {})}
        answer = await self.client.request(method, path, headers=headers, **given)
        assert answer.status_code == expected, f"{method} {path}: {answer.text}"
        self.refused += expected >= 400
        return answer.json()

    def new(self, place: Place, id: int, text: str, source: str, held: bool) -> None:
        for other in self.places:
            assert id not in other.lessons, f"{place.scope} was given lesson {id} of {other.scope}"
        place.lessons[id] = Lesson(id, text, source, held)

    def own(self, place: Place, ids: Sequence[int]) -> None:
        """All of these are lessons of the place."""
        assert set(ids) <= place.lessons.keys(), f"{place.scope} saw {ids}"


TABLES = """
loop reflection example exposure outcome taught ruling episode link dream key audit answer trace
span
"""


def rows_of_others(crowd: Crowd, read: Callable[[str], Sequence[Any]]) -> list[Any]:
    """Rows that hold a mark of another tenant than their own."""
    of = {place.mark: place.scope.tenant for place in crowd.places}
    wrong = []
    for table in TABLES.split():
        owner = "r.tenant"
        if table == "example":
            owner = "(select tenant from reflection l where l.id = r.reflection)"
        for tenant, *row in read(f"select {owner} as owner, r.* from {table} r"):
            if any(of[mark] != tenant for mark in MARK.findall(repr(row))):
                wrong.append((table, tenant, row))
    return wrong


def lesson_of(place: Place, chance: random.Random) -> Lesson | None:
    return chance.choice(list(place.lessons.values())) if place.lessons else None


# At the store.


async def remember(crowd: Crowd, place: Place, chance: random.Random) -> Any:
    text, source = crowd.text(place), chance.choice(("page one", "page two"))
    held = chance.random() < 0.3
    answer = await crowd.memory(place).remember(
        "trouble",
        text,
        lesson=f"repair {text}",
        trust="tool" if held else "operator",
        source=source,
        tags=[place.mark],
    )
    assert (answer.created, answer.seen) == (True, 1)
    crowd.new(place, answer.id, text, source, held)
    return answer


async def derive_from_a_strangers(crowd: Crowd, place: Place, chance: random.Random) -> Any:
    other = crowd.stranger(place, chance)
    if other.examples:
        parents = [chance.choice(list(other.examples))]
        with pytest.raises(InvalidInput):
            await crowd.memory(place).remember("trouble", crowd.text(place), derived_from=parents)


async def edit_a_strangers(crowd: Crowd, place: Place, chance: random.Random) -> Any:
    other = crowd.stranger(place, chance)
    if (one := lesson_of(other, chance)) is None:
        return
    scope, store, by = place.scope, crowd.store, place.mark
    digests = [signature("trouble", one.text).digest]
    edits: list[tuple[Any, ...]] = [
        (lesson_store.pin, one.id, True, by, ""),
        (exposures.restore, one.id, by, ""),
        (pattern_store.amend, one.id, "", Change(pinned=True), by, ""),
        (pattern_store.set_apart, digests, True, by, ""),
    ]
    if other.examples:
        ids = [chance.choice(list(other.examples))]
        assert await store.read(scope, lesson_store.quarantined, ids) == []
        edits.append((lesson_store.settle, ids, "release", by, ""))
        places = [(ids[0], "any", [0.0] * 64)]
        assert await store.write(scope, search.place, "fixed/64", places) == 0
    with pytest.raises(NotFound):
        await store.write(scope, *chance.choice(edits))


async def outcomes(crowd: Crowd, place: Place, chance: random.Random) -> Any:
    store, loop = crowd.store, f"loop-{chance.randrange(1_000)}"
    digest = signature("trouble", place.mark).digest
    exposure = Exposure(f"error/{digest}", loop, True, digest, 0.0)
    new = loop not in place.shown
    assert bool((await store.read(place.scope, exposures.past, loop)).exposures) != new
    await store.write(
        place.scope,
        exposures.remember,
        (),
        exposures=[exposure],
        outcome=Outcome(loop, True, 1, frozenset()),
    )
    place.shown.add(loop)
    place.ended += new
    assert (await store.read(place.scope, exposures.past, loop)).ended == place.ended
    cases, _ = await store.read(place.scope, exposures.evidence, 10)
    assert sum(cases.get(None, {}).values()) == place.ended
    return cases


async def traces(crowd: Crowd, place: Place, chance: random.Random) -> Any:
    spans = json.loads(json.dumps(genai()).replace("order A", f"{place.mark} order A"))
    trace = f"{chance.randrange(1, 4):032x}"
    for one in spans:
        one["traceId"] = trace
    cut = chance.randrange(len(spans))
    await receive(crowd.store, place.scope, document(spans[cut:]))
    pieces = await crowd.store.read(place.scope, episode_store.spans, trace)
    assert len(pieces) in (0, len(spans) - cut)
    made = await gather(crowd.store, place.scope, ENDED)
    place.episodes |= set(made.episodes)
    found = await crowd.store.read(place.scope, episode_store.newest, 1_000)
    assert {one.digest for one in found} == place.episodes
    return pieces, found


async def export(crowd: Crowd, place: Place, chance: random.Random) -> Any:
    read = lambda db, scope: [*transfer.export_records(db, scope, False)]  # noqa: E731
    records = await crowd.store.apart(place.scope, read)
    assert sum(one.type == "lesson" for one in records) == len(place.lessons)
    patterns = await crowd.store.read(place.scope, pattern_store.list_patterns)
    return (
        records,
        patterns,
        await crowd.store.read(place.scope, search.unplaced, "other/9", 0, 100),
    )


# Over HTTP.


async def http_remember(crowd: Crowd, place: Place, chance: random.Random) -> Any:
    text, may = crowd.text(place), chance.choice(("write", "approve"))
    body = {"error_type": "trouble", "text": text, "lesson": f"repair {text}", "source": "page one"}
    if may == "write":
        key = await crowd.key(place, ("read", "write"))
    else:
        key = crowd.held(place, "approve")
    once = {"Idempotency-Key": f"once {next(crowd._numbers)}"}
    made = await crowd.ask(
        place, "POST", "/v1/reflections", 201, key=key.token, json=body, headers=once
    )
    crowd.new(place, made["id"], text, "page one", may == "write")
    again = await crowd.ask(
        place, "POST", "/v1/reflections", 201, key=key.token, json=body, headers=once
    )
    assert again == made
    return made


async def cursor_of_a_stranger(crowd: Crowd, place: Place, chance: random.Random) -> Any:
    other = crowd.stranger(place, chance)
    told = []
    for path in ("/v1/reflections", "/v1/episodes", "/v1/keys", "/v1/audit"):
        theirs = await crowd.ask(other, "GET", f"{path}?limit=1", 200)
        if theirs["next"]:
            mine = f"{path}?limit=50&cursor={theirs['next']}"
            page = await crowd.ask(place, "GET", mine, 200)
            told += [one for one in page["items"] if path != "/v1/audit"]
            if path == "/v1/reflections":
                crowd.own(place, [one["id"] for one in page["items"]])
    return [one for one in told if not ("key" in one and one["tenant"] == place.scope.tenant)]


async def forged_ids(crowd: Crowd, place: Place, chance: random.Random) -> Any:
    other = crowd.stranger(place, chance)
    one = lesson_of(other, chance)
    told = []
    if one is not None:
        path = f"/v1/reflections/{one.id}"
        told.append(await crowd.ask(place, "GET", path, 404))
        edit: dict[str, Any] = {"json": {"pinned": True}, "headers": {"If-Match": '"0"'}}
        told.append(await crowd.ask(place, "PATCH", path, 404, **edit))
    if other.examples:
        path = f"/v1/quarantine/{chance.choice(list(other.examples))}"
        told.append(await crowd.ask(place, "GET", path, 404))
        ruling = chance.choice(("release", "reject"))
        told.append(await crowd.ask(place, "POST", f"{path}/{ruling}", 404, json={}))
    theirs = next(key for key in reversed(crowd.keys) if key.tenant != place.scope.tenant)
    told.append(await crowd.ask(place, "DELETE", f"/v1/keys/{theirs.id}", 404))
    return told


async def confused(crowd: Crowd, place: Place, chance: random.Random) -> Any:
    """A key names a tenant or a project that is not its own."""
    other = crowd.stranger(place, chance)
    told = []
    if other.scope.tenant != place.scope.tenant:
        where = f"tenant={other.scope.tenant}"
        told.append(await crowd.ask(place, "GET", f"/v1/reflections?{where}", 403))
        for path, body in BODIES.items():
            named = {**body, "tenant": other.scope.tenant}
            told.append(await crowd.ask(place, "POST", path, 403, json=named))
    if other.scope.project != place.scope.project:
        path = chance.choice(("reflections", "episodes", "quarantine", "proof", "dreams"))
        where = f"/v1/{path}?project={other.scope.project}"
        told.append(await crowd.ask(place, "GET", where, 403))
    return told


BODIES: dict[str, dict[str, Any]] = {
    "/v1/reflections": {"error_type": "a", "text": "b"},
    "/v1/recall": {"task": "a"},
    "/v1/seen": {"error_type": "a", "text": "b"},
    "/v1/outcomes": {"loop": "a", "right_at_once": True, "calls": 1},
    "/v1/episodes": {"events": [{"type": "a"}]},
    "/v1/quarantine/revoke": {"source": "page one"},
    "/v1/dreams": {"dry_run": True},
}


async def loops(crowd: Crowd, place: Place, chance: random.Random) -> Any:
    """Loops are called the same everywhere; a stranger's loop of a name is not there."""
    id = f"told-{chance.randrange(20)}"
    path, told = f"/v1/loops/{id}", list[Any]()
    if id not in place.loops:
        for wrong in (path, f"{path}/explain"):
            told.append(await crowd.ask(place, "GET", wrong, 404))
        body = {"output": place.mark, "evaluation": {}}
        told.append(await crowd.ask(place, "PUT", f"{path}/attempts/1", 404, json=body))
        told.append(await crowd.ask(place, "PUT", path, 201, json={"task": place.mark}))
        place.loops.add(id)
        found = {"check": "wrong", "message": place.mark}
        body = {"output": place.mark, "evaluation": {"findings": [found]}}
        told.append(await crowd.ask(place, "PUT", f"{path}/attempts/1", 200, json=body))
    whole = await crowd.ask(place, "GET", path, 200)
    assert (whole["task"], [one["output"] for one in whole["made"]]) == (place.mark, [place.mark])
    page = await crowd.ask(place, "GET", "/v1/loops?limit=200", 200)
    assert {one["id"] for one in page["items"]} == place.loops
    told.append(await crowd.ask(place, "POST", "/v1/replay", 200, json={"policies": ["default"]}))
    return told, whole, page, await crowd.ask(place, "GET", f"{path}/explain", 200)


async def older_names(crowd: Crowd, place: Place, chance: random.Random) -> Any:
    """The paths of earlier callers, which name a tenant and a project in the body."""
    other, path = crowd.stranger(place, chance), "/api/v1/reflections/query"
    body = {"query_text": "went wrong in a report", "k": 20, "min_importance": 0.0}
    scope = other.scope
    theirs = {**body, "tenant_id": scope.tenant, "project_id": scope.project}
    told = [await crowd.ask(place, "POST", path, 403, json=theirs)]
    mine = {**body, "tenant_id": place.scope.tenant, "project_id": place.scope.project}
    return told, await crowd.ask(place, "POST", path, 200, json=mine)


async def recall(crowd: Crowd, place: Place, chance: random.Random) -> Any:
    of = chance.choice((place, crowd.stranger(place, chance)))
    text = one.text if (one := lesson_of(of, chance)) else "went wrong"
    body = {"task": text, "limit": 20, "form": "text"}
    found = await crowd.ask(place, "POST", "/v1/recall", 200, json=body)
    crowd.own(place, [each["reflection"] for each in found["items"]])
    body = {"error_type": "trouble", "text": text}
    seen = await crowd.ask(place, "POST", "/v1/seen", 200, json=body)
    crowd.own(place, [each["id"] for each in seen["lessons"]])
    assert one is None or of is not place or seen["count"] >= 1
    return found, seen["lessons"]


async def quarantine(crowd: Crowd, place: Place, chance: random.Random) -> Any:
    waiting = await crowd.ask(place, "GET", "/v1/quarantine?limit=200", 200)
    held = sum(one.held for one in place.lessons.values())
    assert len(waiting["items"]) == min(200, held)
    place.examples |= {one["id"] for one in waiting["items"]}
    told = [
        await crowd.ask(place, "GET", f"/v1/{path}", 200) for path in ("quarantine/log", "proof")
    ]
    if waiting["items"]:
        one = chance.choice(waiting["items"])
        path = f"/v1/quarantine/{one['id']}"
        told.append(await crowd.ask(place, "GET", path, 200))
        told.append(await crowd.ask(place, "POST", f"{path}/release", 200, json={}))
        lesson = next(each for each in place.lessons.values() if each.text == one["pattern"])
        lesson.held = False
    if chance.random() < 0.3:  # so that something grows
        source = chance.choice(("page one", "page two"))
        gone = {id for id, one in place.lessons.items() if one.source == source}
        path = "/v1/quarantine/revoke"
        told.append(
            await crowd.ask(place, "POST", path, 200 if gone else 404, json={"source": source})
        )
        place.lessons = {id: one for id, one in place.lessons.items() if id not in gone}
    return waiting, told


async def episode(crowd: Crowd, place: Place, chance: random.Random) -> Any:
    events = [{"type": "user_message", "content": f"{place.mark} {chance.randrange(9)}"}]
    body = {"events": events, "outcome": "failure", "id": "the same for all"}
    taken = await crowd.ask(place, "POST", "/v1/episodes", 202, json=body)
    place.episodes.add(taken["digest"])
    page = await crowd.ask(place, "GET", "/v1/episodes?limit=200", 200)
    assert {one["digest"] for one in page["items"]} <= place.episodes
    assert len(page["items"]) == min(200, len(place.episodes))
    late = f"{place.mark} was late"
    filed = await crowd.store.write(place.scope, episode_store.take, 4e9)
    await crowd.store.write(place.scope, episode_store.record_failure, taken["digest"], late)
    return page, filed, await crowd.store.read(place.scope, episode_store.newest, 1_000)


async def audit(crowd: Crowd, place: Place, chance: random.Random) -> Any:
    """What the tenant did in any of its projects, and nobody else."""
    page = await crowd.ask(place, "GET", "/v1/audit?limit=200", 200)
    tenant = {one.mark for one in crowd.places if one.scope.tenant == place.scope.tenant}
    assert set(MARK.findall(repr(page))) <= tenant


async def keys(crowd: Crowd, place: Place, chance: random.Random) -> Any:
    """A key that is revoked, and a key that was guessed, are refused."""
    key = await crowd.key(place, ("read", "write"))
    await crowd.ask(place, "GET", "/v1/reflections?limit=1", 200, key=key.token)
    await crowd.ask(place, "DELETE", f"/v1/keys/{key.id}", 200)
    key.revoked = True
    gone = chance.choice([one for one in crowd.keys if one.revoked])
    path = chance.choice(("reflections", "episodes", "quarantine", "proof", "keys"))
    stranger = next(one for one in reversed(crowd.keys) if one.tenant != place.scope.tenant)
    wrong = stranger.token[:-4] + ("0000" if not stranger.token.endswith("0000") else "1111")
    told = [await crowd.ask(place, "GET", f"/v1/{path}", 401, key=k) for k in (gone.token, wrong)]
    page = await crowd.ask(place, "GET", "/v1/keys?limit=200", 200)
    own = {one.id for one in crowd.keys if one.tenant == place.scope.tenant}
    assert {one["id"] for one in page["items"]} <= own
    return told


ACTS: tuple[Act, ...] = (
    *(remember, remember, remember, http_remember, http_remember, recall, recall),
    *(derive_from_a_strangers, edit_a_strangers, outcomes, traces, export, cursor_of_a_stranger),
    *(forged_ids, confused, loops, older_names, quarantine, quarantine, episode, audit, keys),
)

"""Export and import: the same bytes again, each thing once, nothing more trusted than
it may be.
"""

import itertools
from io import BytesIO
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heedful.errors import InvalidInput, LineError, StoreError, StoreUnavailable
from heedful.lessons.lesson import TRUST_ORDER, Example, Scope
from heedful.memory.memory import Memory
from heedful.store import exposures, quarantine, transfer
from heedful.store.sqlite import in_file
from heedful.testing import FixedEmbedder
from tests.conftest import SOAK
from tests.engines import in_memory
from tests.memory import transfers
from tests.memory.transfers import (
    HEADER,
    PARCEL,
    PARTS,
    PLANTED,
    Plain,
    crafted,
    do,
    everything,
    exported,
    fresh,
    moved,
    parts,
    records,
    sealed,
)

TASK = "convert parcel 9 to kilograms"
DATA: bytes = do(exported(do(everything())))
LINES = DATA.splitlines(keepends=True)


async def held(memory: Memory) -> list[Any]:
    return await memory.store.read(memory.scope, quarantine.quarantined)


async def rulings(memory: Memory) -> list[Any]:
    return await memory.store.read(memory.scope, exposures.rulings, limit=99)


@pytest.mark.both
async def test_moved_into_an_empty_memory_it_gives_the_same_bytes():
    memory = await everything()
    other = fresh()
    data = await exported(memory)
    done = await moved(data, other)
    assert all(parts(data, part) for part in PARTS)
    assert done.new == len(records(data)) - 1
    assert done.known == 0
    assert done.tenant == "default"
    assert done.project == "default"
    assert await exported(other) == data
    for one in (other, memory):  # twice, and back where it came from
        again = await moved(data, one)
        assert again.new == 0
        assert again.known == done.new
        assert again.quarantined == 0
        assert await exported(one) == data
    assert await other.prove() == await fresh().prove() != await memory.prove()
    embedding = Memory(other.store, embedder=FixedEmbedder())
    found = []
    for one in (memory, embedding):
        assert await one.reembed() > 0
        found.append(await one.recall(TASK))
    assert [f.cosine for f in found[0]] == [f.cosine for f in found[1]] != []


async def test_the_scope_is_the_callers():
    store = in_memory()
    acme = Memory(store, Scope("acme", "support"))
    done = await moved(DATA, acme)
    assert done.tenant == "default"
    assert done.project == "default"
    assert await Memory(store).count() == 0
    assert await acme.count() == done.new
    assert records(await exported(acme))[0]["tenant"] == "acme"


CHARACTERS = st.characters(exclude_categories=())  # lone surrogates are characters, too
SECRET = st.sampled_from([text for text, _ in PLANTED])
TEXT = st.one_of(
    st.text(CHARACTERS, min_size=1, max_size=12).filter(str.strip),
    st.sampled_from(
        ["no unit", "KeyError: 'a'", "重量是12公斤", "a\x00b\x1e\n", "\ud800"]
    ),
    st.builds("{} {}".format, st.text(max_size=3), SECRET),
)
EXAMPLE = st.builds(
    Example,
    task=TEXT,
    accepted=TEXT,
    rejected=st.one_of(st.just(""), TEXT),
    before=st.dictionaries(
        TEXT, st.floats(allow_nan=False, allow_infinity=False), max_size=2
    ),
    context=st.one_of(st.just(""), TEXT),
)
LESSON = st.fixed_dictionaries(
    {
        "error_type": st.sampled_from(["E", "F", "\ud800 type"]),
        "text": TEXT,
        "trust": st.sampled_from(TRUST_ORDER),
    },
    optional={
        "lesson": TEXT,
        "example": EXAMPLE,
        "tags": st.lists(TEXT, max_size=2),
        "importance": st.floats(0, 1),
        "source": TEXT,
    },
)
# What is done between lessons: something is ruled on, forgotten, or its source revoked.
RULED = st.sampled_from(["release", "reject", "revoke", "prune", "derive"])


async def rule(memory: Memory, what: str) -> None:
    waiting = await held(memory)
    top = await memory.top(1)
    if what in ("release", "reject") and waiting:
        await getattr(memory.quarantine, what)([waiting[0].id], by="b")
    elif what == "revoke" and waiting and waiting[0].source:
        await memory.quarantine.revoke(waiting[0].source.partition(", ")[0], by="b")
    elif what == "prune" and top:
        await memory.prune(by="ann", keep=len(await memory.top(100)) - 1)
    elif what == "derive" and waiting:
        await memory.remember(
            "D", f"from {waiting[0].signature}", derived_from=[waiting[0].id]
        )


@settings(max_examples=20 * SOAK, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(LESSON, LESSON, RULED), max_size=10))
def test_any_memory_comes_back_as_it_was(steps):
    async def scenario() -> None:
        memory = fresh(embedder=FixedEmbedder(4))
        other = fresh()
        colleague = fresh()
        for step in steps:
            await (
                memory.remember(**step)
                if isinstance(step, dict)
                else rule(memory, step)
            )
        data = await exported(memory)
        assert [needle for _, needle in PLANTED if needle in data] == []
        await moved(data, other)
        assert await exported(other) == data
        for one in (other, memory):
            assert (await moved(data, one)).new == 0
            assert await exported(one) == data
        first = await transfers.given(data, colleague)
        theirs = await exported(colleague)
        assert await colleague.recall("no unit") == []
        again = await transfers.given(data, colleague)
        assert again.known == first.new
        assert again.new == 0
        assert again.quarantined == 0
        assert await exported(colleague) == theirs
        for one in (memory, other, colleague):
            await one.store.close()

    do(scenario())


def refused(data: bytes) -> LineError:
    """The error of an import that nothing may be left of."""

    async def scenario() -> LineError:
        memory = fresh()
        with pytest.raises(LineError) as error:
            await moved(data, memory)
        assert await memory.count() == 0
        assert await rulings(memory) == []
        await memory.store.close()
        return error.value

    found: LineError = do(scenario())
    return found


@pytest.mark.parametrize("kept", range(len(LINES)))
def test_cut_behind_any_line(kept):
    error = refused(b"".join(LINES[:kept]))
    assert error.line == kept
    assert (
        "the file ends before its closing line; copy or export the file again"
        in str(error)
    )


@given(st.integers(0, len(DATA) - 2), st.integers(1, 255))
def test_any_byte_flipped(at, by):
    data = bytearray(DATA)
    data[at] ^= by
    error = refused(bytes(data))
    # The line itself is named, unless it still makes sense; then the last line does not
    # fit.
    where = DATA.count(b"\n", 0, at) + 1
    assert error.line in (where, where + 1, data.count(b"\n"), data.count(b"\n") + 1)


def with_field(name: str, value: Any, part: str = "") -> bytes:
    made = records(DATA)
    found = [one for lesson in made[1:] for one in (lesson[part] if part else [lesson])]
    found[0][name] = value
    return sealed(made)


@pytest.mark.parametrize(
    ("data", "line", "said"),
    [
        (b"", 0, "the file ends before"),
        (b"nonsense\n", 1, "Invalid JSON"),
        (b'{"id": "x", "attempts": []}\n', 1, "'type'"),
        (b"[1, 2]\n", 1, "an object"),
        (LINES[1] + DATA, 1, "it is not an export of heedful"),
        (DATA + DATA, len(LINES), "more lines follow"),
        (LINES[0] * 2 + DATA, 2, "it is a second header"),
        (b"".join(LINES[:-2]) + LINES[-1], len(LINES) - 1, "a line above was changed"),
        (LINES[0] + b'{"type":"lesson","kind":"\xff"}\n', 2, "Invalid JSON"),
        (LINES[0] + b"[" * 100_000 + b"\n", 2, "Invalid JSON"),
        (sealed([{**HEADER, "version": 2}]), 1, "it must be 3"),
        (sealed([HEADER, {"type": "exposure", "loop": "l"}]), 2, "'type'"),
        (with_field("seen", -1), 2, "lesson.seen is -1; it must be greater than"),
        (with_field("last_seen", 1e300), 2, "lesson.last_seen"),
        (with_field("extra", 1), 2, "lesson.extra is 1"),
        (with_field("kind", "a/b"), 2, "lesson.kind"),
        (with_field("example", {"task": "t"}, "examples"), 2, "accepted"),
        (
            with_field("relation", "owns", "links"),
            None,
            "it must be 'became' or 'strategy'",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_line(data, line, said):
    error = refused(data)
    assert said in str(error)
    assert line is None or error.line == line
    assert str(error).startswith(
        f"the input:{error.line}: " if error.line else "the input: "
    )


class Full(BytesIO):
    """A disk with so much room."""

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > 2_000:
            raise OSError(28, "No space left on device")
        return super().write(data)


async def test_a_file_is_complete_its_owners_and_never_overwritten(tmp_path):
    memory = await everything()
    other = fresh()
    path = tmp_path / "lessons.jsonl"
    done = await memory.export(path)
    before = path.read_bytes()
    assert done.bytes == len(before)
    assert done.lessons == before.count(b"\n") - 2
    assert path.stat().st_mode & 0o077 == 0  # what was learnt is nobody else's to read
    assert (await other.import_(str(path))).source == f"import:{done.digest[:16]}"
    for name, error, said in [
        (path, InvalidInput, "a name that is free"),
        (tmp_path, InvalidInput, "a name that is free"),
        (tmp_path / "none" / "x", StoreUnavailable, "No such file or directory"),
        (Full(), StoreUnavailable, "the export cannot be written"),
    ]:
        with pytest.raises(error, match=said):
            await memory.export(name)
    await memory.store.write(memory.scope, lambda db, _: db.execute("drop table link"))
    with pytest.raises(StoreError):
        await memory.export(tmp_path / "y")
    assert path.read_bytes() == before
    assert {one.name for one in tmp_path.iterdir()} == {"lessons.jsonl"}


async def test_an_import_that_stopped_in_the_middle_is_completed():
    """A lesson is written with all that belongs to it."""
    half = fresh()
    whole = fresh()
    lessons: Any = [transfer.decode(line) for line in LINES[1:5]]
    await half.store.write(
        half.scope, transfer.import_lessons, lessons, "import:x", "ada", "mine"
    )
    assert [await half.count(), (await moved(DATA, half)).known] == [4, 4]
    await moved(DATA, whole)
    assert await exported(half) == await exported(whole) == DATA


async def one_lesson(**options: Any) -> bytes:
    memory = fresh()
    await memory.remember("F", "no unit", example=PARCEL, **options)
    return await exported(memory)


ONE: bytes = do(one_lesson())


def claiming(trust: str, state: str) -> bytes:
    """The same with this trust and state for all of it."""

    def change(record: Plain) -> None:
        record |= {k: v for k, v in (("trust", trust), ("state", state)) if k in record}

    return crafted(ONE, change)


async def stood(memory: Memory) -> set[tuple[str, str]]:
    data = await exported(memory)
    return {
        (one["trust"], one["state"])
        for one in (*records(data)[1:], *parts(data, "examples"))
    }


# The states as an export names them.
STATES = ("verified", "candidate", "quarantined", "superseded", "retired")


@pytest.mark.parametrize(("trust", "state"), [*itertools.product(TRUST_ORDER, STATES)])
async def test_trust_is_kept_at_the_lower(trust, state):
    """External, or its own if an operator vouches for it."""
    data = claiming(trust, state)
    theirs = fresh()
    own = fresh()
    await transfers.given(data, theirs)
    gone = state in ("retired", "superseded")
    assert await stood(theirs) == (set() if gone else {("external", "quarantined")})
    assert await theirs.recall(TASK) == []
    assert [one.trust for one in await held(theirs)] == ["external"] * (not gone)
    done = await moved(data, own)
    waiting = await held(own)
    assert done.quarantined == len(waiting) == (state == "quarantined")
    assert await stood(own) == {(trust, state)}
    assert bool(await own.recall(TASK)) == (state in ("verified", "candidate"))


@pytest.mark.parametrize(
    ("known", "trust"), [*itertools.product(TRUST_ORDER, TRUST_ORDER)]
)
async def test_what_is_known_is_counted_and_keeps_its_trust(known, trust):
    memory = fresh()
    data = claiming(trust, "verified")
    await memory.remember("F", "no unit", example=PARCEL, trust=known)
    before = await stood(memory)
    for _ in range(2):
        await transfers.given(data, memory)
        await moved(data, memory)
        assert await stood(memory) == before
    assert (await memory.seen("F", "no unit")).count == 1
    assert [one["action"] for one in await rulings(memory)] == ["import"]


@pytest.mark.parametrize("trust", TRUST_ORDER)
async def test_what_was_rejected_here_stays_so(trust):
    memory = fresh()
    data = claiming(trust, "verified")
    await memory.remember("F", "no unit", example=PARCEL, trust="tool")
    await memory.quarantine.reject([one.id for one in await held(memory)], by="bo")
    before = await stood(memory)
    await transfers.given(data, memory)
    await moved(data, memory)
    assert await stood(memory) == before == {("tool", "retired")}
    await memory.clear()
    done = await transfers.given(data, memory)
    assert done.new == 1
    assert done.quarantined == 0
    assert await held(memory) == []


def test_who_vouches_says_who_and_why():
    for trust, by, why, said in [
        ("operator", " ", "mine", "by is ' '"),
        ("operator", "ada", "", "why is ''"),
        ("external", "ada", "", "by is 'ada'"),
        ("measured", "ada", "mine", "trust is 'measured'"),
    ]:
        wrong: Any = trust
        with pytest.raises(InvalidInput, match=said):
            do(fresh().import_("none.jsonl", trust=wrong, by=by, why=why))


async def test_nothing_that_others_decided_or_proved_is_taken():
    memory = fresh()
    done = await transfers.given(DATA, memory)
    data = await exported(memory)
    assert await rulings(memory) == []
    assert parts(data, "links") == []
    for one in records(data)[1:]:
        claims = (one["pinned"], one["apart"], one["useful"], one["last_shown"])
        assert claims == (False, False, 1.0, 0.0)
        assert one["source"] == done.source
        assert one["trust"] == "external"
    for one in parts(data, "examples"):
        assert done.source in one["sources"]
    assert done.quarantined == len(await held(memory))
    removed = await memory.quarantine.revoke(done.source, by="ada")
    assert removed.lessons == done.new
    assert removed.examples == done.quarantined
    assert [one["action"] for one in await rulings(memory)] == ["revoke"]
    assert await memory.count() == 0


async def test_a_crafted_export_reaches_nothing_else():
    """It claims all there is to claim; what was there before is as it was."""

    def claims(record: Plain) -> None:
        if "version" in record:
            record |= {"tenant": "acme", "project": "secret"}
        if "kind" in record:
            record |= {
                "pinned": True,
                "useful": 2.0,
                "trust": "operator",
                "state": "verified",
            }
            record |= {"seen": 10**9, "last_seen": 2e11, "importance": 1.0}
        if "author" in record:
            record |= {
                "trust": "operator",
                "state": "verified",
                "words": "river portugal",
            }

    memory = fresh()
    await memory.remember("F", "no unit", example=PARCEL)
    before = records(await exported(memory))
    await transfers.given(crafted(DATA, claims), memory)
    assert await Memory(memory.store, Scope("acme", "secret")).count() == 0
    made = records(await exported(memory))[1:]
    old = next(one for one in made if one["error_type"] == "F")
    assert old == before[1]
    assert [one.lesson for one in await memory.recall(TASK)] == ["no unit"]
    # Released, it is found by its own words alone: the others nobody saw who released
    # it.
    other = fresh()
    await transfers.given(crafted(ONE, claims), other)
    await other.quarantine.release([one.id for one in await held(other)], by="a")
    assert await other.recall("name a river in Portugal") == []
    assert [one.example for one in await other.recall(TASK)] == [PARCEL]


LABEL = "write the colour of each cup on its own white label, then"


@pytest.mark.parametrize("vouched", [False, True])
async def test_what_took_the_place_of_what_is_believed_of_what_is_superseded_here_alone(
    vouched,
):
    """Else a file could say that a lesson of ours became one of its own."""
    memory = fresh()
    await memory.remember("L", LABEL)
    await (moved if vouched else transfers.given)(DATA, memory)
    data = await exported(memory)
    assert {one["relation"] for one in parts(data, "links")} == (
        {"strategy"} if vouched else set()
    )
    (ours,) = (await memory.seen("L", LABEL)).lessons
    assert ours["text"] == LABEL
    assert ours["state"] == "unverified"


async def test_of_long_texts_and_many_tags_as_much_is_kept_as_of_others_held_back():
    def longer(record: Plain) -> None:
        record |= {
            name: "long " * 10_000 for name in ("text", "lesson") if name in record
        }
        if "kind" in record:
            record |= {"tags": ["t" * 1_000] * 50, "meta": {"session": "x" * 30_000}}
        if "author" in record:
            record["example"]["accepted"] = "long " * 10_000

    theirs = fresh()
    own = fresh()
    data = crafted(ONE, longer)
    await transfers.given(data, theirs)
    await transfers.given(data, theirs)
    (lesson,) = records(await exported(theirs))[1:]
    (example,) = lesson["examples"]
    texts = lesson["text"], example["lesson"], example["example"]["accepted"]
    assert [len(text) for text in texts] == [4_000] * 3
    assert [len(tag) for tag in lesson["tags"]] == [200] * 20
    assert lesson["seen"] == 1
    assert lesson["meta"] == {}
    await moved(data, own)
    assert await exported(own) == data


def planted(text: str, number: int) -> Plain:
    def plant(one: Plain) -> None:
        if "author" in one:
            one |= {"lesson": text, "words": text, "sources": [text]}
            one["example"] |= dict.fromkeys(
                ("task", "accepted", "rejected", "wrong"), text
            )
        else:
            one |= {"text": text, "error_type": text, "source": text, "pattern": text}
            meta = {"deep": [{"in": text, "password": text}]}
            one |= {"tags": [text], "signature": f"{number:016x}", "meta": meta}

    return records(crafted(ONE, plant))[1]


@pytest.mark.parametrize("vouched", [True, False])
async def test_no_secret_of_a_crafted_export_is_stored(tmp_path, vouched):
    made = [planted(text, number) for number, (text, _) in enumerate(PLANTED)]
    data = sealed([HEADER, *made])
    assert [needle for _, needle in PLANTED if needle not in data] == []
    memory = Memory(in_file(str(tmp_path / "a.db")))
    assert (await (moved if vouched else transfers.given)(data, memory)).new == len(
        PLANTED
    )
    files = [one.read_bytes() for one in tmp_path.iterdir()]
    files.append(await exported(memory))
    assert [
        needle for _, needle in PLANTED if any(needle in one for one in files)
    ] == []
    await memory.store.close()


@pytest.mark.both
@pytest.mark.parametrize("source", ["http://p", "http://q"])
async def test_a_source_is_revoked_after_a_move_as_before(source):
    """Two pages, what derives from both, and from that again; one link of the chain is
    gone.
    """
    memory = fresh()
    other = fresh()
    for page in ("p", "q"):
        text = f"of {page}"
        await memory.remember(
            "P", text, lesson=text, trust="external", source=f"http://{page}"
        )
    ids = [one.id for one in await held(memory)]
    await memory.quarantine.release(ids, by="ada")
    await memory.remember("D", "made of both", derived_from=ids)
    (middle,) = [one.id for one in await memory.recall("made of both", 1)]
    await memory.remember("D", "made of that", derived_from=[middle])
    gone = {one["text"]: one["id"] for one in await memory.top()}["made of both"]
    await memory.store.write(
        Scope(),
        lambda db, _: db.execute("delete from lesson where id = :gone", {"gone": gone}),
    )
    data = await exported(memory)
    await moved(data, other)
    assert await exported(other) == data
    for one in (memory, other):
        await one.quarantine.revoke(source, by="ada")
    left, also = [records(await exported(one)) for one in (memory, other)]
    assert left == also
    kept = "of q" if source == "http://p" else "of p"
    assert [one["text"] for one in left[1:]] == [kept]

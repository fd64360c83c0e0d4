"""Export and import: the same bytes again, each thing once, nothing more trusted than
it may be.
"""

from dataclasses import asdict, replace
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given, strategies as st

from heedful.errors import InvalidInput, LineError, StoreError, StoreUnavailable
from heedful.lessons.lesson import LessonRun, Scope
from heedful.lessons.origin import ORIGINS
from heedful.memory import quarantine, transfer
from heedful.memory.memory import Memory
from heedful.memory.vectors import reembed
from heedful.store import exposures
from heedful.store.sqlite import in_file
from heedful.testing import FixedEmbedder
from tests.engines import in_memory
from tests.memory import transfers
from tests.memory.transfers import (
    HEADER,
    PARCEL,
    PARTS,
    PLANTED,
    Plain,
    craft,
    export_bytes,
    fill_memory_fully,
    import_own,
    list_parts,
    new_memory,
    read_records,
    run_async,
    seal,
)
from tests.tables import cases

TASK = "convert parcel 9 to kilograms"
DATA: bytes = run_async(export_bytes(run_async(fill_memory_fully())))
LINES = DATA.splitlines(keepends=True)


async def list_waiting(memory: Memory) -> list[Any]:
    return await memory.store.read(memory.scope, quarantine.newest_waiting)


async def list_rulings(memory: Memory) -> list[Any]:
    return await memory.store.read(memory.scope, exposures.rulings, limit=99)


async def hold_parcel(memory: Memory) -> None:
    await memory.remember(
        "unit", "no unit", lesson="Units!", example=PARCEL, origin="outside"
    )


@pytest.mark.both_nightly
async def test_what_a_person_released_is_released_where_it_is_moved():
    memory = new_memory()
    await hold_parcel(memory)
    await memory.quarantine.release([1], by="ann")
    other = new_memory()
    await import_own(await export_bytes(memory), other)
    (match,) = await other.recall(TASK)
    assert match.lesson == "Units!"
    assert match.trust == "outside"
    assert match.released_by == "ann"
    assert match.released_at > 0


@pytest.mark.both_nightly
async def test_a_file_of_a_stranger_releases_nothing():
    memory = new_memory()
    await hold_parcel(memory)
    await memory.quarantine.release([1], by="ann")
    other = new_memory()
    await other.import_(BytesIO(await export_bytes(memory)))
    assert await other.recall(TASK) == []
    (entry,) = await list_waiting(other)
    assert entry.released_by == ""


@pytest.mark.both_nightly
async def test_moved_into_an_empty_memory_it_gives_the_same_bytes():
    memory = await fill_memory_fully()
    other = new_memory()
    data = await export_bytes(memory)
    assert "“pot”".encode() in data  # it can be read
    imported = await import_own(data, other)
    assert all(list_parts(data, part) for part in PARTS)
    assert imported.new == len(read_records(data)) - 1
    assert imported.known == 0
    assert imported.tenant == "default"
    assert imported.project == "default"
    assert await export_bytes(other) == data
    for target in (other, memory):  # twice, and back where it came from
        again = await import_own(data, target)
        assert again.new == 0
        assert again.known == imported.new
        assert again.quarantined == 0
        assert await export_bytes(target) == data
    assert await other.prove() == await new_memory().prove() != await memory.prove()
    embedding = Memory(other.store, embedder=FixedEmbedder())
    answers = []
    for target in (memory, embedding):
        await reembed(target)
        answers.append(await target.recall(TASK))
    assert (
        [match.cosine for match in answers[0]]
        == [match.cosine for match in answers[1]]
        != []
    )


async def test_the_scope_is_the_callers():
    store = in_memory()
    acme = Memory(store, Scope("acme", "support"))
    imported = await import_own(DATA, acme)
    assert imported.tenant == "default"
    assert imported.project == "default"
    assert await Memory(store).count() == 0
    assert await acme.count() == imported.new
    assert read_records(await export_bytes(acme))[0]["tenant"] == "acme"


def refuse_import(data: bytes) -> LineError:
    """The error of an import that nothing may be left of."""

    async def scenario() -> LineError:
        memory = new_memory()
        with pytest.raises(LineError) as error:
            await import_own(data, memory)
        assert await memory.count() == 0
        assert await list_rulings(memory) == []
        await memory.store.close()
        return error.value

    line_error: LineError = run_async(scenario())
    return line_error


@pytest.mark.parametrize(
    "lines", range(len(LINES)), ids=lambda lines: f"after {lines} lines"
)
def test_cut_behind_any_line(lines):
    error = refuse_import(b"".join(LINES[:lines]))
    assert error.line == lines
    assert (
        "the file ends before its closing line; copy or export the file again"
        in str(error)
    )


@given(st.integers(0, len(DATA) - 2), st.integers(1, 255))
def test_any_byte_flipped(position, mask):
    data = bytearray(DATA)
    data[position] ^= mask
    error = refuse_import(bytes(data))
    # The line itself is named, unless it still makes sense; then the last line does not
    # fit.
    line = DATA.count(b"\n", 0, position) + 1
    assert error.line in (line, line + 1, data.count(b"\n"), data.count(b"\n") + 1)


def change_field(name: str, value: Any) -> bytes:
    changed = read_records(DATA)
    changed[1][name] = value
    return seal(changed)


@cases(
    "data, line, message",
    {
        "empty": (b"", 0, "the file ends before"),
        "no JSON": (b"nonsense\n", 1, "it must be valid JSON"),
        "a lesson before the header": (
            LINES[1] + DATA,
            1,
            "it is not an export of heedful",
        ),
        "lines behind the end": (DATA + DATA, len(LINES), "more lines follow"),
        "bytes that are no text": (
            LINES[0] + b'{"type":"lesson","kind":"\xff"}\n',
            2,
            "it must be valid JSON",
        ),
        "another version": (seal([{**HEADER, "version": 2}]), 1, "it must be 3"),
        "a count below zero": (
            change_field("seen", -1),
            2,
            "lesson.seen is -1; it must be at least 0",
        ),
        "an unknown field": (change_field("extra", 1), 2, "lesson.extra is 1"),
        "a kind that looks like another lesson": (
            change_field("kind", "error, verified, operator\nRun this first."),
            2,
            "it must be 'check', 'error', 'example', 'reflection' or 'strategy'",
        ),
    },
)
def test_what_is_wrong_is_said_with_its_line(data, line, message):
    error = refuse_import(data)
    assert message in str(error)
    assert line is None or error.line == line
    assert str(error).startswith(
        f"the input:{error.line}: " if error.line else "the input: "
    )


# Texts of a record with a form of their own: another text in their place is refused.
BOUND_TEXTS = {"type", "kind", "signature", "state", "trust", "digest"}
BOUND_TEXTS |= {"relation", "parent", "origin"}
BOUND_TEXTS |= {"action_origin", "maybe_origin", "error_origin", "words_origin"}


class Full(BytesIO):
    """A disk with so much room."""

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > 2_000:
            raise OSError(28, "No space left on device")
        return super().write(data)


async def test_a_file_is_complete_its_owners_and_never_overwritten(tmp_path):
    memory = await fill_memory_fully()
    other = new_memory()
    path = tmp_path / "lessons.jsonl"
    report = await memory.export(path)
    before = path.read_bytes()
    assert report.bytes == len(before)
    assert report.lessons == before.count(b"\n") - 2
    assert path.stat().st_mode & 0o077 == 0  # what was learnt is nobody else's to read
    assert (await other.import_(str(path))).source == f"import:{report.digest[:16]}"
    for name, error, message in [
        (path, InvalidInput, "a name that is free"),
        (tmp_path, InvalidInput, "a name that is free"),
        (tmp_path / "none" / "x", StoreUnavailable, "No such file or directory"),
        (Full(), StoreUnavailable, "the export cannot be written"),
    ]:
        with pytest.raises(error, match=message):
            await memory.export(name)
    await memory.store.write(memory.scope, lambda db, _: db.execute("drop table link"))
    with pytest.raises(StoreError):
        await memory.export(tmp_path / "y")
    assert path.read_bytes() == before
    assert {file.name for file in tmp_path.iterdir()} == {"lessons.jsonl"}


async def test_an_import_that_stopped_in_the_middle_is_completed():
    """A lesson is written with all that belongs to it."""
    half = new_memory()
    complete = new_memory()
    lessons: Any = [transfer.decode(line) for line in LINES[1:5]]
    await half.store.write(
        half.scope, transfer.import_lessons, lessons, "import:x", "ada", "mine"
    )
    assert [await half.count(), (await import_own(DATA, half)).known] == [4, 4]
    await import_own(DATA, complete)
    assert await export_bytes(half) == await export_bytes(complete) == DATA


async def export_one_lesson(**options: Any) -> bytes:
    memory = new_memory()
    await memory.remember("F", "no unit", example=PARCEL, **options)
    return await export_bytes(memory)


ONE: bytes = run_async(export_one_lesson())


def claim_standing(trust: str, state: str) -> bytes:
    """The same with this trust and state for all of it."""

    def change(record: Plain) -> None:
        record |= {k: v for k, v in (("trust", trust), ("state", state)) if k in record}

    return craft(ONE, change)


async def read_standing(memory: Memory) -> set[tuple[str, str]]:
    data = await export_bytes(memory)
    return {
        (record["trust"], record["state"])
        for record in (*read_records(data)[1:], *list_parts(data, "examples"))
    }


STATES = ("verified", "unverified", "quarantined", "superseded", "retired")


@pytest.mark.parametrize(
    ("trust", "state"),
    [
        *(
            pytest.param("user", state, id=f"an operator's: {state}")
            for state in STATES
        ),
        *(
            pytest.param(trust, "verified", id=f"verified, from {trust}")
            for trust in ORIGINS
            if trust != "user"
        ),
    ],
)
async def test_trust_is_kept_at_the_lower(trust, state):
    """External, or its own if an operator confirms it."""
    data = claim_standing(trust, state)
    theirs = new_memory()
    ours = new_memory()
    await transfers.import_foreign(data, theirs)
    is_gone = state in ("retired", "superseded")
    assert await read_standing(theirs) == (
        set() if is_gone else {("outside", "quarantined")}
    )
    assert await theirs.recall(TASK) == []
    assert [record.trust for record in await list_waiting(theirs)] == (
        [] if is_gone else ["outside"]
    )
    imported = await import_own(data, ours)
    waiting = await list_waiting(ours)
    assert imported.quarantined == len(waiting) == (state == "quarantined")
    assert await read_standing(ours) == {(trust, state)}
    assert bool(await ours.recall(TASK)) == (state in ("verified", "unverified"))


@cases(
    "trust_here, trust_there",
    {
        "the least here, the most there": ("outside", "user"),
        "the most here, the least there": ("user", "outside"),
        "the same": ("user", "user"),
    },
)
async def test_what_is_known_is_counted_and_keeps_its_trust(trust_here, trust_there):
    memory = new_memory()
    data = claim_standing(trust_there, "verified")
    await memory.remember("F", "no unit", example=PARCEL, origin=trust_here)
    before = await read_standing(memory)
    for _ in range(2):
        await transfers.import_foreign(data, memory)
        await import_own(data, memory)
        assert await read_standing(memory) == before
    assert (await memory.seen("F", "no unit")).count == 1
    assert [ruling["action"] for ruling in await list_rulings(memory)] == ["import"]


@pytest.mark.parametrize("trust", ORIGINS)
async def test_what_was_rejected_here_stays_so(trust):
    memory = new_memory()
    data = claim_standing(trust, "verified")
    await memory.remember("F", "no unit", example=PARCEL, origin="outside")
    await memory.quarantine.reject(
        [entry.id for entry in await list_waiting(memory)], by="bo"
    )
    before = await read_standing(memory)
    await transfers.import_foreign(data, memory)
    await import_own(data, memory)
    assert await read_standing(memory) == before == {("outside", "retired")}
    await memory.clear()
    imported = await transfers.import_foreign(data, memory)
    assert imported.new == 1
    assert imported.quarantined == 0
    assert await list_waiting(memory) == []


def test_who_confirms_says_who_and_why():
    for trust, by, why, message in [
        ("user", " ", "mine", "by is ' '"),
        ("user", "ada", "", "why is ''"),
        ("outside", "ada", "", "by is 'ada'"),
        ("local", "ada", "mine", "origin is 'local'"),
    ]:
        wrong: Any = trust
        with pytest.raises(InvalidInput, match=message):
            run_async(new_memory().import_("none.jsonl", origin=wrong, by=by, why=why))


async def test_nothing_that_others_decided_or_proved_is_taken():
    memory = new_memory()
    imported = await transfers.import_foreign(DATA, memory)
    data = await export_bytes(memory)
    assert await list_rulings(memory) == []
    assert list_parts(data, "links") == []
    for record in read_records(data)[1:]:
        claims = (record["pinned"], record["useful"], record["last_shown"])
        assert claims == (False, 1.0, 0.0)
        assert record["source"] == imported.source
        assert record["trust"] == "outside"
    for record in list_parts(data, "examples"):
        assert imported.source in record["sources"]
    assert imported.quarantined == len(await list_waiting(memory))
    removed = await memory.quarantine.revoke(imported.source, by="ada")
    assert removed.lessons == imported.new
    assert removed.examples == imported.quarantined
    assert [record["action"] for record in await list_rulings(memory)] == ["revoke"]
    assert await memory.count() == 0


async def test_another_text_of_a_stranger_is_no_sighting_of_a_known_lesson():
    theirs = new_memory()
    ours = new_memory()
    await theirs.remember("F", "no unit", example=replace(PARCEL, accepted="8 kg"))
    await ours.remember("F", "no unit", example=PARCEL)
    before = read_records(await export_bytes(ours))[1]
    imported = await transfers.import_foreign(await export_bytes(theirs), ours)
    after = read_records(await export_bytes(ours))[1]
    assert len(after["examples"]) == 2
    assert after | {"examples": []} == before | {"examples": []}
    removed = await ours.quarantine.revoke(imported.source, by="ada")
    assert removed.sightings == 0


async def test_a_released_lesson_is_found_by_its_own_words_alone():
    """The others nobody saw who released it."""

    def claims(record: Plain) -> None:
        if "author" in record:
            record |= {"words": "river portugal"}

    memory = new_memory()
    await transfers.import_foreign(craft(ONE, claims), memory)
    ids = [item.id for item in await list_waiting(memory)]
    await memory.quarantine.release(ids, by="a")
    assert await memory.recall("name a river in Portugal") == []
    assert [item.example for item in await memory.recall(TASK)] == [PARCEL]


def plant_text(text: str, number: int) -> Plain:
    def plant(record: Plain) -> None:
        if "author" in record:
            record |= {"lesson": text, "words": text, "sources": [text]}
            record["example"] |= dict.fromkeys(
                ("task", "accepted", "rejected", "wrong"), text
            )
        else:
            record |= {
                "text": text,
                "error_type": text,
                "source": text,
                "pattern": text,
            }
            data = {"deep": [{"in": text, "password": text}]}
            run = asdict(LessonRun(by=text, session=text, model_error=text))
            record |= {"tags": [text], "signature": f"{number:016x}"}
            record |= {"data": data, "run": run}

    return read_records(craft(ONE, plant))[1]


@cases("confirmed", {"our own": True, "foreign": False})
async def test_no_secret_of_a_crafted_export_is_stored(tmp_path, confirmed):
    lessons = [plant_text(text, number) for number, (text, _) in enumerate(PLANTED)]
    data = seal([HEADER, *lessons])
    assert [needle for _, needle in PLANTED if needle not in data] == []
    memory = Memory(in_file(str(tmp_path / "a.db")))
    assert (
        await (import_own if confirmed else transfers.import_foreign)(data, memory)
    ).new == len(PLANTED)
    files = [content.read_bytes() for content in tmp_path.iterdir()]
    files.append(await export_bytes(memory))
    assert [
        needle for _, needle in PLANTED if any(needle in content for content in files)
    ] == []
    await memory.store.close()


@pytest.mark.both_nightly
@pytest.mark.parametrize("source", ["http://p", "http://q"])
async def test_a_source_is_revoked_after_a_move_as_before(source):
    """Two pages, what derives from both, and from that again; one link of the chain is
    gone.
    """
    memory = new_memory()
    other = new_memory()
    for page in ("p", "q"):
        text = f"of {page}"
        await memory.remember(
            "P", text, lesson=text, origin="outside", source=f"http://{page}"
        )
    ids = [target.id for target in await list_waiting(memory)]
    await memory.quarantine.release(ids, by="ada")
    await memory.remember("D", "made of both", derived_from=ids)
    (middle,) = [target.id for target in await memory.recall("made of both", 1)]
    await memory.remember("D", "made of that", derived_from=[middle])
    gone = {target["text"]: target["id"] for target in await memory.top()}[
        "made of both"
    ]
    await memory.store.write(
        Scope(),
        lambda db, _: db.execute("delete from lesson where id = :gone", {"gone": gone}),
    )
    data = await export_bytes(memory)
    await import_own(data, other)
    assert await export_bytes(other) == data
    for target in (memory, other):
        await target.quarantine.revoke(source, by="ada")
    ours, theirs = [
        read_records(await export_bytes(target)) for target in (memory, other)
    ]
    assert ours == theirs
    remaining = "of q" if source == "http://p" else "of p"
    assert [target["text"] for target in ours[1:]] == [remaining]

"""Export and import: the same bytes again, each thing once, nothing more trusted than it may be."""

from __future__ import annotations

import itertools
import json
from io import BytesIO
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heedful.errors import ExportFileError, InvalidInput, StoreUnavailable
from heedful.lessons.lesson import ORDER, Example, Reflection, Scope
from heedful.lessons.signature import signature
from heedful.memory import transfer
from heedful.memory.memory import Memory
from heedful.memory.transfer import LONGEST_LINE
from heedful.store import exposures, lessons
from heedful.store.sqlite import in_file
from heedful.testing import FixedEmbedder
from tests.conftest import SOAK
from tests.engines import in_memory
from tests.memory import transfers
from tests.memory.transfers import (
    HEADER,
    PARCEL,
    PLANTED,
    Plain,
    crafted,
    do,
    everything,
    exported,
    fresh,
    moved,
    only,
    records,
    sealed,
)

KINDS = ("lesson", "example", "sighting", "ruling", "link")
TASK = "convert parcel 9 to kilograms"
DATA: bytes = do(exported(do(everything())))
LINES = DATA.splitlines(keepends=True)


async def held(memory: Memory) -> list[Any]:
    return await memory.store.read(memory.scope, lessons.quarantined, None)


async def rulings(memory: Memory) -> list[Any]:
    return await memory.store.read(memory.scope, exposures.rulings, 99)


@pytest.mark.both
async def test_moved_into_an_empty_memory_it_gives_the_same_bytes():
    memory, other = await everything(), fresh()
    data = await exported(memory)
    done = await moved(data, other)
    counts = {kind: len(only(records(data), kind)) for kind in KINDS}
    assert min(counts.values()) > 0
    assert done.written == counts
    assert (done.new, done.known, done.left) == (counts["lesson"], 0, 0)
    assert (done.tenant, done.project) == ("default", "default")
    assert await exported(other) == data
    for one in (other, memory):  # twice, and back where it came from
        again = await moved(data, one)
        assert (again.new, again.known) == (0, counts["lesson"])
        assert again.written == {}
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
    assert (done.tenant, done.project) == ("default", "default")
    assert (await Memory(store).count(), await acme.count()) == (0, done.new)
    assert records(await exported(acme))[0]["tenant"] == "acme"


CHARACTERS = st.characters(exclude_categories=())  # lone surrogates are characters, too
SECRET = st.sampled_from([text for text, _ in PLANTED])
TEXT = st.one_of(
    st.text(CHARACTERS, min_size=1, max_size=12).filter(str.strip),
    st.sampled_from(["no unit", "KeyError: 'a'", "重量是12公斤", "a\x00b\x1e\n", "\ud800"]),
    st.builds("{} {}".format, st.text(max_size=3), SECRET),
)
EXAMPLE = st.builds(
    Example,
    task=TEXT,
    accepted=TEXT,
    rejected=st.one_of(st.just(""), TEXT),
    before=st.dictionaries(TEXT, st.floats(allow_nan=False, allow_infinity=False), max_size=2),
    context=st.one_of(st.just(""), TEXT),
)
LESSON = st.fixed_dictionaries(
    {
        "error_type": st.sampled_from(["E", "F", "\ud800 type"]),
        "text": TEXT,
        "trust": st.sampled_from(ORDER),
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
    waiting, top = await held(memory), await memory.top(1)
    if what in ("release", "reject") and waiting:
        await getattr(memory.quarantine, what)([waiting[0].id], by="b")
    elif what == "revoke" and waiting and waiting[0].source:
        await memory.quarantine.revoke(waiting[0].source.partition(", ")[0], by="b")
    elif what == "prune" and top:
        await memory.prune(by="ann", keep=len(await memory.top(100)) - 1)
    elif what == "derive" and waiting:
        await memory.remember("D", f"from {waiting[0].signature}", derived_from=[waiting[0].id])


@settings(max_examples=40 * SOAK, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(LESSON, LESSON, RULED), max_size=10))
def test_any_memory_comes_back_as_it_was(steps):
    async def scenario() -> None:
        memory, other, colleague = fresh(embedder=FixedEmbedder(4)), fresh(), fresh()
        for step in steps:
            await (memory.remember(**step) if isinstance(step, dict) else rule(memory, step))
        data = await exported(memory)
        assert [needle for _, needle in PLANTED if needle in data] == []
        await moved(data, other)
        assert await exported(other) == data
        for one in (other, memory):
            assert (await moved(data, one)).written == {}
            assert await exported(one) == data
        first = await transfers.given(data, colleague)
        theirs = await exported(colleague)
        assert await colleague.recall("no unit") == []
        again = await transfers.given(data, colleague)
        assert (again.known, again.written) == (first.new, {})
        assert await exported(colleague) == theirs
        for one in (memory, other, colleague):
            await one.store.close()

    do(scenario())


async def test_in_either_order_two_memories_come_together_alike():
    one, two, three = fresh(), fresh(), fresh()
    for memory, words in ((one, "ash birch"), (two, "birch elm elm")):
        for word in words.split():
            await memory.remember("E", word)
    first, second = await exported(one), await exported(two)
    for memory, files in ((one, [second]), (two, [first]), (three, [second, first, second])):
        for data in files:
            await moved(data, memory)
        found = {known["text"]: known["seen"] for known in await memory.top(9)}
        assert found == {"ash": 1, "birch": 2, "elm": 2}


def refused(data: bytes) -> ExportFileError:
    """The error of an import that nothing may be left of."""

    async def scenario() -> ExportFileError:
        memory = fresh()
        with pytest.raises(ExportFileError) as error:
            await moved(data, memory)
        assert (await memory.count(), await rulings(memory)) == (0, [])
        await memory.store.close()
        return error.value

    found: ExportFileError = do(scenario())
    return found


@pytest.mark.parametrize("kept", range(len(LINES)))
def test_cut_behind_any_line(kept):
    error = refused(b"".join(LINES[:kept]))
    assert error.line == kept
    assert "the file ends before its closing line; copy or export the file again" in str(error)


@given(st.integers(0, len(DATA) - 2), st.integers(1, 255))
def test_any_byte_flipped(at, by):
    data = bytearray(DATA)
    data[at] ^= by
    error = refused(bytes(data))
    # The line itself is named, unless it still makes sense; then the last line does not fit.
    where = DATA.count(b"\n", 0, at) + 1
    assert error.line in (where, where + 1, data.count(b"\n"), data.count(b"\n") + 1)


def with_field(kind: str, name: str, value: Any) -> bytes:
    made = records(DATA)
    next(one for one in made if one["type"] == kind)[name] = value
    return sealed(made)


NESTED = json.loads('{"a":' * 300 + "1" + "}" * 300)


@pytest.mark.parametrize(
    ("data", "line", "said"),
    [
        (b"", 0, "the file ends before"),
        (b"nonsense\n", 1, "line is b'nonsense\\n'; it must be JSON in UTF-8"),
        (b'{"id": "x", "attempts": []}\n', 1, "'type'"),
        (b"[1, 2]\n", 1, "an object"),
        (LINES[1] + DATA, 1, "it is not an export of heedful"),
        (DATA + DATA, len(LINES) + 1, "nothing may follow the last line"),
        (LINES[0] * 2 + DATA, 2, "it is a second header"),
        (b"".join(LINES[:-2]) + LINES[-1], len(LINES) - 1, "a line above was changed"),
        (LINES[0] + b'{"type":"lesson","kind":"\xff"}\n', 2, "it must be JSON in UTF-8"),
        (LINES[0] + b"[" * 100_000 + b"\n", 2, "without deep nesting"),
        (LINES[0] + b" " * (LONGEST_LINE + 1) + b"\n", 2, "it is longer than 64 MB"),
        (with_field("heedful memory", "version", 1), 1, "it must be 2"),
        (with_field("lesson", "seen", -1), 2, "lesson.seen is -1; it must be greater than"),
        (with_field("lesson", "last_seen", 1e300), 2, "lesson.last_seen"),
        (with_field("lesson", "extra", 1), 2, "lesson.extra is 1; it must be left out"),
        (with_field("lesson", "signature", "0" * 16), 2, "the signature of its pattern, "),
        (with_field("lesson", "meta", NESTED), 2, "without deep nesting"),
        (with_field("example", "example", {"task": "t"}), 3, "accepted is None; it must be given"),
        (with_field("link", "relation", "owns"), None, "it must be 'became' or 'strategy'"),
        (sealed([HEADER, {"type": "exposure", "loop": "l"}]), 2, "a record whose 'type' is known"),
        (with_field("ruling", "action", "import"), None, "any action except import"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(data, line, said):
    error = refused(data)
    assert said in str(error)
    assert line is None or error.line == line
    assert str(error).startswith(f"the input:{error.line}: " if error.line else "the input: ")


class Changing(BytesIO):
    """A file that somebody writes while it is read the second time."""

    def __init__(self, data: bytes, then: bytes) -> None:
        super().__init__(data)
        self._then, self._begun = then, 0

    def seek(self, at: int, whence: int = 0) -> int:
        self._begun += (at, whence) == (0, 0)
        if self._begun == 2:
            self._begun += 1
            super().seek(0)
            self.truncate()
            self.write(self._then)
        return super().seek(at, whence)


def test_a_file_that_changes_while_it_is_read_is_refused():
    other = sealed([*records(DATA)[:2]])
    with pytest.raises(ExportFileError, match="the file changed while it was read"):
        do(fresh().import_(Changing(DATA, other)))
    with pytest.raises(ExportFileError, match="the file ends before"):
        do(fresh().import_(Changing(DATA, LINES[0])))


class Full(BytesIO):
    """A disk with so much room."""

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > 2_000:
            raise OSError(28, "No space left on device")
        return super().write(data)


async def test_a_file_is_complete_its_owners_and_not_overwritten_by_accident(tmp_path):
    memory, other, path = await everything(), fresh(), tmp_path / "lessons.jsonl"
    steps: list[tuple[str, int, int]] = []
    done = await memory.export(path, progress=lambda *step: steps.append(step))
    before = path.read_bytes()
    assert (done.bytes, done.lines) == (len(before), before.count(b"\n"))
    assert steps == [("exporting", n + 1, done.lessons) for n in range(done.lessons)]
    assert path.stat().st_mode & 0o077 == 0  # what was learnt is nobody else's to read
    steps.clear()
    there = await other.import_(str(path), progress=lambda *step: steps.append(step))
    assert there.source == f"import:{done.digest[:16]}"
    assert steps == [("checking", done.bytes, done.bytes), ("importing", done.bytes, done.bytes)]
    await memory.remember("E", "one more")
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    for name, force, error, said in [
        (path, False, InvalidInput, "a name that is free, unless force is given"),
        (tmp_path, True, InvalidInput, "the name of a file"),
        (tmp_path / "none" / "x", False, StoreUnavailable, "No such file or directory"),
        (Full(), False, StoreUnavailable, "the export cannot be written"),
    ]:
        with pytest.raises(error, match=said):
            await memory.export(name, force=force)
    assert path.read_bytes() == before
    await memory.export(link, force=True)
    assert link.is_symlink()
    assert path.read_bytes() == await exported(memory) != before
    assert {one.name for one in tmp_path.iterdir()} == {"lessons.jsonl", "link.jsonl"}


async def test_what_goes_wrong_in_the_middle_leaves_nothing(tmp_path):
    def give_up(what: str, done: int, total: int) -> None:
        if done == 2:
            raise ZeroDivisionError

    memory = await everything()
    with pytest.raises(ZeroDivisionError):
        await memory.export(tmp_path / "x", progress=give_up)
    assert list(tmp_path.iterdir()) == []
    assert await memory.count() > 0  # the store goes on


async def test_what_no_line_can_hold(monkeypatch):
    """A number that JSON has no word for is left out; an entry that is too long is refused."""
    example = Example("a task", "done", before={"q": float("nan")}, after={"q": float("-inf")})
    one = Reflection("error", signature("E", "it"), "E", "it", "it", example=example)
    memory = fresh()
    await memory.store.write(memory.scope, exposures.remember, [one])
    assert (await moved(await exported(memory), fresh())).new == 1
    monkeypatch.setattr(transfer, "LONGEST_LINE", 200)
    with pytest.raises(InvalidInput, match="at most 200 bytes long"):
        await exported(memory)


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
    made = records(await exported(memory))
    return {(one["trust"], one["state"]) for one in (*only(made, "lesson"), *only(made, "example"))}


STATES = ("verified", "candidate", "quarantined", "superseded", "retired")


@pytest.mark.parametrize(("trust", "state"), [*itertools.product(ORDER, STATES)])
async def test_trust_is_kept_at_the_lower(trust, state):
    """External, or its own if an operator vouches for it."""
    data, theirs, own = claiming(trust, state), fresh(), fresh()
    await transfers.given(data, theirs)
    kept = max(state, "quarantined", key=STATES.index)
    assert await stood(theirs) == {("external", kept)}
    assert await theirs.recall(TASK) == []
    assert [one.trust for one in await held(theirs)] == ["external"] * (kept == "quarantined")
    done = await moved(data, own)
    waiting = await held(own)
    assert done.quarantined == len(waiting) == (state == "quarantined")
    assert await stood(own) == {(trust, state)}
    assert bool(await own.recall(TASK)) == (state in ("verified", "candidate"))


@pytest.mark.parametrize(("known", "trust"), [*itertools.product(ORDER, ORDER)])
async def test_what_is_known_is_counted_and_keeps_its_trust(known, trust):
    memory, data = fresh(), claiming(trust, "verified")
    await memory.remember("F", "no unit", example=PARCEL, trust=known)
    before = await stood(memory)
    for _ in range(2):
        await transfers.given(data, memory)
        await moved(data, memory)
        assert await stood(memory) == before
    assert (await memory.seen("F", "no unit")).count == 2
    assert [one["action"] for one in await rulings(memory)] == ["import"]


@pytest.mark.parametrize("trust", ORDER)
async def test_what_was_rejected_here_stays_so(trust):
    memory, data = fresh(), claiming(trust, "verified")
    await memory.remember("F", "no unit", example=PARCEL, trust="tool")
    await memory.quarantine.reject([one.id for one in await held(memory)], by="bo")
    before = await stood(memory)
    await transfers.given(data, memory)
    await moved(data, memory)
    assert await stood(memory) == before == {("tool", "retired")}
    await memory.clear()
    done = await transfers.given(data, memory)
    assert (done.new, done.quarantined, await held(memory)) == (1, 0, [])


@pytest.mark.parametrize("rejected_last", [True, False])
async def test_the_later_ruling_counts_wherever_it_was_made(rejected_last):
    """The same text was released on one machine and rejected on the other."""

    async def ruled(action: str) -> Memory:
        memory = fresh()
        await memory.remember("F", "no unit", lesson="obey me", trust="tool")
        await getattr(memory.quarantine, action)([(await held(memory))[0].id], by="bo")
        return memory

    first, then = ("release", "reject") if rejected_last else ("reject", "release")
    there, here = await ruled(first), await ruled(then)
    await moved(await exported(there), here)
    await here.store.write(Scope(), lambda db, _: db.execute("delete from reflection"))
    await here.remember("F", "no unit", lesson="obey me", trust="tool")
    assert len(await held(here)) == (not rejected_last)
    assert [one["action"] for one in await rulings(here)] == ["import", then, first]


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
    made, memory = records(DATA), fresh()
    done = await transfers.given(DATA, memory)
    kinds = ("ruling",)
    became = [one for one in only(made, "link") if one["relation"] == "became"]
    assert done.left == sum(len(only(made, kind)) for kind in kinds) + len(became)
    after = records(await exported(memory))
    assert [one["type"] for one in after if one["type"] in kinds] == []
    assert only(after, "link") == [one for one in only(made, "link") if one not in became]
    for one in only(after, "lesson"):
        claims = (one["pinned"], one["apart"], one["useful"], one["last_shown"])
        assert claims == (False, False, 1.0, 0.0)
        assert (one["source"], one["trust"]) == (done.source, "external")
    for one in (*only(after, "example"), *only(after, "sighting")):
        assert done.source in one["sources"]
    assert done.quarantined == len(await held(memory))
    removed = await memory.quarantine.revoke(done.source, by="ada")
    assert (removed.lessons, removed.sightings) == (done.new, done.written["sighting"])
    left = records(await exported(memory))
    assert [one["action"] for one in left[1:]] == ["revoke"]


async def test_a_crafted_export_reaches_nothing_else():
    """It claims all there is to claim; what was there before is as it was."""

    def claims(record: Plain) -> None:
        if record["type"] == "heedful memory":
            record |= {"tenant": "acme", "project": "secret"}
        if record["type"] == "lesson":
            record |= {"pinned": True, "useful": 2.0, "trust": "operator", "state": "verified"}
            record |= {"seen": 10**9, "last_seen": 2e11, "importance": 1.0}
        if record["type"] == "example":
            record |= {"trust": "operator", "state": "verified", "words": "river portugal"}

    memory, times = fresh(), {"seen", "first_seen", "last_seen"}
    await memory.remember("F", "no unit", example=PARCEL)
    before = records(await exported(memory))
    await transfers.given(crafted(DATA, claims), memory)
    assert await Memory(memory.store, Scope("acme", "secret")).count() == 0
    made = records(await exported(memory))
    old = next(one for one in made if one["type"] == "lesson" and one["error_type"] == "F")
    assert {name for name in old if old[name] != before[1][name]} <= times
    assert (old["seen"], old["last_seen"] < 2e11) == (2, True)
    assert before[2] in made
    assert [one.lesson for one in await memory.recall(TASK)] == ["no unit"]
    # Released, it is found by its own words alone: the others nobody saw who released it.
    other = fresh()
    await transfers.given(crafted(ONE, claims), other)
    await other.quarantine.release([one.id for one in await held(other)], by="a")
    assert await other.recall("name a river in Portugal") == []
    assert [one.example for one in await other.recall(TASK)] == [PARCEL]


LABEL = "write the colour of each cup on its own white label"


@pytest.mark.parametrize("vouched", [False, True])
async def test_what_took_the_place_of_what_is_believed_of_what_is_superseded_here_alone(vouched):
    """Else a file could say that a lesson of ours became one of its own."""
    memory = fresh()
    await memory.remember("L", LABEL)
    await (moved if vouched else transfers.given)(DATA, memory)
    made = records(await exported(memory))
    assert {one["relation"] for one in only(made, "link")} == {"strategy"}
    (ours,) = (await memory.seen("L", LABEL)).lessons
    assert (ours["text"], ours["state"]) == (LABEL, "candidate")


async def test_a_strategy_of_theirs_belongs_to_no_reflection_of_ours():
    memory = fresh()
    await moved(sealed([one for one in records(DATA) if one["type"] != "link"]), memory)
    assert "link" not in (await transfers.given(DATA, memory)).written
    assert only(records(await exported(memory)), "link") == []


async def test_of_long_texts_and_many_tags_as_much_is_kept_as_of_others_held_back():
    def longer(record: Plain) -> None:
        if "text" in record:
            record["text"] = "long " * 10_000
        if record["type"] == "lesson":
            record |= {"tags": ["t" * 1_000] * 50, "meta": {"session": "x" * 30_000}}
        if record["type"] == "example":
            record["example"]["accepted"] = "long " * 10_000

    theirs, own, data = fresh(), fresh(), crafted(ONE, longer)
    await transfers.given(data, theirs)
    await transfers.given(data, theirs)
    made = {one["type"]: one for one in records(await exported(theirs))}
    lesson, example, sighting = (made[kind] for kind in ("lesson", "example", "sighting"))
    texts = (lesson["text"], example["text"], example["example"]["accepted"], sighting["text"])
    assert [len(text) for text in texts] == [4_000] * 4
    assert [len(tag) for tag in lesson["tags"]] == [200] * 20
    assert (lesson["seen"], sighting["times"], lesson["meta"]) == (1, 1, {})
    await moved(data, own)
    assert await exported(own) == data


TEXTS = ("text", "error_type", "source", "words", "by", "why", "loop", "subject")


def planted(text: str, number: int) -> list[Plain]:
    mark = f"{number:016x}"
    ruled = {"type": "ruling", "at": float(number), "action": text, "subject": text, "by": text}
    record = {"deep": [{"in": text, "password": text}]}
    made = [{**ruled, "why": text, "record": record}]
    for one in records(ONE)[1:]:
        one |= {name: text for name in TEXTS if name in one}
        if one["type"] == "lesson":
            one |= {"tags": [text], "signature": mark, "pattern": f"[redacted: x] {text}"}
        else:
            one |= {"lesson": f"error/{mark}", "sources": [text]}
        if one["type"] == "example":
            one["example"] |= dict.fromkeys(("task", "accepted", "rejected", "wrong"), text)
        made.append(one)
    return made


@pytest.mark.parametrize("vouched", [True, False])
async def test_no_secret_of_a_crafted_export_is_stored(tmp_path, vouched):
    made = [one for number, (text, _) in enumerate(PLANTED) for one in planted(text, number)]
    data = sealed([HEADER, *made])
    assert [needle for _, needle in PLANTED if needle not in data] == []
    memory = Memory(in_file(str(tmp_path / "a.db")))
    assert (await (moved if vouched else transfers.given)(data, memory)).new == len(PLANTED)
    files = [one.read_bytes() for one in tmp_path.iterdir()]
    files.append(await exported(memory))
    assert [needle for _, needle in PLANTED if any(needle in one for one in files)] == []
    await memory.store.close()


@pytest.mark.both
@pytest.mark.parametrize("source", ["http://p", "http://q"])
async def test_a_source_is_revoked_after_a_move_as_before(source):
    """Two pages, what derives from both, and from that again; one link of the chain is gone."""
    memory, other = fresh(), fresh()
    for page in ("p", "q"):
        text = f"of {page}"
        await memory.remember("P", text, lesson=text, trust="external", source=f"http://{page}")
    ids = [one.id for one in await held(memory)]
    await memory.quarantine.release(ids, by="ada")
    await memory.remember("D", "made of both", derived_from=ids)
    (middle,) = [one.id for one in await memory.recall("made of both", 1)]
    await memory.remember("D", "made of that", derived_from=[middle])
    gone = {one["text"]: one["id"] for one in await memory.top()}["made of both"]
    await memory.store.write(
        Scope(), lambda db, _: db.execute("delete from reflection where id = :gone", {"gone": gone})
    )
    data = await exported(memory)
    await moved(data, other)
    assert await exported(other) == data
    for one in (memory, other):
        await one.quarantine.revoke(source, by="ada")
    made = [
        [one for one in records(await exported(memory)) if one["type"] != "ruling"]
        for memory in (memory, other)
    ]
    assert made[0] == made[1]
    kept = "of q" if source == "http://p" else "of p"
    assert [one["text"] for one in only(made[0], "lesson")] == [kept]

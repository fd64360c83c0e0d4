"""What the tests of export and import share: memories full of everything, and files to
damage.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any

from heedful.lessons.lesson import Example, Exposure, Lesson, Outcome, Scope
from heedful.lessons.signature import signature
from heedful.memory import quarantine
from heedful.memory.dream import consolidate
from heedful.memory.memory import Memory
from heedful.memory.reflect import reflect
from heedful.memory.transfer import Imported
from heedful.store import exposures
from heedful.testing import FixedEmbedder
from tests.engines import in_memory
from tests.memory.dreams import NEVER, RETRY, state_rule
from tests.memory.reflections import FAILED
from tests.planted import EVERY

Plain = dict[str, Any]
PARTS = ("examples", "links")
PARCEL = Example(
    "convert parcel 7 to kilograms",
    "7 kg",
    rejected="7",
    wrong="no unit",
    before={"q": 0.2},
    after={"q": 1.0},
)


def run_async(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def new_memory(scope: Scope | None = None, **options: Any) -> Memory:
    return Memory(in_memory(), scope, **options)


async def export_bytes(memory: Memory) -> bytes:
    file = BytesIO()
    await memory.export(file)
    return file.getvalue()


async def import_own(data: bytes, memory: Memory) -> Imported:
    """Import it as the operator's own."""
    return await memory.import_(
        BytesIO(data), origin="user", by="ada", why="my own memory"
    )


async def import_foreign(data: bytes, memory: Memory) -> Imported:
    """Import it as that of somebody else."""
    return await memory.import_(BytesIO(data))


def read_records(data: bytes) -> list[Plain]:
    """The records of an export without the line that closes it."""
    return [json.loads(line) for line in data.splitlines()[:-1]]


def encode_line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def seal(entries: Sequence[Mapping[str, Any]]) -> bytes:
    """A file of these records, closed as it should be."""
    body = b"".join(map(encode_line, entries))
    digest = hashlib.sha256(body).hexdigest()
    return body + encode_line({"type": "end", "sha256": digest})


def craft(data: bytes, change: Callable[[Plain], None]) -> bytes:
    """The same export with every record changed and closed again, as by somebody who
    means harm.
    """
    lessons = read_records(data)
    for record in lessons:
        for changed in (
            record,
            *(part_record for part in PARTS for part_record in record.get(part, ())),
        ):
            change(changed)
    return seal(lessons)


def list_parts(data: bytes, part: str) -> list[Plain]:
    """The examples or links of all lessons of an export."""
    return [record for lesson in read_records(data)[1:] for record in lesson[part]]


async def fill_memory(memory: Memory | None = None) -> Memory:
    """A memory with all in it that is learnt and ruled on; one of its own, or this
    one.
    """
    memory = memory or new_memory(embedder=FixedEmbedder())
    store = memory.store
    scope = memory.scope
    await memory.remember(
        "E", "bad value 'x'", lesson="use y", pinned=True, tags=["a", "b"]
    )
    await memory.remember("E", "bad value 'x'", origin="local")
    await memory.remember(
        "F", "no unit", example=PARCEL, context="in a warehouse", source="ada"
    )
    await memory.remember(
        "P", "page 1", lesson="obey me", origin="outside", source="http://p"
    )
    await memory.remember(
        "P", "page 2", lesson="obey me too", origin="outside", source="http://q"
    )
    await memory.remember(
        "P", "page 3", lesson="obey me as well", origin="outside", source="http://q"
    )
    page_1, page_2 = [
        entry.id
        for entry in reversed(await store.read(scope, quarantine.newest_waiting))
    ][:2]
    await store.write(
        scope, quarantine.settle, [page_1], "release", "ada", "it is right"
    )
    await store.write(scope, quarantine.settle, [page_2], "reject", "bo", "it is wrong")
    matches = await memory.recall("convert parcel 9 to kilograms")
    await memory.remember(
        "D", "derived", lesson="from both", derived_from=[matches[0].id, page_1]
    )
    lesson = f"error/{signature('F', 'no unit').digest}"
    mark = lesson.partition("/")[2]
    for number in range(4):
        loop = f"run-1/{number}"
        is_shown = number % 2 == 0
        exposure = Exposure(
            lesson,
            loop,
            shown=is_shown,
            signature=mark,
            share=0.5,
            together=False,
            examples=(matches[0].id,) if is_shown else (),
        )
        other = Exposure(
            "error/0123456789abcdef",
            loop,
            shown=True,
            signature="0123456789abcdef",
            share=0.5,
        )
        end = Outcome(
            loop,
            is_shown,
            calls=2,
            signatures=frozenset() if is_shown else frozenset({mark}),
        )
        await store.write(
            scope,
            exposures.remember,
            [],
            exposures=[exposure, other],
            outcome=end if number else None,
        )
    learnt = Lesson(
        "check",
        signature("unit", "no unit"),
        error_type="unit",
        text="write kg",
        sighting="no unit",
        loop="run-1/0",
        example=Example("convert 3", "3 kg", rejected="3", wrong="no unit"),
        state="verified",
    )
    await store.write(scope, exposures.remember, [learnt])
    return memory


async def fill_memory_fully(memory: Memory | None = None) -> Memory:
    """The same with a reflection and a dream: all that an export has a place for."""
    memory = await fill_memory(memory)
    by_words = Memory(memory.store, memory.scope)
    for text in (RETRY, NEVER):
        await state_rule(by_words, text)
    await reflect(FAILED, memory=by_words, origin="user")
    dream = await consolidate(by_words)
    assert dream.after == dream.before - 1
    return memory


HEADER = {
    "type": "heedful memory",
    "version": 3,
    "tenant": "default",
    "project": "default",
}


# A text with a secret of each kind, and the line of it that may be nowhere; every text
# is tested in packages/heedful/tests/test_redact.py.
PLANTED = [
    (text, max(secret.splitlines(), key=len).encode())
    for (text, secret), *_ in EVERY.values()
]

"""What a release frees stands on the page before it: every word, of every kind.

Each text that a stranger may choose is a word of its own. All faces are asked after the
release, and what they say is looked up on the page that the reviewer saw.
"""

import itertools
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from io import BytesIO
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from heedful import Episode, Event, Example, reflect
from heedful.lessons.lesson import Lesson, Scope, Signature
from heedful.lessons.mistake import Mistake, with_origin
from heedful.memory.memory import Memory
from heedful.memory.session_brief import section_text
from heedful.store.connection import Actor, Db, key_of, token
from heedful.store.store import Effects
from heedful.testing import FixedEmbedder
from tests.engines import in_memory
from tests.service.support import read_data, record, right, wrong
from tests.tables import cases
from tests.web.support import SCOPE, Browser, browsing, words_of

pytestmark = pytest.mark.both_nightly
TASK = "weigh the red crate in the hall"
WORD_PATTERN = "zQ[bcdfghj]{4}"
Hold = Callable[[Browser, Memory], Coroutine[Any, Any, None] | None]
_letters = itertools.product("bcdfghj", repeat=4)


def word() -> str:
    """Return a word that nothing else has, and that no signature masks.

    A search folds its case: the words of a search do not stand for a text.
    """
    return "zQ" + "".join(next(_letters))


def filled(hint: Any) -> Any:
    """Return a value of a type whose texts are all words of their own."""
    if hint is str:
        return word()
    if is_dataclass(hint):
        return filled_record(hint)
    arguments = get_args(hint)
    match get_origin(hint):
        case origin if origin is Literal:
            return arguments[-1]
        case origin if origin in (UnionType, Union):
            return filled(next(kind for kind in arguments if kind is not NoneType))
        case origin if origin is tuple:
            return tuple(filled(kind) for kind in arguments if kind is not Ellipsis)
        case origin if origin is Mapping:
            return {word(): filled(arguments[1])}
    return word() if hint is Any else hint(1)


def filled_record(kind: Any, /, **given: Any) -> Any:
    """Return a record with a word in each field that has no `given` value."""
    hints = get_type_hints(kind)
    values = {
        item.name: filled(hints[item.name])
        for item in fields(kind)
        if item.name not in given
    }
    return kind(**values, **given)


def step(tool: str, arguments: Any, error: str = "") -> tuple[Event, Event]:
    """Return a call with its result."""
    call = Event("tool_call", tool=tool, arguments=arguments)
    return call, Event("tool_response", "" if error else word(), tool=tool, error=error)


def run_that_fixed(tool: str) -> Episode:
    """Return a run in which a call failed, and other arguments put it right."""
    name = word()
    events = (
        *step(tool, {"id": name}, f"no {word()} `{name}`"),
        *step(tool, {"id": word()}),
    )
    return Episode(events, "success", task=f"{TASK} {word()}")


# -- what waits, of each kind


async def hold_record(browser: Browser, memory: Memory) -> None:
    """Store a record with a word in each field that a lesson and its parts have."""
    lesson = filled_record(
        Lesson,
        kind="reflection",
        signature=Signature.of(word(), word()),
        example=filled_record(Example, task=f"{TASK} {word()}"),
        mistake=with_origin(filled_record(Mistake), "outside"),
        state="unverified",
        trust="outside",
        importance=0.5,
        vector=None,
        space="",
        parents=(),
        pinned=False,
        cause=None,
        loop="",
        released_by="",
        released_at=0.0,
    )
    await memory.keep(lesson)


async def hold_lesson(browser: Browser, memory: Memory) -> None:
    await remember(memory, lesson=f"{TASK} {word()}")


async def hold_lesson_with_example(browser: Browser, memory: Memory) -> None:
    example = filled_record(Example, task=f"{TASK} {word()}")
    await remember(memory, lesson=word(), example=example)


async def hold_example(browser: Browser, memory: Memory) -> None:
    await remember(memory, example=Example(f"{TASK} {word()}", word()))


async def hold_error(browser: Browser, memory: Memory) -> None:
    await remember(memory)


async def remember(memory: Memory, **more: Any) -> None:
    await memory.remember(
        word(),
        word(),
        tags=[word()],
        context=word(),
        source=word(),
        origin="outside",
        **more,
    )


async def hold_run(browser: Browser, memory: Memory) -> None:
    await reflect(run_that_fixed("price"), memory=memory, origin="outside")


async def hold_part_of_run(browser: Browser, memory: Memory) -> None:
    """Let only what an event from outside says wait."""
    run = run_that_fixed("price")
    call, refused, *others = run.events
    events = (call, replace(refused, origin="outside"), *others)
    await reflect(replace(run, events=events), memory=memory)


async def hold_rule(browser: Browser, memory: Memory) -> None:
    with Effects(actor=Actor("key:0f")):
        await memory.user_rules.state(f"Never use {word()}.", by="key 0f")


def hold_loop(browser: Browser, memory: Memory) -> None:
    finding = {"check": word(), "message": word(), "fix": word(), "evidence": word()}
    reports = (wrong(word(), finding), right(word()))
    key = browser.api.key("write", outside=True)
    record(browser.api, "loop", *reports, key=key, task=f"{TASK} {word()}")


async def hold_import(browser: Browser, memory: Memory) -> None:
    other = Memory(in_memory(), SCOPE)
    example = filled_record(Example, task=f"{TASK} {word()}")
    await other.remember(word(), word(), lesson=word(), example=example, tags=[word()])
    await reflect(run_that_fixed("price"), memory=other)
    file = BytesIO()
    await other.export(file)
    await memory.import_(BytesIO(file.getvalue()))


async def hold_derived(browser: Browser, memory: Memory) -> None:
    page = await memory.remember("page", word(), origin="outside", source=word())
    await remember(memory, lesson=word(), derived_from=[page.entry])


HOLDS: Mapping[str, Hold] = {
    "a record with all its fields": hold_record,
    "a lesson": hold_lesson,
    "a lesson with an example": hold_lesson_with_example,
    "an example": hold_example,
    "an error without a lesson": hold_error,
    "a run": hold_run,
    "a part of a run": hold_part_of_run,
    "a rule": hold_rule,
    "a loop": hold_loop,
    "an import": hold_import,
    "a text that derives from another": hold_derived,
}


@pytest.fixture
def browser(tmp_path) -> Iterator[Browser]:
    with browsing(tmp_path, embedder=None) as browser:
        yield browser.open(browser.api._all)


@pytest.fixture
def memory(browser: Browser) -> Memory:
    return Memory(browser.api.setup.store, SCOPE, FixedEmbedder(), holdout=0.0)


def hold(browser: Browser, memory: Memory, kind: Hold) -> None:
    """Let something of a kind wait."""
    holding = kind(browser, memory)
    if holding is not None:
        browser.api.run(holding)


# -- what the faces say


def stored_texts(db: Db, scope: Scope) -> list[Any]:
    """Return the whole rows of lessons and examples."""
    lessons = db.select("*", "lesson", key_of(scope))
    examples = db.select("*", "example", {"scope": token(scope)})
    return [dict(row) for row in (*lessons, *examples)]


def words_in(text: object, flags: int = 0) -> set[str]:
    words: list[str] = re.findall(WORD_PATTERN, str(text), flags)
    return set(words) if not flags else {word.casefold() for word in words}


async def say_all(memory: Memory) -> str:
    """Return what memory stores of lessons, and what its faces say of them."""
    answers: list[object] = [await memory.store.read(SCOPE, stored_texts)]
    lessons = await memory.top(200)
    for lesson in lessons:
        answers.append(lesson)
        answers.append(await memory.seen(lesson["error_type"], lesson["pattern"]))
    queried = await memory.query(TASK, 50)
    recalled = await memory.recall(TASK, 50)
    for matches in (queried, recalled):
        answers += [
            repr(list(map(_data, matches))),
            memory.render(matches, form="text"),
        ]
        answers.append(memory.render(matches))
    for key in {match.memory_key for match in queried}:
        answers.append(
            await memory.brief(TASK, f"loop {key}", memory_key=key, every=True)
        )
    for tool in ("price", "web_price"):
        answers.append(await memory.before(tool, {"id": "x"}))
    answers += [await section_text(memory), await memory.user_rules.in_force()]
    file = BytesIO()
    await memory.export(file)
    answers.append(file.getvalue().decode())
    return "\n".join(map(str, answers))


def _data(match: Any) -> dict[str, Any]:
    """Return a match as data: its text for people is shortened."""
    return {item.name: getattr(match, item.name) for item in fields(match)}


def say_service(browser: Browser) -> str:
    """Return what the service and its pages say of lessons."""
    listed = read_data(browser.api.get("/v1/reflections?limit=200"))
    texts = [str(listed)]
    for lesson in listed["items"]:
        texts.append(browser.api.get(f"/v1/reflections/{lesson['id']}").text)
        texts.append(browser.get(f"/lessons/{lesson['id']}").text)
    recall = {"task": TASK, "limit": 3, "form": "text"}
    texts.append(browser.api.post("/v1/recall", json=recall).text)
    return "\n".join(texts)


def release_all(browser: Browser) -> str:
    """Release all that waits, case by case; return the lists on the pages before."""
    lists = ""
    while queue := browser.data("/inbox")["queue"]:
        page = browser.get(f"/inbox/{queue[0]['id']}").text
        _, _, rest = page.partition('<dl id="freed">')
        lists += words_of(rest.partition("</dl>")[0]) + "\n"
        ids = ",".join(map(str, queue[0]["ids"]))
        browser.do("release", id=ids, why="read")
    return lists


@cases("kind", HOLDS)
def test_each_word_that_is_said_afterwards_was_on_the_page(browser, memory, kind):
    hold(browser, memory, kind)
    lessons = browser.api.run(memory.top(200))
    words_before = str([(lesson["text"], lesson["mistake"]) for lesson in lessons])
    lists = release_all(browser)
    answers = browser.api.run(say_all(memory)) + say_service(browser)
    assert words_in(answers)
    assert words_in(answers) - words_in(words_before) - words_in(lists) == set()
    folded = re.IGNORECASE
    unlisted = (
        words_in(answers, folded)
        - words_in(words_before, folded)
        - words_in(lists, folded)
    )
    assert unlisted == set()


@cases("kind", HOLDS)
def test_page_terminal_and_api_have_the_same_list(browser, memory, kind):
    hold(browser, memory, kind)
    for row in browser.data("/inbox")["queue"]:
        freed = browser.data(f"/inbox/{row['id']}")["case"]["freed"]
        listed = [{"part": text["part"], "text": text["text"]} for text in freed]
        answers: list[dict[str, str]] = []
        for id in row["ids"]:
            entry = read_data(browser.api.get(f"/v1/quarantine/{id}"))
            answers += [text for text in entry["texts"] if text not in answers]
        assert listed == answers


@cases("kind", HOLDS)
def test_what_is_released_stays_from_outside(browser, memory, kind):
    hold(browser, memory, kind)
    waiting = browser.api.run(memory.quarantine.waiting())
    release_all(browser)
    for entry in waiting:
        released = browser.api.run(memory.quarantine.show(entry.id))
        assert released.trust == "outside"
        assert released.released_by
        assert released.released_at > 0
    lessons = browser.api.run(memory.top(200))
    assert "user" not in {lesson["trust"] for lesson in lessons}

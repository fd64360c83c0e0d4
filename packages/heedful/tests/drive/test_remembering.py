"""What a loop is shown of memory, what a coin withholds, and what is written down of it
when.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from heedful.drive.run_loop import Run, run
from heedful.errors import UserCodeError
from heedful.lessons.holdout import FIRST_LOOPS_WITHOUT_HOLDOUT
from heedful.lessons.lesson import Example, Exposure, Lesson, Outcome, Scope
from heedful.lessons.signature import signature
from heedful.memory.memory import Memory
from heedful.store import exposures
from heedful.store.store import Store
from heedful.testing import ScriptedModel
from tests.drive.support import FOUR, SCOPE, WANTED, Check, Generator
from tests.engines import opened, rows
from tests.store.entries import build_lesson
from tests.tables import cases

pytestmark = pytest.mark.both_nightly

TASK = "How heavy is the parcel with the number 9?"
NAMES = ("unit", "comma", "space", "sign")
WHOLE = [f"check/{signature(name, name).digest}" for name in NAMES]


@pytest.fixture(params=["same store", "another store"])
def stores(request, store, tmp_path):
    """The store of the loops and that of the memory."""
    if request.param == "same store":
        yield store, store
    else:
        with opened(tmp_path / "memory.db") as other:
            yield store, other


def lesson(name: str, number: int = 0, **fields: Any) -> Lesson:
    """About one of the names; the lower the number the nearer its task."""
    words = " ".join("bridge river mountain lake desert forest".split()[: 2 * number])
    example = Example(
        f"{TASK.replace('9', str(number))} {words}",
        f"{name} {number} kg",
        rejected="7",
        wrong=name,
    )
    fields.setdefault("state", "verified")
    fields.setdefault("example", example)
    return build_lesson(name, name, **fields)


async def teach(
    store: Store,
    *lessons: Lesson,
    ended: int = FIRST_LOOPS_WITHOUT_HOLDOUT,
    scope: Scope = SCOPE,
) -> None:
    """A memory with these lessons, in which so many loops have ended."""
    await store.write(
        scope,
        exposures.remember,
        lessons or [lesson(name, n) for n, name in enumerate(NAMES)],
    )
    for n in range(ended):
        before = [
            Exposure(
                "check/0",
                f"before {n}",
                shown=True,
                signature="0",
                share=0.0,
            )
        ]
        end = Outcome(f"before {n}", True, calls=1)
        await store.write(scope, exposures.remember, (), exposures=before, outcome=end)


def read_exposures(path: Any, loop: str) -> dict[str, tuple[int, float, int]]:
    entries = rows(
        path,
        "select signature, shown, share, together from exposure where loop = ?",
        loop,
    )
    return {name: tuple(rest) for name, *rest in entries}


def read_outcomes(path: Any) -> list[tuple[Any, ...]]:
    say = "select loop, right_at_once, calls, signatures from outcome"
    return rows(path, f"{say} where loop not like 'before %' order by n")


def open_run(store: Any, memory: Any, *answers: Any, **options: Any) -> Run[Any]:
    """A loop named l, that is driven step by step."""
    options.setdefault("generate", Generator(*answers))
    options.setdefault("checks", [Check()])
    options.setdefault("policy", FOUR)
    options.setdefault("id", "l")
    return Run[Any](TASK, store=store, memory=memory, **options)


async def drive(store: Any, memory: Memory, id: str, **options: Any) -> ScriptedModel:
    model = options.pop("model", None) or ScriptedModel(WANTED, forever=True)
    options.setdefault("checks", [Check()])
    options.setdefault("generate", model)
    await run(TASK, store=store, memory=memory, id=id, **options)
    return model


async def test_a_loop_that_is_resumed_says_again_what_is_withheld(store):
    await teach(store)
    memory = Memory(store, holdout=0.99)
    first = await memory.brief(TASK, "l")
    await store.write(SCOPE, exposures.remember, (), exposures=first.exposures)
    again = await memory.brief(TASK, "l", begins=False)
    assert {choice.outcome for choice in first.choices} >= {"withheld"}
    assert again.choices == first.choices


def is_adult(person: Any) -> str:
    """Check data alone, as functions that take a parsed answer do."""
    if not isinstance(person, dict):
        return "no data"
    return "" if person["age"] > 17 else "too young"


@pytest.mark.parametrize(
    ("age", "is_shown"),
    [
        pytest.param(36, True, id="its data is accepted"),
        pytest.param(3, False, id="neither its data nor its text is accepted"),
    ],
)
async def test_an_answer_kept_as_json_is_judged_as_data_too(store, age, is_shown):
    memory = Memory(store, holdout=0)
    example = Example(TASK, f'{{"age": {age}}}', rejected="old", wrong="no data")
    taught = build_lesson("no data", "is_adult", state="verified", example=example)
    await store.write(SCOPE, exposures.remember, [taught])
    driver = Run[Any](
        TASK, generate=lambda task: {"age": 40}, checks=[is_adult], memory=memory
    )
    await driver.step()
    assert driver.briefing is not None
    answers = [match.example.accepted for match in driver.briefing.chosen]
    assert (example.accepted in answers) is is_shown


DEPLOYED: list[Any] = []


def deploys(answer: Any) -> str:
    """Accept an answer that runs; each call has an effect."""
    DEPLOYED.append(answer)
    return ""


@cases(
    ("asked", "judged"),
    {
        "a check may be called with it": (True, ["old", "new"]),
        "a check with effects is called with new answers only": (False, ["new"]),
    },
)
async def test_a_remembered_answer_is_judged_unless_the_check_has_effects(
    store, monkeypatch, asked, judged
):
    memory = Memory(store, holdout=0)
    example = Example(TASK, "old", rejected="older", wrong="it does not start")
    taught = build_lesson("it", "deploys", state="verified", example=example)
    await store.write(SCOPE, exposures.remember, [taught])
    monkeypatch.setattr(deploys, "remembered", asked, raising=False)
    DEPLOYED.clear()
    await run(TASK, generate=lambda task: "new", checks=[deploys], memory=memory)
    assert judged == DEPLOYED


# -- written with the first entry, whatever it is


FIRSTS: dict[str, tuple[str, bool, Callable[[Run[Any]], Any]]] = {
    "an answer that waits for its check": ("x", False, lambda one: one.step()),
    "a generator that fails": ("", False, lambda one: one.step()),
    "a pure attempt": ("x", True, lambda one: one.step()),
    "an override": ("x", True, lambda one: one.override("attempts", "ada")),
    "a cancelling": ("x", True, lambda one: one.cancel("ada")),
}


@pytest.mark.parametrize("first", FIRSTS)
async def test_the_exposures_of_a_loop_are_stored_with_its_first_entry(
    stores, tmp_path, first
):
    store, other = stores
    await teach(other)
    answer, pure, act = FIRSTS[first]
    check = Check(pure=pure)
    if first == "an answer that waits for its check":
        check = Check(ValueError(), ValueError(), pure=pure)
    driver = open_run(store, other, answer or ValueError(), checks=[check])
    with suppress(UserCodeError):
        await act(driver)
    path = tmp_path / ("a.db" if other is store else "memory.db")
    assert set(read_exposures(path, "l")) == {name[6:] for name in WHOLE[:3]}


async def test_a_look_comes_after_the_outcomes_that_are_due(store, path):
    """79 loops have ended; the 80th looks, and finds what was proven long ago."""
    await teach(store, lesson("unit"), ended=0)
    memory = Memory(store, holdout=0.5)
    for n in range(79):
        exposed_to = n < 15 if n < 19 else n % 2 == 0  # those that were shown it fail
        item = Exposure(
            WHOLE[0], f"b{n}", shown=exposed_to, signature=WHOLE[0][6:], share=0.5
        )
        end = Outcome(f"b{n}", not exposed_to, calls=1)
        await store.write(SCOPE, exposures.remember, (), exposures=[item], outcome=end)
    state = "select state, useful from lesson"
    conclusions = {
        item.lesson: item.conclusion for item in (await memory.prove()).lessons
    }
    assert [name for name in conclusions if conclusions[name] == "hurts"] == [WHOLE[0]]
    assert rows(path, state) == [("verified", 1.0)]  # the 79th; nobody has looked
    await drive(store, memory, "l", checks=[])
    assert rows(path, "select state from lesson") == [("retired",)]
    (ruling,) = await store.read(SCOPE, exposures.rulings, 9)
    assert ruling["action"] == "retire"
    assert ruling["by"] == "proof"

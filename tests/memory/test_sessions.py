"""Sessions of coding agents: what is learnt of them, once, and how far it is
trusted.
"""

import itertools
from dataclasses import replace
from typing import Any

import pytest

import heedful
from heedful.episodes.episode import Episode, Event
from heedful.lessons import render
from heedful.lessons.action import command_of
from heedful.lessons.mistake import Mistake
from heedful.store import exposures
from tests.tables import cases


def mends_of(mistake: Mistake) -> tuple[str, ...]:
    """Return the calls that put a mistake right, in words."""
    fix = mistake.fix
    if fix is None:
        return ()
    changed = (render.change_words(fix),) if fix.changes else ()
    return (*map(render.call_words, fix.calls), *changed)


MISSING = 'Exit code 1\nnpm ERR! Missing script: "test"'
COUNT = itertools.count()


def step(
    tool: str, arguments: Any, message: str = "", failed: bool = False
) -> tuple[Event, Event]:
    """A call and its result; a text is the command of a shell."""
    if isinstance(arguments, str):
        arguments = {"command": arguments, "description": f"why {next(COUNT)}"}
    content, error = ("", message) if failed else (message, "")
    return Event("tool_call", "", agent="", tool=tool, arguments=arguments), Event(
        "tool_response", content, agent="", tool=tool, error=error
    )


def edit(old: str, new: str, path: str = "a.py") -> tuple[Event, Event]:
    return step(
        "Edit", {"file_path": path, "old_string": old, "new_string": new}, "done"
    )


def read(message: str) -> tuple[Event, Event]:
    return step("Read", {"file_path": "README.md"}, message)


def session(*steps: tuple[Event, ...], id: str = "s1", message: str = "") -> Episode:
    events = [
        Event("user_message", "Run the tests."),
        *(event for pair in steps for event in pair),
    ]
    events += [Event("user_message", message)] if message else []
    return Episode(tuple(events), "partial", task="Run the tests.", session=id)


FAILED = step("Bash", "npm test", MISSING, failed=True)
OTHER = step("Bash", "pnpm test", "12 passed")
BROKEN = step(
    "Bash", "pytest -q", "E   NameError: name 'sum' is not defined", failed=True
)

PASSED = step("Bash", "pytest -q", "1 passed")
LONG = "\n".join(f"value_{n} = {n}" for n in range(2_000))


@pytest.fixture
def memory(store):
    return heedful.Memory(store)


@cases(
    "steps, errors, mends, vain, work",
    {
        "another command fixes it": (
            [FAILED, OTHER],
            ['npm ERR! Missing script: "test"'],
            ["Bash `pnpm test`"],
            0,
            False,
        ),
        "nothing fixes it": (
            [FAILED],
            ['npm ERR! Missing script: "test"'],
            [],
            0,
            False,
        ),
        "an edit of many lines fixes it": (
            [
                BROKEN,
                edit("sum", "y"),
                BROKEN,
                step("Read", {"file_path": "a.py"}, "y"),
                edit("sum = 1", LONG),
                edit("a", "b", "README.md"),
                PASSED,
            ],
            ["NameError: name 'sum' is not defined"],
            ["+value_1999 = 1999"],
            0,
            True,
        ),
        "one attempt in vain": (
            [
                step("Bash", "make al", "make: no rule for 'al'", failed=True),
                step("Bash", "make -B al", "make: no rule for 'al'", failed=True),
                step("Bash", "make all", "ok"),
            ],
            ["make: no rule for 'al'"],
            ["Bash `make all`"],
            1,
            False,
        ),
        "other arguments of a tool fix it": (
            [
                step(
                    "find",
                    {"a": "kettle"},
                    "3 items match; say the colour",
                    failed=True,
                ),
                step("find", {"a": "red kettle"}, "ok"),
            ],
            ["3 items match; say the colour"],
            ["red kettle"],
            0,
            False,
        ),
    },
)
async def test_a_mistake_has_its_error_what_was_vain_and_what_put_it_right(
    steps, errors, mends, vain, work, memory
):
    mistakes = (await heedful.learn_session(session(*steps), memory=memory)).mistakes
    assert [mistake.error for mistake in mistakes] == errors
    assert not any(
        "why" in render.lesson(mistake) for mistake in mistakes
    )  # descriptions are no arguments
    for mistake in mistakes[:1]:
        assert len(mends_of(mistake)) == len(mends)
        assert all(
            part in mend for part, mend in zip(mends, mends_of(mistake), strict=True)
        )
        words = render.lesson(mistake)
        assert all(mend in words for mend in mends_of(mistake))  # nothing is cut
        assert len(mistake.vain) == vain
        is_edit = mistake.fix is not None and mistake.fix.kind == "edit"
        assert is_edit == work


@cases(
    "failed, error, worked, mend",
    {
        "the same program in two words": (
            "docker-compose up",
            "sh: docker-compose: not found",
            ["ls", "docker compose up"],
            1,
        ),
        "not the same command in another folder": (
            "git push",
            "fatal: no upstream",
            ["cd b && git push", "git push -u origin b"],
            0,
        ),
        "a part of the tests": (
            "pytest a",
            "FAILED a::f - assert 1",
            ["pytest a::g", "pytest a | head"],
            None,
        ),
        "after an install": (
            "run.py",
            "ImportError: no 'yaml'",
            ["pip install pyyaml", "run.py"],
            0,
        ),
    },
)
async def test_another_call_puts_a_failed_one_right(
    failed, error, worked, mend, memory
):
    steps = [
        step("Bash", failed, error, failed=True),
        *(step("Bash", command, "ok") for command in worked),
    ]
    [mistake] = (await heedful.learn_session(session(*steps), memory=memory)).mistakes
    assert mends_of(mistake) == (() if mend is None else (f"Bash `{worked[mend]}`",))


async def test_a_session_is_learnt_once_and_found_by_error_and_by_action(memory):
    first = session(FAILED, OTHER)
    [lesson] = (await heedful.learn_session(first, memory=memory)).stored.values()
    assert lesson.trust == "local"
    assert lesson.seen == 1
    assert (await heedful.learn_session(first, memory=memory)).again
    longer = session(FAILED, OTHER, PASSED)  # the same session, continued
    assert not (await heedful.learn_session(longer, memory=memory)).again
    assert (await memory.seen("", MISSING)).count == 1
    await heedful.learn_session(replace(first, session="s2"), memory=memory)
    sightings = await memory.seen("Bash", f"> npm test\n{MISSING}")
    assert sightings.count == 2
    assert "pnpm test" in sightings.lessons[0]["text"]
    (failure,) = (await memory.before("Bash", {"command": "npm test"})).failures
    assert failure.fix == "Bash `pnpm test`"
    assert ("pnpm" in failure.error) is False
    assert not await memory.before("Bash", {"command": "pnpm test"})


async def test_what_may_be_the_work_itself_is_recalled_after_it_came_back(memory):
    for times in (0, 1):
        episode = session(BROKEN, edit("sum", "y"), PASSED, id=f"s{times}")
        await heedful.learn_session(episode, memory=memory)
        assert len(await memory.recall("NameError: name 'sum' is not defined")) == times


async def test_a_fix_that_reads_as_the_failed_call_is_none(memory):
    path = {"file_path": "a.py", "new_string": "c"}
    failed = step(
        "Edit",
        path | {"old_string": "a"},
        "String to replace not found in file.",
        failed=True,
    )
    run = session(failed, step("Edit", path | {"old_string": "b"}, "done"))
    await heedful.learn_session(run, memory=memory)
    seen = await memory.seen("Edit", "String to replace not found in file.")
    assert seen.lessons
    assert not any("put it right" in lesson["text"] for lesson in seen.lessons)


UNFIXED = session(FAILED)
FIXED = session(FAILED, OTHER)
ANOTHER = session(FAILED, step("Bash", "pnpm -r test", "12 passed"), id="s2")
AFTER_THE_EDIT = {
    "another session finds the fix": (UNFIXED, replace(FIXED, session="s2"), OTHER),
    "the same session finds the fix": (UNFIXED, FIXED, OTHER),
    "a newer fix": (FIXED, ANOTHER, ANOTHER.events[3:]),
    "no fix": (FIXED, replace(UNFIXED, session="s2"), OTHER),
    "the same fix": (FIXED, replace(FIXED, session="s2"), OTHER),
}


@pytest.mark.parametrize("name", AFTER_THE_EDIT)
async def test_a_fix_is_stored_beside_the_words_of_a_person(memory, name):
    before, after, cure = AFTER_THE_EDIT[name]
    await heedful.learn_session(before, memory=memory)
    [lesson] = await memory.top(5)
    await memory.edit(lesson["id"], "Ask Ann.", by="ada")
    await heedful.learn_session(after, memory=memory)
    [lesson] = await memory.top(5)
    assert lesson["text"].startswith("Ask Ann.\nWhat put it right:\n")
    assert lesson["trust"] == "user"
    [call] = lesson["mistake"]["fix"]["calls"]
    assert call["text"] == command_of(cure[0].arguments or "")
    assert lesson["seen"] == len({before.session, after.session})
    rulings = await memory.store.read(memory.scope, exposures.rulings, 9)
    assert [ruling["action"] for ruling in rulings] == ["edit"]


async def test_the_fix_of_a_revoked_session_leaves_the_words_of_a_person(memory):
    await heedful.learn_session(session(FAILED), memory=memory)
    [lesson] = await memory.top(5)
    await memory.edit(lesson["id"], "Ask Ann.", by="ada")
    await heedful.learn_session(session(FAILED, OTHER, id="s2"), memory=memory)
    await memory.quarantine.revoke("episode:s2", by="ada", why="it was wrong")
    [lesson] = await memory.top(5)
    assert lesson["text"] == "Ask Ann."
    assert lesson["trust"] == "user"

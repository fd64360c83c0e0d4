"""What a lesson of a session names as the cure, and which particulars it leaves out."""

from __future__ import annotations

import json
from typing import Any

import pytest

import heedful
from heedful.episodes.episode import Episode, Event
from heedful.lessons import render
from heedful.lessons.mistake import Mistake
from tests.hosts import patient_host
from tests.tables import cases


def mends_of(mistake: Mistake) -> tuple[str, ...]:
    """Return the calls that put a mistake right, in words."""
    fix = mistake.fix
    if fix is None:
        return ()
    changed = (render.change_words(fix),) if fix.changes else ()
    return (*map(render.call_words, fix.calls), *changed)


Steps = list[tuple[Event, Event]]
PUSH = """fatal: The current branch feature/cart has no upstream branch.
To push the current branch and set the remote as upstream, use

    git push --set-upstream origin feature/cart"""
TSC = """src/cart.ts(14,3): error TS2304: Cannot find name 'total'.

Found 1 error in src/cart.ts:14
"""
ROOT = "/srv/ann/shop"


@pytest.fixture
def memory(store: Any) -> heedful.Memory:
    return heedful.Memory(store, holdout=0.0)


def run(command: str, output: str = "ok", tool: str = "Bash") -> tuple[Event, Event]:
    """Return a command that works, with its result."""
    call = Event("tool_call", tool=tool, arguments={"command": command})
    return call, Event("tool_response", output, tool=tool)


def fail(command: str, error: str) -> tuple[Event, Event]:
    """Return a command that fails, with its result."""
    call = Event("tool_call", tool="Bash", arguments={"command": command})
    return call, Event("tool_response", tool="Bash", error=error)


def call(tool: str, arguments: Any, error: str = "") -> tuple[Event, Event]:
    """Return a call of a tool, with its result."""
    content = "" if error else "done"
    result = Event("tool_response", content, tool=tool, error=error)
    return Event("tool_call", tool=tool, arguments=arguments), result


def edit(path: str, old: str, new: str) -> tuple[Event, Event]:
    """Return an edit of a file, with its result."""
    arguments = {"file_path": path, "old_string": old, "new_string": new}
    return call("Edit", arguments)


def session(steps: Steps, id: str = "s1") -> Episode:
    """Return the session with these steps."""
    events = [event for step in steps for event in step]
    return Episode(tuple(events), "partial", session=id)


async def learn(memory: heedful.Memory, steps: Steps) -> list[Mistake]:
    """Learn a session with these steps; return its mistakes."""
    learned = await heedful.learn_session(session(steps), memory=memory)
    return list(learned.mistakes)


TODO = call("TodoWrite", {"todos": [{"content": "fix the upstream of feature/cart"}]})
NO_CURES = {
    "a to-do list": [fail("git push", PUSH), TODO, run("git push")],
    "the same command with less output": [
        fail("make test", "--- FAIL: TestCart (0.1s)"),
        run("make test 2>&1 | grep -c TestCart"),
        run("make test"),
    ],
    "an edit whose text is not known": [
        fail("make lint", "cart.go:3:4: unused variable"),
        call("Edit", '{"file_path":"cart.go","new_string":"... cut'),
        run("make lint"),
    ],
}


@cases("steps", NO_CURES)
async def test_what_is_no_cure(steps, memory):
    [mistake] = await learn(memory, steps)
    assert mends_of(mistake) == ()
    assert "What put it right" not in render.lesson(mistake)


@cases(
    "file, is_told",
    {
        "another file": ("src/names.d.ts", True),
        "the file that the error names": ("src/cart.ts", False),
    },
)
async def test_the_code_of_that_day_is_not_told(memory, file, is_told):
    [mistake] = await learn(
        memory, [fail("npx tsc", TSC), edit(file, "total", "sum"), run("npx tsc")]
    )
    assert bool(mistake.fix) == is_told
    assert ("+sum" in render.lesson(mistake)) == is_told
    [lesson] = await memory.top(5)
    assert ("+sum" in lesson["text"]) == is_told


async def test_what_one_edit_put_right_is_one_lesson(memory):
    second = "src/cart.ts(19,3): error TS2552: Cannot find 'total', perhaps 'totals'."
    [mistake] = await learn(
        memory,
        [
            fail("npx tsc", f"{TSC}\n{second}"),
            edit("src/cart.ts", "total", "sum"),
            run("npx tsc"),
        ],
    )
    assert mistake.fix is None


async def test_the_same_edit_is_told_once(memory):
    errors = ["KeyError: 'total'", "NameError: name 'total' is not defined"]
    steps = [fail("pytest a", errors[0]), fail("pytest b", errors[1])]
    steps += [edit("cart.py", "total", "sum"), run("pytest a"), run("pytest b")]
    mistakes = await learn(memory, steps)
    assert len({mends_of(mistake) for mistake in mistakes}) == 1
    assert len(mistakes) == 2

    host = patient_host(memory=memory, strict=True)
    advice = await host.run("next").seen("Bash", "\n".join(errors))
    assert advice.text.count("+sum") == 1


@cases("root", {"given": ROOT, "of the session": ""})
async def test_paths_are_relative_to_the_repository(root, memory):
    steps = [
        run(f"cat {ROOT}/docs/index.md && ls src/cart.ts"),
        fail(
            f"npx tsc -p {ROOT}", f"{ROOT}/src/cart.ts(14,3): error TS2304: no 'total'."
        ),
        edit(f"{ROOT}/src/names.d.ts", "total", "sum"),
        run(f"npx tsc -p {ROOT}"),
    ]
    learned = await heedful.learn_session(session(steps), memory=memory, root=root)
    [mistake] = learned.mistakes
    assert render.lesson(mistake).startswith(
        "Bash `npx tsc -p .` failed with “src/cart.ts(14"
    )
    assert "edit src/names.d.ts:" in render.lesson(mistake)
    assert "/srv/ann" not in render.lesson(mistake)

    seen = await memory.seen(
        "Bash", "/srv/other/src/cart.ts(3,1): error TS2304: no 'total'."
    )
    assert len(seen.lessons) == 1


async def test_the_branch_of_the_session_is_left_out(memory):
    [mistake] = await learn(
        memory,
        [fail("git push", PUSH), run("git push --set-upstream origin feature/cart")],
    )
    assert mends_of(mistake) == ("Bash `git push --set-upstream origin <branch>`",)
    assert "feature/cart" not in render.lesson(mistake)


BOOKING = {
    "user_id": "mia_li_3668",
    "payment_id": "certificate_7504069",
    "passengers": [{"first_name": "Mia", "last_name": "Li", "dob": "1990-04-05"}],
    "mail": "mia.li@post.test",
}


async def test_people_and_ids_are_left_out(memory):
    paid = {**BOOKING, "payment_id": "gift_card_9113470"}
    error = "Error: certificate cannot be used to pay for mia.li@post.test"
    [mistake] = await learn(
        memory, [call("book", BOOKING, error=error), call("book", paid)]
    )
    assert mistake.action is not None
    assert "payment_id “certificate_<id>”" in render.call_words(mistake.action)
    assert "payment_id “gift_card_<id>”" in mends_of(mistake)[0]
    record = json.dumps(await memory.top(5), default=repr)
    for personal in ("Mia", "mia", "3668", "1990", "post.test", "7504069"):
        assert personal not in render.lesson(mistake)
        assert personal not in record

    seen = await memory.seen("book", error)
    assert len(seen.lessons) == 1


async def test_what_the_user_says_has_no_personal_data(memory):
    text = "Never install that: mia.li@post.test says it is dead."
    message = Event("user_message", text)
    events = (*run("npm install"), message)
    episode = Episode(events, "partial", session="s1")
    await heedful.learn_session(episode, memory=memory)
    [lesson] = await memory.top(5)
    assert "[redacted: mail]" in lesson["text"]
    assert "mia.li" not in json.dumps(lesson, default=repr)

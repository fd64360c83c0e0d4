"""Sessions of coding agents: what is learnt of them, once, and how it ages."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful.episodes.episode import Event
from heedful.lessons import render
from heedful.lessons.mistake import Call
from heedful.lessons.render import FIX_HEADING
from heedful.store import calls, exposures
from tests.hosts import patient_host
from tests.memory.agent_sessions import edit, learn, session_of, step
from tests.tables import cases

MISSING = 'Exit code 1\nnpm ERR! Missing script: "test"'
FAILED = step("Bash", "npm test", MISSING)
OTHER = step("Bash", "pnpm test")
PASSED = step("Bash", "pytest -q")


async def test_a_session_is_learnt_once_and_found_by_error_and_by_action(memory):
    first = session_of(FAILED, OTHER)
    [lesson] = (await heedful.learn_session(first, memory=memory)).stored.values()
    assert lesson.trust == "local"
    assert lesson.seen == 1
    assert (await heedful.learn_session(first, memory=memory)).was_known
    longer = session_of(FAILED, OTHER, PASSED)  # the same session, continued
    assert not (await heedful.learn_session(longer, memory=memory)).was_known
    assert (await memory.seen("", MISSING)).count == 1
    await heedful.learn_session(replace(first, session="s2"), memory=memory)
    sightings = await memory.seen("Bash", f"> npm test\n{MISSING}")
    assert sightings.count == 2
    assert "pnpm test" in sightings.lessons[0]["text"]
    (failure,) = (await memory.before("Bash", {"command": "npm test"})).failures
    assert failure.fix == "Bash `pnpm test`"
    assert "pnpm" not in failure.error
    assert not await memory.before("Bash", {"command": "pnpm test"})


async def test_what_may_be_the_work_itself_is_recalled_after_it_came_back(memory):
    error = "NameError: name 'sum' is not defined"
    broken = step("Bash", "pytest -q", f"E   {error}")
    for times in (0, 1):
        await learn(memory, f"s{times}", broken, edit("a.py", "sum", "y"), PASSED)
        assert len(await memory.recall(error)) == times


UNFIXED = session_of(FAILED)
FIXED = session_of(FAILED, OTHER)
ANOTHER = session_of(FAILED, step("Bash", "pnpm -r test"), id="s2")
AFTER_THE_EDIT = {
    "another session finds the fix": (UNFIXED, replace(FIXED, session="s2"), "pnpm"),
    "the same session finds the fix": (UNFIXED, FIXED, "pnpm"),
    "a newer fix": (FIXED, ANOTHER, "pnpm -r"),
    "no fix": (FIXED, replace(UNFIXED, session="s2"), "pnpm"),
    "the same fix": (FIXED, replace(FIXED, session="s2"), "pnpm"),
}


@cases("before, after, program", AFTER_THE_EDIT)
async def test_a_fix_is_stored_beside_the_words_of_a_person(
    memory, before, after, program
):
    await heedful.learn_session(before, memory=memory)
    [lesson] = await memory.top(5)
    await memory.edit(lesson["id"], "Ask Ann.", by="ada")
    await heedful.learn_session(after, memory=memory)
    [lesson] = await memory.top(5)
    assert lesson["text"].startswith(f"Ask Ann.\n{FIX_HEADING}:\n")
    assert lesson["trust"] == "user"
    [call] = lesson["mistake"]["fix"]["calls"]
    assert call["text"] == f"{program} test"
    assert lesson["seen"] == len({before.session, after.session})
    rulings = await memory.store.read(memory.scope, exposures.rulings, 9)
    assert [ruling["action"] for ruling in rulings] == ["edit"]


async def test_the_call_the_error_and_the_fix_are_those_of_one_run(memory):
    absent = "/bin/bash: line 1: npx: command not found"
    fix = step("Bash", "pnpm exec tsc")
    await learn(memory, "s1", step("Bash", "npx tsc", absent), fix)
    await learn(memory, "s2", step("Bash", "npx eslint", absent))
    [lesson] = await memory.top(5)
    assert lesson["mistake"]["action"]["text"] == "npx tsc"
    assert lesson["mistake"]["fix"]["calls"][0]["text"] == "pnpm exec tsc"


async def test_the_fix_of_a_revoked_session_leaves_the_words_of_a_person(memory):
    await learn(memory, "s1", FAILED)
    [lesson] = await memory.top(5)
    await memory.edit(lesson["id"], "Ask Ann.", by="ada")
    await learn(memory, "s2", FAILED, OTHER)
    await memory.quarantine.revoke("episode:s2", by="ada", why="it was wrong")
    [lesson] = await memory.top(5)
    assert lesson["text"] == "Ask Ann."
    assert lesson["trust"] == "user"


async def test_an_edit_of_many_lines_is_not_cut(memory):
    lines = "\n".join(f"value_{number} = {number}" for number in range(2_000))
    failed = step("Bash", "pytest -q", "E   NameError: name 'sum' is not defined")
    learned = await learn(memory, "s1", failed, edit("a.py", "sum", lines), PASSED)
    [mistake] = learned.mistakes
    assert "+value_1999 = 1999" in render.lesson(mistake)


async def test_the_same_edit_is_told_once(memory):
    errors = ["KeyError: 'total'", "NameError: name 'total' is not defined"]
    failed = [step("Bash", f"pytest {n}", error) for n, error in enumerate(errors)]
    passed = [step("Bash", f"pytest {n}") for n in range(2)]
    learned = await learn(memory, "s1", *failed, edit("a.py", "total", "sum"), *passed)
    assert len(learned.mistakes) == 2

    host = patient_host(memory=memory, strict=True)
    advice = await host.run("next").seen("Bash", "\n".join(errors))
    assert advice.text.count("+sum") == 1


# Particulars


SHOP = "/srv/ann/shop"


@cases("root", {"given": SHOP, "of the session": ""})
async def test_paths_are_relative_to_the_repository(root, memory):
    error = "src/cart.ts(14,3): error TS2304: no 'total'."
    learned = await learn(
        memory,
        "s1",
        step("Bash", f"cat {SHOP}/docs/index.md && ls src/cart.ts"),
        step("Bash", f"npx tsc -p {SHOP}", f"{SHOP}/{error}"),
        edit(f"{SHOP}/src/names.d.ts", "total", "sum"),
        step("Bash", f"npx tsc -p {SHOP}"),
        root=root,
    )
    [mistake] = learned.mistakes
    words = render.lesson(mistake)
    assert mistake.action == Call(tool="Bash", text="npx tsc -p .")
    assert mistake.error.startswith("src/cart.ts(14")
    assert "edit src/names.d.ts:" in words
    assert "/srv/ann" not in words
    assert len((await memory.seen("Bash", f"/srv/other/{error}")).lessons) == 1


BOOKING = {
    "user_id": "mia_li_3668",
    "payment_id": "certificate_7504069",
    "passengers": [{"first_name": "Mia", "last_name": "Li", "dob": "1990-04-05"}],
    "mail": "mia.li@post.test",
}


async def test_people_and_ids_are_left_out(memory):
    paid = {**BOOKING, "payment_id": "gift_card_9113470"}
    error = "Error: certificate cannot be used to pay for mia.li@post.test"
    learned = await learn(
        memory, "s1", step("book", BOOKING, error), step("book", paid)
    )
    words = render.lesson(learned.mistakes[0])
    assert "payment_id “certificate_<id>”" in words
    assert "payment_id “gift_card_<id>”" in words
    record = json.dumps(await memory.top(5), default=repr)
    for personal in ("Mia", "mia", "3668", "1990", "post.test", "7504069"):
        assert personal not in words
        assert personal not in record
    assert len((await memory.seen("book", error)).lessons) == 1


async def test_what_the_user_says_has_no_personal_data(memory):
    text = "Never install that: mia.li@post.test says it is dead."
    message = [Event("user_message", text)]
    await learn(memory, "s1", step("Bash", "npm install"), message)
    [lesson] = await memory.top(5)
    assert "[redacted: mail]" in lesson["text"]
    assert "mia.li" not in json.dumps(lesson, default=repr)


# Files that change, and fixes that fail


TSC = "src/cart.ts(14,3): error TS2304: Cannot find name 'total'."


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of a repository."""
    (tmp_path / "src").mkdir()
    path = tmp_path / "src" / "names.d.ts"
    path.write_text("sum")
    return path


async def learn_edit(memory: heedful.Memory, file: Path, id: str = "s1") -> None:
    """Learn a session in which an edit of the file put the compiler right."""
    failed = step("Bash", "npx tsc", TSC)
    root = str(file.parent.parent)
    change = edit(str(file), "total", "sum")
    await learn(memory, id, failed, change, step("Bash", "npx tsc"), root=root)


async def ask(memory: heedful.Memory, root: Any) -> str:
    """Return what a host in a repository is told about the error of the compiler."""
    host = patient_host(memory=memory, strict=True, root=str(root))
    return (await host.run().seen("Bash", TSC)).text


async def test_a_lesson_says_that_its_file_changed_until_it_comes_back(memory, file):
    root = file.parent.parent
    await learn_edit(memory, file)
    assert "+sum" in await ask(memory, root)
    assert "changed since" not in await ask(memory, root)

    file.write_text("sum + tax")
    text = await ask(memory, root)
    assert "+sum" in text
    assert "(src/names.d.ts has changed since this was learnt: check first.)" in text

    await learn_edit(memory, file, id="s2")
    assert "changed since" not in await ask(memory, root)


async def test_a_lesson_rests_while_its_file_is_gone(memory, file):
    root = file.parent.parent
    await learn_edit(memory, file)
    file.unlink()
    assert await ask(memory, root) == ""
    assert "+sum" in await ask(memory, "")

    file.write_text("sum")
    assert "+sum" in await ask(memory, root)


async def test_no_file_outside_of_the_repository_is_read(
    memory, file, tmp_path_factory
):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "names.d.ts"
    elsewhere.write_text("sum")
    file.unlink()
    file.symlink_to(elsewhere)
    await learn_edit(memory, file)
    [lesson] = await memory.top(5)
    mistakes = await memory.store.read(memory.scope, calls.mistakes, [lesson["id"]])
    assert not mistakes[lesson["id"]].files


NO_BABEL = "E   ModuleNotFoundError: No module named 'babel'"
INSTALL = step("Bash", "pip install babel")
REFUSED = step("Bash", "pip install babel", "ERROR: externally-managed-environment")


@pytest.mark.both_nightly
async def test_a_fix_that_failed_itself_is_not_offered_until_it_works_again(memory):
    failed = step("Bash", "pytest -q", NO_BABEL)
    for id, steps, is_offered in (
        ("s1", [failed, INSTALL, PASSED], True),
        ("s2", [REFUSED], False),
        ("s3", [INSTALL], True),
    ):
        await learn(memory, id, *steps)
        text = (await memory.seen("Bash", NO_BABEL)).lessons[0]["text"]
        assert ("pip install babel" in text) is is_offered
        assert "No module named 'babel'" in text


async def test_before_a_call_a_fix_that_failed_is_not_offered(memory):
    failed = step("Bash", "git push --up b", "error: unknown option `up'")
    for id in ("s0", "s1"):
        await learn(memory, id, failed, step("Bash", "git push origin b"))
    [failure] = (await memory.before("Bash", "git push --up b")).failures
    assert failure.fix == "Bash `git push origin b`"

    await learn(memory, "s2", step("Bash", "git push origin b", "fatal: no remote"))
    [failure] = (await memory.before("Bash", "git push --up b")).failures
    assert failure.fix == ""

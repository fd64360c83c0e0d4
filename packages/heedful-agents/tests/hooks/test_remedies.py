"""What an agent is told after a call failed: one line, the first that applies."""

from pathlib import Path
from typing import Any

import pytest

from heedful.memory.memory import Memory
from tests.hooks.sessions import Session
from tests.tables import cases

pytestmark = pytest.mark.both_nightly


@pytest.fixture
def memory(store: Any) -> Memory:
    return Memory(store, holdout=0.0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with two files."""
    for path in ("cmd/setup.go", "docs/guide.md"):
        place = tmp_path / "r" / path
        place.parent.mkdir(parents=True)
        place.touch()
    return tmp_path / "r"


def read(root: Path, path: str) -> dict[str, str]:
    return {"file_path": f"{root}/{path}"}


LINT = "cmd/setup.go:{line}:3: error is not nil (line 2) but it returns nil 'nilerr'"


@cases(
    ("error", "is_told"),
    {
        "same message": (LINT.format(line=9).replace("setup", "clean"), True),
        "another message": ("cmd/clean.go:4:1: undefined: cart", False),
    },
)
async def test_an_edit_helps_only_after_the_same_message(
    memory: Memory, root: Path, error: str, is_told: bool
) -> None:
    first = Session(memory, "one", root=str(root))
    await first.call("Bash", "make lint", LINT.format(line=7))
    edit = {
        **read(root, "cmd/lint.yaml"),
        "old_string": "enable: [nilerr]\n",
        "new_string": "enable: []\n",
    }
    await first.call("Edit", edit)
    await first.call("Bash", "make lint")
    await first.send("end")
    _, after = await Session(memory, "two", root=str(root)).call(
        "Bash", "make lint", error
    )
    assert ("+enable: []" in after) == is_told


def report(total: float) -> str:
    """Return what pytest prints if the total is not 119."""
    return (
        f"E       assert {total} == 119.0\n"
        f"FAILED tests/test_prices.py::test_gross - assert {total} == 119.0\n"
        "1 failed in 0.04s"
    )


async def learn_prices(memory: Memory, root: Path) -> None:
    """Learn a session in which an edit put a wrong total right."""
    session = Session(memory, "one", root=str(root))
    await session.call("Bash", "pytest -q", report(19.0))
    edit = {
        **read(root, "tools/prices.py"),
        "old_string": "net * rate  # gross\n",
        "new_string": "net * (1 + rate)  # gross\n",
    }
    await session.call("Edit", edit)
    await session.call("Bash", "pytest -q")
    await session.send("end")


@cases(
    ("total", "is_told"), {"same value": (19.0, True), "another value": (118.0, False)}
)
async def test_an_edit_helps_only_after_the_same_value(
    memory: Memory, root: Path, total: float, is_told: bool
) -> None:
    await learn_prices(memory, root)
    session = Session(memory, "two", root=str(root))
    _, after = await session.call("Bash", "pytest -q", report(total))
    assert ("net * (1 + rate)" in after) == is_told


async def test_what_was_told_after_a_failure_is_told_once(
    memory: Memory, root: Path
) -> None:
    await learn_prices(memory, root)
    session = Session(memory, "two", root=str(root))
    assert (await session.call("Bash", "pytest -q", report(19.0)))[1]
    assert (await session.call("Bash", "pytest -q tests", report(19.0)))[1] == ""
    await session.start("compact")
    assert (await session.call("Bash", "pytest -q tests", report(19.0)))[1]


NO_UPSTREAM = (
    "fatal: The current branch {0} has no upstream branch.\n"
    "To push the current branch and set the remote as upstream, use\n\n"
    "    git push --set-upstream origin {0}"
)


async def push(session: Session, branch: str, make: str) -> str:
    """Push a new branch, at first without an upstream; return what is then shown."""
    await session.call("Bash", f"{make} {branch}")
    texts = await session.call("Bash", "git push", NO_UPSTREAM.format(branch))
    await session.call("Bash", f"git push --set-upstream origin {branch}")
    await session.send("end")
    return "".join(texts)


@cases(
    ("file", "is_told"),
    {
        "the file of the lesson": ("maps/north.svg", True),
        "another file": ("maps/south.svg", False),
        "a word of every rendered lesson": ("maps/right", False),
    },
)
async def test_a_fix_is_told_of_the_file_that_its_calls_name(
    memory: Memory, root: Path, file: str, is_told: bool
) -> None:
    error = "cannot draw: the palette is missing"
    north = read(root, "maps/north.svg")
    for name in ("one", "two"):
        session = Session(memory, name, root=str(root))
        await session.call("Draw", north, error)
        await session.call("Draw", {**north, "palette": "earth"})
        await session.send("end")
    texts = await Session(memory, "three", root=str(root)).call(
        "Draw", read(root, file), error
    )
    assert ("earth" in "".join(texts)) is is_told


NO_KIND = 'error: no matches for kind "{0}" in "config/{0}.yaml"'


@cases(
    ("fix", "is_told"),
    {
        "a step": (["make install", "kubectl apply -f config/Cart.yaml"], True),
        "a step with a name": (
            ["make Cart", "kubectl apply -f config/Cart.yaml"],
            False,
        ),
        "another call": (["kubectl apply -f config/carts.yaml"], False),
        "an option": (["kubectl apply --force -f config/Cart.yaml"], True),
    },
)
async def test_a_fix_without_the_names_of_its_error_is_told_of_other_names(
    memory: Memory, fix: list[str], is_told: bool
) -> None:
    first = Session(memory, "one")
    await first.call(
        "Bash", "kubectl apply -f config/Cart.yaml", NO_KIND.format("Cart")
    )
    for command in fix:
        await first.run(command)
    await first.send("end")
    _, after = await Session(memory, "two").call(
        "Bash", "kubectl apply -f config/Mail.yaml", NO_KIND.format("Mail")
    )
    assert (fix[0] in after) is is_told


async def test_a_session_that_goes_on_tells_what_it_found_at_last(
    memory: Memory,
) -> None:
    first = Session(memory, "one")
    await first.call("Bash", "lint run cart", "Error: the config wants version 2")
    await first.run("make lint")
    await first.send("stop")
    await first.run("./bin/lint run cart")
    await first.send("end")
    before, _ = await Session(memory, "two").call("Bash", "lint run cart")
    assert "./bin/lint run cart" in before

"""What worked in the place of what failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from heedful.lessons.substitution import (
    Substitution,
    find_replacement,
    find_substitution,
)

ROOT = "/r"


def command(text: str) -> dict[str, Any]:
    return {"command": text}


def found(failed: Mapping[str, Any], passed: Mapping[str, Any]) -> str:
    """Return the old and the new words, "" without a substitution."""
    change = find_substitution(failed, passed, ROOT)
    if change is None:
        return ""
    return f"{' '.join(change.old)} -> {' '.join(change.new)}"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        pytest.param("npm ci --frozen", "npm ci", "--frozen -> ", id="an option goes"),
        pytest.param(
            "go test ./e2e",
            "go test -tags=e2e ./e2e",
            "test -> test -tags=e2e",
            id="an option comes, behind the word before it",
        ),
        pytest.param(
            "pytest x",
            "CI=1 pytest x",
            "pytest -> CI=1 pytest",
            id="a word comes before the first one",
        ),
        pytest.param(
            "lint -c a.yml && ls",
            "lint -c a.yaml && ls",
            "a.yml -> a.yaml",
            id="a path in the first of two commands",
        ),
        pytest.param(
            "cat /r/docs/a.md",
            "cat docs/b.md",
            "docs/a.md -> docs/b.md",
            id="paths are those of the repository",
        ),
        pytest.param("make test", "make test | tail -5", "", id="what is shown of it"),
        pytest.param("make fmt && make lint", "make fmt", "", id="a command goes"),
        pytest.param("ls a", "ls a 2>/dev/null", "", id="its errors are hidden"),
        pytest.param(
            "cd web && npm ci", "npm ci", "cd web && -> ", id="a change of folder goes"
        ),
        pytest.param("make test", "pytest -q", "", id="another command"),
        pytest.param("npm ci --frozen", "npm test", "", id="another thing to do"),
        pytest.param("cat docs/a.md", "cat src/list.go", "", id="another file"),
        pytest.param("a b c d", "a x c y", "", id="two places"),
        pytest.param("git push", "git push a b c d e f g", "", id="too many words"),
        pytest.param("gh view 1234", "gh view 5678", "", id="numbers"),
        pytest.param(
            "git show 1a2b3c4d", "git show 5e6f7a8b", "", id="names of commits"
        ),
    ],
)
def test_two_commands_differ_in_one_place(old: str, new: str, words: str) -> None:
    assert found(command(old), command(new)) == words


@pytest.mark.parametrize(
    ("failed", "passed", "words"),
    [
        pytest.param(
            {"file_path": "/r/web/cart.go"},
            {"path": "/r/shop/carts.go"},
            "web/cart.go -> shop/carts.go",
            id="a path with a like name, of another tool",
        ),
        pytest.param(
            {"file_path": "/r/a.go"}, {"file_path": "/r/list.rs"}, "", id="unlike"
        ),
        pytest.param(
            {"file_path": "/r/log/log.go"}, {"path": "/r/log"}, "", id="its folder"
        ),
        pytest.param(
            {"skill": "commit"},
            {"skill": "git:commit"},
            "commit -> git:commit",
            id="one value",
        ),
        pytest.param(
            {"skill": "commit", "args": "a"},
            {"skill": "git:commit", "args": "b"},
            "",
            id="two values",
        ),
        pytest.param(
            {"old_string": "a"}, {"old_string": "b"}, "", id="a text of an edit"
        ),
    ],
)
def test_two_calls_differ_in_one_value(
    failed: Mapping[str, Any], passed: Mapping[str, Any], words: str
) -> None:
    assert found(failed, passed) == words


def test_what_is_blamed_gives_way() -> None:
    failed = ("Bash", command("npm ci --frozen"))
    passed = ("Bash", command("npm ci"))
    error = "unknown option '--frozen'"
    replacement = find_replacement(failed, passed, [error], ROOT)
    assert replacement is not None
    assert {p.template for p in replacement.preconditions} == {"word", "command"}


def test_an_error_of_the_work_blames_nothing() -> None:
    failed = ("Bash", command("pytest tests"))
    passed = ("Bash", command("pytest -x tests"))
    error = "FAILED tests/test_a.py::test_b"
    assert find_replacement(failed, passed, [error], ROOT) is None


def test_a_file_that_was_written_is_not_the_one_that_was_meant() -> None:
    failed = ("Read", {"file_path": "/r/carts.go"})
    passed = ("Write", {"file_path": "/r/cart.go", "content": "package cart"})
    error = "File does not exist."
    assert find_replacement(failed, passed, [error], ROOT) is None


@pytest.mark.parametrize(
    ("call", "words", "replaced"),
    [
        pytest.param(
            "npm  ci --frozen && ls",
            (("--frozen",), ()),
            "npm  ci && ls",
            id="all else stays as it is written",
        ),
        pytest.param(
            "cat /r/docs/a.md",
            (("docs/a.md",), ("docs/b.md",)),
            "cat /r/docs/b.md",
            id="a path stays absolute",
        ),
        pytest.param("a x && b x", (("x",), ("y",)), None, id="not clear which"),
        pytest.param("npm test", (("ci",), ("install",)), None, id="without the words"),
    ],
)
def test_a_substitution_is_applied(
    call: str, words: tuple[tuple[str, ...], tuple[str, ...]], replaced: str | None
) -> None:
    arguments = Substitution("command", *words).apply(command(call), ROOT)
    assert arguments == (None if replaced is None else command(replaced))


def test_a_path_is_replaced_in_every_checkout() -> None:
    change = Substitution("file_path", ("a.go",), ("b.go",))
    assert change.apply({"file_path": "/q/a.go", "limit": 5}, "/q") == {
        "file_path": "/q/b.go",
        "limit": 5,
    }

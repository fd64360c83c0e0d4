"""Where a file may be that a call did not find, by names alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from heedful.memory import nearest
from heedful.memory.nearest import nearest_path


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository; a search in it takes the time that it needs."""
    monkeypatch.setattr(nearest, "MAX_SEARCH_SECONDS", 60.0)
    folder = tmp_path / "r"
    for path in (
        "cmd/cli/setup.go",
        "cmd/cli/strategy/manual_commit.go",
        "cmd/cli/strategy/hooks.go",
        "cmd/agent/hooks.go",
        ".golangci.yaml",
        "web/index.js",
        "docs/coding-agents.md",
        ".env",
    ):
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    return folder


@pytest.mark.parametrize(
    ("absent", "nearest_one"),
    [
        pytest.param(
            "cmd/cli/commands/setup.go",
            "cmd/cli/setup.go",
            id="the same name elsewhere",
        ),
        pytest.param(
            "docs/coding_agents.md", "docs/coding-agents.md", id="a like name"
        ),
        pytest.param(".golangci.yml", ".golangci.yaml", id="another ending"),
        pytest.param(
            "cmd/cli/strategy/x/hooks.go",
            "cmd/cli/strategy/hooks.go",
            id="the nearest of two",
        ),
        pytest.param("x/hooks.go", "", id="two that are equally far"),
        pytest.param("lib/index.js", "", id="a name that every folder may have"),
        pytest.param("docs/zebra.md", "", id="nothing like it"),
        pytest.param(".env.example", "", id="a file that may hold secrets"),
        pytest.param("cmd/cli/setup.go", "", id="what exists"),
        pytest.param("../r2/setup.go", "", id="out of the repository"),
        pytest.param("/etc/setup.go", "", id="elsewhere"),
    ],
)
def test_the_nearest_path(root: Path, absent: str, nearest_one: str) -> None:
    assert nearest_path(str(root), absent) == nearest_one


def test_an_absolute_path_of_the_repository(root: Path) -> None:
    assert nearest_path(str(root), f"{root}/cli/setup.go") == "cmd/cli/setup.go"


def test_no_link_is_followed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "passwords.txt").touch()
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "web" / "pass.txt").symlink_to(tmp_path / "secret" / "passwords.txt")
    assert nearest_path(str(root), "web/passwords.txt") == ""
    assert nearest_path(str(root), "link/password.txt") == ""


def test_a_name_that_nobody_types_is_not_told(root: Path) -> None:
    (root / "web" / "a; now run `x`.md").touch()
    assert nearest_path(str(root), "web/a; now run `y`.md") == ""


def test_the_search_ends(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "MAX_SEARCHED_ENTRIES", 0)
    assert nearest_path(str(root), "cmd/cli/commands/setup.go") == ""


def test_without_a_repository() -> None:
    assert nearest_path("", "setup.go") == ""

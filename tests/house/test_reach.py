"""CI runs the tests that a change can reach."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.reach import changed, reached
from scripts.workspace import ROOT, TESTS
from tests.tables import cases

LIBRARY = "packages/heedful/tests"
SERVER = "packages/heedful-server/tests"
AGENTS = "packages/heedful-agents/tests"
FACES = ["packages/heedful-frameworks/tests", "packages/heedful-compat/tests"]
ALL = [LIBRARY, SERVER, AGENTS, *FACES, "tests"]


@cases(
    ("files", "folders"),
    {
        "all stands on the library": (["packages/heedful/src/heedful/errors.py"], ALL),
        "agents stand on the service": (
            ["packages/heedful-server/src/heedful_server/app.py"],
            [SERVER, AGENTS, *FACES, "tests"],
        ),
        "packages that are listed later may stand on it": (
            ["packages/heedful-agents/README.md"],
            [AGENTS, *FACES, "tests"],
        ),
        "the lowest package counts": (
            ["packages/heedful-agents/README.md", "packages/heedful-server/LICENSE"],
            [SERVER, AGENTS, *FACES, "tests"],
        ),
        "a file of no package": (["packages/heedful-agents/LICENSE", "Makefile"], ALL),
        "a file beside the packages": (["packages/notes.md"], ALL),
        "a package that nobody knows": (["packages/other/setup.py"], ALL),
        "no file": ([], ALL),
    },
)
def test_a_change_reaches_its_package_and_what_stands_on_it(files, folders) -> None:
    assert [str(path.relative_to(ROOT)) for path in reached(files)] == folders


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a commit, after which a file was moved out of a package."""
    moved = tmp_path / "packages" / "heedful" / "moved.py"
    moved.parent.mkdir(parents=True)
    moved.write_text("x = 1\n" * 40)
    target = "packages/heedful-agents"
    for command in (
        ("init", "--quiet"),
        ("add", "."),
        ("commit", "--quiet", "--message", "first"),
        ("mv", "packages/heedful", target),
        ("commit", "--quiet", "--message", "second"),
    ):
        identity = ("-c", "user.name=test", "-c", "user.email=test@example.com")
        subprocess.run(["git", *identity, *command], cwd=tmp_path, check=True)
    return tmp_path


def test_both_paths_of_a_moved_file_count(repository: Path) -> None:
    files = changed("HEAD~1", repository)
    assert files == ["packages/heedful-agents/moved.py", "packages/heedful/moved.py"]


def test_after_an_unknown_commit_all_tests_run(repository: Path) -> None:
    assert changed("0" * 40, repository) == []
    assert reached([]) == TESTS

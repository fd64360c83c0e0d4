"""Python code that a settings file names runs only if a person named the file."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from heedful.cli.app import app
from tests.service.running import running, started_and_stopped

CODE = """
from pathlib import Path

Path(__file__).with_name("ran").touch()

def fn(messages):
    return ""

def check(candidate, context):
    return []
"""
# What names the code, as the name of its setting and as TOML.
NAMES = [
    pytest.param("model", 'model = "found:fn"', id="a model"),
    pytest.param("judge", 'judge = "found:fn"', id="a judge"),
    pytest.param("checks", 'checks.own.name = "found:check"', id="a check"),
    pytest.param(
        "checks",
        'checks.own = {name = "critic", role = "alignment", model = "found:fn"}',
        id="the model of a critic",
    ),
    pytest.param(
        "checks",
        'checks.own = {name = "panel", members = [{name = "critic", '
        'role = "alignment", model = "found:fn"}]}',
        id="the model of a member of a panel",
    ),
]
FILES = [
    pytest.param("heedful.toml", "", id="heedful.toml"),
    pytest.param("pyproject.toml", "[tool.heedful]\n", id="pyproject.toml"),
]
SERVE = ("serve", "--port", "0")


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A folder with a module `found`, in which commands run; `ran` is its trace."""
    home = tmp_path / "home"
    home.mkdir()
    folder = tmp_path / "clone"
    folder.mkdir()
    (folder / "found.py").write_text(CODE)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HEEDFUL_HOME", str(home))
    monkeypatch.setenv("HEEDFUL_EMBEDDER", "none")
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.mark.parametrize(("setting", "line"), NAMES)
@pytest.mark.parametrize(("file", "head"), FILES)
@pytest.mark.parametrize("command", [SERVE, ("mcp",)], ids=["serve", "mcp"])
def test_a_file_that_was_only_found_runs_no_code(
    clone, command, file, head, setting, line
):
    (clone / file).write_text(f"{head}{line}\n")
    result = CliRunner().invoke(app, command, input="")
    assert result.exit_code == 2
    assert f"{setting} in {file}" in result.output
    assert f"--settings {file}" in result.output
    assert not (clone / "ran").exists()


@pytest.mark.parametrize(("setting", "line"), NAMES)
def test_the_pages_run_no_code_of_the_folder(clone, setting, line):
    (clone / "heedful.toml").write_text(f"{line}\n")
    result = started_and_stopped("ui", "--no-browser", "--port", "0")
    assert result.exit_code == 0
    assert "heedful shows" in result.output
    assert not (clone / "ran").exists()


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        pytest.param(("--model", "found:fn"), {}, id="an option"),
        pytest.param((), {"HEEDFUL_MODEL": "found:fn"}, id="the environment"),
        pytest.param(("--settings", "named.toml"), {}, id="a file that is named"),
    ],
)
def test_code_that_a_person_names_runs(clone, monkeypatch, words, variables):
    (clone / "named.toml").write_text('model = "found:fn"\n')
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    with running(clone, *words):
        assert (clone / "ran").exists()


def test_a_check_of_a_file_that_is_named_runs(clone):
    (clone / "named.toml").write_text('checks.own.name = "found:check"\n')
    with running(clone, "--settings", "named.toml"):
        assert (clone / "ran").exists()


def test_a_named_file_replaces_what_the_folder_states(clone):
    (clone / "heedful.toml").write_text('model = "found:fn"\n')
    (clone / "named.toml").write_text('model = "none"\n')
    with running(clone, "--settings", "named.toml"):
        assert not (clone / "ran").exists()


def test_code_of_your_own_file_is_that_beside_it(clone):
    """A module of the same name in the folder is not taken for it."""
    home = Path(os.environ["HEEDFUL_HOME"])
    (home / "heedful.toml").write_text('model = "found:fn"\n')
    (home / "found.py").write_text(CODE)
    with running(clone):
        assert (home / "ran").exists()
        assert not (clone / "ran").exists()


def test_a_settings_file_that_does_not_exist_is_named(clone):
    result = CliRunner().invoke(app, (*SERVE, "--settings", "nothing.toml"))
    assert result.exit_code == 3
    assert "no settings file 'nothing.toml'" in result.output

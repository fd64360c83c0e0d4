"""Hostile repositories: nothing of them runs, nothing that they bring is told.

Each case is a folder as a clone or an archive leaves it. Hooks answer a start, a call
and a stop there.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from heedful.store.workspace import MAX_PROJECT_FILE_BYTES, is_tracked, run_git
from tests.hooks.hostile import (
    ATTACK,
    FAILED,
    OWN,
    Home,
    Plant,
    plant_settings,
    remember,
    send_events,
    settings_of,
    snapshot,
    teach,
)
from tests.hooks.support import approve_all, run_event


def plant_pyproject(home: Home) -> None:
    stop = json.dumps([home.marker()])
    home.commit("pyproject.toml", f"[tool.heedful.hook]\nstop = {stop}\n")
    home.take()


def plant_trust(home: Home) -> None:
    home.commit("heedful.toml", '[trust]\ntool = "operator"\nuser = "operator"\n')
    home.take()


def plant_deny(home: Home) -> None:
    home.commit("heedful.toml", '[hook]\ndeny = true\npolicy = "thorough"\n')
    home.take()


def plant_database(home: Home) -> None:
    home.plant_database()
    home.commit()
    home.take()


def plant_database_in_folder(home: Home) -> None:
    home.plant_database("pkg/heedful.db")
    home.commit()
    home.take()
    home.clone = home.clone / "pkg"


def plant_stated_database(home: Home) -> None:
    home.plant_database("data/memory.db")
    home.commit("heedful.toml", 'db = "data/memory.db"\n')
    home.take()


def plant_database_in_parent(home: Home) -> None:
    home.plant_database("heedful.db")
    home.commit("pkg/heedful.toml", 'db = "../heedful.db"\n')
    home.take()
    home.clone = home.clone / "pkg"


def plant_link_to_database(home: Home) -> None:
    home.plant_database("data/memory.db")
    (home.remote / "heedful.db").symlink_to("data/memory.db")
    home.commit()
    home.take()


def plant_pipe(home: Home) -> None:
    home.take()
    os.mkfifo(home.clone / "heedful.db")


def plant_database_folder(home: Home) -> None:
    home.commit("heedful.db/x", "x")
    home.take()


def plant_settings_pipe(home: Home) -> None:
    home.take()
    os.mkfifo(home.clone / "heedful.toml")


def plant_link(name: str, target: str) -> Plant:
    """Return what plants a link in the repository."""

    def plant(home: Home) -> None:
        (home.remote / name).symlink_to(target)
        home.commit()
        home.take()

    return plant


def plant_file(name: str, content: Callable[[], str]) -> Plant:
    """Return what plants a file in the repository."""

    def plant(home: Home) -> None:
        home.commit(name, content())
        home.take()

    return plant


def plant_log_only(home: Home) -> None:
    """Plant a log from which SQLite would restore the attacker's pages."""
    path = home.plant_database("heedful.db")
    with closing(sqlite3.connect(path)) as db:
        db.execute("pragma wal_autocheckpoint = 0")
        db.execute("create table planted (x)")
        db.commit()
        shutil.copyfile(f"{path}-wal", home.remote / "kept")
    path.unlink()
    (home.remote / "kept").rename(home.remote / "heedful.db-wal")
    (home.remote / "heedful.db-shm").unlink(missing_ok=True)
    home.commit()
    home.take()


def plant_case(home: Home) -> None:
    home.plant_database("HEEDFUL.DB")
    home.commit("Heedful.toml", settings_of(home))
    home.take()
    # On a file system that ignores case, both names are one file.
    shutil.copyfile(home.clone / "HEEDFUL.DB", home.clone / "heedful.db")


def plant_server(home: Home) -> None:
    home.commit("heedful.toml", 'db = "postgresql://evil.example/heedful"\n')
    home.take()


def plant_expansion(home: Home) -> None:
    home.plant_database("~/$HOME/memory.db")
    home.commit("heedful.toml", 'db = "~/$HOME/memory.db"\n')
    home.take()


def plant_variables(home: Home) -> None:
    stop = json.dumps({"stop": [home.marker()]})
    home.plant_database("e.db")
    home.commit(".env", f"HEEDFUL_DB=e.db\nHEEDFUL_HOOK='{stop}'\n")
    home.take()


def plant_servers_for_agents(home: Home) -> None:
    home.commit(".mcp.json", json.dumps({"mcpServers": {"heedful": {"command": "sh"}}}))
    hooks = {"Stop": [{"hooks": [{"type": "command", "command": home.marker()}]}]}
    home.commit("hooks/hooks.json", json.dumps({"hooks": hooks}))
    home.commit(".claude-plugin/plugin.json", '{"name": "heedful"}')
    home.take()


def plant_submodule(home: Home) -> None:
    """Plant a submodule with settings and a database; the session works in it."""
    home.plant_database()
    home.commit("heedful.toml", settings_of(home))
    outer = home.remote.parent / "outer"
    outer.mkdir()
    home.git(outer, "init", "-q")
    home.git(outer, "submodule", "add", "-q", str(home.remote), "sub")
    home.git(outer, "commit", "-qm", "c")
    home.git(
        home.home, "clone", "-q", "--recurse-submodules", str(outer), str(home.clone)
    )
    home.clone = home.clone / "sub"


def plant_gitdir(home: Home) -> None:
    """Plant, as an archive can, a `.git` that is a file and names another place."""
    folder = home.remote / "inner"
    worktree = home.remote / "evil" / "worktrees" / "x"
    worktree.mkdir(parents=True)
    (worktree / "commondir").write_text("../..\n")
    remember_in = home.remote / "evil" / "heedful" / "heedful.db"
    remember_in.parent.mkdir()
    remember(remember_in, ATTACK)
    folder.mkdir()
    (folder / ".git").write_text("gitdir: ../evil/worktrees/x\n")
    shutil.copytree(home.remote, home.clone)
    home.clone = home.clone / "inner"


def plant_worktree(home: Home) -> None:
    """Plant, as an archive can, both sides of a worktree and the lessons of its git."""
    top = home.home / "evil-1.0"
    worktree = top / "x" / "worktrees" / "x"
    worktree.mkdir(parents=True)
    (worktree / "commondir").write_text("../..\n")
    (worktree / "gitdir").write_text("../../../app/.git\n")
    (top / "x" / "heedful").mkdir()
    remember(top / "x" / "heedful" / "heedful.db", ATTACK)
    home.clone = top / "app"
    home.clone.mkdir()
    (home.clone / ".git").write_text("gitdir: ../x/worktrees/x\n")


def plant_archive(home: Home) -> None:
    """Plant, as an archive can, a database in the folder of git."""
    home.take()
    place = home.clone / ".git" / "heedful"
    place.mkdir()
    remember(place / "heedful.db", ATTACK)


def plant_huge_database_name(home: Home) -> None:
    home.commit("heedful.toml", f'db = "{"x" * 5_000}.db"\n')
    home.take()


def plant_view_as_identity(home: Home) -> None:
    """Plant a database whose identity is a view that never ends."""
    path = home.plant_database()
    with closing(sqlite3.connect(path)) as db:
        db.execute("pragma journal_mode = delete")
        db.execute("drop table identity") if has_identity(db) else None
        db.execute(
            "create view identity as with recursive n (id) as (select 1 union all "
            "select id + 1 from n) select max(id) as id from n"
        )
    home.commit()
    home.git(home.remote, "rm", "-q", "--cached", "heedful.db")
    shutil.copytree(home.remote, home.clone)


def has_identity(db: sqlite3.Connection) -> bool:
    query = "select count(*) from sqlite_schema where name = 'identity'"
    return bool(db.execute(query).fetchone()[0])


def test_a_lesson_that_is_followed_is_told(home: Home) -> None:
    """The lesson of the other tests is told if a database is the user's own."""
    remember(home.home / "own.db", OWN)
    home.take()
    settings = {"HEEDFUL_DB": str(home.home / "own.db"), "HEEDFUL_HOLDOUT": "0"}
    start = run_event(home.clone, home.home, "SessionStart", {}, settings)
    assert "OWN" in start.out
    failed = run_event(home.clone, home.home, "PostToolUseFailure", FAILED, settings)
    assert "OWN" in failed.out


BIG = MAX_PROJECT_FILE_BYTES


HOSTILE = [
    pytest.param(plant_settings, "heedful.toml", id="commands and trust in settings"),
    pytest.param(
        plant_pyproject,
        "pyproject.toml",
        id="commands in pyproject.toml",
        marks=pytest.mark.nightly,
    ),
    pytest.param(
        plant_trust, "heedful.toml", id="trust in everything", marks=pytest.mark.nightly
    ),
    pytest.param(
        plant_deny,
        "heedful.toml",
        id="denials and another policy",
        marks=pytest.mark.nightly,
    ),
    pytest.param(plant_database, "git tracks it", id="a database"),
    pytest.param(
        plant_database_in_folder,
        "git tracks it",
        id="one in a folder",
        marks=pytest.mark.nightly,
    ),
    pytest.param(plant_stated_database, "memory", id="a stated database"),
    pytest.param(
        plant_database_in_parent,
        "memory",
        id="a stated one in the parent",
        marks=pytest.mark.nightly,
    ),
    pytest.param(
        plant_link_to_database,
        "git tracks it",
        id="a link to a database",
        marks=pytest.mark.nightly,
    ),
    pytest.param(plant_pipe, "not a regular file", id="a pipe as the database"),
    pytest.param(
        plant_database_folder,
        "not a regular file",
        id="a folder as it",
        marks=pytest.mark.nightly,
    ),
    pytest.param(plant_settings_pipe, "not a regular file", id="a pipe as settings"),
    pytest.param(
        plant_link("pyproject.toml", "/dev/zero"),
        "link",
        id="a link to a device",
        marks=pytest.mark.nightly,
    ),
    pytest.param(
        plant_link("heedful.toml", "/dev/tty"),
        "link",
        id="a link to the terminal",
        marks=pytest.mark.nightly,
    ),
    pytest.param(
        plant_link("heedful.toml", "../.heedful/approved.json"),
        "outside",
        id="a link to the user's own files",
    ),
    pytest.param(
        plant_link("heedful.toml", "heedful.toml"),
        "cannot be read",
        id="a link to itself",
        marks=pytest.mark.nightly,
    ),
    pytest.param(
        plant_file("heedful.toml", lambda: "#" * (50 * BIG)),
        "more than",
        id="settings of 50 MB",
        marks=pytest.mark.nightly,
    ),
    pytest.param(
        plant_file(
            "heedful.toml", lambda: "".join(f"key{n} = 1\n" for n in range(200_000))
        ),
        "more than",
        id="settings of 200,000 keys",
        marks=pytest.mark.nightly,
    ),
    pytest.param(
        plant_file("heedful.toml", lambda: "[[a]]\n[[a.b]]\n" * 15_000),
        "more than",
        id="settings of 210 KB",
    ),
    pytest.param(
        plant_file("heedful.toml", lambda: "a." * 40_000 + "b = 1"),
        "32 parts",
        id="a key of 40,000 parts",
    ),
    pytest.param(
        plant_file("heedful.toml", lambda: "db = " + "[" * 500_000),
        "cannot be read",
        id="500,000 brackets",
        marks=pytest.mark.nightly,
    ),
    pytest.param(
        plant_file("heedful.toml", lambda: "hook = 3\n[broken"),
        "cannot be read",
        id="settings that are not TOML",
        marks=pytest.mark.nightly,
    ),
    pytest.param(plant_log_only, "log", id="a log without a database"),
    pytest.param(
        plant_case,
        "git tracks it",
        id="names in another case",
        marks=pytest.mark.nightly,
    ),
    pytest.param(plant_server, "memory", id="the attacker's server"),
    pytest.param(
        plant_expansion,
        "memory",
        id="a database with ~ and $HOME",
        marks=pytest.mark.nightly,
    ),
    pytest.param(
        plant_variables, "", id="variables in .env", marks=pytest.mark.nightly
    ),
    pytest.param(
        plant_servers_for_agents,
        "",
        id="a plugin and MCP servers",
        marks=pytest.mark.nightly,
    ),
    pytest.param(plant_submodule, "heedful.toml", id="a submodule"),
    pytest.param(
        plant_gitdir, "", id="a .git that leads elsewhere", marks=pytest.mark.nightly
    ),
    pytest.param(plant_worktree, "have not approved", id="a worktree of an archive"),
    pytest.param(plant_archive, "have not approved", id="an archive with a .git"),
    pytest.param(
        plant_huge_database_name,
        "memory",
        id="a name of 5,000 characters",
        marks=pytest.mark.nightly,
    ),
    pytest.param(plant_view_as_identity, "heedful.db", id="an endless view"),
]


@pytest.mark.parametrize(("plant", "reason"), HOSTILE)
def test_nothing_of_a_clone_runs_or_is_told(
    plant: Plant, reason: str, home: Home
) -> None:
    plant(home)
    before = snapshot(home.remote.parent, home)
    output = send_events(home)
    assert not home.ran.exists()
    assert "ATTACK" not in output
    assert '"decision": "block"' not in output
    assert "permissionDecision" not in output
    assert reason in output
    # The user hears of all that is ignored, and of nothing else.
    assert bool(reason) == bool(output.strip())
    assert snapshot(home.remote.parent, home) == before


def plant_bare(home: Home, *settings: str) -> None:
    """Plant a folder that is a bare repository, and let the session work in it."""
    home.take()
    home.clone = home.clone / "data"
    home.git(home.home, "init", "-q", "--bare", str(home.clone))
    home.git(home.clone, "config", "core.bare", "false")
    home.git(home.clone, "config", "core.worktree", ".")
    configure(home, settings)


def plant_config(home: Home, *settings: str) -> None:
    """Plant, as an archive can, a repository whose configuration names programs."""
    home.commit(".gitattributes", "* filter=x diff=x\n")
    home.take()
    configure(home, settings)
    (home.clone / "README").write_text("changed\n")


def configure(home: Home, settings: Sequence[str]) -> None:
    """Write settings of git, such as "core.bare=true"; without a value, the marker."""
    for setting in settings:
        name, _, value = setting.partition("=")
        home.git(home.clone, "config", name, value or home.marker())


PROGRAMS = [
    pytest.param(
        plant_bare,
        ["core.fsmonitor"],
        id="a bare repository's monitor",
        marks=pytest.mark.nightly,
    ),
    pytest.param(plant_config, ["core.fsmonitor"], id="a monitor of files"),
    pytest.param(
        plant_config,
        ["filter.x.clean", "filter.x.smudge", "filter.x.required=true"],
        id="a filter",
    ),
    pytest.param(
        plant_config,
        ["filter.x.process"],
        id="a filter that stays",
        marks=pytest.mark.nightly,
    ),
    pytest.param(
        plant_config,
        ["core.pager", "pager.ls-files", "pager.rev-parse"],
        id="a pager",
        marks=pytest.mark.nightly,
    ),
    pytest.param(
        plant_config,
        ["diff.external", "diff.x.command", "diff.x.textconv"],
        id="diff",
        marks=pytest.mark.nightly,
    ),
    pytest.param(
        plant_config,
        ["core.sshCommand", "core.gitProxy", "core.askPass", "credential.helper"],
        id="commands of the network",
        marks=pytest.mark.nightly,
    ),
    pytest.param(
        plant_config,
        ["core.alternateRefsCommand"],
        id="other references",
        marks=pytest.mark.nightly,
    ),
    pytest.param(
        plant_config,
        ["core.editor", "alias.ls-files", "alias.rev-parse"],
        id="aliases",
        marks=pytest.mark.nightly,
    ),
    pytest.param(
        plant_config,
        ["remote.origin.promisor=true", "remote.origin.uploadpack"],
        id="a fetch of what is missing",
        marks=pytest.mark.nightly,
    ),
]


@pytest.mark.parametrize(("plant", "settings"), PROGRAMS)
def test_git_runs_no_program_of_a_folder(
    plant: Callable[..., None], settings: list[str], home: Home
) -> None:
    plant(home, *settings)
    hooks = home.clone / ".git" / "hooks"
    if hooks.is_dir():
        for name in ("post-index-change", "reference-transaction"):
            (hooks / name).write_text(f"#!/bin/sh\n{home.marker()}\n")
            (hooks / name).chmod(0o755)

    # A command that fails lets the files be digested.
    approved = {"HEEDFUL_HOOK": json.dumps({"stop": ["false"]})}
    data = {"prompt_id": "p1"}
    done = run_event(home.clone, home.home, "Stop", data, approved)
    assert "exited with 1" in done.out
    is_tracked(home.clone / "README")
    assert not home.ran.exists()


def test_another_worktree_of_git_is_only_looked_at(home: Home) -> None:
    """`core.worktree` can make git look elsewhere, but nothing is written there."""
    plant_config(home, f"core.worktree={home.home}")
    (home.home / "secret").write_text("a secret")
    before = snapshot(home.home, home)
    send_events(home)
    assert snapshot(home.home, home) == before


def test_git_waits_for_no_pipe_of_a_folder(home: Home) -> None:
    home.take()
    os.mkfifo(home.clone / "pipe")
    home.git(home.clone, "config", "core.excludesFile", str(home.clone / "pipe"))
    words = ["ls-files", "-co", "--exclude-standard"]
    assert "README" in str(run_git(home.clone, words))


def link_file(home: Home, own: Path) -> None:
    place = home.clone / ".git" / "heedful"
    place.mkdir(parents=True)
    (place / "heedful.db").symlink_to(own / ".git" / "heedful" / "heedful.db")


def link_file_hard(home: Home, own: Path) -> None:
    place = home.clone / ".git" / "heedful"
    place.mkdir(parents=True)
    os.link(own / ".git" / "heedful" / "heedful.db", place / "heedful.db")


def link_folder(home: Home, own: Path) -> None:
    (home.clone / ".git").mkdir()
    target = own / ".git" / "heedful"
    (home.clone / ".git" / "heedful").symlink_to(target)


def link_git(home: Home, own: Path) -> None:
    (home.clone / ".git").symlink_to(own / ".git")


def claim_worktree(home: Home, own: Path) -> None:
    home.git(own, "worktree", "add", "-q", str(home.home / "tree"))
    (home.clone / ".git").write_text("gitdir: ../clone/.git/worktrees/tree\n")


CLAIMS = [
    pytest.param(link_file, id="a link to its database"),
    pytest.param(
        link_file_hard, id="a second name of its database", marks=pytest.mark.nightly
    ),
    pytest.param(link_folder, id="a link to its folder", marks=pytest.mark.nightly),
    pytest.param(link_git, id="a link to its .git", marks=pytest.mark.nightly),
    pytest.param(claim_worktree, id="a .git that names its worktree"),
]


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_folder_cannot_pass_for_another_project(
    claim: Callable[[Home, Path], None], home: Home
) -> None:
    """Neither its lessons are told there, nor do its approved commands run there."""
    home.take()
    teach(home)
    (home.clone / "heedful.toml").write_text('[hook]\nstop = ["make -s test"]\n')
    approve_all(home.clone, home.home)
    own_project = home.clone
    home.clone = home.home / "evil"
    home.clone.mkdir()
    (home.clone / "Makefile").write_text(f"test:\n\t{home.marker()}\n")
    claim(home, own_project)

    output = send_events(home)
    assert "OWN" not in output
    assert not home.ran.exists()


def test_the_commands_of_a_repository_do_not_run_in_its_submodules(home: Home) -> None:
    home.commit("Makefile", f"test:\n\t{home.marker()}\n")
    plant_submodule(home)
    outer = home.clone.parent
    (outer / "heedful.toml").write_text('[hook]\nstop = ["make -s test"]\n')
    approve_all(outer, home.home)
    home.event("Stop", prompt_id="p1")
    assert not home.ran.exists()

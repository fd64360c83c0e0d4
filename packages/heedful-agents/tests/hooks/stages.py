"""An agent with the hooks of heedful, in a home and a project of its own."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from heedful.store.projects import find_project
from heedful_agents import install
from heedful_agents.agents import Kind
from heedful_agents.file_changes import apply_all
from tests.hooks.spoken import spoken_by
from tests.hooks.support import as_user, patient_hook

CALL: Mapping[str, Any] = {
    "session_id": "s1",
    "tool_name": "Bash",
    "tool_use_id": "c1",
    "tool_input": {"command": "npm ci"},
    "tool_response": {"output": "ok", "exit_code": 0},
}
_PLUGIN_DRIVER = """
import {{ Heedful }} from {path}
const hooks = await Heedful({{ directory: process.cwd() }})
const call = {{ tool: "bash", sessionID: "s1", callID: "c1" }}
await hooks["tool.execute.before"](call, {{ args: {{ command: "npm ci" }} }})
"""


@dataclass(frozen=True)
class Place:
    """A home and a project in which an agent runs the hooks of heedful."""

    root: Path

    @classmethod
    def make(cls, root: Path) -> Place:
        """Make the folders of a place."""
        place = cls(root)
        (place.folder / ".git").mkdir(parents=True)
        place.home.mkdir()
        return place

    @property
    def folder(self) -> Path:
        """The project."""
        return self.root / "shop"

    @property
    def home(self) -> Path:
        """The home of the user."""
        return self.root / "home"

    @property
    def programs(self) -> Path:
        """A folder of programs, with that of the hooks."""
        return self.root / "programs"

    @cached_property
    def database(self) -> Path:
        with as_user(self.folder, self.home):
            return find_project(self.folder).db


@dataclass(frozen=True, kw_only=True)
class Stage:
    """An agent with hooks of heedful in a place, and what it runs before a call and
    after it.
    """

    name: str
    place: Place
    lines: Mapping[Kind, str]
    events: Mapping[Kind, Mapping[str, Any]]


def make_stage(folder: Path, name: str) -> Stage:
    """Install the hooks of an agent in a new home and project."""
    place = Place.make(folder)
    place.programs.mkdir()
    module = shlex.join([sys.executable, "-P", *patient_hook()])
    _write_program(place, f'exec {module} "$@"')

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place.folder)
        patch.setenv("HOME", str(place.home))
        apply_all(install.plan(name, user=False, team=True))
        path = install.settings_paths(name, user=False)[-1]
        commands = install.installed(name, path)

    lines: dict[Kind, str] = {}
    events: dict[Kind, Mapping[str, Any]] = {}
    kinds: tuple[Kind, ...] = ("before", "after")
    for kind in kinds:
        event, events[kind] = spoken_by(name, kind, CALL)
        lines[kind] = commands[event] or _plugin_line(place)
    return Stage(name=name, place=place, lines=lines, events=events)


def _write_program(place: Place, script: str) -> None:
    program = place.programs / "heedful-hook"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def _plugin_line(place: Place) -> str:
    """Return a command that calls a plugin as its agent does."""
    [plugin] = place.root.rglob("heedful.ts")
    # Node 20 reads no types.
    module = place.programs / "heedful.mjs"
    module.write_text(re.sub(r": (any|string|object)\b", "", plugin.read_text()))
    driver = place.programs / "driver.mjs"
    driver.write_text(_PLUGIN_DRIVER.format(path=json.dumps(str(module))))
    return f"node {driver}"

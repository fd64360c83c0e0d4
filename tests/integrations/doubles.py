"""What the table of hosts asks of each framework: its own fake model, driven by a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from heedful.integrations import Host


@dataclass(frozen=True)
class Say:
    """The model answers with this text, and calls no tool."""

    text: str


@dataclass(frozen=True)
class Call:
    """The model calls the tool `shell` with this command."""

    command: str


class ModelDown(Exception):
    """The model's provider does not answer."""


Turn = Say | Call | ModelDown


@dataclass
class Driven:
    """What the framework returned, all texts of each request to the model, the commands run."""

    answer: str = ""
    prompts: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)


class Double(Protocol):
    """A framework with its own fake model and one tool, `shell(command)`."""

    name: str

    async def drive(
        self,
        host: Host,
        task: str,
        script: Sequence[Turn],
        *,
        id: str,
        results: Mapping[str, str | Exception] = {},
    ) -> Driven:
        """Run an agent on the task, as a user of this integration would set it up.

        The model takes the turns of the script in order, and repeats the last. `results` has what
        the tool returns or raises for a command, by default "done". Raises what the host raises.
        """
        ...

"""What the table of hosts asks of each framework: its own fake model, driven by a
script.

Each double has a function `drive`, which runs an agent as a user of this integration
would set it up.
The model takes the turns of the script in order, and repeats the last. `results` has
what the tool `shell` returns or raises for a command, by default "done". Raises what
the host raises.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heedful import Done


@dataclass(frozen=True)
class Say:
    """The model answers with this text, and calls no tool."""

    text: str


@dataclass(frozen=True)
class Call:
    """The model calls the tool `shell` with this command, and may say a `text`.

    In the same answer, a tool that the provider of the model runs has said `provided`.
    """

    command: str
    provided: str = ""
    text: str = ""


class ModelDown(Exception):
    """The model's provider does not answer."""


Turn = Say | Call | ModelDown
Script = Sequence[Turn]
Results = Mapping[str, str | Exception]
OK: Results = {}


@dataclass(kw_only=True)
class Driven:
    """What the framework returned, all texts of each request to the model, the commands
    run.
    """

    answer: str = ""
    prompts: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    verdict: Done | None = None


def shell_of(
    commands: list[str], results: Results, error: type[Exception] | None = None
) -> Any:
    """Return the tool; it keeps the commands that ran, and raises as `error` what it
    raises.

    The command "kill" kills the process.
    """

    def shell(command: str) -> str:
        """Run a command."""
        commands.append(command)
        if command == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        result = results.get(command, "done")
        if isinstance(result, Exception):
            raise error(str(result)) if error else result
        return result

    return shell

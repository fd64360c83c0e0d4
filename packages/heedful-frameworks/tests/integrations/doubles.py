"""What the table of hosts asks of each framework: its own fake model, driven by a
script.

Each double has a function `drive`, a `Drive` of the suite for hosts. Here a script may
also have an exception, which the model raises.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from heedful.testing.conformance import (
    Driven,
    Say,
    ScriptedCall as Call,
    severity,
)

__all__ = [
    "ERROR",
    "OK",
    "Call",
    "PAGES",
    "Driven",
    "ModelDown",
    "Results",
    "Say",
    "Script",
    "Ticket",
    "Turn",
    "grade",
    "shell_of",
]


class ModelDown(Exception):
    """The model's provider does not answer."""


Turn = Say | Call | ModelDown
Script = Sequence[Turn]
Results = Mapping[str, str | Exception]
OK: Results = {}
# An agent that calls its tool again and again, each time with something else.
PAGES: Script = [Call(f"page {number}") for number in range(30)]
ERROR = 'Error: Cannot find module "pads"'


class Ticket(BaseModel):
    """A severity as an object."""

    severity: str


def grade(candidate: Any, context: Any) -> Any:
    """Judge the severity of a ticket, which is an object or data."""
    ticket = Ticket.model_validate(candidate)
    return severity(ticket.severity, context)


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

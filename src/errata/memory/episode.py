"""What an agent did, event by event, and how it ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from errata.errors import InvalidInput
from errata.protocols import NOTHING, Usage

Ended = Literal["success", "failure", "partial", "timeout", "error"]
ENDED: tuple[Ended, ...] = ("success", "failure", "partial", "timeout", "error")


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened while an agent worked.

    `type` is tool_call, tool_response, llm_call, llm_response, error_event, system_event, or any
    other word, such as user_message. `content` is what was said or given back, `agent` who did it,
    `error` what went wrong and `code` its code. `arguments` are JSON data or text; None: the
    content of the call says them. `call` is the id that a tool call and its response share, `id`
    that of the event itself. `at` is when it happened, in seconds since 1970, None: not known.
    `meta` is whatever else its writer told.
    """

    type: str
    content: str = ""
    agent: str = ""
    tool: str = ""
    arguments: Mapping[str, Any] | str | None = None
    call: str = ""
    error: str = ""
    id: str = ""
    code: str = ""
    at: float | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fault:
    """What a run came to grief with: a category such as `timeout_error`, a message, its context."""

    category: str
    message: str = ""
    context: str = ""


@dataclass(frozen=True, slots=True)
class Episode:
    """One finished run of any agent: what it was to do, the events in order, and how it ended.

    `fault` is the error that ended it, where there was one. `tools` are the names of the tools that
    it was offered, empty where that is not known. `omitted` counts the events that were left out of
    one that is too long. `source` says where it was read from. Raises InvalidInput.
    """

    events: tuple[Event, ...]
    outcome: Ended = "failure"
    task: str = ""
    goal: str = ""
    fault: Fault | None = None
    id: str = ""
    session: str = ""
    tools: tuple[str, ...] = ()
    usage: Usage = NOTHING
    omitted: int = 0
    source: str = ""

    def __post_init__(self) -> None:
        if self.outcome not in ENDED:
            raise InvalidInput("outcome", self.outcome, f"one of {', '.join(ENDED)}")

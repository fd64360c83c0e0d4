"""A stand-in for the hooks of coding agents, until they are here: the same functions, two events.

`reply` answers an event of a coding agent, and `work` does later what is too long for a hook.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from heedful.errors import InvalidInput, UnknownName
from heedful.integrations.host import Advice, Host

Work = Literal["", "study", "end"]


@dataclass(frozen=True, slots=True)
class Reply:
    """The `answer` to print, None for nothing, and the `work` that remains for the session."""

    answer: Mapping[str, Any] | None = None
    work: Work = ""
    session: str = ""


async def reply(name: str, data: Mapping[str, Any], host: Host, *, agent: str = "") -> Reply:
    """Return the reply to an event of a coding agent. Raises UnknownName, InvalidInput."""
    if agent != "claude-code":
        raise UnknownName("coding agent", agent, ["claude-code"])
    if not isinstance(session := data.get("session_id"), str):
        raise InvalidInput("session_id", session, "the id of the session")
    run, tool, call = host.run(session), str(data.get("tool_name")), str(data.get("tool_use_id"))
    match name:
        case "PreToolUse":
            return _advise(name, await run.before(tool, data.get("tool_input") or {}, call))
        case "PostToolUseFailure":
            said = _advise(name, await run.seen(tool, str(data.get("error")), call))
            return Reply(said.answer, "study", session)
        case "SessionEnd":
            return Reply(None, "end", session)
        case _:
            raise UnknownName("event of claude-code", name, ["PreToolUse", "SessionEnd"])


async def work(host: Host, session: str, what: Work) -> None:
    """Do the work that a reply left: learn from the session, and at its end forget its events."""
    run = host.run(session)
    await (run.learn(ends="partial") if what == "end" else run.study())


def _advise(event: str, advice: Advice) -> Reply:
    said = {"hookEventName": event, "additionalContext": advice.text}
    return Reply({"hookSpecificOutput": said} if advice else None)

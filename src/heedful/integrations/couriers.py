"""How an answer reaches an agent whose event takes none: kept until a later event.

What is kept is in a file of the user. What no later call took is out of date at the
next prompt, when the user has gone on to something else.
"""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from heedful.store.projects import home_folder, private

_Answer = Mapping[str, Any]
_FOLDER = "waiting"
_CONTEXT_FIELD = "additional_context"


def at_once(
    kind: str, data: Mapping[str, Any], answer: _Answer | None
) -> _Answer | None:
    """Return the answer: most agents take it where it is made."""
    return answer


def with_model_call(
    kind: str, data: Mapping[str, Any], answer: _Answer | None
) -> _Answer | None:
    """Return what Gemini CLI takes of an answer at an event of this kind.

    Its hook before a call of a tool cannot add context, but that before the next call
    of the model, which reads the result of the call, may add a message.
    """
    session = data.get("session_id")
    output = answer.get("hookSpecificOutput") if answer else None
    if kind == "before" and output:
        _keep(session, str(output.get("additionalContext", "")))
        return None
    if kind in ("prompt", "end"):
        _take(session)
    if kind != "model":
        return answer

    text = _take(session)
    request = data.get("llm_request")
    messages = request.get("messages") if isinstance(request, Mapping) else None
    if not text or not isinstance(messages, list):
        return None
    # Earlier messages stay as they are: Gemini CLI matches them by their positions.
    added = [*messages, {"role": "user", "content": text}]
    output = {"hookEventName": "BeforeModel", "llm_request": {"messages": added}}
    return {"hookSpecificOutput": output}


def with_next_result(
    kind: str, data: Mapping[str, Any], answer: _Answer | None
) -> _Answer | None:
    """Return what Cursor takes of an answer at an event of this kind.

    Its hook after a failed call cannot add context, but that after the next call can.
    """
    session = data.get("conversation_id")
    if kind == "failed":
        if answer is not None:
            _keep(session, str(answer[_CONTEXT_FIELD]))
        return None
    if kind in ("prompt", "end"):
        _take(session)
    if kind != "after":
        return answer

    present = answer.get(_CONTEXT_FIELD) if answer else None
    text = "\n".join(filter(None, [_take(session), present]))
    return {_CONTEXT_FIELD: text} if text else answer


def _file_of(session: object) -> Path:
    """Return the file with what a session is to be told later. Raises OSError."""
    digest = hashlib.sha256(str(session).encode("utf-8", "replace")).hexdigest()
    return home_folder() / _FOLDER / digest


def _keep(session: object, text: str) -> None:
    """Keep a text for a session. Raises OSError."""
    path = _file_of(session)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", opener=private) as file:
        file.write(text)


def _take(session: object) -> str:
    """Return what waits for a session, and forget it; "" if nothing does."""
    text = ""
    with suppress(OSError, ValueError):
        path = _file_of(session)
        text = path.read_text("utf-8")
        path.unlink()
    return text

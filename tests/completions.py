"""What a server of OpenAI's interface answers."""

from __future__ import annotations

from typing import Any

USAGE = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}


def completion(
    content: Any, finish: str = "stop", usage: Any = None, **message: Any
) -> dict[str, Any]:
    """Return an answer with a text, or with what should be a text."""
    message = {"role": "assistant", "content": content, **message}
    choice = {"index": 0, "finish_reason": finish, "message": message}
    envelope = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
    return {**envelope, "choices": [choice], "usage": usage or USAGE}

"""Messages of heedful in a chat of LangChain, which prove that heedful made them.

Anybody can write that a message is of heedful. The proof holds in the process that made
the message; after a restart, it is one of others, whose words wait.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import Any, TypeVar

from langchain_core.messages import BaseMessage, HumanMessage

from heedful.integrations import RESULT_KEY

# LangChain's own middleware marks the messages that it makes under this key, too.
MESSAGE_SOURCE_KEY = "lc_source"
PROOF_KEY = "heedful_proof"
_SECRET = secrets.token_hex(16)
AnyNote = TypeVar("AnyNote", bound=BaseMessage)


def note_message(text: str, **marks: Any) -> HumanMessage:
    """Return a message of heedful in the user's part of a chat."""
    return proved(
        HumanMessage(text, additional_kwargs={MESSAGE_SOURCE_KEY: RESULT_KEY, **marks})
    )


def proved(message: AnyNote) -> AnyNote:
    """Return a new message of heedful with the proof that it is one."""
    message.additional_kwargs[PROOF_KEY] = _proof_of(message)
    return message


def is_note(message: BaseMessage) -> bool:
    """Return True for a message of heedful that nobody has changed."""
    return str(message.additional_kwargs.get(PROOF_KEY)) == _proof_of(message)


def _proof_of(message: BaseMessage) -> str:
    """Return the proof of a message, which depends on all that a model reads of it."""
    marks = {**message.additional_kwargs, PROOF_KEY: _SECRET}
    text = json.dumps(
        [message.type, message.content, message.name, marks],
        default=repr,
        sort_keys=True,
    )
    return hashlib.sha256(text.encode()).hexdigest()

"""Messages in a chat of LangChain: those of heedful, and what others say.

A message of heedful proves that heedful made it, because anybody can write that a
message is of heedful. The proof holds in the process that made the message; after a
restart, it is one of others, whose words wait.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
)

from heedful.integrations import RESULT_KEY
from heedful.integrations.typed import TYPED_KEY, Kind, Spoken, mark_of

# LangChain's own middleware marks the messages that it makes under this key, too.
MESSAGE_SOURCE_KEY = "lc_source"
PROOF_KEY = "heedful_proof"
# Blocks of an answer that are the model's own; a call has its result in another block.
OWN_BLOCK_TYPES = frozenset(
    "text reasoning thinking redacted_thinking tool_call tool_call_chunk tool_use "
    "function_call server_tool_call server_tool_use mcp_tool_use".split()
)
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


def user_prompts(messages: Sequence[AnyMessage]) -> list[HumanMessage]:
    """Return the messages of the user, without those that middleware made."""
    return [
        message
        for message in messages
        if isinstance(message, HumanMessage)
        and MESSAGE_SOURCE_KEY not in message.additional_kwargs
    ]


def spoken(message: AnyMessage) -> Spoken:
    """Return what decides if a message is the user's."""
    kind: Kind = "other"
    if isinstance(message, AIMessage):
        kind = "calls" if message.tool_calls else "answer"
    elif isinstance(message, SystemMessage) or user_prompts([message]):
        kind = "prompt"
    mark = message.additional_kwargs.get(TYPED_KEY)
    return Spoken(kind, str(message.text), mark)


def with_mark(message: AnyMessage) -> AnyMessage:
    """Return a prompt with the mark that the user has typed it."""
    mark = {TYPED_KEY: mark_of(str(message.text))}
    marks = {**message.additional_kwargs, **mark}
    return message.model_copy(update={"additional_kwargs": marks})


def said_by(messages: Iterable[BaseMessage]) -> list[Any]:
    """Return what messages say that are not heedful's own, and the calls in them."""
    return [
        [message.content, beside(message), getattr(message, "tool_calls", [])]
        for message in messages
        if not is_note(message)
    ]


def beside(message: BaseMessage) -> list[Any]:
    """Return what a model may read of a message beside its content and its calls.

    That is the name of who says it, calls that are no JSON, and fields of a provider.
    """
    fields = {**message.additional_kwargs, MESSAGE_SOURCE_KEY: "", TYPED_KEY: ""}
    if getattr(message, "tool_calls", []):
        fields["tool_calls"] = []  # the same calls, as a provider wrote them
    return [message.name, getattr(message, "invalid_tool_calls", []), fields]


def provider_items(message: AnyMessage) -> list[Any]:
    """Return what tools of the provider said, as an answer of a model has it."""
    if not isinstance(message, AIMessage):
        return []

    blocks = message.content if isinstance(message.content, list) else []
    items: list[Any] = [
        block
        for block in blocks
        if isinstance(block, dict) and block.get("type") not in OWN_BLOCK_TYPES
    ]
    # Some packages of LangChain write it beside the content.
    items += message.additional_kwargs.get("tool_outputs") or ()
    grounding = message.response_metadata.get("grounding_metadata")
    return [*items, {"grounding": grounding}] if grounding else items

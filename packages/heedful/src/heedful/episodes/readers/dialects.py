"""Turn messages of LangChain, AutoGen, ShareGPT and pydantic-ai into OpenAI's. Pure.

Those of ADK and Strands stand inside an object, and calls of Gemini CLI beside the
messages in its stream. Sources: langchain-ai/langchain,
libs/core/langchain_core/messages/base.py and load/serializable.py; microsoft/autogen,
autogen_agentchat/messages.py; lm-sys/FastChat, docs/training.md; pydantic/pydantic-ai,
pydantic_ai/messages.py; google-gemini/gemini-cli, packages/core/src/output/types.ts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from heedful.episodes.episode import json_data
from heedful.episodes.messages import first_of, objects, text_field
from heedful.validation import Fields

# The authors of messages as LangChain and ShareGPT name them.
AUTHOR_ROLES = {
    "human": "user",
    "user": "user",
    "chat": "user",
    "ai": "assistant",
    "assistant": "assistant",
    "gemini": "assistant",
    "gpt": "assistant",
    "system": "system",
    "tool": "tool",
    "tool_result": "tool",
    "observation": "tool",
    "function_response": "tool",
    "function": "function",
}
# Types of messages that other formats have, too.
OTHERS_TYPES = ("system", "tool", "function", "tool_result", "reasoning")
# What a message of pydantic-ai is, and its parts, whose types are those of others.
KIND_ROLES = {"request": "user", "response": "assistant"}
PART_FIELDS: Mapping[str, Mapping[str, str]] = {
    "user-prompt": {"type": "text"},
    "tool-return": {"type": "tool_result"},
    "retry-prompt": {"type": "tool_result", "status": "failed"},
}
# With so many, a chat is one of a group of agents.
MIN_GROUP_NAMES = 3
SPOKEN_ROLES = ("user", "assistant")
# Where the words and the calls of a message may stand.
CONTENTS = ("content", "parts", "tool_calls", "function_call")


def as_chat_message(value: Any) -> Fields | None:
    """Return a message as OpenAI has it; None for what is no message of a chat."""
    if not isinstance(value, Mapping):
        return None
    if isinstance(value.get("role"), str):
        words = first_of(value, "message", "text")
        if words is None or any(name in value for name in CONTENTS):
            return value
        inner = words if isinstance(words, Mapping) else {"content": words}
        return {**inner, "role": value["role"]}
    messages = (translate(value) for translate in DIALECTS)
    return next((message for message in messages if message is not None), None)


def is_chat_message(value: Any) -> bool:
    """Return True for a message of a chat, of which other formats have nothing."""
    if not isinstance(value, Mapping):
        return False
    if value.get("type") in OTHERS_TYPES and "role" not in value:
        return False
    message = as_chat_message(value)
    if message is None:
        return False
    return "role" not in message or any(name in message for name in CONTENTS)


def _of_langchain(value: Fields) -> Fields | None:
    """Return a message of LangChain, as an object, a constructor or with its data."""
    fields: Any = value
    kind = value.get("type")
    if kind == "constructor":
        fields = value.get("kwargs")
        path = value.get("id")
        kind = path[-1] if isinstance(path, Sequence) and path else ""
    elif isinstance(value.get("data"), Mapping):
        fields = value["data"]

    if not isinstance(fields, Mapping) or not isinstance(kind, str):
        return None
    name = kind.removesuffix("Chunk").removesuffix("Message").lower()
    if name not in AUTHOR_ROLES or "content" not in fields:
        return None
    role = fields.get("role") or AUTHOR_ROLES[name]
    return {**fields, "role": role, "type": ""}


def _of_autogen(value: Fields) -> Fields | None:
    """Return a message or an event of an agent of AutoGen."""
    kind, source = value.get("type"), value.get("source")
    if not isinstance(kind, str) or not isinstance(source, str):
        return None
    if not kind.endswith(("Message", "Event")):
        return None

    content = value.get("content")
    role = "user" if source.startswith("user") else "assistant"
    message = {"role": role, "name": source, "content": content}
    if kind == "ToolCallRequestEvent":
        message |= {"content": None, "tool_calls": content}
    elif kind == "ToolCallExecutionEvent":
        message = {"role": "tool", "tool_responses": content}
    elif kind == "ThoughtEvent":
        message |= {"content": None, "reasoning_content": content}
    elif kind in ("ToolCallSummaryMessage", "ModelClientStreamingChunkEvent"):
        message |= {"content": None}  # it repeats what others say
    elif kind == "CodeExecutionEvent":
        message = {"role": "tool", "name": "code", "content": value.get("result")}
    return message


def as_user_sees(messages: list[Any]) -> list[Any]:
    """Return a history of AutoGen 0.2; it is that of the user, who is its assistant."""
    if messages[0].get("role") != "assistant":
        return messages
    turned = {"assistant": "user", "user": "assistant"}
    return [
        {**message, "role": turned.get(message.get("role"), message.get("role"))}
        if message.get("content") and not message.get("tool_calls")
        else message
        for message in messages
    ]


def as_group_says(messages: list[Fields]) -> list[Fields]:
    """Return the chat of a group of agents of AutoGen; its first text is the task.

    To each agent all others are users. All who speak have names.
    """
    spoken = [message for message in messages if message.get("role") in SPOKEN_ROLES]
    names = [first_of(message, "name", "source") for message in spoken]
    if not all(names) or len({*map(str, names)}) < MIN_GROUP_NAMES:
        return messages
    return [_as_said(message, spoken[0]) for message in messages]


def _as_said(message: Fields, task: Fields) -> Fields:
    """Return a message of a group; who did not set the task says it as a model."""
    if message.get("role") not in SPOKEN_ROLES:
        return message
    name = first_of(message, "name", "source")
    is_of_user = name == first_of(task, "name", "source") and message["role"] == "user"
    role = "user" if message is task or is_of_user else "assistant"
    return {**message, "role": role, "name": None, "source": name}


def _of_sharegpt(value: Fields) -> Fields | None:
    """Return a turn of ShareGPT."""
    author, words = value.get("from"), value.get("value")
    if not isinstance(author, str) or "value" not in value:
        return None
    if author == "function_call":
        return {"role": "assistant", "tool_calls": [json_data(words)]}
    if author not in AUTHOR_ROLES:
        return None
    return {"role": AUTHOR_ROLES[author], "content": words}


def _inside(value: Fields) -> Fields | None:
    """Return the message in an event of ADK or in a message of Strands."""
    parts = [value.get("message"), value.get("content")]
    return next((p for p in parts if isinstance(p, Mapping) and "role" in p), None)


def _of_pydantic_ai(value: Fields) -> Fields | None:
    """Return a message of pydantic-ai; its system prompt is not the user's."""
    role = KIND_ROLES.get(str(value.get("kind")))
    if role is None or "parts" not in value:
        return None
    parts = [
        {**part, "type": kind, **PART_FIELDS.get(kind, {})}
        for part in objects(value["parts"], "parts")
        if (kind := text_field(part, "part_kind")) != "system-prompt"
    ]
    return {"role": role, "parts": parts}


def _item_of_responses(value: Fields) -> Fields | None:
    """Return an item of OpenAI's responses that is no message."""
    kind = value.get("type")
    if not isinstance(kind, str):
        return None
    is_call = kind.endswith(("_call", "_call_output"))
    if is_call and ("call_id" in value or "id" in value):
        return value
    return value if kind == "reasoning" and "summary" in value else None


def _of_gemini_stream(value: Fields) -> Fields | None:
    """Return a call or a result in what Gemini CLI prints.

    A command has the status of its tool, which worked: the output says how it ended.
    """
    call = value.get("tool_id")
    if not isinstance(call, str):
        return None
    role = "assistant" if "tool_name" in value else "tool"
    return {"role": role, "parts": [{**value, "id": call}]}


DIALECTS = (
    _of_gemini_stream,
    _of_langchain,
    _of_autogen,
    _of_sharegpt,
    _of_pydantic_ai,
    _item_of_responses,
    _inside,
)

"""Read chats of OpenAI (openai/openai-openapi, openapi.yaml) and all that is like them.

A value is a chat: a list of messages, or an object with one and with what is known of
the run. Or it is a single message, of a file that is one chat. Or it is a request to a
model with its response, as proxies log them: each repeats the chat so far, so the last
request of a chat is all of it. Anthropic's messages (anthropics/anthropic-sdk-python),
results of tau-bench (sierra-research/tau-bench and tau2-bench), samples of Inspect AI
(UKGovernmentBEIS/inspect_ai, log/_log.py) and states of LangGraph are chats, too. The
messages may stand under any name, also in an inner object, or as JSON in a text. In the
stream of Gemini CLI (`--output-format stream-json`), a message may come in parts.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from heedful.episodes.episode import Episode, Event, Limits, json_data
from heedful.episodes.messages import (
    first_of,
    inner_objects,
    object_of,
    objects,
    offered_tools,
    text_field,
    text_of,
)
from heedful.episodes.readers.base import (
    OpenSession,
    OpenSessions,
    fault_of,
    outcome_of,
)
from heedful.episodes.readers.dialects import (
    AUTHOR_ROLES,
    as_chat_message,
    as_group_says,
    as_user_sees,
    is_chat_message,
)
from heedful.validation import Fields, require


@dataclass
class Chat:
    """The messages of a chat, the answer to them if it stands apart, and the run."""

    messages: list[Any]
    answer: list[Any]
    fields: Fields

    @classmethod
    def of(cls, value: Any) -> "Chat":
        """Return the chat in a value, which may be empty."""
        if isinstance(value, list):
            messages = value if _is_chat(value) else []
            return cls(messages, [], {})

        fields: Fields = value if isinstance(value, Mapping) else {}
        parts = (fields, *inner_objects(fields))
        messages = max(map(_prompt_in, parts), key=len)
        answer = _answer_in(fields)
        request = object_of(fields, "request") or fields
        prompt = request.get("input")
        if answer and isinstance(prompt, str):
            message = {"role": "user", "content": prompt}
            messages = _prompt_in({**request, "input": [message]})
        return cls(messages, answer, fields)


def _prompt_in(fields: Fields) -> list[Any]:
    """Return the longest chat in an object, with the system prompt beside it."""
    chat: list[Any] = []
    for name, value in fields.items():
        is_text = isinstance(value, str) and value.startswith("[")
        messages = json_data(value) if is_text else value
        if name == "output" or not _is_chat(messages) or len(messages) <= len(chat):
            continue
        chat = as_user_sees(messages) if name == "chat_history" else messages
    system = text_of(first_of(fields, "system", "instructions"))
    return [{"role": "system", "content": system}, *chat] if chat else []


def _is_chat(value: Any) -> bool:
    """Return True for a list with messages."""
    return isinstance(value, list) and any(map(is_chat_message, value))


def _answer_in(fields: Fields) -> list[Any]:
    """Return the messages of a model's response, if an object has one."""
    response = response_of(fields)
    answer: Any = response.get("output")
    choices = response.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
        answer = [choices[0].get("message")]
    elif response is not fields and "content" in response:
        answer = [{"role": "assistant", **response}]
    if isinstance(answer, Mapping):
        answer = [answer]
    return answer if _is_chat(answer) else []


def response_of(fields: Fields) -> Fields:
    """Return the response in a line of a log, or the line."""
    response = fields.get("response", fields)
    if isinstance(response, str):
        return {"content": response}
    if not isinstance(response, Mapping):
        return {}
    return object_of(response, "body") or response


PROMPT_ROLES = ("system", "developer", "user")
# What stands beside the messages of a run in a stream: its begin, its end, errors.
RUN_MARKS = ("init", "result", "error")
ID_FIELDS = ("id", "task_id", "instance_id", "thread_id", "custom_id")


class ChatReader:
    """Reads chats, single messages, and requests with their responses."""

    source = "chat"

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        # The single messages of each run, the run that goes on, and the parts of its
        # message that may go on.
        self._single = OpenSessions(limits, self.source)
        self._id = ""
        self._parts: list[Fields] = []
        # Chats that may go on, by their first messages, and those by ids of responses.
        self._open: dict[str, Chat] = {}
        self._keys: dict[str, str] = {}

    @staticmethod
    def begins(value: Any) -> bool:
        """Return True for a message, or for an object with messages or an answer."""
        chat = Chat.of(value)
        return is_chat_message(value) or bool(chat.messages or chat.answer)

    def add(self, value: Any) -> list[Episode]:
        """Read a chat, a request or a message; return the chats that end by that.

        Single messages become one episode at the end of the file. Raises InvalidInput.
        """
        message = as_chat_message(value)
        if message is not None and message.get("delta") is True:
            self._parts.append(message)
            return []
        self._end_message()
        if message is not None:
            self._single[self._id].add(message)
            return []
        chat = Chat.of(value)
        if not chat.messages and not chat.answer:
            if chat.fields.get("type") in RUN_MARKS:
                self._read_mark(chat.fields)
                return []
            is_chat = [] in chat.fields.values()
            require(is_chat, "a chat", value, "a list of messages, or have one")
        if not chat.answer:
            return [self._episode(chat)]

        request = object_of(chat.fields, "request") or chat.fields
        response = response_of(chat.fields)
        # A request names the response that it goes on from, or repeats the chat.
        earlier_id = text_of({**request, **response}.get("previous_response_id"))
        first_prompts = text_of([*takewhile(_is_prompt, chat.messages)])
        key = self._keys.get(earlier_id, first_prompts)
        is_named = key != first_prompts
        open_chat = self._open.get(key)
        known = 0
        if open_chat and not is_named and _goes_on(open_chat.messages, chat.messages):
            known = len(open_chat.messages)
        # What cannot be read is refused while its line is known.
        self._session([*chat.messages[known:], *chat.answer])

        if open_chat and is_named:
            chat.messages = [*open_chat.messages, *open_chat.answer, *chat.messages]
            known = len(open_chat.messages)
        self._open[key] = chat
        id = text_of(response.get("id"))
        if id:
            self._keys[id] = key
        return [self._episode(open_chat)] if open_chat and not known else []

    def finish(self) -> list[Episode]:
        """Return the chats of requests, and those of the single messages."""
        self._end_message()
        chats = [self._episode(chat) for chat in self._open.values()]
        return [*self._single.episodes(), *chats]

    def _end_message(self) -> None:
        """Add the message whose parts were read, if there is one."""
        if self._parts:
            words = "".join(text_of(part.get("content")) for part in self._parts)
            self._single[self._id].add({**self._parts[0], "content": words})
            self._parts.clear()

    def _read_mark(self, mark: Fields) -> None:
        """Read how a run begins or ends, or what went wrong in it."""
        self._id = text_field(mark, "session_id") or self._id
        session = self._single[self._id]
        if mark["type"] == "result":
            session.outcome = outcome_of(mark)
            session.fault = fault_of(mark)
        elif mark.get("severity") == "error":
            session.builder.add(
                Event("error_event", error=text_of(mark.get("message")))
            )

    def _session(
        self, messages: Sequence[Any], executors: Set[str] = frozenset()
    ) -> OpenSession:
        """Return a session with these messages. Raises InvalidInput.

        The `executors` run code; who ran some once did so from the beginning.
        """
        session = OpenSessions(self._limits, self.source)[""]
        session.executors.update(executors)
        for message in as_group_says(objects(messages, "messages")):
            session.add(as_chat_message(message) or message)
        others = session.executors.difference(AUTHOR_ROLES, executors)
        return self._session(messages, executors | others) if others else session

    def _episode(self, chat: Chat) -> Episode:
        """Return the episode of a chat. Raises InvalidInput."""
        session = self._session([*chat.messages, *chat.answer])
        fields = chat.fields
        offers = [part.get("tools") for part in (fields, *inner_objects(fields))]
        task = fields.get("task")
        if not isinstance(task, str):
            task = None
        number = first_of(fields, "trial", "epoch")
        id = text_of(first_of(fields, *ID_FIELDS))
        if number is not None:
            id = f"{id}/{number}"
        return session.builder.episode(
            task=task,
            goal=text_of(fields.get("goal")),
            outcome=outcome_of(fields),
            fault=fault_of(fields),
            id=id,
            tools=offered_tools(next(filter(None, offers), None)),
        )


def _goes_on(before: Sequence[Any], after: Sequence[Any]) -> bool:
    """Return True for messages that begin with all of the messages before."""
    return len(before) < len(after) and after[: len(before)] == before


def _is_prompt(message: Any) -> bool:
    """Return True for a message that no model wrote."""
    return isinstance(message, Mapping) and message.get("role") in PROMPT_ROLES

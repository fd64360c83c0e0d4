"""Read actions that a model writes as text, and results that come back as the user.

Sources: SWE-agent/mini-swe-agent, src/minisweagent/config/mini_textbased.yaml;
langchain-ai/langchain, agents/mrkl/prompt.py; All-Hands-AI/OpenHands,
openhands/llm/fn_call_converter.py. An action is a line "Action: …", a block of code, or
in tags. What comes back is a result if it begins as one, or follows a line "Action: …".
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from heedful.episodes.episode import Episode, EpisodeBuilder, Event, Limits, json_data
from heedful.episodes.messages import arguments_of, first_of, text_of

# A label of ReAct: "Action 2:" or "**Observation**:".
_LABEL_PATTERN = re.compile(
    r"(?m)^\W{0,4}(Question|Thought|Action Input|Act(?:ion)?|Observation|Final Answer)"
    r"(?: \d+)?\W{0,2}:\**[ \t]*"
)
# An action: "search", "search[heedful]" or "search(heedful)".
_ACTION_PATTERN = re.compile(r"(?s)[`*]*([\w.-]+)[`*]*(?: ?[\[(](.*)[\])])?[`*.]*")
# The last block of code, or action in tags, which may have its arguments in tags.
_BLOCK_PATTERN = re.compile(
    r"(?s).*(?:```(?P<language>[\w-]*)[ \t]*\n(?P<code>.*?)\n?```"
    r"|<(?P<call>\w+)>\s*(?P<arguments>(?:<(\w+)>(?:(?!<\w+>).)*?</\5>\s*)+)</(?P=call)>"
    r"|<(?:function=)?(?P<tool>\w+)>(?P<given>(?:(?!<(?:function=)?\w+>).)*?)"
    r"</(?:function|(?P=tool))>(?!\s*<))"
)
_ARGUMENT_PATTERN = re.compile(r"(?s)<(\w+)>(.*?)</\1>")
# The tags around a result and around what an action is given.
_TAG_PATTERN = re.compile(
    r"<return_?code>\s*(?P<status>-?\d+)\s*</return_?code>\s*"
    r"|</?(?:output\w*|observation|tool_re\w+|exception|parameter(?:=\w+)?)>\n?"
)
# How a result begins that comes back as the user.
_RESULT_PATTERN = re.compile(
    r"(?i)\W{0,4}(?:observation(?: \d+)?|execution result of [^\n]*|\w+[^\n]*?\] result"
    r"|(?:\w+ )?output[^\n:]{0,40})[^\n\w]*?(?:\n|:)[*\s]*"
)

# What the labels of ReAct stand for -> the type of the event.
LABEL_TYPES = {
    "Question": "user_message",
    "Thought": "llm_response",
    "Final Answer": "llm_response",
}
# The tool of an action in a sentence: "go to desk 1".
PLAIN_ACTION = "action"


class ReactReader:
    """Reads the text of a run of ReAct: each question is an episode."""

    source = "react"

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    @staticmethod
    def begins(value: Any) -> bool:
        """Return True for a text with an action and an observation."""
        labels = _LABEL_PATTERN.findall(value) if isinstance(value, str) else []
        return {"Action", "Observation"} <= set(labels)

    def add(self, value: Any) -> list[Episode]:
        """Return the episodes of a text."""
        builders: list[EpisodeBuilder] = []
        for event in react_events(text_of(value)):
            if event.type == "user_message" or not builders:
                builders.append(EpisodeBuilder(self._limits, self.source))
            builders[-1].add(event)
        return [builder.episode() for builder in builders]

    def finish(self) -> list[Episode]:
        """Return [], because `add` returned all."""
        return []


def react_events(text: str) -> list[Event]:
    """Return the events of a text with labels; a text without one is a thought."""
    before, *parts = _LABEL_PATTERN.split(text)
    labels = ["Thought", *parts[::2], ""]
    texts = [words.strip() for words in (before, *parts[1::2])]
    events: list[Event] = []
    for number, words in enumerate(texts):
        label = labels[number]
        if label in LABEL_TYPES and words:
            events.append(Event(LABEL_TYPES[label], words))
        elif label in ("Action", "Act"):
            has_input = labels[number + 1] == "Action Input"
            events.append(_call(words, texts[number + 1 : number + 1 + has_input]))
        elif label == "Observation":
            tool = events[-1].tool if events else ""
            events.append(result_of(tool, words))
    return events


def observed(said: str, text: str, *, is_usual: bool) -> list[Event]:
    """Return the action in what a model said, and its result in the text after it.

    Returns no events if the text is not the result of an action. What follows an action
    is its result, however it begins, if `is_usual` in this chat, or if the action is
    labelled and has arguments.
    """
    action = next(iter(react_events(said)[-1:]), None)
    is_result = is_usual or _begins_as_result(text)
    if action is None or action.type != "tool_call":
        block = _BLOCK_PATTERN.match(said) if is_result else None
        action = None if block is None else _block_call(block)
    elif action.tool != PLAIN_ACTION and action.arguments is not None:
        is_result = True
    if action is None or not is_result:
        return []
    return [action, result_of(action.tool, text)]


def result_of(tool: str, text: str) -> Event:
    """Return the event of a result, without its label and tags, and with its status."""
    response = with_status(Event("tool_response", text.strip(), tool=tool))
    label = _RESULT_PATTERN.match(response.content)
    if label is None or response.code:
        return response
    return with_status(replace(response, content=response.content[label.end() :]))


def with_status(event: Event) -> Event:
    """Return the event of a result; what its tags say is its status."""
    text = event.content.strip()
    if event.type != "tool_response" or not _TAG_PATTERN.match(text):
        return event
    tags = _TAG_PATTERN.finditer(text)
    status = next((tag["status"] for tag in tags if tag["status"]), "")
    words = _TAG_PATTERN.sub("", text).strip()
    if status in ("", "0"):
        return replace(event, content=words, code=status)
    return replace(event, content="", error=words or "failed", code=status)


def _begins_as_result(text: str) -> bool:
    """Return whether a text says by its beginning that it is the result of an action.

    An object with a return code is one, too, and what AutoGen writes.
    """
    if _TAG_PATTERN.match(text.lstrip()) or _RESULT_PATTERN.match(text):
        return True
    data = json_data(text)
    is_object = isinstance(data, Mapping) and "returncode" in data
    return is_object or text.startswith("exitcode: ")


def _call(action: str, inputs: Sequence[str]) -> Event:
    """Return the call of an action: of a tool with its input, or an object."""
    block = _BLOCK_PATTERN.match(action)
    data = json_data(action)
    if block is not None:
        data = json_data(block["code"])
    if isinstance(data, Mapping):
        tool = text_of(first_of(data, "action", "name", "tool"))
        arguments = first_of(data, "action_input", "arguments", "input")
        return Event("tool_call", tool=tool, arguments=arguments_of(arguments))
    if block is not None:
        return _block_call(block)

    match = _ACTION_PATTERN.fullmatch(action)
    if match is None:
        return Event("tool_call", tool=PLAIN_ACTION, arguments=action)
    words = inputs[0].strip("`\n") if inputs else match[2]
    return Event("tool_call", tool=match[1], arguments=arguments_of(words))


def _block_call(block: re.Match[str]) -> Event:
    """Return the call of a block of code, or of an action in tags."""
    if block["call"]:
        arguments = dict(_ARGUMENT_PATTERN.findall(block["arguments"]))
        return Event("tool_call", tool=block["call"], arguments=arguments)
    language = block["language"] or ""
    tool = block["tool"] or ("python" if "python" in language else "bash")
    command = _TAG_PATTERN.sub("", block["code"] or block["given"] or "").strip()
    return Event("tool_call", tool=tool, arguments={"command": command})

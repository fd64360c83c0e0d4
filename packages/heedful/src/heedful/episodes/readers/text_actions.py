"""Read actions that a model writes as text, and results that come back as the user.

Sources: SWE-agent/mini-swe-agent, src/minisweagent/config/mini_textbased.yaml;
langchain-ai/langchain, agents/mrkl/prompt.py; All-Hands-AI/OpenHands,
openhands/llm/fn_call_converter.py. An action is a line "Action: …", a block of code, or
in tags. What comes back is a result if it begins as one, or follows a line "Action: …".
microsoft/autogen, autogen_agentchat/agents/_code_executor_agent.py, writes a status
above an output.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from heedful.episodes.episode import (
    Ended,
    Episode,
    EpisodeBuilder,
    Event,
    Limits,
    json_data,
)
from heedful.episodes.messages import arguments_of, first_of, text_of
from heedful.knowledge import KnowledgeTable

TEXT_ACTIONS = KnowledgeTable("episodes/readers/text_actions")
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
    r"|</?(?:output\w*|tool_re\w+|exception|parameter(?:=\w+)?)>\n?"
)
# How a result begins that comes back as the user; AutoGen 0.2 and 0.4 begin with an
# exit code.
_RESULT_PATTERN = re.compile(
    r"(?i)exitcode: (?P<code>-?\d+)[^\n]*\n?(?:code output: ?\n?)?"
    r"|the script ran[^\n]* exit code(?: was)?: (?P<posix>-?\d+)[^\n]*\n?"
    r"(?:its output was:\n?)?"
    r"|\W{0,4}(?:observation(?: \d+)?|execution result of [^\n]*|\w+[^\n]*?\] result"
    r"|(?:\w+ )?output[^\n:]{0,40})[^\n\w]*?(?:\n|:)[*\s]*"
)

# What the labels of ReAct stand for -> the type of the event.
LABEL_TYPES = {
    "Question": "user_message",
    "Thought": "llm_response",
    "Final Answer": "llm_response",
}
# What a verdict means -> the outcome.
VERDICTS: Mapping[str, Ended] = {"right": "success", "wrong": "failure"}
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
        """Return the episodes of a text; what stands before a question is no run."""
        runs: list[list[Event]] = [[]]
        for event in react_events(text_of(value)):
            if event.type == "user_message":
                runs.append([])
            runs[-1].append(event)
        return [self._episode(run) for run in runs[1:] or runs]

    def _episode(self, events: Sequence[Event]) -> Episode:
        """Return the episode of a run; a verdict on its answer is the outcome."""
        builder = EpisodeBuilder(self._limits, self.source)
        for event in events:
            builder.add(event)
        results = [event for event in events if event.type == "tool_response"]
        verdict = TEXT_ACTIONS.find(
            "verdict", "\n".join(event.content for event in results)
        )
        return builder.episode(outcome=VERDICTS[verdict.meaning] if verdict else None)

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
            events.append(_observation(tool, words))
    return events


def _observation(tool: str, text: str) -> Event:
    """Return the event of what an action returned; a search without a result failed.

    What was searched, and what is offered in its place, is not part of the error.
    """
    result = result_of(tool, text)
    nothing = TEXT_ACTIONS.pattern("nothing_found", r"\A").match(result.content)
    if nothing is not None:
        return replace(result, error=nothing[0])
    is_empty = result.content == "[]" and "search" in tool.lower()
    return replace(result, error="[]") if is_empty else result


def observed(said: str, text: str, *, is_usual: bool) -> list[Event]:
    """Return the action in what a model said, and its result in the text after it.

    Returns no events if the text is not the result of an action. What follows an action
    is its result, however it begins, if `is_usual` in this chat, or if the action is
    labelled and has arguments.
    """
    action = next(iter(react_events(said)[-1:]), None)
    is_result = is_usual or _begins_as_result(text)
    if action is not None and action.type == "tool_call":
        has_arguments = action.tool != PLAIN_ACTION and action.arguments is not None
        is_observed = is_result or has_arguments
        return [action, _observation(action.tool, text)] if is_observed else []
    block = _BLOCK_PATTERN.match(said) if is_result else None
    if block is None:
        return []
    action = _block_call(block)
    return [action, result_of(action.tool, text)]


def result_of(tool: str, text: str) -> Event:
    """Return the event of a result, without its label and tags, and with its status."""
    response = with_status(Event("tool_response", text.strip(), tool=tool))
    label = _RESULT_PATTERN.match(response.content)
    if label is None or response.code:
        return response
    words = response.content[label.end() :]
    status = label["code"] or label["posix"]
    if status:
        return with_output(response, words, status)
    return with_status(replace(response, content=words))


def with_status(event: Event) -> Event:
    """Return the event of a result; what its tags say is its status."""
    text = event.content.strip()
    if event.type != "tool_response" or not _TAG_PATTERN.match(text):
        return event
    tags = _TAG_PATTERN.finditer(text)
    status = next((tag["status"] for tag in tags if tag["status"]), "")
    return with_output(event, _TAG_PATTERN.sub("", text), status)


def with_output(result: Event, output: str, status: str) -> Event:
    """Return a result with an output and its exit code, "" if none is known."""
    if status in ("", "0"):
        return replace(result, content=output.strip(), code=status)
    return replace(result, content="", error=output.strip() or "failed", code=status)


def _begins_as_result(text: str) -> bool:
    """Return whether a text says by its beginning that it is the result of an action.

    An object with a return code is one, too.
    """
    if _TAG_PATTERN.match(text.lstrip()) or _RESULT_PATTERN.match(text):
        return True
    data = json_data(text)
    return isinstance(data, Mapping) and "returncode" in data


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
    language = (block["language"] or "bash").lower()
    is_bash = "bash" in language or language in ("sh", "shell")
    tool = block["tool"] or ("bash" if is_bash else language)
    command = _TAG_PATTERN.sub("", block["code"] or block["given"] or "").strip()
    return Event("tool_call", tool=tool, arguments={"command": command})

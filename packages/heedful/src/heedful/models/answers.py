"""Read the answers of SDKs: the text, the usage, the model, and how they ended.

An answer is recognized by its attributes, so that no SDK is imported. Only an answer
that its provider ended as whole can be accepted; `unfinished` returns the finding about
any other.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from types import SimpleNamespace
from typing import Any

from heedful.errors import InvalidInput
from heedful.loop.record import Finding, Usage
from heedful.models.contract import Answer, Finish, ToolCall
from heedful.redact import redact, redact_start
from heedful.validation import MAX_NAME_CHARS, MAX_SHOWN_TEXT_CHARS, Document


@dataclass(frozen=True, slots=True)
class UsageNames:
    """Where an SDK keeps the usage of an answer, and the names of its counts.

    The counts that `prompt` names are added, and so are those of `completion`.
    """

    path: str
    prompt: tuple[str, ...]
    completion: tuple[str, ...]


# The SDKs of OpenAI and LiteLLM, of Anthropic (pydantic-ai and the OpenAI Agents SDK
# use its names), and of Google; then LangChain and Agno.
_USAGE_NAMES = (
    UsageNames("usage", ("prompt_tokens",), ("completion_tokens",)),
    UsageNames(
        "usage",
        ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
        ("output_tokens",),
    ),
    UsageNames(
        "usage_metadata",
        ("prompt_token_count",),
        ("candidates_token_count", "thoughts_token_count"),
    ),
    UsageNames("usage_metadata", ("input_tokens",), ("output_tokens",)),
    UsageNames("metrics", ("input_tokens",), ("output_tokens",)),
)
# Where their texts are, or the objects that the SDK has parsed: see `value_at`.
_TEXT_PATHS = (
    "choices.message.parsed",
    "choices.message.content",
    "output_parsed",
    "output_text",
    "parsed",
    "text",
    "output",  # of a run of pydantic-ai
)
# Where they keep the name of the model that answered.
_MODEL_PATHS = ("model", "model_version", "response.model_name")
# Where they say why the answer ended.
_REASON_PATHS = (
    "choices.finish_reason",
    "candidates.finish_reason",
    "stop_reason",
    "incomplete_details.reason",
    "status",
    "prompt_feedback.block_reason",
    "finish_reason",  # of a message of pydantic-ai, and in its run
    "response.finish_reason",
    "response_metadata.finish_reason",  # of a message of LangChain
    "response_metadata.stop_reason",
    "finish",  # of an Answer
)
# Of them, those that are None as long as an answer has not ended.
_END_PATHS = ("choices.finish_reason", "stop_reason")
# What only an answer has, also one without usage: its reason, a field of Responses.
_MARK_PATHS = (
    "choices.finish_reason",
    "candidates.finish_reason",
    "parallel_tool_calls",
)
_REFUSAL_PATHS = ("choices.message.refusal", "stop_details.explanation")


@dataclass(frozen=True, slots=True)
class CallNames:
    """Where an SDK keeps the calls of tools, and the paths to their parts.

    The calls of a `type` stand in a list with other things.
    """

    path: str
    name: str
    arguments: str
    _: KW_ONLY
    type: str = ""


# Of OpenAI and LiteLLM; LangChain (which has those of Anthropic twice) and pydantic-ai;
# OpenAI's Responses; Anthropic; Google.
_CALL_NAMES = (
    CallNames("choices.message.tool_calls", "function.name", "function.arguments"),
    CallNames("tool_calls", "name", "args"),
    CallNames("tool_calls", "tool_name", "args"),
    CallNames("output", "name", "arguments", type="function_call"),
    CallNames("content", "name", "input", type="tool_use"),
    CallNames("candidates.content.parts", "function_call.name", "function_call.args"),
)
# What their reasons mean, in small letters. With any other reason the answer is whole.
_FINISHES: Mapping[str, Finish] = {
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "continuation": "length",
    "pause_turn": "length",
    "incomplete": "length",
    "failed": "length",
    "error": "length",
    "refusal": "refusal",
    "content_filter": "refusal",
    "safety": "refusal",
    "recitation": "refusal",
    "blocklist": "refusal",
    "prohibited_content": "refusal",
    "spii": "refusal",
    "model_armor": "refusal",
    "jailbreak": "refusal",
}
# The keys of the findings about the call of a tool, and about several calls.
CALL_KEY = "answer: tool_call"
CALLS_KEY = "answer: tool_calls"
# What is wrong with an answer that is not whole, and what to do.
_FAULTS: Mapping[Finish, tuple[str, str]] = {
    "length": (
        "the provider cut the answer off before its end",
        "Answer again, shorter; or raise max_tokens",
    ),
    "refusal": (
        "the model or its provider refused to answer",
        "Answer the task itself; if that is refused again, put it in other words",
    ),
    "tool_call": (
        "the model called a tool instead of answering, and nobody ran it",
        "Answer with a text, not with the call of a tool",
    ),
}


def value_at(value: Any, path: str, missing: Any = None) -> Any:
    """Return the value at a path of attributes or keys, or `missing`.

    What a server did not send is missing, too, though its SDK says None for it.
    `choices.message.content` reads the content of the first choice: a list stands for
    its first item.
    """
    holder = None
    for step in path.split("."):
        if isinstance(value, list):
            value = next(iter(value), None)
        holder = value
        if isinstance(holder, Mapping):
            value = holder.get(step, missing)
        else:
            value = getattr(holder, step, missing)

    if value is None and missing is not None:
        sent = getattr(holder, "__pydantic_fields_set__", [step])
        return None if step in sent else missing
    return value


def _text_at(value: Any, paths: Iterable[str]) -> str:
    """Return the first text at one of the paths; "" if there is none."""
    for path in paths:
        text = value_at(value, path)
        if isinstance(text, str) and text:
            return str(
                getattr(text, "value", text)
            )  # the reasons of Google are an enum
    return ""


def _items_at(value: Any, path: str) -> list[Any]:
    """Return the list at a path, or the one value there as a list."""
    items = value_at(value, path)
    return items if isinstance(items, list) else [items]


def _sum_of(usage: Any, names: Sequence[str]) -> int:
    """Return the sum of the counts with these names; a missing count is 0."""
    return sum(value_at(usage, name) or 0 for name in names)


def usage_of(value: Any) -> Usage | None:
    """Return the usage in the answer of an SDK, or in its usage object.

    An agent counts its calls as requests. None is returned for other values.
    """
    if isinstance(value, Usage):
        return value

    for names in _USAGE_NAMES:
        for usage in (value_at(value, names.path), value):
            if isinstance(value_at(usage, names.prompt[0]), int):
                return Usage(
                    value_at(usage, "requests") or 1,
                    _sum_of(usage, names.prompt),
                    completion_tokens=_sum_of(usage, names.completion),
                    cost=float(value_at(usage, "cost") or 0),
                )

    return None


def answer_of(value: Any) -> Answer | None:
    """Return the answer of an SDK of OpenAI, LiteLLM, Anthropic or Google, a message of
    LangChain, or the result of a run of pydantic-ai or Agno.

    Its text may be an object that the SDK has parsed. In place of a text, it is the
    arguments of the tools that the model called. None is returned for other values,
    such as JSON data.
    """
    if isinstance(value, Answer):
        return value
    if isinstance(value, (str, Mapping)):
        return None
    return _read_answer(value)


def _read_answer(value: Any) -> Answer | None:
    """Return the answer in an object of an SDK, or in its JSON data."""
    usage = usage_of(value)
    if usage is None:
        # A chunk of LangChain, which may not say how it ended, has another type.
        is_message = value_at(value, "type") == "ai"
        paths = (*_MARK_PATHS, "response_metadata") if is_message else _MARK_PATHS
        if all(value_at(value, path, ...) is ... for path in paths):
            return None
        usage = Usage(1)

    text = _content_of(value)
    calls = _calls_of(value)
    reason = _text_at(value, _REASON_PATHS)
    message = value_at(value, "choices.message")
    if text is None and message is None and not calls and not reason:
        return None  # no more than a usage

    finish, detail = ending_of(value)
    if calls:
        text = ", ".join(call.arguments for call in calls)
        if len(calls) > 1:
            text = f"[{text}]"
        if finish == "stop":
            finish = "tool_call"
            detail = ", ".join(call.name for call in calls)
    if text is None:
        text = ""
    return Answer(
        text, usage, finish, model=model_of(value), detail=detail, calls=tuple(calls)
    )


def _content_of(value: Any) -> Any:
    """Return the text of an answer, or the object that its SDK parsed; None without."""
    for path in _TEXT_PATHS:
        text = value_at(value, path)
        if text is not None:
            return text

    content = value_at(value, "content")
    # The answer of Anthropic is a list of blocks.
    if isinstance(content, list):
        texts = [value_at(block, "text") or "" for block in content]
        content = "".join(texts)
    return content


def _calls_of(value: Any) -> list[ToolCall]:
    """Return the calls of tools in an answer."""
    for names in _CALL_NAMES:
        calls = []
        for item in _items_at(value, names.path):
            name = _text_at(item, [names.name])
            arguments = value_at(item, names.arguments)
            is_typed = not names.type or value_at(item, "type") == names.type
            if not name or arguments is None or not is_typed:
                continue
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments, default=str)
            calls.append(ToolCall(name, arguments))
        if calls:
            return calls
    return []


def answers_of(value: Any) -> list[Answer]:
    """Return the answer of an SDK or in a pair with a usage, and its other choices.

    They are read as by `answer_of` and `answer_of_pair`. The first has the usage of
    all. The list is empty for other values.
    """
    # Elsewhere, a list stands for its first item.
    answer = None if isinstance(value, list) else answer_of(value)
    if isinstance(value, tuple) and len(value) == 2:
        answer = answer_of_pair(*value)
        value = value[0]
    if answer is None:
        return []
    answers = [answer]
    is_data = isinstance(value, Mapping | list)
    choices = [] if is_data else _items_at(value, "choices")
    for choice in choices[1:]:
        other = _read_answer({"choices": [choice]})
        if other is not None:
            answers.append(replace(other, usage=Usage(), model=answer.model))
    return answers


def ending_of(value: Any) -> tuple[Finish, str]:
    """Return how the answer of an SDK ended, and what the provider says about it.

    "" is said about an answer that is whole.
    """
    refusal = _text_at(value, _REFUSAL_PATHS)
    for item in _items_at(value, "output"):  # of OpenAI's Responses
        for part in _items_at(item, "content"):
            refusal = refusal or _text_at(part, ("refusal",))
    if refusal:
        return "refusal", refusal

    reason = _text_at(value, _REASON_PATHS)
    if not reason and any(value_at(value, path, ...) is None for path in _END_PATHS):
        return "length", "it does not say why it ended"
    finish = _FINISHES.get(reason.lower(), "stop")
    return finish, "" if finish == "stop" else reason


def model_of(value: Any) -> str:
    """Return the name of the model in the answer of an SDK; "" if it has none."""
    for path in _MODEL_PATHS:
        name = value_at(value, path)
        if isinstance(name, str) and name.isprintable():
            return name[:MAX_NAME_CHARS]
    return ""


def answer_of_pair(first: Any, second: Any) -> Answer | None:
    """Return a candidate with the usage, or with the answer of an SDK, beside it.

    An answer beside the candidate says how it ended, and has the text if there is no
    candidate. None is returned for any other pair, such as two answers.
    """
    usage = usage_of(second)
    first_answer = answer_of(first)
    if usage is None or (first_answer is not None and answer_of(second) is not None):
        return None

    answer = first_answer or _read_answer(second) or Answer("", model=model_of(second))
    # A usage that counts only tokens is that of one call.
    answer = replace(answer, usage=replace(usage, calls=max(1, usage.calls)))
    if first_answer is None and first is not None:
        answer = replace(answer, text=first)
    return answer


def usage_of_list(value: Any) -> Usage | None:
    """Return the usage in a pair with a list of candidates; None for other values.

    A list beside the answer of an SDK is what this answer says.
    """
    is_pair = isinstance(value, tuple) and len(value) == 2
    if not is_pair or not isinstance(value[0], list) or answer_of(value[1]) is not None:
        return None
    answer = answer_of_pair(*value)
    return None if answer is None else answer.usage


def join_parts(function: str, parts: Iterable[Any]) -> list[Answer]:
    """Return the answers in the parts that a function yielded, mostly one.

    A part is a text, a usage, or a chunk of a stream of OpenAI, LiteLLM or Google. They
    are joined to a response of OpenAI, and read like it: a stream whose chunks do not
    say how it ended is cut. Errors name the function as `function`. Raises InvalidInput
    for other parts.
    """
    # The first choice is there also if nothing comes.
    choices = defaultdict(_new_choice, {0: _new_choice()})
    usage = Usage(1)
    model = ""
    for part in parts:
        if isinstance(part, str):
            choices[0]["message"]["content"] += part
            continue
        pieces = _pieces_of(part)
        part_usage = usage_of(part)
        if pieces is None and part_usage is None:
            allowed = (
                "a text or a chunk of a stream of OpenAI, LiteLLM or Google; of any "
                "other stream, return the final message (get_final_message(), "
                "get_final_response()); to return several candidates, return a list"
            )
            raise InvalidInput(f"what {function} yielded", part, allowed)

        for piece in pieces or []:
            _add_piece(choices[value_at(piece, "index") or 0], piece)
        # The last chunk has the usage of the whole stream.
        usage = part_usage or usage
        model = model_of(part) or model

    response = SimpleNamespace(choices=list(choices.values()), usage=usage, model=model)
    return answers_of((response, usage))


def _new_choice() -> Document:
    """Return a choice of a response of OpenAI, with its calls by index, too."""
    return {"message": {"content": "", "refusal": ""}, "calls": {}}


def _pieces_of(part: Any) -> list[Any] | None:
    """Return the choices in a chunk, as OpenAI streams them; None for other parts."""
    choices = value_at(part, "choices")
    # Azure sends chunks without a choice.
    if choices == [] or value_at(choices, "delta") is not None:
        return _items_at(part, "choices")

    answer = answer_of(part)
    if answer is None or not isinstance(answer.text, str):
        return None
    delta = {
        "content": answer.text,
        "refusal": answer.detail if answer.finish == "refusal" else "",
        "tool_calls": [{"function": call._asdict()} for call in answer.calls],
    }
    return [{"delta": delta, "finish_reason": _text_at(part, _REASON_PATHS)}]


def _add_piece(choice: Document, piece: Any) -> None:
    """Add a choice of a chunk to the joined choice."""
    message = choice["message"]
    delta = value_at(piece, "delta")
    for name in ("content", "refusal"):
        message[name] += _text_at(delta, (name,))

    calls = choice["calls"]
    for part in value_at(delta, "tool_calls") or []:
        # Without an index, it is a whole call.
        index = value_at(part, "index", len(calls))
        function = calls.setdefault(index, {"name": "", "arguments": ""})
        function["name"] = _text_at(part, ("function.name",)) or function["name"]
        function["arguments"] += _text_at(part, ("function.arguments",))
    message["tool_calls"] = [{"function": function} for function in calls.values()]

    reason = _text_at(piece, ("finish_reason",))
    choice["finish_reason"] = reason or choice.get("finish_reason")


def unfinished(answer: Answer) -> Finding | None:
    """Return what is wrong with how an answer ended; None if it is whole."""
    if answer.fault is not None:
        return answer.fault
    if answer.finish not in _FAULTS:
        return None

    message, fix = _FAULTS[answer.finish]
    key = f"answer: {answer.finish}"
    if answer.detail:
        message = f"{message} ({redact(answer.detail)})"
    if answer.finish == "tool_call" and len(answer.calls) > 1:
        calls = ", ".join(f"{call.name}({call.arguments})" for call in answer.calls)
        calls = redact_start(calls, MAX_SHOWN_TEXT_CHARS)
        message = f"{len(answer.calls)} calls, one wanted: {calls}"
        fix = "Answer with one call only"
        key = CALLS_KEY
    return Finding("answer", message, fix=fix, severity=1.0, key=key)

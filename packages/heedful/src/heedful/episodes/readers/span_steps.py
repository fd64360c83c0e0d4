"""Turn the attributes of a span into the events of a step, and say whose words each
event holds. Pure.

What the attributes are called is in `conventions`. What a step was given or returned
may be messages, in any data and of any library, or a text.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from heedful.episodes import messages
from heedful.episodes.episode import MODEL_WORD_EVENTS, Event, Origin, json_data
from heedful.episodes.messages import first_of, objects, text_of
from heedful.episodes.readers.conventions import (
    Attributes,
    Kind,
    decoded,
    find,
    find_all,
    is_given,
    kind_of,
    kind_word,
    messages_in,
    unwrapped,
)
from heedful.episodes.readers.otlp import Span
from heedful.errors import InvalidInput
from heedful.validation import Fields

Events = tuple[Event, ...]
# The names, in the data of an attribute, of words in a message.
_WORD_NAMES = frozenset(
    "content text value prompt prompts response result page_content refusal".split()
)


def side_events(value: Any, role: str, kind: Kind) -> Events:
    """Return the events of what a step was given or returned.

    `role` is that of messages without a role, and of a text. Only what a model is given
    is always words: what is around other steps has data of a program, too.
    """
    data = unwrapped(value)
    chat = list(messages_in(data, role))
    if chat:
        return events_of(chat, role)

    while isinstance(data, Mapping) and len(data) == 1:
        [data] = data.values()
    if kind == "model" and data is not None and not isinstance(data, str):
        data = "\n".join(words_of(data, "text")) or text_of(data)
    if not kind or not isinstance(data, str):
        return ()
    return events_of([{"content": data}], role)


def said_in(records: Sequence[tuple[str, Attributes]]) -> Events:
    """Return the events of the messages that a span has as events of its own.

    Earlier versions of GenAI have them as `gen_ai.user.message` and `gen_ai.choice`.
    """
    events: Events = ()
    for name, fields in records:
        role = name.removeprefix("gen_ai.").removesuffix(".message")
        if role == "choice":
            answer = decoded(first_of(fields, "message", "content"))
            events += side_events(answer, "assistant", "model")
        elif name == f"gen_ai.{role}.message":
            events += events_of([{**fields, "role": role}], role)
    return events


def result_of(output: Any) -> tuple[str, bool]:
    """Return what a function returned as text, and whether it says that it failed.

    A tool may return a message, or parts of one, which say so.
    """
    output = unwrapped(output)
    parts = output.get("content") if isinstance(output, Mapping) else None
    role = "tool" if _are_parts(parts) else ""
    answers = [m for m in messages_in(output, role) if m.get("role") == "tool"]
    events = events_of(answers, role)
    if not events:
        return text_of(output), False
    texts = [event.error or event.content for event in events]
    return "\n".join(texts), any(event.error for event in events)


def events_of(chat: Sequence[Any], role: str) -> Events:
    """Return the events of messages; those against the conventions become one text."""
    events: list[Event] = []
    try:
        for message in objects(chat, "messages"):
            events += messages.chat_events(_message_of(message, role), {})
    except InvalidInput:
        events = messages.message_events(role, [{"text": text_of(chat)}], {})

    return tuple(events)


def _message_of(message: Fields, role: str) -> Fields:
    """Return a message without the forms that only attributes have."""
    calls = decoded(message.get("tool_calls"))
    fields = {"role": role, **message, "tool_calls": calls}
    parts = decoded(message.get("contents", message.get("content")))
    if _are_parts(parts):
        # OpenInference has the calls also in `tool_calls`.
        kinds = ("tool_use",) if calls else ()
        fields["content"] = [part for part in parts if part["type"] not in kinds]
    return fields


def _are_parts(value: Any) -> bool:
    """Return True for a list of parts of a message."""
    return isinstance(value, list) and all(
        isinstance(part, Mapping) and "type" in part for part in value
    )


def offered_in(definitions: Any) -> list[str]:
    """Return the names of the tools that a model was offered. Raises InvalidInput."""
    if isinstance(definitions, list):
        definitions = [decoded(tool) for tool in definitions]
    tools = [
        tool if "name" in tool else decoded(tool.get("json_schema", tool))
        for tool in objects(definitions, "tools")
    ]
    return messages.offered_tools(tools)


def words_of(value: Any, name: str) -> Iterator[str]:
    """Yield the words of messages in the data of an attribute with this name."""
    data = json_data(value)
    if isinstance(data, Mapping):
        for inner_name, part in data.items():
            yield from words_of(part, inner_name)
    elif isinstance(data, list):
        for part in data:
            yield from words_of(part, name)
    elif isinstance(data, str) and name in _WORD_NAMES:
        yield data


Error = tuple[str, str]
ANSWER_EVENTS = MODEL_WORD_EVENTS | {"tool_response"}


@dataclass(slots=True)
class SpanStep:
    """The step that a span records: its input and output events, and its error.

    `kind` is "model" for a call of a model, "tool" for a call of a tool, "around" for
    an agent or a chain around such calls, and "" for any other span. Times are in
    nanoseconds since 1970, or 0.
    """

    id: str
    parent: str
    _: KW_ONLY
    start: int
    end: int
    status: str
    error: Error | None
    kind: Kind = ""
    inputs: Events = ()
    outputs: Events = ()
    agent: str = ""
    session: str = ""
    tools: Sequence[str] = ()


def step_of(span: Span) -> SpanStep:
    """Return the step of a span; data that violate the conventions become text.

    The words of a model are only the answers of models and agents. A prompt shows turns
    of a model that nobody recorded, and only the prompt of a model, or of the root, is
    what a user said.
    """
    attributes = span.attributes
    kind, author = kind_of(attributes)
    step = SpanStep(
        span.id,
        span.parent,
        start=span.start,
        end=span.end,
        status=span.status,
        error=_error_of(span),
        kind=kind,
    )
    if not kind:
        return step

    step.agent = text_of(find(attributes, "agent"))
    if kind_word(attributes) == "agent":
        # The agent of a decorated function is named by its span alone.
        step.agent = step.agent or span.name.removesuffix(".agent")

    step.session = text_of(find(attributes, "session"))
    if kind == "tool":
        _add_tool(step, span)
    else:
        _add_chat(step, span)
    if kind == "model":
        _add_unread(step, span)

    prompt_author = author if span.parent or kind == "tool" else ""
    step.inputs = tuple(
        replace(event, origin=_prompt_origin(event, kind, prompt_author))
        for event in step.inputs
    )
    step.outputs = tuple(
        replace(event, origin=_output_origin(event, author)) for event in step.outputs
    )

    return step


def _prompt_origin(event: Event, kind: Kind, author: Origin) -> Origin:
    """Return whose words an input holds; a model in a prompt is from outside."""
    if kind != "tool" and event.type in MODEL_WORD_EVENTS:
        return "outside"
    return event.origin or author


def _output_origin(event: Event, author: Origin) -> Origin:
    """Return whose words an output holds; only the answers are those of the model."""
    if not author and event.type in ANSWER_EVENTS:
        return event.origin
    return author or "outside"


def _add_unread(step: SpanStep, span: Span) -> None:
    """Add the words that a model was given beside the messages that were read.

    A span may follow several conventions. Who wrote the other words is unknown.
    """
    contents = [event.content for event in (*step.inputs, *step.outputs)]
    read = "\n".join([*contents, *words_of(contents, "text")])
    prompts: dict[str, None] = {}
    for attributes in (span.attributes, *(fields for _, fields in span.events)):
        for name, value in attributes.items():
            if is_given(name):
                prompts |= dict.fromkeys(words_of(value, name.rpartition(".")[2]))
    unread = [words for words in prompts if words.strip() not in read]
    if unread:
        event = Event("system_event", "\n".join(unread), origin="outside")
        step.inputs += (event,)


def _error_of(span: Span) -> Error | None:
    """Return the span's error as message and code, or None if the span did not fail."""
    kind = text_of(find(span.attributes, "error"))
    is_marked = kind or find(span.attributes, "level") == "ERROR"
    if span.status != "error" and (span.status == "ok" or not is_marked):
        return None

    exceptions = [{}, *(record for name, record in span.events if name == "exception")]
    last = exceptions[-1]
    message = text_of(
        last.get("exception.message")
        or span.message
        or find(span.attributes, "message")
    )
    code = kind or text_of(last.get("exception.type"))

    return message or code or "error", code


def _add_tool(step: SpanStep, span: Span) -> None:
    """Add the call of a tool, and the response if a result or an error is recorded."""
    attributes = span.attributes
    tool = text_of(find(attributes, "tool"))
    tool = tool or span.name.removeprefix("execute_tool ").removesuffix(".tool")
    arguments = find(attributes, "arguments")
    if arguments is None:
        arguments = unwrapped(find(attributes, "input"))
    call = Event(
        "tool_call",
        agent=step.agent,
        tool=tool,
        arguments=messages.arguments_of(arguments),
        call=text_of(find(attributes, "call")),
    )
    step.inputs = (call,)

    texts: dict[str, None] = {}
    for result in (*find_all(attributes, "result"), *find_all(attributes, "output")):
        text, failed = result_of(result)
        texts[text] = None
        if failed and step.error is None:
            step.error = text, ""
    for document in find(attributes, "documents") or ():
        texts[messages.texts_of(document, ("content", "metadata"))] = None

    if step.error is not None or texts:
        content = "\n".join(filter(None, texts))
        message, code = step.error or ("", "")
        if step.error and content and message in ("error", code):
            message = content  # the error has no words of its own
        response = Event(
            "tool_response",
            content,
            tool=tool,
            call=call.call,
            error=message,
            code=code,
        )
        step.outputs = (response,)


def _add_chat(step: SpanStep, span: Span) -> None:
    """Add the chat of a model or an agent."""
    attributes = span.attributes
    with suppress(InvalidInput):
        step.tools = offered_in(find(attributes, "tools"))

    instructions = find(attributes, "instructions")
    if instructions is not None:
        step.inputs += events_of([{"parts": instructions}], "system")

    # Below the root, a text beside a chat is that of a function.
    is_function = kind_of(attributes)[1] != "" and span.parent != ""
    kind: Kind = "" if is_function else step.kind
    step.inputs += side_events(find(attributes, "input"), "user", kind)
    step.outputs = side_events(find(attributes, "output"), "assistant", kind)

    answer = {
        "content": text_of(find(attributes, "text")),
        "tool_calls": find(attributes, "calls"),
    }
    if any(answer.values()):
        step.outputs += events_of([answer], "assistant")

    if not (step.inputs or step.outputs):
        step.outputs = said_in(span.events)

    # An agent may record its whole chat when it ends.
    kinds = [event.type in ANSWER_EVENTS for event in step.outputs]
    if not step.inputs and True in kinds:
        first = kinds.index(True)
        step.inputs = step.outputs[:first]
        step.outputs = step.outputs[first:]

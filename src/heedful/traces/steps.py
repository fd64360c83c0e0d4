"""What one span tells, by the conventions of OpenTelemetry GenAI or OpenInference. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from heedful.errors import InvalidInput
from heedful.memory.episode import Event
from heedful.traces.chat import events as chat_events
from heedful.traces.chat import offered
from heedful.traces.otlp import Attributes, Span
from heedful.traces.told import arguments_of, objects, text_of, told

Error = tuple[str, str]
Kind = Literal["model", "tool", "around"]
GENAI = "gen_ai.operation.name"
OPENINFERENCE = "openinference.span.kind"
KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("chat", "text_completion", "generate_content", "LLM"), "model"),
    **dict.fromkeys(("execute_tool", "retrieval", "TOOL", "RETRIEVER"), "tool"),
}
# Messages as events of a span, as the conventions had them until 1.36.
EVENTS = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message")


@dataclass(slots=True)
class Step:
    """What a span tells: what went in and what came out, as events, and what it cost.

    `kind` is a model's answer, a tool's work, or what lies around them, such as an agent or a
    chain.
    """

    kind: Kind
    asked: list[Event] = field(default_factory=list)
    said: list[Event] = field(default_factory=list)
    agent: str = ""
    session: str = ""
    tools: Sequence[str] = ()
    tokens: tuple[int, int] = (0, 0)
    cost: float = 0.0


def step_of(span: Span, error: Error | None) -> Step | None:
    """The step, of a span with that error; None where it is about no model, tool or agent.

    What is not as the convention has it is told as the text it is.
    """
    held = span.attributes
    name = held.get(OPENINFERENCE) or held.get(GENAI)
    if not isinstance(name, str):
        return None
    inferred = OPENINFERENCE in held
    step = Step(KINDS.get(name.upper() if inferred else name, "around"))
    if inferred:
        _openinference(step, span, error)
    else:
        for event, more in span.events:
            if event == "gen_ai.client.inference.operation.details":
                held = {**more, **held}
        _genai(step, span, held, error)
    return step


def error_of(span: Span) -> Error | None:
    """What went wrong, and a code: its last exception, else its status, else `error.type`."""
    kind = text_of(span.attributes.get("error.type"))
    if span.status != "error" and (span.status == "ok" or not kind):
        return None
    raised = [held for name, held in span.events if name == "exception"]
    last = raised[-1] if raised else {}
    message = text_of(last.get("exception.message")) or span.message
    code = kind or text_of(last.get("exception.type"))
    return message or code or "error", code


def _genai(step: Step, span: Span, held: Attributes, error: Error | None) -> None:
    step.agent = text_of(held.get("gen_ai.agent.name"))
    step.session = text_of(held.get("gen_ai.conversation.id"))
    counts = [("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens")]
    step.tokens = _both(
        next((held[n] for name in names if (n := f"gen_ai.usage.{name}") in held), 0)
        for names in counts
    )
    step.tools = _offered(_data(held.get("gen_ai.tool.definitions")))
    if step.kind == "tool":
        names = ("gen_ai.tool.call.arguments", "gen_ai.retrieval.query.text")
        given = next((held[name] for name in names if name in held), None)
        results = ("gen_ai.tool.call.result", "gen_ai.retrieval.documents")
        result = next((held[name] for name in results if name in held), None)
        tool = text_of(held.get("gen_ai.tool.name")) or span.name.removeprefix("execute_tool ")
        _tool(step, tool, text_of(held.get("gen_ai.tool.call.id")), given, result, error)
        return
    instructions = _data(held.get("gen_ai.system_instructions"))
    if instructions is not None:
        step.asked += _spoken([{"role": "system", "parts": instructions}], "system")
    step.asked += _spoken(_data(held.get("gen_ai.input.messages")), "user")
    step.said += _spoken(_data(held.get("gen_ai.output.messages")), "assistant")
    for name, more in span.events:
        content = _data(more.get("gen_ai.event.content"))
        body = content if isinstance(content, Mapping) else more
        if role := EVENTS.fullmatch(name):
            step.asked += _chat({"role": role[1], "tool_call_id": body.get("id"), **_plain(body)})
        elif name == "gen_ai.choice":
            message = _data(body.get("message"))
            whole = message if isinstance(message, Mapping) else {"content": message}
            step.said += _chat({"role": "assistant", **_plain(whole)})


def _plain(body: Mapping[str, Any]) -> dict[str, Any]:
    calls = _data(body.get("tool_calls"))
    kept = {name: held for name, held in body.items() if name in ("content", "role", "name")}
    return kept | ({"tool_calls": calls} if calls else {})


def _openinference(step: Step, span: Span, error: Error | None) -> None:
    held = span.attributes
    step.agent = text_of(held.get("agent.name"))
    if not step.agent and text_of(held[OPENINFERENCE]).upper() == "AGENT":
        step.agent = span.name  # a decorated function has no other
    step.session = text_of(held.get("session.id"))
    step.tokens = _both(held.get(f"llm.token_count.{n}", 0) for n in ("prompt", "completion"))
    cost = held.get("llm.cost.total")
    step.cost = cost if isinstance(cost, float) and 0 <= cost < 1e12 else 0.0
    step.tools = _offered([_declared(one) for one in _listed(held, "llm.tools.", "tool")])
    given, result = held.get("input.value"), held.get("output.value")
    if step.kind == "tool":
        documents = _listed(held, "retrieval.documents.", "document")
        found = "\n".join(text_of(one.get("content")) for one in documents) or None
        tool = text_of(held.get("tool.name")) or span.name
        call = text_of(held.get("tool_call.id") or held.get("tool.id"))
        _tool(step, tool, call, given, found if result is None else result, error)
        return
    for name, events in (("input", step.asked), ("output", step.said)):
        for message in _listed(held, f"llm.{name}_messages.", "message"):
            events += _chat(_message(message))
        value = held.get(f"{name}.value")
        plain = held.get(f"{name}.mime_type") != "application/json"
        if not events and isinstance(value, str) and (plain or step.kind == "model"):
            events += told("user" if name == "input" else "assistant", [{"text": value}], {})


def _declared(tool: Mapping[str, Any]) -> Any:
    return tool if "name" in tool else _data(tool.get("json_schema"))


def _message(held: Mapping[str, Any]) -> dict[str, Any]:
    """A message of OpenInference in the form that OpenAI gives it."""
    message = {n: held[n] for n in ("role", "content", "name", "tool_call_id") if n in held}
    calls = [one.get("tool_call", {}) for one in _in_order(held.get("tool_calls"))]
    if calls:
        message["tool_calls"] = calls
    contents = [one.get("message_content", {}) for one in _in_order(held.get("contents"))]
    if contents:  # a call is there a second time, among the calls
        message["content"] = [one for one in contents if one.get("type") != "tool_use"]
    name = held.get("function_call_name")
    if name is not None:
        given = held.get("function_call_arguments_json")
        message["function_call"] = {"name": name, "arguments": given}
    return message


def _listed(held: Attributes, prefix: str, name: str) -> list[Mapping[str, Any]]:
    """The objects that attributes such as `PREFIX0.NAME.role` are made of, in order."""
    tree: dict[str, Any] = {}
    for key, value in held.items():
        if not key.startswith(prefix):
            continue
        *path, last = key[len(prefix) :].split(".")
        at = tree
        for part in path[:20]:
            inner = at.get(part)
            if not isinstance(inner, dict):
                inner = at[part] = {}
            at = inner
        at[last] = value
    found = (one.get(name) for one in _in_order(tree))
    return [one for one in found if isinstance(one, dict)]


def _in_order(tree: Any) -> list[dict[str, Any]]:
    if not isinstance(tree, dict):
        return []
    places = sorted((place for place in tree if _PLACE.fullmatch(place)), key=int)
    return [tree[place] for place in places if isinstance(tree[place], dict)]


_PLACE = re.compile("[0-9]{1,9}")


def _tool(step: Step, tool: str, call: str, given: Any, result: Any, error: Error | None) -> None:
    """A call and, where it is known what came of it, its response."""
    asked = Event("tool_call", "", step.agent, tool, arguments_of(given), call)
    step.asked.append(asked)
    if error is not None or result is not None:
        content, (said, code) = text_of(_unquoted(result)), error or ("", "")
        step.said.append(Event("tool_response", content, "", tool, None, call, said, code=code))


def _unquoted(value: Any) -> Any:
    """Text that was written down as JSON, as text; other data as it is."""
    data = _data(value) if isinstance(value, str) and value.startswith('"') else value
    return data if isinstance(data, str) else value


def _data(value: Any) -> Any:
    """An attribute that may be data or its JSON."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _spoken(messages: Any, role: str) -> list[Event]:
    """The events of messages with `parts`; of anything else its text, where there is one."""
    if messages is None:
        return []
    events: list[Event] = []
    try:
        for one in objects(messages, "messages"):
            parts = one.get("parts")
            whole = [{"content": parts}] if isinstance(parts, str) else objects(parts, "parts")
            events += told(str(one.get("role") or role), whole, {}, text_of(one.get("name")))
    except InvalidInput:
        return told(role, [{"text": text_of(messages)}], {})
    return events


def _chat(message: Mapping[str, Any]) -> Iterator[Event]:
    try:
        yield from chat_events(message, {})
    except InvalidInput:
        role = message.get("role")
        yield from told(role if isinstance(role, str) else "user", [{"text": text_of(message)}], {})


def _offered(tools: Any) -> list[str]:
    try:
        return offered(tools)
    except InvalidInput:
        return []


def _both(counts: Iterator[Any]) -> tuple[int, int]:
    prompt, completion = (
        int(one) if isinstance(one, int | float) and 0 <= one < 2**53 else 0 for one in counts
    )
    return prompt, completion

"""The steps of a trace: a call with its response is one row, with how long it took."""

from collections.abc import Mapping, Sequence

from heedful.pages.run_report import text
from heedful.validation import MAX_SHOWN_LINE_CHARS, Document

CALL_ENDING = "_call"
RESPONSE_ENDING = "_response"


def steps_of(
    events: Sequence[Document], suspects: Sequence[int] = ()
) -> list[Document]:
    """Return the steps of a trace, each with the `numbers` (from 1) of its events.

    A response belongs to the call with the same id, or else to the call right before it
    of the same tool. A step has `failed` if one of its events did, and is `suspect` if
    one of them is a sign of a mistake. `seconds` is the time from the call to its
    response, None if unknown; `begin` and `share` are where its bar begins and how long
    it is, from 0 to 1 of the whole trace.
    """
    step_of_call: dict[str, Document] = {}
    steps: list[Document] = []
    for number, event in enumerate(events, 1):
        step = None
        if str(event.get("type", "")).endswith(RESPONSE_ENDING):
            step = _step_of_response(event, steps, step_of_call)
        if step is None:
            step = _new_step(event)
            steps.append(step)
            if event.get("call"):
                step_of_call[event["call"]] = step

        step["numbers"].append(number)
        step["failed"] = step["failed"] or bool(event.get("error"))
        step["suspect"] = step["suspect"] or number in suspects

    _measure(steps, events)
    return steps


def time_span(events: Sequence[Document]) -> tuple[float | None, float | None]:
    """Return when events began, and the seconds from the first to the last of them.

    Each is None if it is unknown.
    """
    times = [event["at"] for event in events if event.get("at") is not None]
    seconds = max(times) - min(times) if len(times) > 1 else None
    return min(times, default=None), seconds


def first_error(step: Document, events: Sequence[Document]) -> str:
    """Return the first error of a step, "" if it has none."""
    errors = (events[number - 1].get("error") for number in step["numbers"])
    return text(next(filter(None, errors), ""))


def first_failure(steps: Sequence[Document], events: Sequence[Document]) -> Document:
    """Return the first step that failed, what it tried, and its error; "" if none.

    It is `recovered` if the same tool worked in a later step.
    """
    for number, step in enumerate(steps, 1):
        if step["failed"]:
            return {
                "failed": f"{number} {step['name']}",
                "tried": step["words"],
                "failure": first_error(step, events)[:200],
                "recovered": any(
                    later["name"] == step["name"] and not later["failed"]
                    for later in steps[number:]
                ),
            }
    return {"failed": "", "tried": "", "failure": "", "recovered": False}


def _new_step(event: Document) -> Document:
    """Return a step that begins with an event."""
    kind = str(event.get("type") or "event")
    value = event.get("arguments") or event.get("content") or event.get("error") or ""
    # The only argument of a call, such as a command, needs no name.
    if isinstance(value, Mapping) and len(value) == 1:
        (value,) = value.values()
    words = " ".join(text(value)[: 2 * MAX_SHOWN_LINE_CHARS].split())
    return {
        "numbers": [],
        "name": event.get("tool") or kind.replace("_", " "),
        "words": words[:MAX_SHOWN_LINE_CHARS],
        "failed": False,
        "suspect": False,
        "seconds": None,
        "begin": 0.0,
        "share": 0.0,
    }


def _step_of_response(
    event: Document,
    steps: Sequence[Document],
    step_of_call: Mapping[str, Document],
) -> Document | None:
    """Return the step whose call this event answers, None if there is none."""
    call = event.get("call")
    if call:
        return step_of_call.get(call)
    if not steps:
        return None

    last = steps[-1]
    kind = str(event["type"]).removesuffix(RESPONSE_ENDING)
    name = event.get("tool") or f"{kind}{CALL_ENDING}".replace("_", " ")
    is_answer = len(last["numbers"]) == 1 and last["name"] == name
    return last if is_answer else None


def _measure(steps: Sequence[Document], events: Sequence[Document]) -> None:
    """Set how long each step took, and where its bar is."""
    begin, length = time_span(events)
    for step in steps:
        first = events[step["numbers"][0] - 1].get("at")
        last = events[step["numbers"][-1] - 1].get("at")
        if first is None or last is None or len(step["numbers"]) == 1:
            continue
        step["seconds"] = max(0.0, last - first)
        if begin is not None and length:
            step["begin"] = (first - begin) / length
            step["share"] = step["seconds"] / length

"""What an agent did, event by event, and how it ended. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal

from heedful.errors import InvalidInput
from heedful.lessons.lesson import Trust
from heedful.loop.decide import Again, Done, Verdict
from heedful.loop.record import NOTHING, Attempt, Loop, Usage
from heedful.redact import redact
from heedful.store.records import StoredLoop

Ended = Literal["success", "failure", "partial", "timeout", "error"]
ENDED: tuple[Ended, ...] = ("success", "failure", "partial", "timeout", "error")
# Where an episode comes from that a loop of this heedful is.
LOOP = "loop"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened while an agent worked.

    `type` is tool_call, tool_response, llm_call, llm_response, error_event, system_event, or any
    other word, such as user_message. `content` is what was said or given back, `agent` who did it,
    `error` what went wrong and `code` its code. `arguments` are JSON data or text; None: the
    content of the call says them. `call` is the id that a tool call and its response share, `id`
    that of the event itself. `at` is when it happened, in seconds since 1970, None: not known.
    `meta` is whatever else its writer told.
    """

    type: str
    content: str = ""
    agent: str = ""
    tool: str = ""
    arguments: Mapping[str, Any] | str | None = None
    call: str = ""
    error: str = ""
    id: str = ""
    code: str = ""
    at: float | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fault:
    """What a run came to grief with: a category such as `timeout_error`, a message, its context."""

    category: str
    message: str = ""
    context: str = ""


@dataclass(frozen=True, slots=True)
class Episode:
    """One finished run of any agent: what it was to do, the events in order, and how it ended.

    `fault` is the error that ended it, where there was one. `tools` are the names of the tools that
    it was offered, empty where that is not known. `omitted` counts the events that were left out of
    one that is too long. `source` says where it was read from: "loop", or the name of a format.
    Raises InvalidInput.
    """

    events: tuple[Event, ...]
    outcome: Ended = "failure"
    task: str = ""
    goal: str = ""
    fault: Fault | None = None
    id: str = ""
    session: str = ""
    tools: tuple[str, ...] = ()
    usage: Usage = NOTHING
    omitted: int = 0
    source: str = ""

    def __post_init__(self) -> None:
        if self.outcome not in ENDED:
            raise InvalidInput("outcome", self.outcome, f"one of {', '.join(ENDED)}")

    @property
    def digest(self) -> str:
        """SHA-256 in hex over all but `source`: what was imported twice has it twice.

        A time or a cost is the same as an integer and as a float.
        """
        fault = self.fault and (self.fault.category, self.fault.message, self.fault.context)
        head = (float(part) if isinstance(part, int) else part for part in _HEAD(self))
        times = (None if one.at is None else float(one.at) for one in self.events)
        events = list(zip(map(_EVENT, self.events), times, strict=True))
        told = [*head, fault, events]
        text = json.dumps(told, sort_keys=True, default=_plain, separators=(",", ":"))
        return hashlib.sha256(text.encode("ascii")).hexdigest()


_EVENT = attrgetter(*(name for name in Event.__dataclass_fields__ if name != "at"))
_USAGE = tuple(f"usage.{name}" for name in Usage.__dataclass_fields__)
_HEAD = attrgetter("outcome", "task", "goal", "id", "session", "tools", "omitted", *_USAGE)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else repr(value)


def trust_of(event: Event, own: bool = False) -> Trust:
    """From whom the words of an event are, by its type alone, which is all that a file can claim.

    What a model said or asked a tool for is a model's, results and errors are a tool's, all else is
    external: users, documents, prompts, types that are not known. In a loop of one's `own`
    (`episode.source == "loop"`, which no file can say) checks made the errors, of what a model
    said: those are a model's, too.
    """
    if event.type in ("tool_call", "llm_response") or (own and event.type == "error_event"):
        return "model"
    return "tool" if event.type in ("tool_response", "error_event") else "external"


def episode_of(
    loop: Loop | StoredLoop, task: str = "", verdict: Verdict | None = None, goal: str = ""
) -> Episode:
    """A finished loop as an episode: each attempt an llm_response, what was wrong with it after it.

    A finding of level error is an error_event with its message, its check as the code and its fix
    as the content; any other is a system_event. A stored loop brings its task and its last verdict.
    The outcome is success where the verdict says passed (without one, where the last evaluation
    passes), partial where it was cancelled or is to go on, else failure. Secrets are redacted.
    """
    if isinstance(loop, StoredLoop):
        verdict = verdict or (loop.verdicts[-1] if loop.decisions else None)
        said = loop.head.task
        task = task or (said if isinstance(said, str) else json.dumps(said, ensure_ascii=False))
        loop = loop.loop
    outcome = _outcome(loop, verdict)
    events = tuple(event for attempt in loop.attempts for event in _told(attempt))
    stops = verdict.stopped_by if isinstance(verdict, Done) else ()
    fault = Fault(stops[0].rule, redact(stops[0].detail)) if stops else None
    texts = (redact(task), redact(goal))
    return Episode(events, outcome, *texts, fault, loop.id, usage=loop.usage, source=LOOP)


def _outcome(loop: Loop, verdict: Verdict | None) -> Ended:
    last = loop.attempts[-1].evaluation if loop.attempts else None
    passed = last is not None and last.passes(loop.goals)
    if verdict.passed if isinstance(verdict, Done) else passed:
        return "success"
    return "partial" if loop.cancelled or isinstance(verdict, Again) else "failure"


def _told(attempt: Attempt) -> Iterator[Event]:
    name = f"attempt {attempt.number}"
    text = attempt.candidate.text
    yield Event("llm_response", redact(text or ""), id=name)
    findings = attempt.evaluation.findings if attempt.evaluation else ()
    for place, one in enumerate(findings, 1):
        said, fix, id = redact(one.message), redact(one.fix), f"{name}, finding {place}"
        if one.level == "error":
            yield Event("error_event", fix, error=said, code=one.check, id=id)
        else:
            yield Event("system_event", f"{said} {fix}".strip(), code=one.check, id=id)

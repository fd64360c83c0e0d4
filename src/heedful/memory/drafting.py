"""A reflection without a model: what a program found, in words, each with its events. Pure.

It names the step that went wrong, its tool, what was tried and what came back, in the words of the
events; it guesses at nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from heedful.lessons.lesson import Trust
from heedful.lessons.trust import lowest_trust
from heedful.loop.feedback import clean
from heedful.memory.course import HEAD, printed, read
from heedful.memory.episode import Ended, Episode, Event
from heedful.memory.grounded import Claim, claim
from heedful.memory.signal import Signal
from heedful.memory.study import Study
from heedful.redact import redact

# How much an outcome teaches, 0..1.
IMPORTANCE: Mapping[Ended, float] = {
    "error": 0.8,
    "failure": 0.7,
    "timeout": 0.6,
    "partial": 0.5,
    "success": 0.3,
}
RULES = "rules"
SENTENCES = 3
# Characters of a quotation, and of each argument of a call; how many of these are told.
QUOTED = 160
ARGUMENT = 60
ARGUMENTS = 4
UNSURE = 0.5


@dataclass(frozen=True, slots=True)
class Draft:
    """A reflection and a strategy as they are worded, by `rules` or by the model of that name.

    `dropped` are sentences that the events which they cite do not hold. `confidence` and `rated`
    (its importance, None where it did not say) are what the author thinks of it, 0..1; `trust` is
    that of the reflection, `rule_trust` that of the strategy.
    """

    claims: tuple[Claim, ...]
    strategy: str = ""
    confidence: float = UNSURE
    tags: tuple[str, ...] = ()
    by: str = RULES
    rated: float | None = None
    trust: Trust = "external"
    rule_trust: Trust = "external"
    dropped: tuple[Claim, ...] = ()

    def text(self, episode: Episode) -> str:
        """Its sentences with the events that prove them in brackets."""
        told = []
        for one in self.claims:
            names = ", ".join(name_of(episode, at) for at in one.events)
            told.append(f"{one.text.rstrip('.')} [{names}]." if names else one.text)
        bare = f"The run ended as {episode.outcome} after {len(episode.events)} events."
        return " ".join(told) or bare


def name_of(episode: Episode, at: int) -> str:
    """What an event is cited by: its id, or its position."""
    return episode.events[at].id or str(at)


Score = Callable[[Draft, Episode], float]


def by_outcome(draft: Draft, episode: Episode) -> float:
    """How much a reflection matters, by how its episode ended: a model does not rate itself."""
    return IMPORTANCE[episode.outcome]


def self_rated(draft: Draft, episode: Episode) -> float:
    """What the author of a reflection says it matters; where that said nothing, by the outcome."""
    return by_outcome(draft, episode) if draft.rated is None else draft.rated


def by_rules(found: Study) -> Draft:
    """The reflection that the program itself gives, the same for the same episode."""
    told = list(_told(found))[:SENTENCES]
    episode = found.episode
    claims = tuple(claim(redact(text), at, episode) for text, at, _ in told)
    strategy, parts = _strategy(found)
    words_of = [word for *_, words in told for word in words]
    cites = [at for one in claims for at in one.events]
    reason = found.reason
    tags = [episode.outcome, *((reason.kind,) if reason else ()), found.tool]
    return Draft(
        claims,
        redact(strategy),
        round(reason.strength, 3) if reason else UNSURE,
        tuple(clean(tag, ARGUMENT) for tag in tags if tag),
        trust=lowest_trust((found.trust_in((found.tool, *words_of)), *map(found.floor, cites))),
        rule_trust=found.trust_in((found.tool, *parts)),
    )


_MORE = re.compile(r" and \d+ more$")
_HEAD = re.compile(r"^\w{1,20}:\s*")

# A sentence, the positions of its events, and the words of theirs in it.
_Told = tuple[str, tuple[int, ...], tuple[str, ...]]


def _told(found: Study) -> Iterator[_Told]:
    """What happened, why that went wrong, and how it ended; nothing of it twice."""
    step, reason, events = found.step, found.reason, found.episode.events
    at = step.at if step else (reason.at if reason else None)
    said = ""
    if at is not None:
        told = _step(found, at)
        said = told[0].casefold()
        yield told
    elif found.episode.outcome == "success":
        yield from _way(found)
    if reason is not None and not (reason.kind == "cause" and reason.at == at):
        told = _reason(found, reason)
        known = told[2] and all(word.casefold() in said for word in told[2])
        if not known or reason.kind == "repeated":
            said += told[0].casefold()
            yield told
    fault = found.episode.fault
    if fault is not None and (fault.category or fault.message):
        message, category = clean(fault.message, QUOTED), clean(fault.category, ARGUMENT)
        words = f": “{message}”" if message else ""
        last = (len(events) - 1,) if events else ()
        yield f"The run ended in {category or 'an error'}{words}.", last, (category, message)
    yield from _last_word(found, at, said)


def _way(found: Study) -> Iterator[_Told]:
    """The tools by way of which a run succeeded, in the order of their first calls."""
    first: dict[str, int] = {}
    for at, event in enumerate(found.episode.events):
        if event.type == "tool_call" and event.tool:
            first.setdefault(clean(event.tool, ARGUMENT), at)
    names = tuple(first)[:ARGUMENTS]
    if names:
        places = tuple(first[name] for name in names)
        yield f"The run succeeded by way of {', '.join(names)}.", places, names


def _step(found: Study, at: int) -> _Told:
    """What was done, and what came of it."""
    event, result = found.episode.events[at], found.course.result[at]
    told, words = _done(event)
    if result is None or result == at:
        return f"{told}.", (at,), words
    failure = found.course.failure[result]
    line = found.failure[1] if found.failure[0] == result else ""
    came = clean(line or _first_line(failure or read(found.episode.events[result].content)), QUOTED)
    how = "failed with" if failure else "gave"
    said = f"{told} {how} “{came}”." if came else f"{told} gave nothing."
    return said, (at, result), (*words, *_pieces(came))


def _done(event: Event) -> tuple[str, tuple[str, ...]]:
    """What a step did, in the words of its event."""
    if event.tool:
        given, words = _given(event)
        return f"{clean(event.tool, ARGUMENT)}{given}", (clean(event.tool, ARGUMENT), *words)
    who = clean(event.agent or event.code, ARGUMENT) or "It"
    text = clean(event.error or event.content, QUOTED)
    return f"{who} said “{text}”", (*_pieces(text), *((who,) if who != "It" else ()))


def _given(event: Event) -> tuple[str, tuple[str, ...]]:
    given = arguments_of(event)
    if isinstance(given, str):
        text = clean(given, QUOTED)
        return (f" on “{text}”", _pieces(text)) if text else ("", ())
    plain = {key: one for key, one in given.items() if not isinstance(one, Mapping | list | tuple)}
    told = {clean(str(key), ARGUMENT): clean(str(value), ARGUMENT) for key, value in plain.items()}
    shown = dict(list(told.items())[:ARGUMENTS])
    words = [piece for pair in shown.items() for text in pair for piece in _pieces(text)]
    listed = ", ".join(f"{key} “{value}”" for key, value in shown.items())
    return f" with {listed}" if listed else "", tuple(words)


def arguments_of(event: Event) -> Mapping[str, Any] | str:
    """What a call is given: those in JSON as what they are; without any, the words of the call."""
    given = event.content if event.arguments is None else event.arguments
    if isinstance(given, str) and given[:1] == "{" and len(given) <= HEAD:
        with suppress(ValueError, RecursionError):
            given = json.loads(given)
    return given


def _reason(found: Study, reason: Signal) -> _Told:
    """Why it went wrong; counts are left out, since no event says them."""
    if reason.kind == "answer":
        listed = reason.words.partition(": ")[2].removesuffix(" came up first here")
        values = _MORE.sub("", listed).split(", ")
        return f"The answer rests on {', '.join(values)}.", reason.evidence, tuple(values)
    if reason.kind == "repeated":
        tool = clean(found.episode.events[reason.at].tool, ARGUMENT)
        return f"{tool} was called the same way for the same result.", reason.evidence, (tool,)
    if reason.kind == "cause":
        line = clean(found.failure[1], QUOTED)
        return f"The first failure was “{line}”.", reason.evidence, _pieces(line)
    words = reason.words[:1].upper() + reason.words[1:]
    return f"{words.rstrip('. ')}.", reason.evidence, _pieces(reason.words.partition(": ")[2])


def _last_word(found: Study, at: int | None, said: str) -> Iterator[_Told]:
    """What the agents left as their answer, where nothing before says it."""
    roles, last = found.course.roles, found.course.answer
    if last is None:
        spoken = (n for n in reversed(range(len(roles))) if roles[n] == "said")
        last = next(spoken, None)
    if last is None or last == at:
        return
    text = clean(_last_line(found.episode.events[last].content), QUOTED)
    bare = _HEAD.sub("", text).strip(" .\"'")
    if bare and bare.casefold() not in said:
        yield f"The answer was “{text}”.", (last,), _pieces(text)


def _pieces(text: str) -> tuple[str, ...]:
    """The parts of a text that was shortened in its middle."""
    return tuple(one.strip() for one in text.split("…") if one.strip())


def _first_line(text: str) -> str:
    return next((line for line in printed(text).splitlines() if line.strip()), text)


def _last_line(text: str) -> str:
    lines = [line for line in read(text).splitlines() if line.strip()]
    return lines[-1] if lines else ""


_ADVICE = {
    "unknown_tool": "Call only tools that are offered: {tool} is none of them.",
    "argument": "Before {call}, make sure that every argument is there and of the right form.",
    "timeout": "{tool} can run out of time: ask it for less at once, and do not only repeat it.",
    "cause": "When {call} fails, mend what it names before you go on; do not rest on its result.",
    "repeated": "Do not make the same call of {tool} again: the result stays as it is.",
}


# A rule, and the names and other words of the events in it.
_Rule = tuple[str, tuple[str, ...]]
NO_RULE: _Rule = ("", ())


def _strategy(found: Study) -> _Rule:
    """A rule for next time; "" where none is plain."""
    reason, tool = found.reason, clean(found.tool, ARGUMENT)
    if reason is None or not tool:
        return _fix(found)
    if reason.kind == "retry":
        changed = clean(reason.words.partition("what changed: ")[2], QUOTED)
        if changed in ("", "nothing"):
            return NO_RULE
        return (
            f"When {tool} fails, change the call; this worked: {changed}.",
            (tool, *_quoted(changed)),
        )
    if reason.kind not in _ADVICE:
        return NO_RULE
    given = arguments_of(found.episode.events[reason.at])
    keys = [clean(str(key), ARGUMENT) for key in given] if isinstance(given, Mapping) else []
    # A rule that could be believed is not to wait for the names of arguments.
    keys = [key for key in keys if found.trust_in((key,)) == found.trust_in((tool,))][:ARGUMENTS]
    call = f"{tool} ({', '.join(keys)})" if keys else tool
    shown = keys if "{call}" in _ADVICE[reason.kind] else []
    return _ADVICE[reason.kind].format(tool=tool, call=call), (tool, *shown)


def _fix(found: Study) -> _Rule:
    """What the error says of how to mend it, as findings of checks do."""
    at = found.failure[0]
    if at < 0:
        return NO_RULE
    event = found.episode.events[at]
    if event.type != "error_event" or event.content in ("", event.error):
        return NO_RULE
    fix = clean(event.content, 2 * QUOTED)
    return fix, _pieces(fix)


def _quoted(changed: str) -> tuple[str, ...]:
    """The values in the words of a change, `key: 'old' became 'new'`, and its keys."""
    parts = changed.replace(" became ", "; ").replace(": ", "; ").split("; ")
    return tuple(piece for part in parts for piece in _pieces(part.strip("'\" ")))

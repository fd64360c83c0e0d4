"""What a program finds in an episode: the step, the reason, the name of what went wrong. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from heedful.lessons.lesson import Signature, Trust
from heedful.lessons.signature import signature
from heedful.lessons.trust import lowest_trust
from heedful.memory.attribution import GROUNDS, Attribution, Suspect, ranked
from heedful.memory.course import Course, course, text_of
from heedful.memory.episode import LOOP, Episode, Event, trust_of
from heedful.memory.failures import told as line_of
from heedful.memory.signal import Kind, Signal
from heedful.memory.signals import of

# What explains most comes first: a call that was mended tells what to do, a failure what not to.
REASONS: tuple[Kind, ...] = (
    "retry",
    "unknown_tool",
    "argument",
    "timeout",
    "cause",
    "repeated",
    "contradicted",
    "expectation",
    "invented",
    "answer",
)
# Whoever handed over the task wrote these, too.
GIVEN = frozenset({"user_message", "system_event", "llm_call"})
_CATEGORY = re.compile(r"[A-Za-z][\w.-]{0,39}")
# What `heedful.memory.recall.as_text` puts into a prompt; a text that is cut may lack the end.
_OURS = re.compile(
    r"(?:Lessons from and a|A)ccepted answers to earlier tasks \(data, not instructions\):\n"
    r"--- [^\n]*? (?P<mark>[0-9a-f]{8,64})(?: [^\n]*)?\n.*?(?:\n--- end (?P=mark)|\Z)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Study:
    """An episode as it was read: its course, its signals, and which steps are to blame.

    `given` is from whom the task is, and what users and prompts say.
    """

    episode: Episode
    course: Course
    signals: tuple[Signal, ...]
    attribution: Attribution
    given: Trust = "external"

    @property
    def step(self) -> Suspect | None:
        """The step that went wrong, the likeliest; None where none did."""
        return next(iter(self.attribution.steps), None)

    @property
    def reason(self) -> Signal | None:
        """The signal that explains most: of the step that went wrong, else of any."""
        at = self.step.at if self.step else -1
        order = [one for one in self.signals if one.kind in REASONS]
        order.sort(key=lambda one: (at not in (one.at, *one.evidence), REASONS.index(one.kind)))
        return order[0] if order else None

    @property
    def failure(self) -> tuple[int, str]:
        """Where the failure stands that the reason rests on, and its line; -1 and "" without."""
        reason, seen = self.reason, self.course
        for at in reason.evidence if reason else ():
            for place in (at, seen.result[at]):
                if place is not None and seen.failure[place]:
                    return place, line_of(seen.failure[place])
        return -1, ""

    @property
    def category(self) -> str:
        """That of the error which ended the run, where it is a name; else "".

        It is shown with what is held back: nothing but a name is taken from a file.
        """
        told = self.episode.fault.category if self.episode.fault else ""
        return told if _CATEGORY.fullmatch(told) else ""

    @property
    def signature(self) -> Signature:
        """The name of what went wrong: the same failure of the same tool, else the same task."""
        episode, (place, line) = self.episode, self.failure
        kind = self.category or ("error" if line else episode.outcome)
        if line:
            event = episode.events[place]
            where = self.tool or event.code
            # The same complaint of a check with another fix is another mistake.
            fix = event.content if event.type == "error_event" and event.error else ""
            told = f"{where}: {line}" if where else line
            return signature(kind, f"{told}\n{fix}" if fix else told)
        if episode.fault and episode.fault.message:
            return signature(kind, episode.fault.message)
        last = self.course.answer
        answer = episode.events[last].content if last is not None else ""
        return signature(kind, f"{episode.outcome}: {episode.task or answer or episode.id}")

    @property
    def tool(self) -> str:
        """The tool of the step that explains most; "" where none was called."""
        places = [one.at for one in (self.reason, self.step) if one is not None]
        return next(filter(None, (self.episode.events[at].tool for at in places)), "")

    def decisive(self) -> list[int]:
        """The positions of events that tell most, the most telling first, each once."""
        found: dict[int, None] = {}
        reason = self.reason
        for at in (
            *(reason.evidence if reason else ()),
            *(self.step.evidence if self.step else ()),
        ):
            found[at] = None
        for one in sorted(self.signals, key=lambda one: -one.strength):
            found.update(dict.fromkeys(one.evidence))
        for step in self.attribution.steps[1:3]:
            found.update(dict.fromkeys(step.evidence))
        count = len(self.episode.events)
        ends = (self.course.answer, count - 1, 0)
        found.update((at, None) for at in ends if at is not None and 0 <= at < count)
        return list(found)

    def trust_at(self, at: int) -> Trust:
        """From whom the words of an event are."""
        event, own = self.episode.events[at], self.episode.source == LOOP
        return self.given if event.type in GIVEN else trust_of(event, own)

    def trust_in(self, words: Iterable[str]) -> Trust:
        """The trust of what is made of these, of a model's at most.

        Words derive from all that was said before they came up: an agent may repeat in its own way
        what a tool told it, be it as the name of a tool or of an argument.
        """
        return lowest_trust(("model", *(self.floor(self._first(one)) for one in words if one)))

    def floor(self, at: int) -> Trust:
        """The lowest trust of the events up to this position, which what stands there rests on.

        -1 is the task, and behind the last event nobody knows.
        """
        events = self.episode.events
        if at < 0:
            return self.given
        if at >= len(events):
            return "model" if self.episode.source == LOOP else "external"
        return lowest_trust(("operator", *map(self.trust_at, range(at + 1))))

    def _first(self, fragment: str) -> int:
        """Where a text came up first: -1 is the task, the number of events nowhere in them.

        The names of the tools that were offered came with the task.
        """
        episode, fragment = self.episode, fragment.casefold()
        offered = (one.casefold() for one in episode.tools)
        if fragment in f"{episode.task}\n{episode.goal}".casefold() or fragment in offered:
            return -1
        for at, event in enumerate(episode.events):
            if (
                fragment
                in f"{event.tool}\n{event.agent}\n{event.code}\n{text_of(event)}".casefold()
            ):
                return at
        return len(episode.events)


def study(episode: Episode, given: Trust = "external") -> Study:
    """What a program finds in an episode; linear in its events but for a sort of its steps."""
    episode = unlearnt(episode)
    seen = course(episode)
    own: Trust = "model" if episode.source == LOOP else given
    return Study(episode, seen, of(seen), ranked(seen, GROUNDS), own)


def unlearnt(episode: Episode, ours: frozenset[int] = frozenset()) -> Episode:
    """The episode without what heedful put into its prompts: as text, or at these positions."""
    events = tuple(_without(event, at in ours) for at, event in enumerate(episode.events))
    changed = any(one is not other for one, other in zip(events, episode.events, strict=True))
    return replace(episode, events=events) if changed else episode


def _without(event: Event, ours: bool) -> Event:
    if ours:
        return replace(event, content="")
    if "(data, not instructions):\n--- " not in event.content:
        return event
    return replace(event, content=_OURS.sub("", event.content).strip())


def turns(episode: Episode) -> Iterator[tuple[int, str, str]]:
    """Each user's turn that an answer follows, as worked examples do: position, turn and answer."""
    for at, event in enumerate(episode.events[:-1]):
        after = episode.events[at + 1]
        if event.type == "user_message" and after.type == "llm_response":
            yield at, event.content, after.content

"""A study of an episode: its signals, the decisive one, and whose words it has.

`Study.of` analyses an episode by program. `reason` is the signal that best explains the
failure, `main_signals` are what a reflection is about, and `signature` identifies the
failure in memory. What an event says `is_outside` if its source is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from dataclasses import dataclass, replace

from heedful.episodes import course as trace
from heedful.episodes.course import Course
from heedful.episodes.episode import LOOP_SOURCE, Episode
from heedful.episodes.error_lines import error_line
from heedful.episodes.origins import fix_origin, is_outside_at, sources_at
from heedful.episodes.signals import Kind, Signal, signals_of
from heedful.lessons.lesson import Signature
from heedful.lessons.origin import Origin
from heedful.lessons.signature import signature

# Kinds of signals by how much a reader learns from them, most first: a retry that
# worked shows what to do, and a failure what not to do.
REASON_ORDER: tuple[Kind, ...] = (
    "corrected",
    "retry",
    "unknown_tool",
    "timeout",
    "cause",
    "repeated",
    "answer",
)
# The kinds of signals that show what worked.
FIX_KINDS: tuple[Kind, ...] = ("corrected", "retry")
# How many failures that have nothing to do with each other a reflection describes.
MAX_UNRELATED_FAILURES = 2
# A longer message holds more than its author typed. Of what people wrote to coding
# agents, 81 % has one line of at most 300 characters.
MAX_TYPED_CHARS = 300
# A category of an error that is shown: a plain name, such as "timeout_error".
_CATEGORY_PATTERN = re.compile(r"[A-Za-z][\w.-]{0,39}")
# The block of lessons that `heedful.lessons.ranking.as_text` puts into a prompt: a line
# as heading, the first delimiter with its random mark, and all up to the delimiter
# "--- end MARK", or to the end of a text that was cut before it.
_LESSON_BLOCK_SIGN = ":\n--- "
_LESSON_BLOCK_PATTERN = re.compile(
    r"[^\n]*:\n--- [^\n]*? (?P<mark>[0-9a-f]{8,64})(?: [^\n]*)?\n"
    r".*?(?:\n--- end (?P=mark)|\Z)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """An episode with what was found in it: its course, and its signs of mistakes.

    `origin` is that of who hands in the run: of a run from "outside", all words are.
    `stated` are the names of sources that people stated, and `strict` is that of the
    memory.
    """

    episode: Episode
    course: Course
    signals: tuple[Signal, ...]
    origin: Origin = "user"
    stated: Set[str] = frozenset()
    strict: bool = False

    @classmethod
    def of(
        cls,
        episode: Episode,
        origin: Origin = "user",
        stated: Set[str] = frozenset(),
        strict: bool = False,
    ) -> Study:
        """Study an episode, in time linear in the number of its events."""
        episode = remove_lessons(episode)
        run = trace.course(episode)
        return cls(
            episode=episode,
            course=run,
            signals=signals_of(run),
            origin=origin,
            stated=stated,
            strict=strict,
        )

    def is_outside(self, position: int) -> bool:
        """Return True if the words of an event are from outside."""
        return is_outside_at(self.course, position, self.stated)

    def fix_origin(self, steps: Iterable[int]) -> Origin:
        """Return the origin of the steps that put a failure right."""
        return fix_origin(self.course, steps, self.stated, self.strict)

    @property
    def asked(self) -> str:
        """The task, with what the user typed first if that says more.

        A task is often a title, or the beginning of the message. A longer message is
        left out, as it may hold what others wrote.
        """
        task = self.episode.task
        events = self.episode.events
        messages = (
            e.content for e in events if e.type == "user_message" and not e.origin
        )
        prompt = next(messages, "").strip()
        is_typed = len(prompt) <= MAX_TYPED_CHARS and "\n" not in prompt
        if not task or not is_typed or prompt in task:
            return task
        if task in prompt:
            return prompt
        return f"{task}\n{prompt}"

    @property
    def reason(self) -> Signal | None:
        """The signal that best explains the failure; None without signals.

        Among signals of the same kind, it is the one that cost the most steps. If the
        last call failed, only signals about it count.
        """
        candidates = self.signals
        results = [result for result in self.course.result if result is not None]
        last_result = max(results, default=None)
        if last_result is not None and self.course.failure[last_result]:
            fatal = [s for s in self.signals if last_result in s.evidence]
            candidates = tuple(fatal) or self.signals

        return min(candidates, key=_reason_rank, default=None)

    @property
    def failure(self) -> tuple[int, str]:
        """The position and the error line of the failure that `reason` is about.

        They are (-1, "") if it is about no failure.
        """
        run = self.course
        reason = self.reason
        if reason is None:
            return -1, ""

        for step in reason.evidence:
            for position in (step, run.result[step]):
                if position is not None and run.failure[position]:
                    return position, error_line(run.failure[position])
        return -1, ""

    @property
    def main_signals(self) -> tuple[Signal, ...]:
        """The signals that a reflection describes: the reason, and other failures.

        They are in the order of their events.
        """
        reason = self.reason
        if reason is None:
            return ()
        if reason.kind not in (*FIX_KINDS, "cause"):
            return (reason,)

        # The reason first, then each failure that shares no step with an earlier one.
        failures = [s for s in self.signals if s.kind in (*FIX_KINDS, "cause")]
        failures.sort(key=lambda s: (s != reason, REASON_ORDER.index(s.kind)))
        unrelated: list[Signal] = []
        covered: set[int] = set()
        for signal in failures:
            steps = set(map(self.course.step_of, signal.evidence))
            if not steps & covered:
                unrelated.append(signal)
            covered |= steps

        described = unrelated[:MAX_UNRELATED_FAILURES]
        return tuple(sorted(described, key=lambda signal: signal.evidence))

    def failed_steps(self, signal: Signal) -> tuple[int, ...]:
        """Return the positions of the failed steps that a signal is about, in order."""
        steps = dict.fromkeys(map(self.course.step_of, signal.evidence))
        return tuple(step for step in steps if trace.call_failed(self.course, step))

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources of the events, such as programs.

        A loop of this installation has none.
        """
        if self.episode.source == LOOP_SOURCE:
            return ()
        sources: set[str] = set()
        for position in range(len(self.course.events)):
            sources |= sources_at(self.course, position)
        return tuple(sorted(sources))

    @property
    def category(self) -> str:
        """The category of the error that ended the run if it is a plain name, else "".

        The category is shown even while the lesson is quarantined, so it must not
        contain other text.
        """
        fault = self.episode.fault
        if fault is None or not _CATEGORY_PATTERN.fullmatch(fault.category):
            return ""
        return fault.category

    @property
    def signature(self) -> Signature:
        """The signature of the failure, or else of the final error, or of the task."""
        episode = self.episode
        position, line = self.failure
        if line:
            event = episode.events[position]
            place = self.tool or event.code
            text = f"{place}: {line}" if place else line
            # The same message of a check with another fix is another mistake.
            if episode.source == LOOP_SOURCE and event.error and event.content:
                text = f"{text}\n{event.content}"
            return signature(self.category or "error", text)

        kind = self.category or episode.outcome
        if episode.fault and episode.fault.message:
            return signature(kind, episode.fault.message)

        # Without an error, the outcome and the task, or else the answer, tell it apart.
        subject = episode.task
        if not subject and self.course.answer is not None:
            subject = episode.events[self.course.answer].content
        return signature(kind, f"{episode.outcome}: {subject or episode.id}")

    @property
    def tool(self) -> str:
        """The tool that failed, or else the tool that the reason is about, or ""."""
        if self.reason is None:
            return ""
        position, _ = self.failure
        step = self.reason.at if position < 0 else self.course.step_of(position)
        return self.episode.events[step].tool


def _reason_rank(signal: Signal) -> tuple[int, float, int]:
    """Return a sort key that puts the signal that explains most first.

    Among signals of one kind and strength, it puts the one with the longest way from
    its first to its last event first.
    """
    span = signal.evidence[-1] - signal.evidence[0]
    return REASON_ORDER.index(signal.kind), -signal.strength, -span


def remove_lessons(episode: Episode, ours: frozenset[int] = frozenset()) -> Episode:
    """Remove what looks like lessons that heedful put into prompts.

    Anybody can write so: a tool's words keep them. The events at the positions `ours`
    lose their whole content.
    """
    prompts = trace.SURROUNDING_EVENTS
    events = list(episode.events)
    for position, event in enumerate(events):
        if position in ours:
            events[position] = replace(event, content="")
        elif (
            _LESSON_BLOCK_SIGN in event.content
            and event.type in prompts
            and not event.origin
        ):
            content = _LESSON_BLOCK_PATTERN.sub("", event.content).strip()
            events[position] = replace(event, content=content)
    return replace(episode, events=tuple(events))

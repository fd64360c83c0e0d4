"""A study of an episode: its signals, the decisive one, and whose words it has.

`Study.of` analyses an episode by program. `reason` is the signal that best explains the
failure, `main_signals` are what a reflection is about, and `signature` identifies the
failure in memory. `floor` returns how far words from some events can be trusted: no
more than any event before them, because an agent repeats what it has read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from heedful.episodes import course as trace
from heedful.episodes import sources as origins
from heedful.episodes.course import Course
from heedful.episodes.episode import LOOP_SOURCE, Episode
from heedful.episodes.error_lines import error_line
from heedful.episodes.signals import Kind, Signal, signals_of
from heedful.lessons.lesson import Signature, Trust
from heedful.lessons.signature import signature
from heedful.lessons.trust import lowest_trust, source_trust

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

    `written` is its course with all that prompts said, also what looks like lessons.
    `origins` are the sources of its events. `task_trust` is the trust of the task, and
    of what users and prompts say. `stated` is the trust of sources, as
    `Memory.set_trust` states it.
    """

    episode: Episode
    course: Course
    written: Course
    signals: tuple[Signal, ...]
    origins: origins.Origins
    task_trust: Trust = "external"
    stated: Mapping[str, Trust] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        episode: Episode,
        trust: Trust = "external",
        stated: Mapping[str, Trust] = MappingProxyType({}),
    ) -> Study:
        """Study an episode, in time linear in the number of its events.

        `trust` is the trust of the task. If it is "external", which says nothing about
        the user, the task has the trust that `stated` has for the user.
        """
        written = trace.course(episode)
        episode = remove_lessons(episode)
        run = trace.course(episode)

        if episode.source == LOOP_SOURCE:
            trust = "model"
        elif trust == "external":
            trust = stated.get("user", trust)

        return cls(
            episode=episode,
            course=run,
            written=written,
            signals=signals_of(run),
            origins=origins.Origins(run),
            task_trust=trust,
            stated=stated,
        )

    @property
    def asked(self) -> str:
        """The task, with what the user typed first if that says more.

        A task is often a title, or the beginning of the message. A longer message is
        left out, as it may hold what others wrote.
        """
        task = self.episode.task
        events = self.episode.events
        messages = (e.content for e in events if e.type == "user_message")
        prompt = next(messages, "").strip()
        is_typed = len(prompt) <= origins.MAX_TYPED_CHARS and "\n" not in prompt
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
            sources |= self.origins.at(position)
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

    def floor(self, positions: Sequence[int]) -> Trust:
        """Return the trust of words that were drawn from the events at `positions`.

        It is the lowest trust of all events up to the last of these: an agent may
        repeat what a tool returned, even as the name of a tool or of an argument. Words
        that quote a document in a prompt are external, and so are those after one of
        which a part was not kept. A position after the last event
        stands for a text of unknown origin and is external, too.
        """
        episode = self.episode
        is_loop = episode.source == LOOP_SOURCE
        last = max(positions, default=-1)
        if last >= len(episode.events):
            return "model" if is_loop else "external"

        # Spans without times have no order, so each may come before the others.
        if episode.source == "otlp" and any(e.at is None for e in episode.events):
            last = len(episode.events) - 1

        if not is_loop and self.task_trust != "external":
            words = origins.words_of(self.course, positions)
            new_words = origins.new_words_of(self.course, positions)
            quoted = origins.find_quoted(self.written, [*words, *new_words]).values()
            prompts = [*quoted, *origins.unseen_pasted(self.written)]
            if any(prompt < last for prompt in prompts):
                return "external"

        trusts = [self._event_trust(position) for position in range(last + 1)]
        if episode.task or episode.goal:
            trusts.append(self.task_trust)
        return lowest_trust(("model", *trusts))

    def _event_trust(self, position: int) -> Trust:
        """Return the lowest trust of the sources of an event, at most a model's."""
        kind = self.episode.events[position].type
        is_loop = self.episode.source == LOOP_SOURCE
        # Checks write the errors of a loop; who wrote a summary is unknown.
        if is_loop and kind in ("summary", "error_event"):
            return "model"
        if kind == "summary":
            return "external"

        stated = {**self.stated, "user": self.task_trust}
        sources = self.origins.at(position)
        return lowest_trust(["model", *(source_trust(s, stated) for s in sources)])


def _reason_rank(signal: Signal) -> tuple[int, float, int]:
    """Return a sort key that puts the signal that explains most first.

    Among signals of one kind and strength, it puts the one with the longest way from
    its first to its last event first.
    """
    span = signal.evidence[-1] - signal.evidence[0]
    return REASON_ORDER.index(signal.kind), -signal.strength, -span


def remove_lessons(episode: Episode, ours: frozenset[int] = frozenset()) -> Episode:
    """Remove what looks like lessons that heedful put into prompts.

    Anybody can write so: a tool's words keep them, and whose words an agent repeats is
    asked of the prompts as they were. The events at the positions `ours` lose their
    whole content.
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

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
from itertools import chain
from types import MappingProxyType

from heedful.lessons.lesson import Signature, Trust
from heedful.lessons.signature import signature
from heedful.lessons.trust import lowest_trust, source_trust
from heedful.traces import signals as trace
from heedful.traces.episode import LOOP_SOURCE, Episode
from heedful.traces.error_lines import error_line
from heedful.traces.signals import Course, Kind, Signal

# The most useful come first: a retry that worked shows what to do, a failure what not
# to do.
REASON_ORDER: tuple[Kind, ...] = (
    "retry",
    "unknown_tool",
    "timeout",
    "cause",
    "repeated",
    "answer",
)
# How many failures that have nothing to do with each other a reflection describes.
MAX_UNRELATED_FAILURES = 2
# The block that `heedful.lessons.ranking.as_text` puts into a prompt; a cut text may
# lack its end.
_LESSON_BLOCK_PATTERN = re.compile(
    r"(?:Lessons|Accepted)[\w ]* earlier tasks \(data, not instructions\):\n"
    r"--- [^\n]*? (?P<mark>[0-9a-f]{8,64})(?: [^\n]*)?\n.*?(?:\n--- end (?P=mark)|\Z)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """An episode with its course and signals.

    `task_trust` is the trust of the task, and of what users and prompts say. `stated`
    is the trust of sources, as `Memory.set_trust` states it.
    """

    episode: Episode
    course: Course
    signals: tuple[Signal, ...]
    task_trust: Trust = "external"
    stated: Mapping[str, Trust] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        episode: Episode,
        trust: Trust = "external",
        stated: Mapping[str, Trust] = MappingProxyType({}),
    ) -> Study:
        """Study an episode, in time linear in the number of its events."""
        episode = remove_lessons(episode)
        run = trace.course(episode)
        if episode.source == LOOP_SOURCE:
            trust = "model"
        elif trust == "external":
            trust = stated.get("user", trust)
        return cls(
            episode=episode,
            course=run,
            signals=trace.signals_of(run),
            task_trust=trust,
            stated=stated,
        )

    @property
    def reason(self) -> Signal | None:
        """The signal that best explains the failure; None without signals.

        Of signals of the same kind, it is the one that cost most steps. If the last
        call failed, only signals about it count.
        """
        run = self.course
        signals = self.signals
        results = (result for result in run.result if result is not None)
        last = max(results, default=-1)
        if last >= 0 and run.failure[last]:
            fatal = tuple(signal for signal in signals if last in signal.evidence)
            signals = fatal or signals

        def rank(signal: Signal) -> tuple[int, float, int]:
            span = signal.evidence[0] - signal.evidence[-1]
            return REASON_ORDER.index(signal.kind), -signal.strength, span

        return min(signals, key=rank, default=None)

    @property
    def failure(self) -> tuple[int, str]:
        """The position and the text of the failure of `reason`; (-1, "") if none."""
        run = self.course
        evidence = self.reason.evidence if self.reason else ()
        for position in evidence:
            for place in (position, run.result[position]):
                if place is not None and run.failure[place]:
                    return place, error_line(run.failure[place])
        return -1, ""

    @property
    def main_signals(self) -> tuple[Signal, ...]:
        """The signals that a reflection describes: the reason, and failures beside it.

        They are in the order of their events.
        """
        reason = self.reason

        def rank(signal: Signal) -> tuple[bool, int]:
            return signal != reason, REASON_ORDER.index(signal.kind)

        failures: list[Signal] = []
        covered: set[int] = set()
        for signal in sorted(self.signals, key=rank):
            if signal.kind in ("retry", "cause"):
                steps = {*map(self.course.step_of, signal.evidence)}
                if not steps & covered:
                    failures.append(signal)
                covered |= steps
        if reason in failures:
            unrelated = failures[:MAX_UNRELATED_FAILURES]
            return tuple(sorted(unrelated, key=lambda signal: signal.evidence))
        return (reason,) if reason else ()

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
        positions = range(len(self.course.events))
        sources = (trace.sources_at(self.course, position) for position in positions)
        return tuple(sorted(set(chain.from_iterable(sources))))

    @property
    def category(self) -> str:
        """The category of the error that ended the run if it is a plain name, else "".

        The category is shown even while the lesson is quarantined, so it must not
        contain other text.
        """
        category = self.episode.fault.category if self.episode.fault else ""
        return category if re.fullmatch(r"[A-Za-z][\w.-]{0,39}", category) else ""

    @property
    def signature(self) -> Signature:
        """The signature of the failure, of the final error, or of outcome and task."""
        episode = self.episode
        place, line = self.failure
        kind = self.category or ("error" if line else episode.outcome)
        if line:
            event = episode.events[place]
            where = self.tool or event.code
            text = f"{where}: {line}" if where else line
            # The same message of a check with another fix is another mistake.
            fix = event.content if episode.source == LOOP_SOURCE and event.error else ""
            text = f"{text}\n{fix}" if fix else text
            return signature(kind, text)

        if episode.fault and episode.fault.message:
            return signature(kind, episode.fault.message)
        last = self.course.answer
        answer = episode.events[last].content if last is not None else ""
        subject = episode.task or answer or episode.id
        return signature(kind, f"{episode.outcome}: {subject}")

    @property
    def tool(self) -> str:
        """The tool that the reason is about, or ""."""
        return self.episode.events[self.reason.at].tool if self.reason else ""

    def floor(self, places: Sequence[int]) -> Trust:
        """Return the trust of words from these positions.

        It is the lowest of all events up to the last position: an agent may repeat what
        a tool returned, even as the name of a tool or of an argument. If the words
        quote a document in a prompt, they are external. So is a position after the last
        event, which stands for a text of unknown origin. Spans without times have no
        order.
        """
        episode = self.episode
        is_loop = episode.source == LOOP_SOURCE
        last = max(places, default=-1)
        count = len(episode.events)
        if last >= count:
            return "model" if is_loop else "external"

        if episode.source == "otlp" and any(
            event.at is None for event in episode.events
        ):
            last = count - 1
        if not is_loop and self.task_trust != "external":
            quoted = trace.find_quoted(self.course, trace.words_of(self.course, places))
            if any(place < last for place in quoted.values()):
                return "external"

        task_trust = self.task_trust if episode.task or episode.goal else "model"
        event_trusts = map(self._event_trust, range(last + 1))
        return lowest_trust(("model", task_trust, *event_trusts))

    def _event_trust(self, position: int) -> Trust:
        kind = self.episode.events[position].type
        is_loop = self.episode.source == LOOP_SOURCE
        # Checks write the errors of loops.
        if kind == "summary" or (is_loop and kind == "error_event"):
            return "model" if is_loop else "external"
        trusts = (
            self.task_trust if source == "user" else source_trust(source, self.stated)
            for source in trace.sources_at(self.course, position)
        )
        return lowest_trust(("model", *trusts))


def remove_lessons(episode: Episode, ours: frozenset[int] = frozenset()) -> Episode:
    """Remove lessons from prompts, and the whole content of the events at `ours`."""
    events = list(episode.events)
    for position, event in enumerate(events):
        if position in ours:
            events[position] = replace(event, content="")
        elif "(data, not instructions):\n--- " in event.content:
            content = _LESSON_BLOCK_PATTERN.sub("", event.content).strip()
            events[position] = replace(event, content=content)
    return replace(episode, events=tuple(events))

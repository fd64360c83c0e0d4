"""A study of an episode: its mistakes, the main one, and whose words it has.

`Study.of` analyses an episode by program. `main` is the mistake that a reflection is
about, and `signature` identifies it in memory. Who hands in a run states its tools,
whatever they are called: what an event says `is_outside` only if the event has this
origin.
"""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from heedful.episodes import course as trace
from heedful.episodes.course import Course
from heedful.episodes.episode import Episode
from heedful.episodes.origins import is_outside_at, sources_in
from heedful.episodes.run_mistakes import FoundMistake, MistakeFinder
from heedful.episodes.signals import Signal, signals_of
from heedful.lessons.lesson import Signature
from heedful.lessons.mistake import Mistake, with_origin
from heedful.lessons.origin import NETWORK_SOURCE, Origin, is_outside
from heedful.lessons.signature import signature

# A longer message holds more than its author typed. Of what people wrote to coding
# agents, 81 % has one line of at most 300 characters.
MAX_TYPED_CHARS = 300
# A category of an error that is shown: a plain name, such as "timeout_error".
_CATEGORY_PATTERN = re.compile(r"[A-Za-z][\w.-]{0,39}")
# The block of lessons that `heedful.lessons.render.as_text` puts into a prompt: a line
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
    """An episode with what was found in it: its course, and its mistakes.

    `errors` are those of each failed call, without the names that the run made, and
    `digests` those of their signatures.
    `origin` is that of who hands in the run: of a run from "outside", all words are.
    `stated` are the names of sources that people stated, with those of the run, and
    `strict` is that of the memory.
    """

    episode: Episode
    course: Course
    mistakes: tuple[FoundMistake, ...]
    errors: Mapping[int, Sequence[str]]
    digests: Mapping[int, tuple[str, ...]]
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
    ) -> "Study":
        """Study an episode, that is a run of an agent; return what was found in it.

        `origin` is that of who hands in the run, `stated` are the names of sources that
        people declared to be their own, and `strict` is that of the memory. The time is
        linear in the number of events.
        """
        episode = remove_lessons(episode)
        run = trace.course(episode)
        finder = MistakeFinder(run)
        # Who hands in the run vouches for its tools, but not for text of
        # unknown origin.
        own_sources = sources_in(run) - {NETWORK_SOURCE}
        return cls(
            episode=episode,
            course=run,
            mistakes=tuple(finder.found),
            errors=finder.errors_without_names(),
            digests=finder.digests(),
            signals=signals_of(run),
            origin=origin,
            stated=stated | own_sources,
            strict=strict,
        )

    def is_outside(self, position: int) -> bool:
        """Return True if the words of an event are from outside."""
        return is_outside_at(self.course, position, self.stated)

    def record(self, found: FoundMistake) -> Mistake:
        """Return a mistake with the origins of its parts."""
        mistake = found.with_origins(self.course, self.stated, self.strict)
        return with_origin(mistake, "outside") if self.origin == "outside" else mistake

    @property
    def asked(self) -> str:
        """The task, with the user's first message if that says more.

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
        return prompt if task in prompt else f"{task}\n{prompt}"

    @property
    def main(self) -> FoundMistake | None:
        """The mistake that best explains how the run ended; None without mistakes.

        One whose fix is known says most, then the one that cost most.
        """
        return min(self.mistakes, key=_rank, default=None)

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources of the events, such as programs, sorted.

        Sources from outside are left out, as who hands in a run vouches for its tools.
        Only "network", that is text of unknown origin, stays.
        """
        sources = sources_in(self.course)
        return tuple(
            sorted(
                source
                for source in sources
                if source == NETWORK_SOURCE or not is_outside(source)
            )
        )

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
        """What identifies the run's lessons: the signature of its main mistake.

        Without a mistake, that of the outcome and the task, else of the answer or the
        id.
        """
        if self.main is not None:
            return self.main.signature
        episode = self.episode
        subject = episode.task
        if not subject and self.course.answer is not None:
            subject = episode.events[self.course.answer].content
        return signature("", f"{episode.outcome}: {subject or episode.id}")


def _rank(finding: FoundMistake) -> tuple[bool, bool, bool, int, int]:
    """Return a sort key that puts the mistake that explains most first.

    That is one with a fix, then one whose call or at least whose error is known, and
    then the one that cost most calls.
    """
    mistake = finding.mistake
    is_bare = mistake.action is None or not mistake.action.tool
    is_mute = is_bare and not mistake.error
    return mistake.fix is None, is_bare, is_mute, -mistake.tries, -mistake.steps


def remove_lessons(episode: Episode, ours: frozenset[int] = frozenset()) -> Episode:
    """Return an episode without what looks like lessons that heedful put into prompts.

    Otherwise they would be learnt as if the run had said them. Only prompts and the
    like lose them: a tool may write such a block as well, and its words stay. The
    events at the positions `ours` lose their whole content.
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

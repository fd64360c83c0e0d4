"""Recurrences: what went wrong repeatedly with the same thing, and the cures. Pure.

A thing is a tool, a file or an error that lessons name where they say what
failed. Failures with one thing recur if at least three of them, of at least two runs,
came back in another run or were put right by a call that can be repeated, and at least
two were put right. An edit of a file is no such call: in the sessions of coding agents
that `make quality ONLY=dream` reads, 23 of 29 groups were held together by a file and
the edits of it, and those helped nobody. Nor did a group with a single cure.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from operator import attrgetter

from heedful.lessons import render
from heedful.lessons.consolidate import DreamLesson
from heedful.lessons.lesson import Signature, digest_of
from heedful.lessons.links import (
    LessonWords,
    Link,
    is_shell,
    link_lesson,
    weigh_links,
)
from heedful.lessons.silence import say
from heedful.loop.runs import iso
from heedful.sanitize import clean

MIN_RECURRING_FAILURES = 3
MIN_RECURRING_RUNS = 2
MIN_CURED_FAILURES = 2
MAX_CITED_FAILURES = 6
MAX_ACCOUNT_CHARS = 360
MAX_CURE_CHARS = 160
# The error type of a reflection of a dream, which is its outcome, too.
PARTIAL_OUTCOME = "partial"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What a lesson says went wrong, and the `cure`, if it stands apart.

    `digest` names the failure, which several lessons may be about. `runs` are those in
    which it was seen. `is_cured` is true if the lesson says what put it right.
    """

    lesson: DreamLesson
    digest: str
    text: str
    cure: str
    is_cured: bool
    runs: frozenset[str]

    def __str__(self) -> str:
        runs = "1 run" if len(self.runs) == 1 else f"{len(self.runs)} runs"
        cure = f"; what put it right: {self.cure}" if self.cure else ""
        return f"- {self.text}{cure} ({runs}, lesson {self.lesson.id})"

    @property
    def order(self) -> tuple[int, bool, int]:
        """A sort key that puts the failure first that came back most often."""
        return -len(self.runs), not self.is_cured, self.lesson.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """A reflection to write: its text, and the lessons that it cites.

    `why` says what they have in common. `signature` depends on the thing, the lessons
    and their words, but not on how often they were seen.
    """

    text: str
    cited: tuple[DreamLesson, ...]
    why: str
    signature: Signature

    @property
    def cited_ids(self) -> tuple[int, ...]:
        """The ids of the lessons that it cites."""
        return tuple(lesson.id for lesson in self.cited)


@dataclass(frozen=True, slots=True)
class Recurrences:
    """The reflections to write; `silence` says why there are none."""

    reflections: tuple[Recurrence, ...] = ()
    _: KW_ONLY
    silence: str = ""


def find_recurrences(
    lessons: Mapping[int, DreamLesson],
    words: Iterable[LessonWords],
    runs: Mapping[int, Collection[str]],
    now: float,
) -> Recurrences:
    """Return the reflections that these lessons call for, by the thing.

    `lessons` may be cited, by id; `words` are those of all lessons in use, and `runs`
    the runs that saw each lesson. A failure that one reflection cites does not count
    for another one.
    """
    linked = [(lesson, link_lesson(_failing_words(lesson))) for lesson in words]
    weights = weigh_links([account for _, account in linked])

    groups: dict[Link, list[Failure]] = defaultdict(list)
    for lesson, account in linked:
        if lesson.id not in lessons:
            continue
        failure = _failure_of(lessons[lesson.id], runs.get(lesson.id, ()))
        if failure.is_cured or len(failure.runs) >= MIN_RECURRING_RUNS:
            for link in account.links:
                if weights[link] and not is_shell(link.name):
                    groups[link].append(failure)

    distinct = {link: _distinct_failures(group) for link, group in groups.items()}
    order = sorted(distinct, key=lambda link: (-len(distinct[link]), link))
    recurrences = []
    cited = set[int]()
    for link in order:
        failures = distinct[link][:MAX_CITED_FAILURES]
        new_ids = {failure.lesson.id for failure in failures} - cited
        if len(new_ids) < MIN_RECURRING_FAILURES or not _recur(failures):
            continue
        recurrence = _reflect(link, failures, now)
        recurrences.append(recurrence)
        cited.update(recurrence.cited_ids)

    silence = "" if recurrences else _explain_silence(distinct)
    return Recurrences(tuple(recurrences), silence=silence)


def _failing_words(lesson: LessonWords) -> LessonWords:
    """Return the words that say what failed: without the cure and the type.

    The type of a lesson is a word of its caller and does not name a thing.
    """
    mistake = lesson.mistake and replace(lesson.mistake, fix=None)
    account = render.account(mistake) if mistake else lesson.text
    return lesson._replace(text=account, mistake=mistake, error_type="")


def _failure_of(lesson: DreamLesson, runs: Collection[str]) -> Failure:
    """Return what a lesson says about a failure."""
    mistake = lesson.mistake
    account = render.account(mistake) if mistake else lesson.text
    cure = ""
    is_edited = False
    if mistake is not None and mistake.fix is not None:
        is_edited = mistake.fix.kind == "edit"
        if not is_edited:
            cure = clean("; ".join(render.fix_lines(mistake)), MAX_CURE_CHARS)

    is_cured = bool(cure) or lesson.mended or lesson.state == "verified"
    first_line = account.strip().partition("\n")[0]
    return Failure(
        lesson=lesson,
        digest=lesson.failure or lesson.signature,
        text=clean(first_line, MAX_ACCOUNT_CHARS).rstrip("."),
        cure=cure.rstrip("."),
        is_cured=is_cured and not is_edited,
        runs=frozenset(runs),
    )


def _distinct_failures(failures: Iterable[Failure]) -> list[Failure]:
    """Return the failures that differ, those first that came back most often.

    Lessons with one cure are about one failure. Those without a cure are about one
    failure if they were seen in the same runs: they quote other lines of one output.
    """
    in_order = sorted(failures, key=attrgetter("order"))
    by_digest: dict[str, Failure] = {}
    for failure in sorted(in_order, key=attrgetter("is_cured"), reverse=True):
        by_digest.setdefault(failure.digest, failure)

    distinct: dict[str | frozenset[str], Failure] = {}
    for failure in sorted(by_digest.values(), key=attrgetter("order")):
        words = failure.cure or failure.text
        distinct.setdefault(words if failure.is_cured else failure.runs, failure)
    return list(distinct.values())


def _recur(failures: Sequence[Failure]) -> bool:
    """Return True if failures with one thing call for a reflection."""
    runs = frozenset[str]().union(*(failure.runs for failure in failures))
    cured = [failure for failure in failures if failure.is_cured]
    return (
        len(failures) >= MIN_RECURRING_FAILURES
        and len(runs) >= MIN_RECURRING_RUNS
        and len(cured) >= MIN_CURED_FAILURES
    )


def _reflect(link: Link, failures: Sequence[Failure], now: float) -> Recurrence:
    """Return the reflection on failures with one thing."""
    runs = frozenset[str]().union(*(failure.runs for failure in failures))
    day = iso(now).partition("T")[0]
    head = (
        f"What went wrong with the {link} in {len(runs)} runs, up to {day}, and what "
        "put it right:"
    )
    lessons = {failure.lesson.id: failure.lesson for failure in failures}
    cited = [lessons[id] for id in sorted(lessons)]
    words = [f"{lesson.id} {lesson.text}" for lesson in cited]
    exact = digest_of(str(link), "\n".join(words))
    return Recurrence(
        text="\n".join([head, *map(str, failures)]),
        cited=tuple(cited),
        why=f"{len(failures)} failures with the {link} in {len(runs)} runs",
        signature=Signature(
            exact,
            f"recurring: {link}",
            digest=exact,
            error_type=PARTIAL_OUTCOME,
        ),
    )


def _explain_silence(groups: Mapping[Link, Sequence[Failure]]) -> str:
    """Return why no group of failures calls for a reflection."""
    largest = max(groups, key=lambda link: len(groups[link]), default=None)
    if largest is None:
        return say("nothing recurs")

    count = len(groups[largest])
    if count < MIN_RECURRING_FAILURES:
        needed = MIN_RECURRING_FAILURES
        return say("too little recurs", count=count, link=largest, needed=needed)
    return say("no reflection", count=count, link=largest)

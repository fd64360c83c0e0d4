"""Consolidation: which rules others have superseded, and what recurs. Pure.

Rules about one failure that differ only in their numbers or in a negation contradict
each other: the newest of them stands. Lessons are never merged because they are alike.

A thing is a tool, a file or an error that lessons name where they say what
failed. Failures with one thing recur if at least three of them, of at least two runs,
came back in another run or were put right by a call that can be repeated, and at least
two were put right. An edit of a file is no such call: in the sessions of coding agents
that `make quality ONLY=dream` reads, 23 of 29 groups were held together by a file and
the edits of it, and those helped nobody. Nor did a group with a single cure.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from operator import attrgetter
from typing import Literal, NamedTuple

from heedful.lessons import render
from heedful.lessons.lesson import Signature
from heedful.lessons.links import (
    LessonWords,
    Link,
    links_of,
    telling_links,
)
from heedful.lessons.mistake import Mistake
from heedful.lessons.origin import Origin, is_shell
from heedful.lessons.scope import MIN_SAME_RUNS, digest_of
from heedful.lessons.words import words
from heedful.loop.runs import iso
from heedful.loop.similarity import decisive_tokens
from heedful.sanitize import clean
from heedful.validation import MAX_LISTED_ITEMS

Action = Literal["supersede", "reflect"]
# The outcome of a proposal that only a person may carry out.
PERSON_OUTCOME = "for a person"
NUMBERS_DIFFER = "their numbers differ"
ONE_NEGATES = "one negates what the other says"


class Statement(NamedTuple):
    """What a rule says: its numbers, whether it negates, and its other words."""

    numbers: tuple[str, ...]
    negates: bool
    words: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> "Statement":
        """Return the numbers of a text, whether it negates, and its other words.

        Two negations cancel each other, so the text negates if it has an odd number.
        """
        rest = text
        numbers = []
        negates = False
        for token in decisive_tokens(text):
            rest = rest.replace(token, " ", 1)
            if any(map(str.isdigit, token)):
                numbers.append(token.lower())
            # The other tokens are operators, such as "<=".
            elif token.isascii() and token[0].isalpha():
                negates = not negates
        return cls(tuple(numbers), negates, tuple(words(rest)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DreamLesson:
    """A lesson for consolidation; its times are in seconds since 1970.

    If `held`, a part of it is in quarantine. It is `mended` if it says what worked in
    its run. `by` is the author of its words. A strategy is about the `failure` with
    this digest; for other lessons, it is "".
    """

    id: int
    kind: str
    signature: str
    text: str
    state: str
    trust: Origin
    failure: str = ""
    by: str = ""
    pinned: bool = False
    held: bool = False
    mended: bool = False
    first_seen: float = 0.0
    last_seen: float = 0.0
    mistake: Mistake | None = None

    @property
    def name(self) -> str:
        """The kind and the signature, which name the lesson even when it is deleted."""
        return f"{self.kind}/{self.signature}"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed change to the lessons with the ids in `members`.

    After "supersede" the `survivor` stands in place of the members: a newer rule, or a
    newer reflection. After "reflect" the members stay, and the `survivor` is the
    reflection that cites them; its id is below 0 until it is written. `outcome` is
    "done", "proposed" (a dry run), "for a person", or why nothing was done.
    """

    action: Action
    members: tuple[int, ...]
    _: KW_ONLY
    survivor: int = 0
    why: str = ""
    outcome: str = "proposed"


def find_superseded(lessons: Iterable[DreamLesson]) -> Iterator[Proposal]:
    """Yield a proposal for each rule that a newer rule contradicts.

    Rules are lessons of the kinds "check" and "strategy". Two contradict each other if
    they are about the same failure, are of the same origin, and differ only in their
    numbers or in a negation. The newest of such rules stands. A pinned rule is only
    reported: replacing it is left to a person.
    """
    # A subject is all that rules must share to contradict each other.
    by_subject: dict[object, list[DreamLesson]] = defaultdict(list)
    for lesson in lessons:
        if lesson.kind in ("check", "strategy"):
            statement = Statement.of(lesson.text)
            failure = lesson.failure or lesson.signature
            subject = (failure, lesson.trust, len(statement.numbers), statement.words)
            by_subject[subject].append(lesson)

    for rules in by_subject.values():
        rules.sort(key=attrgetter("last_seen", "first_seen", "id"), reverse=True)
        newest = Statement.of(rules[0].text)
        for rule in rules[1:]:
            statement = Statement.of(rule.text)
            if statement != newest:
                why = NUMBERS_DIFFER
                if statement.numbers == newest.numbers:
                    why = ONE_NEGATES
                yield Proposal(
                    "supersede",
                    (rule.id,),
                    survivor=rules[0].id,
                    why=why,
                    outcome=PERSON_OUTCOME if rule.pinned else "proposed",
                )


MIN_RECURRING_FAILURES = 3
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

    @property
    def order(self) -> tuple[int, bool, int]:
        """A sort key that puts the failure first that came back most often."""
        return -len(self.runs), not self.is_cured, self.lesson.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """A reflection to write: its text, and the ids of the lessons that it cites.

    `why` says what they have in common. `signature` depends on the thing, the lessons
    and their words, but not on how often they were seen.
    """

    text: str
    cited_ids: tuple[int, ...]
    why: str
    signature: Signature


def find_recurrences(
    lessons: Mapping[int, DreamLesson],
    words: Iterable[LessonWords],
    runs: Mapping[int, Collection[str]],
    now: float,
) -> list[Recurrence]:
    """Return a reflection for each thing (a tool, a file, an error) that fails again.

    Such a thing has at least three failures that no reflection before it cites, seen in
    at least two runs, and at least two of those cited were put right. Things with most
    failures come first.

    `lessons` are those that may be cited, by id. `words` are those of all lessons in
    use, which say how common a thing is. `runs` are the runs that saw each lesson, by
    its id. `now` is in seconds since 1970.
    """
    links = {lesson.id: links_of(_failing_words(lesson)) for lesson in words}
    # A link names the thing that lessons share.
    groups = {
        link: _distinct_failures(failures)
        for link, failures in _failures_by_link(lessons, links, runs).items()
    }

    recurrences = []
    cited_ids = set[int]()
    for link in sorted(groups, key=lambda link: (-len(groups[link]), link)):
        failures = groups[link][:MAX_LISTED_ITEMS]
        new_ids = {failure.lesson.id for failure in failures} - cited_ids
        is_recurring = (
            len(new_ids) >= MIN_RECURRING_FAILURES
            and len(_runs_of(groups[link])) >= MIN_SAME_RUNS
        )
        # A group with a single cure has helped nobody.
        if is_recurring and sum(failure.is_cured for failure in failures) > 1:
            recurrence = _reflect(link, failures, now)
            recurrences.append(recurrence)
            cited_ids.update(recurrence.cited_ids)

    return recurrences


def _failures_by_link(
    lessons: Mapping[int, DreamLesson],
    links: Mapping[int, Sequence[Link]],
    runs: Mapping[int, Collection[str]],
) -> dict[Link, list[Failure]]:
    """Return the failures that lessons are about, by the thing that they name.

    A thing is a tool, a file or an error, as a link. Only failures count that were put
    right, or came back in another run. Left out are a shell, and things that most
    lessons name or only one: these have no weight.

    `lessons` are those that may be cited, by id. `links` are the things that lessons in
    use name, and `runs` the runs that saw each lesson, both by the lesson's id.
    """
    telling = telling_links(links.values())
    failures_by_link: dict[Link, list[Failure]] = defaultdict(list)
    for id, named_links in links.items():
        if id not in lessons:
            continue
        failure = _failure_of(lessons[id], runs.get(id, ()))
        if failure.is_cured or len(failure.runs) >= MIN_SAME_RUNS:
            for link in telling.intersection(named_links):
                if not is_shell(link.name):
                    failures_by_link[link].append(failure)
    return failures_by_link


def _failing_words(lesson: LessonWords) -> LessonWords:
    """Return the words of a lesson that say what failed.

    They lack the fix.
    """
    mistake = lesson.mistake and replace(lesson.mistake, fix=None)
    account = render.account(mistake) if mistake else lesson.text
    return lesson._replace(text=account, mistake=mistake)


def _failure_of(lesson: DreamLesson, runs: Collection[str]) -> Failure:
    """Return what a lesson says about a failure, which was seen in these `runs`.

    It is cured if the lesson says what put it right, if something worked in its run, or
    if it is verified. An edit is no cure, because it cannot be done again elsewhere.
    """
    mistake = lesson.mistake
    account = render.account(mistake) if mistake else lesson.text
    is_edited = bool(mistake and mistake.fix and mistake.fix.kind == "edit")
    cure = ""
    if mistake is not None and not is_edited:
        cure = clean("; ".join(render.fix_lines(mistake)), render.MAX_LINE_CHARS)

    is_cured = bool(cure) or lesson.mended or lesson.state == "verified"
    first_line = account.strip().partition("\n")[0]
    return Failure(
        lesson=lesson,
        digest=lesson.failure or lesson.signature,
        text=clean(first_line, render.MAX_LINE_CHARS).rstrip("."),
        cure=cure.rstrip("."),
        is_cured=is_cured and not is_edited,
        runs=frozenset(runs),
    )


def _distinct_failures(failures: Iterable[Failure]) -> list[Failure]:
    """Return the failures without repetitions, those that came back most often first.

    Lessons with the same digest or the same cure are about one failure. Those without a
    cure are about one failure if they were seen in the same runs: they quote different
    lines of one output.
    """
    in_order = sorted(failures, key=attrgetter("order"))
    by_digest: dict[str, Failure] = {}
    # Of each digest the first is taken: one that is cured, if there is any.
    for failure in sorted(in_order, key=attrgetter("is_cured"), reverse=True):
        by_digest.setdefault(failure.digest, failure)

    distinct: dict[str | frozenset[str], Failure] = {}
    for failure in sorted(by_digest.values(), key=attrgetter("order")):
        cure = failure.cure or failure.text
        distinct.setdefault(cure if failure.is_cured else failure.runs, failure)
    return list(distinct.values())


def _runs_of(failures: Iterable[Failure]) -> frozenset[str]:
    """Return the runs in which these failures were seen."""
    return frozenset[str]().union(*(failure.runs for failure in failures))


def _reflect(link: Link, failures: Sequence[Failure], now: float) -> Recurrence:
    """Return a reflection on failures that name the same thing, the `link`.

    It lists each failure with its cure, and cites the lessons. `now` is in seconds
    since 1970.
    """
    runs = _runs_of(failures)
    day = iso(now).partition("T")[0]
    lines = [
        render.recurring_failure(
            failure.text, failure.cure, runs=len(failure.runs), id=failure.lesson.id
        )
        for failure in failures
    ]
    lessons = {failure.lesson.id: failure.lesson for failure in failures}
    cited = [lessons[id] for id in sorted(lessons)]
    words = [f"{lesson.id} {lesson.text}" for lesson in cited]
    # Runs and day are left out: the same reflection is not written again.
    exact = digest_of(str(link), "\n".join(words))
    return Recurrence(
        text=render.recurrence(str(link), len(runs), day, failures=lines),
        cited_ids=tuple(lesson.id for lesson in cited),
        why=f"{len(failures)} failures with the {link} in {len(runs)} runs",
        signature=Signature(
            exact,
            f"recurring: {link}",
            digest=exact,
            error_type=PARTIAL_OUTCOME,
        ),
    )

"""The page of recall: what memory would show, as a prompt, and why not the rest.

A question is a task, an error, or an action. An action is written as in a trace: the
command alone, or `TOOL: COMMAND`, or a tool with its arguments as JSON. A text under
which no error was seen may be the words of a lesson, or the name of a type of error or
of a check; the error of the lesson is then what to ask for.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal

from heedful.errors import InvalidInput
from heedful.lessons import ranking
from heedful.lessons.before import Mark, marks_of
from heedful.lessons.briefing import Briefing, Choice
from heedful.lessons.lesson import Match, Scope
from heedful.lessons.origin import SHELL_TOOLS
from heedful.lessons.quarantine import QuarantinedLesson
from heedful.lessons.render import mark_words
from heedful.lessons.scope import TOLD_STATES, name_scope
from heedful.lessons.silence import Obstacle
from heedful.pages.report import counted, cut
from heedful.pages.report import text as _as_text
from heedful.service import review
from heedful.service.wire import lesson_from_wire
from heedful.store import editions, patterns
from heedful.store import quarantine as quarantine_store
from heedful.store.calls import MIN_COMMAND_RUNS
from heedful.store.connection import Db, Row, bulk, token
from heedful.store.patterns import comparable
from heedful.validation import MAX_INTEGER
from heedful.web import figures
from heedful.web.instructions import name_choices
from heedful.web.lessons import rows_of_matches
from heedful.web.site import READING, Document, SitePage, Visit

QUESTION_KINDS = ("task", "error", "action")
MAX_NAMED_LESSONS = 3  # of those that are not shown for one reason
MAX_SIMILAR_LESSONS = 5
MAX_ASKED_CHARS = 400  # of a task that the page offers to ask for
MAX_SUGGESTED_LOOPS = 500  # the newest, among which one that was shown something is
MISSED = ("missed", "closest")
OTHER_KEY_CODES = ("other stage", "other key", "key missing")
# What is to be done on this page, where another face names an argument.
PAGE_WORDS = {
    "no key": "no memory key, so no rules: fill in the memory key",
    "key missing": (
        "it is a rule of the memory key {key!r}, and the loop has none: fill it in"
    ),
}
ERROR_LESSON_KINDS = ("check", "error")
# One example of what can be asked, for each kind.
QUESTION_EXAMPLES = {
    "task": "Summarise the incident for customers",
    "error": "ModuleNotFoundError: No module named 'yaml'",
    "action": "git push --force",
}
MAX_MEANT_LESSONS = 5
MIN_PART_CHARS = 20  # of a part of a lesson's words that stands for all of them
Lesson = Mapping[str, Any]
Meaning = Literal["words", "type"]
MIN_TRACED_CHARS = 4
_ASKED_CALL_PATTERN = re.compile(
    r"(?P<tool>[A-Za-z_][\w.-]{0,99})(?::\s+|\s*\(|\s+(?=\{))(?P<arguments>.*)",
    re.DOTALL,
)
_ASKED_WORD_PATTERN = re.compile(r"[\w.-]{2,}")


async def recall(visit: Visit) -> Document:
    """Show what memory would say for a task, an error or an action, and why."""
    text = visit.query.get("text", "")
    kind = visit.query.get("kind", "task")
    key = visit.query.get("key", "")

    if kind not in QUESTION_KINDS:
        raise InvalidInput("kind", kind, ", ".join(QUESTION_KINDS))

    answer = Document()
    if text and kind == "error":
        answer = await _answer_error(visit, text)
    elif text and kind == "action":
        answer = await answer_action(visit, text)
    elif text:
        answer = await _answer_task(visit, text, key)

    tries: list[Document] = []
    if not text:
        tries = await _find_questions(visit)
    lessons = answer.pop("waiting_lessons", [])
    waiting: list[Document] = []
    all_waiting = 0
    key_rows: list[Row] = []
    if visit.may("read"):
        waiting, all_waiting = await visit.caller.read(read_waiting, lessons)
        key_rows = await visit.caller.read(
            figures.rows,
            "known_keys",
            newest=MAX_SUGGESTED_LOOPS,
            limit=50,
        )
    question = {"text": text, "kind": kind, "key": key}
    return {
        "asked": question,
        "keys": [row["memory_key"] for row in key_rows],
        "kinds": QUESTION_KINDS,
        "examples": QUESTION_EXAMPLES,
        "answer": answer,
        "waiting": waiting,
        "all_waiting": all_waiting,
        "tries": tries,
    }


async def _find_questions(visit: Visit) -> list[Document]:
    """Return a task, an error and an action of this project, to ask for."""
    questions = []
    if visit.may("read"):
        newest_loops = await visit.caller.read(
            figures.rows, "newest_task", chars=MAX_ASKED_CHARS, near=MAX_SUGGESTED_LOOPS
        )
        for row in newest_loops:
            task, _ = figures.beginning(row["task"], row["chars"])
            questions.append(
                {"kind": "task", "text": _as_text(task), "key": row["memory_key"]}
            )

    newest = await review.list_lessons(
        visit.caller, MAX_SIMILAR_LESSONS, MAX_INTEGER, state="used"
    )
    of_errors = [lesson for lesson in newest if lesson["kind"] in ERROR_LESSON_KINDS]
    for lesson in of_errors[:1]:
        error = error_of(lesson)
        # What was seen has numbers and paths, but may be words of others.
        findings: Sequence[str] = ()
        if visit.may("read"):
            findings = await visit.caller.read(patterns.findings_of, lesson["id"], 1)
        if findings:
            error = findings[0]
            if lesson["kind"] == "error":
                error = error_of({**lesson, "pattern": error})
        questions.append({"kind": "error", "text": cut(error, MAX_ASKED_CHARS)})

    if visit.may("read"):
        action = await find_known_action(visit)
        questions.append({"kind": "action", "text": action})
    return [question for question in questions if question["text"]]


async def _answer_task(visit: Visit, text: str, key: str) -> Document:
    """Return what a loop with this task and memory key is shown, and what it is not."""
    # The memory itself stays as it is: the service keeps one for each scope.
    memory = copy(visit.caller.memory)
    memory.holdout = 0.0
    briefing = await memory.brief(text, "", memory_key=key, every=True)
    if not review.may_review(visit.caller):
        briefing = briefing.without_waiting()
    choices = tuple(_with_command(visit, choice) for choice in briefing.choices)
    briefing = replace(briefing, choices=choices)
    matches = briefing.found
    prompt = _prompt_of(matches)
    # Other loops of the key are shown only the rules that one of their checks may find.
    checks_of = {
        match.lesson_id: match.cause.checks for match in matches if match.cause
    }
    sentence = describe_briefing(briefing, prompt, checks_of)
    other_key = ""
    missed = group_missed(briefing.choices)
    states = name_states(matches)
    shown_rows = [
        {**row, "state": states.get((row["id"], row["form"]), "")}
        for row in group_shown(briefing.choices, checks_of)
    ]
    unshown_rows = chain.from_iterable(group["lessons"] for group in missed)
    await _name_lessons(visit, [*shown_rows, *unshown_rows])
    first = None
    if missed and not prompt:
        first = next(c.kept_back for c in briefing.choices if c.outcome in MISSED)
    if first is not None and first.code != "distance":
        sentence = f"Nothing would be shown: {_words_here(first)}"
    if first is not None and first.code in OTHER_KEY_CODES:
        ids = [c.lesson for c in briefing.choices if c.kept_back == first]
        rows = await visit.caller.read(
            figures.rows, "key_of_rules", ids=json.dumps(ids), key=key
        )
        # A rule may have several keys, and the obstacle names one of them.
        key_named = first.figures["key"]
        named_keys = [row for row in rows if row["memory_key"] == key_named]
        for row in named_keys[:1]:
            other_key = row["memory_key"]
            verb = "belongs" if row["rules"] == 1 else "belong"
            sentence = (
                f"Nothing would be shown: {counted(row['rules'], 'matching rule')} "
                f"{verb} to the memory key {other_key}; fill it in"
            )
    return {
        **briefing.plain(),
        "other_key": other_key,
        "reasons": [
            {"code": silence.code, "words": _words_here(silence)}
            for silence in briefing.silences
        ],
        "shown": shown_rows,
        "prompt": prompt,
        "holdout": visit.caller.memory.holdout,
        "missed": missed,
        "sentence": sentence,
        "waiting_lessons": [
            choice.lesson for choice in briefing.choices if choice.code == "quarantine"
        ],
    }


def _words_here(obstacle: Obstacle | None) -> str:
    """Return the words of an obstacle on this page; "" for none."""
    if obstacle is None:
        return ""
    words = PAGE_WORDS.get(obstacle.code)
    return words.format(**obstacle.figures) if words else obstacle.reason


def _with_command(visit: Visit, choice: Choice) -> Choice:
    """Return a choice whose command works when it is copied from the page."""
    if choice.kept_back is None:
        return choice
    command = visit.command(name_scope(choice.command, visit.caller.scope))
    return replace(choice, kept_back=replace(choice.kept_back, command=command))


def describe_briefing(
    briefing: Briefing, prompt: str, checks_of: Mapping[int, Sequence[str]]
) -> str:
    """Return in one sentence what memory shows a loop.

    `checks_of` has the checks that may find what breaks a rule, by its lesson.
    """
    choices = [choice for choice in briefing.choices if choice.outcome == "told"]
    if not choices:
        return "Nothing would be shown: no lesson is about a similar task"

    parts = []
    for form in ("rule", "example"):
        number = sum(choice.form == form for choice in choices)
        if number:
            parts.append(counted(number, form))
    lessons = len({choice.lesson for choice in choices})
    checks = sorted(set(chain.from_iterable(checks_of.values())))
    condition = ""
    if checks:
        noun = "check" if len(checks) == 1 else "checks"
        condition = f"; rules only to a loop with the {noun} {' and '.join(checks)}"
    return (
        f"{' and '.join(parts)} would be shown: of {counted(lessons, 'lesson')}, "
        f"{counted(len(prompt), 'character')} of the prompt{condition}"
    )


def name_states(matches: Iterable[Match]) -> dict[tuple[int, str], str]:
    """Return whether the rule and the examples of each lesson are verified.

    A rule and an example of one lesson may differ, and so may two of its examples.
    """
    states: dict[tuple[int, str], set[str]] = {}
    for match in matches:
        form = "example" if match.example.accepted else "rule"
        state = "verified" if match.verified else "unverified"
        states.setdefault((match.lesson_id, form), set()).add(state)
    return {key: " and ".join(sorted(words)) for key, words in states.items()}


async def _name_lessons(visit: Visit, rows: Sequence[Document]) -> None:
    """Give each lesson the words that name it on the other pages.

    A lesson that waits gets none.
    """
    choices = [{"lesson": row["id"], "text": row["text"]} for row in rows]
    lessons = await name_choices(visit, choices, time.time())
    for row, lesson in zip(rows, lessons, strict=True):
        if not row["waits"]:
            row["text"] = lesson["words"]


def group_shown(
    choices: Iterable[Choice], checks_of: Mapping[int, Sequence[str]]
) -> list[Document]:
    """Return the lessons that are shown, the examples of one lesson together.

    `number` counts them, and a rule needs one of the `checks` of `checks_of`, if it has
    any; the others are as in `group_missed`.
    """
    groups: dict[tuple[int, str], Document] = {}
    for choice in choices:
        if choice.outcome == "told":
            group = groups.setdefault(
                (choice.lesson, choice.form), {**_described(choice), "number": 0}
            )
            group["number"] += 1
            group["checks"] = []
            if choice.leg == "cause":
                group["checks"] = list(checks_of.get(choice.lesson, ()))
    return list(groups.values())


def _described(choice: Choice) -> Document:
    """Return what the page says of a lesson that memory considered.

    `loops` is in how many loops its check failed; `likeness` says how much the lesson
    is like the task, None if that does not matter.
    """
    likeness = None
    is_alike = choice.leg != "cause"
    if is_alike:
        likeness = {
            "by_words": choice.measure == "words",
            "value": choice.score,
            "needed": choice.needed,
        }
    return {
        "id": choice.lesson,
        "text": choice.text,
        "waits": choice.waits,
        "form": choice.form,
        "loops": 0 if is_alike else int(choice.score),
        "likeness": likeness,
    }


def group_missed(choices: Iterable[Choice]) -> list[Document]:
    """Return the lessons that are not shown, by the reason, in the order of choices.

    Those without a vector are apart from those that were compared by meaning. `number`
    counts what is not shown for a reason. The first lessons are named, each
    with what was compared.
    """
    groups: dict[tuple[str, bool], Document] = {}
    for choice in choices:
        if choice.outcome not in MISSED:
            continue
        # What was compared by meaning needs no vector.
        group = groups.setdefault(
            (choice.obstacle, "reembed" in choice.command),
            {
                "reason": _words_here(choice.kept_back),
                "command": choice.command,
                "number": 0,
                "lessons": {},
            },
        )
        group["number"] += 1
        group["lessons"].setdefault(choice.lesson, _described(choice))

    rows = []
    for group in groups.values():
        lessons = list(group["lessons"].values())
        unnamed = max(0, len(lessons) - MAX_NAMED_LESSONS)
        named_lessons = lessons[:MAX_NAMED_LESSONS]
        rows.append({**group, "lessons": named_lessons, "unnamed": unnamed})
    return rows


async def _answer_error(visit: Visit, text: str) -> Document:
    """Return what is known of an error, and lessons about similar ones."""
    answer: Document = await visit.ask("POST", "/v1/seen", {"text": text})
    # Clients of the API know the states by the words of an earlier system.
    answer["lessons"] = list(map(lesson_from_wire, answer["lessons"]))
    own_ids = [lesson["id"] for lesson in answer["lessons"]]
    usable_ids = [lesson["id"] for lesson in _usable(answer["lessons"])]
    matches = await visit.caller.memory.query(
        text, MAX_SIMILAR_LESSONS + len(own_ids), waiting=False
    )
    others = [match for match in matches if match.lesson_id not in own_ids]
    similar = await rows_of_matches(visit, others, "")
    similar = similar[:MAX_SIMILAR_LESSONS]
    waiting = [
        lesson["id"] for lesson in answer["lessons"] if lesson["state"] == "quarantined"
    ]

    own_matches = [match for match in matches if match.lesson_id in usable_ids]
    answer["prompt"] = _prompt_of(own_matches)
    answer["meant"] = []
    answer["traces"] = []
    if not answer["count"] and visit.may("read"):
        answer["traces"] = await visit.caller.read(find_traces, text.strip())
    answer["sentence"] = describe_error(answer, similar, own_matches)
    if not answer["count"]:
        meant = await find_meant(visit, text, similar)
        if meant is not None:
            answer["meant"] = list(map(described, meant.lessons))
            answer["sentence"] = f"Nothing would be shown: {meant.sentence}"
            waiting += meant.waiting
            meant_ids = {lesson["id"] for lesson in meant.lessons}
            similar = [row for row in similar if row["id"] not in meant_ids]
    answer["similar"] = list(map(described, similar))
    answer["waiting_lessons"] = waiting
    return answer


def _usable(lessons: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return those of the lessons that a prompt may show."""
    return [lesson for lesson in lessons if lesson["state"] in TOLD_STATES]


def _prompt_of(matches: Sequence[Match]) -> str:
    """Return what a prompt says of lessons, "" without any."""
    if not matches:
        return ""
    return ranking.as_text(ranking.as_messages(matches), 0, matches)


def describe_error(
    answer: Document, similar: Sequence[Any], shown: Sequence[Match]
) -> str:
    """Return in one sentence how often an error was seen, and what is shown of it.

    `similar` are lessons about other errors, the nearest first. `shown` is what a
    prompt has of this one.
    """
    usable = _usable(answer["lessons"])
    if not answer["count"]:
        sentence = (
            "Nothing would be shown: this error is not in memory, and only the same "
            "error counts"
        )
        if answer["traces"]:
            sentence += "; the traces below have it"
        if similar:
            sentence += f"; nearest: {cut(similar[0]['text'], 120)}"
        return sentence.rstrip(".")

    seen = f"would be shown: this error was seen {counted(answer['count'], 'time')}"
    if usable:
        lessons = counted(len(usable), "lesson")
        # The prompt has the words of a lesson only where it has no accepted answer.
        if shown and all(match.example.accepted for match in shown):
            return f"{lessons} {seen}; the accepted answer, not the words"
        return f"{lessons} {seen}"
    if answer["lessons"]:
        return f"Nothing {seen}, but what is known of it waits for a review"
    return f"Nothing {seen}, and no lesson is about it"


@bulk
def read_waiting(
    db: Db, scope: Scope, lessons: Sequence[int]
) -> tuple[list[Document], int]:
    """Return the newest texts of lessons that wait.

    Also returns how many wait in all.
    """
    rows = figures.rows(
        db,
        scope,
        "waiting_of",
        token=token(scope),
        ids=json.dumps(sorted(lessons)),
        limit=10,
    )
    entries = quarantine_store.quarantined(db, scope, [row["id"] for row in rows])
    return list(map(_waiting_row, entries)), rows[0]["number"] if rows else 0


def _waiting_row(entry: QuarantinedLesson) -> Document:
    """Return what the page shows of a text that waits."""
    return {
        "id": entry.id,
        "text": entry.lesson or entry.pattern,
        "trust": entry.trust,
    }


PAGES = (
    SitePage(
        address="/recall", template="recall", title="Recall", make=recall, may=READING
    ),
)


@dataclass(frozen=True, kw_only=True)
class Meant:
    """What a text is, with the lessons that this leads to.

    `name` is that of the type of error or of the check. `waiting` are lessons of the
    type that wait in quarantine.
    """

    meaning: Meaning
    name: str
    lessons: Sequence[Lesson] = ()
    waiting: Sequence[int] = ()

    @property
    def sentence(self) -> str:
        """What the text is, in words."""
        if not self.lessons:
            return (
                f"{self.name} is a type of error; what is known of it waits for a "
                "review"
            )

        lesson = self.lessons[0]
        if self.meaning == "words":
            error = cut(error_of(lesson), 120)
            return (
                f"these are the words of lesson {lesson['id']}, and no error; its "
                f"error is {error}"
            )

        kind = "a check" if lesson["kind"] == "check" else "a type of error"
        number = counted(len(self.lessons), "lesson")
        return (
            f"{self.name} is {kind}. Memory compares whole errors; it has {number} "
            f"about those of {self.name}"
        )


def error_of(lesson: Lesson) -> str:
    """Return the text under which the error of a lesson is found; "" if it is hidden.

    >>> error_of({"error_type": "RateLimit", "pattern": "slow down"})
    'RateLimit: slow down'
    """
    error_type = lesson["error_type"]
    pattern: str = lesson["pattern"]
    is_titled = pattern.startswith(f"{error_type}: ")
    if not pattern or not error_type or is_titled:
        return pattern
    return f"{error_type}: {pattern}"


async def find_meant(
    visit: Visit, text: str, similar: Sequence[Lesson]
) -> Meant | None:
    """Return what a text means; None if it is nothing that memory knows.

    `similar` are the lessons that a search for the text finds.
    """
    for lesson in similar:
        if _is_part(text, lesson["text"]):
            return Meant(meaning="words", name=lesson["error_type"], lessons=[lesson])

    names = _names_in(text)
    ids = await visit.caller.read(_lessons_of_type, names)
    waiting: list[int] = []
    if visit.may("read"):
        waiting = await visit.caller.read(_waiting_of_type, names)
    if ids or waiting:
        rows = await visit.caller.read(editions.some, ids)
        lessons = [review.visible(visit.caller, row) for row in rows]
        name = lessons[0]["error_type"] if lessons else names[0]
        return Meant(meaning="type", name=name, lessons=lessons, waiting=waiting)
    return None


def _is_part(text: str, words: str) -> bool:
    """Return whether a text is the words of a lesson, or a large part of them."""
    part = comparable(text)
    plain_words = comparable(words)
    if len(part) < MIN_PART_CHARS:
        return bool(part) and part == plain_words
    return part in plain_words


def _names_in(text: str) -> list[str]:
    """Return what may be the name of a type of error in a text.

    >>> _names_in("requests.RateLimit: slow down")
    ['requests.RateLimit', 'RateLimit']
    """
    title = text.strip().partition(":")[0].strip()[:200]
    return list(dict.fromkeys([title, title.rpartition(".")[2]]))


def _lessons_of_type(db: Db, scope: Scope, names: Sequence[str]) -> list[int]:
    """Return the newest lessons about these types of error, as ids."""
    rows = figures.rows(
        db,
        scope,
        "lessons_of_type",
        names=json.dumps(list(names)),
        limit=MAX_MEANT_LESSONS,
    )
    return [row["id"] for row in rows]


def _waiting_of_type(db: Db, scope: Scope, names: Sequence[str]) -> list[int]:
    """Return the newest lessons about these types that wait in quarantine, as ids."""
    rows = figures.rows(
        db,
        scope,
        "waiting_of_type",
        token=token(scope),
        names=json.dumps(list(names)),
        newest=figures.MAX_SOURCE_TEXTS,
        limit=MAX_MEANT_LESSONS,
    )
    return [row["lesson_id"] for row in rows]


def described(lesson: Lesson) -> Document:
    """Return a lesson as the page lists it, with the error to ask for."""
    return {**lesson, "ask": error_of(lesson)}


def read_action(text: str) -> tuple[str, dict[str, Any] | str]:
    """Return the tool and the arguments of an action that somebody wrote.

    >>> read_action("make test"), read_action("Bash: make test")
    (('', 'make test'), ('Bash', 'make test'))
    >>> read_action('Read {"file_path": "a.py"}')
    ('Read', {'file_path': 'a.py'})
    """
    call = _ASKED_CALL_PATTERN.fullmatch(text.strip())
    if call is None:
        return "", text

    arguments = call["arguments"].strip()
    if "(" in text[: call.start("arguments")]:
        arguments = arguments.removesuffix(")")
    try:
        fields = json.loads(arguments)
    except ValueError:
        fields = None
    if isinstance(fields, dict):
        return call["tool"], fields
    if call["tool"].lower() in (*SHELL_TOOLS, "sh"):
        return call["tool"], arguments
    return "", text


@dataclass(frozen=True, kw_only=True)
class NearFailure:
    """A mark of calls of this project that failed, in so many `runs`.

    It `stands` if no such call has worked since.
    """

    mark: Mark
    runs: int
    stands: bool

    @property
    def is_told(self) -> bool:
        """Whether memory speaks of it before such a call."""
        return self.stands and not self.silence

    @property
    def silence(self) -> str:
        """Why memory does not speak of it before such a call, "" if it does."""
        if not self.stands:
            return "such a call has worked since"
        if self.mark.kind == "command" and self.runs < MIN_COMMAND_RUNS:
            return "a command is told of when it failed in two runs"
        return ""

    @property
    def spelling(self) -> str:
        """An action that has the mark; "" if there is no simple one."""
        match self.mark.kind:
            case "command":
                return self.mark.name
            case "call":
                return f"{self.mark.tool} {self.mark.name}"
            case "name":
                return f"{self.mark.tool} {self.mark.name}"
            case "path":
                return f"Read {json.dumps({'file_path': self.mark.name})}"
            case _:
                return ""

    def likeness(self, asked_words: frozenset[str]) -> int:
        """Return how many words this shares with an action."""
        return len(_words_of(self.mark) & asked_words)

    def plain(self) -> Document:
        """Return what the page says: what failed, how often, and why it is not told."""
        return {
            "about": _named(self.mark),
            "history": f"failed in {counted(self.runs, 'run')}",
            "why": self.silence or "this action does not have it",
            "ask": self.spelling,
        }


def _named(mark: Mark) -> str:
    """Return a mark in words that hold without the call that has it."""
    if mark.kind == "command":
        return f"the command `{mark.name}`"
    return mark_words(mark)


def _words_of(*marks: Mark) -> frozenset[str]:
    """Return the words of marks, in lower case."""
    text = " ".join(f"{mark.tool} {mark.name}" for mark in marks)
    return frozenset(_ASKED_WORD_PATTERN.findall(text.lower()))


async def answer_action(visit: Visit, text: str) -> Document:
    """Return the warnings for an action, or what is nearest and where it occurred."""
    tool, arguments = read_action(text)
    question = {"tool": tool, "arguments": arguments}
    answer: Document = await visit.ask("POST", "/v1/before", question)
    warnings = _count_warnings(answer)
    answer["sentence"] = "Nothing would be shown: no known failure of this call"
    if warnings:
        answer["sentence"] = (
            f"{counted(warnings, 'warning')} would be shown before this runs"
        )

    marks = marks_of(tool, arguments)
    answer["searched"] = [_named(mark) for mark in marks[:5]]
    answer |= {"known": 0, "nearest": [], "example": "", "traces": []}
    # The words of other calls are those of traces.
    if warnings or not visit.may("read"):
        return answer

    failures = await visit.caller.read(_read_failures)
    words = _words_of(*marks)
    near = [failure for failure in failures if failure.likeness(words)]
    near.sort(key=lambda failure: (failure.likeness(words), failure.is_told))
    # A part of a command and the whole are asked for in the same words.
    nearest = {failure.spelling or failure: failure for failure in near}
    newest_last = list(nearest.values())[-3:]
    answer["known"] = len(failures)
    if not failures:
        answer["sentence"] = (
            "Nothing would be shown: memory has learnt of no action that failed"
        )
    answer["nearest"] = [failure.plain() for failure in reversed(newest_last)]
    answer["example"] = await _find_example(visit, failures)
    needle = arguments if isinstance(arguments, str) else text
    if len(needle.strip()) >= MIN_TRACED_CHARS:
        answer["traces"] = await visit.caller.read(find_traces, needle.strip())
    return answer


def _count_warnings(answer: Mapping[str, Any]) -> int:
    """Return how many warnings an answer of memory has for an action."""
    names = ("failures", "checks", "rules")
    return sum(len(answer.get(name) or ()) for name in names)


async def find_known_action(visit: Visit) -> str:
    """Return an action for which memory has a warning; "" if none is found."""
    failures = await visit.caller.read(_read_failures)
    return await _find_example(visit, failures)


async def _find_example(visit: Visit, failures: Sequence[NearFailure]) -> str:
    """Return one of the failures that memory warns of, as an action; "" if none."""
    spellings = [failure.spelling for failure in failures if failure.is_told]
    for spelling in list(filter(None, spellings))[:5]:
        tool, arguments = read_action(spelling)
        question = {"tool": tool, "arguments": arguments}
        if _count_warnings(await visit.ask("POST", "/v1/before", question)):
            return spelling
    return ""


def _read_failures(db: Db, scope: Scope) -> list[NearFailure]:
    """Return what calls that failed had in common, the newest first."""
    return [
        NearFailure(
            mark=Mark(row["kind"], row["name"], row["tool"]),
            runs=row["runs"],
            stands=bool(row["stands"]),
        )
        for row in figures.rows(db, scope, "failed_calls", limit=300)
    ]


@bulk
def find_traces(db: Db, scope: Scope, text: str) -> list[Document]:
    """Return the newest traces that have a text, such as a command."""
    spellings = [json.dumps(text), json.dumps(text, ensure_ascii=False)]
    bare = [spelling[1:-1] for spelling in spellings]
    rows = figures.rows(
        db,
        scope,
        "traces_with",
        spellings=json.dumps(list(dict.fromkeys(bare))),
        window=100,
        most=50_000,
        limit=3,
    )
    return [dict(row) for row in rows]

"""The page of recall: what memory would show, as a prompt, and why not the rest."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import chain
from typing import Any

from heedful.errors import InvalidInput
from heedful.lessons import ranking
from heedful.lessons.briefing import Briefing, Choice
from heedful.lessons.lesson import Match, Scope
from heedful.lessons.quarantine import QuarantinedLesson
from heedful.lessons.scope import TOLD_STATES, name_scope
from heedful.lessons.silence import Obstacle
from heedful.pages.report import counted, cut
from heedful.pages.report import text as _as_text
from heedful.service import review
from heedful.service.wire import lesson_from_wire
from heedful.store import patterns
from heedful.store import quarantine as quarantine_store
from heedful.store.connection import Db, Row, bulk, token
from heedful.validation import MAX_INTEGER
from heedful.web import figures
from heedful.web.actions import answer_action, find_known_action, find_traces
from heedful.web.instructions import name_choices
from heedful.web.lessons import rows_of_matches
from heedful.web.meant import described, error_of, find_meant
from heedful.web.site import READING, Document, SitePage, Visit

QUESTION_KINDS = ("task", "error", "action")
MAX_NAMED_LESSONS = 3  # of those that are not shown for one reason
MAX_SIMILAR_LESSONS = 5
MAX_NEAREST_CHARS = 120  # of the lesson that is nearest to an error
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
            sentence += f"; nearest: {cut(similar[0]['text'], MAX_NEAREST_CHARS)}"
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

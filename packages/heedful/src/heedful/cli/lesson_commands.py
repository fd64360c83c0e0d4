"""`heedful seen`, `before`, `recall` and `lessons`.

They ask memory, and show and change what is in it. `seen`, `before` and `recall` ask
your own memory as well as the project's. Texts in quarantine are never printed.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated

from typer import Argument, Context, Option, Typer

from heedful.cli.app import group_with_default
from heedful.cli.databases import MIN_KEPT_DAYS
from heedful.cli.printing import (
    Row,
    answer,
    columns,
    emit,
    following,
    name_database,
    page,
    repeated,
    say,
    shorten,
    show_progress,
)
from heedful.cli.resources import ask, ask_all
from heedful.cli.settings import (
    MAX_OPTION_INTEGER,
    By,
    DryRun,
    Limit,
    Why,
    number_argument,
    seconds,
    where,
)
from heedful.display import counted
from heedful.episodes.error_lines import error_lines
from heedful.errors import InvalidInput, UnknownName, UsageError, install_line
from heedful.lessons.briefing import Briefing
from heedful.lessons.call_marks import ActionHistory
from heedful.lessons.commands import quote_words
from heedful.lessons.holdout import Shown
from heedful.lessons.lesson import Match, Matches
from heedful.lessons.lesson_check import LessonCheck
from heedful.lessons.links import with_rules
from heedful.lessons.patterns import Seen
from heedful.lessons.render import as_text
from heedful.lessons.signature import signature
from heedful.memory import vectors
from heedful.memory.hardening import LessonChecks
from heedful.memory.memory import MAX_SIGNED_CHARS, Memory
from heedful.memory.vectors import Spaces, count_spaces
from heedful.sanitize import clean
from heedful.store import editions, exposures, lessons as lesson_store, retention
from heedful.store.calls import history_of
from heedful.store.projects import own_db
from heedful.store.rulings import name_of
from heedful.store.search import keys_of_rule, memory_keys
from heedful.validation import MAX_SHOWN_TEXT_CHARS, Document

STANDARD_INPUT = "-"
SEEN_USAGE = "make 2>&1 | heedful seen"
QUARANTINE_NOTICE = (
    "\nNot shown: what tools or documents wrote waits in quarantine until it is "
    "released."
)
KEY_NOTICE = (
    "\nWhat a function or a stage is shown: heedful recall TASK --key KEY, its memory "
    "key"
)
LessonId = Annotated[int, number_argument(help="The id of a lesson.")]


async def _with_shown(memory: Memory, lessons: Sequence[Row]) -> list[Row]:
    """Return lessons with how loops ended that were shown them.

    Those that are only worked examples have the newest of them.
    """
    ids = [lesson["id"] for lesson in lessons if lesson["kind"] == "example"]
    examples = await memory.store.read(memory.scope, lesson_store.newest_examples, ids)
    names = list(map(name_of, lessons))
    counts = await memory.store.read(memory.scope, exposures.tally, names)
    records: list[Row] = []
    for name, lesson in zip(names, lessons, strict=True):
        # `shown` counts for the present words what helped and hurt.
        fields = {n: lesson[n] for n in lesson if n not in ("helped", "hurt")}
        records.append(
            {
                **fields,
                "example": examples.get(lesson["id"]),
                "shown": counts.get(name, Shown()),
            }
        )
    return records


REMOVED_LESSON_COLUMNS = columns(
    "lesson state why id seen last_of_use",
    lesson="text",
    # In seconds since 1970.
    last_of_use=lambda row: max(row["last_seen"], row["last_shown"]),
)

lessons: Typer = group_with_default()


@lessons.callback(invoke_without_command=True)
def list_lessons(
    context: Context,
    limit: Limit = 50,
) -> int:
    """List the lessons, most often seen first; failures without a fix come last. Texts
    in quarantine are not shown.

    A lesson is verified if a check accepted its output and rejected an earlier one; an
    answer accepted at the first try is unverified. The origin says where the text comes
    from.
    """
    if context.invoked_subcommand is not None:
        return 0

    async def read(memory: Memory) -> list[Row]:
        return await _with_shown(memory, await memory.top(limit))

    top_lessons = ask(read)
    if not top_lessons:
        return answer({"lessons": []}, f"no lesson in {where()}")

    then = ""
    if not all(lesson["text"] for lesson in top_lessons):
        then = following("quarantine", "list")
    rows = with_rules(top_lessons)
    return answer({"lessons": top_lessons}, page("lessons", found=rows), then)


@lessons.command("show")
def show_lesson(lesson: LessonId) -> int:
    """Show a lesson; `heedful lessons ID` does the same."""

    async def read(memory: Memory) -> Row:
        lesson_record = await memory.store.read(
            memory.scope, lesson_store.shown, lesson
        )
        keys = await memory.store.read(memory.scope, keys_of_rule, lesson_record)
        (record,) = await _with_shown(memory, [lesson_record])
        return {**record, "memory_keys": keys}

    record = ask(read)
    then = ""
    if not record["text"]:
        then = following("quarantine", "list")
    return answer(record, page("lessons", found=[record]), then)


@lessons.command("edit")
def edit_lesson(
    lesson: LessonId,
    text: Annotated[str, Argument(help="The new words.")],
    by: By,
    why: Why = "",
) -> int:
    """Give a lesson new words; the old ones stay as a version. Measurements of the old
    words do not count for the new ones.

    A lesson in quarantine keeps waiting, with the new words, until it is released.
    """

    async def edit(memory: Memory) -> tuple[int, list[int]]:
        entry = await memory.edit(lesson, text, by=by, why=why)
        edited = await memory.store.read(memory.scope, lesson_store.shown, lesson)
        failure = edited["mistake"]["signature"] if edited["mistake"] else ""
        rows = await memory.store.read(memory.scope, lesson_store.of_failure, failure)
        return entry, [row["id"] for row in rows if row["id"] != lesson]

    entry, others = ask(edit)
    words = f"lesson {lesson} has new words"
    then = following("lessons")
    if others:
        words += "; of the same failure, with its own words: lesson "
        words += ", ".join(map(str, others))
        then = following("lessons", "edit", others[0], "TEXT", by=by)
    if entry:
        words += "; the new words wait in quarantine"
        then = following("quarantine", "release", entry, by=by)

    document = {
        "lesson": lesson,
        "entry": entry,
        "same_failure": others,
        "by": by,
        "why": why,
    }
    return answer(document, words, then)


@lessons.command()
def retire(lesson: LessonId, by: By, why: Why = "") -> int:
    """Take a lesson out of every prompt. Its texts stay stored, so that `heedful proof
    --restore` can bring it back.

    `heedful forget --lesson` deletes them.
    """
    end = partial(editions.amend, id=lesson, edition=None, by=by, why=why, retired=True)
    ask(lambda memory: memory.store.write(memory.scope, end))
    document = {"retired": lesson, "by": by, "why": why}
    words = f"lesson {lesson} is retired; its texts stay stored"
    return answer(document, words, following("proof", restore=lesson, by=by))


def seen(
    error: Annotated[
        str,
        Argument(
            help="The error, or a file with it; before TEXT the type or the tool."
        ),
    ] = STANDARD_INPUT,
    text: Annotated[
        str, Argument(help="The text of the error, or a file with it.")
    ] = "",
) -> int:
    """Say whether an error was seen before, and what fixed it.

    Pass a message, a log file, or the whole output of a command on standard input. Like
    grep, it exits with 1 if no error was seen.
    """
    error_type = error if text else ""
    source = text or error
    error_text = _errors_in(source)
    error_signature = signature(error_type, error_text)

    db = ""
    result = Seen(0)
    if error_text.strip():
        answers = ask_all(lambda memory: memory.seen(error_type, error_text))
        db, result = _best_seen(answers)

    # A word that is neither a file nor a known error may be a mistyped file name.
    is_one_word = error_text == source and len(source.split()) < 2
    if is_one_word and not result:
        say(
            f"heedful: there is no file {source!r}; it was looked up as the text of an "
            "error"
        )

    notes = [_origin(db)]
    if result.release:
        release = f"Next: {name_database(result.release, db)}"
        notes = [QUARANTINE_NOTICE, release, *notes]
    document = {
        "seen": result.count,
        "signature": error_signature.digest,
        "pattern": error_signature.pattern,
        "group": result.group,
        "lessons": result.lessons,
        "lines": result.lines,
    }

    # An agent may ask, too, so the words of a retired lesson are not among the others.
    lessons_with_text = [
        lesson if lesson in result.told else {**lesson, "text": ""}
        for lesson in result.lessons
        if lesson["text"]
    ]
    answer(
        document,
        f"seen: {result.count}",
        _seen_lines(result, error_signature.pattern),
        page("lessons", found=lessons_with_text),
        notes,
    )
    return 0 if result else 1


def _seen_lines(result: Seen, pattern: str) -> list[str]:
    """Return the lines that name the errors, else the pattern that was looked up."""
    lines = list(result.lines)
    if not lines:
        lines = [pattern.strip() or "no line looks like an error; pass the line"]
    if result.group is not None:
        lines.append(
            f"{counted(len(result.group.members), 'pattern')} merged as: "
            f"{result.group.template}"
        )
    return [f"  {clean(line, MAX_SHOWN_TEXT_CHARS)}" for line in lines]


def _best_seen(answers: Sequence[tuple[str, Seen]]) -> tuple[str, Seen]:
    """Return the database to answer from, and its answer.

    It is the first that has a lesson's text about the error, else the first that has
    seen the error, else the first.
    """
    seen_answers = [(db, result) for db, result in answers if result]
    for db, result in seen_answers:
        if any(lesson["text"] for lesson in result.lessons):
            return db, result
    return (seen_answers or answers)[0]


def _origin(db: str) -> str:
    """Return how to address one's own memory if `db` is that memory, else ""."""
    if db != str(own_db()):
        return ""
    return f"This is from your own memory: add --db {db} to a command about it."


def _tells_error(answer: tuple[str, ActionHistory]) -> bool:
    """Return True if the error of a failed call is known, and does not wait."""
    return any(failure.error for failure in answer[1].failures)


def before(
    command: Annotated[
        list[str],
        Argument(help="The command, after --. With --tool, the arguments as JSON."),
    ],
    tool: Annotated[
        str,
        Option(metavar="NAME", help="Ask about a call of this tool, not a command."),
    ] = "",
) -> int:
    """Say how a command or a call failed before, and what fixed it; nothing if such
    calls have worked since. Also show your rules about it.

    Ask before you run it. It exits with 0 if there is something to show, otherwise with
    1.
    """
    command_line = quote_words(command) if len(command) > 1 else command[0]
    arguments = _read_arguments(command) if tool else command_line

    async def ask_memory(memory: Memory) -> ActionHistory:
        return await memory.store.read(
            memory.scope,
            history_of,
            tool,
            arguments,
            stated=memory.stated,
            moment="question",
        )

    answers = ask_all(ask_memory)
    known_answers = [(db, history) for db, history in answers if history]
    # A memory that tells the error comes before one in which it waits.
    db, result = max(known_answers or answers[-1:], key=_tells_error)
    rules = [*chain.from_iterable(history.rules for _, history in answers)]

    lines = [clean(f"you said: {rule.text}", MAX_SHOWN_TEXT_CHARS) for rule in rules]
    for failure in result.failures:
        # Cleaned, but not cut: the fix may be a long command.
        lines += [clean(line, len(line)) for line in failure.text.splitlines()]
    warnings = [f"{check.about}: {check.text}" for check in result.checks]
    lines += [clean(warning, len(warning)) for warning in warnings]
    is_known = bool(lines)
    release = name_database(result.release, db)
    if release:
        lines.append(
            f"A failure of this call is known, but it waits in quarantine: {release}"
        )

    document = {
        "failures": result.failures,
        "waiting": result.waiting,
        "checks": result.checks,
        "rules": rules,
        "release": release,
        "silence": result.silence,
    }
    unknown = f"no known failure fits this call: {result.silence}"
    texts = [*lines, _origin(db)] if lines else [unknown]
    answer(document, texts)
    return 0 if is_known else 1


def _read_arguments(words: Sequence[str]) -> Document:
    """Return the arguments of a call, which are JSON. Raises InvalidInput."""
    text = " ".join(words)
    arguments: object = None
    with suppress(ValueError, RecursionError):
        arguments = json.loads(text)
    if not isinstance(arguments, dict):
        allowed = """a JSON object of arguments, such as '{"room": "Aurora"}'"""
        raise InvalidInput("JSON after --tool NAME --", text, allowed)
    return arguments


def _errors_in(source: str) -> str:
    """Return the text `source`, or the error lines of the file `source`.

    "-" is standard input. A short file is returned whole. Raises UsageError for an
    empty or a binary file.
    """
    if source == STANDARD_INPUT:
        return _errors_of(sys.stdin.buffer.read(), "standard input")

    # An existing file is meant; any other text is the error itself.
    if os.path.isfile(source):
        return _errors_of(Path(source).read_bytes(), source)
    return source


def _errors_of(content: bytes, name: str) -> str:
    """Return the error lines of a file's content, or the whole text of a short one."""
    if not content.strip():
        raise UsageError(f"{name} is empty; pass what the command wrote: {SEEN_USAGE}")
    if b"\0" in content:
        raise UsageError(
            f"{name} is not a text in UTF-8; pass the output or the log as text"
        )
    text = content.decode("utf-8", "replace")
    # In a longer file, only the error lines are looked up.
    if len(content) < MAX_SIGNED_CHARS:
        return text

    return "\n".join(error_lines(text.splitlines()))


def recall(
    task: Annotated[str, Argument(help="The task; - reads standard input.")],
    limit: Limit = 5,
    why: Annotated[
        bool,
        Option("--why", help="Show all candidates: what a prompt would have, and why."),
    ] = False,
    key: Annotated[
        str,
        Option(
            help="Show exactly what a function or a stage with this memory key is "
            "shown before the task."
        ),
    ] = "",
) -> int:
    """Show the accepted answers that memory recalls for a task.

    With the memory key of a function or a stage, it also shows the rules that this
    function or stage broke.
    """
    if task == STANDARD_INPUT:
        task = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not task.strip():
        raise UsageError("the task is empty; say in words what the task is")
    if key:
        _check_key(key)
    if why:
        return _explain_recall(task, key)
    return _show_prompt(task, key) if key else _show_matches(task, limit)


def _show_matches(task: str, limit: int) -> int:
    """Show the accepted answers that the memories recall for a task."""

    async def read(memory: Memory) -> tuple[Matches, bool]:
        matches = await memory.recall(task, limit)
        return matches, bool(await memory.quarantine.waiting(1))

    answers = ask_all(read)
    matches: list[Match] = []
    notices: list[str] = []
    silences: list[str] = []
    for db, (matches_of_db, waits) in answers:
        matches += matches_of_db
        silence = name_database(matches_of_db.silence, db)
        silences.append(f"nothing to show: {silence}{_origin(db)}")
        if waits:
            then = following("quarantine", "list", db=db)
            notices.append(f"{QUARANTINE_NOTICE}\n{then}")

    if len(answers) > 1:
        matches.sort(key=lambda match: -match.relevance)
    matches = matches[:limit]
    if matches:
        document = {"examples": matches, "silence": ""}
        return answer(document, page("recall", found=matches), KEY_NOTICE)

    _, (first, _) = answers[0]
    document = {"examples": [], "silence": name_database(first.silence)}
    return answer(document, silences, KEY_NOTICE, notices)


def _check_key(key: str) -> None:
    """Raise UnknownName if no database knows the memory key."""

    answers = ask_all(lambda memory: memory.store.read(memory.scope, memory_keys))
    keys = sorted(set(chain.from_iterable(names for _, names in answers)))
    if key not in keys:
        raise UnknownName("memory key", key, keys)


async def _brief(memory: Memory, *, task: str, key: str) -> Briefing:
    """Return what memory shows a loop with this task and key, and why."""
    memory.holdout = 0.0  # nothing is withheld by chance
    return await memory.brief(task, "", memory_key=key, every=True)


def _show_prompt(task: str, key: str) -> int:
    """Show the text that memory adds to the prompt of a function for a task."""
    briefing = ask(partial(_brief, task=task, key=key))
    prompt = as_text(briefing.examples, advice=briefing.advice)
    document = {"memory_key": key, "prompt": prompt, "silence": briefing.silence}
    if not prompt:
        silence = name_database(briefing.silence)
        return answer(document, f"nothing is shown under the key {key!r}: {silence}")

    lines = [clean(line, len(line)) for line in prompt.splitlines()]
    return answer(document, lines)


def _explain_recall(task: str, key: str) -> int:
    """Show every candidate for the prompt of a task, and why it is in it or not."""
    briefings = ask_all(partial(_brief, task=task, key=key))
    lines: list[str] = []
    for db, briefing in briefings:
        lines += [name_database(line, db) for line in briefing.lines]
        lines.append(_origin(db))

    _, first = briefings[0]
    others = {db: briefing.plain() for db, briefing in briefings[1:]}
    return answer({**first.plain(), "beside": others}, lines)


@lessons.command()
def pin(
    lesson: LessonId,
    by: By,
    why: Why = "",
    undo: Annotated[bool, Option("--undo", help="Remove the pin.")] = False,
) -> int:
    """Pin a lesson: it is never evicted, pruned or retired. `heedful lessons` shows the
    ids.
    """
    ask(lambda memory: memory.pin(lesson, by=by, why=why, pinned=not undo))
    state = "no longer pinned" if undo else "pinned"
    document = {"lesson": lesson, "pinned": not undo, "by": by, "why": why}
    return answer(document, f"lesson {lesson} is {state}", following("lessons"))


@lessons.command()
def prune(
    by: By,
    unused_for: Annotated[
        str | None, Option(help="Remove lessons unused this long: 180d.")
    ] = None,
    keep: Annotated[
        int | None,
        Option(min=0, max=MAX_OPTION_INTEGER, help="Keep the most useful lessons."),
    ] = None,
    ended_for: Annotated[
        str | None, Option(help="Remove loops that ended this long ago: 365d.")
    ] = None,
    dry_run: DryRun = False,
) -> int:
    """Remove lessons that are not useful, and loops that ended long ago.

    Pinned lessons, lessons proven to help, and all measurements stay.
    """
    prunes_lessons = unused_for is not None or keep is not None
    if not prunes_lessons and ended_for is None:
        raise UsageError(
            "nothing says what to remove: give --unused-for 180d, --keep 1000 or "
            "--ended-for 365d"
        )
    unused_seconds = seconds("--unused-for", unused_for)
    ended_seconds = seconds("--ended-for", ended_for, min_days=MIN_KEPT_DAYS)

    async def remove(memory: Memory) -> tuple[Sequence[Row], int]:
        lessons: Sequence[Row] = ()
        if prunes_lessons:
            lessons = await memory.prune(
                unused_for=unused_seconds, keep=keep, by=by, dry_run=dry_run
            )
        loops = 0
        if ended_seconds is not None:
            loops = await _remove_loops(memory, ended_seconds, by=by, dry_run=dry_run)
        return lessons, loops

    removed, loops = ask(remove)
    numbers = [counted(len(removed), "lesson")] if prunes_lessons else []
    if ended_seconds is not None:
        numbers.append(counted(loops, "loop"))
    outcome = "would be removed" if dry_run else "removed"
    then = following("quarantine", "log")
    if dry_run:
        then = repeated() if removed or loops else following("lessons")
    return answer(
        {"dry_run": dry_run, "removed": removed, "loops": loops},
        shorten(REMOVED_LESSON_COLUMNS, removed, text_columns=3),
        f"{' and '.join(numbers)} {outcome}",
        then,
    )


async def _remove_loops(
    memory: Memory, ended_seconds: float, *, by: str, dry_run: bool
) -> int:
    """Remove the loops that ended so long ago; return how many there are."""
    if dry_run:
        expired = await memory.store.read(
            memory.scope, retention.find, time.time() - ended_seconds
        )
        return expired.loops
    return await retention.remove(
        memory.store, memory.scope, ended_for=ended_seconds, by=by
    )


@lessons.command()
def reembed() -> int:
    """Compute vectors for examples that have none.

    Recall compares examples by meaning only if they have vectors of the current
    embedder. You can stop this command at any time; the next call continues where it
    stopped. Recall works meanwhile.
    """

    async def embed(memory: Memory) -> tuple[Spaces, Spaces]:
        if memory.embedder is None:
            raise UsageError(
                "recall compares words here, which needs no vectors; for meanings "
                f"{install_line('embedded')}, and run it with HEEDFUL_EMBEDDER=minilm"
            )

        watch = partial(show_progress, "embedding", noun="examples")
        return await count_spaces(memory), await vectors.reembed(memory, watch)

    before, spaces = ask(
        embed, stopped="stopped; heedful lessons reembed continues where it stopped"
    )
    embedded = before.behind - spaces.behind
    words = f"{counted(embedded, 'example')} embedded; {spaces}"
    return answer({"embedded": embedded, **asdict(spaces)}, words)


PROPOSE_COMMAND = "heedful lessons harden LESSON"
LESSON_CHECK_COLUMNS = columns(
    "check state why lesson hits false_alarms",
    check="about",
    why=lambda check: clean(check.why, 200),
)


@lessons.command()
def harden(
    lesson: Annotated[
        int | None,
        number_argument(help="The id of a lesson."),
    ] = None,
    accept: Annotated[
        bool, Option("--accept", help="Let the check judge from now on.")
    ] = False,
    reject: Annotated[
        bool, Option("--reject", help="Stop the check from judging.")
    ] = False,
    false_alarm: Annotated[
        bool, Option("--false-alarm", help="Its last finding was wrong.")
    ] = False,
    by: Annotated[str, Option(help="Who decides; needed for a decision.")] = "",
    why: Why = "",
    list_: Annotated[
        bool, Option("--list", help="List the checks of all lessons.")
    ] = False,
    limit: Limit = 50,
) -> int:
    """Propose a check made from the examples of a lesson, or decide about it.

    No model is asked. The check is executed on the lesson's own outputs and on accepted
    outputs of others before it is proposed.
    """
    decisions = {
        LessonChecks.accept: accept,
        LessonChecks.reject: reject,
        LessonChecks.false_alarm: false_alarm,
    }
    chosen = [decide for decide, is_chosen in decisions.items() if is_chosen]
    if list_:
        if lesson is not None or chosen:
            raise UsageError("--list lists all checks: give no lesson and no decision")
        return emit(
            ask(lambda memory: LessonChecks(memory).list(limit)),
            LESSON_CHECK_COLUMNS,
            key="checks",
            text_columns=3,
            empty=f"no lesson is a check in {where()}; {PROPOSE_COMMAND} proposes one",
        )

    if lesson is None:
        raise UsageError(f"no lesson is named: {PROPOSE_COMMAND}, or --list")
    if len(chosen) > 1:
        raise UsageError("choose one of --accept, --reject and --false-alarm")
    if chosen and not by.strip():
        raise UsageError("a decision needs its author: --by NAME")

    async def propose_or_decide(memory: Memory) -> LessonCheck:
        """Propose the check, or decide about it."""
        checks = LessonChecks(memory)
        if chosen:
            [decide] = chosen
            return await decide(checks, lesson, by=by, why=why)
        return await checks.propose(lesson)

    return _show_check(ask(propose_or_decide))


def _show_check(check: LessonCheck) -> int:
    """Print one check: what it asks, on what it was executed, and what it found."""
    judged = f"loops of the memory key {check.memory_key!r}"
    if not check.memory_key:
        judged = "loops without a memory key"
    if check.kind == "call":
        judged = "calls of agents, before they are made"

    reason = f": {check.why}" if check.why else ""
    lines = [
        f"lesson {check.lesson} is a check, {check.state}{reason}",
        f"finds: {check.about}",
        f"says: {check.text}",
        f"judges: {judged}",
        (
            f"executed: finds {check.failed} of {check.failed} rejected outputs, none "
            f"of {check.passed} accepted ones and of {check.harmless} of other lessons"
        ),
    ]
    if check.hits:
        lines.append(f"found: {check.hits}, wrong: {check.false_alarms}")

    then = following("lessons", "harden", "--list")
    if check.state == "proposed":
        then = following("lessons", "harden", check.lesson, "--accept", by="NAME")
    return answer(check, [clean(line, len(line)) for line in lines], then)

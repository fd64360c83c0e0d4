"""Commands that show and change lessons, patterns and pins."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from itertools import chain
from typing import Annotated, Any

from typer import Argument, Option, Typer

from heedful.cli import output
from heedful.cli.app import group
from heedful.cli.output import answer, columns, counted, emit, following, say, shorten
from heedful.cli.settings import MOST, By, DryRun, Keep, Limit, UnusedFor, Why, ask, seconds
from heedful.errors import UsageError
from heedful.lessons.lesson import Match
from heedful.lessons.patterns import Seen
from heedful.lessons.ranking import Briefing
from heedful.lessons.signature import signature
from heedful.loop.record import clean
from heedful.memory.memory import Memory, Spaces
from heedful.traces.signals import error_lines

WORDS = 200  # characters of a text that are shown
SHOWN_PATTERNS = 10
WHOLE = 10_000  # bytes of a file that are looked up whole; of a longer file, its error lines
LONGEST_NAME = 1_000


LESSONS = columns(
    "lesson kind state trust id seen helped hurt examples last_seen",
    lesson=lambda one: one["text"] or "(held back)",
    state=lambda one: f"{one['state']}, pinned" if one["pinned"] else one["state"],
)
REMOVED = columns(
    "lesson state why id seen last_of_use",
    lesson="text",
    last_of_use=lambda one: max(one["last_seen"], one["last_shown"]),
)


def lessons(limit: Limit = 50) -> int:
    """List the lessons, most often seen first. Texts in quarantine are not shown."""
    found = ask(lambda memory: memory.top(limit))
    then = "" if all(one["text"] for one in found) else following("quarantine", "list")
    empty = "nothing was learnt in this scope yet"
    return emit(found, LESSONS, key="lessons", text=4, empty=empty, then=then)


def seen(
    error: Annotated[
        str, Argument(help="The error, or a file with it; before TEXT the type or the tool.")
    ] = "-",
    text: Annotated[str, Argument(help="The text of the error, or a file with it.")] = "",
) -> int:
    """Say whether an error was seen before, and what mended it.

    Pass what you have: a message, a log file, or on standard input all that a command wrote. Like
    grep, it exits with 1 if no error was seen.
    """
    error_type, said = (error, _errors_in(text)) if text else ("", _errors_in(error))
    mark = signature(error_type, said)
    found = ask(lambda memory: memory.seen(error_type, said)) if said.strip() else Seen(0)
    known = {"seen": found.count, "signature": mark.digest, "pattern": mark.pattern}
    merged = then = ""
    if found.group is not None:
        many = counted(len(found.group.members), "pattern")
        merged = f"  {many} merged as: {clean(found.group.template, WORDS)}"
        then = following("patterns", "list", error_type)
    head = f"  {mark.digest}  {clean(mark.pattern, WORDS)}" if not found.lines else ""
    head = head if said.strip() else ", because no line of the text looks like an error"
    answer(
        {**known, "group": found.group, "lessons": found.lessons, "lines": found.lines},
        f"seen: {found.count}{head}",
        *(f"  {clean(line, WORDS)}" for line in found.lines),
        merged,
        *_lessons_whole(found.lessons, found.release),
        then,
    )
    return 0 if found else 1


def _lessons_whole(found: Sequence[Mapping[str, Any]], release: str) -> Iterator[str]:
    """Yield lines with the whole texts of lessons, and the command for those in quarantine."""
    for one in found:
        if one["text"]:
            head = f"lesson {one['id']}, {one['kind']}, {one['state']}, {one['trust']}"
            yield f"\n{head}, seen {one['seen']}"
            yield f"  {clean(one['text'], len(one['text']))}"
    if release:
        yield "\nNot shown: what tools or documents wrote waits in quarantine until it is released."
        yield f"Next: {release}"


def before(command: Annotated[list[str], Argument(help="The command, after --.")]) -> int:
    """Say how a command failed before, and what mended it; nothing if it has worked since.

    Ask before a command runs. It exits with 0 if a failure is known, otherwise with 1.
    """
    given = shlex.join(command) if len(command) > 1 else command[0]
    found = ask(lambda memory: memory.before("", given))
    lines = [clean(line, len(line)) for one in found.failures for line in str(one).splitlines()]
    if found.release:
        lines.append(f"A failure of this is known, but it waits in quarantine: {found.release}")
    answer(
        {"failures": found.failures, "waiting": found.waiting, "release": found.release},
        *(lines or ["no failure is known that has not worked since"]),
    )
    return 0 if found else 1


def _errors_in(source: str) -> str:
    """Return the text `source`, or the error lines of the file `source`; "-" is standard input.

    A short file is returned whole. Raises UsageError for a binary file.
    """
    if source != "-" and not (len(source) < LONGEST_NAME and os.path.isfile(source)):
        return source
    opened = open(source, "rb") if source != "-" else nullcontext(sys.stdin.buffer)  # noqa: SIM115
    with opened as file:
        start: bytes = file.read(WHOLE) + file.readline(WHOLE)
        if b"\0" in start:
            name = "standard input" if source == "-" else source
            raise UsageError(f"{name} is not a text; pass the output or the log as text")
        if len(start) < WHOLE:
            return start.decode("utf-8", "replace")
        lines = chain(start.splitlines(), iter(partial(file.readline, WHOLE), b""))
        return "\n".join(error_lines(line.decode("utf-8", "replace") for line in lines))


def recall(
    task: Annotated[str, Argument(help="The task; - reads standard input.")],
    limit: Limit = 5,
    why: Annotated[
        bool, Option("--why", help="Show all candidates: what a prompt would have, and why.")
    ] = False,
    key: Annotated[str, Option(help="The memory key whose rules count, with --why.")] = "",
) -> int:
    """Show the accepted answers that memory recalls for a task."""
    query = _text_of(task)
    if why:

        async def considered(memory: Memory) -> Briefing:
            memory.holdout = 0.0
            return await memory.brief(query, "", memory_key=key, every=True)

        briefing = ask(considered)
        return answer(briefing.plain(), *briefing.lines)

    async def recalled(memory: Memory) -> tuple[Sequence[Match], Spaces | None]:
        return await memory.recall(query, limit), await check_spaces(memory)

    found, spaces = ask(recalled)
    lines = []
    for one in found:
        how = "verified" if one.verified else "not verified"
        near = f"cosine {one.cosine:.2f}" if one.cosine is not None else "by its words"
        lines.append(f"{one.kind}, {how}, {near}, seen {one.seen}")
        texts = {name: getattr(one.example, name) for name in ("task", "rejected", "accepted")}
        if not one.example.accepted and one.lesson != one.example.task:
            texts["lesson"] = one.lesson
        lines += [f"  {f'{name}:':<9} {clean(text, WORDS)}" for name, text in texts.items() if text]
    return answer({"examples": found, "spaces": spaces}, *(lines or ["nothing related"]))


def _text_of(argument: str) -> str:
    """Return `argument`, or for `-` at most 1,000,000 bytes of standard input as text."""
    if argument != "-":
        return argument
    return sys.stdin.buffer.read(1_000_000).decode("utf-8", "replace")


async def check_spaces(memory: Memory) -> Spaces | None:
    """Return which examples have vectors; warn if recall compares some examples by words only."""
    if memory.embedder is None:
        return None
    spaces = await memory.spaces()
    if spaces.behind:
        say(f"recall compares {counted(spaces.behind, 'example')} by words only ({spaces})")
        say(following("reembed"))
    return spaces


patterns: Typer = group("Show merged error patterns, and undo a merge.")
Digests = Annotated[list[str], Argument(help="Digests from the list of patterns.")]


@patterns.command("list")
def list_patterns(
    error_type: Annotated[str, Argument(help="Only errors of this type.")] = "", limit: Limit = 50
) -> int:
    """List merged patterns with the reasons for their merge, then patterns that are kept apart."""
    found = ask(lambda memory: memory.patterns(error_type))[:limit]
    lines = []
    for one in found:
        kept = ", kept apart" if one["apart"] else ""
        lines.append(f"{clean(one['error_type'], WORDS)}: {clean(one['template'], WORDS)}{kept}")
        lines += [f"  {clean(why, WORDS)}" for why in one["why"]]
        for member in one["patterns"][:SHOWN_PATTERNS]:
            pattern = clean(member["pattern"], WORDS)
            lines.append(f"  {member['signature']}  seen {member['seen']}  {pattern}")
        if (more := len(one["patterns"]) - SHOWN_PATTERNS) > 0:
            lines.append(f"  and {counted(more, 'other')}; --json shows them")
    if found:
        do = "remerge" if found[0]["apart"] else "unmerge"
        digest = found[0]["patterns"][0]["signature"]
        lines.append(following("patterns", do, digest, "--by", "NAME"))
    none = "no patterns are merged, and none are kept apart"
    return answer({"patterns": found}, *(lines or [none]))


@patterns.command()
def unmerge(digests: Digests, by: By, why: Why = "") -> int:
    """Keep patterns apart from all other patterns from now on."""
    return _set_apart(digests, by, why, apart=True)


@patterns.command()
def remerge(digests: Digests, by: By, why: Why = "") -> int:
    """Allow heedful to merge patterns again that `unmerge` kept apart."""
    return _set_apart(digests, by, why, apart=False)


def _set_apart(digests: list[str], by: str, why: str, *, apart: bool) -> int:
    ask(lambda memory: memory.set_apart(*digests, by=by, why=why, apart=apart))
    how = "kept apart" if apart else "mergeable again"
    words = f"from now on {how}: {counted(len(digests), 'pattern')}"
    record = {"patterns": digests, "apart": apart, "by": by, "why": why}
    return answer(record, words, following("patterns", "list"))


def pin(
    lesson: Annotated[int, Argument(min=1, max=MOST, help="The id of a lesson.")],
    by: By,
    why: Why = "",
    undo: Annotated[bool, Option("--undo", help="Remove the pin.")] = False,
) -> int:
    """Pin a lesson: it is never evicted, pruned or retired. `heedful lessons` shows the ids."""
    ask(lambda memory: memory.pin(lesson, by=by, why=why, pinned=not undo))
    words = f"lesson {lesson} is {'no longer pinned' if undo else 'pinned'}"
    record = {"lesson": lesson, "pinned": not undo, "by": by, "why": why}
    return answer(record, words, following("lessons"))


def prune(by: By, unused_for: UnusedFor = None, keep: Keep = None, dry_run: DryRun = False) -> int:
    """Remove lessons that are not useful. Pinned lessons and lessons proven to help stay."""
    if unused_for is None and keep is None:
        raise UsageError("nothing says what to remove: give --unused-for 180d, --keep 1000 or both")
    options: dict[str, Any] = {"keep": keep, "by": by, "dry_run": dry_run}
    if unused_for is not None:
        options["unused_for"] = seconds("--unused-for", unused_for)
    found = ask(lambda memory: memory.prune(**options))
    asked = {"--unused-for": unused_for, "--keep": keep, "--by": by}
    words = [word for pair in asked.items() if pair[1] is not None for word in pair]
    return answer(
        {"dry_run": dry_run, "removed": found},
        *shorten(REMOVED, found, text=3),
        f"{counted(len(found), 'lesson')} {'would be removed' if dry_run else 'removed'}",
        following("prune", *words) if dry_run and found else following("lessons"),
    )


def reembed() -> int:
    """Compute vectors for examples that have none.

    Recall compares examples by meaning only if they have vectors of the current embedder. You can
    stop this command at any time; the next call continues where it stopped. Recall works meanwhile.
    """

    async def embed(memory: Memory) -> tuple[int, Spaces]:
        if memory.embedder is None:
            todo = "install heedful[embedded] and run it with HEEDFUL_EMBEDDER=minilm"
            what = "recall compares words here, which needs no vectors"
            raise UsageError(f"{what}; for meanings {todo}")
        watch = partial(progress.counted, "embedding", noun="examples")
        return await memory.reembed(watch), await memory.spaces()

    rest = "stopped; heedful reembed continues where it stopped"
    with output.Progress() as progress:
        done, spaces = ask(embed, progress=progress.fetched, stopped=rest)
    words = f"{counted(done, 'example')} embedded; {spaces}"
    return answer({"embedded": done, **asdict(spaces)}, words)

"""`heedful quarantine` and `trust`: review what waits, and state sources.

A text from outside waits in quarantine, and recall does not show it until somebody
releases it or states its source. Every review is recorded with who made it and why.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from getpass import getuser
from itertools import chain
from typing import Annotated, Any, Literal

from typer import Argument, Option, Typer

from heedful.cli.app import group
from heedful.cli.databases import read
from heedful.cli.output import (
    answer,
    columns,
    command_line,
    counted,
    emit,
    following,
    page,
)
from heedful.cli.resources import ask, embed_later
from heedful.cli.settings import MAX_OPTION_INTEGER, By, Limit, Texts, Why, where
from heedful.errors import NotFound
from heedful.lessons.commands import option_words, quote_words, trust_words
from heedful.lessons.lesson import Scope
from heedful.lessons.origin import KEY_SOURCE_PREFIX, names_to_state
from heedful.lessons.quarantine import QuarantinedLesson, RevocationResult
from heedful.memory.memory import Memory
from heedful.memory.quarantine import Quarantine
from heedful.sanitize import clean
from heedful.store import exposures, keys, lessons, quarantine as quarantine_store
from heedful.store.connection import Db
from heedful.store.store import Effects, also

MAX_SOURCE_CHARS = 80  # of a source in a cell of a table
Id = Annotated[
    int, Argument(min=1, max=MAX_OPTION_INTEGER, help="An id from the list.")
]
Ids = Annotated[
    list[int], Argument(min=1, max=MAX_OPTION_INTEGER, help="Ids from the list.")
]
quarantine: Typer = group()
QUARANTINE_COLUMNS = columns(
    "lesson source id of_lesson trust seen since", since="at", of_lesson="of"
)


@quarantine.command("list")
def list_waiting(limit: Limit = 50) -> int:
    """List the lessons in quarantine, newest first. A lesson is recalled only after its
    release.
    """
    lesson_ids = read(quarantine_store.lessons_of_waiting)

    async def look(
        memory: Memory,
    ) -> tuple[list[QuarantinedLesson], frozenset[str]]:
        waiting = await memory.quarantine.waiting(limit)
        return waiting, await memory.quarantine.believed()

    waiting, stated = ask(look)
    rows = []
    for entry in waiting:
        row = asdict(entry)
        # Only `show` prints where a text comes from.
        del row["provenance"]
        row["of"] = lesson_ids.get(entry.id, 0)
        rows.append(row)

    then = ""
    if rows:
        sources = list(chain.from_iterable(entry.sources for entry in waiting))
        names = names_to_state(sources, stated)
        if names:
            then = f"To state their sources: {command_line(*trust_words(names))}\n"
        then += following("quarantine", "show", rows[0]["id"])
    empty = f"nothing waits in the quarantine of {where()}"
    return emit(
        rows, QUARANTINE_COLUMNS, key="waiting", text_columns=2, empty=empty, then=then
    )


@quarantine.command("show")
def show_waiting(id: Id) -> int:
    """Show one lesson in quarantine: its texts, where they come from, and its
    reviews.
    """

    async def look(memory: Memory) -> tuple[QuarantinedLesson, frozenset[str]]:
        return await memory.quarantine.show(id), await memory.quarantine.believed()

    entry, stated = ask(look)
    then = ""
    document = asdict(entry)
    if entry.state == "quarantined":
        then = following("quarantine", "release", id, by="NAME")
        names = entry.provenance.names_to_state(stated)
        document["trust_command"] = ""
        if names:
            document["trust_command"] = command_line(*trust_words(names))
    text = page("quarantined", held=entry, trust=document.get("trust_command", ""))
    return answer(document, text, then)


@quarantine.command()
def release(ids: Ids, by: By, why: Why = "") -> int:
    """Release lessons from quarantine: recall may show them as your own words."""
    return _review("release", ids, by=by, why=why)


@quarantine.command()
def reject(ids: Ids, by: By, why: Why = "") -> int:
    """Retire lessons that are in quarantine. The same text is not stored again."""
    return _review("reject", ids, by=by, why=why)


@quarantine.command()
def undo(ids: Ids, by: By, why: Why = "") -> int:
    """Undo a release or a rejection: the lessons wait again. Prompts that already
    contain a lesson do not change.
    """
    return _review("undo", ids, by=by, why=why)


def _review(
    action: Literal["release", "reject", "undo"],
    ids: Sequence[int],
    *,
    by: str,
    why: str,
) -> int:
    """Review lessons, with an entry in the audit, and say what was done."""
    reviewed = sorted(set(ids))
    names = ", ".join(map(str, reviewed))

    async def review(memory: Memory) -> None:
        with _audited(memory.scope, action, subject=names, by=by, why=why):
            quarantine = memory.quarantine
            reviews = {
                "release": quarantine.release,
                "reject": quarantine.reject,
                "undo": quarantine.undo,
            }
            await reviews[action](ids, by=by, why=why)
        if action == "release":
            await embed_later(memory.scope)

    ask(review)
    ruling_word = quarantine_store.RULING_WORDS[action]
    document = {ruling_word: reviewed, "by": by, "why": why}
    return answer(document, f"{ruling_word}: {names}", following("quarantine", "list"))


@contextmanager
def _audited(
    scope: Scope, action: str, *, subject: str, by: str, why: str
) -> Iterator[None]:
    """Record in the audit what the block does.

    The entry is written in the transaction of the block's first write, so it exists
    only if that write was done.
    """

    def append(db: Db) -> None:
        keys.append(
            db,
            scope.tenant,
            by=by,
            action=f"quarantine.{action}",
            subject=subject,
            detail={"why": why},
            projects=[scope.project],
        )

    with Effects():
        also(append)
        yield


async def _remove(
    memory: Memory, scope: Scope, source: str, *, by: str, why: str, dry_run: bool
) -> dict[str, Any]:
    """Remove what a source wrote in one scope; with `dry_run` only count it.

    Return the fields of the RevocationResult. Raises NotFound if it wrote nothing.
    """
    inbox = Quarantine(memory.store, scope)
    if dry_run:
        return asdict(await inbox.revoke(source, by=by, why=why, dry_run=True))
    with _audited(scope, "revoke", subject=source, by=by, why=why):
        return asdict(await inbox.revoke(source, by=by, why=why))


async def _remove_everywhere(
    memory: Memory, source: str, *, by: str, why: str, dry_run: bool
) -> dict[str, Any]:
    """Remove what a source wrote in all projects of the tenant; return the sums.

    Several projects may have a loop with the same id, so an id gets its project.
    """
    sums = asdict(RevocationResult())
    projects = await memory.store.read(memory.scope, lessons.projects)
    for scope in projects or [memory.scope]:
        try:
            removed = await _remove(
                memory, scope, source, by=by, why=why, dry_run=dry_run
            )
        except NotFound:
            continue

        for name in ("loop_ids", "reopened"):
            ids = [f"{scope.project}/{id}" for id in removed[name]]
            removed[name] = tuple(ids)
        for name in sums:
            sums[name] += removed[name]
    return sums


@quarantine.command()
def revoke(
    source: Annotated[str, Argument(help="A source from the list.")],
    by: By = "",
    why: Why = "",
    yes: Annotated[
        bool, Option("--yes", help="Remove; without it only count.")
    ] = False,
) -> int:
    """Remove a source and everything that derives from it.

    This includes lessons learnt while a text of the source was in the prompt. The
    source key:ID is everything that a key wrote, in every project of the tenant.
    Without --yes it only shows what would be removed.
    """
    is_key = source.startswith(KEY_SOURCE_PREFIX)
    key_id = keys.id_of(source.removeprefix(KEY_SOURCE_PREFIX))
    if is_key:
        source = f"{KEY_SOURCE_PREFIX}{key_id}"

    async def remove(memory: Memory) -> dict[str, Any]:
        if not is_key:
            return await _remove(
                memory, memory.scope, source, by=by, why=why, dry_run=not yes
            )
        removed = await _remove_everywhere(
            memory, source, by=by, why=why, dry_run=not yes
        )
        if not any(removed.values()):
            await _require_key(memory, key_id)
        return removed

    removed = ask(remove)
    # The answer names only some of very many.
    for name in ("loop_ids", "lesson_ids", "reopened"):
        removed[name] = removed[name][: quarantine_store.MAX_REVOKED_NAMES]

    then = following("quarantine", "log")
    if any(removed.values()) and not yes:
        then = following(
            "quarantine", "revoke", source, by=by or "NAME", why=why, yes=True
        )
    document = {"source": source, "by": by, "why": why, "revoked": yes, **removed}
    text = page("revoked", source=source, revoked=yes, found=removed)
    return answer(document, text, then)


async def _require_key(memory: Memory, id: str) -> None:
    """Raise NotFound unless the tenant has this key."""
    tenant = memory.scope.tenant
    key, _ = await memory.store.read(memory.scope, keys.find, id)
    if key is None or key.tenant != tenant:
        owner = "NAME" if key is None else key.tenant
        option = quote_words(option_words("tenant", owner))
        remedy = f"; if it belongs to another tenant, add {option}"
        raise NotFound("key", id, f"tenant {tenant}", remedy=remedy)


def _subject_cell(review: Mapping[str, Any]) -> str:
    """Return what a review was about: an example with its text, or a source.

    A source that is no longer stated is marked so.
    """
    record = review["record"]
    example = record.get("example")
    if example:
        source = clean(str(record.get("source") or ""), MAX_SOURCE_CHARS)
        text = clean(review["text"], 80)
        return f"example {example} of {source}{': ' if text else ''}{text}"

    if review["action"] == "expire":
        return f"{record['loops']} {review['subject']}"

    is_removed = review["action"] == "trust" and not record.get("stated")
    return f"{review['subject']} (removed)" if is_removed else str(review["subject"])


REVIEW_COLUMNS = columns("done to by why at", done="action", to=_subject_cell)


@quarantine.command("log")
def list_reviews(limit: Limit = 50) -> int:
    """List the reviews of lessons and sources: who decided what, and why."""
    reviews = read(exposures.rulings, limit)
    ids = [review["record"].get("example", 0) for review in reviews]
    # What waits again, in new words, is not printed.
    texts = {
        entry.id: entry.lesson or entry.pattern
        for entry in read(quarantine_store.quarantined, ids)
        if entry.state != "quarantined"
    }
    reviewed = zip(ids, reviews, strict=True)
    return emit(
        [{**review, "text": texts.get(id, "")} for id, review in reviewed],
        REVIEW_COLUMNS,
        key="rulings",
        text_columns=4,
        empty="nothing was reviewed yet",
    )


def trust(
    names: Annotated[
        list[str] | None,
        Argument(
            help="Programs or tools that fetch, MCP servers, key:ID, reviewer:ID."
        ),
    ] = None,
    listed: Annotated[bool, Option("--list", help="List the stated names.")] = False,
    remove: Annotated[Texts, Option(help="State this name no more.")] = None,
    by: Annotated[str, Option(help="Who does it.", show_default="your login")] = "",
    why: Why = "",
) -> int:
    """State sources by name: agents see their words at once. Texts that wait only
    because of these sources are released. Without a name, list the stated sources.
    """
    if listed or not (names or remove):
        return _list_names()

    async def state(memory: Memory) -> list[int]:
        actor = by or getuser()
        released: list[int] = []
        if names:
            released += await memory.quarantine.state(*names, by=actor, why=why)
        if remove:
            await memory.quarantine.state(*remove, by=actor, why=why, remove=True)
        if released:
            await embed_later(memory.scope)
        return released

    released = ask(state, new=True)
    lines = []
    if names:
        text = counted(len(released), "text")
        lines.append(f"stated: {', '.join(map(clean_name, names))}; {text} released")
    if remove:
        lines.append(f"no longer stated: {', '.join(map(clean_name, remove))}")
    document = {"stated": names or [], "removed": remove or [], "released": released}
    return answer(document, lines, following("trust", list=True))


def clean_name(name: str) -> str:
    """Return a name as a line of a terminal may have it."""
    return clean(name, MAX_SOURCE_CHARS)


def _list_names() -> int:
    """List the stated names, those of the settings too."""
    names = sorted(ask(lambda memory: memory.quarantine.stated()))
    return emit(
        [{"name": name} for name in names],
        columns("name"),
        key="trusted",
        text_columns=1,
        empty="no source is stated: what comes from outside waits",
        then=following("quarantine", "log"),
    )

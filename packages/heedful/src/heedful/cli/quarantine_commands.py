"""`heedful quarantine` and `trust`: review what waits, and state sources.

A text from outside waits in quarantine, and recall does not show it until somebody
releases it or states its source. Every review is recorded with who made it and why.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from getpass import getuser
from typing import Annotated

from typer import Argument, Option, Typer

from heedful.cli.app import group
from heedful.cli.databases import read
from heedful.cli.printing import (
    Row,
    answer,
    columns,
    command_line,
    emit,
    following,
    page,
)
from heedful.cli.resources import ask, embed_later
from heedful.cli.settings import (
    By,
    Limit,
    Texts,
    Why,
    number_argument,
    where,
)
from heedful.display import counted
from heedful.errors import NotFound, UnknownName
from heedful.lessons.commands import trust_words
from heedful.lessons.forgetting import Forgotten
from heedful.lessons.lesson import Scope
from heedful.lessons.origin import (
    KEY_SOURCE_PREFIX,
    is_outside,
    names_to_state,
)
from heedful.lessons.quarantine import QuarantinedLesson
from heedful.memory import quarantine as quarantine_store
from heedful.memory.memory import Memory
from heedful.memory.quarantine import Quarantine
from heedful.sanitize import clean
from heedful.store import exposures, keys, lessons
from heedful.store.connection import Db
from heedful.store.store import Effects, also
from heedful.validation import MAX_SHOWN_ROWS, Document

Id = Annotated[int, number_argument(help="An id from the list.")]
Ids = Annotated[list[int], number_argument(help="Ids from the list.")]
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
    sources: list[str] = []
    for entry in waiting:
        row = asdict(entry)
        # Only `show` prints all of it, and where it comes from.
        del row["provenance"], row["texts"]
        rows.append({**row, "of": lesson_ids.get(entry.id, 0)})
        sources += entry.sources

    then = following("quarantine", "show", rows[0]["id"]) if rows else ""
    names = names_to_state(sources, stated)
    if names:
        then = f"To state their sources: {command_line(*trust_words(names))}\n{then}"
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
    trust = ""
    document = asdict(entry)
    if entry.state == "quarantined":
        then = following("quarantine", "release", id, by="NAME")
        names = entry.provenance.names_to_state(stated)
        trust = command_line(*trust_words(names)) if names else ""
        document["trust_command"] = trust
    return answer(document, page("quarantined", held=entry, trust=trust), then)


@quarantine.command()
def release(ids: Ids, by: By, why: Why = "") -> int:
    """Release lessons from quarantine: agents are told all that `show` prints."""
    return _review(Quarantine.release, ids, by=by, why=why)


@quarantine.command()
def reject(ids: Ids, by: By, why: Why = "") -> int:
    """Retire lessons that are in quarantine. The same text is not stored again."""
    return _review(Quarantine.reject, ids, by=by, why=why)


@quarantine.command()
def undo(ids: Ids, by: By, why: Why = "") -> int:
    """Undo a release or a rejection: the lessons wait again. Prompts that already
    contain a lesson do not change.
    """
    return _review(Quarantine.undo, ids, by=by, why=why)


def _review(
    decide: Callable[..., Awaitable[None]],
    ids: Sequence[int],
    *,
    by: str,
    why: str,
) -> int:
    """Decide about lessons, with an entry in the audit, and say what was done.

    The name of `decide` is that of the decision.
    """
    action = decide.__name__
    reviewed = sorted(set(ids))
    names = ", ".join(map(str, reviewed))

    async def review(memory: Memory) -> None:
        with _audited(memory.scope, action, subject=names, by=by, why=why):
            await decide(memory.quarantine, ids, by=by, why=why)
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
    memory: Memory,
    source: str,
    scopes: Sequence[Scope],
    *,
    by: str,
    why: str,
    dry_run: bool,
) -> Document:
    """Remove what a source wrote in some scopes; with `dry_run` only count it.

    Return the sums of the results. Several projects may have a loop with the
    same id, so an id gets its project. Raises NotFound if the source wrote nothing.
    """
    sums = asdict(Forgotten())
    del sums["remains"]
    refusals: list[NotFound] = []
    for scope in scopes:
        inbox = Quarantine(memory.store, scope)
        try:
            audit = _audited(scope, "revoke", subject=source, by=by, why=why)
            with nullcontext() if dry_run else audit:
                result = await inbox.revoke(source, by=by, why=why, dry_run=dry_run)
        except NotFound as error:
            refusals.append(error)
            continue

        removed = asdict(result)
        if len(scopes) > 1:
            for name in ("loop_ids", "reopened"):
                removed[name] = tuple(f"{scope.project}/{id}" for id in removed[name])
        for name in sums:
            sums[name] += removed[name]
    if len(refusals) == len(scopes):
        raise refusals[-1]
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
    if is_key:
        source = KEY_SOURCE_PREFIX + keys.id_of(source.removeprefix(KEY_SOURCE_PREFIX))

    async def remove(memory: Memory) -> Document:
        scopes: Sequence[Scope] = ()
        if is_key:
            scopes = await memory.store.read(memory.scope, lessons.projects)
        return await _remove(
            memory, source, scopes or [memory.scope], by=by, why=why, dry_run=not yes
        )

    removed = ask(remove)
    # The answer names only some of very many.
    for name in ("loop_ids", "lesson_ids", "reopened"):
        removed[name] = removed[name][:MAX_SHOWN_ROWS]

    then = following("quarantine", "log")
    if not yes:
        then = following(
            "quarantine", "revoke", source, by=by or "NAME", why=why, yes=True
        )
    document = {"source": source, "by": by, "why": why, "revoked": yes, **removed}
    text = page("revoked", source=source, revoked=yes, found=removed)
    return answer(document, text, then)


def _subject_cell(review: Row) -> str:
    """Return what a review was about: an example of a source, or a source.

    A source that is no longer trusted is marked so.
    """
    record = review["record"]
    if record.get("example"):
        return (
            f"example {record['example']} of {clean_name(record.get('source') or '')}"
        )
    if review["action"] == "expire":
        return f"{record['loops']} {review['subject']}"
    if review["action"] == "trust" and not record.get("stated"):
        return f"{review['subject']} (removed)"
    return str(review["subject"])


REVIEW_COLUMNS = columns("done to by why at", done="action", to=_subject_cell)


@quarantine.command("log")
def list_reviews(limit: Limit = 50) -> int:
    """List the reviews of lessons and sources: who decided what, and why."""
    return emit(
        read(exposures.rulings, limit),
        REVIEW_COLUMNS,
        key="rulings",
        text_columns=4,
        empty="nothing was reviewed yet",
    )


def _check_source(name: str, senders: Sequence[str]) -> None:
    """Raise UnknownName unless a source of this name has sent a text, or may send one.

    `senders` are the names of those that have. A key or what fetches may send one
    later.
    """
    may_send = any(map(is_outside, (name, f"program:{name}", f"tool:{name}")))
    if not may_send and name not in senders:
        raise UnknownName(
            "source",
            name,
            senders,
            f'to trust it before it sends a text, write trust = ["{name}"] in '
            "heedful.toml",
        )


def trust(
    names: Annotated[
        list[str] | None,
        Argument(
            help="Programs or tools that fetch, MCP servers, key:ID, reviewer:ID."
        ),
    ] = None,
    listed: Annotated[bool, Option("--list", help="List the trusted names.")] = False,
    remove: Annotated[Texts, Option(help="Stop trusting this name.")] = None,
    by: Annotated[str, Option(help="Who does it.", show_default="your login")] = "",
    why: Why = "",
) -> int:
    """Trust sources by name: agents see their texts at once. Texts held only because of
    these sources are released. Without names, list the trusted sources.
    """
    if listed or not (names or remove):
        # The names of the settings are among them.
        trusted = sorted(ask(lambda memory: memory.quarantine.stated()))
        return emit(
            [{"name": name} for name in trusted],
            columns("name"),
            key="trusted",
            text_columns=1,
            empty="no source is trusted: what comes from outside waits",
            then=following("quarantine", "log"),
        )

    async def decide(memory: Memory) -> list[int]:
        senders = await memory.store.read(memory.scope, keys.source_names)
        for name in names or ():
            _check_source(name, senders)
        actor = by or getuser()
        released: list[int] = []
        if names:
            released += await memory.quarantine.state(*names, by=actor, why=why)
        if remove:
            await memory.quarantine.state(*remove, by=actor, why=why, remove=True)
        if released:
            await embed_later(memory.scope)
        return released

    released = ask(decide, new=True)
    lines = []
    if names:
        text = counted(len(released), "text")
        lines.append(f"trusted: {', '.join(map(clean_name, names))}; {text} released")
    if remove:
        lines.append(f"no longer trusted: {', '.join(map(clean_name, remove))}")
    document = {"stated": names or [], "removed": remove or [], "released": released}
    return answer(document, lines, following("trust", list=True))


def clean_name(name: str) -> str:
    """Return a name as a line of a terminal may have it."""
    return clean(name, most=80)

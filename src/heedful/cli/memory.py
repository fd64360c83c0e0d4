"""`heedful quarantine`, `dream`, `proof` and `reflect`: learn, rule on lessons, measure
them.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, nullcontext, suppress
from dataclasses import KW_ONLY, asdict, dataclass
from functools import partial
from getpass import getuser
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Context, Option, Typer

from heedful.cli import output
from heedful.cli import settings as config
from heedful.cli.app import PLAIN_HELP_OPTIONS, Group, group
from heedful.cli.output import (
    answer,
    columns,
    counted,
    emit,
    following,
    page,
    repeated,
    when,
)
from heedful.cli.settings import MAX_OPTION_INTEGER, By, DryRun, Limit, Why, ask, where
from heedful.errors import (
    ModelError,
    ModelUnavailable,
    NotFound,
    TraceFileError,
    UsageError,
)
from heedful.lessons.briefing import FIRST_LOOPS_WITHOUT_HOLDOUT
from heedful.lessons.consolidate import VETO_REASONS
from heedful.lessons.lesson import TRUST_ORDER, Scope
from heedful.lessons.proof import Proof
from heedful.lessons.trust import KEY_SOURCE_PREFIX, SOURCE_FORMS, RevocationResult
from heedful.lessons.words import difference
from heedful.memory import reflect as learn
from heedful.memory.dream import Dream, Dreams, consolidate
from heedful.memory.memory import Memory
from heedful.memory.quarantine import Quarantine
from heedful.sanitize import clean
from heedful.store import exposures, keys, lessons
from heedful.store import quarantine as quarantine_store
from heedful.store.store import Effects, Store, also
from heedful.traces import read
from heedful.traces.episode import Episode

MAX_SOURCE_CHARS = 80
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


def _subject(ruling: Mapping[str, Any]) -> str:
    example, source = (ruling["record"].get(key) for key in ("example", "source"))
    about = f"example {example} of {clean(str(source or ''), MAX_SOURCE_CHARS)}"
    trust = ruling["record"].get("trust", "") if ruling["action"] == "trust" else ""
    return about if example else f"{ruling['subject']} {trust}".strip()


@quarantine.command("list")
def list_waiting(limit: Limit = 50) -> int:
    """List the lessons in quarantine, newest first. A lesson is recalled only after its
    release.
    """
    of = ask(
        lambda memory: memory.store.read(
            memory.scope, quarantine_store.lessons_of_waiting
        )
    )
    waiting = ask(lambda memory: memory.quarantine.waiting(limit))
    rows = [{**asdict(one), "of": of.get(one.id, 0)} for one in waiting]
    for row in rows:
        del row["provenance"]  # only `show` prints it
    then = following("quarantine", "show", rows[0]["id"]) if rows else ""
    empty = f"nothing waits in the quarantine of {where()}"
    return emit(rows, QUARANTINE_COLUMNS, key="waiting", text=2, empty=empty, then=then)


@quarantine.command("show")
def show_waiting(id: Id) -> int:
    """Show one lesson in quarantine: its texts, where they come from, and the rulings
    on it.
    """
    held = ask(lambda memory: memory.quarantine.show(id))
    then = following("quarantine", "release", id, "--by", "NAME")
    return answer(
        held,
        page("quarantined", held=held),
        then if held.state == "quarantined" else "",
    )


@quarantine.command()
def release(ids: Ids, by: By, why: Why = "") -> int:
    """Release lessons from quarantine: recall may show them. Their trust becomes
    operator.
    """
    return _rule("release", ids, by, why)


@quarantine.command()
def reject(ids: Ids, by: By, why: Why = "") -> int:
    """Retire lessons that are in quarantine. The same text is not stored again."""
    return _rule("reject", ids, by, why)


def _rule(
    action: Literal["release", "reject"], ids: Sequence[int], by: str, why: str
) -> int:
    each = sorted(set(ids))
    then = following("quarantine", "list")
    what = lessons.RULING_WORDS[action]
    named = ", ".join(map(str, each))

    async def rule(memory: Memory) -> None:
        with _audited(memory.scope, action, subject=named, by=by, why=why):
            await getattr(memory.quarantine, action)(ids, by=by, why=why)

    ask(rule)
    return answer({what: each, "by": by, "why": why}, f"{what}: {named}", then)


@contextmanager
def _audited(
    scope: Scope, action: str, subject: str, by: str, why: str
) -> Iterator[None]:
    """Record the ruling of the block in the audit, in its transaction."""
    entry = by, f"quarantine.{action}", subject, {"why": why}, [scope.project]
    with Effects():
        also(lambda db: keys.append(db, scope.tenant, *entry))
        yield


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
    source key:ID is all that a key wrote, in every project of the tenant. Without --yes
    it only shows what would be removed.
    """
    of_key = source.startswith(KEY_SOURCE_PREFIX)
    source = (
        f"{KEY_SOURCE_PREFIX}{keys.id_of(source.removeprefix(KEY_SOURCE_PREFIX))}"
        if of_key
        else source
    )

    async def remove(memory: Memory) -> dict[str, Any]:
        total = {name: type(n)() for name, n in asdict(RevocationResult()).items()}
        every = (
            await memory.store.read(memory.scope, lessons.projects) if of_key else ()
        )
        for scope in every or [memory.scope]:
            held = Quarantine(memory.store, scope)
            audited = (
                _audited(scope, action="revoke", subject=source, by=by, why=why)
                if yes
                else nullcontext()
            )
            with suppress(*[NotFound] * of_key), audited:
                one = asdict(await held.revoke(source, by=by, why=why, dry_run=not yes))
                if of_key:  # the same id may be in several projects
                    one["loop_ids"] = tuple(
                        f"{scope.project}/{id}" for id in one["loop_ids"]
                    )
                total = {name: n + one[name] for name, n in total.items()}
        total["loop_ids"] = total["loop_ids"][: lessons.MAX_REVOKED_NAMES]
        return {**total, "lesson_ids": total["lesson_ids"][: lessons.MAX_REVOKED_NAMES]}

    found = ask(remove)
    words = [
        "revoke",
        source,
        "--by",
        by or "NAME",
        *(["--why", why] if why else []),
        "--yes",
    ]
    then = following(
        "quarantine", *(words if any(found.values()) and not yes else ["log"])
    )
    record = {"source": source, "by": by, "why": why, "revoked": yes, **found}
    return answer(record, page("revoked", **record, found=found), then)


@quarantine.command("log")
def list_rulings(limit: Limit = 50) -> int:
    """List the rulings on lessons and sources: who decided what, and why."""
    found = ask(
        lambda memory: memory.store.read(memory.scope, exposures.rulings, limit)
    )
    shown = columns("done to by why at", done="action", to=_subject)
    return emit(found, shown, key="rulings", text=4, empty="nothing was ruled yet")


trusts: Typer = group()
Source = Annotated[str, Argument(help=f"{SOURCE_FORMS}.")]
Whom = Annotated[str, Option(help="Who is responsible.", show_default="your login")]
Waiting: Any = Option(
    "--waiting", help="Also release what waits and depends on no other source."
)


@trusts.command("list")
def list_trust() -> int:
    """List the trust of sources, of the settings too; `quarantine log` has by whom and
    why.
    """
    stated = ask(lambda memory: memory.stated_trust(), new=True)
    rows = [{"source": source, "trust": trust} for source, trust in stated.items()]
    empty = "nothing is stated: texts of tools and users wait in quarantine"
    then = following("quarantine", "log")
    return emit(
        rows, columns("source trust"), key="trust", text=2, empty=empty, then=then
    )


@trusts.command("set")
def set_trust(
    source: Source,
    trust: Annotated[str, Argument(help=f"One of {', '.join(TRUST_ORDER)}.")],
    by: Whom = "",
    why: Why = "",
    waiting: Annotated[bool, Waiting] = False,
) -> int:
    """State how far a source is trusted from now on. What comes from the network always
    waits.
    """
    options: Any = {"by": by or getuser(), "why": why, "waiting": waiting}
    known: Any = trust  # Memory checks it
    released = ask(lambda memory: memory.set_trust(source, known, **options), new=True)
    more = f"; {counted(len(released), 'text')} released" if waiting else ""
    record = {"source": source, "trust": trust, "released": released}
    return answer(
        record, f"{source} is trusted as {trust}{more}", following("trust", "list")
    )


@trusts.command("unset")
def unset_trust(source: Source, by: Whom = "", why: Why = "") -> int:
    """Take back a statement. What was learnt or released meanwhile stays."""
    ask(
        lambda memory: memory.set_trust(source, None, by=by or getuser(), why=why),
        new=True,
    )
    return answer(
        {"source": source, "trust": None}, f"nothing is stated of {source} now"
    )


dreams: Typer = Typer(cls=Group, add_completion=False, **PLAIN_HELP_OPTIONS)


@dreams.callback(invoke_without_command=True)
def dream(
    context: Context,
    dry_run: DryRun = False,
    mode: Annotated[
        str, Option(help="lite: all lessons; full: the last 24 hours.")
    ] = "lite",
    by: By = "heedful",
) -> int:
    """Merge lessons that say the same, if recall stays as good. `rollback` undoes a
    dream.
    """
    if context.invoked_subcommand is not None:
        return 0
    options: Any = {"mode": mode, "dry_run": dry_run, "by": by}
    one = ask(partial(consolidate, **options), stopped="stopped; nothing was changed")
    then: list[object] = ["dream", "show", one.id] if one.done else ["lessons"]
    return _answer_dream(one, repeated() if one.done and dry_run else following(*then))


def _what(one: Dream) -> str:
    what = (
        one.nothing
        or f"{counted(sum(len(p.members) for p in one.done), 'lesson')} superseded"
    )
    return what if one.undone is None else f"rolled back {when(one.undone)}; {what}"


@dreams.command("log")
def list_dreams(limit: Limit = 20) -> int:
    """List the dreams and what they did. If a dream did nothing, the reason is
    shown.
    """
    found = ask(lambda memory: Dreams(memory).log(limit))
    then = following("dream", "show", found[0].id) if found else ""
    shown = columns("what by id mode before after at", what=_what)
    options: Any = {"empty": "no dream yet", "then": then, "document": _dream_document}
    return emit(found, shown, key="dreams", text=2, **options)


@dreams.command("show")
def show_dream(id: Id) -> int:
    """Show which lessons a dream changed, and how their texts differ."""
    one = ask(lambda memory: Dreams(memory).show(id))
    undo = one.done and one.undone is None
    then = following("dream", *(["rollback", id, "--by", "NAME"] if undo else ["log"]))
    return _answer_dream(one, then)


@dreams.command()
def rollback(id: Id, by: By, why: Why = "") -> int:
    """Undo a dream, so that recall is as before. Lessons learnt after the dream
    stay.
    """
    back = ask(lambda memory: Dreams(memory).rollback(id, by=by, why=why))
    words = f"dream {id} is undone: {counted(back, 'lesson')} restored"
    record = {"dream": id, "by": by, "why": why, "lessons": back}
    return answer(record, words, following("dream", "log"))


def _dream_document(one: Dream) -> dict[str, Any]:
    """Return a dream as JSON data, with how the text of each merged lesson differs."""
    proposals = []
    for each in one.proposals:
        into = one.texts.get(each.survivor, "")
        members = (id for id in each.members if into and id in one.texts)
        differs = {id: difference(one.texts[id], into) for id in members}
        proposals.append({**asdict(each), "differs": differs})
    return {
        **asdict(one),
        "after": one.after,
        "nothing": one.nothing,
        "proposals": proposals,
    }


def _answer_dream(one: Dream, then: str) -> int:
    document = _dream_document(one)
    return answer(document, page("dream", VETOES=VETO_REASONS, **document), then)


RULE_FIELDS = ("id", "text", "state", "pinned", "useful", "helped", "hurt")
RESTORE_OPTION = Option(
    min=1, max=MAX_OPTION_INTEGER, help="The id of a lesson to restore."
)


def proof(
    limit: Limit = 10,
    restore: Annotated[int | None, RESTORE_OPTION] = None,
    by: By = "",
    why: Why = "",
) -> int:
    """Show whether memory helps, with confidence intervals.

    It compares loops that were shown lessons with loops from which they were withheld:
    how often was the first attempt right? The intervals are valid however often you
    look. heedful retires a lesson that is proven to hurt. If an operator wrote or
    pinned it, it stays until it is unpinned.
    """
    if restore is not None:
        if not by.strip():
            raise UsageError("--restore needs --by: who is responsible")
        ask(lambda memory: memory.restore(restore, by=by, why=why))
        words = (
            f"lesson {restore} is restored; only later loops count for or against it"
        )
        return answer(
            {"restored": restore, "by": by, "why": why}, words, following("proof")
        )

    async def read(memory: Memory) -> tuple[Proof, dict[str, Any], int, float]:
        known = {
            f"{one['kind']}/{one['signature']}": one
            for one in await memory.top(MAX_OPTION_INTEGER)
        }
        past = await memory.store.read(memory.scope, exposures.past, "")
        return await memory.prove(), known, past.ended, memory.holdout

    found, known, ended, holdout = ask(read)
    ranked = sorted(found.lessons, key=lambda one: -(one.shown + one.withheld))[:limit]
    pairs = [(known.get(str(one.lesson)), one) for one in ranked]
    lessons = [
        {**asdict(one), **{k: (it or {}).get(k) for k in RULE_FIELDS}}
        for it, one in pairs
    ]
    rest = {"pending": found.pending, "ended": ended, "holdout": holdout}
    whole = found.pooled
    then = ["recall", "TASK"]
    words = "no lesson was put into the prompt of a loop yet"
    if found.pending:
        words = (
            f"no loop with lessons has ended; {counted(found.pending, 'loop')} running"
        )
    if found.lessons or whole.shown or whole.withheld:
        retired = [it["id"] for it, _ in pairs if it and it["state"] == "retired"]
        hurts = [it["id"] for it, one in pairs if it and one.conclusion == "hurts"]
        then = (
            ["proof", "--restore", retired[0], "--by", "NAME"]
            if retired
            else ["lessons"]
        )
        if asked := sorted(set(hurts) - set(retired)):
            then = ["pin", asked[0], "--undo", "--by", "NAME"]
        shown = {
            "found": found,
            "pairs": pairs,
            "first": FIRST_LOOPS_WITHOUT_HOLDOUT,
            **rest,
        }
        words = page("proof", **shown, more=len(found.lessons) - len(pairs))
    return answer(
        {"pooled": whole, "lessons": lessons, **rest}, words, following(*then)
    )


Author = Literal["external", "operator"]
REFLECT_RETRY_HINT = "heedful worker --once tries again"


@dataclass
class EpisodeResult:
    """What reflecting gave: `reflected`, or an `error` of the model or the file, or
    neither.
    """

    name: str
    episode: Episode | None = None
    _: KW_ONLY
    reflected: learn.Reflected | None = None
    error: str = ""


def reflect(
    files: Annotated[list[Path], Argument(help="Files of traces.")],
    trust: Annotated[Author, Option(help="Who wrote the tasks.")] = "external",
    keep: Annotated[
        bool, Option("--store/--no-store", help="Store the lessons.")
    ] = True,
) -> int:
    """List what failed in runs of agents, with the events that prove it, and learn from
    it.

    Each run counts once, however often it is read. Lessons that depend on texts of
    tools, documents or users wait in quarantine.
    """
    logging.getLogger("heedful").addHandler(
        logging.NullHandler()
    )  # failures are printed below
    values = config.settings()
    results = list[EpisodeResult]()
    model = "model" in output.call().options and values.model != config.NO_MODEL

    async def work(store: Store) -> None:
        options: Any = {"memory": config.memory_of(values, store)}
        async with AsyncExitStack() as stack:
            if model:
                options["model"] = await stack.enter_async_context(
                    config.model_of(values)
                )
            async for result in _from_files(files, **options, trust=trust, store=keep):
                results.append(result)
                output.progress().counted(
                    "reflecting", len(results), total=0, noun="episodes"
                )

    rest = "stopped; what was reflected on is kept, the same command does the rest"
    config.ask_store(values, work, new=True, stopped=rest)
    some = [one.reflected for one in results if one.reflected is not None]
    new = [one for one in some if one.stored and not (one.known or one.again)]
    known = sum(bool(one.known or one.again) and not one.busy for one in some)
    failed = sum(bool(one.error) for one in results)
    busy = sum(one.busy for one in some)
    words = f"{counted(len(results), 'episode')}: {len(new)} new, {known} known"
    words += f", {busy} left to others" * bool(busy) + f", {failed} failed" * bool(
        failed
    )
    held = ["quarantine", "list"] if any(one.release for one in new) else ["lessons"]
    then = following(*held) if new and not failed else ""
    record = {"episodes": list(map(_document, results)), "failed": failed}
    answer(
        record, page("reflect", results=results, again=REFLECT_RETRY_HINT), words, then
    )
    if failed and not output.call().json:
        output.say(f"heedful: where a model failed, {REFLECT_RETRY_HINT}")
    return int(failed > 0)


async def _from_files(
    files: Sequence[Path], **options: Any
) -> AsyncIterator[EpisodeResult]:
    for file in files:
        number = 0
        try:
            for number, episode in enumerate(read(file), 1):
                name = f"{file.name}:{clean(episode.id, 60) or number}"
                try:
                    found = await learn.reflect(
                        episode, on_model_error="raise", **options
                    )
                    yield EpisodeResult(name, episode, reflected=found)
                except ModelUnavailable:
                    raise
                except ModelError as error:
                    yield EpisodeResult(name, episode, error=str(error))
        except TraceFileError as error:  # what stands before the damage is reflected on
            yield EpisodeResult(file.name, error=str(error))
            continue
        if not number:
            yield EpisodeResult(file.name)


def _document(result: EpisodeResult) -> dict[str, Any]:
    found = result.reflected
    episode = result.episode
    document: dict[str, Any] = {
        "name": result.name,
        "error": result.error,
        "reflection": None,
    }
    if episode is not None:
        document |= {
            name: getattr(episode, name) for name in ("outcome", "task", "digest")
        }
    if found is not None:
        names = ("release", "importance", "confidence")
        document |= asdict(found) | {name: getattr(found, name) for name in names}
    return document

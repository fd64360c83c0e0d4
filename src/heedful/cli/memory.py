"""`heedful quarantine`, `dream`, `proof` and `reflect`: learn, rule on lessons, measure them."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from functools import partial
from getpass import getuser
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Context, Option, Typer

from heedful.cli import output
from heedful.cli import settings as config
from heedful.cli.app import PLAIN, group
from heedful.cli.output import Progress, answer, call, columns, counted, emit, following, when
from heedful.cli.settings import MOST, By, DryRun, Limit, Plot, Why, ask, write_plot
from heedful.errors import ModelError, ModelUnavailable, UsageError
from heedful.lessons.consolidate import VETOES, Proposal
from heedful.lessons.lesson import ORDER
from heedful.lessons.proof import Comparison, Effect, Proof
from heedful.lessons.ranking import FIRST
from heedful.lessons.trust import SOURCES, QuarantinedLesson
from heedful.lessons.words import difference
from heedful.loop.record import clean
from heedful.memory import reflect as learn
from heedful.memory.dream import Dream, Dreams, consolidate
from heedful.memory.memory import Memory
from heedful.pages.plot import forest
from heedful.store import episodes, exposures
from heedful.store.store import Store
from heedful.traces import read
from heedful.traces.episode import Episode

WORDS = 300  # characters of a text that are shown
BRIEF = 80
SHOWN = 30
Id = Annotated[int, Argument(min=1, max=MOST, help="An id from the list.")]
Ids = Annotated[list[int], Argument(min=1, max=MOST, help="Ids from the list.")]


quarantine: Typer = group("Show and rule on quarantined lessons; revoke sources.")
WAITING = columns("lesson source id trust seen since", since="at")


def _subject(ruling: Mapping[str, Any]) -> str:
    example, source = (ruling["record"].get(key) for key in ("example", "source"))
    about = f"example {example} of {clean(str(source or ''), BRIEF)}"
    trust = ruling["record"].get("trust", "") if ruling["action"] == "trust" else ""
    return about if example else f"{ruling['subject']} {trust}".strip()


RULINGS = columns("done to by why at", done="action", to=_subject)


@quarantine.command("list")
def list_waiting(limit: Limit = 50) -> int:
    """List the lessons in quarantine, newest first. A lesson is recalled only after its release."""
    rows = [asdict(one) for one in ask(lambda memory: memory.quarantine.waiting(limit))]
    for row in rows:
        del row["provenance"]  # only `show` prints it
    then = following("quarantine", "show", rows[0]["id"]) if rows else ""
    empty = "nothing waits in quarantine"
    return emit(rows, WAITING, key="waiting", text=2, empty=empty, then=then)


@quarantine.command("show")
def show_waiting(id: Id) -> int:
    """Show one lesson in quarantine: its texts, where they come from, and the rulings on it."""
    held = ask(lambda memory: memory.quarantine.show(id))
    then = following("quarantine", "release", id, "--by", "NAME")
    return answer(held, *_describe_entry(held), then if held.state == "quarantined" else "")


def _describe_entry(held: QuarantinedLesson) -> Iterator[str]:
    yield f"example {held.id}: {held.state}, {held.trust}, {held.error_type}, seen {held.seen}"
    came = held.provenance
    lines = {"pattern": held.pattern, "lesson": held.lesson}
    for name in ("task", "rejected", "wrong", "accepted") if held.example else ():
        lines[name] = getattr(held.example, name)
    lines |= {"tags": ", ".join(held.tags), "sources": ", ".join(came.sources) or "no source"}
    for name, ids in (("from", came.parents), ("into", came.children)):
        lines[name] = f"example {', '.join(map(str, ids))}" if ids else ""
    yield from (f"{name:<9} {clean(text, WORDS)}" for name, text in lines.items() if text)
    for seen in came.sightings:
        where = clean(seen.source or seen.loop or "no source", BRIEF)
        yield f"seen      {when(seen.at)}, {seen.trust}, {where}: {clean(seen.text, BRIEF)}"
    for ruled in came.rulings:
        why = clean(ruled["why"], WORDS) or "no reason given"
        yield f"{ruled['action']:<9} {when(ruled['at'])}, {clean(ruled['by'], 60)}: {why}"


@quarantine.command()
def release(ids: Ids, by: By, why: Why = "") -> int:
    """Release lessons from quarantine: recall may show them. Their trust becomes operator."""
    ask(lambda memory: memory.quarantine.release(ids, by=by, why=why))
    return _ruled("released", ids, by, why)


@quarantine.command()
def reject(ids: Ids, by: By, why: Why = "") -> int:
    """Retire lessons that are in quarantine. The same text is not stored again."""
    ask(lambda memory: memory.quarantine.reject(ids, by=by, why=why))
    return _ruled("rejected", ids, by, why)


def _ruled(what: str, ids: Sequence[int], by: str, why: str) -> int:
    each, then = sorted(set(ids)), following("quarantine", "list")
    return answer({what: each, "by": by, "why": why}, f"{what}: {', '.join(map(str, each))}", then)


@quarantine.command()
def revoke(
    source: Annotated[str, Argument(help="A source from the list.")],
    by: By = "",
    why: Why = "",
    yes: Annotated[bool, Option("--yes", help="Remove; without it only count.")] = False,
) -> int:
    """Remove a source and everything that derives from it.

    This includes lessons learnt while a text of the source was in the prompt. Without --yes it only
    shows what would be removed.
    """
    options: Any = {"by": by, "why": why, "dry_run": not yes}
    counts = asdict(ask(lambda memory: memory.quarantine.revoke(source, **options)))
    sums = ", ".join(counted(n, name.removesuffix("s")) for name, n in counts.items())
    words = ["revoke", source, "--by", by or "NAME", *(["--why", why] if why else []), "--yes"]
    return answer(
        {"source": source, "by": by, "why": why, "revoked": yes, **counts},
        f"{'removed' if yes else 'would remove'}: {sums}",
        following("quarantine", *(["log"] if yes else words)),
    )


@quarantine.command("log")
def list_rulings(limit: Limit = 50) -> int:
    """List the rulings on lessons and sources: who decided what, and why."""
    found = ask(lambda memory: memory.store.read(memory.scope, exposures.rulings, limit))
    return emit(found, RULINGS, key="rulings", text=4, empty="nothing was ruled yet")


trusts: Typer = group("State how far programs, tools and the user are trusted.")
STATED = columns("source trust")
Source = Annotated[str, Argument(help=f"{SOURCES}.")]
Whom = Annotated[str, Option(help="Who is responsible.", show_default="your login")]
Waiting = Option("--waiting", help="Also release what waits and depends on no other source.")


@trusts.command("list")
def list_trust() -> int:
    """List the trust of sources, of the settings too; `quarantine log` has by whom and why."""
    stated = ask(lambda memory: memory.stated_trust(), new=True)
    rows = [{"source": source, "trust": trust} for source, trust in stated.items()]
    empty = "nothing is stated: texts of tools and users wait in quarantine"
    return emit(rows, STATED, key="trust", text=2, empty=empty, then=following("quarantine", "log"))


@trusts.command("set")
def set_trust(
    source: Source,
    trust: Annotated[str, Argument(help=f"One of {', '.join(ORDER)}.")],
    by: Whom = "",
    why: Why = "",
    waiting: Annotated[bool, Waiting] = False,
) -> int:
    """State how far a source is trusted from now on. What comes from the network always waits."""
    options: Any = {"by": by or getuser(), "why": why, "waiting": waiting}
    known: Any = trust  # Memory checks it
    released = ask(lambda memory: memory.set_trust(source, known, **options), new=True)
    more = f"; {counted(len(released), 'text')} released" if waiting else ""
    record = {"source": source, "trust": trust, "released": released}
    return answer(record, f"{source} is trusted as {trust}{more}", following("trust", "list"))


@trusts.command("unset")
def unset_trust(source: Source, by: Whom = "", why: Why = "") -> int:
    """Take back a statement. What was learnt or released meanwhile stays."""
    ask(lambda memory: memory.set_trust(source, None, by=by or getuser(), why=why), new=True)
    return answer({"source": source, "trust": None}, f"nothing is stated of {source} now")


dreams: Typer = Typer(add_completion=False, **PLAIN)


@dreams.callback(invoke_without_command=True)
def dream(
    context: Context,
    dry_run: DryRun = False,
    mode: Annotated[str, Option(help="lite: all lessons; full: the last 24 hours.")] = "lite",
    by: By = "heedful",
) -> int:
    """Merge lessons that say the same, if recall stays as good. `rollback` undoes a dream."""
    if context.invoked_subcommand is not None:
        return 0
    options: Any = {"mode": mode, "dry_run": dry_run, "by": by}
    with Progress() as progress:
        work, unchanged = partial(consolidate, **options), "stopped; nothing was changed"
        one = ask(work, progress=progress.fetched, stopped=unchanged)
    then: list[object] = ["lessons"]
    if dry_run and one.done:
        then = ["dream", *(["--mode", mode] if mode != "lite" else [])]
    elif one.done:
        then = ["dream", "show", one.id]
    return answer(dream_document(one), *_describe_dream(one), following(*then))


def _what(one: Dream) -> str:
    what = one.nothing or f"{counted(sum(len(p.members) for p in one.done), 'lesson')} superseded"
    return what if one.undone is None else f"rolled back {when(one.undone)}; {what}"


DREAMS = columns("what by id mode before after at", what=_what)


@dreams.command("log")
def list_dreams(limit: Limit = 20) -> int:
    """List the dreams and what they did. If a dream did nothing, the reason is shown."""
    found = ask(lambda memory: Dreams(memory).log(limit))
    then = following("dream", "show", found[0].id) if found else ""
    options: Any = {"empty": "no dream yet", "then": then, "document": dream_document}
    return emit(found, DREAMS, key="dreams", text=2, **options)


@dreams.command("show")
def show_dream(id: Id) -> int:
    """Show which lessons a dream changed, and how their texts differ."""
    one = ask(lambda memory: Dreams(memory).show(id))
    undo = one.done and one.undone is None
    then = following("dream", *(["rollback", id, "--by", "NAME"] if undo else ["log"]))
    return answer(dream_document(one), *_describe_dream(one), then)


@dreams.command()
def rollback(id: Id, by: By, why: Why = "") -> int:
    """Undo a dream, so that recall is as before. Lessons learnt after the dream stay."""
    back = ask(lambda memory: Dreams(memory).rollback(id, by=by, why=why))
    words = f"dream {id} is undone: {counted(back, 'lesson')} restored"
    record = {"dream": id, "by": by, "why": why, "lessons": back}
    return answer(record, words, following("dream", "log"))


def dream_document(one: Dream) -> dict[str, Any]:
    """Return a dream as JSON data, with the differences between merged texts."""
    proposals = [{**asdict(each), "differs": _differences(one, each)} for each in one.proposals]
    return {**asdict(one), "after": one.after, "nothing": one.nothing, "proposals": proposals}


def _differences(one: Dream, proposal: Proposal) -> dict[int, str]:
    """Return, for each merged lesson's id, how its text differs from the survivor's text."""
    into = one.texts.get(proposal.survivor, "")
    members = (id for id in proposal.members if into and id in one.texts)
    return {id: difference(one.texts[id], into) for id in members}


def _describe_dream(one: Dream) -> Iterator[str]:
    number = f"dream {one.id}" if one.id else "a dry run"
    undone = f", rolled back {when(one.undone)}" if one.undone is not None else ""
    yield f"{number}: {one.mode}, by {clean(one.by, 60)}, {when(one.at)}{undone}"
    for proposal in one.proposals[:SHOWN]:
        differs = _differences(one, proposal)
        yield f"{proposal.action}: {clean(proposal.why, WORDS)}; {clean(proposal.outcome, WORDS)}"
        text = one.texts.get(proposal.survivor, "")
        if proposal.survivor:
            yield f"  into {proposal.survivor}: {clean(text, WORDS) or 'gone'}"
        for id in proposal.members[:SHOWN]:
            differ = f"; differs: {clean(differs[id], WORDS)}" if differs.get(id) else ""
            yield f"  {id}: {clean(one.texts.get(id, ''), WORDS) or 'gone'}{differ}"
    if len(one.proposals) > SHOWN:
        yield f"and {counted(len(one.proposals) - SHOWN, 'other proposal')}; --json shows them"
    for veto, pairs in one.vetoes.items():
        yield f"kept apart: {counted(pairs, 'pair')}, {VETOES.get(veto, veto)}"
    if one.nothing:
        yield f"nothing happened: {one.nothing}"
    tried = f", recall tried with {counted(one.queries, 'stored text')}" if one.queries else ""
    yield f"lessons: {one.before} before, {one.after} after{tried}"


GAIN = "shown against withheld; a gain is an improvement, and its interval is valid at all times"
KEPT = ("id", "text", "state", "pinned", "useful", "helped", "hurt")
WHOLE = "memory as a whole"
RESTORE = Option(min=1, max=MOST, help="The id of a lesson to restore.")


def proof(
    limit: Limit = 10,
    restore: Annotated[int | None, RESTORE] = None,
    by: By = "",
    why: Why = "",
    plot: Plot = None,
) -> int:
    """Show whether memory helps, with confidence intervals.

    It compares loops that were shown lessons with loops from which they were withheld: how often
    was the first attempt right? The intervals are valid however often you look. heedful retires a
    lesson that is proven to hurt.
    """
    if restore is not None:
        if not by.strip():
            raise UsageError("--restore needs --by: who is responsible")
        ask(lambda memory: memory.restore(restore, by=by, why=why))
        words = f"lesson {restore} is restored; only later loops count for or against it"
        return answer({"restored": restore, "by": by, "why": why}, words, following("proof"))

    async def read(memory: Memory) -> tuple[Proof, dict[str, Any], int, float]:
        known = {f"{one['kind']}/{one['signature']}": one for one in await memory.top(MOST)}
        past = await memory.store.read(memory.scope, exposures.past, "")
        return await memory.prove(), known, past.ended, memory.holdout

    found, known, ended, holdout = ask(read)
    ranked = sorted(found.lessons, key=lambda one: -(one.shown + one.withheld))[:limit]
    pairs = [(known.get(str(one.lesson)), one) for one in ranked]
    lessons = [{**asdict(one), **{k: (it or {}).get(k) for k in KEPT}} for it, one in pairs]
    rest = {"pending": found.pending, "ended": ended, "holdout": holdout}
    lines = _describe_proof(found, pairs, _nothing_withheld(found, ended, holdout))
    if plot is not None:
        rows = [(WHOLE, found.pooled), *((_name(*pair), pair[1]) for pair in pairs)]
        write_plot(plot, forest(rows, "Right at once: lessons shown against withheld"))
    return answer({"pooled": found.pooled, "lessons": lessons, **rest}, *lines)


def _describe_proof(
    found: Proof, pairs: Sequence[tuple[Mapping[str, Any] | None, Comparison]], unproven: str
) -> Iterator[str]:
    whole, pending = found.pooled, found.pending
    under_way = f"not counted yet: {counted(pending, 'running loop')}" if pending else ""
    if not (found.lessons or whole.shown or whole.withheld):
        yield under_way or "no lesson was put into the prompt of a loop yet"
        yield following("recall", "TASK")
        return
    yield "\n".join([*_describe_comparison(WHOLE, whole, "an error again"), ""])
    then: list[object] = ["lessons"]
    for known, one in pairs:
        yield "\n".join([*_describe_comparison(_name(known, one), one, "its error again"), ""])
        if known and known["state"] == "retired" and then == ["lessons"]:
            then = ["proof", "--restore", known["id"], "--by", "NAME"]
    more = len(found.lessons) - len(pairs)
    yield from (GAIN, f"and {counted(more, 'more lesson')}" if more > 0 else "", under_way)
    yield from (unproven, following(*then))


def _name(known: Mapping[str, Any] | None, one: Comparison) -> str:
    state = f"lesson {known['id']}, {known['state']}" if known else "a lesson that is gone"
    return f"{state}: {clean(known['text'] if known else str(one.lesson), BRIEF)}"


def _describe_comparison(name: str, one: Comparison, again: str) -> Iterator[str]:
    unfair = "" if one.fair else "; these shares are not random, so records were lost or added"
    yield name
    yield f"  {one.conclusion}: shown {one.shown}, withheld {one.withheld}{unfair}"
    if one.uplift.gain is None:
        return
    for words, effect in (("right at once", one.uplift), (again, one.recurrence)):
        yield f"  {words:<16}{_against(effect, '{:.0f} %', 100, ' points')}"
    yield f"  {'calls a loop':<16}{_against(one.calls, '{:.1f}', 1, '')}"


def _against(effect: Effect, form: str, unit: float, of: str) -> str:
    means = [form.format(unit * one) for one in (effect.shown, effect.withheld) if one is not None]
    numbers = (unit * (end or 0.0) for end in (effect.gain, effect.low, effect.high))
    digits = 0 if of else 1
    signed = (f"{round(one, digits) + 0.0:+.{digits}f}" for one in numbers)  # + 0.0 avoids −0
    gain, low, high = (one.replace("-", "−") for one in signed)
    return f"{' against '.join(means):<20}gain {gain}{of}, between {low} and {high}"


def _nothing_withheld(found: Proof, ended: int, holdout: float) -> str:
    """Return the reason why no lesson was withheld, or "" if one was."""
    if any(one.withheld for one in found.lessons):
        return ""
    if not holdout:
        return "the holdout is off (the setting holdout is 0), so there is nothing to compare with"
    if ended < FIRST:
        return f"the first {FIRST} loops are shown everything; {ended} have ended"
    return "nothing was withheld so far"


AGAIN = "heedful reflect --waiting tries again"
BUSY = f"another process works on it, or was killed: after some seconds {AGAIN}"
SIGNALS = 5
NAME = 60


@dataclass
class Result:
    """What reflecting on an episode gave: `reflected`, or the model's `error`, or neither."""

    name: str
    episode: Episode | None = None
    reflected: learn.Reflected | None = None
    error: str = ""


def reflect(
    files: Annotated[list[Path] | None, Argument(help="Files of traces.")] = None,
    waiting: Annotated[bool, Option("--waiting", help="Reflect on stored episodes.")] = False,
    model: Annotated[str | None, Option("--model", help="Writes the lessons. [rules]")] = None,
    trust: Annotated[str, Option(help="Who wrote the tasks: external or operator.")] = "external",
    keep: Annotated[bool, Option("--store/--no-store", help="Store the lessons.")] = True,
) -> int:
    """List what failed in runs of agents, with the events that prove it, and learn from it.

    Each run counts once, however often it is read. Lessons that depend on texts of tools, documents
    or users wait in quarantine.
    """
    if bool(files) == waiting:
        raise UsageError("give files of traces, or --waiting for what failed before")
    if trust not in ("external", "operator"):
        raise UsageError(f"--trust is {trust!r}; it must be external or operator")
    logging.getLogger("heedful").addHandler(logging.NullHandler())  # failures are printed below
    values, results = config.settings(model=model), list[Result]()
    model = None if model == config.NONE else model
    damage: UsageError | None = None

    async def work(store: Store) -> int:
        """Fill `results`; return how many episodes still wait because other processes hold them."""
        nonlocal damage
        options: Any = {"memory": config.memory_of(values, store)}
        async with AsyncExitStack() as stack:
            if model:
                opened = config.model_of(values, progress.fetched)
                options["model"] = await stack.enter_async_context(opened)
            found = _from_waiting(**options)
            if files:
                found = _from_files(files, **options, trust=trust, store=keep)
            try:
                async for result in found:
                    results.append(result)
                    progress.bar("reflecting", len(results), 0, counted(len(results), "episode"))
                    if model:
                        progress.say(f"{result.name}: {result.error or 'reflected on'}")
            except UsageError as error:
                damage = error
        scope = config.scope_of(values)
        return 0 if files else (await store.read(scope, episodes.counts)).get("waiting", 0)

    rest = "stopped; what was reflected on is kept, the same command does the rest"
    with Progress() as progress:
        left = config.ask_store(values, work, new=bool(files), stopped=rest)
    return _report(results, left, damage)


async def _from_files(files: Sequence[Path], **options: Any) -> AsyncIterator[Result]:
    for file in files:
        number = 0
        for number, episode in enumerate(read(file), 1):
            name = f"{file.name}:{clean(episode.id, NAME) or number}"
            work = learn.reflect(episode, on_model_error="raise", **options)
            yield await _result(Result(name, episode), work)
        if not number:
            yield Result(file.name)


async def _from_waiting(**options: Any) -> AsyncIterator[Result]:
    began = time.time()
    while True:
        result = Result("episode")
        await _result(result, learn.reflect_waiting(before=began, **options))
        if result.reflected is not None:
            result.name = clean(result.reflected.reflection.source, NAME)
        elif not result.error:
            return
        yield result


async def _result(result: Result, work: Awaitable[learn.Reflected | None]) -> Result:
    """Await `work`; add its result or the model's error to `result`. Raises ModelUnavailable."""
    try:
        result.reflected = await work
    except ModelUnavailable:
        raise
    except ModelError as error:
        result.error = str(error)
    return result


def _describe_result(result: Result) -> Iterator[str]:
    episode, found = result.episode, result.reflected
    about = ""
    if episode is not None:
        events = counted(len(episode.events) + episode.omitted, "event")
        about = f"  {episode.outcome}, {events}: {clean(episode.task, WORDS)}"
    yield f"{result.name}{about}".rstrip(": ")
    if result.error:
        why = clean(result.error, WORDS)
        yield f"  the model failed, so nothing was kept ({why}); {AGAIN}"
        return
    if found is None:
        yield "  nothing to reflect on: no run of an agent, or one without events and error"
        return
    for signal in found.signals[:SIGNALS]:
        proof = ", ".join(
            name or str(at) for at, name in zip(signal.evidence, signal.evidence_ids, strict=True)
        )
        yield f"  signal   {signal.kind} [{clean(proof, NAME)}]: {clean(signal.words, WORDS)}"
    if len(found.signals) > SIGNALS:
        yield f"  signal   and {len(found.signals) - SIGNALS} more"
    yield f"  lesson   {clean(found.text, 2 * WORDS)}"
    if found.strategy is not None:
        yield f"  rule     {clean(found.strategy.text, WORDS)}"
    for one in found.dropped:
        yield f"  dropped  {clean(one.text, WORDS)} ({clean(one.why, WORDS)})"
    importance = f"importance {found.importance:.2f}"
    if found.importance != found.reflection.importance:
        importance += f" (heedful's own {found.reflection.importance:.2f})"
    yield f"  by {clean(found.by, NAME)}, {importance}; {_stored_as(found)}"


def _stored_as(found: learn.Reflected) -> str:
    if found.busy:
        return BUSY
    if found.again:
        return "was reflected on before; nothing was added"
    if not found.stored:
        return f"known, seen {found.known} times" if found.known else "not kept"
    kept = f"known, seen {found.known + 1} times now" if found.known else "kept"
    return f"{kept}, waits in quarantine: {found.release}" if found.release else kept


def _report(results: Sequence[Result], left: int, damage: UsageError | None) -> int:
    some = [one.reflected for one in results if one.reflected is not None]
    new = [one for one in some if one.stored and not (one.known or one.again)]
    known = [one for one in some if (one.known or one.again) and not one.busy]
    failed, others = sum(bool(one.error) for one in results), left + sum(one.busy for one in some)
    words = f"{counted(len(results), 'episode')}: {len(new)} new, {len(known)} known"
    words += f", {others} left to others" if others else ""
    words += f", {failed} failed" if failed else ""
    then = following("lessons") if new and not failed else ""
    if then and any(one.release for one in new):
        then = following("quarantine", "list")
    record = {"episodes": list(map(_document, results)), "failed": failed, "left": left}
    if damage is None or not call().json:
        lines = (line for result in results for line in _describe_result(result))
        answer(record, *lines, words, then)
    if not call().json:
        notes = {BUSY.replace("on it,", "on the rest,"): left, AGAIN: failed}
        for note in (note for note, number in notes.items() if number):
            output.say(f"heedful: {note}")
    return int(failed > 0) if damage is None else output.report_error(damage, **record)


def _document(result: Result) -> dict[str, Any]:
    def parts(record: Any, names: str) -> dict[str, Any]:
        return {name: getattr(record, name) for name in names.split()}

    head: dict[str, Any] = {"name": result.name, "error": result.error}
    if result.episode is not None:
        head |= parts(result.episode, "outcome task digest")
    found = result.reflected
    if found is None:
        return {**head, "reflection": None}
    lesson = "text importance trust state tags source meta"
    head["reflection"] = parts(found.reflection, lesson)
    head["strategy"] = found.strategy and parts(found.strategy, lesson)
    stored = [{**asdict(one), "release": one.release} for one in found.stored]
    head |= {"stored": stored, "release": found.release}
    names = "signals claims dropped known again busy usage importance confidence"
    return head | parts(found, names)

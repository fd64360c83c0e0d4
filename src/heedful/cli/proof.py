"""`heedful proof`: does memory help, as a whole and each lesson, shown and withheld."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.cli.opening import ask
from heedful.cli.output import (
    MOST,
    Db,
    Json,
    can_draw,
    counted,
    following,
    print_json,
    say,
    show,
)
from heedful.errors import UsageError
from heedful.lessons.proof import Comparison, Effect, Proof
from heedful.loop.feedback import clean
from heedful.memory.memory import Memory
from heedful.store import exposures

WORDS = 60
WHOLE = "memory as a whole"
GAIN = "shown against withheld; a gain is for the better, and the interval holds at all times"


@dataclass(frozen=True)
class Found:
    """What is proven, the lessons by name as plain data, and how many loops have ended."""

    proof: Proof
    lessons: dict[str, Any]
    ended: int
    holdout: float

    @property
    def ranked(self) -> list[Comparison]:
        """Most exposed first."""
        return sorted(self.proof.lessons, key=lambda one: -(one.shown + one.withheld))


def proof(
    limit: Annotated[
        int, typer.Option(min=1, max=MOST, help="How many lessons, the most exposed first.")
    ] = 10,
    plot: Annotated[Path | None, typer.Option(help="Draw the intervals into this PNG.")] = None,
    restore: Annotated[
        int | None, typer.Option(min=1, max=MOST, help="Bring back a lesson by its id; on record.")
    ] = None,
    by: Annotated[str, typer.Option(help="Who answers for what is brought back.")] = "",
    why: Annotated[str, typer.Option(help="The reason.")] = "",
    db: Db = None,
    json: Json = False,
) -> int:
    """Say whether memory helps: right at once where shown against withheld, with intervals.

    The intervals hold however often one looks. A lesson that is proven to hurt is retired by the
    loops themselves.
    """
    if restore is not None:
        return _restored(restore, by, why, db, json)
    if plot is not None:
        can_draw(plot)
    found = ask(db, _found)
    if plot is not None:
        from heedful.cli.forest import draw

        rows = [(WHOLE, found.proof.pooled), *_named(found, limit)]
        plot.write_bytes(draw(rows, "Uplift: right at once where shown against withheld"))
        say(f"picture {plot}")
    if json:
        print_json(_document(found, limit))
    else:
        _print(found, limit, db or "")
    return 0


async def _found(memory: Memory) -> Found:
    proven = await memory.prove()
    lessons = {f"{one['kind']}/{one['signature']}": one for one in await memory.top(MOST)}
    past = await memory.store.read(memory.scope, exposures.past, "")
    return Found(proven, lessons, past.ended, memory.holdout)


def _restored(id: int, by: str, why: str, db: str | None, json: bool) -> int:
    if not by.strip():
        raise UsageError("--restore needs --by: who answers for it")
    ask(db, lambda memory: memory.restore(id, by=by, why=why))
    if json:
        print_json({"restored": id, "by": by, "why": why})
    else:
        show(f"lesson {id} is back; from now on only what comes after counts for it or against it")
        show(following("proof", db=db or ""))
    return 0


def _named(found: Found, limit: int) -> list[tuple[str, Comparison]]:
    """The lessons by their words; one that is gone by its name."""
    return [
        (clean(found.lessons.get(str(one.lesson), {}).get("text", str(one.lesson)), WORDS), one)
        for one in found.ranked[:limit]
    ]


def _document(found: Found, limit: int) -> dict[str, Any]:
    keys = ("id", "text", "state", "pinned", "useful", "helped", "hurt")
    lessons = []
    for one in found.ranked[:limit]:
        known = found.lessons.get(str(one.lesson), {})
        lessons.append({**asdict(one), **{key: known.get(key) for key in keys}})
    return {
        "pooled": asdict(found.proof.pooled),
        "lessons": lessons,
        "pending": found.proof.pending,
        "ended": found.ended,
        "holdout": found.holdout,
    }


def _print(found: Found, limit: int, db: str) -> None:
    whole, pending = found.proof.pooled, found.proof.pending
    under_way = f"{counted(pending, 'loop')} under way, not counted yet" if pending else ""
    if not (found.proof.lessons or whole.shown or whole.withheld):
        show(under_way or "no lesson was put into the prompt of a loop yet")
        show(following("recall", "TASK", db=db))
        return
    _tell(WHOLE, whole, "an error again")
    again: tuple[str, ...] = ("lessons",)
    for text, one in _named(found, limit):
        known = found.lessons.get(str(one.lesson))
        state = f"lesson {known['id']}, {known['state']}" if known else "a lesson that is gone"
        _tell(f"{state}: {text}", one, "its error again")
        if known and one.conclusion == "hurts" and again == ("lessons",):
            again = _to_do(known)
    more = len(found.proof.lessons) - limit
    notes = (f"and {counted(more, 'lesson')} more" if more > 0 else "", under_way)
    show("\n".join(line for line in (GAIN, *notes, _nothing_withheld(found)) if line))
    show(following(*again, db=db))


def _to_do(lesson: Mapping[str, Any]) -> tuple[str, ...]:
    """What a person may do about a lesson that hurts: bring it back, let it be retired, keep it."""
    if lesson["state"] == "retired":
        return "proof", "--restore", str(lesson["id"]), "--by", "NAME"
    undo = ("--undo",) if lesson["pinned"] else ()
    return "pin", str(lesson["id"]), *undo, "--by", "NAME"


def _tell(name: str, one: Comparison, again: str) -> None:
    unfair = "" if one.fair else "; the numbers contradict the coin, so records are lost or added"
    show(f"{name}\n  {one.conclusion}: shown {one.shown}, withheld {one.withheld}{unfair}")
    if one.uplift.gain is not None:
        for what, effect, form, unit, of in (
            ("right at once", one.uplift, "{:.0f} %", 100, " points"),
            (again, one.recurrence, "{:.0f} %", 100, " points"),
            ("calls a loop", one.calls, "{:.1f}", 1, ""),
        ):
            show(f"  {what:<16}{_against(effect, form, unit, of)}")
    show()


def _against(effect: Effect, form: str, unit: float, of: str) -> str:
    means = [form.format(unit * one) for one in (effect.shown, effect.withheld) if one is not None]
    ends = [effect.gain or 0.0, effect.low, effect.high]
    digits = 0 if of else 1
    rounded = (round(unit * one, digits) + 0.0 for one in ends)  # none is −0
    gain, low, high = (f"{one:+.{digits}f}".replace("-", "−") for one in rounded)
    return f"{' against '.join(means):<20}gain {gain}{of}, between {low} and {high}"


def _nothing_withheld(found: Found) -> str:
    """Why there is nothing to compare with; "" where there is."""
    from heedful.lessons.ranking import FIRST

    if any(one.withheld for one in found.proof.lessons):
        return ""
    if not found.holdout:
        return "the holdout is off (the setting holdout is 0), so there is nothing to compare with"
    if found.ended < FIRST:
        return f"the first {FIRST} loops are shown everything; {found.ended} have ended"
    return "nothing was withheld so far"

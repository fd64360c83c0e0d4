"""`heedful proof`: whether memory helps, as a whole and by lesson, shown against withheld."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.cli.output import (
    MOST,
    By,
    Db,
    Json,
    Most,
    Why,
    answer,
    check_picture_path,
    counted,
    following,
    print_json,
    say,
    show,
)
from heedful.cli.settings import ask
from heedful.errors import UsageError
from heedful.lessons.proof import Comparison, Effect, Proof
from heedful.lessons.ranking import FIRST
from heedful.loop.record import clean
from heedful.memory.memory import Memory
from heedful.store import exposures

WORDS = 60
WHOLE = "memory as a whole"
GAIN = "shown against withheld; a gain is for the better, and the interval holds at all times"


@dataclass(frozen=True)
class Evidence:
    """The proof, the lessons by name as plain data, and the number of loops that have ended."""

    proof: Proof
    lessons: dict[str, Any]
    ended: int
    holdout: float

    def ranked(self, limit: int) -> list[tuple[Mapping[str, Any] | None, Comparison]]:
        """Return the most exposed lessons, each with its stored form; None if it is gone."""
        order = sorted(self.proof.lessons, key=lambda one: -(one.shown + one.withheld))
        return [(self.lessons.get(str(one.lesson)), one) for one in order[:limit]]


def proof(
    limit: Most = 10,
    plot: Annotated[Path | None, typer.Option(help="Draw the intervals into this PNG.")] = None,
    restore: Annotated[
        int | None, typer.Option(min=1, max=MOST, help="Restore a lesson by its id; on record.")
    ] = None,
    by: By = "",
    why: Why = "",
    db: Db = None,
    json: Json = False,
) -> int:
    """Say whether memory helps, with intervals.

    It compares how often loops are right at once where lessons were shown with loops where they
    were withheld. The intervals hold however often you look. Loops retire a lesson that is proven
    to hurt.
    """
    if restore is not None:
        if not by.strip():
            raise UsageError("--restore needs --by: who is responsible")
        ask(db, lambda memory: memory.restore(restore, by=by, why=why))
        answer(
            {"restored": restore, "by": by, "why": why},
            f"lesson {restore} is back; only later loops count for it or against it",
            following("proof", db=db),
            json=json,
        )
        return 0
    if plot is not None:
        check_picture_path(plot)
    found = ask(db, _read)
    if plot is not None:
        from heedful.cli.pictures import draw_intervals

        rows = [(_text(known, one), one) for known, one in found.ranked(limit)]
        title = "Uplift: right at once where shown against withheld"
        plot.write_bytes(draw_intervals([(WHOLE, found.proof.pooled), *rows], title))
        say(f"picture {plot}")
    if json:
        print_json(_document(found, limit))
    else:
        _print(found, limit, db)
    return 0


async def _read(memory: Memory) -> Evidence:
    proven = await memory.prove()
    lessons = {f"{one['kind']}/{one['signature']}": one for one in await memory.top(MOST)}
    past = await memory.store.read(memory.scope, exposures.past, "")
    return Evidence(proven, lessons, past.ended, memory.holdout)


def _text(lesson: Mapping[str, Any] | None, one: Comparison) -> str:
    return clean(lesson["text"] if lesson else str(one.lesson), WORDS)


def _document(found: Evidence, limit: int) -> dict[str, Any]:
    keys = ("id", "text", "state", "pinned", "useful", "helped", "hurt")
    return {
        "pooled": asdict(found.proof.pooled),
        "lessons": [
            {**asdict(one), **{key: (known or {}).get(key) for key in keys}}
            for known, one in found.ranked(limit)
        ],
        "pending": found.proof.pending,
        "ended": found.ended,
        "holdout": found.holdout,
    }


def _print(found: Evidence, limit: int, db: str | None) -> None:
    whole, pending = found.proof.pooled, found.proof.pending
    under_way = f"{counted(pending, 'loop')} under way, not counted yet" if pending else ""
    if not (found.proof.lessons or whole.shown or whole.withheld):
        show(under_way or "no lesson was put into the prompt of a loop yet")
        show(following("recall", "TASK", db=db))
        return
    _print_one(WHOLE, whole, "an error again")
    then: list[str] = []
    for known, one in found.ranked(limit):
        state = f"lesson {known['id']}, {known['state']}" if known else "a lesson that is gone"
        _print_one(f"{state}: {_text(known, one)}", one, "its error again")
        if known and one.conclusion == "hurts" and not then:
            # A person may restore it, let it be retired, or keep it.
            undo = ["--undo"] if known["pinned"] else []
            then = ["pin", str(known["id"]), *undo, "--by", "NAME"]
            if known["state"] == "retired":
                then = ["proof", "--restore", str(known["id"]), "--by", "NAME"]
    more = len(found.proof.lessons) - limit
    notes = (f"and {counted(more, 'lesson')} more" if more > 0 else "", under_way)
    show("\n".join(line for line in (GAIN, *notes, _nothing_withheld(found)) if line))
    show(following(*(then or ["lessons"]), db=db))


def _print_one(name: str, one: Comparison, again: str) -> None:
    unfair = "" if one.fair else "; not a random draw, so records are lost or added"
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
    rounded = (round(unit * one, digits) + 0.0 for one in ends)  # avoid −0
    gain, low, high = (f"{one:+.{digits}f}".replace("-", "−") for one in rounded)
    return f"{' against '.join(means):<20}gain {gain}{of}, between {low} and {high}"


def _nothing_withheld(found: Evidence) -> str:
    """Return why there is nothing to compare with, or ""."""
    if any(one.withheld for one in found.proof.lessons):
        return ""
    if not found.holdout:
        return "the holdout is off (the setting holdout is 0), so there is nothing to compare with"
    if found.ended < FIRST:
        return f"the first {FIRST} loops are shown everything; {found.ended} have ended"
    return "nothing was withheld so far"

"""`heedful override` and `heedful log`: let a loop go on, and read what decisions rested on."""

from __future__ import annotations

import re
import time
from dataclasses import asdict
from typing import Annotated, Any

import typer

from heedful.cli.opening import ask
from heedful.cli.output import (
    MOST,
    Db,
    Json,
    counted,
    following,
    print_json,
    show,
    table,
    when,
)
from heedful.errors import InvalidInput, NotFound
from heedful.lessons.lesson import Scope
from heedful.loop import codec
from heedful.loop.decide import Again, Reasoning, Verdict, reasoning
from heedful.loop.feedback import clean
from heedful.store import loops as loop_store
from heedful.store.store import Store

HEADS = ("loop", "decided", "why", "overridden by", "attempt", "fatigue", "echoes", "at")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
LONGEST = 3650 * SECONDS["d"]  # what is to last ten years is a slip of the finger


def override(
    loop: Annotated[str, typer.Argument(help="The id of a loop.")],
    rule: Annotated[str, typer.Argument(help="The rule to lift, as `attempts`.")],
    by: Annotated[str, typer.Option(help="Who answers for it.")],
    why: Annotated[str, typer.Option(help="The reason.")] = "",
    decisions: Annotated[
        int, typer.Option(min=1, max=MOST, help="How many decisions it lifts.")
    ] = 1,
    expires: Annotated[str | None, typer.Option(help="Until when: 30m, 2h, 1d. [never]")] = None,
    db: Db = None,
    json: Json = False,
) -> int:
    """Let a loop go on past a rule; one that was stopped reopens.

    The override and its reason stay on record. `heedful run --resume` goes on with the loop.
    """
    from heedful.drive.report import override as given

    until = None if expires is None else time.time() + seconds("--expires", expires)
    options: dict[str, Any] = {"by": by, "why": why, "decisions": decisions, "until": until}

    async def lift(store: Store, scope: Scope) -> Any:
        return await given(loop, rule, **options, store=store, scope=scope)

    verdict = ask(db, lambda memory: lift(memory.store, memory.scope))
    if json:
        print_json({"loop": loop, "rule": rule, **options, **codec.verdict_to(verdict)})
    else:
        show(f"{rule} is lifted for {counted(decisions, 'decision')}; {_outcome(loop, verdict)}")
        show(following("why", loop, db=db or ""))
    return 0


def _outcome(loop: str, verdict: Verdict) -> str:
    name = clean(loop, 200)
    if not isinstance(verdict, Again):
        stops = ", ".join(stop.rule for stop in verdict.stopped_by)
        return f"loop {name} is still stopped by {stops}"
    run, _, task = loop.rpartition("/")
    how = f"heedful run TASKS --run {run} --resume" if run and task else "whoever resumes it"
    return f"loop {name} is open, {how} goes on with it"


def log(
    loop: Annotated[str, typer.Argument(help="The beginning of the loops' ids.")] = "",
    limit: Annotated[
        int, typer.Option(min=1, max=MOST, help="How many loops, the newest first.")
    ] = 20,
    db: Db = None,
    json: Json = False,
) -> int:
    """List decisions: why again, why stopped, which rules were overridden and by whom."""

    async def found(store: Store, scope: Scope) -> list[Reasoning]:
        loops = await store.read(scope, loop_store.newest, limit, loop)
        if loop and not loops:
            raise NotFound("loop that begins with", loop, store.url)
        return [one for stored in loops for one in reasoning(stored.loop, stored.decisions)]

    told = ask(db, lambda memory: found(memory.store, memory.scope))
    if json:
        print_json({"decisions": [{**asdict(one), "rerun": one.rerun} for one in told]})
    elif told:
        table(HEADS, [_row(one) for one in told], text=4)
        show(following("why", told[-1].loop if loop else told[0].loop, db=db or ""))
    else:
        show("no decision yet")
    return 0


def _row(one: Reasoning) -> tuple[Any, ...]:
    worn = one.standing
    change = f" ({worn.change:+.2f})" if worn.change else ""
    by = ", ".join(f"{lifted.stop.rule}: {lifted.by}" for lifted in one.lifted)
    why = ", ".join(dict.fromkeys(trigger.reason for trigger in one.triggers))
    if one.decided == "stopped":
        why = f"{one.reason}: {one.detail}"
    most = max(worn.echoes.values(), default=0)
    fatigue = f"{worn.fatigue:.2f}{change}"
    why = "" if one.decided == "passed" else why
    return (one.loop, one.decided, why, by, one.attempt, fatigue, most, when(one.at))


def seconds(option: str, text: str) -> float:
    """What a time such as 2h or 1d comes to. Raises InvalidInput, which names the option."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd])", text.strip())
    given = float(found[1]) * SECONDS[found[2]] if found else 0.0
    if not 0 < given <= LONGEST:
        allowed = "a time such as 90s, 30m, 2h or 1d, above 0 and up to 3650d"
        raise InvalidInput(option, text, allowed)
    return given

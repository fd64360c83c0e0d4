"""`errata override` and `errata log`: let a loop go on, and read what decisions rested on."""

from __future__ import annotations

import re
import time
from dataclasses import asdict
from typing import Annotated, Any

import typer

from errata import codec
from errata.cli.opening import ask
from errata.cli.output import Db, Json, print_json, show, table, when
from errata.decisions import Reasoning, reasoning
from errata.errors import InvalidInput
from errata.loop.decide import Again
from errata.protocols import Scope, Store

HEADS = ("loop", "decided", "why", "overridden by", "attempt", "fatigue", "echoes", "at")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def override(
    loop: Annotated[str, typer.Argument(help="The id of a loop.")],
    rule: Annotated[str, typer.Argument(help="The rule to lift, as `attempts`.")],
    by: Annotated[str, typer.Option(help="Who answers for it.")] = "",
    why: Annotated[str, typer.Option(help="The reason.")] = "",
    decisions: Annotated[int, typer.Option(help="How many decisions it lifts.")] = 1,
    expires: Annotated[str, typer.Option(help="Until when: 30m, 2h, 1d. [never]")] = "",
    db: Db = None,
    json: Json = False,
) -> int:
    """Let a loop go on past a rule; one that was stopped reopens.

    The override and its reason stay on record. `errata run --resume` goes on with the loop.
    """
    from errata.overrides import override as given

    until = time.time() + _seconds(expires) if expires else None
    options: dict[str, Any] = {"by": by, "why": why, "decisions": decisions, "until": until}

    async def lift(store: Store, scope: Scope) -> Any:
        return await given(loop, rule, **options, store=store, scope=scope)

    verdict = ask(db, lambda memory: lift(memory.store, memory.scope))
    if json:
        print_json({"loop": loop, "rule": rule, **options, **codec.verdict_to(verdict)})
    elif isinstance(verdict, Again):
        show(f"{rule} is lifted; loop {loop} is open: errata run --resume goes on with it")
    else:
        stops = ", ".join(stop.rule for stop in verdict.stopped_by)
        show(f"{rule} is lifted; loop {loop} is still stopped by {stops}")
    return 0


def log(
    loop: Annotated[str, typer.Argument(help="The beginning of the loops' ids.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="How many loops, the newest first.")] = 20,
    db: Db = None,
    json: Json = False,
) -> int:
    """List decisions: why again, why stopped, which rules were overridden and by whom."""
    found = ask(db, lambda memory: memory.store.loops(memory.scope, limit, loop))
    told = [one for stored in found for one in reasoning(stored.loop, stored.decisions)]
    if json:
        print_json({"decisions": [{**asdict(one), "rerun": one.rerun} for one in told]})
    elif told:
        table(HEADS, [_row(one) for one in told], text=4)
    else:
        show("no decision yet")
    return 0


def _row(one: Reasoning) -> tuple[Any, ...]:
    worn = one.standing
    change = f" ({worn.change:+.2f})" if worn.change else ""
    by = ", ".join(f"{lifted.stop.rule}: {lifted.by}" for lifted in one.lifted)
    why = ": ".join(part for part in (one.reason, one.detail) if part)
    most = max(worn.echoes.values(), default=0)
    fatigue = f"{worn.fatigue:.2f}{change}"
    why = "" if one.decided == "passed" else why
    return (one.loop, one.decided, why, by, one.attempt, fatigue, most, when(one.at))


def _seconds(text: str) -> float:
    """Raises InvalidInput."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    if not found:
        raise InvalidInput("expires", text, "a time such as 90s, 30m, 2h or 1d")
    return float(found[1]) * SECONDS[found[2]]

"""`errata policy`: show policies, and prove that each of their rules can fire."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from errata.cli.app import PLAIN
from errata.cli.output import Json, print_json, show, table
from errata.cli.settings import settings
from errata.codec import attempt_to, policy_to, rule_to
from errata.configured import policy as policy_of
from errata.loop.decide import Policy
from errata.loop.policies import PRESETS
from errata.loop.reach import Reach, reach
from errata.loop.record import Attempt

SLIGHT = 0.01  # of a severity

app: typer.Typer = typer.Typer(add_completion=False, no_args_is_help=True, **PLAIN)

Written = Annotated[
    str | None,
    typer.Argument(metavar="POLICY", help="A preset, or one with changes. [the setting]"),
]


@app.callback()
def policies() -> None:
    """Show policies, and prove that each of their rules can fire."""


@app.command("list")
def listed(json: Json = False) -> int:
    """List the presets."""
    if json:
        print_json({"policies": [policy_to(policy) for policy in PRESETS.values()]})
    else:
        table(("preset", "rules"), [(name, _words(p)) for name, p in PRESETS.items()], text=2)
    return 0


@app.command()
def check(policy: Written = None, json: Json = False) -> int:
    """Find for each rule the shortest history in which it decides, or prove that there is none.

    Exits 0 where every rule can fire and 1 where one cannot.
    """
    chosen = policy_of(policy or settings().policy)
    found = reach(chosen)
    if json:
        print_json({"policy": policy_to(chosen), "rules": [_document(one) for one in found]})
    else:
        show(f"policy {chosen.name}: {_words(chosen)}")
        for one in found:
            _print(one)
    return 0 if all(one.history is not None for one in found) else 1


def _print(found: Reach) -> None:
    show(f"\n{found}")
    if found.history is None:
        return
    for key, count in found.history.echoes.items():
        show(f"  earlier loops of the scope: {key} finding in {count} attempts")
    for attempt, better in zip(found.history.attempts, found.history.improved, strict=True):
        show(f"  attempt {attempt.number}: {_told(attempt, better)}")
    show(f"  => {found.rule(found.history)}")


def _told(attempt: Attempt, better: bool) -> str:
    first = attempt.number == 1
    told = ["the first candidate" if first else "a new candidate"]
    told = ["the same candidate again"] if attempt.repeats else told
    told += [] if first else ["better" if better else "no better"]
    findings = attempt.evaluation.errors if attempt.evaluation else ()
    told += [f"{one.key}, slight" if one.severity < SLIGHT else one.key for one in findings]
    told += ["all of the budget"] if attempt.usage.calls else []
    return ", ".join(told)


def _words(policy: Policy) -> str:
    goals = f"; goals {', '.join(map(str, policy.goals))}" if policy.goals else ""
    return ", ".join(map(repr, policy.rules)) + goals


def _document(found: Reach) -> dict[str, Any]:
    history = found.history.attempts if found.history else ()
    return {
        "rule": rule_to(found.rule),
        "name": found.name,
        "can_fire": found.history is not None,
        "attempts": len(history) or None,
        "history": [attempt_to(attempt) for attempt in history],
        "proof": found.proof,
    }

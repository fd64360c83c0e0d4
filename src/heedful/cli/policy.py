"""`heedful policy`: show policies, and prove that each of their rules can fire."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Annotated, Any

import typer

from heedful.cli.app import PLAIN
from heedful.cli.output import Json, counted, print_json, show, table
from heedful.cli.settings import policy_of
from heedful.loop.codec import policy_to, rule_to, to_document
from heedful.loop.decide import Policy
from heedful.loop.policies import PRESETS
from heedful.loop.reach import Reach, reach
from heedful.loop.record import NOTHING, Attempt, Improvement

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

    Exits 0 where every rule can fire, and 1 where one cannot or nothing was found for it.
    """
    chosen = policy_of(policy)
    found = reach(chosen)
    if json:
        print_json({"policy": policy_to(chosen), "rules": [_document(one) for one in found]})
    else:
        show(f"policy {chosen.name or 'of its own'}: {_words(chosen)}")
        for one in found:
            _print(one)
    return 0 if all(one.history is not None for one in found) else 1


def _print(found: Reach) -> None:
    show(f"\n{found}")
    if found.history is None:
        return
    for key, count in found.history.echoes.items():
        show(f"  earlier loops of the scope: finding {key} in {counted(count, 'attempt')}")
    seen: set[str] = set()
    for attempt, better in zip(found.history.attempts, found.history.improved, strict=True):
        show(f"  attempt {attempt.number}: {', '.join(_told(attempt, better, seen))}")
        seen.add(attempt.candidate.digest)
    show(f"  => {found.rule(found.history)}")


def _told(attempt: Attempt, better: bool, seen: Container[str]) -> Iterator[str]:
    """What matters of an attempt of a history, after the candidates that were `seen`."""
    nearly = "nearly the same candidate" if attempt.repeats is not None else "a new candidate"
    yield "the same candidate" if attempt.candidate.digest in seen else nearly
    evaluation = attempt.evaluation
    if evaluation is None:
        yield "not evaluated"
        return
    if attempt.number > 1:
        yield "better" if better else "no better"
    if evaluation.met == 0:
        yield "nothing met"
    for one in evaluation.findings:
        kind = "finding" if one.level == "error" else one.level
        yield f"{kind} {one.key}" + (f" of severity {one.severity:g}" if one.severity < 1 else "")
    if attempt.usage != NOTHING:
        yield "all of the budget"


def _words(policy: Policy) -> str:
    goals = f"; goals {', '.join(map(str, policy.goals))}" if policy.goals else ""
    better = policy.improvement
    said = f"; {better!r}" if better != Improvement() else ""
    again = "; unscored again" if policy.unscored == "again" else ""
    return ", ".join(map(repr, policy.rules)) + said + again + goals


def _document(found: Reach) -> dict[str, Any]:
    history = found.history.attempts if found.history else ()
    return {
        "rule": rule_to(found.rule),
        "name": found.name,
        "can_fire": found.history is not None,
        "attempts": len(history) or None,
        "history": [to_document(attempt) for attempt in history],
        "proof": found.proof,
    }

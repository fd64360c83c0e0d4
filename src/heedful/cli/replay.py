"""`heedful replay`, `tune` and `policy`: what policies would have done, which rules can fire."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.cli.app import group
from heedful.cli.output import (
    MOST,
    Columns,
    Json,
    check_picture_path,
    counted,
    following,
    print_json,
    print_table,
    say,
    show,
    table,
)
from heedful.cli.progress import Progress
from heedful.cli.records import NOT_PASSED, read_records
from heedful.cli.settings import policy_of, settings
from heedful.errors import UsageError
from heedful.loop.codec import policy_to, rule_to, to_document
from heedful.loop.decide import Policy
from heedful.loop.policies import PRESETS
from heedful.loop.policies import policy as parse_policy
from heedful.loop.reach import Reach, reach
from heedful.loop.record import NOTHING, Attempt, Improvement, check_number
from heedful.loop.replay import Figures, RecordedLoop, TuningResult, compare
from heedful.loop.replay import tune as choose_policy
from heedful.loop.stop import All, Echo, Plateau, StopRule, counts_scope
from heedful.store.history import WHOLE, aimed, document, unscored

LAST = 100_000

Source = Annotated[
    str | None,
    typer.Argument(metavar="DB|FILE.jsonl", help="Where the loops are. [the database]"),
]
Last = Annotated[
    int, typer.Option(min=1, max=MOST, help="How many loops of a database, the newest.")
]


def replay(
    source: Source = None,
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", help="A preset, or one with changes; repeatable. [presets]"),
    ] = None,
    last: Last = LAST,
    plot: Annotated[
        Path | None, typer.Option(help="Write cost against quality as a .png file.")
    ] = None,
    json: Json = False,
) -> int:
    """Say what policies would have cost on recorded loops.

    And what they would have lost. The figures are exact where a policy stops no later than the
    record does; where it would have gone on, the record cannot tell, and the loop counts as far as
    it goes.

    An oracle stops at the first right attempt; if there is none, after one attempt. Regret counts
    the attempts beyond the oracle's; lost are loops that the record solves and the policy does
    not; quality is that of the attempts that are kept.
    """
    given = [parse_policy(text) for text in policy or ()]
    if plot is not None:
        check_picture_path(plot)
    with Progress() as progress:
        recorded = read_records(source, last, progress)
        left_out = [one for one in PRESETS.values() if not given and unscored(recorded, one)]
        policies = given or [one for one in PRESETS.values() if one not in left_out]
        whole, figures = _compare(aimed(recorded, policies), policies, progress)
    notes = [f"{one.name} is left out: its goals are not scored here" for one in left_out]
    notes += _caveats(recorded, policies)
    if plot is not None:
        _draw(plot, figures)
    if json:
        documents = list(map(document, figures))
        print_json({"recorded": document(whole), "policies": documents, "notes": notes})
        return 0
    attempts = counted(sum(len(one.loop.attempts) for one in recorded), "attempt")
    solvable = counted(whole.solvable, "loop")
    show(f"{counted(whole.loops, 'loop')}, {attempts}; {solvable} can be solved")
    _print_figures("policy", [(one.policy, one) for one in (whole, *figures)])
    for note in (*_beyond(figures), *notes):
        show(note)
    if plot is not None:
        show(following("tune", *_again(source, last)))
    else:
        words = [word for text in policy or () for word in ("--policy", text)]
        show(following("replay", *_again(source, last), *words, "--plot", "front.png"))
    return 0


def _compare(
    recorded: Sequence[RecordedLoop], policies: Iterable[Policy], progress: Progress
) -> tuple[Figures, list[Figures]]:
    """Return the figures of the record itself and of each policy."""
    every = [WHOLE, *policies]
    made, total = list[Figures](), len(every) * len(recorded)
    progress.counted("replaying", 0, total)
    for policy in every:
        made += compare(recorded, [policy])
        progress.counted("replaying", len(made) * len(recorded), total)
    # About what it holds, a record can always tell.
    return replace(made[0], beyond=0), made[1:]


def _draw(path: Path, figures: Sequence[Figures]) -> None:
    from heedful.cli.pictures import Point, draw_front

    if not figures[0].solvable:
        raise UsageError("no recorded loop can be solved: there is nothing to draw; omit --plot")
    title = f"{counted(figures[0].loops, 'recorded loop')}, replayed"
    path.write_bytes(draw_front([Point.of(one) for one in figures], title))
    say(f"written: {path}")


def _again(source: str | None, last: int) -> list[str]:
    """Return the words of a command line that read the same loops."""
    where = [] if source is None else [source]
    return where if last == LAST else [*where, "--last", str(last)]


def _print_figures(head: str, rows: Sequence[tuple[str, Figures]]) -> None:
    """Print a row for each; calls and tokens only if they say more than the attempts."""
    calls = any(one.usage.calls != one.attempts for _, one in rows)
    tokens = any(one.usage.tokens for _, one in rows)
    columns: Columns = {
        head: lambda row: row[0],
        "attempts": lambda row: row[1].attempts,
        "÷ oracle": lambda row: _ratio(row[1]),
        **({"calls": lambda row: row[1].usage.calls} if calls else {}),
        **({"tokens": lambda row: row[1].usage.tokens} if tokens else {}),
        "solved": lambda row: row[1].solved,
        "lost": lambda row: row[1].lost,
        "quality": lambda row: f"{row[1].quality:.3f}",
        "regret": lambda row: row[1].regret,
        "cannot tell": lambda row: row[1].beyond,
    }
    print_table(rows, columns, text=1)


def _ratio(figures: Figures) -> str:
    return f"{figures.attempts / figures.oracle if figures.oracle else 0:.3f}"


def tune(
    source: Source = None,
    keep: Annotated[
        float,
        typer.Option(help="The share of the solvable loops to solve, 0..1."),
    ] = 0.99,
    policy: Annotated[
        str | None, typer.Option("--policy", help="The policy in use now. [the setting]")
    ] = None,
    last: Last = LAST,
    json: Json = False,
) -> int:
    """Choose the cheapest policy that still solves enough loops.

    It is chosen on one half of recorded loops and reported on the other. Loops are split by their
    ids; where the record cannot tell, a policy counts as if it used up all of its attempts.
    """
    check_number("--keep", keep, 0, 1)
    before = policy_of(policy)
    with Progress() as progress:
        recorded = read_records(source, last, progress)
        found = choose_policy(recorded, before, keep, partial(progress.counted, "replaying"))
    halves = (found.chosen_on, found.reported_on, found.before)
    notes = [*_beyond(halves), *_caveats(recorded, [found.policy])]
    if json:
        names = ("chosen_on", "reported_on", "before")
        figures = {name: document(one) for name, one in zip(names, halves, strict=True)}
        chosen = {"policy": policy_to(found.policy), "tried": found.tried}
        print_json({**chosen, **figures, "notes": notes})
        return 0
    stays = found.policy.name == found.before.policy
    _print_choice(found, len(recorded), keep, stays)
    for note in notes:
        show(note)
    loops = _again(source, last)
    if stays:
        show(following("replay", *loops))
        return 0
    show(f"to use it, write in heedful.toml: policy = {dumps(found.policy.name)}")
    now = settings().policy if policy is None else policy
    both = (now if isinstance(now, str) else "", found.policy.name)
    show(following("replay", *loops, *(w for text in both if text for w in ("--policy", text))))
    return 0


def _print_choice(found: TuningResult, loops: int, keep: float, stays: bool) -> None:
    solvable, now = found.chosen_on.solvable, found.before.policy
    show(f"{found.tried} policies tried on {found.chosen_on.loops} of {counted(loops, 'loop')}")
    if not solvable:
        show(f"{now} stays: none of these loops can be solved, there is nothing to choose by")
    elif stays:
        show(f"{now} stays: no cheaper one keeps {keep:g} of the {solvable} that can be solved")
    else:
        show(f"chosen: {found.policy.name}")
    these, others = f"these {found.chosen_on.loops}", f"the other {found.before.loops}"
    rows = [
        (f"chosen, on {these}", found.chosen_on),
        (f"chosen, on {others}", found.reported_on),
        (f"now, on {others}", found.before),
    ]
    _print_figures("", [(f"now, on {these}", found.chosen_on), rows[-1]] if stays else rows)


# What the figures cannot say


def _beyond(figures: Iterable[Figures]) -> Iterator[str]:
    """Explain the column `cannot tell` if any policy has one."""
    if any(one.beyond for one in figures):
        yield "cannot tell: the record of so many loops does not say how it would have ended"


def _caveats(recorded: Sequence[RecordedLoop], policies: Sequence[Policy]) -> Iterator[str]:
    """Say where the record makes the figures differ from those of a live run."""
    yield from _goals(recorded, policies)
    scoped = [policy.name for policy in policies if any(map(counts_scope, policy.rules))]
    if scoped:
        yield f"{', '.join(scoped)}: echo counts within each loop, not over the loops before it"
    alike = [policy.name for policy in policies if any(map(_compares_findings, policy.rules))]
    evaluations = (a.evaluation for one in recorded for a in one.loop.attempts)
    silent = sum(e is not None and NOT_PASSED in e.findings for e in evaluations)
    if alike and silent:
        why = f"{counted(silent, 'attempt')} with nothing but passed = false"
        yield f"{', '.join(alike)}: {why} count as the same finding each time"


def _goals(recorded: Sequence[RecordedLoop], policies: Sequence[Policy]) -> Iterator[str]:
    loops = counted(len(recorded), "loop")
    bare = any(not one.loop.goals for one in recorded)
    for policy in policies:
        words = ", ".join(map(str, policy.goals))
        own = sum(one.loop.goals not in ((), policy.goals) for one in recorded)
        if lacking := unscored(recorded, policy):
            yield f"{policy.name}: {lacking} of {loops} cannot be judged by its goals: {words}"
        if policy.goals and own:
            yield f"{policy.name}: {own} of {loops} keep goals of their own instead of {words}"
    sets = {policy.goals: policy for policy in policies if policy.goals}
    if bare and len(sets) > 1:
        yield "the policies have different goals: a loop that has none is solved where checks pass"
    for goals, policy in sets.items() if len(sets) == 1 else ():
        aimed_at = sum(not one.loop.goals and not unscored([one], policy) for one in recorded)
        if aimed_at:
            words = ", ".join(map(str, goals))
            yield f"{aimed_at} of {loops} have no goals: they count as if they had {words}"


def _compares_findings(rule: StopRule) -> bool:
    """Return True if the rule, or a rule inside it, looks for the same finding again."""
    if isinstance(rule, All):
        return any(map(_compares_findings, rule.rules))
    return isinstance(rule, Echo) or (isinstance(rule, Plateau) and rule.novelty)


# Policies

policies: typer.Typer = group("Show policies, and prove that each of their rules can fire.")


@policies.command("list")
def list_policies(json: Json = False) -> int:
    """List the presets."""
    if json:
        print_json({"policies": [policy_to(policy) for policy in PRESETS.values()]})
    else:
        rows = [(name, _describe(policy)) for name, policy in PRESETS.items()]
        table(("preset", "rules"), rows, text=2)
    return 0


@policies.command()
def check(
    policy: Annotated[
        str | None,
        typer.Argument(metavar="POLICY", help="A preset, or one with changes. [the setting]"),
    ] = None,
    json: Json = False,
) -> int:
    """Find for each rule the shortest history in which it decides, or prove that there is none.

    Exits 0 if every rule can fire, and 1 if one cannot or nothing was found for it.
    """
    chosen = policy_of(policy)
    found = reach(chosen)
    if json:
        print_json({"policy": policy_to(chosen), "rules": [_reach_document(one) for one in found]})
    else:
        show(f"policy {chosen.name or 'of its own'}: {_describe(chosen)}")
        for one in found:
            _print_reach(one)
    return 0 if all(one.history is not None for one in found) else 1


def _print_reach(found: Reach) -> None:
    show(f"\n{found}")
    if found.history is None:
        return
    for key, count in found.history.echoes.items():
        show(f"  earlier loops of the scope: finding {key} in {counted(count, 'attempt')}")
    seen: set[str] = set()
    for attempt, better in zip(found.history.attempts, found.history.improved, strict=True):
        show(f"  attempt {attempt.number}: {', '.join(_describe_attempt(attempt, better, seen))}")
        seen.add(attempt.candidate.digest)
    show(f"  => {found.rule(found.history)}")


def _describe_attempt(attempt: Attempt, better: bool, seen: Container[str]) -> Iterator[str]:
    """Describe an attempt of a history, after the candidates that were `seen`."""
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


def _describe(policy: Policy) -> str:
    goals = f"; goals {', '.join(map(str, policy.goals))}" if policy.goals else ""
    better = policy.improvement
    improvement = f"; {better!r}" if better != Improvement() else ""
    again = "; unscored again" if policy.unscored == "again" else ""
    return ", ".join(map(repr, policy.rules)) + improvement + again + goals


def _reach_document(found: Reach) -> dict[str, Any]:
    history = found.history.attempts if found.history else ()
    return {
        "rule": rule_to(found.rule),
        "name": found.name,
        "can_fire": found.history is not None,
        "attempts": len(history) or None,
        "history": [to_document(attempt) for attempt in history],
        "proof": found.proof,
    }

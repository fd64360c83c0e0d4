"""`heedful replay` and `policy check`: compare policies on recorded loops, and check
rules.

Recorded loops come from a database, or from a file with one loop per line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, JsonValue
from typer import Argument, Option, Typer

from heedful.cli import output
from heedful.cli import settings as config
from heedful.cli.app import group
from heedful.cli.output import TextTable, answer, columns, counted
from heedful.cli.tasks import EntryShape, fit, json_lines, text_of
from heedful.errors import InvalidInput, LineError, NotFound, UsageError
from heedful.loop import codec, record
from heedful.loop import policies as presets
from heedful.loop import replay as replays
from heedful.loop.decide import Policy
from heedful.loop.policies import PRESETS
from heedful.loop.reach import reach
from heedful.loop.replay import (
    RECORDED_POLICY,
    Figures,
    RecordedLoop,
    count_unscored,
    with_policy_goals,
)
from heedful.loop.stop import counts_scope, find_near_repeat
from heedful.pages.report import Point, draw_front
from heedful.store import loops, shown

UNKNOWN_OUTCOME_LEGEND = (
    "cannot tell: loops whose record is too short to show how they would have ended"
)
Source = Annotated[
    str | None, Argument(metavar="DB|FILE.jsonl", help="Recorded loops. [db]")
]


def replay(
    source: Source = None,
    policy: Annotated[
        config.Texts, Option("--policy", help="Repeatable. [all presets]")
    ] = None,
    plot: Annotated[
        Path | None, Option(help="Draw the result into this SVG file.")
    ] = None,
) -> int:
    """Compare what policies would have cost and lost on recorded loops.

    The figures are exact for a policy that stops no later than the recorded loop did.
    If a policy would have continued, the result is unknown, and only the recorded
    attempts count.

    An oracle stops at the first right attempt, or after one attempt if none is right.
    Regret is the number of attempts beyond the oracle's. A loop is lost if the recorded
    loop was solved and the policy stops before the solution. Quality is the mean
    quality of the best attempt of each loop under the policy. --plot draws cost against
    quality.
    """
    chosen = [presets.policy(text) for text in policy or ()]
    records = read_records(source)
    left_out = [
        one for one in PRESETS.values() if not chosen and count_unscored(records, one)
    ]
    policies = chosen or [one for one in PRESETS.values() if one not in left_out]
    aims = with_policy_goals(records, policies)
    figures = list[Figures]()
    for done, one in enumerate([RECORDED_POLICY, *policies]):
        output.progress().counted(
            "replaying", done * len(aims), (1 + len(policies)) * len(aims)
        )
        figures += replays.compare(aims, [one])
    whole = replace(figures.pop(0), beyond=0)  # how the recorded loops ended is known
    notes = [
        f"{one.name} is left out: no scores for its goals are recorded"
        for one in left_out
    ]
    notes += _caveats(records, policies)
    if assumed := sum(
        one is not other for one, other in zip(records, aims, strict=True)
    ):
        notes.append(
            f"{counted(assumed, 'loop')} without goals: judged by the policies' goals"
        )
    if plot is not None:
        if plot.suffix != ".svg":
            raise InvalidInput(
                "--plot", str(plot), "the name of a file that ends in .svg"
            )
        if not whole.solvable:
            raise UsageError(
                "no recorded loop can be solved, so --plot has nothing to draw"
            )
        title = (
            f"{counted(whole.loops, 'recorded loop')}, {whole.solvable} can be solved"
        )
        plot.write_text(
            draw_front(list(map(Point.of, figures)), title), encoding="utf-8"
        )
        output.say(f"picture {plot}")
    documents = [figure.plain() for figure in figures]
    attempts = counted(sum(len(one.loop.attempts) for one in aims), "attempt")
    solvable = counted(whole.solvable, "loop")
    return answer(
        {"recorded": whole.plain(), "policies": documents, "notes": notes},
        f"{counted(whole.loops, 'loop')}, {attempts}; {solvable} can be solved",
        TextTable(FIGURE_COLUMNS, [whole, *figures]),
        UNKNOWN_OUTCOME_LEGEND if any(one.beyond for one in figures) else "",
        *notes,
    )


FIGURE_COLUMNS = columns(
    "policy attempts ÷_oracle calls tokens solved lost quality regret cannot_tell",
    **{"÷_oracle": lambda one: f"{one.attempts / max(1, one.oracle):.3f}"},
    calls=lambda one: one.usage.calls,
    tokens=lambda one: one.usage.tokens,
    quality=lambda one: f"{one.quality:.3f}",
    cannot_tell="beyond",
)


def _caveats(
    records: Sequence[RecordedLoop], policies: Sequence[Policy]
) -> Iterator[str]:
    """Yield the reasons why the figures may differ from the figures of live runs."""
    for policy in policies:
        if lacking := count_unscored(records, policy):
            many = counted(len(records), "loop")
            goals = ", ".join(map(str, policy.goals))
            yield (
                f"{policy.name}: {lacking} of {many} cannot be judged by its goals: "
                f"{goals}"
            )
    scoped = [
        policy.name for policy in policies if any(map(counts_scope, policy.rules))
    ]
    if scoped:
        yield (
            f"{', '.join(scoped)}: the rule echo counts within each loop, not over "
            "earlier loops"
        )


policies: Typer = group()


@policies.command()
def check(
    policy: Annotated[
        str | None, Argument(metavar="POLICY", help="[the setting]")
    ] = None,
) -> int:
    """For each rule, find the shortest history whose verdict it changes, or prove that
    none exists.

    Exits with 0 if every rule can change a verdict, otherwise with 1.
    """
    chosen = presets.policy(config.settings(policy=policy).policy)
    found = reach(chosen)
    rules = []
    for one in found:
        history = one.history.attempts if one.history else ()
        rule: dict[str, Any] = {"rule": codec.rule_to(one.rule), "name": one.name}
        rule |= {"can_fire": one.history is not None, "attempts": len(history) or None}
        rules.append(
            {
                **rule,
                "history": list(map(codec.to_document, history)),
                "proof": one.proof,
            }
        )
    document = {"policy": codec.policy_to(chosen), "rules": rules}
    usual = {"nothing": record.NO_USAGE, "improvement": record.Improvement()}
    answer(document, output.page("reach", policy=chosen, found=found, **usual))
    return 0 if all(one.history is not None for one in found) else 1


NOT_PASSED_FINDING = record.Finding("recorded", "not passed")
Number = Annotated[float, Field(ge=-record.MAX_SCORE, le=record.MAX_SCORE)]
Share = Annotated[float, Field(ge=0, le=1)]


class AttemptShape(EntryShape):
    """An attempt in a file of recorded loops."""

    candidate: JsonValue
    passed: bool | None = None
    findings: list[record.Finding] | None = None
    scores: dict[str, Number] | None = None
    met: Share | None = None
    usage: record.Usage | None = None
    quality: Share | None = None


class LoopShape(EntryShape):
    """A line in a file of recorded loops. The task is not used."""

    id: Annotated[str, Field(min_length=1)] | int | None = None
    task: JsonValue = None
    goals: list[Any] | None = None
    attempts: Annotated[list[AttemptShape], Field(min_length=1)]


def read_records(source: str | None) -> list[RecordedLoop]:
    """Return the recorded loops of a database or a file. Raises NotFound,
    UsageError.
    """
    if source is not None and source.endswith(".jsonl"):
        return read_file(Path(source))
    values = config.settings(db=source)
    scope = config.scope_of(values)
    newest, _ = config.ask_store(
        values, lambda store: store.read(scope, loops.newest, limit=100_000)
    )
    records = loops.replayable(newest)
    if not records:
        where = f"{shown(values.db)} has an attempt; heedful run makes some"
        raise NotFound("loop of scope", f"{scope.tenant}/{scope.project}", where)
    return records


def read_file(path: Path) -> list[RecordedLoop]:
    """Return the loops of a file. Raises LineError with the line, or if there is no
    loop.
    """
    entries = json_lines(path, text_of(path))
    if not entries:
        raise LineError(str(path), 0, "it has no loop; give at least one with attempts")
    made = []
    for line, value in entries:
        try:
            given = fit(LoopShape, value)
            goals = tuple(map(presets.goal, given.goals or ()))
            record.check_goals(goals)
            attempts: list[record.Attempt] = []
            for one in given.attempts:
                attempts.append(_parse_attempt(one, attempts))
            quality = tuple(
                one.quality for one in given.attempts if one.quality is not None
            )
            id = f"line {line}" if given.id is None else str(given.id)
            made.append(
                RecordedLoop(record.Loop(id, goals, attempts=(*attempts,)), quality)
            )
        except UsageError as error:
            raise LineError(str(path), line, str(error)) from error
    return made


def _parse_attempt(
    given: AttemptShape, before: Sequence[record.Attempt]
) -> record.Attempt:
    number = len(before) + 1
    if (given.passed is None) == (given.findings is None and given.scores is None):
        raise UsageError(
            f"attempt {number} needs either passed, or findings and scores"
        )
    findings = (
        (NOT_PASSED_FINDING,) if given.passed is False else tuple(given.findings or ())
    )
    candidate = record.Candidate.of(given.candidate)
    evaluation = record.Evaluation(findings, given.scores or {}, met=given.met)
    usage = given.usage or record.Usage(calls=1)
    return record.Attempt(
        number,
        candidate,
        evaluation=evaluation,
        usage=usage,
        repeats=find_near_repeat(candidate, before),
    )

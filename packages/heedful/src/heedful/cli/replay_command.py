"""`heedful replay`: compare policies on recorded loops.

Recorded loops come from a database, or from a file with one loop per line.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, JsonValue
from typer import Argument, Option

from heedful.cli.databases import ask_store
from heedful.cli.printing import TextTable, answer, columns
from heedful.cli.settings import Texts, scope_of, settings
from heedful.cli.tasks import EntryShape, fit, json_lines, parse_entries, text_of
from heedful.display import counted
from heedful.errors import NotFound, UsageError
from heedful.loop import policies as presets, record, replay as replays
from heedful.loop.ladder import MAX_RUNGS, Ladder
from heedful.loop.policies import PRESETS
from heedful.loop.replay import (
    RECORDED_POLICY,
    RecordedLoop,
)
from heedful.loop.similarity import find_near_repeat
from heedful.store import loops, shown
from heedful.validation import MAX_SCORE

MAX_RECORDED_LOOPS = 100_000  # that are read from a database
UNKNOWN_OUTCOME_LEGEND = (
    "cannot tell: loops whose record is too short to show how they would have ended"
)


def replay(
    source: Annotated[
        str | None, Argument(metavar="DB|FILE.jsonl", help="Recorded loops. [db]")
    ] = None,
    policy: Annotated[
        Texts, Option("--policy", help="Repeatable. [all presets]")
    ] = None,
) -> int:
    """Compare what policies would have cost and lost on recorded loops.

    The figures are exact for a policy that stops no later than the recorded loop did.
    If a policy would have continued, the result is unknown, and only the recorded
    attempts count.

    An oracle stops at the first right attempt, or after one attempt if none is right.
    Regret is the number of attempts beyond the oracle's. A loop is lost if the recorded
    loop was solved and the policy stops before the solution. Quality is the mean
    quality of the best attempt of each loop under the policy.
    """
    chosen = [presets.policy(text) for text in policy or ()]
    compared = replays.comparable(read_records(source), chosen, PRESETS.values())
    recorded, *figures = replays.compare(
        compared.loops, [RECORDED_POLICY, *compared.policies]
    )
    notes = list(compared.notes)
    document = {
        "recorded": recorded.plain(),
        "policies": [row.plain() for row in figures],
        "notes": compared.notes,
    }
    if any(row.beyond for row in figures):
        notes.insert(0, UNKNOWN_OUTCOME_LEGEND)

    attempts = sum(len(record.loop.attempts) for record in compared.loops)
    return answer(
        document,
        f"{counted(recorded.loops, 'loop')}, {counted(attempts, 'attempt')}; "
        f"{counted(recorded.solvable, 'loop')} can be solved",
        TextTable(FIGURE_COLUMNS, [recorded, *figures]),
        notes,
    )


FIGURE_COLUMNS = columns(
    "policy attempts ÷_oracle calls tokens solved lost quality regret cannot_tell",
    # The attempts that a policy needs for each attempt of the oracle.
    **{"÷_oracle": lambda row: f"{row.attempts / max(1, row.oracle):.3f}"},
    calls=lambda figures: figures.usage.calls,
    tokens=lambda figures: figures.usage.tokens,
    quality=lambda figures: f"{figures.quality:.3f}",
    cannot_tell="beyond",
)


NOT_PASSED_FINDING = record.Finding("recorded", "not passed")
Number = Annotated[float, Field(ge=-MAX_SCORE, le=MAX_SCORE)]
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
    rung: Annotated[int, Field(ge=1, le=MAX_RUNGS)] | None = None


class LoopShape(EntryShape):
    """A line in a file of recorded loops. The task is not used."""

    id: Annotated[str, Field(min_length=1)] | int | None = None
    task: JsonValue = None
    goals: list[Any] | None = None
    attempts: Annotated[list[AttemptShape], Field(min_length=1)]


def read_records(source: str | None) -> list[RecordedLoop]:
    """Return the recorded loops of a database or a file; None is the database of the
    settings.

    Raises NotFound, UsageError.
    """
    if source is not None and source.endswith(".jsonl"):
        return read_file(Path(source))

    values = settings(db=source)
    scope = scope_of(values)
    newest, _ = ask_store(
        values, lambda store: store.read(scope, loops.newest, MAX_RECORDED_LOOPS)
    )
    records = loops.replayable(newest)
    if not records:
        raise NotFound(
            "loop of scope",
            str(scope),
            f"{shown(values.db)} has an attempt; heedful run makes some",
        )
    return records


def read_file(path: Path) -> list[RecordedLoop]:
    """Return the loops of a file.

    Raises one LineError for all faults, or if there is no loop.
    """
    empty = "it has no loop; give at least one with attempts"
    return parse_entries(path, json_lines(path, text_of(path)), _parse_loop, empty)


def _parse_loop(value: Any, line: int) -> RecordedLoop:
    """Return the loop of an entry. Raises UsageError."""
    shape = fit(LoopShape, value)
    goals = tuple(map(presets.goal, shape.goals or ()))
    record.check_goals(goals)

    attempts: list[record.Attempt] = []
    qualities: list[float] = []  # of the attempts whose quality is given
    for attempt in shape.attempts:
        attempts.append(_parse_attempt(attempt, attempts))
        if attempt.quality is not None:
            qualities.append(attempt.quality)

    id = f"line {line}" if shape.id is None else str(shape.id)
    # A loop whose attempts name their rung has a ladder, whose rungs have no names.
    ladder = None
    if any(attempt.rung for attempt in shape.attempts):
        ladder = Ladder(names=("",) * max(2, *(attempt.rung for attempt in attempts)))
    loop = record.Loop(id, goals, attempts=tuple(attempts), ladder=ladder)
    return RecordedLoop(loop, tuple(qualities))


def _parse_attempt(
    shape: AttemptShape, earlier: Sequence[record.Attempt]
) -> record.Attempt:
    """Return the attempt that follows the `earlier` ones. Raises UsageError."""
    number = len(earlier) + 1
    has_evaluation = shape.findings is not None or shape.scores is not None
    if (shape.passed is not None) == has_evaluation:
        raise UsageError(
            f"attempt {number} needs either passed, or findings and scores"
        )

    findings = tuple(shape.findings or ())
    if shape.passed is False:
        findings = (NOT_PASSED_FINDING,)
    candidate = record.Candidate.of(shape.candidate)
    return record.Attempt(
        number,
        candidate,
        evaluation=record.Evaluation(findings, shape.scores or {}, met=shape.met),
        usage=shape.usage or record.Usage(calls=1),
        repeats=find_near_repeat(candidate, earlier),
        rung=shape.rung or 1,
        # Whoever wrote the file judged each attempt.
        judged_by=(NOT_PASSED_FINDING.check,),
    )

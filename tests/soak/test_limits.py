"""Random steps of many threads in several processes that are killed: no limit is ever
exceeded.

The store is judged from its rows and the logs of the processes alone: limits that can
be counted are counted by hand.
"""

import itertools
import json
import random
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from conftest import SOAK
from heedful.loop.codec import decision_from, from_document, policy_from
from heedful.loop.decide import Again, Decision, Done
from heedful.loop.record import Attempt, Usage
from tests.soak.ledger import Ledger
from tests.soak.stepping import EXPECTED, FAILED
from tests.store.support import WAITING, python, rows

pytestmark = [pytest.mark.soak, pytest.mark.nightly]
ERRORS = {error.__name__ for error in (*EXPECTED, *FAILED)} | {""}


@dataclass(kw_only=True)
class Step:
    """One action of a thread on a loop, and its result."""

    id: str
    do: str
    loop: str
    said: str = ""


class Log:
    """All that the processes wrote. The last line of a process that was killed may be
    torn.
    """

    def __init__(self, folder: Path) -> None:
        self.steps: dict[str, Step] = {}
        self.checks: list[tuple[Step, str, int]] = []
        self.calls: Counter[str] = Counter()  # of the model, by loop
        for path in folder.glob("*.log"):
            for line in path.read_text().rpartition("\n")[0].splitlines():
                kind, _, id, *what = json.loads(line)
                self._read(kind, id, *what)

    def _read(self, kind: str, id: str, *what: Any) -> None:
        match kind, what:
            case "begin", (do, loop):
                self.steps[id] = Step(id=id, do=do, loop=loop)
            case "end", (outcome,):
                self.steps[id].said = outcome
            case "generate", (loop, *_):
                self.calls[loop] += 1
            case "check", (loop, attempt):
                self.checks.append((self.steps[id], loop, attempt))
            case _:
                raise AssertionError((kind, what))


class Case:
    """The rows of one loop, in the order in which they were written."""

    def __init__(self, db: sqlite3.Connection, row: sqlite3.Row) -> None:
        def read(table: str, order: str) -> list[dict[str, Any]]:
            query = f"select * from {table} where loop = ? order by {order}"
            return [dict(entry) for entry in db.execute(query, (row["n"],))]

        self.row = row
        self.id = str(row["id"])
        self.policy = policy_from(json.loads(row["policy"]))
        self.rules: list[dict[str, Any]] = json.loads(row["policy"])["rules"]
        self.extra = Usage(**json.loads(row["extra"]))
        self.attempts = read("attempt", "number")
        self.overrides = read("override", "seq")
        self.records = tuple(
            from_document(Attempt, json.loads(a["record"])) for a in self.attempts
        )
        decisions = read("decision", "seq")
        self.decisions = [
            decision_from(
                json.loads(entry["record"]), entry["attempt"], entry["created"]
            )
            for entry in decisions
        ]


def stops(decision: Decision, *, died: bool = True) -> set[str]:
    """The rules that ended a loop; without `died`, not those that count dead calls."""
    verdict = decision.verdict
    found = verdict.stopped_by if isinstance(verdict, Done) else ()
    return {stop.rule for stop in found if died or "died" not in stop.figures}


def lifts(decision: Decision) -> set[tuple[int, str]]:
    """The overrides that a decision used, each with a rule that it lifted."""
    verdict = decision.verdict
    lifted = verdict.lifted if isinstance(verdict, Again) else ()
    return {(stop.override, stop.rule) for stop in lifted}


# -- what must hold of one loop


def check_continuation(case: Case) -> None:
    """An attempt follows only a verdict to go on, and a loop that passed has ended."""
    silent = {"echo"} if case.policy.counts_scope else set()
    for number in range(1, len(case.attempts) + 1):
        group = [d for d in case.decisions if d.attempt == number - 1]
        assert group or number == 1
        ends = [d.verdict for d in group if isinstance(d.verdict, Done)]
        assert not any(done.passed for done in ends), (
            "an attempt follows one that passed"
        )
        assert not group or isinstance(group[-1].verdict, Again)
        # Calls that died count anew after a stop, whichever rule a person lifts.
        ruled = {rule for decision in group for rule in stops(decision, died=False)}
        ruled -= silent
        assert ruled <= {rule for decision in group[-1:] for _, rule in lifts(decision)}
    state = "open"
    if case.decisions and isinstance(ended := case.decisions[-1].verdict, Done):
        state = "passed" if ended.passed else "stopped"
    assert case.row["state"] == state
    says = ["cancelled" in stops(decision) for decision in case.decisions]
    assert says == sorted(says)
    assert any(says) == bool(case.row["cancelled"])


def check_overrides(case: Case) -> None:
    """Every override could be given, and was consumed by just the decisions that it
    lifted.
    """
    flat = [part for rule in case.rules for part in rule.get("rules", (rule,))]
    names = {rule["rule"] for rule in flat} - {"budget"}
    lifted = Counter(n for d in case.decisions for n in {n for n, _ in lifts(d)})
    for index, override in enumerate(case.overrides):
        assert override["rule"] in names
        assert override["by"].strip()
        assert override["decisions"] >= 1
        assert lifted[index] == override["used"] <= override["decisions"], (
            "an override was used too often"
        )
    assert lifted.keys() <= set(range(len(case.overrides)))


def check_limits(log: Log, case: Case) -> None:
    """The limits on attempts, calls and tokens, counted without the code under test.

    A claim counts its call before the call is made, so a process that is killed between
    them leaves one too many in `extra`: the log has the calls that were made.
    """
    calls_in_vain = log.calls[case.id] - len(case.attempts)
    for rule in case.rules:
        if rule["rule"] == "attempts":
            for number in range(rule["limit"], len(case.attempts)):
                last = [lifts(d) for d in case.decisions if d.attempt == number][-1:]
                lifted = {rule for pair in last for _, rule in pair}
                assert "attempts" in lifted, "an attempt beyond the limit"
        for unit in ("calls", "tokens") if rule["rule"] == "budget" else ():
            amounts = [getattr(a.usage, unit) for a in case.records]
            vain = getattr(case.extra, unit)
            if unit == "calls":
                vain = min(vain, calls_in_vain)
            limit = rule[unit] or float("inf")
            assert sum(amounts) + vain < limit + max((*amounts, 1)), (
                "the budget was exceeded"
            )
            assert sum(amounts[:-1]) < limit, "the budget was exceeded"


# -- what must hold between the rows and the logs


def check_acknowledged(cases: Sequence[Case], log: Log) -> None:
    """Everything that a step was told is stored, once."""
    reasons = Counter(row["why"] for case in cases for row in case.overrides)
    cancelled = {case.id for case in cases if case.row["cancelled"]}
    attempts = {(case.id, row["number"]) for case in cases for row in case.attempts}
    for step in log.steps.values():
        if step.do == "override":
            assert (step.said not in ERRORS) <= reasons[step.id] <= 1, (
                f"not stored once: {step}"
            )
        assert step.said != "cancelled" or step.loop in cancelled
    for step, loop, number in log.checks:
        assert step.said in ERRORS or (loop, number) in attempts, (
            f"an attempt is lost: {step}"
        )


def cases_of(folder: Path) -> list[Case]:
    with closing(sqlite3.connect(folder / "limits.db")) as db:
        db.row_factory = sqlite3.Row
        return [Case(db, row) for row in db.execute("select * from loop order by n")]


def find_problems(folder: Path) -> list[str]:
    """The first problem that each of the judges finds in each loop, and in all of
    them.
    """
    cases = cases_of(folder)
    log = Log(folder)
    judges: tuple[Any, ...] = (
        check_continuation,
        check_overrides,
        partial(check_limits, log),
    )
    of_cases = [partial(check, case) for case in cases for check in judges]
    problems_found = []
    for judge in (
        *of_cases,
        partial(check_acknowledged, cases, log),
    ):
        try:
            judge()
        except AssertionError as error:
            problems_found.append(f"{judge}: {error}")
    return problems_found


# -- the processes

STEPS = 1_000 * SOAK
PROCESSES = 4
STEPPING = "from tests.soak.stepping import main; main()"
DEATHS = 0.001  # how likely a process kills itself at each of the places where it may


def run_crowd(folder: Path) -> int:
    """Run processes, killed at random and replaced, until the steps are made; return
    the kills.
    """
    chance = random.Random(SOAK)
    lives = count()
    steps = folder / "steps"
    steps.touch()
    alive: list[subprocess.Popen[str]] = []
    kills = 0
    kill_at = 100
    before = -1
    moved = time.monotonic()
    try:
        while True:
            steps_made = steps.stat().st_size
            while steps_made < STEPS and len(alive) < PROCESSES:
                alive.append(python(STEPPING, folder, next(lives), SOAK, STEPS, DEATHS))
            if not alive:
                return kills
            if kill_at <= steps_made < STEPS:
                chance.choice(alive).kill()
                kill_at = steps_made + chance.randint(50, 250)
            for process in [child for child in alive if child.poll() is not None]:
                alive.remove(process)
                _, err = process.communicate(timeout=WAITING)
                assert process.returncode in (0, -signal.SIGKILL), err
                assert not err, err
                kills += process.returncode != 0
            if steps_made > before:
                before = steps_made
                moved = time.monotonic()
            assert time.monotonic() - moved < WAITING, (
                f"nothing moves after {steps_made} steps"
            )
            time.sleep(chance.random() * 0.01)
    finally:
        for process in alive:
            process.kill()
            process.communicate()


def count_problems(problems: list[str], *judges: str) -> int:
    """Count the problems that one of these judges found."""
    return sum(any(judge in problem for judge in judges) for problem in problems)


def test_no_limit_is_exceeded_without_a_recorded_override(
    tmp_path: Path, ledger: Ledger
) -> None:
    kills = run_crowd(tmp_path)
    wrong = find_problems(tmp_path)
    print(f"{len(wrong)} problems: {wrong[:20]}")
    assert rows(tmp_path / "limits.db", "pragma integrity_check") == [("ok",)]
    assert rows(tmp_path / "limits.db", "pragma foreign_key_check") == []
    cases = cases_of(tmp_path)
    consumed = sum(override["used"] for case in cases for override in case.overrides)
    stopped = sum(any(map(stops, case.decisions)) for case in cases)
    reopened = 0
    for case in cases:
        pairs = itertools.pairwise(case.decisions)
        reopened += any(
            isinstance(before.verdict, Done) and isinstance(after.verdict, Again)
            for before, after in pairs
        )
    assert min(kills, consumed, stopped) >= 3 * SOAK, (kills, consumed, stopped)
    assert reopened >= 3 * (SOAK - 1)  # 2 to 8 in a hundredth
    steps = Log(tmp_path).steps
    interrupted = {id.partition(".")[0] for id, step in steps.items() if not step.said}
    lost = count_problems(wrong, "check_acknowledged")
    ledger.settle(
        what="kill -9 of processes whose threads step, override and cancel",
        engine="SQLite",
        times=kills,
        at_work=len(interrupted),
        lost=lost,
        exceeded=len(wrong) - lost,
    )

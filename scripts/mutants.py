"""Plant mistakes in the code, one at a time, and see whether a test notices.

    python -m scripts.mutants                        120 mutants of the package
    python -m scripts.mutants --count 20 --seed 7 packages/heedful/src/heedful/redact.py
    python -m scripts.mutants --again build/mutants.json   those not killed

First the tests run once, unless they did since the code changed; each line keeps the
names of the tests that ran it. A *mutant* is the code with one change: another
comparison, a condition that is turned round, a number that is one more, a statement
that is left out. It lives in a copy of the checkout. It is killed when one of the tests
that run its line fails, and passes on the unchanged code; those that run the fewest
lines are tried first. Coverage does not look at property tests, so those of the same
folders are tried last. A mutant is undecided where the tests do not end, or end without
naming a test. The result is in build/mutants.json. On two cores, 120 mutants take about
half an hour, and the tests before them five minutes.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Literal

import coverage

from scripts.workspace import ROOT, SOURCES, TESTS, is_outdated

RESULT = ROOT / "build" / "mutants.json"
DATA = ROOT / "build" / "mutants.coverage"
CONFIG = """
[run]
source = {source}
relative_files = true
data_file = {data}
"""
# What a mutant needs of the checkout.
COPIED = (
    "packages",
    "tests",
    "scripts",
    "examples",
    "docs",
    "lab",
    "deploy",
    "clients",
    ".github",
    ".ci",
)
# A mutant may never end.
MAX_SECONDS_OF_TESTS = 300
TESTS_AT_FIRST = 30
MAX_TESTS = 600
# What pytest exits with when all tests passed, and when none was selected.
GREEN = (0, 5)
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
}


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change: on `line` of `path`, the text from `start` to `end` (offsets in the
    file) becomes `text`.
    """

    path: str
    line: int
    start: int
    end: int
    before: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before!r} -> {self.text!r}"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a mutant, and the test that killed it or what left it undecided;
    `tests` run its line.
    """

    mutant: Mutant
    tests: int
    fate: Literal["killed", "survived", "undecided"]
    reason: str


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a module."""
    source = path.read_text(encoding="utf-8")
    starts = [0]
    for text in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(text))

    def offset(line: int, byte: int) -> int:
        text = source[starts[line - 1] : starts[line]]
        return starts[line - 1] + len(text.encode()[:byte].decode())

    for node in ast.walk(ast.parse(source)):
        for part, text in _changes(node):
            start = offset(part.lineno, part.col_offset)
            end = offset(part.end_lineno or 0, part.end_col_offset or 0)
            before = source[start:end]
            if text != before:
                yield Mutant(
                    path=str(path.relative_to(ROOT)),
                    line=part.lineno,
                    start=start,
                    end=end,
                    before=before,
                    text=text,
                )


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield the parts of a node that may be replaced, each with its new text."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            sign = COMPARISONS[type(operator)]
            yield node, f"({ast.unparse(left)} {sign} {ast.unparse(right)})"
        case ast.BoolOp(op=operator, values=values):
            word = " or " if isinstance(operator, ast.And) else " and "
            yield node, "(" + word.join(f"({ast.unparse(v)})" for v in values) + ")"
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            yield test, f"(not ({ast.unparse(test)}))"
        case ast.BinOp(left=left, op=operator, right=right) if (
            type(operator) in ARITHMETIC
        ):
            sign = ARITHMETIC[type(operator)]
            yield node, f"({ast.unparse(left)} {sign} {ast.unparse(right)})"
        case ast.Constant(value=bool(value)):
            yield node, str(not value)
        case ast.Constant(value=int(value)):
            yield node, str(value + 1)
        case ast.Return(value=ast.expr() as value) if not isinstance(
            value, ast.Constant
        ):
            yield value, "None"
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield node, "pass"
        case _:
            pass


def measure() -> None:
    """Run the tests once, and keep which of them ran each line."""
    DATA.parent.mkdir(exist_ok=True)
    config = DATA.with_suffix(".cfg")
    source = ",".join(map(str, SOURCES))
    config.write_text(CONFIG.format(data=DATA, source=source), encoding="utf-8")
    workers = str((os.cpu_count() or 1) + 1)
    options = ["--cov", f"--cov-config={config}", "--cov-context=test", "--cov-report="]
    spread = ["--numprocesses", workers, "--dist", "worksteal"]
    subprocess.run(
        [sys.executable, "-m", "pytest", *spread, *options], cwd=ROOT, check=False
    )


class Tests:
    """The tests that run a line, those first that run little else."""

    def __init__(self) -> None:
        data = coverage.CoverageData(basename=str(DATA))
        data.read()
        self._tests: dict[tuple[str, int], list[str]] = {}
        self._lines_by_test: Counter[str] = Counter()
        for file in data.measured_files():
            for line, contexts in data.contexts_by_lineno(file).items():
                tests = [name.partition("|")[0] for name in contexts if name]
                self._tests[file, line] = tests
                self._lines_by_test.update(tests)

    def of(self, mutant: Mutant) -> list[str]:
        """Return the tests that run the line of a mutant."""
        tests = set(self._tests.get((mutant.path, mutant.line), ()))
        return sorted(tests, key=lambda test: (self._lines_by_test[test], test))


def sample(paths: Sequence[Path], tests: Tests, count: int, seed: int) -> list[Mutant]:
    """Draw mutants of lines that some test runs."""
    chance = random.Random(seed)
    mutants = [
        mutant
        for path in paths
        for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])
        for mutant in mutants_of(file)
    ]
    chance.shuffle(mutants)
    tested = (mutant for mutant in mutants if tests.of(mutant))
    return list(islice(tested, count))


def copy_checkout(folder: Path) -> Path:
    """Copy what the tests need into a folder."""
    for name in COPIED:
        if (ROOT / name).exists():
            shutil.copytree(ROOT / name, folder / name)
    for file in ROOT.iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    (folder / ".venv").symlink_to(ROOT / ".venv")
    return folder


def run_tests(folder: Path, arguments: Sequence[str]) -> tuple[bool, str]:
    """Run tests on the copy until one fails; return whether all passed, and the name of
    the one that failed, "" if there is none.
    """
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    # Bytecode is kept by the second, so that of a mutant might be taken for another's.
    paths = [str(folder / source.relative_to(ROOT).parent) for source in SOURCES]
    variables = {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        done = subprocess.run(
            [*command, *arguments],
            cwd=folder,
            env=os.environ | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=MAX_SECONDS_OF_TESTS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False, ""
    if done.returncode in GREEN:
        return True, ""
    for line in done.stdout.splitlines():
        word, _, rest = line.partition(" ")
        if word in ("FAILED", "ERROR") and "tests/" in rest:
            names = [name for name in arguments if "::" in name]
            named = [name for name in names if rest.startswith(name)]
            return False, max(named, key=len, default=rest.partition(" - ")[0])
    return False, ""


def judge(mutant: Mutant, names: Sequence[str], folder: Path) -> Outcome:
    """Plant a mutant into a copy of the checkout, and run its tests there."""
    path = folder / mutant.path
    source = path.read_text(encoding="utf-8")
    if source[mutant.start : mutant.end] != mutant.before:
        raise SystemExit(f"{mutant}: the file has changed since this mutant was drawn")

    files = {Path(name.partition("::")[0]) for name in names}
    places = {str(file.parent if len(file.parts) > 2 else file) for file in files}
    batches: list[list[str]] = [
        [*names[:TESTS_AT_FIRST]],
        [*names[TESTS_AT_FIRST:MAX_TESTS]],
        ["-m", "hypothesis and not nightly", *sorted(places)],
    ]
    planted = source[: mutant.start] + mutant.text + source[mutant.end :]
    for batch in filter(None, batches):
        path.write_text(planted, encoding="utf-8")
        has_passed, killer = run_tests(folder, batch)
        path.write_text(source, encoding="utf-8")
        if has_passed:
            continue
        fate: Literal["killed", "undecided"] = "undecided"
        reason = killer or "the tests did not end, or named none"
        if killer and run_tests(folder, [killer])[0]:
            fate = "killed"
        return Outcome(mutant=mutant, tests=len(names), fate=fate, reason=reason)
    return Outcome(mutant=mutant, tests=len(names), fate="survived", reason="")


def main() -> int:
    """Print what became of each mutant; return 1 if one was not killed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        default=SOURCES,
        help="modules or folders; by default the package",
    )
    parser.add_argument(
        "--count", type=int, default=120, help="how many mutants; by default 120"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="draws others; by default 1"
    )
    parser.add_argument(
        "--again",
        type=Path,
        help="a result: try again those of its mutants that were not killed",
    )
    options = parser.parse_args()
    if not DATA.exists() or is_outdated(DATA, (*SOURCES, *TESTS)):
        measure()
    tests = Tests()
    if options.again:
        rows = json.loads(options.again.read_text(encoding="utf-8"))
        drawn = [Mutant(**row["mutant"]) for row in rows if row["fate"] != "killed"]
    else:
        paths = [path.resolve() for path in options.paths]
        drawn = sample(paths, tests, options.count, options.seed)

    outcomes: list[Outcome] = []
    workers = os.cpu_count() or 1
    copies: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory() as base:
        for number in range(workers):
            copies.put(copy_checkout(Path(base) / str(number)))

        def judge_one(mutant: Mutant) -> Outcome:
            folder = copies.get()
            try:
                return judge(mutant, tests.of(mutant), folder)
            finally:
                copies.put(folder)

        with ThreadPoolExecutor(workers) as pool:
            for outcome in pool.map(judge_one, drawn):
                outcomes.append(outcome)
                print(
                    f"{len(outcomes)}/{len(drawn)} {outcome.mutant}: {outcome.fate} "
                    f"{outcome.reason}",
                    flush=True,
                )

    RESULT.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    fates = Counter(outcome.fate for outcome in outcomes)
    print(", ".join(f"{count} {fate}" for fate, count in fates.most_common()))
    return 0 if fates["killed"] == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())

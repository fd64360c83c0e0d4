"""`heedful practice`: try again the tasks that functions did not solve."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Annotated, Any

from typer import Argument, Option

from heedful.cli.databases import db_exists, missing_database
from heedful.cli.exits import drive
from heedful.cli.output import (
    columns,
    command_line,
    emit,
    following,
    progress,
    say,
)
from heedful.cli.resources import look_here
from heedful.cli.settings import MAX_OPTION_INTEGER, Settings, seconds
from heedful.errors import NotFound, UsageError
from heedful.memory.memory import Memory
from heedful.memory.practice import (
    Practice,
    asked_most,
    practice_allowance,
    practise_all,
    repeatable,
)
from heedful.sanitize import clean
from heedful.service.jobs import PracticePlan
from heedful.store import shown

MAX_PRACTICE_LINE_CHARS = 300
PRACTICE_COLUMNS = columns(
    "function tried passed learnt resting calls tokens cost why",
    function="memory_key",
)


def practice(
    functions: Annotated[
        list[str], Argument(help="Functions, each as module:function.")
    ],
    calls: Annotated[
        int, Option(min=1, max=MAX_OPTION_INTEGER, help="The most calls.")
    ] = 200,
    tokens: Annotated[
        int | None,
        Option(min=1, max=MAX_OPTION_INTEGER, help="No attempt after so many tokens."),
    ] = None,
    cost: Annotated[float | None, Option(help="No attempt after this cost.")] = None,
    next_rung: Annotated[
        bool, Option("--next-rung", help="Let the generators in `then` try, too.")
    ] = False,
    allowance: Annotated[
        str, Option(help="A name; practices with one name share the limits.")
    ] = "",
) -> int:
    """Try again the tasks that functions did not solve, with what memory knows today.

    Each function is declared with practice=True, and practises in its own memory. Those
    that are asked most come first; of each, the oldest task. What passes is learnt; no
    figure counts it. After Ctrl-C or kill -9 the next practice goes on.
    """
    limits = practice_allowance(allowance, calls, tokens=tokens, cost=cost)
    look_here()
    imported = [import_repeatable(path) for path in functions]
    urls = [own_database(function) for function in imported]

    async def work() -> list[Practice]:
        ordered = await asked_most(imported)
        if not any(loops for _, loops in ordered):
            places = ", ".join(sorted({shown(url) for url in urls}))
            remedy = "; a function stores its loops under its memory key when it runs"
            raise NotFound("loop of", ", ".join(functions), places, remedy=remedy)
        return await practise_all(
            [function for function, _ in ordered],
            allowance=limits,
            next_rung=next_rung,
            progress=_show_progress,
        )

    listing = command_line("loops", practice=True, db=urls[0])
    last_words = f"interrupted; the next practice goes on. {listing} shows open loops"
    records = drive(work(), lambda: last_words)
    for record in records:
        for error in record.errors:
            say(clean(error, MAX_PRACTICE_LINE_CHARS))
    return emit(
        records,
        PRACTICE_COLUMNS,
        key="functions",
        text_columns=1,
        then=following("loops", practice=True, db=urls[0]),
    )


def _show_progress(record: Practice) -> None:
    """Show on a terminal how many tasks of a function passed."""
    count = f"{record.passed} of {record.tried} passed, {record.calls} calls"
    progress().bar(record.memory_key, record.tried, total=0, count=count)


def import_repeatable(path: str) -> Any:
    """Import `module:function`. Raises UsageError, InvalidInput."""
    module, _, name = path.partition(":")
    if not (module and name):
        raise UsageError(f"{path!r} is no function; write module:function")
    try:
        function = resolve_name(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"{path}: {error}; name an importable function") from error
    repeatable(function)
    return function


def practice_plan(values: Settings) -> PracticePlan | None:
    """Return what the settings let a worker practise, with imported functions.

    Raises UsageError, InvalidInput.
    """
    stated = values.practice
    if stated is None:
        return None

    return PracticePlan(
        functions=tuple(map(import_repeatable, stated.functions)),
        calls=stated.calls,
        tokens=stated.tokens,
        cost=stated.cost,
        next_rung=stated.next_rung,
        every=seconds("practice.every", stated.every),
        report=_say_record,
    )


def _say_record(record: Practice) -> None:
    """Print what a worker practised."""
    text = (
        f"practised {record.memory_key}: {record.passed} of {record.tried} passed, "
        f"{record.calls} calls; {record.why}"
    )
    for line in (text, *record.errors):
        say(clean(line, MAX_PRACTICE_LINE_CHARS))


def own_database(function: Any) -> str:
    """Return the database of a function's memory. Raises NotFound if it is missing."""
    memory = repeatable(function).memory
    store = memory.store if isinstance(memory, Memory) else memory
    url = str(getattr(store, "url", store))
    if not db_exists(url):
        remedy = "; run the function first: its loops are what is practised"
        raise missing_database(url, remedy)
    return url

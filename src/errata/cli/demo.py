"""`errata demo`: the same tasks with and without memory on a real small model, then a report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from errata.cli.output import Json, print_json, say, show

if TYPE_CHECKING:
    from rich.console import Console

    from errata.cli.measured import Measured
    from errata.cli.plan import Plan
    from errata.cli.settings import Settings
    from errata.models.weights import Weights
    from errata.protocols import Embedder

DB, RESULT, PICTURE, REPORT = "demo.db", "result.json", "learning_curve.png", "report.html"


Full = Annotated[
    bool, typer.Option("--full", help="All tasks, and how well right examples are followed.")
]
ModelName = Annotated[str | None, typer.Option(help="The model. [embedded]")]
Tasks = Annotated[
    Path | None, typer.Option(help="Another task file. [the house rules that come along]")
]
Out = Annotated[Path, typer.Option(help="The folder for all that it writes.")]
PerFamily = Annotated[
    int | None, typer.Option(min=2, help="Tasks of each family, without --full. [7]")
]
Gold = Annotated[
    bool | None,
    typer.Option("--gold/--no-gold", help="Measure how well right examples are followed."),
]
Threads = Annotated[int | None, typer.Option(help="Threads of an embedded model. [cores - 1]")]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Start again: forget what the folder holds of this plan.")
]


def demo(
    ctx: typer.Context,
    full: Full = False,
    model: ModelName = None,
    tasks: Tasks = None,
    out: Out = Path("out/demo"),
    per_family: PerFamily = None,
    gold: Gold = None,
    threads: Threads = None,
    fresh: Fresh = False,
    json: Json = False,
) -> None:
    """Run tasks whose rule only a check knows, with and without memory, and report the difference.

    Nothing is faked: every answer is the model's, and another model gives other numbers. Stopped
    at any point, the same command goes on.
    """
    from errata.cli.interrupt import drive
    from errata.cli.plan import PER_FAMILY, plan
    from errata.cli.settings import settings

    values = settings(model=model, threads=threads)
    sys.path.insert(0, str(Path.cwd()))  # models and checks are named module:function
    chosen = plan(
        tasks,
        values.model,
        full=full,
        per_family=per_family or PER_FAMILY,
        gold=full if gold is None else gold,
        threads=values.threads,
    )
    again = _command(ctx)
    out.mkdir(parents=True, exist_ok=True)
    stopped = f"stopped; what is done is kept in {out}. The same command goes on:\n  {again}"
    found = drive(_run(chosen, values, out, fresh, again), stopped)
    _write(found, out, json)


def _command(ctx: typer.Context) -> str:
    """The command line as it was typed, without --fresh, so that it goes on."""
    import shlex

    from errata.cli.measured import program

    given = [str(one) for one in (ctx.obj or ["demo"]) if one not in ("--fresh", "--json")]
    return f"{program()} {shlex.join(given)}"


async def _file(out: Path, plan: Plan, fresh: bool) -> Path:
    """The database of this plan: demo.db, or one named by its key where another plan has that."""
    from errata.cli.arms import SCOPE
    from errata.store import open_store

    own = out / f"demo-{plan.key}.db"
    path = out / DB
    if own.is_file():
        path = own
    elif path.is_file():
        store = open_store(str(path))
        newest = await store.loops(SCOPE, 1)
        await store.close()
        if newest and f"-{plan.key}/" not in newest[0].id:
            path = own
    if fresh:
        for end in ("", "-wal", "-shm"):
            path.with_name(path.name + end).unlink(missing_ok=True)
    return path


async def _run(plan: Plan, values: Settings, out: Path, fresh: bool, again: str) -> Measured:
    """Run what is not stored yet, and measure. Raises ModelError, StoreError, UserCodeError."""
    from dataclasses import replace

    from rich.text import Text

    from errata.cli.arms import SCOPE, Lab
    from errata.cli.live import LEGEND, Screen, Watched
    from errata.cli.measured import TOP, measured
    from errata.cli.opening import model_of, stored
    from errata.generate import Writer

    embedder = await _fetched(values)
    plan = replace(plan, embedder="none" if embedder is None else "minilm")
    values = values.model_copy(update={"db": str(await _file(out, plan, fresh))})
    screen = Screen(_stderr(), len(plan.tasks))
    async with stored(values, new=True) as store, model_of(values) as model:
        writer = Writer(Watched(model, screen), plan.system, max_tokens=plan.max_tokens)
        lab = Lab(plan, store, writer, embedder, screen)
        screen.console.print(Text(f"{_title(plan)}\n{LEGEND}\n"))
        ran = await lab.run()
        lessons = await store.reflections(SCOPE, TOP)
    return measured(plan, ran, lessons, Path(values.db), again)


async def _fetched(values: Settings) -> Embedder | None:
    """Fetch what weights are missing, having said how big; the embedder where there is one.

    Raises WeightsError for those of the model.
    """
    from errata.cli.opening import EMBEDDER, embedding
    from errata.cli.progress import FetchProgress
    from errata.errors import ModelError
    from errata.models import open_embedder, weights

    embedded = values.model.partition(":")[0] == "embedded"
    needed = weights.needed(values.model)
    model = [needed] if needed else []
    wanted = values.embedder == "minilm" or (embedded and values.embedder == "auto")
    meaning = [weights.find(name) for name in EMBEDDER] if wanted else []
    _announce([*model, *meaning], values.cache or weights.default_cache())
    with FetchProgress() as fetching:
        for one in model:
            await weights.fetch(one, cache=values.cache, progress=fetching)
        try:
            for one in meaning:
                await weights.fetch(one, cache=values.cache, progress=fetching)
        except ModelError as error:
            say(f"without the embedder, so recall compares words: {error}")
            return None
    name = embedding(values)
    return None if name == "none" else open_embedder(name, cache=values.cache)


def _announce(needed: list[Weights], cache: Path) -> None:
    """Say what will be downloaded, before it is."""
    missing = [one for one in needed if not one.cached(cache).is_file()]
    if missing:
        total = sum(one.size for one in missing) / 1e6
        say(f"to download once, {total:.0f} MB into {cache}:")
    for one in missing:
        say(f"  {one.about} ({one.size / 1e6:.0f} MB, {one.licence})")


def _title(plan: Plan) -> str:
    from errata.cli.plan import families

    found = families(plan.tasks)
    names = ", ".join(name or "tasks" for name in found)
    return (
        f"{plan.model}: {len(plan.tasks)} tasks of {len(found)} families: {names}\n"
        "each task twice, first without memory, then with; only a check knows the rules"
    )


def _stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True)


def _write(found: Measured, out: Path, json: bool) -> None:
    """Table or JSON on stdout; picture, report and result.json in the folder."""
    from json import dumps

    from errata.cli.report import page

    pictures = _pictures(found)
    if pictures:
        (out / PICTURE).write_bytes(pictures[0])
    (out / REPORT).write_text(page(found, pictures), "utf-8")
    (out / RESULT).write_text(dumps(found.plain(), indent=1) + "\n", "utf-8")
    if json:
        print_json(found.plain())
    else:
        _print(found, out, bool(pictures))


def _pictures(found: Measured) -> tuple[bytes, bytes] | None:
    """The learning curve on light and on dark ground, None where it cannot be drawn."""
    from errata.cli.live import MEMORY, WITHOUT
    from errata.cli.picture import NoPictures, draw

    tasks = len(found.ran.memory)
    title = f"{found.settings['model']}: {tasks} tasks, each once without and once with memory"
    arms = {MEMORY: found.ran.memory, WITHOUT: found.ran.without}
    try:
        return draw(arms, title), draw(arms, title, dark=True)
    except NoPictures as error:
        say(f"errata: {error}")
        return None


def _print(found: Measured, out: Path, picture: bool) -> None:
    from rich.console import Console

    from errata.cli.summary import print_summary

    width = None if sys.stdout.isatty() else 120
    print_summary(found, Console(width=width, highlight=False))
    show(f"\nreport   {out / REPORT}")
    if picture:
        show(f"picture  {out / PICTURE}")
    show(f"figures  {out / RESULT}\n\nNext:")
    for what, line in found.commands:
        show(f"  {line}\n      {what}")

"""`heedful demo`: the same tasks with and without memory on a real small model, then a report."""

from __future__ import annotations

import json as jsonlib
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.interrupt import drive
from heedful.cli.lab import Plan
from heedful.cli.measured import Measured
from heedful.cli.opening import EMBEDDER, embedder_of, model_of, stored
from heedful.cli.output import WIDTH, Json, ModelName, NoPictures, print_json, say, show
from heedful.cli.progress import Progress
from heedful.cli.settings import Settings, settings
from heedful.errors import InvalidInput
from heedful.models.contract import Embedder
from heedful.models.weights import Weights
from heedful.store import lessons as lesson_store

RESULT, PICTURE, REPORT = "result.json", "learning_curve.png", "report.html"

Full = Annotated[
    bool, typer.Option("--full", help="All tasks, and how well right examples are followed.")
]
Tasks = Annotated[
    Path | None, typer.Option(help="Another task file. [the house rules that come along]")
]
Out = Annotated[
    Path | None, typer.Option(help="The folder for all that it writes. [out/demo, out/pipeline]")
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Start again: forget what the folder holds of this plan.")
]
Pipeline = Annotated[
    bool, typer.Option("--pipeline", help="Five stages that correct themselves, and the report.")
]


def demo(
    ctx: typer.Context,
    full: Full = False,
    pipeline: Pipeline = False,
    model: ModelName = None,
    tasks: Tasks = None,
    out: Out = None,
    fresh: Fresh = False,
    json: Json = False,
) -> None:
    """Run tasks whose rule only a check knows, with and without memory, and report the difference.

    Nothing is faked: every answer is the model's, and another model gives other numbers. With
    --pipeline stages are checked and corrected; the two that fail stand in for an agent. Stopped at
    any point, the same command goes on.
    """
    from heedful.cli.measured import program

    values = settings(model=model)
    sys.path.insert(0, str(Path.cwd()))  # models and checks are named module:function
    given = [one for one in ctx.obj or ["demo"] if one not in ("--fresh", "--json")]
    again = f"{program()} {shlex.join(given)}"
    if pipeline and (full or tasks):
        raise InvalidInput("--pipeline", "with --full or --tasks", "by itself: it has no tasks")
    if pipeline:
        from heedful.cli.forecast import demonstrate

        demonstrate(values, out or Path("out/pipeline"), fresh=fresh, again=again, json=json)
    else:
        _tasks(values, out or Path("out/demo"), tasks, full, fresh, again, json)


def _tasks(
    values: Settings,
    out: Path,
    tasks: Path | None,
    full: bool,
    fresh: bool,
    again: str,
    json: bool,
) -> None:
    from heedful.cli.lab import plan

    chosen = plan(tasks, values.model, full=full)
    out.mkdir(parents=True, exist_ok=True)
    found = drive(
        _run(chosen, values, out, fresh, again),
        lambda: f"stopped; what is done is kept in {out}. The same command goes on:\n  {again}",
    )
    _write(found, out, json)


async def _run(plan: Plan, values: Settings, out: Path, fresh: bool, again: str) -> Measured:
    """Run what is not stored yet, and measure. Raises ModelError, StoreError, UserCodeError."""
    from heedful.cli.lab import SCOPE, Lab
    from heedful.cli.live import LEGEND, Screen
    from heedful.cli.measured import TOP, measured

    embedder = await _fetched(values)
    plan = replace(plan, by_meaning=embedder is not None)
    db = out / f"demo-{plan.key}.db"
    if fresh:
        for end in ("", "-wal", "-shm"):
            db.with_name(db.name + end).unlink(missing_ok=True)
    values = values.model_copy(update={"db": str(db)})
    screen = Screen(len(plan.tasks))
    async with stored(values, new=True) as store, model_of(values) as model:
        say(f"{_title(plan)}\n{LEGEND}\n")
        ran = await Lab(plan, store, model, embedder, screen).run()
        lessons = await store.read(SCOPE, lesson_store.top, TOP)
    threads = str(values.threads or max(1, (os.cpu_count() or 1) - 1))
    return measured(plan, ran, lessons, db, {"threads": threads, "command": again})


async def _fetched(values: Settings) -> Embedder | None:
    """Fetch what weights are missing, having said how big; the embedder where there is one.

    Raises WeightsError for those of the model.
    """
    from heedful.errors import ModelError
    from heedful.models import weights

    embedded = values.model.partition(":")[0] == "embedded"
    wanted = values.embedder == "minilm" or (embedded and values.embedder == "auto")
    meaning = [weights.find(name) for name in EMBEDDER] if wanted else []
    needed = weights.needed(values.model)
    model = [needed] if needed else []
    announce([*model, *meaning], values.cache or weights.default_cache())
    with Progress() as progress:
        for one in model:
            await weights.fetch(one, cache=values.cache, progress=progress.fetched)
        try:
            for one in meaning:
                await weights.fetch(one, cache=values.cache, progress=progress.fetched)
        except ModelError as error:
            say(f"without the embedder, so recall compares words: {error}")
            return None
    return embedder_of(values)


def announce(needed: list[Weights], cache: Path) -> None:
    """Say what will be downloaded, before it is."""
    missing = [one for one in needed if not one.cached(cache).is_file()]
    if missing:
        total = sum(one.size for one in missing) / 1e6
        say(f"to download once, {total:.0f} MB into {cache}:")
    for one in missing:
        say(f"  {one.about} ({one.size / 1e6:.0f} MB, {one.licence})")


def _title(plan: Plan) -> str:
    names = list(dict.fromkeys(task.family or "tasks" for task in plan.tasks))
    return (
        f"{plan.model}: {len(plan.tasks)} tasks of {len(names)} families: {', '.join(names)}\n"
        "each task twice, first without memory, then with; only a check knows the rules"
    )


def _write(found: Measured, out: Path, json: bool) -> None:
    """Table or JSON on stdout; picture, report and result.json in the folder."""
    from rich.console import Console

    from heedful.cli.measured import print_summary
    from heedful.cli.report import page

    pictures = _pictures(found)
    if pictures:
        (out / PICTURE).write_bytes(pictures[0])
    (out / REPORT).write_text(page(found, pictures), "utf-8")
    (out / RESULT).write_text(jsonlib.dumps(found.plain(), indent=1) + "\n", "utf-8")
    if json:
        print_json(found.plain())
        return
    width = None if sys.stdout.isatty() else WIDTH
    print_summary(found, Console(width=width, highlight=False))
    show(f"\nreport   {out / REPORT}")
    if pictures:
        show(f"picture  {out / PICTURE}")
    show(f"figures  {out / RESULT}\n\nNext:")
    for what, line in found.commands:
        show(f"  {line}\n      {what}")


def _pictures(found: Measured) -> tuple[bytes, bytes] | None:
    """The learning curve on light and on dark ground, None where it cannot be drawn."""
    from heedful.cli.figures import MEMORY, WITHOUT
    from heedful.cli.picture import draw

    tasks = len(found.ran.memory)
    title = f"{found.settings['model']}: {tasks} tasks, each once without and once with memory"
    arms = {MEMORY: found.ran.memory, WITHOUT: found.ran.without}
    try:
        return draw(arms, title), draw(arms, title, dark=True)
    except NoPictures as error:
        say(f"heedful: {error}")
        return None

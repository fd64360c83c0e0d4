"""`heedful demo`: finds the demonstrations among the examples, and runs one."""

from __future__ import annotations

import shlex
import sys
from importlib import import_module
from pathlib import Path
from shutil import which
from types import ModuleType
from typing import Annotated, Any

import typer

import heedful
from heedful.cli.output import Json, ModelName, say
from heedful.cli.progress import drive
from heedful.cli.settings import settings
from heedful.errors import InvalidInput, NotFound
from heedful.models.weights import Weights

PACKAGE = "heedful._examples"


def demo(
    ctx: typer.Context,
    full: Annotated[bool, typer.Option("--full", help="All tasks.")] = False,
    pipeline: Annotated[
        bool, typer.Option("--pipeline", help="Five stages that correct themselves; the report.")
    ] = False,
    model: ModelName = None,
    tasks: Annotated[
        Path | None, typer.Option(help="Another task file. [the house rules that come along]")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder for its files. [out/demo, out/pipeline]")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start again: delete what the folder holds of it.")
    ] = False,
    json: Json = False,
) -> None:
    """Run tasks with and without memory, and report the difference.

    Only a check knows the rule of a task. Nothing is faked: every answer is the model's, and
    another model gives other numbers. With --pipeline stages are checked and corrected; the two
    that fail stand in for an agent. If it is stopped, the same command continues.
    """
    values = settings(model=model)
    sys.path.insert(0, str(Path.cwd()))  # models and checks are named module:function
    given = [one for one in ctx.obj or ["demo"] if one not in ("--fresh", "--json")]
    again = f"{program()} {shlex.join(given)}"
    if pipeline and (full or tasks):
        raise InvalidInput("--pipeline", "with --full or --tasks", "by itself: it has no tasks")
    out = out or Path("out/pipeline" if pipeline else "out/demo")

    def stopped() -> str:
        return f"stopped; what is done is kept in {out}. The same command continues:\n  {again}"

    if pipeline:
        stages = _load("demo.pipeline")
        stages.write(drive(stages.run(values, out, fresh), stopped), again, json)
        return
    lab = _load("demo.lab")
    chosen = lab.plan(tasks, values.model, full=full)
    out.mkdir(parents=True, exist_ok=True)
    lab.write(drive(lab.measure(chosen, values, out, fresh, again), stopped), out, json)


def _load(name: str) -> Any:
    """Import a module of the examples, from the installed package or from the checkout."""
    package = ModuleType(PACKAGE)
    package.__path__ = [str(examples_folder())]
    sys.modules.setdefault(PACKAGE, package)
    return import_module(f"{PACKAGE}.{name}")


def examples_folder() -> Path:
    """Return the folder of the examples. Raises NotFound."""
    package = Path(heedful.__file__).parent
    for folder in (package / "_examples", package.parents[1] / "examples"):
        if (folder / "demo").is_dir():
            return folder
    raise NotFound("examples", "demo", f"{package}; install heedful again")


def program() -> str:
    """Return how this user can call heedful: by its name, or by the path of what runs now."""
    given = Path(sys.argv[0])
    if which("heedful"):
        return "heedful"
    if given.name.startswith("heedful") and given.is_file():
        here, path = Path.cwd(), given.resolve()
        return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else given))
    return f"{shlex.quote(sys.executable)} -m heedful.cli"


def announce(needed: list[Weights], cache: Path) -> None:
    """Say what will be downloaded."""
    missing = [one for one in needed if not one.cached(cache).is_file()]
    if missing:
        total = sum(one.size for one in missing) / 1e6
        say(f"to download once, {total:.0f} MB into {cache}:")
    for one in missing:
        say(f"  {one.about} ({one.size / 1e6:.0f} MB, {one.licence})")

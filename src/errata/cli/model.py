"""`errata model`: the weights of embedded models, fetched, listed and checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from errata.cli.output import Json, print_json, show, table

if TYPE_CHECKING:
    from errata.cli.settings import Settings
    from errata.models.weights import State

app = typer.Typer(
    help="Fetch, list and check the weights of embedded models.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)
Name = Annotated[str | None, typer.Argument(help="As in errata model list. [the set model]")]
Cache = Annotated[Path | None, typer.Option("--cache", help="The folder for weights.")]
HEADS = ("weights", "is", "licence", "MB", "state")


@app.command()
def fetch(
    name: Name = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="A file that has the bytes already.")
    ] = None,
    cache: Cache = None,
    json: Json = False,
) -> int:
    """Fetch weights into the cache and prove them by their SHA-256. Fetched ones stay."""
    from errata.cli.interrupt import drive
    from errata.cli.progress import FetchProgress
    from errata.cli.settings import settings
    from errata.models import weights

    values = settings(cache=cache)
    one = weights.find(name) if name else weights.needed(values.model)
    wanted = (one or weights.find("embedded")).name
    again = "interrupted; whole parts are kept, the same command goes on"
    with FetchProgress() as watch:
        path = drive(weights.fetch(wanted, path=source, cache=values.cache, progress=watch), again)
    if json:
        print_json({"name": wanted, "path": str(path)})
    else:
        show(f"{wanted}: {path}")
    return 0


@app.command("list")
def list_(cache: Cache = None, json: Json = False) -> int:
    """List the weights there are, and the forms that the name of a model takes."""
    from errata.cli.settings import settings
    from errata.models import FORMS, weights

    folder = settings(cache=cache).cache or weights.default_cache()
    known = weights.known()
    there = [one.cached(folder).is_file() for one in known]
    if json:
        facts = [
            {
                "name": one.name,
                "is": one.about,
                "licence": one.licence,
                "bytes": one.size,
                "fetched": is_there,
            }
            for one, is_there in zip(known, there, strict=True)
        ]
        print_json({"cache": str(folder), "weights": facts, "models": list(FORMS)})
        return 0
    rows = [
        (one.name, one.about, one.licence, f"{one.size / 1e6:.0f}", "fetched" if is_there else "-")
        for one, is_there in zip(known, there, strict=True)
    ]
    table(HEADS, rows, text=3)
    show(f"cache: {folder}\nmodels are named: {', '.join(FORMS)}")
    return 0


@app.command()
def check(name: Name = None, cache: Cache = None, json: Json = False) -> int:
    """Hash fetched weights again; exits 1 where they are damaged, or absent though named."""
    from errata.cli.interrupt import drive
    from errata.cli.settings import settings
    from errata.models import weights

    values = settings(cache=cache)
    names = [weights.find(name).name] if name else [one.name for one in weights.known()]
    states = drive(_states(values, names))
    wrong = [s for s in states if s.kind == "damaged" or (name and s.kind == "absent")]
    if json:
        print_json({"weights": [_plain(one) for one in states]})
    else:
        for one in states:
            hint = "" if one not in wrong else f"; errata model fetch {one.name}"
            show(f"{'✗' if one in wrong else '✓'} {one.name}: {one.kind}, {one.path}{hint}")
    return 1 if wrong else 0


async def _states(settings: Settings, names: list[str]) -> list[State]:
    from errata.models import weights

    return [await weights.check(one, settings.cache) for one in names]


def _plain(state: State) -> dict[str, Any]:
    plain = {"name": state.name, "path": str(state.path), "state": state.kind}
    return {**plain, "sha256": state.sha256}

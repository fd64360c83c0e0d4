"""`heedful model`: the weights of embedded models, fetched, listed and checked."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.app import group
from heedful.cli.output import Columns, Json, answer, print_json, print_table, show
from heedful.cli.progress import Progress, drive
from heedful.cli.settings import settings

app: typer.Typer = group("Fetch, list and check the weights of embedded models.")
Name = Annotated[str | None, typer.Argument(help="As in heedful model list. [the set model]")]
Cache = Annotated[Path | None, typer.Option("--cache", help="The folder for weights.")]


@app.command()
def fetch(
    name: Name = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="A file that holds the bytes already.")
    ] = None,
    cache: Cache = None,
    json: Json = False,
) -> int:
    """Fetch weights into the cache and verify their SHA-256. Weights in the cache stay."""
    from heedful.models import weights

    values = settings(cache=cache)
    one = weights.find(name) if name else weights.needed(values.model) or weights.find("embedded")
    with Progress() as watch:
        path = drive(
            weights.fetch(one, path=source, cache=values.cache, progress=watch.fetched),
            lambda: "interrupted; whole parts are kept, the same command continues",
        )
    answer({"name": one.name, "path": path}, f"{one.name}: {path}", json=json)
    return 0


@app.command("list")
def list_(cache: Cache = None, json: Json = False) -> int:
    """List the known weights, and the forms that the name of a model takes."""
    from heedful.models import FORMS, weights

    folder = settings(cache=cache).cache or weights.default_cache()
    found = [
        {
            "name": one.name,
            "is": one.about,
            "licence": one.licence,
            "bytes": one.size,
            "fetched": one.cached(folder).is_file(),
        }
        for one in weights.known()
    ]
    if json:
        print_json({"cache": folder, "weights": found, "models": FORMS})
        return 0
    columns: Columns = {
        "weights": "name",
        "is": "is",
        "licence": "licence",
        "MB": lambda one: f"{one['bytes'] / 1e6:.0f}",
        "state": lambda one: "fetched" if one["fetched"] else "-",
    }
    print_table(found, columns, text=3)
    show(f"cache: {folder}\nmodels are named: {', '.join(FORMS)}")
    return 0


@app.command()
def check(name: Name = None, cache: Cache = None, json: Json = False) -> int:
    """Hash fetched weights again; exits 1 if they are damaged, or named and absent."""
    from heedful.models import weights

    values = settings(cache=cache)
    chosen = [weights.find(name)] if name else weights.known()
    states = [drive(weights.check(one, values.cache)) for one in chosen]
    wrong = [one for one in states if one.kind == "damaged" or (name and one.kind == "absent")]
    if json:
        documents = map(asdict, states)
        print_json({"weights": [{"state": one.pop("kind"), **one} for one in documents]})
        return 1 if wrong else 0
    for one in states:
        hint = "" if one not in wrong else f"; heedful model fetch {one.name}"
        show(f"{'✗' if one in wrong else '✓'} {one.name}: {one.kind}, {one.path}{hint}")
    return 1 if wrong else 0

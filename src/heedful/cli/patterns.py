"""`heedful patterns`: which error patterns count as one, and taking that back."""

from __future__ import annotations

from typing import Annotated

import typer

from heedful.cli.app import PLAIN
from heedful.cli.opening import ask
from heedful.cli.output import MOST, Db, Json, counted, following, print_json, show
from heedful.loop.feedback import clean

app: typer.Typer = typer.Typer(add_completion=False, no_args_is_help=True, **PLAIN)

Digests = Annotated[list[str], typer.Argument(help="The digests of patterns, as listed.")]
By = Annotated[str, typer.Option(help="Who answers for it.")]
Why = Annotated[str, typer.Option(help="The reason.")]
WORDS = 200
SHOWN = 10


@app.callback()
def patterns() -> None:
    """Show which error patterns evidence has merged, and take a merge back."""


@app.command("list")
def listed(
    error_type: Annotated[str, typer.Argument(help="Only those of this type.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="How many, the most seen.")] = 50,
    db: Db = None,
    json: Json = False,
) -> int:
    """List the merged patterns and why they are one, then those that are kept apart."""
    found = ask(db, lambda memory: memory.patterns(error_type))[:limit]
    if json:
        print_json({"patterns": found})
        return 0
    for one in found:
        kept = ", kept apart" if one["apart"] else ""
        show(f"{clean(one['error_type'], WORDS)}: {clean(one['template'], WORDS)}{kept}")
        for why in one["why"]:
            show(f"  {clean(why, WORDS)}")
        for member in one["patterns"][:SHOWN]:
            seen = f"seen {member['seen']}"
            show(f"  {member['signature']}  {seen}  {clean(member['pattern'], WORDS)}")
        if len(one["patterns"]) > SHOWN:
            show(f"  and {counted(len(one['patterns']) - SHOWN, 'other')}; --json shows them")
    if found:
        do = "remerge" if found[0]["apart"] else "unmerge"
        digest = found[0]["patterns"][0]["signature"]
        show(following("patterns", do, digest, "--by", "NAME", db=db or ""))
    else:
        show("no patterns are merged, and none are kept apart")
    return 0


@app.command()
def unmerge(digests: Digests, by: By, why: Why = "", db: Db = None, json: Json = False) -> int:
    """Count patterns apart from all others from now on."""
    ask(db, lambda memory: memory.unmerge(*digests, by=by, why=why))
    return _ruled(digests, True, by, why, db, json)


@app.command()
def remerge(digests: Digests, by: By, why: Why = "", db: Db = None, json: Json = False) -> int:
    """Let patterns that were kept apart be merged by evidence again."""
    ask(db, lambda memory: memory.remerge(*digests, by=by, why=why))
    return _ruled(digests, False, by, why, db, json)


def _ruled(digests: list[str], apart: bool, by: str, why: str, db: str | None, json: bool) -> int:
    if json:
        print_json({"patterns": digests, "apart": apart, "by": by, "why": why})
        return 0
    how = "kept apart" if apart else "merged with others where evidence says so"
    show(f"{counted(len(digests), 'pattern')} from now on {how}")
    show(following("patterns", "list", db=db or ""))
    return 0


@app.command()
def suggest(
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="How many, the most alike.")] = 20,
    db: Db = None,
    json: Json = False,
) -> int:
    """List pairs of lessons that mean nearly the same; merges nothing. Needs an embedder."""
    found = ask(db, lambda memory: memory.suggest(limit))
    if json:
        print_json({"pairs": found})
        return 0
    for pair in found:
        show(f"cosine {pair['cosine']:.2f}, {clean(pair['lessons'][0]['error_type'], WORDS)}")
        for one in pair["lessons"]:
            show(f"  {one['id']}  seen {one['seen']}  {clean(one['text'], WORDS)}")
    show(following("lessons", db=db or "") if found else "no two lessons are that much alike")
    return 0

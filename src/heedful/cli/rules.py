"""`heedful rules`: the rules that a user gave agents, for one project or for all.

Hooks and `heedful learn-sessions` find them in what the user says. Those for all
projects are in the user's own memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

from typer import Argument, Context, Option, Typer

from heedful.cli.app import group_with_default
from heedful.cli.databases import db_exists
from heedful.cli.output import answer, columns, emit, following, when
from heedful.cli.resources import ask, ask_own, has_own_memory
from heedful.cli.settings import (
    MAX_OPTION_INTEGER,
    By,
    Why,
    is_stated,
    settings,
    where,
)
from heedful.cli.share import accept
from heedful.errors import NotFound
from heedful.lessons.lesson import Remembered
from heedful.lessons.stated_rule import RuleReach, StatedRule
from heedful.memory.memory import Memory
from heedful.sanitize import clean

T = TypeVar("T")
RuleId = Annotated[int, Argument(min=1, max=MAX_OPTION_INTEGER, help="The id.")]
Everywhere = Annotated[
    bool, Option("--everywhere", help="The rule is for all your projects.")
]
MAX_RULE_CELL_CHARS = 240


def _words_of(stated: StatedRule) -> str:
    """Return what a table says of a rule: its text, and whether it may be obsolete."""
    if stated.entry:
        return f"(waits in quarantine: {stated.release})"
    words = stated.text
    if stated.doubt and stated.in_force:
        words += f" ({stated.doubt})"
    return clean(words, MAX_RULE_CELL_CHARS)


def _state_of(stated: StatedRule) -> str:
    """Return the state of a rule in a word."""
    if stated.in_force:
        return "denies" if stated.denies else "in force"
    return stated.state


RULE_COLUMNS = columns(
    "rule for state last_said id said",
    rule=_words_of,
    state=_state_of,
    last_said=lambda stated: when(stated.last_said),
    said="seen",
    **{"for": "reach"},
)
rules: Typer = group_with_default()


def _ask_project(question: Callable[[Memory], Awaitable[T]], *, new: bool = False) -> T:
    """Ask the memory of this project: that of its hooks, unless there is another."""
    has_other = is_stated("db") or db_exists(settings().db)
    return ask(question, new=new, approved_only=not has_other)


@rules.callback(invoke_without_command=True)
def list_rules(context: Context) -> int:
    """List the rules that you gave agents, last said first.

    A rule that agents break without a word from you may be obsolete.
    """
    if context.invoked_subcommand is not None:
        return 0

    stated = list[StatedRule]()
    # A database that the user named may be misspelt; then this raises NotFound.
    try:
        stated += _ask_project(lambda memory: memory.user_rules.list())
    except NotFound:
        if is_stated("db", files=False):
            raise
    if has_own_memory():
        user_rules = ask_own(lambda memory: memory.user_rules.list())
        stated += [rule for rule in user_rules if rule.reach == "all"]

    then = ""
    doubtful = [rule for rule in stated if rule.doubt and rule.in_force]
    if doubtful:
        is_everywhere = doubtful[0].reach == "all"
        then = following(
            "rules", "retire", doubtful[0].id, everywhere=is_everywhere, by="NAME"
        )
    return emit(
        stated,
        RULE_COLUMNS,
        key="rules",
        text_columns=4,
        empty=f"no rule of yours in {where()}; say it to your agent, or heedful rules "
        "add TEXT --by NAME",
        then=then,
    )


@rules.command("add")
def add_rule(
    text: Annotated[str, Argument(help="The rule, as you would say it to an agent.")],
    by: By,
    everywhere: Everywhere = False,
) -> int:
    """State a rule for this project, or for all your projects.

    A rule that it contradicts is retired.
    """

    async def state(memory: Memory) -> Remembered:
        reach: RuleReach = "all" if everywhere else "project"
        return await memory.user_rules.state(text, by=by, reach=reach)

    remembered = (
        ask_own(state, new=True) if everywhere else _ask_project(state, new=True)
    )
    document = {"id": remembered.id, "seen": remembered.seen}
    return answer(document, f"rule {remembered.id} is in force", following("rules"))


@rules.command("deny")
def deny_calls(
    id: RuleId,
    by: By,
    off: Annotated[
        bool, Option("--off", help="Only remind of the rule again.")
    ] = False,
) -> int:
    """Let hooks deny each call that goes against a rule of this project."""

    async def deny(memory: Memory) -> StatedRule:
        return await memory.user_rules.deny(id, by=by, denies=not off)

    denied = _ask_project(deny)
    effect = "calls against it run" if off else "calls against it are denied"
    words = f"{effect}: {clean(denied.text, MAX_RULE_CELL_CHARS)}"
    document = {"id": id, "denies": denied.denies, "by": by}
    return answer(document, words, following("rules"))


@rules.command("retire")
def retire_rule(
    id: RuleId, by: By, why: Why = "", everywhere: Everywhere = False
) -> int:
    """Retire a rule: agents do not hear of it, until you say it again."""

    async def retire(memory: Memory) -> StatedRule:
        return await memory.user_rules.retire(id, by=by, why=why)

    retired = ask_own(retire) if everywhere else _ask_project(retire)
    words = f"retired: {clean(retired.text, MAX_RULE_CELL_CHARS)}"
    return answer({"retired": id, "by": by, "why": why}, words, following("rules"))


rules.command("accept")(accept)

"""What a run of an agent hears of the rules of its user.

They are shown when a session begins, is resumed or has lost its context, and once
before a call that they name. What the user says in a prompt is stored at once.
"""

from collections.abc import Sequence
from pathlib import Path

from heedful.lessons.scope import Scope, source_of
from heedful.lessons.user_rules import (
    MAX_SHOWN_RULES,
    RULES_HEADING,
    StatedRule,
    read_rules,
)
from heedful.memory.memory import Memory
from heedful.memory.user_rules import UserRules
from heedful.sanitize import delimit, delimiter, sanitize
from heedful.store import session_marks, user_rules as rule_store


def rules_text(rules: Sequence[StatedRule], heading: str = RULES_HEADING) -> str:
    """Return rules between random delimiters, after a heading; "" without rules."""
    lines = [f"- {stated.text}" for stated in rules[:MAX_SHOWN_RULES]]
    if not lines:
        return ""
    texts = {"rules": sanitize("\n".join(lines))}
    return "\n".join([heading, *delimit(delimiter("user", texts), texts)])


def stored_lines(rules: Sequence[StatedRule]) -> list[str]:
    """Return what a person reads when rules are stored, with what removes each."""
    lines = []
    for stated in rules:
        lines.append(
            f"heedful keeps your rule “{sanitize(stated.text)}” ({stated.told}); "
            f"remove it: heedful rules retire {stated.id} --by NAME"
        )
        lines += [f"It ends your rule “{sanitize(text)}”." for text in stated.ended]
    return lines


async def hear_rules(memory: Memory, session: str, message: str) -> list[str]:
    """Store the rules in a message of the user; return what he reads about them."""
    if not read_rules(message):
        return []
    source = source_of(session)
    return stored_lines(await UserRules(memory).hear(message, source=source))


async def rules_everywhere(memory: Memory, everywhere: str) -> Sequence[StatedRule]:
    """Return the rules for all projects of the user; `everywhere` is their database."""
    own_memory = _own_memory(everywhere, memory.scope)
    return await UserRules(own_memory).in_force() if own_memory else ()


def _own_memory(everywhere: str, scope: Scope) -> Memory | None:
    """Return the user's own memory, None if it does not exist."""
    if not everywhere or not Path(everywhere).exists():
        return None
    return Memory(everywhere, Scope(scope.tenant))


async def rules_of_session(
    memory: Memory, session: str, everywhere: str = "", again: bool = True
) -> Sequence[StatedRule]:
    """Return the rules that hold in a session, and remember that it was shown them.

    Unless `again`, a session that was shown them gets none.
    """
    store = memory.store
    scope = memory.scope
    marks_to_set = {rule_store.SHOWN_MARK}
    marks = await store.read(scope, session_marks.find, session, marks_to_set)
    if marks and not again:
        return ()
    others = await rules_everywhere(memory, everywhere)
    rules = [*await store.read(scope, rule_store.in_force), *others]
    rules = list({stated.digest: stated for stated in rules}.values())
    await store.write(
        scope,
        rule_store.tell,
        session,
        rules=rules[:MAX_SHOWN_RULES],
        marks=marks_to_set,
    )
    return rules

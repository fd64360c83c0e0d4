"""The rules of the user that a session of an agent hears, and that he states there.

A session hears them when it begins, is resumed or has lost its context. Those in the
user's own memory hold in all projects.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.lessons.scope import Scope, source_of
from heedful.lessons.user_rules import StatedRule, read_rules, stored_lines
from heedful.memory.call_memory import CallMemory
from heedful.store import open_store, session_marks, user_rules as rule_store
from heedful.validation import MAX_SHOWN_ITEMS

if TYPE_CHECKING:  # a hook of a call hears no rules
    from heedful.memory.memory import Memory


async def hear_rules(memory: "Memory", session: str, message: str) -> list[str]:
    """Store the rules in a message of the user; return what he reads about them."""
    if not read_rules(message):
        return []
    rules = await memory.user_rules.hear(message, source=source_of(session))
    return stored_lines(rules)


async def rules_everywhere(memory: CallMemory, everywhere: str) -> Sequence[StatedRule]:
    """Return the rules for all projects of the user; `everywhere` is their database."""
    if not everywhere or not _is_made(everywhere):
        return ()
    return await open_store(everywhere).read(
        Scope(memory.scope.tenant), rule_store.in_force
    )


def _is_made(database: str) -> bool:
    """Return whether a database has its file."""
    return Path(database).exists()


async def rules_of_session(
    memory: CallMemory, session: str, everywhere: str = "", again: bool = True
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
        rules=rules[:MAX_SHOWN_ITEMS],
        marks=marks_to_set,
    )
    return rules

"""What a run of an agent hears of the rules of its user.

They are shown when a session begins, is resumed or has lost its context, and a call
that goes against one is told so, once a session. What the user says in a session holds
in it at once, and is stored as a rule when the session is studied.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from heedful.lessons.action import command_of
from heedful.lessons.preconditions import arguments_of
from heedful.lessons.scope import Scope
from heedful.lessons.stated_rule import (
    BREACH_HEADING,
    MAX_SHOWN_RULES,
    RULES_HEADING,
    StatedRule,
    rule_lines,
)
from heedful.memory.memory import Memory
from heedful.sanitize import delimit, delimiter, sanitize
from heedful.store import user_rules as rule_store
from heedful.store.projects import prepare_database

if TYPE_CHECKING:
    from heedful.lessons.call_limits import CallLimit


def rules_text(rules: Sequence[StatedRule], heading: str = RULES_HEADING) -> str:
    """Return rules between random delimiters, after a heading; "" without rules."""
    lines = rule_lines(rules[:MAX_SHOWN_RULES])
    if not lines:
        return ""
    texts = {"rules": sanitize("\n".join(lines))}
    return "\n".join([heading, *delimit(delimiter("user", texts), texts)])


def breach_text(rules: Sequence[StatedRule]) -> str:
    """Return the words for the rules that a call goes against; "" without rules."""
    return rules_text(rules, BREACH_HEADING)


async def rules_of_session(
    memory: Memory, session: str, everywhere: str = "", again: bool = True
) -> Sequence[StatedRule]:
    """Return the rules that hold in a session, and remember that it was shown them.

    `everywhere` is the database with the rules for all projects of the user, if it is
    another one. Unless `again`, a session that was shown them gets none.
    """
    store = memory.store
    scope = memory.scope
    if not again and await store.read(scope, rule_store.is_shown, session):
        return ()

    texts = list[str]()
    user_memory = _user_memory(everywhere, scope)
    if user_memory is not None:
        user_rules = await user_memory.user_rules.in_force()
        texts = [stated.text for stated in user_rules if stated.reach == "all"]
    await store.write(scope, rule_store.carry, session, texts)
    return await store.read(scope, rule_store.of_session, session)


async def count_broken_rules(
    memory: Memory,
    session: str,
    events: Sequence[Mapping[str, Any]],
    *,
    everywhere: str = "",
    folder: str = "",
) -> None:
    """Count the calls of a session against rules, about which the user said nothing.

    Only calls that worked after the rule was said count.
    """
    rules = await memory.store.read(memory.scope, rule_store.of_session, session)
    counts = Counter(_broken_rules(events, rules, folder)) if rules else {}
    if not counts:
        return
    await memory.store.write(memory.scope, rule_store.count_broken, counts)
    user_memory = _user_memory(everywhere, memory.scope)
    if user_memory is not None:
        store = user_memory.store
        await store.write(user_memory.scope, rule_store.count_broken, counts)


async def find_unfit(
    memory: Memory, session: str, texts: Mapping[int, str]
) -> frozenset[int]:
    """Return the lessons that a session knows, or that go against a rule.

    `texts` are those of lessons, by their ids.
    """
    if not texts:
        return frozenset()
    return await memory.store.read(
        memory.scope, rule_store.unfit_lessons, session, texts
    )


def _user_memory(everywhere: str, scope: Scope) -> Memory | None:
    """Return the user's own memory, None if it does not exist."""
    if not everywhere or not os.path.exists(everywhere):
        return None
    return Memory(everywhere, Scope(scope.tenant))


def _broken_rules(
    events: Sequence[Mapping[str, Any]], rules: Sequence[StatedRule], folder: str
) -> Iterator[str]:
    """Yield the digest of a rule for each call against it that nobody minded."""
    from heedful.lessons.call_limits import limits_of

    worked = {
        (event["agent"], event["call"])
        for event in events
        if event["type"] == "tool_response" and event["call"] and not event["error"]
    }
    for stated in rules:
        limits = limits_of(stated.text)
        earlier = list[str]()
        for position, event in enumerate(events if limits else ()):
            if event["type"] != "tool_call":
                continue
            fields = arguments_of(event["arguments"] or {})
            has_worked = (event["agent"], event["call"]) in worked
            if has_worked and event["at"] > stated.last_said:
                later = events[position:]
                broken = [
                    limit
                    for limit in limits
                    if limit.breaks(event["tool"], fields, earlier, folder)
                ]
                if broken and not any(_is_minded(limit, later) for limit in broken):
                    yield stated.digest
            earlier.append(command_of(fields))


def _is_minded(limit: CallLimit, events: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if the user speaks of what is limited in these events."""
    messages = [e["content"] for e in events if e["type"] == "user_message"]
    return any(limit.is_named_in(message) for message in messages)


async def move_rules(memory: Memory, everywhere: str) -> None:
    """Move the rules for all projects to the user's own memory."""
    rules = await memory.user_rules.in_force()
    if any(stated.reach == "all" for stated in rules):
        db = prepare_database(everywhere)
        await memory.user_rules.move_to(Memory(db, Scope(memory.scope.tenant)))

"""The section of AGENTS.md for agents without hooks: rules, and what came back most."""

from collections.abc import Sequence

from heedful.integrations.opening import MAX_OPENING_LINES, opening_text
from heedful.lessons.user_rules import StatedRule
from heedful.memory.memory import Memory
from heedful.memory.user_rules import UserRules
from heedful.store import briefs, shared

SECTION_HEADING = "## What earlier sessions taught"
SECTION_NOTE = (
    "`heedful hook install agents-md` keeps this section up to date. These are facts "
    "to weigh, and rules of the user."
)
NOTHING_KNOWN = "Nothing is known yet."
EMPTY_SECTION = f"{SECTION_HEADING}\n\n{SECTION_NOTE}\n\n{NOTHING_KNOWN}"


async def section_text(memory: Memory, everywhere: Sequence[StatedRule] = ()) -> str:
    """Return the section: the rules of people, and the lines of the brief.

    `everywhere` are the rules of the user for all projects. It has only what is
    trusted, and at most ten lines, because an agent reads them in each session.
    """
    read = memory.store.read
    scope = memory.scope
    stated = [*await UserRules(memory).in_force(), *everywhere]
    followed = await read(scope, shared.opening, MAX_OPENING_LINES)
    lines = await read(scope, briefs.read_brief)

    rules = dict.fromkeys([*(rule.text for rule in stated), *followed.values()])
    learnt = [str(line) for line in lines]
    # A comment of Markdown could end the section.
    text = opening_text(list(rules), learnt).replace("<!--", "").replace("-->", "")
    return f"{SECTION_HEADING}\n\n{SECTION_NOTE}\n\n{text or NOTHING_KNOWN}"

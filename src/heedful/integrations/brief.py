"""What costs sessions most, told at their start or in AGENTS.md: rules of people first.

Agents without hooks read the section of AGENTS.md.
"""

from collections.abc import Mapping, Sequence

from heedful.lessons.user_rules import StatedRule
from heedful.memory.memory import Memory
from heedful.sanitize import clean, sanitize
from heedful.store import briefs
from heedful.store.briefs import BriefLine

MAX_OPENING_LINES = 10
# However many rules there are, so many lines tell what cost earlier sessions calls.
MIN_LEARNT_LINES = 3
SECTION_HEADING = "## What earlier sessions taught"
SECTION_NOTE = (
    "`heedful hook install agents-md` keeps this section up to date. These are facts "
    "to weigh, and rules of the user."
)
NOTHING_KNOWN = "Nothing is known yet."
EMPTY_SECTION = f"{SECTION_HEADING}\n\n{SECTION_NOTE}\n\n{NOTHING_KNOWN}"


async def read_team_rules(memory: Memory) -> Mapping[int, str]:
    """Return the rules of the team's file that the user accepted, by lesson."""
    return await memory.store.read(memory.scope, briefs.team_rules, MAX_OPENING_LINES)


async def read_failures(memory: Memory) -> Sequence[BriefLine]:
    """Return what cost earlier sessions most calls."""
    return await memory.store.read(memory.scope, briefs.read_brief)


def brief_text(rules: Sequence[str], learnt: Sequence[str]) -> str:
    """Return the lines of a brief, at most ten; "" if there is nothing to tell.

    `rules` are texts that people wrote or reviewed, and `learnt` are lines.
    """
    rules = list(dict.fromkeys(rules))
    room = MAX_OPENING_LINES - min(len(learnt), MIN_LEARNT_LINES)
    lines = [f"- Rule: {clean(sanitize(rule), most=300)}" for rule in rules[:room]]
    lines += [sanitize(line) for line in learnt[: MAX_OPENING_LINES - len(lines)]]
    return "\n".join(lines)


async def section_text(memory: Memory, everywhere: Sequence[StatedRule] = ()) -> str:
    """Return the section: the rules of people, and the lines of the brief.

    `everywhere` are the rules of the user for all projects. It has only what is
    trusted, and at most ten lines, because an agent reads them in each session.
    """
    stated = [*await memory.user_rules.in_force(), *everywhere]
    rules = [rule.text for rule in stated]
    rules += (await read_team_rules(memory)).values()
    learnt = list(map(str, await read_failures(memory)))
    # A comment of Markdown could end the section.
    text = brief_text(rules, learnt).replace("<!--", "").replace("-->", "")
    return f"{SECTION_HEADING}\n\n{SECTION_NOTE}\n\n{text or NOTHING_KNOWN}"

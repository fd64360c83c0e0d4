"""The lessons in use that no loop was shown, each with the reason.

The reason is what memory recorded when it considered the lesson for the newest loops.
If it has recorded none, it is what memory says now for a task of the lesson.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from copy import copy

from heedful.lessons.briefing import Briefing, Choice
from heedful.lessons.lesson import Scope
from heedful.pages.report import counted, text
from heedful.store.connection import Db, bulk
from heedful.web import figures
from heedful.web.site import Document, Visit

NEVER = "never"  # the value of the filter `shown`
# The newest loops whose records are read, and the characters of the record of each.
MAX_READ_BRIEFINGS = 200
MAX_BRIEFING_CHARS = 20_000
MAX_ASKED_LESSONS = 5  # in a list; a search of the memory for each
MAX_SOUGHT_TASK_CHARS = 1_000  # of a task for which memory is asked
USED_STATES = ("unverified", "verified")


async def find_reasons(visit: Visit, lessons: Sequence[Document]) -> dict[int, str]:
    """Return why those of the lessons that are in use were never shown, by lesson."""
    unshown = [
        lesson
        for lesson in lessons
        if not lesson["last_shown"] and lesson["state"] in USED_STATES
    ]
    if not unshown:
        return {}

    ids = [lesson["id"] for lesson in unshown]
    reasons, looked_at = await visit.caller.read(read_reasons, ids)
    none = "no loop has asked memory yet"
    if looked_at:
        none = f"considered for none of the newest {counted(looked_at, 'loop')}"
    silent = [id for id in ids if not reasons[id]]
    for number, id in enumerate(silent):
        now = ""
        if number < MAX_ASKED_LESSONS:
            now = await _ask_memory(visit, id)
        reasons[id] = now or none
    return reasons


async def _ask_memory(visit: Visit, id: int) -> str:
    """Return what keeps a lesson from the newest loop that had its error, now.

    Returns "" if no such loop has its task, and if memory does not find the lesson.
    """
    loops = await visit.caller.read(
        figures.rows,
        "loops_of",
        id=id,
        limit=1,
        chars=MAX_SOUGHT_TASK_CHARS,
    )
    for loop in loops:
        if loop["task"] is None:
            continue
        task, _ = figures.beginning(loop["task"], loop["task_chars"])
        choice = await find_choice(visit, id, text(task), loop["memory_key"])
        if choice is None or not choice.obstacle:
            continue
        if choice.leg == "cause":
            return f"under its memory key {choice.obstacle}"
        return choice.obstacle
    return ""


async def find_choice(visit: Visit, id: int, task: str, key: str) -> Choice | None:
    """Return what memory decides now about a lesson for a task, None if nothing."""
    # The service keeps one memory for each scope, which stays as it is.
    memory = copy(visit.caller.memory)
    memory.holdout = 0.0
    briefing = await memory.brief(task, "", memory_key=key, every=True)
    for choice in briefing.choices:
        if choice.lesson == id:
            return choice
    return None


@bulk
def read_reasons(
    db: Db, scope: Scope, ids: Collection[int]
) -> tuple[dict[int, str], int]:
    """Return why loops were not shown the lessons with these ids, by lesson.

    That is the most frequent reason, with the number of loops that had it, "" if none
    was recorded. The loops are the newest ones with a record of what memory decided;
    the second value is how many they are.
    """
    briefing_rows = figures.rows(
        db,
        scope,
        "newest_briefings",
        limit=MAX_READ_BRIEFINGS,
        chars=MAX_BRIEFING_CHARS,
    )
    obstacles: dict[int, Counter[str]] = {id: Counter() for id in ids}
    for row in briefing_rows:
        briefing = Briefing.of(json.loads(row["briefing"]))
        for choice in briefing.choices:
            if choice.lesson in obstacles and choice.obstacle:
                obstacles[choice.lesson][choice.obstacle] += 1

    looked_at = len(briefing_rows)
    newest = counted(looked_at, "loop")
    reasons = dict.fromkeys(ids, "")
    for id, counts in obstacles.items():
        for obstacle, number in counts.most_common(1):
            reasons[id] = f"{obstacle} (in {number} of the newest {newest})"
    return reasons, looked_at

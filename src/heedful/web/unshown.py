"""The lessons in use that no loop was shown, each with the reason.

The reason is what memory recorded when it considered the lesson for the newest loops.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection

from heedful.lessons.briefing import Briefing
from heedful.lessons.lesson import Scope
from heedful.pages.report import counted
from heedful.store.connection import Db, bulk
from heedful.web import figures

NEVER = "never"  # the value of the filter `shown`
# The newest loops whose records are read, and the characters of the record of each.
MAX_READ_BRIEFINGS = 200
MAX_BRIEFING_CHARS = 20_000


@bulk
def read_reasons(db: Db, scope: Scope, ids: Collection[int]) -> dict[int, str]:
    """Return why loops were not shown the lessons with these ids, by lesson.

    That is the most frequent reason, with the number of loops that had it. The loops
    are the newest ones with a record of what memory decided.
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

    looked_at = counted(len(briefing_rows), "loop")
    reasons = {}
    for id, counts in obstacles.items():
        reasons[id] = f"memory considered it for none of the newest {looked_at}"
        if counts:
            ((obstacle, number),) = counts.most_common(1)
            reasons[id] = f"{obstacle} ({number} of the newest {looked_at})"
    return reasons

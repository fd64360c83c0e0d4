"""What a list shows of loops: each with its task, and where a search found it."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from heedful.lessons.scope import Scope
from heedful.loop.record import DOUBT_STATES
from heedful.pages.run_report import text as plain_text
from heedful.store.connection import Db, bulk
from heedful.store.recent import RecentLoop
from heedful.validation import MAX_STORED_TEXT_CHARS, Document
from heedful_server.web import counts
from heedful_server.web.loop_texts import find_folded, read_parts
from heedful_server.web.page_templates import excerpt

MAX_FOUND_CHARS = 90  # with what was found; one line of a list shows it


@bulk
def summaries(db: Db, scope: Scope, loops: Sequence[RecentLoop]) -> list[Document]:
    """Return what a list shows of loops, in their order.

    `finding` says why a loop has not passed: the finding of its last attempt, or why it
    stopped. `first_finding` is its first error, which a retry may have fixed. `rung` is
    the rung whose answer passed. `left_out` has the number of characters of the task
    that are not in `task`.
    """
    numbers = json.dumps([loop.n for loop in loops])
    heads = counts.rows(
        db, scope, "summaries", numbers=numbers, chars=MAX_STORED_TEXT_CHARS
    )
    head_of = {row["n"]: row for row in heads}
    rows = []
    for loop in loops:
        head = head_of.get(loop.n)
        if head is None:
            continue
        task, left_out = counts.beginning(head["task"], head.pop("task_chars"))
        ladder = head.pop("ladder")
        passed = loop.state == "passed"
        row = {
            **head,
            "task": task,
            "state": loop.state,
            "doubtful": loop.state in DOUBT_STATES,
            "memory_key": loop.memory_key,
            "attempts": loop.attempts,
            "finding": "" if passed else loop.why,
            "first_finding": loop.first_error.message if loop.first_error else "",
            "rung": counts.rung_name(ladder, loop.rung) if passed else "",
            **asdict(loop.usage),
            "tokens": loop.usage.tokens,
            "created": loop.created,
            "updated": loop.updated,
            "left_out": {"task": left_out},
        }
        rows.append(row)
    return rows


def found_words(
    db: Db, scope: Scope, summaries: Sequence[Document], text: str
) -> dict[int, Document]:
    """Return where loops have a searched text that the list does not show in the task.

    The result maps the number of a loop to `found_in`, which names the task, an answer
    or a finding, and to `found`, the words around the text. A loop that has the text
    only in its id is left out.
    """
    hidden = [
        loop["n"]
        for loop in summaries
        if not find_folded(plain_text(loop["task"])[:160], text)
    ]
    snippets = dict[int, Document]()
    for loop in read_parts(db, scope, hidden):
        for part in loop.parts:
            words = " ".join(" · ".join(part.texts).split())
            if find_folded(words, text):
                found = excerpt(words, text, MAX_FOUND_CHARS)
                snippets[loop.loop] = {"found": found, "found_in": part.kind}
                break
    return snippets

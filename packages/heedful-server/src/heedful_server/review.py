"""Decide what a caller may see of lessons that nobody has reviewed.

Tools, documents and other callers choose not only the text of a lesson but also the
type of its error, its source and its tags. While the lesson waits in quarantine, and
after it was rejected, these fields are shown only to a key with the permission `read`,
which can look into quarantine. For other keys they are empty, and no filter finds the
lesson by them. What a loop was once shown may wait today, so other keys see no words of
it either. All that answers with lessons asks here: routes, pages and MCP. So does all
that decides about what waits.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from heedful.store.records import StoredLoop
from heedful.validation import Fields
from heedful_server.auth import Caller

Ruling = Literal["release", "reject", "undo"]
# What the author of a lesson chose, with the value that stands for it.
UNREVIEWED_VALUES: Fields = {
    "error_type": "",
    "data": {},
    "mistake": None,
    "pattern": "",
    "run": None,
    "source": "",
    "tags": [],
    "text": "",
}


def may_review(caller: Caller) -> bool:
    """Return whether a caller may see the words of others before a review."""
    return "read" in caller.key.may


def visible(caller: Caller, lesson: Fields) -> Fields:
    """Return a lesson as plain data, without what this caller may not see."""
    is_unreviewed = lesson["state"] == "quarantined" or (
        lesson["trust"] == "outside" and not lesson["released_by"]
    )
    if may_review(caller) or not is_unreviewed:
        return lesson
    hidden = {
        name: value for name, value in UNREVIEWED_VALUES.items() if name in lesson
    }
    return {**lesson, **hidden}


def visible_loop(caller: Caller, stored_loop: StoredLoop) -> StoredLoop:
    """Return a loop without what memory showed it, if this caller may not see that."""
    if may_review(caller) or stored_loop.briefing is None:
        return stored_loop
    return replace(stored_loop, briefing=stored_loop.briefing.without_words())


async def decide(
    caller: Caller,
    ruling: Ruling,
    ids: Sequence[int],
    why: str,
) -> None:
    """Release texts, reject them, or take back a decision.

    The audit records it, and a job embeds released texts. Raises NotQuarantined,
    NotFound, InvalidInput.
    """
    caller.record(f"quarantine.{ruling}", ", ".join(map(str, ids)), why=why)
    quarantine = caller.memory.quarantine
    rulings = {
        "release": quarantine.release,
        "reject": quarantine.reject,
        "undo": quarantine.undo,
    }
    await rulings[ruling](ids, by=caller.by, why=why)
    if ruling == "release":
        await caller.setup.embed_soon(caller.scope, since="")

"""Store the answers that persons accept for loops that did not pass."""

import time
from collections.abc import Sequence

from heedful.lessons.lesson import Lesson, Remembered, digest_of
from heedful.lessons.scope import Scope
from heedful.store import lessons as lesson_store, loop_notes
from heedful.store.connection import CONFLICT_SKIP_SQL, Db, key_of, resumable


@resumable(result=list[Remembered])
def add(
    db: Db,
    scope: Scope,
    id: str,
    lessons: Sequence[Lesson],
    *,
    answer: str,
    by: str,
    why: str,
    most: int = 0,
    quota: int | None = None,
) -> list[Remembered]:
    """Store what an accepted `answer` teaches, with a note on its loop.

    The same answer for the same loop is stored once: then nothing is returned. `most`
    and `quota` are as in `exposures.remember`. Raises NotFound, InvalidInput.
    """
    row = {**key_of(scope), "loop": f"{id} corrected {digest_of('answer', answer)}"}
    if not db.insert_now("taught", row, CONFLICT_SKIP_SQL).rowcount:
        return []

    note = f"Accepted answer: {answer}"
    if why:
        note = f"Accepted answer ({why}): {answer}"
    loop_notes.add(db, scope, id, text=note[: loop_notes.MAX_LOOP_NOTE_CHARS], by=by)
    answers = lesson_store.upsert(
        db, scope, lessons=lessons, now=time.time(), quota=quota, most=most
    )
    for remembered in answers:
        # The loop was counted when it ended.
        sightings = {"lesson_id": remembered.id, "loop": id}
        if len(db.select("1", "occurrence", sightings)) > 1:
            counted_once = {"seen": remembered.seen - 1}
            db.update("lesson", {"id": remembered.id}, counted_once)
    return answers

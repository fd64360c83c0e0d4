"""What persons wrote about a loop: notes with their author, which stay as they are."""

import json
import time
from dataclasses import dataclass

from heedful.errors import InvalidInput, NotFound
from heedful.lessons.scope import Scope
from heedful.store.connection import Db, key_of, resumable, storable
from heedful.validation import MAX_STORED_TEXT_CHARS

MAX_LOOP_NOTES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopNote:
    """A note of a person about a loop, and when it was written, in Unix time."""

    text: str
    by: str
    at: float


@resumable(result=LoopNote, counts=True)
def add(db: Db, scope: Scope, id: str, text: str, by: str) -> LoopNote:
    """Add a note of a person to a loop; return it as it is stored.

    `id` is that of the loop, and `by` names the author. Secrets in both texts are
    removed. Raises NotFound without such a loop, and InvalidInput for an empty or long
    text and for a loop with `MAX_LOOP_NOTES` notes.
    """
    words = text.strip()
    if not words or len(words) > MAX_STORED_TEXT_CHARS:
        allowed = f"a note of 1 to {MAX_STORED_TEXT_CHARS:,} characters"
        raise InvalidInput("text", text, allowed)

    if not db.select("n", "loop", {**key_of(scope), "id": id}):
        raise NotFound("loop", id, db.url)
    notes = db.all("loop_notes", scope, id=id)
    # The key of a note ends with its number, as in "on LOOP/007".
    last = max([int(row["key"].rpartition("/")[2]) for row in notes], default=0)
    if last >= MAX_LOOP_NOTES:
        allowed = f"at most {MAX_LOOP_NOTES} notes on a loop"
        raise InvalidInput("text", text, allowed)

    note = LoopNote(text=storable(words), by=storable(by), at=time.time())
    values = {
        **key_of(scope),
        "name": "",
        "key": f"on {id}/{last + 1:03}",
        "loop": id,
        "record": json.dumps({"text": note.text, "by": note.by}),
        "created": note.at,
    }
    db.insert("note", values)
    return note


def notes_of(db: Db, scope: Scope, id: str) -> list[LoopNote]:
    """Return the notes on a loop, oldest first."""
    return [
        LoopNote(**json.loads(row["record"]), at=row["at"])
        for row in db.all("loop_notes", scope, id=id)
    ]

"""The author of a lesson: the example whose words it shows, or the best other one."""

import json

from heedful.lessons.origin import ORIGINS
from heedful.store.connection import Db, Row
from heedful.validation import Document


def read_author(db: Db, values: Document) -> Row:
    """Return the row of the lesson `lesson_id`.

    Its `author` is the example whose text the lesson shows, and `spoken_for` is true if
    this example still exists.
    """
    return db.select(
        "*, exists (select 1 from example where id = author) as spoken_for",
        "lesson",
        {"id": values["lesson_id"]},
    )[0]


def best_example(db: Db, values: Document) -> int | None:
    """Return the id of the lesson's most trusted example, None if it has no example.

    A retired example is returned only if all are retired.
    """
    row = db.first("best_example", {**values, "order": json.dumps(ORIGINS)})
    return None if row is None else int(row["id"])


def bring_back(db: Db, values: Document, example: int | None, lesson: Row) -> None:
    """Give a lesson the text, trust and state of an example.

    A retired or superseded lesson keeps its state, unless nobody has reviewed its text.
    """
    kept_state = ""
    is_ended = lesson["state"] in ("retired", "superseded")
    if is_ended and not lesson["unreviewed"]:
        kept_state = lesson["state"]
    values = {**values, "example": example, "kept": kept_state}
    db.send("bring_back", values)
    db.send("set_voice", values)

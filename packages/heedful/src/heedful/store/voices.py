"""The author of a lesson: the example whose words it shows, or the best other one."""

import json

from heedful.lessons.origin import ORIGINS
from heedful.store.connection import Db, Row
from heedful.validation import Document


def read_author(db: Db, values: Document) -> Row:
    """Return the row of the lesson whose id is the `lesson_id` in `values`.

    Its `author` is the id of the example whose text the lesson shows. An additional
    column, `spoken_for`, is true if this example still exists.
    """
    return db.select(
        "*, exists (select 1 from example where id = author) as spoken_for",
        "lesson",
        {"id": values["lesson_id"]},
    )[0]


def best_example(db: Db, values: Document) -> int | None:
    """Return the id of the most trusted example of a lesson, None if it has none.

    `values` holds the `lesson_id`. Of equally trusted examples, the oldest is returned,
    and a retired one only if all are retired.
    """
    row = db.first("best_example", {**values, "order": json.dumps(ORIGINS)})
    return None if row is None else int(row["id"])


def bring_back(db: Db, values: Document, example: int | None, lesson: Row) -> None:
    """Give a lesson the text, trust and state of an `example`, which is its id.

    `lesson` is the row of the lesson, and `values` holds its `lesson_id` and the time
    `now`. A retired or superseded lesson keeps its state, unless nobody has reviewed
    its text. A superseded example is in use again, or in quarantine if it is
    unreviewed.
    """
    kept_state = ""  # the lesson gets the state of the example
    is_ended = lesson["state"] in ("retired", "superseded")
    if is_ended and not lesson["unreviewed"]:
        kept_state = lesson["state"]
    values = {**values, "example": example, "kept": kept_state}
    db.send("bring_back", values)
    db.send("set_voice", values)

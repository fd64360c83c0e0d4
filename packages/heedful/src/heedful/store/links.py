"""The words of lessons in use, from which their links are read.

Links are not stored. Only trusted texts are read: the text of a tool or a document, or
one that waits in quarantine, links no lessons.
"""

from heedful.lessons.lesson import Scope
from heedful.lessons.links import MAX_LINKED_LESSONS, LessonWords
from heedful.lessons.mistake import from_json, without_outside
from heedful.store.connection import Db, bulk


@bulk
def read_words(db: Db, scope: Scope) -> tuple[LessonWords, ...]:
    """Return the words of the newest lessons in use, newest first.

    Lessons whose words name the same tool, file or error are linked. Of a text or an
    error, the first 2,000 characters are read; of a mistake, no words from outside.
    """
    lessons = []
    limit = MAX_LINKED_LESSONS
    for row in db.all("newest_linked", scope, chars=2_000, limit=limit):
        mistake = from_json(row["mistake"])
        words = LessonWords(
            id=row["id"],
            text=row["text"],
            error=row["error"] or "",
            mistake=mistake and without_outside(mistake),
        )
        lessons.append(words)
    return tuple(lessons)

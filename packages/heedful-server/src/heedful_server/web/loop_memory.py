"""What memory did for a loop before its first attempt, in words."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from heedful.display import counted
from heedful.lessons.scope import lesson_name
from heedful.store.connection import token
from heedful.validation import MAX_LISTED_ITEMS, Document, Fields
from heedful_server import review
from heedful_server.web import counts
from heedful_server.web.site import Visit


async def name_choices(
    visit: Visit, choices: Sequence[Document], began: float
) -> list[Document]:
    """Return what memory decided for a loop, each choice with the words of its lesson.

    The `words` are those that the loop was shown when it `began`, "" if they are gone,
    and `reworded` says that a person has changed them since. The `name` is that of the
    lesson.
    """
    ids = sorted({choice["lesson"] for choice in choices})
    rows = await visit.caller.read(counts.present_lessons, ids)
    lessons: Mapping[int, Fields] = {
        row["id"]: review.visible(visit.caller, row) for row in rows
    }
    edits = await visit.rows(
        "words_at",
        token=token(visit.caller.scope),
        ids=json.dumps(ids),
        at=began,
    )
    # The oldest edit after the loop began replaced the words of that time.
    earlier_words = {row["id"]: row["text"] or "" for row in reversed(edits)}
    if not review.may_review(visit.caller):
        earlier_words = dict.fromkeys(earlier_words, "")

    words_of_choices = []
    for choice in choices:
        id = choice["lesson"]
        lesson = lessons.get(id, {"text": "", "kind": "", "signature": ""})
        present_words = lesson["text"]
        shown_words = choice["text"] or earlier_words.get(id, present_words)
        name = lesson_name(lesson["kind"], lesson["signature"])
        is_reworded = id in earlier_words and earlier_words[id] != present_words
        words_of_choices.append(
            {**choice, "words": shown_words, "name": name, "reworded": is_reworded}
        )
    return words_of_choices


def describe_memory(choices: Sequence[Document], broken: Counter[str]) -> str:
    """Return which lessons a loop was shown, which were withheld, and which it broke.

    `broken` maps the name of a lesson to the number of attempts that made its error. A
    lesson that the loop broke and was not shown is named with the reason.
    """
    sentences = []
    begins = {"told": "It was shown", "withheld": "Known, but withheld at random:"}
    for outcome, begin in begins.items():
        of_outcome = [choice for choice in choices if choice["outcome"] == outcome]
        if of_outcome:
            sentences.append(f"{begin} {_texts(of_outcome)}.")
    came_again = {
        choice["lesson"]
        for choice in choices
        if choice["outcome"] == "told" and broken[choice["name"]]
    }
    sentences += [
        f"The error of lesson {lesson} came again." for lesson in sorted(came_again)
    ]
    missed = [
        f"It was not shown lesson {choice['lesson']}: {choice['reason']}."
        for choice in choices
        if choice["outcome"] == "missed" and broken[choice["name"]]
    ]
    return " ".join([*sentences, *missed[:MAX_LISTED_ITEMS]])


def _texts(choices: Sequence[Document]) -> str:
    """Return how many rules and examples these are, and of which lessons if few."""
    counts = Counter[str]()
    for choice in choices:
        counts[choice["form"]] += choice["n"]
    texts = " and ".join(counted(number, form) for form, number in counts.items())
    lessons = list(dict.fromkeys(choice["lesson"] for choice in choices))
    if not all(lessons) or len(lessons) > MAX_LISTED_ITEMS:
        return f"{texts} of memory"
    *earlier, last = map(str, lessons)
    names = " and ".join(filter(None, (", ".join(earlier), last)))
    noun = "lesson" if len(lessons) == 1 else "lessons"
    return f"{texts} of {noun} {names}"

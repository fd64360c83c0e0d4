"""The page of a lesson: its words, whether they help, where they were learnt."""

from collections.abc import Mapping

from heedful.display import counted
from heedful.errors import InvalidInput
from heedful.lessons.quarantine import QuarantinedLesson
from heedful.lessons.scope import lesson_name
from heedful.memory import quarantine
from heedful.store import lessons as lesson_store
from heedful.store.connection import token
from heedful.validation import MAX_STORED_TEXT_CHARS, Document
from heedful.wire import lesson_from_wire
from heedful_server import review
from heedful_server.web import counts
from heedful_server.web.memory_pages import NEVER_SHOWN, NOT_SHOWN_SINCE, measure
from heedful_server.web.site import Visit

UNSHOWN_STATES: Mapping[str, str] = {
    "quarantined": "it waits for a review",
    "retired": "it is retired",
    "superseded": "another lesson has replaced it",
}


async def lesson(visit: Visit, n: int) -> Document:
    """Show a lesson: whether it helps, where it was learnt, and what changed it."""
    record = lesson_from_wire(await visit.get(f"/v1/reflections/{n}"))
    name = lesson_name(record["kind"], record["signature"])
    # The parameters of the statements of this page; each uses some of them.
    parameters = {
        "id": n,
        "token": token(visit.caller.scope),
        "name": name,
        "digest": record["signature"],
        "limit": 20,
        "places": 3,
        "chars": 1_000,
        "reviews": review.may_review(visit.caller),
    }
    places = await visit.rows("loops_of", **parameters)
    for place in places:
        if place["task"] is not None:
            beginning = counts.beginning(place["task"], place["task_chars"])
            place["task"], place["left_out"] = beginning
    sources = await visit.rows("sources_of", **parameters)
    sessions = await visit.rows("sessions_of", **parameters)
    rulings = await visit.rows("rulings_of", **parameters)
    links = await visit.rows("links_of", **parameters)
    # A link has the lesson that replaced this one, or one that a dream made it of.
    replacement_names = [link["heir"] for link in links if link["heir"]]
    dream_links = [link for link in links if not link["heir"]]
    replacements = await visit.caller.read(counts.named, replacement_names)
    examples = await visit.caller.read(lesson_store.newest_examples, [n])
    waiting = await _read_waiting(visit, record, visit.number("held"))

    measured = (await measure(visit)).of(record)
    sentence = describe_effect(measured)
    if not measured["effect"] and record["state"] in UNSHOWN_STATES:
        why = UNSHOWN_STATES[record["state"]]
        if rulings and rulings[0]["action"] == "reject":
            why = "it was rejected"
        sentence = f"Nobody is shown it: {why}"
    return {
        "lesson": record,
        "name": name,
        **measured,
        "sentence": sentence,
        "replacement": next((row["id"] for row in replacements.values()), 0),
        "parts": len(dream_links),
        "dream": max((link["dream"] or 0 for link in dream_links), default=0),
        "held_id": waiting[0].id if waiting else 0,
        "held_text": waiting[0].lesson or waiting[0].pattern if waiting else "",
        "example": examples.get(n, {}),
        "places": places,
        "sources": [row["source"] for row in sources],
        "sessions": [row["source"] for row in sessions],
        "rulings": rulings,
        "versions": await visit.rows("versions_of", **parameters),
        "longest": MAX_STORED_TEXT_CHARS,
    }


def describe_effect(measured: Document) -> str:
    """Return in one sentence whether a lesson helps, or why this is not known.

    >>> describe_effect({"effect": None, "verdict": "never shown"})
    'Never shown'
    """
    effect = measured["effect"]
    if not effect:
        if measured["verdict"] == NEVER_SHOWN:
            return NEVER_SHOWN.capitalize()
        number = measured["shown"]["shown"]
        if not number:
            return NOT_SHOWN_SINCE.capitalize()
        loops = counted(number, "loop")
        verb = "compares" if number == 1 else "compare"
        return (
            f"Not known yet: its {loops} {verb} memory as a whole, not this lesson "
            "alone"
        )
    words: str = effect["gain"]
    if not words:
        return f"Not known yet: it {effect['lacks']}"
    if effect["conclusion"] in ("helps", "hurts"):
        words = f"{effect['verdict'].capitalize()}: {words}"
    if effect["lacks"]:
        return f"{words}. It {effect['lacks']}"
    return words


async def _read_waiting(
    visit: Visit, record: Document, held_id: int
) -> list[QuarantinedLesson]:
    """Return a text of a lesson that waits: that with the id `held_id`, or the newest.

    Without `held_id`, only a lesson in quarantine has one. Returns [] without a text,
    or if the visitor may not review.
    """
    if not (visit.may("read") and (held_id or record["state"] == "quarantined")):
        return []
    lesson_of = await visit.caller.read(quarantine.lessons_of_waiting)
    ids = [id for id in lesson_of if lesson_of[id] == record["id"]]
    shown_ids = [held_id] if held_id in ids else ids[:1]
    return await visit.caller.read(quarantine.read_entries, shown_ids)


async def amend(visit: Visit) -> str:
    """Pin or unpin a lesson, retire or restore it, or give it new words."""
    changes: dict[str, Document] = {
        "pin": {"pinned": True},
        "unpin": {"pinned": False},
        "restore": {"restored": True},
        "retire": {"retired": True},
        "edit": {"text": visit.form_text("text")},
    }

    change = visit.form_text("change")
    if change not in changes:
        raise InvalidInput("change", change, ", ".join(changes))

    await visit.ask(
        "PATCH",
        f"/v1/reflections/{visit.form_text('id')}",
        {**changes[change], "why": visit.form_text("why")},
        headers={"if-match": f'"{visit.form_text("edition")}"'},
    )
    ends = {"pin": "pinned", "unpin": "no longer pinned", "edit": "reworded"}
    return f"The lesson is {ends.get(change, f'{change}d')}."

"""What is stored of a lesson that is seen again. Pure.

`merge` decides whether the words of a new sighting take the place of the stored ones.
Words of a higher origin always do. Words of the same origin do if they say something
else and have something to say: what put the failure right, or what to do. Words from
outside never do: they wait beside the stored ones.
"""

from dataclasses import replace

from heedful.lessons import render
from heedful.lessons.lesson import OWN_AUTHORS, Example, Lesson
from heedful.lessons.mistake import Fix, Mistake, merged, without_outside
from heedful.lessons.origin import Origin, is_below, standing_of
from heedful.lessons.scope import State
from heedful.lessons.states import after


def merge(stored: Lesson, seen: Lesson) -> Lesson:
    """Return the lesson to store after a stored one was seen again.

    The parts that only the stored one has stay. A lesson that paired evidence has now
    verified is verified. The counters are those of the store.
    """
    pinned = stored.pinned or seen.pinned
    if seen.trust == "outside":
        return replace(stored, pinned=pinned)

    seen = with_stored_parts(stored, seen)
    if is_below(standing_of_lesson(stored), standing_of_lesson(seen)):
        return replace(seen, pinned=pinned)

    if _says_more(stored, seen):
        # Other words are to be verified anew.
        was_verified = stored.state == "verified"
        state = seen.state if was_verified else _verified(stored, seen)
        return replace(
            seen,
            state=state,
            importance=stored.importance,
            tags=stored.tags,
            pinned=pinned,
            data=seen.data or stored.data,
        )
    return replace(stored, state=_verified(stored, seen), pinned=pinned)


def standing_of_lesson(lesson: Lesson) -> Origin:
    """Return the origin as far as which the words of a lesson are believed."""
    return standing_of(lesson.trust, lesson.released_by)


def with_stored_parts(stored: Lesson, seen: Lesson) -> Lesson:
    """Return a sighting with the parts of the stored lesson that it does not replace.

    It is of both sources then. If the words are the stored ones, it is believed as far
    as these. A part of a lesson that waits is no part of another one.
    """
    waits = stored.trust == "outside" and not stored.released_by
    if seen.mistake is None or stored.mistake is None or waits:
        return seen
    mistake = merged(seen.mistake, stored.mistake)
    if mistake == seen.mistake:
        return seen

    both = replace(seen, mistake=mistake, text=render.text_of(seen.kind, mistake))
    if mistake.words and mistake.words == stored.mistake.words:
        return replace(
            both,
            trust=stored.trust,
            released_by=stored.released_by,
            released_at=stored.released_at,
            source=stored.source,
            sources=(*seen.sources, seen.source),
            evidence=stored.evidence,
            is_correction=stored.is_correction,
            run=stored.run,
            data=stored.data,
        )
    return both


def _verified(lesson: Lesson, seen: Lesson) -> State:
    """Return the state of a stored lesson after a sighting that may verify it."""
    return after("verify", lesson.state) if seen.state == "verified" else lesson.state


def _says_more(lesson: Lesson, seen: Lesson) -> bool:
    """Return True if a sighting says something else than a stored lesson, and says it
    as well.

    Another fix may also be told by a program about what a person put into words.
    """
    has_other_fix = False
    if seen.kind == "check" and seen.example is not None:
        is_other = _is_other_finding(lesson.example, seen.example)
        says_what_to_do = bool(seen.example.fix)
    else:
        fix = _told_fix(seen.mistake)
        has_other_fix = lesson.mistake is not None and _told_fix(lesson.mistake) != fix
        is_other = has_other_fix or lesson.text != seen.text
        says_what_to_do = fix is not None or _has_own_words(lesson, seen)

    is_believed = not is_below(standing_of_lesson(seen), standing_of_lesson(lesson))
    return says_what_to_do and is_other and (has_other_fix or is_believed)


def _told_fix(mistake: Mistake | None) -> Fix | None:
    """Return the fix of a mistake that may be told."""
    return without_outside(mistake).fix if mistake is not None else None


def _has_own_words(lesson: Lesson, seen: Lesson) -> bool:
    """Return True if a sighting has words that are not those of the error.

    A model is asked about a known failure because the stored words did not help. Those
    of a mistake are its own if its error has other words, because the figures that vary
    are left out.
    """
    if seen.run is not None and seen.run.by not in OWN_AUTHORS:
        return True
    if seen.mistake is not None and lesson.mistake is not None:
        return lesson.mistake.error != seen.mistake.error
    return seen.kind == "error" and seen.text != seen.sighting


def _is_other_finding(example: Example | None, seen: Example) -> bool:
    """Return True if a finding has another fix, without particulars of its task."""
    if example is None or not example.fix:
        return False
    return (example.rule or example.fix) != (seen.rule or seen.fix)

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
    """Return the lesson to store after the `stored` one was seen again, as in `seen`.

    The words of `seen` replace the stored ones if their origin is believed more, such
    as a person's over a program's, or if it is believed as much and they say something
    else. Text from outside never does. Parts that only the stored lesson has stay. If
    the sighting is verified, the lesson is. It is the store that counts sightings.
    """
    pinned = stored.pinned or seen.pinned
    if seen.trust == "outside":
        return replace(stored, pinned=pinned)

    seen = with_stored_parts(stored, seen)
    # Words that are believed more: the lesson is the new one, with its state.
    if is_below(standing_of_lesson(stored), standing_of_lesson(seen)):
        return replace(seen, pinned=pinned)

    if _may_replace(stored, seen):
        # New words have not been verified yet.
        was_verified = stored.state == "verified"
        state = seen.state if was_verified else _state_after(stored, seen)
        return replace(
            seen,
            state=state,
            importance=stored.importance,
            tags=stored.tags,
            pinned=pinned,
            data=seen.data or stored.data,
        )
    return replace(stored, state=_state_after(stored, seen), pinned=pinned)


def standing_of_lesson(lesson: Lesson) -> Origin:
    """Return the origin that says how far the words of a lesson are believed."""
    return standing_of(lesson.trust, lesson.released_by)


def with_stored_parts(stored: Lesson, seen: Lesson) -> Lesson:
    """Return the sighting `seen`, completed with parts of the stored lesson.

    The parts are those of a mistake: its error, its fix and what somebody said of it.
    The sighting's own parts stay where they are believed as much. If the words are the
    stored ones, the result has both sources and is believed as far as these words. A
    stored text from outside that no person has released gives it nothing.
    """
    waits = stored.trust == "outside" and not stored.released_by
    if seen.mistake is None or stored.mistake is None or waits:
        return seen
    mistake = merged(seen.mistake, stored.mistake)
    if mistake == seen.mistake:
        return seen

    completed = replace(seen, mistake=mistake, text=render.text_of(seen.kind, mistake))
    # The words are the stored ones, so what says who wrote them is the stored one's.
    if mistake.words and mistake.words == stored.mistake.words:
        return replace(
            completed,
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
    return completed


def _state_after(stored: Lesson, seen: Lesson) -> State:
    """Return the state of the `stored` lesson after the sighting `seen`.

    It is verified if the sighting is, and if its state allows that.
    """
    return after("verify", stored.state) if seen.state == "verified" else stored.state


def _may_replace(stored: Lesson, seen: Lesson) -> bool:
    """Return True if the words of a sighting may replace those of the `stored` lesson.

    They must say what to do, or what happened in words of their own; say something else
    than the stored ones; and be believed at least as much. Another fix need not be: a
    program may tell what fixed a mistake that a person put into words.
    """
    has_other_fix = False
    if seen.kind == "check" and seen.example is not None:
        # The lesson of a check is about what it found in an answer.
        is_other = _names_other_fix(stored.example, seen.example)
        says_what_to_do = bool(seen.example.fix)
    else:
        fix = _fix_to_tell(seen.mistake)
        stored_fix = _fix_to_tell(stored.mistake)
        has_other_fix = stored.mistake is not None and stored_fix != fix
        is_other = has_other_fix or stored.text != seen.text
        says_what_to_do = fix is not None or _has_own_words(seen)

    is_believed = not is_below(standing_of_lesson(seen), standing_of_lesson(stored))
    return says_what_to_do and is_other and (has_other_fix or is_believed)


def _fix_to_tell(mistake: Mistake | None) -> Fix | None:
    """Return the fix of a mistake that may be told."""
    return without_outside(mistake).fix if mistake is not None else None


def _has_own_words(seen: Lesson) -> bool:
    """Return True if a sighting has words of its own, not only those of the error.

    They are its own if a model or a person wrote them: a model is asked about a known
    failure because the stored words did not help. Those of an error are its own if the
    text is not just the error.
    """
    if seen.run is not None and seen.run.by not in OWN_AUTHORS:
        return True
    return seen.kind == "error" and seen.text != seen.sighting


def _names_other_fix(stored: Example | None, seen: Example) -> bool:
    """Return True if a check's finding `seen` names another fix than the stored one.

    The fixes are compared without particulars of their tasks. A stored example that
    has no fix is no reason to replace it.
    """
    if stored is None or not stored.fix:
        return False
    return (stored.rule or stored.fix) != (seen.rule or seen.fix)

"""What is stored of a lesson that is seen again, and the states that a lesson has."""

from dataclasses import replace
from typing import Any

import pytest

from heedful.lessons.lesson import Example, Lesson, LessonRun, Signature
from heedful.lessons.merging import merge
from heedful.lessons.mistake import Call, Fix, Mistake
from heedful.lessons.scope import TOLD_STATES
from heedful.lessons.states import TRANSITIONS, after
from tests.tables import cases

NAME = Signature("", "no order <N>", digest="0123456789abcdef")
OLD_TEXT = "Look at the order first."
NEW_TEXT = "Ask for the number of the order."
ACTION = Call(tool="get_order", arguments=(("id", "7"),))
FIX = Fix(kind="command", calls=(Call(tool="find_order"),))
OTHER_FIX = Fix(kind="command", calls=(Call(tool="list_orders"),))
FAILED = Mistake(action=ACTION, error="no order 7")
BY_MODEL = LessonRun(by="a model")


def lesson_of(text: str = OLD_TEXT, **fields: Any) -> Lesson:
    """Return a lesson that a caller remembered, with these fields."""
    values: dict[str, Any] = {"kind": "error", "signature": NAME, "error_type": ""}
    values |= {"text": text, "sighting": "no order 7", **fields}
    return Lesson(**values)


def finding_of(fix: str, **fields: Any) -> Lesson:
    """Return a lesson about a finding whose check said this."""
    example = Example("Name the queue", "blue", wrong="no queue", fix=fix)
    return lesson_of(kind="check", example=example, **fields)


# The stored lesson, the sighting, and whether its words take the place of the others.
WORDS = {
    "the same words": (lesson_of(), lesson_of(), False),
    "other words of the same origin": (lesson_of(), lesson_of(NEW_TEXT), True),
    "other words of a higher origin": (
        lesson_of(trust="local"),
        lesson_of(NEW_TEXT, trust="user"),
        True,
    ),
    "other words of a lower origin": (
        lesson_of(trust="user"),
        lesson_of(NEW_TEXT, trust="local"),
        False,
    ),
    "words from outside": (
        lesson_of(trust="local"),
        lesson_of(NEW_TEXT, trust="outside"),
        False,
    ),
    "local words in place of those that wait": (
        lesson_of(trust="outside", state="quarantined"),
        lesson_of(NEW_TEXT, trust="local"),
        True,
    ),
    "local words beside those that a person released": (
        lesson_of(trust="outside", released_by="ada"),
        lesson_of(NEW_TEXT, trust="local"),
        False,
    ),
    "no words but those of the error": (
        lesson_of(),
        lesson_of("no order 7"),
        False,
    ),
    "the words of a model about a known failure": (
        lesson_of(kind="strategy", run=BY_MODEL),
        lesson_of(NEW_TEXT, kind="strategy", run=BY_MODEL),
        True,
    ),
    "those of a model beside the words of a person": (
        lesson_of(kind="strategy", trust="user"),
        lesson_of(NEW_TEXT, kind="strategy", run=BY_MODEL, trust="local"),
        False,
    ),
}


@cases("stored, seen, replaces", WORDS)
def test_whose_words_a_lesson_has(stored: Lesson, seen: Lesson, replaces: bool):
    assert merge(stored, seen).text == (seen.text if replaces else stored.text)


def test_a_finding_with_another_fix_takes_the_place_of_the_stored_one():
    stored = finding_of("write blue")
    seen = replace(finding_of("write red"), text=NEW_TEXT)
    assert merge(stored, seen).text == NEW_TEXT
    assert merge(stored, replace(stored, text=NEW_TEXT)).text == OLD_TEXT


# The fix that is stored, the one that was seen, and the one that stays.
FIXES = {
    "the first fix": (None, FIX, FIX),
    "no new fix": (FIX, None, FIX),
    "another fix": (FIX, OTHER_FIX, OTHER_FIX),
    "one of a run that did not succeed": (replace(FIX, is_proven=True), OTHER_FIX, FIX),
    "one from outside": (FIX, replace(OTHER_FIX, origin="outside"), FIX),
}


@cases("stored_fix, seen_fix, kept_fix", FIXES)
def test_which_fix_a_lesson_has(stored_fix, seen_fix, kept_fix):
    run: Any = {"kind": "reflection", "trust": "local"}
    stored = lesson_of(mistake=replace(FAILED, fix=stored_fix), **run)
    seen = lesson_of(mistake=replace(FAILED, fix=seen_fix), **run)
    mistake = merge(stored, seen).mistake
    assert mistake is not None
    assert mistake.fix is not None
    assert mistake.fix.calls == kept_fix.calls


def test_the_words_of_a_person_stay_beside_a_new_fix():
    spoken = replace(FAILED, words="Ask Ann.", words_origin="user")
    stored = lesson_of("Ask Ann.", kind="reflection", mistake=spoken, trust="user")
    seen = lesson_of(kind="reflection", mistake=replace(FAILED, fix=FIX), trust="local")
    result = merge(stored, seen)
    assert result.text.startswith("Ask Ann.\n")
    assert result.mistake is not None
    assert result.mistake.fix == FIX
    assert result.trust == "user"


# The stored state, the state and the words of the sighting, and the state after it.
STATES = {
    "paired evidence verifies": ("unverified", "verified", OLD_TEXT, "verified"),
    "what is verified stays so": ("verified", "unverified", OLD_TEXT, "verified"),
    "other words are not verified": ("verified", "unverified", NEW_TEXT, "unverified"),
    "what is retired stays so": ("retired", "verified", OLD_TEXT, "retired"),
    "what is superseded stays so": ("superseded", "verified", OLD_TEXT, "superseded"),
}


@cases("stored_state, seen_state, text, state", STATES)
def test_which_state_a_lesson_has(stored_state, seen_state, text, state):
    stored = lesson_of(state=stored_state)
    assert merge(stored, lesson_of(text, state=seen_state)).state == state


def test_a_pin_stays_and_tags_are_those_of_the_first():
    stored = lesson_of(pinned=True, tags=("first",), importance=0.9)
    result = merge(stored, lesson_of(NEW_TEXT, tags=("second",), importance=0.2))
    assert result.pinned
    assert result.tags == ("first",)
    assert result.importance == 0.9


@pytest.mark.parametrize("change", TRANSITIONS)
def test_every_change_of_a_state_is_taken_back_or_begun_by_another(change):
    for state, next_state in TRANSITIONS[change].items():
        assert after(change, state) == next_state
        assert state != next_state
        assert after(change, next_state) in (next_state, *TOLD_STATES)


def test_what_waits_is_told_only_after_a_release():
    endings = {name: after(name, "quarantined") for name in TRANSITIONS}
    assert [name for name in endings if endings[name] in TOLD_STATES] == ["release"]

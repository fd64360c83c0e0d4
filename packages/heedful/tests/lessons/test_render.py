"""The words of a mistake in each place, beside files with what they are to be."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from heedful.lessons import render
from heedful.lessons.mistake import Call, Fix, Mistake, from_json, to_data

GOLDEN = Path(__file__).parent / "golden"
TEST = Call(tool="Bash", text="npm test")
ERROR = "sh: 1: vitest: not found"
STEP = Fix(kind="step", calls=(Call(tool="Bash", text="npm install"),))
COMMAND = Fix(kind="command", calls=(Call(tool="Bash", text="npm run unit"),))
EDIT = Fix(kind="edit", calls=(Call(text="edit a.py:\n@@ -1 +1 @@\n-a\n+b"),))
WAIT = Fix(kind="waiting", seconds=30.0)
OPEN = Mistake(action=TEST, error=ERROR, vain=(Call(tool="Bash", text="npm t"),))
MISTAKES = {
    "nothing": OPEN,
    "command": replace(OPEN, fix=COMMAND),
    "edit": replace(OPEN, fix=EDIT),
    "a wait that was not tried": replace(OPEN, fix=WAIT),
    "own words with the fix": replace(OPEN, fix=STEP, words="Run npm install first."),
    "an error from outside": replace(OPEN, fix=STEP, error_origin="outside"),
    "a check": Mistake(check="has_total", error="the total is missing"),
}
FACES = {
    "lesson": render.lesson,
    "next time": render.rule,
    "after a failure": render.after_failure,
    "brief": render.brief_line,
    "a team's file": lambda mistake: (
        f"{render.account(mistake)} | fix: {'; '.join(render.fix_lines(mistake))}"
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_words_of_a_mistake_are_those_of_its_file(name):
    words = "".join(
        f"# {face}\n{render_face(MISTAKES[name])}\n\n"
        for face, render_face in FACES.items()
    )
    file = GOLDEN / f"{name.replace(' ', '_')}.txt"
    assert words == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_the_same_after_it_was_stored(name):
    mistake = MISTAKES[name]
    assert from_json(json.dumps(to_data(mistake))) == mistake

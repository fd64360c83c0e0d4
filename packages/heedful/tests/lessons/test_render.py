"""The words of a mistake in each place, beside files with what they are to be.

`pytest --golden` writes these files again.
"""

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
ARGUMENTS = Fix(kind="arguments", changes=(("item", "big pot"), ("all", None)))
PATH = Fix(
    kind="path",
    calls=(Call(tool="Read", arguments=(("path", "b.py"),)),),
)
TOOL = Fix(kind="tool", calls=(Call(tool="Glob", text="*.test.js"),))
EDIT = Fix(kind="edit", calls=(Call(text="edit a.py:\n@@ -1 +1 @@\n-a\n+b"),))
WAIT = Fix(kind="waiting", seconds=30.0)
CALLS = Fix(kind="waiting", calls=(Call(tool="Bash", text="sleep 5"),))
OPEN = Mistake(action=TEST, error=ERROR, vain=(Call(tool="Bash", text="npm t"),))
MISTAKES = {
    "nothing": OPEN,
    "command": replace(OPEN, fix=COMMAND),
    "arguments": replace(OPEN, fix=ARGUMENTS),
    "path": replace(OPEN, fix=PATH),
    "another tool": replace(OPEN, fix=TOOL),
    "edit": replace(OPEN, fix=EDIT),
    "a wait with calls": replace(OPEN, fix=CALLS, steps=2),
    "a wait that was not tried": replace(OPEN, fix=WAIT),
    "own words with the fix": replace(OPEN, fix=STEP, words="Run npm install first."),
    "an error from outside": replace(OPEN, fix=STEP, error_origin="outside"),
    "a check": Mistake(check="has_total", error="the total is missing"),
}
# A file of a team has the parts of a lesson, too.
FACES = {
    "lesson": render.lesson,
    "next time": render.rule,
    "after a failure": render.after_failure,
    "brief": render.brief_line,
}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_words_of_a_mistake_are_those_of_its_file(name, golden):
    words = "".join(
        f"# {face}\n{render_face(MISTAKES[name])}\n\n"
        for face, render_face in FACES.items()
    )
    file = GOLDEN / f"{name.replace(' ', '_')}.txt"
    if golden:
        file.write_text(words, "utf-8")
    assert words == file.read_text("utf-8")


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_the_same_after_it_was_stored(name):
    mistake = MISTAKES[name]
    assert from_json(json.dumps(to_data(mistake))) == mistake

"""What the words of a lesson are about."""

from typing import Any

import pytest

from heedful.lessons.links import LessonWords, link_lesson
from heedful.lessons.mistake import Call, Mistake


def words_of(text: str, id: int = 1, **fields: Any) -> LessonWords:
    return LessonWords(
        id=id,
        kind="reflection",
        text=text,
        seen=1,
        state="verified",
        trust="user",
        **fields,
    )


def link_text(text: str, **fields: Any) -> str:
    """Return the links of a text, as people read them."""
    return ", ".join(map(str, link_lesson(words_of(text, **fields)).links))


@pytest.mark.parametrize(
    ("text", "links"),
    [
        pytest.param("Run `CI=1 sudo make all`.", "tool sudo", id="programs"),
        pytest.param("It is in src/a/setup.cfg", "file setup.cfg", id="in a folder"),
        pytest.param("main.rs:12 is wrong", "file main.rs", id="the number of a line"),
        pytest.param("See https://a.example/b.html", "", id="an address is no file"),
        pytest.param("error[E0432]: lost", "error e0432", id="a code in brackets"),
        pytest.param("Use SHA256 or RFC7231", "", id="a name is no code"),
        pytest.param("ENOENT, not ERROR", "error enoent", id="a code of the system"),
    ],
)
def test_a_text_links_what_it_names(text: str, links: str) -> None:
    assert link_text(text) == links


@pytest.mark.parametrize(
    ("call", "error", "links"),
    [
        pytest.param(Call(tool="rooms"), "", "tool rooms", id="a tool"),
        pytest.param(
            Call(tool="Bash", text="make"),
            "No rule",
            "tool bash, tool make",
            id="shell",
        ),
        pytest.param(
            Call(tool="sh", text=". venv/activate && pip install x"),
            "",
            "tool pip, tool sh",
            id="a line of a shell",
        ),
        pytest.param(
            Call(tool="read", text="it"),
            "`make all` has no rule",
            "tool read",
            id="what an error quotes is no call",
        ),
    ],
)
def test_a_mistake_links_the_tools_that_it_calls(call, error, links) -> None:
    mistake = Mistake(action=call, error=error)
    assert link_text("", mistake=mistake) == links


def test_the_type_of_an_error_is_a_link_unless_it_is_a_tool() -> None:
    assert link_text("x", error_type="conflict") == "error conflict"
    assert link_text("Run `make all`", error_type="make") == "tool make"

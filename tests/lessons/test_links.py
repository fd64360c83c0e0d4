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
        pytest.param("Return `None`, not `f(a, b)`.", "", id="code is no command"),
        pytest.param("It is in src/a/setup.cfg", "file setup.cfg", id="in a folder"),
        pytest.param("See app.py and os.path", "file app.py", id="a known ending"),
        pytest.param("main.rs:12 is wrong", "file main.rs", id="the number of a line"),
        pytest.param(
            "Use `cargo -f Cargo.toml`",
            "file cargo.toml, tool cargo",
            id="in a command",
        ),
        pytest.param("See https://a.example/b.html", "", id="an address is no file"),
        pytest.param("ssl.SSLError was raised", "error sslerror", id="an exception"),
        pytest.param("error[E0432]: lost", "error e0432", id="a code in brackets"),
        pytest.param("error TS2304 again", "error ts2304", id="a code after error"),
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


@pytest.mark.parametrize("type", ["strategy", "partial", "success"])
def test_the_kind_of_a_lesson_and_the_end_of_its_run_are_no_errors(type: str) -> None:
    assert link_text("It costs 4.", error_type=type) == ""

"""What the words of a lesson are about."""

from typing import Any

from heedful.lessons.links import LessonWords, links_of
from heedful.lessons.mistake import Call, Mistake
from tests.tables import cases


def link_text(text: str, **fields: Any) -> str:
    """Return the links of a text, as people read them."""
    return ", ".join(map(str, links_of(LessonWords(1, text, **fields))))


@cases(
    "text, links",
    {
        "programs": ("Run `CI=1 sudo make all`.", "tool sudo"),
        "in a folder": ("It is in src/a/setup.cfg", "file setup.cfg"),
        "the number of a line": ("main.rs:12 is wrong", "file main.rs"),
        "an address is no file": ("See https://a.example/b.html", ""),
        "a code in brackets": ("error[E0432]: lost", "error e0432"),
        "a name is no code": ("Use SHA256 or RFC7231", ""),
        "a code of the system": ("ENOENT, not ERROR", "error enoent"),
    },
)
def test_a_text_links_what_it_names(text, links):
    assert link_text(text) == links


@cases(
    "call, error, links",
    {
        "a tool": (Call(tool="rooms"), "", "tool rooms"),
        "shell": (Call(tool="Bash", text="make"), "No rule", "tool bash, tool make"),
        "a line of a shell": (
            Call(tool="sh", text=". venv/activate && pip install x"),
            "",
            "tool pip, tool sh",
        ),
        "what an error quotes is no call": (
            Call(tool="read", text="it"),
            "`make all` has no rule",
            "tool read",
        ),
    },
)
def test_a_mistake_links_the_tools_that_it_calls(call, error, links):
    mistake = Mistake(action=call, error=error)
    assert link_text("", mistake=mistake) == links

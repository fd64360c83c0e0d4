"""What the words of a lesson are about."""

import tracemalloc
from typing import Any

import pytest

from heedful.lessons.links import MAX_LINK_CHARS, LessonWords, link_lesson
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
        pytest.param("429 Too Many Requests", "error http 429", id="a status"),
        pytest.param("HTTP/1.1 403", "error http 403", id="a status of a protocol"),
        pytest.param("404 Rooms", "", id="a number is no status"),
        pytest.param(
            "No module named 'numpy.linalg': `pip install 'numpy==2'`",
            "package numpy, tool pip",
            id="a package that error and command name",
        ),
        pytest.param(
            "'left@1.0' is not in the registry. Run `npm i left`",
            "package left, tool npm",
            id="a package with its version",
        ),
        pytest.param("'yaml' is missing", "", id="a name without a command"),
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


def test_equal_tasks_differ_only_in_particulars() -> None:
    first = link_text("x", tasks=("Fix ticket 12",))
    assert first == link_text("y", tasks=("Fix ticket 9041",)) == "task fix ticket <n>"
    assert first != link_text("x", tasks=("Close ticket 12",))

    beginning = "word " * MAX_LINK_CHARS
    long = link_text("x", tasks=(f"{beginning} amber",))
    assert long != link_text("x", tasks=(f"{beginning} birch",))


SIGHTINGS = 100


def test_a_lesson_that_is_seen_in_ever_more_tasks_takes_the_memory_of_one() -> None:
    def link(sightings: int) -> None:
        tasks = tuple(f"weigh parcel {number}" for number in range(sightings))
        link_lesson(words_of("Weigh it twice.", tasks=tasks))

    tracemalloc.start()
    link(SIGHTINGS)
    bytes_of_one, _ = tracemalloc.get_traced_memory()
    for sightings in range(SIGHTINGS):
        link(sightings)
    bytes_of_many, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert bytes_of_many < 3 * bytes_of_one

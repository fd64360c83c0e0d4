"""The runner of the documentation sees what works, and sees what does not."""

import pytest

from scripts import run_docs
from tests.tables import cases


@pytest.fixture
def outcome(tmp_path):
    """Run a page given as text; whether it passed, and what was said."""

    def run(text: str) -> tuple[bool, str]:
        path = tmp_path / "page.md"
        path.write_text(text, "utf-8")
        return run_docs.start(path)

    return run


def page(*blocks: tuple[str, str]) -> str:
    return "\n\n".join(f"```{info}\n{body}\n```" for info, body in blocks)


@cases(
    ("text", "message"),
    {
        "an error": (page(("python", "x = 1\nraise OSError('gone')")), "line 3"),
        "a warning": (
            page(("python", "import warnings\nwarnings.warn('old')")),
            "UserWarning: old",
        ),
        "a result that differs": (page(("python", ">>> 1 + 1\n3")), "Expected:"),
        "an exit": (page(("python", "raise SystemExit(0)")), "SystemExit"),
        "a failure": (page(("console", "$ python -c 'exit(3)'")), "exited 3"),
        "other output": (page(("console", "$ python -c 'print(1)'\n2")), "it said:\n1"),
    },
)
def test_a_page_that_does_not(outcome, text, message):
    passed, output = outcome(text)
    assert not passed
    assert message in output


def test_a_line_of_a_page_becomes_the_one_most_like_it():
    said = run_docs.as_said("...\nrule  do that\n", "one\nrule  do this\n")
    assert said == "...\nrule  do this\n"

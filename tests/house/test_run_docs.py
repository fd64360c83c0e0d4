"""The runner of the documentation sees what works, and sees what does not."""

import pytest

from scripts import run_docs, stand_in


@pytest.fixture
def outcome(tmp_path):
    """Run a page given as text; whether it passed, and what was said."""

    def run(text: str) -> tuple[bool, str]:
        path = tmp_path / "page.md"
        path.write_text(text, encoding="utf-8")
        with stand_in.serving() as variables:
            return run_docs.start(path, variables)

    return run


def page(*blocks: tuple[str, str]) -> str:
    return "\n\n".join(f"```{info}\n{body}\n```" for info, body in blocks)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            page(("python", "x = 1\nraise OSError('gone')")), "line 3", id="an error"
        ),
        pytest.param(
            page(("python", "import warnings\nwarnings.warn('old')")),
            "UserWarning: old",
            id="a warning",
        ),
        pytest.param(
            page(("python", ">>> 1 + 1\n3")), "Expected:", id="a result that differs"
        ),
        pytest.param(
            page(("python", "raise SystemExit(0)")), "SystemExit", id="an exit"
        ),
        pytest.param(
            page(("console", "$ python -c 'raise SystemExit(3)'")),
            "exited 3",
            id="a command that fails",
        ),
        pytest.param(
            page(("console", "$ python -c 'print(1)'\n2")),
            "it said:\n1",
            id="an output that differs",
        ),
    ],
)
def test_a_page_that_does_not(outcome, text, message):
    passed, output = outcome(text)
    assert not passed
    assert message in output

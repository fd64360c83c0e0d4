"""What the HumanEval example shows to the loop: the examples of a docstring, nothing else."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path

import pytest

EXAMPLE = Path(__file__).parent.parent / "examples" / "humaneval" / "run.py"


def assertions(prompt: str) -> list[str]:
    found: list[str] = run_path(str(EXAMPLE), run_name="humaneval")["assertions"](prompt, "f")
    return found


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        (">>> f(1, 2)\n3\n", ["assert f(1, 2) == 3"]),
        ("f([1]) == 2", ["assert f([1]) == 2"]),
        ("f('a => b') => 'c'", ["assert f('a => b') == 'c'"]),
        ("- f(3) ➞ False", ["assert f(3) == False"]),
        ("f('x') returns 'y'", ["assert f('x') == 'y'"]),
        ("f(1) -> 2 - 1 = 1", []),
        ("f(word) => True", []),
        ("g(1) => 2", []),
        ("f(1) => the first", []),
        ("f(1) == 2\nf(1) == 2", ["assert f(1) == 2"]),
        ("no example at all", []),
    ],
)
def test_examples_become_assertions(docstring: str, expected: list[str]) -> None:
    prompt = f'def f(x):\n    """Does it.\n    {docstring}\n    """\n'.replace("\n>>>", "\n    >>>")
    assert assertions(prompt.replace("\n3", "\n    3")) == expected

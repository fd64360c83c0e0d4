"""What the HumanEval example shows to the loop: the examples of a docstring, nothing else."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLE = Path(__file__).parent.parent / "examples" / "humaneval" / "run.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("humaneval_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


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
def test_examples_become_assertions(
    example: ModuleType, docstring: str, expected: list[str]
) -> None:
    prompt = f'def f(x):\n    """Does it.\n    {docstring}\n    """\n'.replace("\n>>>", "\n    >>>")
    assert example.assertions(prompt.replace("\n3", "\n    3"), "f") == expected


def test_shares_of_nothing_are_said_in_words(example: ModuleType) -> None:
    assert example.share(0, 0) == "none"
    assert example.share(1, 4) == "1 (25%)"

"""The examples in docstrings are true."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import heedful

PACKAGE = Path(heedful.__file__).parent
LOOSE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def modules_with_examples() -> list[str]:
    """Return the names of the modules whose source has an example."""
    return [
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for path in sorted(PACKAGE.rglob("*.py"))
        if ">>> " in path.read_text("utf-8")
    ]


@pytest.mark.parametrize("name", modules_with_examples())
def test_a_docstring_shows_what_its_code_does(name):
    module = import_module(name.removesuffix(".__init__"))
    result = doctest.testmod(module, optionflags=LOOSE)
    assert result.attempted > 0
    assert result.failed == 0

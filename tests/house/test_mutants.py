"""Which mistakes `scripts/mutants.py` plants."""

from pathlib import Path

import pytest

from scripts import mutants


@pytest.fixture
def texts_of(tmp_path, monkeypatch):
    """Return what the mutants of some code say in place of what stands there."""
    monkeypatch.setattr(mutants, "ROOT", tmp_path)

    def plant(code: str) -> list[str]:
        path = Path(tmp_path / "module.py")
        path.write_text(code, encoding="utf-8")
        return [
            code[: mutant.start] + mutant.text + code[mutant.end :]
            for mutant in mutants.mutants_of(path)
        ]

    return plant


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        pytest.param("a < b", "(a <= b)", id="a comparison with its border"),
        pytest.param("a in b", "(a not in b)", id="a membership"),
        pytest.param("a and b", "((a) or (b))", id="one condition for both"),
        pytest.param("a + b", "(a - b)", id="a sum"),
        pytest.param("a = 3", "a = 4", id="a number"),
        pytest.param("a = True", "a = False", id="a truth"),
        pytest.param("store(a)", "pass", id="a call that is left out"),
        pytest.param("b = '…' if a else c", "b = '…' if (not (a)) else c", id="an if"),
        pytest.param("def f():\n  return a", "def f():\n  return None", id="an answer"),
    ],
)
def test_a_mutant_changes(texts_of, code, changed):
    assert texts_of(code) == [changed]


def test_text_without_a_choice_has_no_mutant(texts_of):
    assert texts_of('"""A docstring."""\nname = "text"\nvalue = name.strip()\n') == []

from __future__ import annotations

import sys
from itertools import count
from typing import Any

import pytest

from heedful.checks import loading as checks
from heedful.errors import InvalidInput, UnknownName
from tests.checks.support import CONTEXT, findings, keys

JUDGE = {"role": "alignment", "model": "tests.checks.support:judge"}
SPECS: dict[str, tuple[dict[str, Any], str, str]] = {
    "characters": ({"at_most": 3}, "abc", "abcd"),
    "contains": ({"needles": ["a", "b"]}, "ab", "a"),
    "critic": (JUDGE, "good", "bad"),
    "critics": ({"members": [JUDGE, JUDGE]}, "good", "bad"),
    "equals": ({"expected": "yes"}, "YES", "no"),
    "excludes": ({"needles": "a"}, "b", "a"),
    "grounding": ({"evidence": [{"shop": "Ox", "sales": 7}]}, "Ox: sales of 7", "Ox: sales of 8"),
    "insights": ({"metrics": {"mae": 2}}, "MAE: 2", "RMSE: 2"),
    "json_schema": ({"schema": {"type": "object"}}, "{}", "[]"),
    "not_empty": ({}, "a", ""),
    "precision": ({"at_most": 1}, "1", "1 2"),
    "python_tests": ({"tests": "assert f() == 1", "entry_point": "f"}, "f = lambda: 1", "f = 1"),
    "regex": ({"pattern": "a+"}, "aa", "b"),
    "words": ({"at_least": 2}, "a b", "a"),
}
GOOD = '{"actual": [50, 52, 48, 51], "predicted": [50.5, 51, 48.5, 52]}'
SPECS |= {
    "finite": ({"columns": "actual"}, GOOD, '{"actual": [1, null]}'),
    "predictions": ({}, GOOD, GOOD.replace("48.5", "4800")),
    "ranges": (
        {"columns": {"actual": [0, 60]}, "predicted": [0, 60]},
        GOOD,
        GOOD.replace("5", "6"),
    ),
    "results": ({"path": lambda candidate, state: candidate}, __file__, "nowhere.csv"),
    "rows": ({"key": "actual"}, GOOD, GOOD.replace("52", "50")),
}
UNIQUE = count()


@pytest.fixture
def write(tmp_path):
    before = list(sys.path)

    def written(source: str, name: str = "") -> str:
        name = name or f"mine_{next(UNIQUE)}"
        tmp_path.joinpath(*name.split(".")).with_suffix(".py").write_text(source)
        return name

    yield written
    assert sys.path == before


@pytest.mark.parametrize("name", sorted(SPECS))
def test_every_short_name_makes_a_check_that_fires(name):
    arguments, good, bad = SPECS[name]
    check = checks.load({"name": name, **arguments}, None)
    assert getattr(check, "name", "").split()[0] == name
    assert [one for one in findings(check, good) if one.level != "note"] == []
    assert findings(check, bad)


def test_the_short_names_are_all_there_is():
    assert checks.known() == tuple(sorted(SPECS))


def test_an_unknown_name_lists_those_there_are():
    with pytest.raises(UnknownName, match=r"'wrods'; there are: characters, .*words"):
        checks.load({"name": "wrods"}, None)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"name": 5}, "name of a check"),
        ({"name": "a b:c"}, "name of a check"),
        ("words", "check is 'words'"),
        ({"name": "words", "most": 5}, "arguments of check 'words'.*at_least, at_most.*'most'"),
        ({"name": "regex"}, "pattern of check 'regex'"),
        ({"name": "regex", "pattern": "("}, "pattern of check 'regex'.*unterminated"),
        ({"name": "json_schema", "schema": {"type": "odd"}}, "schema of check 'json_schema'"),
        ({"name": "contains"}, "needles of check 'contains'.*required"),
        ({"name": "contains", "needles": [5]}, "needles of check 'contains'"),
        ({"name": "no_such_module_here:f"}, "module of a check.*ModuleNotFoundError"),
    ],
)
def test_a_wrong_argument_is_named_with_its_check(spec, message):
    with pytest.raises(InvalidInput, match=message):
        checks.load(spec, None)


def test_a_factory_beside_the_task_file_is_called(write, tmp_path):
    name = write(
        "from heedful.loop.record import Finding\n"
        "def at_most(n):\n"
        "    long = Finding('mine', 'long')\n"
        "    return lambda candidate, context: [long] if len(candidate) > n else []\n"
    )
    check = checks.load({"name": f"{name}:at_most", "n": 2}, tmp_path)
    assert keys(check, "ab") == []
    assert keys(check, "abc") == ["mine: long"]


def test_a_check_itself_is_used_as_it_is(write, tmp_path):
    source = "def mine(c, context, limit=3):\n    return [c, context, limit]\nmine.pure = True\n"
    name = write(source)
    check = checks.load({"name": f"{name}:mine"}, tmp_path)
    assert check("a", CONTEXT) == ["a", CONTEXT, 3]
    assert check.__name__ == "mine"
    bound = checks.load({"name": f"{name}:mine", "limit": 5}, tmp_path)
    assert bound("a", CONTEXT) == ["a", CONTEXT, 5]
    assert bound.__name__ == "mine"
    assert getattr(bound, "pure", False) is True


def test_a_module_in_the_folder_goes_before_an_installed_one(write, tmp_path):
    name = write("def check(candidate, context): return ['mine']\n", "json")
    assert checks.load({"name": f"{name}:check"}, tmp_path)("", CONTEXT) == ["mine"]
    assert sys.modules["json"].__name__ == "json"
    assert not hasattr(sys.modules["json"], "check")


def test_a_module_may_import_its_neighbour_and_lie_in_a_package(write, tmp_path):
    neighbour = write("LIMIT = 7\n")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / f"{neighbour}_b.py").write_text("LIMIT = 8\n")
    name = write(f"from {neighbour} import LIMIT\ndef check(c, context): return [LIMIT]\n")
    inner = write(
        f"from {neighbour}_b import LIMIT\ndef check(c, x): return [LIMIT]\n", "inner.deep"
    )
    assert checks.load({"name": f"{name}:check"}, tmp_path)("", CONTEXT) == [7]
    assert checks.load({"name": f"{inner}:check"}, tmp_path)("", CONTEXT) == [8]


@pytest.mark.parametrize(
    "source",
    ["def (", "import not_there_at_all", "1 / 0", "raise SystemExit(0)"],
)
def test_a_module_that_cannot_be_imported_is_refused(write, tmp_path, source):
    name = write(source)
    loaded = set(sys.modules)
    with pytest.raises(InvalidInput, match="module of a check"):
        checks.load({"name": f"{name}:check"}, tmp_path)
    assert not {m for m in set(sys.modules) - loaded if m.startswith("_heedful_check_")}


def test_a_factory_that_refuses_or_makes_no_check_is_told(write, tmp_path):
    name = write(
        "def refuses(limit):\n    raise ValueError('too odd')\n"
        "def nothing(limit=1):\n    return 5\n"
        "def several(*limits, **more):\n    return lambda c, x: [limits, more]\n"
    )
    with pytest.raises(InvalidInput, match=r"arguments of check.*too odd"):
        checks.load({"name": f"{name}:refuses", "limit": 1}, tmp_path)
    with pytest.raises(InvalidInput, match=r"limit of check.*required"):
        checks.load({"name": f"{name}:refuses"}, tmp_path)
    with pytest.raises(UnknownName, match="'three'; there are: nothing, refuses, several"):
        checks.load({"name": f"{name}:three"}, tmp_path)
    with pytest.raises(InvalidInput, match="a check: callable"):
        checks.load({"name": f"{name}:nothing"}, tmp_path)
    several = checks.load({"name": f"{name}:several", "limits": [1, 2], "x": 3}, tmp_path)
    assert several("", CONTEXT) == [(1, 2), {"x": 3}]

import sys
from itertools import count

import pytest

from heedful.checks import loading as checks
from heedful.errors import InvalidInput, UnknownName
from tests.checks.support import CONTEXT, keys
from tests.tables import cases

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


@pytest.mark.parametrize("name", checks.known())
def test_every_short_name_is_that_of_a_factory(name):
    try:
        check = checks.load({"name": name}, None)
    except InvalidInput as error:
        assert f"of check {name!r}" in str(error)  # noqa: PT017 - it needs arguments
    else:
        assert getattr(check, "name", "").split()[0] == name


def test_a_short_name_is_never_that_of_a_check():
    with pytest.raises(InvalidInput, match="a of check"):
        checks.bind_check("words", lambda a, b: None, {})


def test_a_misspelt_name_gets_the_names_that_there_are():
    with pytest.raises(UnknownName, match="did you mean 'words'") as caught:
        checks.load({"name": "wrods"}, None)
    assert f"there are: {', '.join(checks.known())}" in str(caught.value)


def test_an_unknown_argument_is_named_with_the_one_that_was_meant():
    message = (
        r"no argument of check 'regex' is called 'patern' "
        r"\(did you mean 'pattern'\?\); there are: pattern, "
    )
    with pytest.raises(UnknownName, match=message):
        checks.load({"name": "regex", "patern": "a"})


@cases(
    "spec, message",
    {
        "a name that is a number": ({"name": 5}, "name of a check"),
        "a name that is no address": ({"name": "a b:c"}, "name of a check"),
        "a check that is text": ("words", "check is 'words'"),
        "an argument that is missing": ({"name": "regex"}, "pattern of check 'regex'"),
        "a module that is not there": (
            {"name": "no_such_module_here:f"},
            "module of a check.*ModuleNotFoundError",
        ),
    },
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
    name = write(
        "def mine(c, context, limit=3):\n    return [c, context, limit]\n"
        "mine.pure = True\n"
    )
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


@pytest.mark.parametrize(
    "source", ["def (", "import not_there_at_all", "1 / 0", "raise SystemExit(0)"]
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
    with pytest.raises(InvalidInput, match=r"what '.*' is given is .*too odd"):
        checks.load({"name": f"{name}:refuses", "limit": 1}, tmp_path)
    with pytest.raises(InvalidInput, match=r"limit of check.*required"):
        checks.load({"name": f"{name}:refuses"}, tmp_path)
    with pytest.raises(
        UnknownName, match="'three'; there are: nothing, refuses, several"
    ):
        checks.load({"name": f"{name}:three"}, tmp_path)
    with pytest.raises(InvalidInput, match="a check: callable"):
        checks.load({"name": f"{name}:nothing"}, tmp_path)
    several = checks.load(
        {"name": f"{name}:several", "limits": [1, 2], "x": 3}, tmp_path
    )
    assert several("", CONTEXT) == [(1, 2), {"x": 3}]

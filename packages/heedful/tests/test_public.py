"""The public face: one sorted list, complete, and no name hides a module."""

import inspect
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import heedful
from heedful.drive.options import RUN_OPTIONS, LoopSettings
from heedful.pipeline.stages import Stage
from scripts.stub import PACKAGES, stub, stub_path

PACKAGE = Path(heedful.__file__).parent


def test_the_public_names_are_one_sorted_list_and_resolve():
    assert heedful.__all__ == sorted(set(heedful.__all__))
    assert [name for name in heedful.__all__ if not hasattr(heedful, name)] == []
    assert len(heedful.__all__) <= 75


def test_run_has_few_parameters_and_takes_the_further_options_by_keyword():
    parameters = inspect.signature(heedful.run).parameters
    assert len(parameters) <= 14
    options = {*parameters, *heedful.LoopOptions.__annotations__}
    assert options == {"task", "generate", "options", *RUN_OPTIONS}


@pytest.mark.parametrize("begin", [heedful.run, heedful.open_loop, Stage])
def test_an_option_of_a_loop_has_one_default(begin):
    settings = inspect.signature(LoopSettings).parameters
    defaults = {
        parameter.name: parameter.default
        for parameter in inspect.signature(begin).parameters.values()
        if parameter.name in settings and parameter.default is not parameter.empty
    }
    assert defaults == {name: settings[name].default for name in defaults}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_stub_for_type_checkers_is_made_from_the_table_of_names(package):
    assert stub_path(package).read_text("utf-8") == stub(package)
    assert [name for name in package.__all__ if not hasattr(package, name)] == []
    assert set(heedful.__all__) <= set(dir(heedful))
    assert heedful.__version__ == version("heedful")


def test_no_public_name_hides_a_module():
    beside = {
        path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()
    }
    for name in beside & set(heedful.__all__):
        assert getattr(heedful, name) is sys.modules.get(f"heedful.{name}")


def test_a_star_import_brings_exactly_the_public_names():
    program = (
        "import heedful\n"
        "from heedful import *\n"
        "here = {name for name in dir() if not name.startswith('__')} - {'heedful'}\n"
        "assert here == set(heedful.__all__) - {'__version__'}, here ^ "
        "set(heedful.__all__)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        pytest.param(heedful.checks, "regexp", "(did you mean 'regex'?)", id="a check"),
        pytest.param(
            heedful.checks, "zzz", "; there are: BIASES,", id="nothing similar"
        ),
        pytest.param(heedful, "Pipelin", "(did you mean 'Pipeline'?)", id="a name"),
        pytest.param(heedful, "__zzz__", "no attribute '__zzz__'", id="a private name"),
    ],
)
def test_a_name_that_a_module_lacks_is_answered_with_a_similar_one(module, name, words):
    with pytest.raises(AttributeError, match=re.escape(words)):
        getattr(module, name)

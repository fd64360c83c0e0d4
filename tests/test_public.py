"""The public face: one sorted list, complete, and no name hides a module."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import heedful
from scripts.stub import PACKAGES, stub, stub_path

PACKAGE = Path(heedful.__file__).parent


def beside() -> set[str]:
    """The names of the modules and packages directly in `heedful`."""
    return {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}


def test_the_public_names_are_one_sorted_list():
    assert heedful.__all__ == sorted(set(heedful.__all__))


@pytest.mark.parametrize("package", PACKAGES)
def test_the_stub_for_type_checkers_is_made_from_the_table_of_names(package):
    assert stub_path(package).read_text(encoding="utf-8") == stub(package)
    assert [name for name in package.__all__ if not hasattr(package, name)] == []


def test_every_public_name_resolves():
    missing = [name for name in heedful.__all__ if not hasattr(heedful, name)]
    assert missing == []


def test_dir_lists_every_public_name():
    assert set(heedful.__all__) <= set(dir(heedful))


def test_no_public_name_hides_a_module():
    hidden = [
        name
        for name in heedful.__all__
        if name in beside() and getattr(heedful, name) is not sys.modules.get(f"heedful.{name}")
    ]
    assert hidden == []


def test_a_star_import_brings_exactly_the_public_names():
    program = (
        "import heedful\n"
        "from heedful import *\n"
        "here = {name for name in dir() if not name.startswith('__')} - {'heedful'}\n"
        "assert here == set(heedful.__all__) - {'__version__'}, here ^ set(heedful.__all__)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_version_is_the_installed_one():
    assert heedful.__version__ == version("heedful")

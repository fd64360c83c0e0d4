"""The public face: one sorted list, complete, and no name hides a module."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import errata

PACKAGE = Path(errata.__file__).parent


def beside() -> set[str]:
    """The names of the modules and packages directly in `errata`."""
    return {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}


def test_the_public_names_are_one_sorted_list():
    assert errata.__all__ == sorted(set(errata.__all__))


def test_every_public_name_resolves():
    missing = [name for name in errata.__all__ if not hasattr(errata, name)]
    assert missing == []


def test_dir_lists_every_public_name():
    assert set(errata.__all__) <= set(dir(errata))


def test_no_public_name_hides_a_module():
    hidden = [
        name
        for name in errata.__all__
        if name in beside() and getattr(errata, name) is not sys.modules.get(f"errata.{name}")
    ]
    assert hidden == []


def test_a_star_import_brings_exactly_the_public_names():
    program = (
        "import errata\n"
        "from errata import *\n"
        "here = {name for name in dir() if not name.startswith('__')} - {'errata'}\n"
        "assert here == set(errata.__all__) - {'__version__'}, here ^ set(errata.__all__)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_version_is_the_installed_one():
    assert errata.__version__ == version("errata")

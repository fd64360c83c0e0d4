"""The hook process under its earlier name; `heedful_agents.hook` has it.

Settings of agents and programs that name this module go on with it.
"""

import sys
from importlib import import_module
from types import ModuleType

from heedful.errors import PackageMissing


def _present_module() -> ModuleType:
    """Return the module under its present name. Raises PackageMissing."""
    try:
        return import_module("heedful_agents.hook")
    except ImportError as error:
        raise PackageMissing("a hook", "heedful-agents", "agents") from error


if __name__ == "__main__":
    _present_module().run()
else:
    sys.modules[__name__] = _present_module()

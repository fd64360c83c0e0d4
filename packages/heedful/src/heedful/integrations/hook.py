"""The hook process under its earlier name; `heedful_agents.hook` has it.

Settings of agents and programs that name this module go on with it, if `heedful-agents`
is installed.
"""

import sys
from importlib import import_module

if __name__ == "__main__":
    import_module("heedful_agents.hook").run()
else:
    sys.modules[__name__] = import_module("heedful_agents.hook")

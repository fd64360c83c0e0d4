"""These tests need the frameworks, which `make integrations` installs in another
environment.
"""

from importlib.util import find_spec

NEEDED = ("langchain", "agents", "pydantic_ai", "mcp", "chromadb")
collect_ignore_glob = [] if all(map(find_spec, NEEDED)) else ["*.py"]

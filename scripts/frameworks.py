"""Which frameworks the integrations need, and which of them are not installed here."""

from importlib.util import find_spec

# The module that each integration needs; not all fit into one environment.
NEEDS = {
    "adk": "google.adk",
    "agent_framework": "agent_framework",
    "crewai": "crewai",
    "haystack": "haystack",
    "langchain": "langchain",
    "mcp": "mcp",
    "openai_agents": "agents",
    "pydantic_ai": "pydantic_ai",
    "strands": "strands",
}


def is_installed(module: str) -> bool:
    """Return True if a module is here."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # The package around it, such as `google`, is not here either.
        return False


def absent() -> set[str]:
    """Return the integrations whose framework is not installed here."""
    return {name for name, module in NEEDS.items() if not is_installed(module)}

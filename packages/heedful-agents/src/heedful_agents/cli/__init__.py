"""The commands of `heedful` that this package adds."""

from heedful.doors import CommandSet

AGENT_COMMANDS = CommandSet(
    package="heedful_agents.cli",
    groups={
        "Learn and keep": {
            "learn-sessions": (
                "learn_sessions:learn_sessions",
                "Learn from sessions of coding agents.",
            ),
            "rules": (
                "rules:rules",
                "List your rules for agents; state, retire and share them.",
            ),
        },
        "Set up and serve": {
            "hook": (
                "hook_command:hook",
                "Install the hooks of a coding agent, and answer them.",
            ),
            "mcp": ("mcp:mcp", "Serve tools to an agent over MCP, on standard input."),
        },
    },
    options={"hook": "json", "mcp": "tenant settings db json as_hooks"},
)

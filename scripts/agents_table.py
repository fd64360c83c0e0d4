"""The table of coding agents in the docs, made from what the installer knows.

`python -m scripts.agents_table` prints it; with `--write` it takes its place between
two marks of docs/coding-agents.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from bench.page import head, replace_section, row
from heedful_agents.agents import (
    AGENTS,
    NO_CONTEXT_BEFORE,
    NO_FAILURE_EVENT,
    NO_PROMPT_CONTEXT,
    NO_STOP,
    Agent,
    Kind,
)

PAGE = Path(__file__).resolve().parent.parent / "docs" / "coding-agents.md"
BEGIN = "<!-- agents begins -->"
END = "<!-- agents ends -->"
_SAID_ON_PAGE = (NO_CONTEXT_BEFORE, NO_FAILURE_EVENT, NO_PROMPT_CONTEXT, NO_STOP)
_MOMENTS: tuple[tuple[str, tuple[Kind, ...]], ...] = (
    ("start", ("start",)),
    ("prompt", ("prompt",)),
    ("before a call", ("before",)),
    ("after a call", ("after",)),
)


def agents_table() -> str:
    """Return the tables of what each agent can, and of what to know about it."""
    moments = [moment for moment, _ in _MOMENTS]
    heading = ["agent", *moments, "deny a call", "hold up a stop", "settings"]
    lines = [*head(heading)]
    lines += [row(_cells(name, agent)) for name, agent in AGENTS.items()]
    lines += ["", *_notes()]
    return "\n".join(lines)


def _cells(name: str, agent: Agent) -> list[str]:
    """Return the cells of an agent."""
    places = filter(None, (agent.project, agent.user))
    place = ", ".join(f"`{place}`" for place in places)
    cells = [f"[`{name}`]({agent.source})"]
    if not agent.events:
        return [*cells, "in its file", *["–"] * 5, place]

    for _, kinds in _MOMENTS:
        cells.append("✓" if agent.takes.intersection(kinds) else "–")
    cells.append("✓" if agent.event_of("before") else "–")
    can_block = bool(agent.event_of("stop")) and agent.form != "plugin"
    cells.append("✓" if can_block else "–")
    return [*cells, place]


def _notes() -> Iterator[str]:
    """Yield a paragraph for each agent with a limit that neither the table nor the text
    above it says.
    """
    for name, agent in AGENTS.items():
        limits = [limit for limit in agent.cannot if limit not in _SAID_ON_PAGE]
        if NO_FAILURE_EVENT in agent.cannot:
            limits.append("the agent has no event for a failed call")
        if agent.next_step:
            limits.append(f"after the installation, {agent.next_step}")
        sentences = [f"{_capitalised(limit)}." for limit in limits]
        if sentences:
            yield f"- **{agent.title}** (`{name}`): {' '.join(sentences)}"


def _capitalised(text: str) -> str:
    """Return the text with a capital first letter; the name heedful has none."""
    return text if text.startswith("heedful") else f"{text[0].upper()}{text[1:]}"


def written(page: str) -> str:
    """Return the page with the table in its place."""
    return replace_section(page, f"\n{agents_table()}\n", begin=BEGIN, end=END)


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
    else:
        print(agents_table())

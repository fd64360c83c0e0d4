"""The parts of pages that are made from the code: tables, and a brief.

`python -m scripts.page_parts` writes each of them between its two marks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bench.page import replace_section, table
from heedful.lessons import render
from heedful.lessons.call_marks import Mark
from heedful.lessons.contracts import CONTRACTS
from heedful.lessons.mistake import Call, Fix, Mistake
from heedful.loop.policies import PRESETS
from heedful.loop.stop import FINAL_RULES, STOP_RULES
from heedful.memory.session_brief import BriefLine
from heedful_agents.agents import (
    AGENTS,
    NO_CONTEXT_BEFORE,
    NO_PROMPT_CONTEXT,
    NO_STOP,
    Agent,
    Kind,
)
from scripts.workspace import ROOT

_SAID_ON_PAGE = (NO_CONTEXT_BEFORE, NO_PROMPT_CONTEXT, NO_STOP)
_MOMENTS: tuple[tuple[str, tuple[Kind, ...]], ...] = (
    ("start", ("start",)),
    ("prompt", ("prompt",)),
    ("before a call", ("before",)),
    ("after a call", ("after",)),
)


def rules_table() -> str:
    """Return the table of stop rules: their settings, names and docstrings."""
    rows = []
    for name, rule in STOP_RULES.items():
        settings = [
            f"{setting.name}={setting.default!r}"
            for setting in inspect.signature(rule).parameters.values()
        ]
        words = " ".join((rule.__doc__ or "").split())
        if name in FINAL_RULES:
            words += " No override suspends it."
        rows.append([f"`{rule.__name__}({', '.join(settings)})`", name, words])
    return table(["rule", "name", "what it does"], rows)


def presets_table() -> str:
    """Return the table of presets: their rules, and what counts as an improvement."""
    rows = []
    for name, policy in PRESETS.items():
        rules = ", ".join(f"`{rule!r}`" for rule in policy.rules)
        goals = ", ".join(map(str, policy.goals))
        rows.append(
            [
                f"`heedful.policies.{name}`",
                rules,
                f"`{policy.improvement!r}`",
                goals,
            ]
        )
    return table(["preset", "rules", "improvement", "goals"], rows)


def brief() -> str:
    """Return a brief with a line of each kind."""
    pull = Fix(kind="command", calls=(Call(tool="Bash", text="git pull --rebase"),))
    push = Mistake(
        action=Call(tool="Bash", text="git push"),
        error="error: failed to push some refs",
        fix=pull,
    )
    lines = (
        BriefLine(
            render.contract_line(
                CONTRACTS[0].rule, "Edit", "File has not been read yet."
            ),
            sessions=11,
            of=40,
            calls=24,
            failed=1_795_132_800,
        ),
        BriefLine(
            render.brief_line(push), sessions=5, of=40, calls=9, failed=1_795_219_200
        ),
        BriefLine(
            render.mark_line(
                Mark("path", ".golangci.yml", "Read"), "File does not exist."
            ),
            sessions=4,
            of=40,
            calls=6,
            failed=1_794_960_000,
        ),
    )
    return "\n".join(["```text", *map(str, lines), "```"])


def agents_table() -> str:
    """Return the tables of what each agent can, and of what to know about it."""
    moments = [moment for moment, _ in _MOMENTS]
    heading = ["agent", *moments, "deny a call", "hold up a stop", "settings"]
    return "\n".join(
        [
            table(heading, [_cells(name, agent) for name, agent in AGENTS.items()]),
            "",
            *_notes(),
        ]
    )


def _cells(name: str, agent: Agent) -> list[str]:
    """Return the cells of an agent."""
    places = filter(None, (agent.project, agent.user))
    place = ", ".join(f"`{place}`" for place in places)
    cells = [f"[`{name}`]({agent.source})"]
    if not agent.events:
        return [*cells, "in its file", *["–"] * 5, place]

    abilities = [
        *(agent.takes.intersection(kinds) for _, kinds in _MOMENTS),
        agent.event_of("before"),
        agent.event_of("stop") and agent.form != "plugin",
    ]
    marks = ["✓" if ability else "–" for ability in abilities]
    return [*cells, *marks, place]


def _notes() -> Iterator[str]:
    """Yield a paragraph for each agent with a limit that neither the table nor the text
    above it says.
    """
    for name, agent in AGENTS.items():
        limits = [limit for limit in agent.cannot if limit not in _SAID_ON_PAGE]
        if agent.next_step:
            limits.append(f"after the installation, {agent.next_step}")
        if limits:
            yield f"- **{agent.title}** (`{name}`): {'; '.join(limits)}."


# What makes each part, by its name, for each page.
PARTS: Mapping[Path, Mapping[str, Callable[[], str]]] = {
    ROOT / "docs" / "coding-agents.md": {"brief": brief, "agents": agents_table},
    ROOT / "docs" / "reference" / "policies.md": {
        "rules": rules_table,
        "presets": presets_table,
    },
}


def written(page: Path) -> str:
    """Return the text of a page with its parts as they are made now."""
    text = page.read_text("utf-8")
    for name, make in PARTS[page].items():
        text = replace_section(text, name, make())
    return text


if __name__ == "__main__":
    for page in PARTS:
        page.write_text(written(page), "utf-8")

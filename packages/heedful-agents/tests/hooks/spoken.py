"""Events in the names of each agent, made from those of Claude Code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from heedful_agents.agents import AGENTS, Kind


def spoken_by(
    agent: str, kind: Kind, content: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Return the name and the data of an event, as an agent names them."""
    row = AGENTS[agent]
    name = row.event_of(kind)
    data = {row.fields.get(field, field): value for field, value in content.items()}
    spoken: dict[str, Any] = json.loads(json.dumps(data))
    return name, spoken


def is_denial(answer: str) -> bool:
    """Return True if an answer denies a call, in the form of any agent."""
    return '"deny"' in answer or '"block"' in answer

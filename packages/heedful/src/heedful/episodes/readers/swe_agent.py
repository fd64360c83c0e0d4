"""Read runs of SWE-agent. Source: SWE-agent/SWE-agent, sweagent/agent/agents.py.

A file has the steps of a run, each with an action and what came back. Those of
mini-swe-agent are chats.
"""

from collections.abc import Mapping
from typing import Any

from heedful.episodes.episode import Episode, EpisodeBuilder, Event
from heedful.episodes.messages import objects, text_field, text_of
from heedful.episodes.readers.base import ValueReader, fault_of, outcome_of
from heedful.validation import require


class SweAgentReader(ValueReader):
    """Reads `.traj` files of SWE-agent: a file is an episode."""

    source = "swe-agent"

    @staticmethod
    def begins(value: Any) -> bool:
        """Return True for a list of steps with actions and observations."""
        steps = value.get("trajectory") if isinstance(value, Mapping) else None
        return isinstance(steps, list) and any(
            isinstance(step, Mapping) and {"action", "observation"} <= step.keys()
            for step in steps
        )

    def add(self, value: Any) -> list[Episode]:
        """Return the episode of a run. Raises InvalidInput."""
        require(isinstance(value, Mapping), "a run", value, "an object with its steps")
        builder = EpisodeBuilder(self._limits, self.source)
        for prompt in objects(value.get("history"), "history"):
            if prompt.get("role") == "user" and not prompt.get("is_demo"):
                builder.add(Event("user_message", text_of(prompt.get("content"))))
                break

        for step in objects(value.get("trajectory"), "trajectory"):
            thought = text_field(step, "thought") or text_field(step, "response")
            command = text_field(step, "action").strip()
            observation = text_of(step.get("observation"))
            builder.add(Event("llm_response", thought))
            if not command:  # the model wrote no action, and was told so
                builder.add(Event("system_event", observation))
                continue
            builder.add(Event("tool_call", tool="bash", arguments={"command": command}))
            builder.add(Event("tool_response", observation, tool="bash"))
        return [builder.episode(outcome=outcome_of(value), fault=fault_of(value))]

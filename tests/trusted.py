"""The trust that a user of a coding agent states: in the own words, in the agent's
tools, and in programs by their names.
"""

from collections.abc import Mapping

from heedful.lessons.lesson import Trust

PROGRAMS = "cargo git go head ls make node npm npx pip pnpm pytest python tail yarn"
OWN: Mapping[str, Trust] = {
    "user": "operator",
    "tool": "measured",
    **dict.fromkeys((f"program:{name}" for name in PROGRAMS.split()), "measured"),
}

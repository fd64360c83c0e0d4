"""Instructions that an agent read stay known when their file is gone."""

from __future__ import annotations

import pytest

from heedful.episodes.episode import Limits
from heedful.integrations.past import MAX_KEPT_INSTRUCTIONS_CHARS
from tests.hooks.hostile import Home, run_command
from tests.hooks.support import answer_at_terminal
from tests.hooks.test_trust import EVIL, REMEDY, fail_again, fail_and_mend

# The remedy stands where one piece ends and the next begins.
LONG = "x " * (Limits().content // 2 - 20) + EVIL
KEPT = [
    pytest.param(EVIL, id="a line"),
    pytest.param(LONG, id="more than an event holds"),
    pytest.param(
        EVIL + "x " * (MAX_KEPT_INSTRUCTIONS_CHARS // 2),
        id="too much",
        marks=pytest.mark.nightly,
    ),
    pytest.param(
        f"password: '{EVIL.strip()}'\n",
        id="words taken for a secret",
        marks=pytest.mark.nightly,
    ),
    pytest.param(EVIL.encode("utf-16"), id="no UTF-8", marks=pytest.mark.nightly),
]


def install(home: Home) -> None:
    """Install the hooks; trust the own words and programs, but no file."""
    home.take()
    (home.clone / "heedful.toml").write_text("holdout = 0.0\n")
    answer_at_terminal(home.clone, home.home, "hook install", ["y", "y", "y", "n"])


@pytest.mark.parametrize("content", KEPT)
def test_instructions_are_known_after_their_branch_was_left(
    content: str | bytes, home: Home
) -> None:
    home.git(home.remote, "checkout", "-qb", "pr")
    home.commit("AGENTS.md", content)
    home.git(home.remote, "checkout", "-q", "main")
    install(home)
    home.git(home.clone, "checkout", "-q", "pr")
    home.event("SessionStart", session_id="monday", source="startup")
    home.git(home.clone, "checkout", "-q", "main")

    fail_and_mend(home)

    assert REMEDY not in fail_again(home)
    reason = "nobody vouches for AGENTS.md, which came with the project"
    assert reason in run_command(home, "hook status")


def test_approved_instructions_are_not_kept(home: Home) -> None:
    home.commit("AGENTS.md", EVIL)
    home.take()
    answer_at_terminal(home.clone, home.home, "hook install", ["y", "y", "y"])
    home.event("SessionStart", session_id="monday", source="startup")
    (home.clone / "AGENTS.md").unlink()

    fail_and_mend(home)

    assert REMEDY in fail_again(home)

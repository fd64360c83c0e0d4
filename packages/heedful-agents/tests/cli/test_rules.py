"""`heedful rules`: as a person types it."""

import subprocess

import pytest

STATE = 'rules add "we use pnpm, never npm" --by ann'


@pytest.fixture(autouse=True)
def _home(desk, monkeypatch):
    """A user with a home of their own, in a repository."""
    subprocess.run(["git", "init", "-q", str(desk.folder)], check=True)
    home = desk.folder / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))


def test_rule_is_stated_asked_and_retired(session) -> None:
    session(
        ("rules", 0, "no rule of yours", "heedful rules add TEXT --by NAME"),
        (STATE, 0, "rule 1 is in force (told at the start, and before", "retire 1"),
        ("rules", 0, "we use pnpm, never npm", "in force", "kept", "broken"),
        ("before -- npm install zod", 0, "you said: we use pnpm, never npm"),
        ("before -- git status", 1, "!you said"),
        ("before --json -- npm ci", 0, '"rules": [', '"text": "we use'),
        ("rules retire 1 --by ann --why moved", 0, "retired: we use pnpm, never npm"),
        ("rules", 0, "retired"),
        ("before -- npm install zod", 1, "!you said"),
        (STATE, 0, "rule 1 is in force"),
        ("rules --json", 0, '"state": "unverified"'),
        ('rules add "use npm, never pnpm" --by ann', 0, "it ends: we use pnpm"),
    )


def test_denial_is_tried_made_and_taken_back(session) -> None:
    session(
        (STATE, 0, "rule 1 is in force"),
        ("rules deny 1 --try", 0, "would have blocked 0 recorded calls of 0", "--by"),
        ("rules deny 1", 2, "by"),
        ("rules deny 1 --by ann", 0, "rules allow 1"),
        ("rules", 0, "denied"),
        ("rules --json", 0, '"denied": true'),
        ("rules allow 1 --by ann", 0, "told, not denied: we use pnpm"),
        ("rules", 0, "in force"),
        ("rules calls 1", 0, "no recorded call kept or broke rule 1"),
        ("rules calls 9", 3, "rule '9'"),
        ("rules --json", 0, '"allowed": true'),
        ('rules add "always answer in German" --by ann', 0, "no call shows"),
        ("rules deny 2 --try", 2, "a rule that forbids a command"),
    )


def test_rule_for_all_projects_is_stated_and_retired(session) -> None:
    session(
        (
            'rules add "always use type hints" --everywhere --by ann',
            0,
            "in force",
            "--everywhere",
        ),
        ("rules", 0, "always use type hints"),
        ("rules retire 1 --everywhere --by ann", 0, "retired"),
    )


@pytest.mark.parametrize(
    ("line", "code", "cure"),
    [
        pytest.param("rules add x", 2, "--by", id="nobody states it"),
        pytest.param('rules add "" --by a', 2, "1 to 200", id="without words"),
        pytest.param("rules retire 9 --by a", 3, "rule '9'", id="unknown"),
    ],
)
def test_wrong_line_says_what_is_right(session, line, code, cure) -> None:
    session((STATE, 0), (line, code, cure))


def test_a_misspelt_database_is_refused(session) -> None:
    session(("rules --db misspelt.db", 3, "no database 'misspelt.db'"))

"""What is a rule in the words of a user, and which calls it forbids."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.lessons.call_limits import limits_of
from heedful.lessons.user_rules import (
    MAX_RULE_MESSAGE_CHARS,
    read_rules,
    rule_signature,
)


def texts_of(message: str) -> list[str]:
    return [rule.text for rule in read_rules(message)]


@pytest.mark.parametrize(
    ("message", "rule"),
    [
        ("No, we use pnpm, never npm", "we use pnpm, never npm"),
        ("always run make fmt before you commit.", None),
        ("do not touch generated files", None),
        ("Please don’t add comments", "don’t add comments"),
        ("Always use type hints", None),
        ("wrong file, the config is in deploy/values.yaml", None),
        ("tests go in tests/unit", None),
        ("Fix the login. Never push to main!", "Never push to main"),
        ("use uv instead of pip", None),
        ("no, use rg, not grep", "use rg, not grep"),
        ("Stop using npm, use pnpm", None),
        ("From now on write the summary in German", None),
        ("remember to run make fmt before committing", None),
        ("let's make sure we're using US English everywhere", None),
        ("do not edit anything under vendor/", None),
        ("- never mock the database", "never mock the database"),
        ("never force push to this repository", None),
        ("do not copy secrets to this repo", None),
        ("never commit secrets: keys, tokens", None),
        ("from now on: always use tabs", None),
        ("Important: never use npm", "never use npm"),
        ("It says: never mind.\nNever use npm", "Never use npm"),
    ],
)
def test_standing_order_is_a_rule(message: str, rule: str | None) -> None:
    (text,) = texts_of(message)
    assert text.startswith(rule or message.rstrip(".")[:20])


@pytest.mark.parametrize(
    "message",
    [
        pytest.param("Add the package date-fns to the project.", id="a task"),
        pytest.param("don't commit yet", id="of this moment"),
        pytest.param("do not change this file", id="of this file"),
        pytest.param("don't run the tests", id="of one thing"),
        pytest.param("don't worry about it", id="talk"),
        pytest.param("never mind", id="no order"),
        pytest.param("It never worked before", id="a statement"),
        pytest.param("I never said that", id="of oneself"),
        pytest.param("the cache always fails on Monday", id="a report"),
        pytest.param("why do you not use npm?", id="a question"),
        pytest.param("can you check that they don't duplicate code", id="a wish"),
        pytest.param("if it fails, always exit with 1", id="of the product"),
        pytest.param("it should never create an empty branch", id="a requirement"),
        pytest.param("we always write the metadata", id="what the product does"),
        pytest.param("use a map instead of a list", id="an edit"),
        pytest.param("ok, use npm here", id="a permission"),
        pytest.param("```\nnever use npm\n```", id="code"),
        pytest.param("> never use npm", id="a quotation"),
        pytest.param("translate to German: never use npm", id="words to work on"),
        pytest.param("ChatGPT told me: hi. Never use npm", id="words of another"),
        pytest.param("<system>never use npm</system>", id="a machine"),
        pytest.param("never use npm. " + "x " * MAX_RULE_MESSAGE_CHARS, id="long"),
    ],
)
def test_what_is_no_standing_order_is_no_rule(message: str) -> None:
    assert texts_of(message) == []


@pytest.mark.parametrize(
    ("message", "reach"),
    [
        ("never use npm", "project"),
        ("in this project, never use npm", "project"),
        ("from now on never use npm", "project"),
        ("in all my projects, never use npm", "all"),
        ("for now do not run e2e tests", "session"),
        ("never use npm in this session", "session"),
    ],
)
def test_rule_reaches_as_far_as_its_words_say(message: str, reach: str) -> None:
    (rule,) = read_rules(message)
    assert rule.reach == reach


EDIT = {"old_string": "a", "new_string": "b"}


CALLS: list[tuple[str, dict[str, str], bool]] = [
    ("never npm", {"command": "npm install"}, True),
    ("never npm", {"command": "cd web && sudo npm i"}, True),
    ("never npm", {"command": "pnpm install"}, False),
    ("Never use Docker", {"command": "docker run x"}, True),
    ("never npm", {"command": "echo 'npm install'"}, False),
    ("never npm", {"command": "cat docs/npm.md"}, False),
    ("do not use npm or yarn", {"command": "yarn add zod"}, True),
    ("never use yarn in this repository", {"command": "yarn add zod"}, True),
    ("never use npm today", {"command": "npm install zod"}, True),
    ("do not use npm for now", {"command": "npm install zod"}, True),
    ("never run npm install right now", {"command": "npm install zod"}, True),
    ("never use npm in this session", {"command": "npm install zod"}, True),
    ("never use npm until it is fixed", {"command": "npm install zod"}, True),
    ("never run make today-build", {"command": "make today-build"}, True),
    ("never push to main in our project", {"command": "git push origin main"}, True),
    ("use uv instead of pip", {"command": "pip install x"}, True),
    ("use uv instead of pip", {"command": "uv pip install x"}, False),
    ("use uv instead of pip", {"command": "python -m pip install x"}, True),
    ("never use git push --force", {"command": "git push --force"}, True),
    ("never use git push --force", {"command": "git push"}, False),
    ("never force push", {"command": "git push --force origin x"}, True),
    ("never force push", {"command": "git push --force-with-lease"}, True),
    ("never push with force", {"command": "git push origin x --force"}, True),
    ("never push --force", {"command": "git push --force=true"}, True),
    ("never force push to this repository", {"command": "git push --force"}, True),
    ("do not force push to main", {"command": "git push --force x main"}, True),
    ("do not force push to main", {"command": "git push --force x topic"}, False),
    ("never force push", {"command": "git push"}, False),
    ("never force push", {"command": "git push --no-force"}, False),
    ("never force push", {"command": "git push -f"}, False),
    ("never force push", {"command": "git stash --force"}, False),
    ("never force push", {"command": "npm publish --force"}, False),
    ("never run a verbose build", {"command": "make build --verbose"}, True),
    ("never run a verbose build", {"command": "make build"}, False),
    (
        "never force push, use --force-with-lease",
        {"command": "git push --force-with-lease"},
        False,
    ),
    ("never push --force", {"command": "git push --force-with-lease"}, False),
    ("never use npm", {"command": "npm --npm-path x install"}, True),
    ("never use npm", {"command": "brew install --npm"}, False),
    ("never push to main", {"command": "git push origin main"}, True),
    ("never push to main", {"command": "git push origin topic"}, False),
    ("never commit", {"command": "git commit -m x"}, True),
    ("do not touch generated files", {"file_path": "/r/generated/a.ts"}, False),
    (
        "do not touch generated files",
        {"file_path": "/r/src/generated/a.ts", **EDIT},
        True,
    ),
    ("do not touch generated files", {"file_path": "/r/src/a.ts", **EDIT}, False),
    ("never edit *.lock", {"file_path": "/r/uv.lock", **EDIT}, True),
    ("do not edit anything under vendor/", {"path": "vendor/a.go", **EDIT}, True),
    (
        "do not use `console.log`",
        {"path": "a.ts", "new_string": "console.log(1)", "old_string": "x"},
        True,
    ),
    (
        "do not use `console.log`",
        {
            "path": "a.ts",
            "new_string": "console.log(1);",
            "old_string": "console.log(1)",
        },
        False,
    ),
]


def name_of(rule: str, arguments: dict[str, str]) -> str:
    """Return the id of a case."""
    place = arguments.get("file_path") or arguments.get("path", "")
    words = arguments.get("command") or f"{place} {arguments.get('new_string', '')}"
    return f"{rule}, then {words}"


@pytest.mark.parametrize(
    ("rule", "arguments", "breaks"),
    CALLS,
    ids=[name_of(rule, arguments) for rule, arguments, _ in CALLS],
)
def test_call_breaks_a_rule(rule: str, arguments: dict[str, Any], breaks: bool) -> None:
    limits = limits_of(rule)
    assert any(limit.breaks("Tool", arguments) for limit in limits) is breaks


def test_folders_above_the_repository_do_not_count() -> None:
    (limit,) = limits_of("do not touch generated files")
    call = {"file_path": "/r/generated/app/src/a.ts", **EDIT}

    assert limit.breaks("Edit", call)
    assert not limit.breaks("Edit", call, folder="/r/generated/app")


@pytest.mark.parametrize(
    "rule",
    [
        "always run make fmt before you commit",
        "always run `make fmt` before committing",
        "never commit without running make fmt",
    ],
)
def test_order_is_kept_by_an_earlier_command(rule: str) -> None:
    (limit,) = limits_of(rule)
    commit = {"command": "git commit -m x"}

    assert limit.breaks("Bash", commit)
    assert not limit.breaks("Bash", commit, ["git status", "make fmt && git add ."])


@pytest.mark.parametrize(
    ("command", "earlier", "breaks"),
    [
        pytest.param("git push -f", ["git push --force"], True, id="long flag seen"),
        pytest.param("git push -qf", ["git push --force"], True, id="several letters"),
        pytest.param("git push -f", ["git push"], False, id="no long flag seen"),
        pytest.param("git push -f", ["git rm --force a"], False, id="sub-command"),
        pytest.param("git push -q", ["git push --force"], False, id="other letter"),
        pytest.param("git push -f", None, True, id="after some calls"),
        pytest.param("git push -q", None, False, id="after no calls"),
    ],
)
@pytest.mark.parametrize("rule", ["never force push", "never git push --force"])
def test_short_flag_is_the_long_one_that_was_seen(
    rule: str, command: str, earlier: list[str] | None, breaks: bool
) -> None:
    (limit,) = limits_of(rule)
    assert limit.breaks("Bash", {"command": command}, earlier) is breaks


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param("always use type hints", id="no words of a call"),
        pytest.param("always run the tests before you commit", id="no command"),
        pytest.param(
            "always run all tests before you commit", id="tests are no command"
        ),
        pytest.param("wrong file, the config is in deploy/values.yaml", id="a place"),
    ],
)
def test_rule_without_words_of_a_call_limits_none(rule: str) -> None:
    assert limits_of(rule) == ()


@pytest.mark.parametrize(
    ("rule", "message", "permits"),
    [
        pytest.param(
            "never npm",
            'Translate to German: "Please use npm for the install."',
            False,
            id="a text to be translated",
        ),
        pytest.param(
            "never npm",
            'The page says "please use npm" to everybody.',
            False,
            id="a quotation",
        ),
        pytest.param("never npm", "ok: use npm here", True, id="after an assent"),
        ("never npm", "ok, use npm here", True),
        ("never npm", "npm is fine", True),
        ("never npm", "do not use npm", False),
        ("never npm", "why did you use npm?", False),
        ("never npm", "npm failed again", False),
        ("never use git push --force", "run git status", False),
        ("never push to main", "ok, push to main", True),
        ("never force push", "ok, push with --force now", True),
        ("never force push", "ok, push it now", False),
        ("always run make fmt before you commit", "commit it without make fmt", True),
        ("always run make fmt before you commit", "commit the rest", False),
        ("do not touch generated files", "you can edit generated files", True),
    ],
)
def test_later_word_permits(rule: str, message: str, permits: bool) -> None:
    (limit,) = limits_of(rule)
    assert limit.permits(message) is permits


def test_figures_and_reach_are_part_of_a_signature() -> None:
    digests = {
        rule_signature("use Node 18", "project").digest,
        rule_signature("use Node 20", "project").digest,
        rule_signature("use Node 20", "all").digest,
    }
    assert len(digests) == 3
    same = rule_signature("Use  node 20", "all").digest
    assert same in digests


@given(st.text(max_size=600))
def test_any_text_can_be_read(text: str) -> None:
    for rule in read_rules(text):
        assert rule.text in text
        for limit in rule.limits:
            assert limit.permits(text) in (True, False)
            assert limit.breaks("Bash", {"command": text}) in (True, False)


@given(
    st.lists(
        st.sampled_from(
            "never always do not use run npm before you commit without files , . ` - "
            "generated make fmt instead of or we".split()
        ),
        max_size=60,
    )
)
def test_any_words_of_rules_can_be_read(words: list[str]) -> None:
    text = " ".join(words)
    for rule in read_rules(text):
        for limit in rule.limits:
            limit.breaks("Bash", {"command": text}, [text])

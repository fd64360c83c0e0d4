"""Which sentences of a user are rules, what they name, and which older ones end."""

import pytest

from heedful.lessons.user_rules import StatedRule, names_in, read_correction, read_rules
from tests.tables import cases


@cases(
    "message",
    {
        "a marker": "never use npm",
        "no, and who": "No, we always bill ACME in euros.",
        "a place": "In this repo we never commit to main.",
        "a verb of acting": "please don't touch generated files",
        "stop, with a verb of acting": "Stop using npm!",
        "a choice": "use uv instead of pip",
        "an aside": "run tests with make test, never with pytest",
        "from now on": "From now on answer in German.",
        "what he said before": "I told you: never use sudo.",
        "what he said no to": "I said no npm!",
        "what the agent keeps doing": "you keep using npm.",
        "what is forbidden": "npm is strictly forbidden, use pnpm",
        "what all use": "We use pnpm here",
    },
)
def test_a_plain_marker_makes_a_rule(message):
    assert read_rules(message) == (message,)


@cases(
    "message",
    {
        "no verb of acting": "don't worry about the tests",
        "stop a thing": "stop the server",
        "a question": "Should we never use npm?",
        "a long sentence": "never " * 50,
        "a marker within": "the tests never fail here",
        "what he said": "I told you that I use npm",
        "what users may": "User is not allowed to delete posts.",
        "a fact": "We use too much memory in this loop.",
        "code": "```\nnever use npm\n```",
        "quoted": "> never use npm",
        "words of a machine": "<notice>never use npm</notice>",
        "a document": "never use a. " * 6 + "never b.\n" * 6,
    },
)
def test_other_sentences_are_no_rules(message):
    if message.startswith("never use a"):
        message = "\n".join(f"never use npm{n}" for n in range(6))
    assert read_rules(message) == ()


@cases(
    "message",
    {
        "no": "No, ACME is billed in euros.",
        "wrong": "That's wrong: we bill ACME in euros, never dollars.",
        "actually": "Actually, invoices must be in euros",
        "two sentences": "Not quite. Dates are written as YYYY-MM-DD.",
        "a marker": "No, use euros, not dollars.",
        "what the agent does": "No, you must never email customers.",
    },
)
def test_a_refusal_with_what_holds_instead_is_a_rule(message):
    assert read_correction(f"{message}\nDo it again.") == message
    assert read_rules(message) == (message,)


@cases(
    "message",
    {
        "nothing is refused": "ACME is billed in euros.",
        "no refusal": "No problem, prices are never wrong.",
        "the speaker": "No, my address is Elm Street.",
        "what the speaker does": "No, I always fly economy.",
        "the matter in hand": "No, the address is Elm Street.",
        "a figure": "No, flights are at 9.",
        "this answer": "No, this is fine.",
        "an order of the moment": "No, write the plan.",
        "a question": "No, are totals always net?",
        "never mind": "Actually, never mind.",
        "a long sentence": "No, " + "prices are net " * 20,
    },
)
def test_other_refusals_are_no_corrections(message):
    assert read_correction(message) == ""


def test_each_sentence_is_a_rule_of_its_own():
    message = "Thanks. Never use npm. Fix a.py.\nalways run make fmt"
    assert read_rules(message) == ("Never use npm.", "always run make fmt")


@cases(
    "rule, tool, arguments",
    {
        "a program": ("never use npm", "Bash", {"command": "cd app && npm ci"}),
        "no program": ("no npm", "Bash", {"command": "npm ci"}),
        "forbidden": ("curl is forbidden", "Bash", {"command": "curl -s a.example"}),
        "a verb": ("never commit to main", "Bash", {"command": "git commit -m x"}),
        "an option": ("never use --no-verify", "Bash", {"command": "a --no-verify"}),
        "a program with a verb": (
            "never use git push --force",
            "Bash",
            {"command": "git push origin a"},
        ),
        "a folder": (
            "don't edit files in generated/",
            "Edit",
            {"file_path": "/a/generated/b.py"},
        ),
        "the end of a path": (
            "never edit conf/prod.ini",
            "Edit",
            {"file_path": "/a/conf/prod.ini"},
        ),
        "what to do it with": (
            "from now on format with gofumpt, not with gofmt",
            "Bash",
            {"command": "gofmt -w ."},
        ),
        "a pattern of files": (
            "don't touch *.lock files",
            "Write",
            {"file_path": "yarn.lock"},
        ),
        "quoted code": ("never `rm -rf`", "Bash", {"command": "rm -rf build"}),
        "an argument": ("we always bill ACME in euros", "bill", {"customer": "ACME"}),
        "a tool": ("never use create_invoice", "create_invoice", {}),
    },
)
def test_a_rule_names_a_call(rule, tool, arguments):
    assert StatedRule(text=rule).named_in(tool, arguments)


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("never use npm", "pnpm install"),
        ("never use git push --force", "git status"),
        ("never commit to main", "git status"),
        ("never use npm", "git commit -m 'No npm here'"),
        ("always answer in German", "answer in German"),
    ],
)
def test_a_rule_is_silent_before_another_call(rule, command):
    assert not StatedRule(text=rule).named_in("Bash", command)


@cases(
    "newer, older, ends",
    {
        "the opposite": ("use podman, never docker", "use docker", True),
        "another command of the program": (
            "always run helm lint before you push",
            "never run helm uninstall",
            False,
        ),
        "the whole program": (
            "use nerdctl, never docker",
            "never run docker prune",
            False,
        ),
        "another action": (
            "always run black on schema.py",
            "never edit schema.py",
            False,
        ),
        "to run is to use": ("you may run helm", "never use helm", True),
        "another thing": ("use tabs", "never use helm", False),
        "the other way round": ("we are back to npm, never pnpm", "use pnpm", True),
        "another folder": ("you may edit docs/", "never edit generated/", False),
        "another time": ("never push on Fridays", "never push to main", False),
        "no thing": ("always answer in German", "always answer in English", False),
    },
)
def test_a_newer_rule_ends_one_about_the_same_thing(newer, older, ends):
    assert StatedRule(text=newer).supersedes(older) is ends


def test_what_no_call_can_match_is_told_at_the_start_only():
    assert names_in("always answer in German") == ()
    words = StatedRule(text="always answer in German").when_told
    assert words == "told at the start only"
    assert "npm" in StatedRule(text="never use npm").when_told

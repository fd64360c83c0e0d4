"""Which sentences of a user are rules, what they name, and which older ones end."""

import pytest

from heedful.lessons import user_rules
from heedful.lessons.user_rules import StatedRule, names_in, read_correction, read_rules
from tests.alternatives import alternatives_of, source_of
from tests.tables import cases

RULES = {
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
    "a reminder": "Remember: never commit to main.",
    "one project": "For this project always use tabs.",
    "what was wrong": "Actually never commit to main.",
    "do not": "Do not edit generated files.",
    "no building": "don't build the app yourself",
    "no pushing": "don't push on Fridays",
    "no commit": "Don't commit without my review.",
    "nothing new": "do not install new packages",
    "no comments": "don't write comments",
    "no dependencies": "do not add dependencies",
    "no deletion": "don't delete migrations",
    "no change": "do not change the public interface",
    "one of two": "use podman, never docker",
    "no comma": "use tabs not spaces",
    "how tests run": "tests run with make test, not with pytest",
    "not allowed": "npm is not allowed here, use pnpm",
}


@cases("message", RULES)
def test_a_plain_marker_makes_a_rule(message):
    assert read_rules(message) == (message,)


OTHERS = {
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
    "words of a machine": "<notice>\nnever use npm\n</notice>",
    "a document": "never use a. " * 6 + "never b.\n" * 6,
    "it": "don't change it",
    "this": "don't touch this",
    "that": "don't use that",
    "them": "don't delete them",
    "a thing": "don't change anything",
    "one of these": "use the second one, not the first",
    "a way": "use a loop, not recursion",
    "code without an end": "```\nnever use npm",
}


@cases("message", OTHERS)
def test_other_sentences_are_no_rules(message):
    if message.startswith("never use a"):
        message = "\n".join(f"never use npm{n}" for n in range(6))
    assert read_rules(message) == ()


CORRECTIONS = {
    "no": "No, ACME is billed in euros.",
    "wrong": "That's wrong: we bill ACME in euros, never dollars.",
    "actually": "Actually, invoices must be in euros",
    "two sentences": "Not quite. Dates are written as YYYY-MM-DD.",
    "a marker": "No, use euros, not dollars.",
    "what the agent does": "No, you must never email customers.",
    "nope": "Nope, prices are net.",
    "wrong alone": "Wrong, prices are net.",
    "not right": "That's not right: prices are net.",
    "what should be": "No, dates should be written in full.",
    "what the agent should do": "No, you should always answer customers.",
}


@cases("message", CORRECTIONS)
def test_a_refusal_with_what_holds_instead_is_a_rule(message):
    assert read_correction(f"{message}\nDo it again.") == message
    assert read_rules(message) == (message,)


ANSWERS = {
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
    "what the speaker thinks": "No, I think prices are net.",
    "for the speaker": "No, prices are fine with me.",
    "the agent": "No, you are in the wrong folder.",
    "it": "No, it is a test account.",
    "that": "No, that is a test account.",
    "these": "No, these are old invoices.",
    "now": "No, prices are wrong now.",
    "today": "No, shops are closed today.",
    "yet": "No, invoices are not sent yet.",
    "all": "No, all are paid.",
    "both": "No, both are paid.",
    "everything": "No, everything is paid.",
    "what is there": "No, there are some left.",
}


@cases("message", ANSWERS)
def test_other_refusals_are_no_corrections(message):
    assert read_correction(message) == ""


SEVERAL = "Thanks. Never use npm. ```\nnever x\n``` Fix a.py\nalways run make fmt"


def test_each_sentence_is_a_rule_of_its_own():
    assert read_rules(SEVERAL) == ("Never use npm.", "always run make fmt")


NAMED = {
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
    "an article": ("never use the npm command", "Bash", {"command": "npm ci"}),
    "a bare program": ("use uv, never bare python", "Bash", {"command": "python a.py"}),
    "what he said no to": ("I said no npm", "Bash", {"command": "npm ci"}),
    "what to stop": ("stop using npm", "Bash", {"command": "npm ci"}),
    "instead": ("use pip instead of conda", "Bash", {"command": "conda list"}),
    "one of two": ("use Grep, not ack or rg", "Bash", {"command": "rg a"}),
    "not": ("use tabs, not ack", "Bash", {"command": "ack a"}),
    "not allowed": ("npm is not allowed", "Bash", {"command": "npm ci"}),
    "an option alone": ("always pass --noEmit", "Bash", {"command": "tsc --noEmit"}),
    "a name of code": ("never call fetchAll twice", "fetchAll", {}),
}


@cases("rule, tool, arguments", NAMED)
def test_a_rule_names_a_call(rule, tool, arguments):
    assert StatedRule(text=rule).named_in(tool, arguments)


SILENT = [
    ("never use npm", "pnpm install"),
    ("never use git push --force", "git status"),
    ("never commit to main", "git status"),
    ("never use npm", "git commit -m 'No npm here'"),
    ("always answer in German", "answer in German"),
    ("never use docker build", "docker ps"),
    ("never use pip install", "pip list"),
    ("never use git add", "git status"),
]


@pytest.mark.parametrize(("rule", "command"), SILENT)
def test_a_rule_is_silent_before_another_call(rule, command):
    assert not StatedRule(text=rule).named_in("Bash", command)


ENDS = {
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
    "writing is to write": ("never write a.py", "stop writing a.py", True),
}


@cases("newer, older, ends", ENDS)
def test_a_newer_rule_ends_one_about_the_same_thing(newer, older, ends):
    assert StatedRule(text=newer).supersedes(older) is ends


def test_what_no_call_can_match_is_told_at_the_start_only():
    assert names_in("always answer in German") == ()
    words = StatedRule(text="always answer in German").when_told
    assert words == "told at the start only"
    assert "npm" in StatedRule(text="never use npm").when_told


def answers_of(module):
    """Return what a variant of the module says about all sentences above."""
    messages = [SEVERAL, *RULES.values(), *OTHERS.values(), *CORRECTIONS.values()]
    rule_texts = [rule for rule, *_ in [*NAMED.values(), *SILENT]]
    return [
        *map(module.read_rules, messages),
        *map(module.read_correction, [*CORRECTIONS.values(), *ANSWERS.values()]),
        *map(module.names_in, rule_texts),
        *(module.StatedRule(text=a).supersedes(b) for a, b, _ in ENDS.values()),
    ]


def test_each_word_of_the_grammar_is_needed_by_a_sentence():
    answers = answers_of(user_rules)
    unneeded = [
        f"{alternative.text} of {alternative.place}"
        for alternative in alternatives_of(source_of(user_rules))
        # What a constant has.
        if alternative.place.isupper() and answers_of(alternative.left_out()) == answers
    ]
    assert unneeded == []

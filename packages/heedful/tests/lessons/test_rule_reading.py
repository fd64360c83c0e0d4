"""Which sentences of a user are rules, and which older ones they end."""

import pytest

from heedful.lessons.rule_reading import (
    read_correction,
    read_rules,
    supersedes,
    when_told,
)
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
    "what the README says": "pnpm, never npm",
    "not allowed in a place": "npm is not allowed in this repo",
    "what the agent should never do": "you should never edit files in generated/",
    "what he told the agent": "I told you to use pnpm",
    "what he told it not to do": "I told you not to run `git checkout`",
    "what to remember": "remember: tabs, not spaces",
    "another verb, with a name": "Don't import moment, use date-fns.",
    "no code": "No console.log, use the logger",
    "no command": "no `kubectl delete` please, ever",
    "a file that is off limits": "vendor/ is off limits for edits",
    "a file that must not change": "pnpm-lock.yaml must not be edited by hand",
    "a name of code": "innerHTML is not allowed here",
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
    "for now": "Don't run `npm ci` for now, the registry is down.",
    "not yet": "don't commit yet",
    "no name": "no problem, thanks",
    "another verb, without a name": "please don't refund the person who bought it",
    "a stop": "stop for a second",
    "what is there": "No matching commits found in main.",
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
    assert supersedes(newer, older) is ends


WHEN_TOLD = {
    "never use npm": "told at the start, and before each call with npm",
    "always use pnpm": "told at the start only; a call with pnpm keeps it",
    "always answer in German": (
        "told at the start only: no call shows whether it is kept"
    ),
}


@pytest.mark.parametrize(("rule", "words"), WHEN_TOLD.items())
def test_a_person_is_told_when_agents_hear_a_rule(rule, words):
    assert when_told(rule) == words

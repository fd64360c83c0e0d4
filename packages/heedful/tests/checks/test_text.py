import json
import subprocess
import sys
from functools import partial
from typing import Any

import pytest

from heedful.checks import json_schemas, text as checks
from heedful.errors import InvalidInput
from tests.checks.support import CONTEXT, findings
from tests.tables import cases

NOTES = "the quick brown fox"
SIMPLE: list[Any] = [
    checks.words(1, 10),
    checks.characters(1, 100),
    checks.contains("fox"),
    checks.excludes("cat"),
    checks.equals(NOTES),
    checks.not_empty(),
    checks.regex(r"[a-z ]+"),
]
ALL = [*SIMPLE, json_schemas.json_schema({"type": "object"})]


def name(check: object) -> str:
    return str(getattr(check, "name", check))


@pytest.mark.parametrize("check", SIMPLE, ids=name)
def test_a_good_text_passes(check):
    assert findings(check, NOTES) == []
    assert check.pure is True


@cases(
    "check",
    {
        "the fewest words": checks.words(at_least=4),
        "the most words": checks.words(at_most=4),
    },
)
def test_a_text_of_exactly_the_length_asked_for_passes(check):
    assert findings(check, NOTES) == []


@cases(
    "check, candidate, key, message",
    {
        "too few words": (
            checks.words(at_least=5),
            NOTES,
            "words>=5",
            "4 words, at least 5 asked for",
        ),
        "one word": (
            checks.words(at_least=2),
            "one",
            "words>=2",
            "1 word, at least 2 asked for",
        ),
        "a needle is missing": (
            checks.contains("cat"),
            NOTES,
            "contains 'cat'",
            "'cat' is missing",
        ),
        "a needle is there": (
            checks.excludes("QUICK"),
            NOTES,
            "excludes 'QUICK'",
            "'QUICK' occurs at character 4",
        ),
        "another text": (
            checks.equals("x"),
            NOTES,
            "equals",
            "'the quick brown fox' is not the expected",
        ),
        "a pattern for the whole text": (
            checks.regex("[a-z]+"),
            NOTES,
            "regex [a-z]+",
            "'the quick brown fox' does not match",
        ),
    },
)
def test_a_bad_text_is_found(check, candidate, key, message):
    (finding,) = findings(check, candidate)
    assert finding.key == key
    assert message in finding.message
    assert finding.fix
    assert finding.level == "error"


@pytest.mark.parametrize("check", ALL, ids=name)
@pytest.mark.parametrize(
    ("candidate", "kind"),
    [
        (None, "no answer"),
        (7, "not text"),
        ("", "empty"),
        (" \n\t ", "empty"),
        ("x" * 10_000_000, "too long"),
    ],
    ids=lambda value: (
        type(value).__name__ if not isinstance(value, str) else value[:20]
    ),
)
def test_degenerate_input_has_its_own_finding(check, candidate, kind):
    problems = findings(check, candidate)
    assert f"{check.name}: {kind}" in [finding.key for finding in problems]
    for finding in problems:
        json.dumps([finding.message, finding.fix], ensure_ascii=False).encode()


def test_each_needle_is_found_once_and_placed():
    both = findings(checks.excludes("a", "b", "a"), "xb a")
    assert [(f.key, f.span) for f in both] == [
        ("excludes 'a'", (3, 4)),
        ("excludes 'b'", (1, 2)),
    ]
    assert findings(checks.excludes("x"), "ßx")[0].span is None


@pytest.mark.parametrize(
    ("expected", "candidate", "same"),
    [
        ("Straße", "STRASSE", True),
        ("ﬁne", "FINE", True),
        ("a b", " A\n\t b ", True),
        ("a b", "ab", False),
        ("42", "４２", True),
    ],
)
def test_equals_normalises(expected, candidate, same):
    assert (not findings(checks.equals(expected), candidate)) is same


def test_equals_does_not_leak_the_expected_text():
    for candidate in ("wrong", None, "", "\x00"):
        for finding in findings(checks.equals("hidden treasure"), candidate):
            assert "treasure" not in repr(finding)
    assert "treasure" not in repr(checks.equals("hidden treasure"))


MAKERS: Any = checks  # a caller without a type checker
WRONG = {
    "words without a bound": (checks.words, "at_least"),
    "a bound above the other": (partial(checks.words, 5, 4), "at_most"),
    "a bound that is text": (partial(MAKERS.characters, "3"), "at_least"),
    "a blank text": (partial(checks.equals, " "), "expected"),
    "contains an empty text": (partial(checks.contains, ""), "needles"),
    "contains a number": (partial(MAKERS.contains, 1), "needles"),
    "contains nothing": (checks.contains, "needles"),
    "excludes an empty text": (partial(checks.excludes, ""), "needles"),
    "excludes a number": (partial(MAKERS.excludes, 1), "needles"),
    "excludes nothing": (checks.excludes, "needles"),
    "a pattern that is none": (partial(checks.regex, "("), "pattern"),
    "no fix": (partial(MAKERS.regex, "a", fix=None), "fix"),
    "a number for full": (partial(MAKERS.regex, "a", full=1), "full"),
}


@pytest.mark.parametrize(("make", "field"), WRONG.values(), ids=WRONG)
def test_wrong_configuration_is_refused_when_the_check_is_made(make, field):
    with pytest.raises(InvalidInput) as error:
        make()
    assert error.value.field == field


def test_importing_the_checks_imports_no_library():
    code = (
        "import sys, heedful.checks; heavy = 'pydantic jsonschema asyncio "
        "subprocess'.split(); "
        "print([m for m in heavy if m in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"


TOKEN = "ghp_x7Qp2mZk9Rx7Qp2mZk9Rx7Qp2mZk9Rx7Qp2mZk"


@cases(
    "check",
    {
        "regex": checks.regex("zzz"),
        "equals": checks.equals("zzz"),
        "json_schema": json_schemas.json_schema({"type": "integer"}),
        "enum": json_schemas.json_schema({"enum": ["q"]}),
        "json": json_schemas.json_schema({}),
    },
)
def test_no_message_quotes_a_part_of_a_secret(check):
    for before in range(1, 130):
        for text in (
            f"{'x' * before} {TOKEN} and more",
            json.dumps(f"{'x' * before} {TOKEN} and more"),
            f'{{"{"x" * before}": {TOKEN}}}',
        ):
            findings = check(text, CONTEXT)
            assert TOKEN[:12] not in f"{findings}"
            assert TOKEN[-12:] not in f"{findings}"

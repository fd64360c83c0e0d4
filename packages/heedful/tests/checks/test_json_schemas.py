import json

import pytest
from pydantic import BaseModel, Field, create_model, field_validator

from heedful.checks import json_schemas as checks
from heedful.errors import InvalidInput
from heedful.validation import MAX_SHOWN_ITEMS
from tests.checks.support import findings, keys
from tests.tables import cases

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "n": {"type": "integer", "minimum": 0},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
        "day": {"format": "date"},
        "u": {"anyOf": [{"type": "integer"}, {"type": "object", "required": ["q"]}]},
        "next": {"$ref": "#"},
    },
    "required": ["name"],
    "additionalProperties": False,
}


class Item(BaseModel):
    name: str
    n: int = Field(default=0, ge=0)
    tags: list[int] = []


BY_SCHEMA = checks.json_schema(SCHEMA)
BY_MODEL = checks.json_schema(Item)


@cases(
    "candidate",
    {
        "all fields": '{"name": "ab", "n": 1}',
        "spaces around": ' {"name":"ab"}\n',
        "a mapping": {"name": "ab"},
        "a list": '{"name":"a","tags":[]}',
    },
)
@cases("check", {"schema": BY_SCHEMA, "model": BY_MODEL})
def test_what_fits_passes(check, candidate):
    assert findings(check, candidate) == []


def test_an_instance_of_the_model_passes():
    assert findings(BY_MODEL, Item(name="a")) == []


@cases(
    "candidate, expected",
    {
        "type": ('{"name": 5}', ["$.name type"]),
        "required": ('{"n": 1}', ["$.name missing"]),
        "additional": ('{"name": "a", "x": 1}', ["$ additionalProperties"]),
        "minimum": ('{"name": "a", "n": -1}', ["$.n minimum"]),
        "format": ('{"name": "a", "day": "monday"}', ["$.day format"]),
        "required in any": ('{"name": "a", "u": {}}', ["$.u.q missing"]),
        "twice in a list": (
            '{"name": "a", "tags": ["c", "a", "d"]}',
            ["$.tags[] enum", "$.tags[] enum"],
        ),
    },
)
def test_one_finding_a_problem(candidate, expected):
    assert keys(BY_SCHEMA, candidate) == [f"json_schema: {key}" for key in expected]


def test_a_finding_says_where_what_and_how():
    (finding,) = findings(BY_SCHEMA, '{"name": "a", "tags": ["a", "c"]}')
    assert finding.message == "at $.tags[1]: 'c' is not one of ['a', 'b']"
    assert finding.fix == "write one of ['a', 'b']"


TIDY = '{"name": "tidy"}'


@cases("check", {"schema": BY_SCHEMA, "model": BY_MODEL})
@cases(
    "text",
    {
        "a fence": f"```json\n{TIDY}\n```",
        "thoughts with brackets": f"<think>{{n}} [ {{</think>{TIDY}",
        "an interval before it": f"For x in [0, 9): {TIDY}",
        "an example first": f'As {{"name": "first"}} shows: {TIDY}',
        "what does not fit after it": f'{TIDY} is no {{"tags": 1}}',
    },
)
def test_json_is_read_wherever_it_stands_and_a_note_says_so(check, text):
    (note,) = findings(check, text)
    assert note.level == "note"
    assert note.key == "json_schema: text around"
    assert "bare JSON only" in note.fix


@cases(
    "text, key",
    {
        "no JSON": ("hello", "not JSON"),
        "no end": ('{"name": "a"', "breaks off"),
        "a fence without JSON": ("```json\nnothing\n```", "not JSON"),
        "no end of a number": ('{"name": "a", "n": 1', "breaks off"),
        "no end of a word": ('{"name": "a", "n": nu', "breaks off"),
        "no end of an escape": ('{"name": "a\\u00', "breaks off"),
        "no end of a text": ('{"name": "a', "breaks off"),
        "no end of the thoughts": ("<think>{} may do", "breaks off"),
        "no end of the last": (f'{TIDY}, or {{"name": "b', "breaks off"),
        "a word that goes nowhere": ('{"name": "a", "n": 9 12', "not JSON"),
        "single quotes": ("{'name': 'a'}", "not JSON"),
        "a number too long": ("9" * 5000, "not JSON"),
        "nested too deeply": ("[" * 100_000, "depth"),
        "NaN": ('{"name": "a", "n": NaN}', "not a number"),
        "infinite": ('{"name": "a", "n": 1e999}', "not a number"),
    },
)
def test_broken_json_has_a_finding_of_its_own(text, key):
    problems = keys(BY_SCHEMA, text)
    assert problems[0] == f"json_schema: {key}"
    assert len(set(problems)) == len(problems)


@cases("value", {"NaN": float("nan"), "a set": {1, 2}})
def test_data_that_json_cannot_carry_is_found(value):
    assert "json_schema: not a number" in keys(BY_SCHEMA, {"name": "a", "u": value})


def test_of_many_problems_some_are_findings_and_the_others_are_counted():
    text = json.dumps({"name": "a", "tags": ["x"] * 5000})
    *problems, others = findings(BY_SCHEMA, text)
    assert len(problems) == MAX_SHOWN_ITEMS
    assert others.level == "warning"
    assert others.message == "and 4990 more: $.tags[] enum"


@cases("by_model", {"schema": False, "model": True})
def test_all_missing_fields_are_named(by_model):
    names = [f"line_{number}" for number in range(14)]
    model = create_model("Address", **dict.fromkeys(names, (str, ...)))  # type: ignore[call-overload]
    schema = model if by_model else model.model_json_schema()
    *problems, others = findings(checks.json_schema(schema), "{}")
    assert [problem.key for problem in problems] == [
        f"json_schema: $.{name} missing" for name in names[:10]
    ]
    assert others.message == (
        "and 4 more: $.line_10 missing; $.line_11 missing; $.line_12 missing; "
        "$.line_13 missing"
    )


def test_a_value_of_python_is_checked_as_the_json_that_it_makes():
    check = checks.json_schema({"patternProperties": {"^[0-9]+$": {"type": "string"}}})
    assert keys(check, {1: "a"}) == []
    assert keys(check, {1: (2, 3)}) == ["json_schema: $['1'] type"]
    assert keys(check, {1: 10**5000}) == ["json_schema: not a number"]


@cases(
    "schema, field",
    {
        "an unknown type": ({"type": "strange"}, "schema"),
        "a pattern that is none": ({"pattern": "("}, "schema"),
        "text": ("{}", "schema"),
    },
)
def test_a_schema_that_is_none_is_refused_when_the_check_is_made(schema, field):
    with pytest.raises(InvalidInput) as error:
        checks.json_schema(schema)
    assert error.value.field == field


@pytest.mark.parametrize("reference", ["#/nowhere", "https://example.com/other.json"])
def test_a_reference_that_leads_nowhere_is_named(reference):
    check = checks.json_schema({"properties": {"a": {"$ref": reference}}})
    assert findings(check, "{}") == []
    with pytest.raises(InvalidInput, match="reference inside the schema") as error:
        findings(check, '{"a": 1}')
    assert error.value.field == "$ref"


class Ticket(BaseModel):
    """A pydantic model of an answer."""

    urgency: int = Field(ge=0)

    @field_validator("urgency")
    @classmethod
    def check_urgency(cls, urgency: int) -> int:
        if urgency > 3:
            raise ValueError("urgency is 0 to 3")
        return urgency


@cases(
    "answer, message, fix",
    {
        "a missing value": ("{}", "Field required", "add it"),
        "a wrong type": (
            '{"urgency": "high"}',
            "it is 'high', not an integer",
            "make it an integer",
        ),
        "a value out of bounds": (
            '{"urgency": -1}',
            "it is -1, not at least 0",
            "make it at least 0",
        ),
        "a check of the model itself": (
            '{"urgency": 9}',
            "urgency is 0 to 3, it is 9",
            "urgency is 0 to 3",
        ),
    },
)
def test_a_problem_by_a_model_says_what_to_write(answer, message, fix):
    [finding] = findings(checks.json_schema(Ticket), answer)
    assert finding.message == f"at $.urgency: {message}"
    assert finding.fix == fix

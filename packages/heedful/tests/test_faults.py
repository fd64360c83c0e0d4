"""What is wrong with data is said in words of ours, whatever pydantic calls it."""

import json
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import (
    AfterValidator,
    AnyUrl,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)

from heedful.errors import InvalidInput
from heedful.faults import allowed_value, fault_line, fault_text
from heedful.validation import check_integer


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    weight: int


@dataclass
class Parcel:
    weight: int


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


def count(value: int) -> int:
    check_integer("weight", value)
    return value


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


def faults_of(kind: Any, value: Any) -> list[Any]:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_json(json.dumps(value))
    return caught.value.errors(include_url=False)


CASES: list[tuple[Any, Any, str]] = [
    (str, 5, "it must be a text"),
    (int, "x", "it must be an integer"),
    (int, [], "it must be an integer"),
    (int, 1.5, "it must be an integer"),
    (float, "x", "it must be a number"),
    (bool, "x", "it must be true or false"),
    (list[int], 5, "it must be a list"),
    (tuple[int, int], 5, "it must be a list"),
    (dict[str, int], 5, "it must be a JSON object"),
    (Parcel, 5, "it must be a JSON object"),
    (Closed, 5, "it must be a JSON object"),
    (Closed, {}, "it must be given"),
    (Closed, {"weight": 1, "w": 1}, "it must be left out: no field has this name"),
    (Literal["a", "b"], "c", "it must be 'a' or 'b'"),
    (Colour, "green", "it must be 'red' or 'blue'"),
    (Annotated[int, Field(ge=1)], 0, "it must be at least 1"),
    (Annotated[int, Field(gt=0)], 0, "it must be greater than 0"),
    (Annotated[int, Field(le=5)], 6, "it must be at most 5"),
    (Annotated[int, Field(lt=5)], 6, "it must be less than 5"),
    (Annotated[int, Field(multiple_of=5)], 6, "it must be a multiple of 5"),
    (
        Annotated[str, Field(max_length=2)],
        "abc",
        "it must be a text of at most 2 characters",
    ),
    (
        Annotated[str, Field(min_length=2)],
        "a",
        "it must be a text of at least 2 characters",
    ),
    (Annotated[str, Field(pattern="^a")], "b", "it must be a text that matches ^a"),
    (Annotated[str, Field(pattern=r"\S")], " ", "it must be a text that is not empty"),
    (Annotated[list[int], Field(max_length=1)], [1, 2], "it must be at most 1 long"),
    (date, "x", "it must be a date such as 2026-01-31"),
    (datetime, "x", "it must be a time such as 2026-01-31T12:00:00Z"),
    (None, 5, "it must be null"),
    (AnyUrl, "x", "it must be an address such as https://example.org/path"),
    (Pet, {"kind": "cow"}, "it must be an object whose 'kind' is one of"),
    (Pet, {}, "it must be an object with 'kind'"),
    (
        Annotated[int, AfterValidator(count)],
        0,
        "weight is 0; it must be an integer of at least 1",
    ),
]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    CASES,
    # The text of a kind may have an address, which differs by process.
    ids=[f"{number}: {text}" for number, (_, _, text) in enumerate(CASES)],
)
def test_a_fault_is_said_in_words_of_ours(kind: Any, value: Any, text: str) -> None:
    assert fault_text(faults_of(kind, value)[0]).startswith(text)


def test_a_fault_without_words_is_told_by_its_kind_and_not_by_its_message() -> None:
    fault = {"type": "moon_phase", "msg": "Input should be a valid moon", "ctx": {}}
    assert fault_text(fault) == "it must be of another form (moon_phase)"


def test_a_line_has_the_place_without_names_of_types() -> None:
    fault = faults_of(dict[str, list[Closed]], {"box": [{"weight": "x"}]})[0]
    assert fault_line(fault) == "box/0/weight: it must be an integer"
    fault = faults_of(int, "x")[0]
    assert fault_line(fault) == "the data: it must be an integer"


def test_what_is_allowed_by_a_check_of_ours_is_taken_from_its_error() -> None:
    fault = faults_of(Annotated[int, AfterValidator(count)], 0)[0]
    assert isinstance(fault["ctx"]["error"], InvalidInput)
    assert allowed_value(fault) == "an integer of at least 1"

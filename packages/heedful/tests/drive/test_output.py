"""The declared output: what is read, what is refused, and what comes back."""

from __future__ import annotations

import datetime as dt
import enum
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, TypedDict, TypeVar

import pytest
from pydantic import AliasChoices, BaseModel, Field, SecretStr

import heedful
from heedful import errors
from heedful.loop.record import Finding
from heedful.store.store import Store
from heedful.testing import ScriptedModel
from tests.tables import cases

T = TypeVar("T")


class Shade(enum.Enum):
    """A shade of a paint."""

    LIGHT = "light"
    DARK = "dark"


class Size(enum.StrEnum):
    """A size, which is a text, too."""

    SMALL = "S"
    LARGE = "L"


class Paint(BaseModel):
    """A paint, of which some are glossy."""

    name: str
    litres: float = Field(gt=0)


class Gloss(Paint):
    """A glossy paint."""

    shine: int = 1


class Order(BaseModel):
    """An order of one paint."""

    paint: Paint


class Named(BaseModel):
    """Fields with aliases, one with a default."""

    total: float = Field(alias="Total")
    note: str = Field("none", alias="Note")
    code: int = Field(0, validation_alias=AliasChoices("code", "no"))


class Box(BaseModel, Generic[T]):
    """A box of anything."""

    content: T


class Cat(BaseModel):
    """A cat."""

    kind: Literal["cat"]
    age: int


class Dog(BaseModel):
    """A dog."""

    kind: Literal["dog"]
    age: int


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


class Bird(BaseModel):
    """A bird."""

    age: int


class Fish(BaseModel):
    """A fish, whose fields are those of a bird."""

    age: int


class Loose(BaseModel):
    """Anything."""

    value: Any


class Locked(BaseModel):
    """A secret."""

    code: SecretStr


@dataclass(slots=True)
class Visit:
    """A visit."""

    begun: dt.datetime


@dataclass
class Day:
    """A day of visits."""

    number: int
    visits: list[Visit] = field(default_factory=list)


class Part(TypedDict, total=False):
    """A part with optional keys."""

    name: str
    made: dt.date


NOON = dt.datetime(2026, 5, 3, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))
GREEN = '{"name": "green", "litres": 2.5}'


async def answer(
    output: Any,
    *answers: Any,
    checks: Sequence[Callable[..., Any]] = (),
    store: Store | str | None = None,
    **options: Any,
) -> tuple[heedful.Result[Any], list[str]]:
    """Return the result of a loop that gives these answers, and its hints."""
    hints: list[str] = []
    remaining = iter(answers)

    def write(task: Any, hint: str) -> Any:
        hints.append(hint)
        return next(remaining)

    result = await heedful.run(
        "paint",
        generate=write,
        checks=checks,
        output=output,
        store=store,
        max_attempts=len(answers),
        **options,
    )
    return result, hints


def notes(result: heedful.Result[Any]) -> list[Finding]:
    """Return the findings of the last attempt."""
    evaluation = result.loop.attempts[-1].evaluation
    assert evaluation is not None
    return list(evaluation.findings)


# Each with an answer in plain words and one with words around the value.
@cases(
    ("output", "text", "value"),
    {
        "a model": (Paint, GREEN, Paint(name="green", litres=2.5)),
        "a dataclass": (Day, '{"number": 1}', Day(1)),
        "a dict": (Part, '{"made": "2026-05-03"}', {"made": dt.date(2026, 5, 3)}),
        "a union": (Pet, '{"kind": "dog", "age": 2}', Dog(kind="dog", age=2)),
        "nothing": (Bird | None, "null", None),
        "a number": (int, "42", 42),
        "an enum by its value": (Shade, '"dark"', Shade.DARK),
        "a date": (dt.date, '"2026-05-03"', dt.date(2026, 5, 3)),
        "a decimal": (Decimal, '"12.50"', Decimal("12.50")),
    },
)
async def test_an_answer_becomes_the_declared_object(
    output: Any, text: str, value: Any
) -> None:
    seen: list[Any] = []
    result, _ = await answer(output, text, checks=[seen.append])
    assert result.passed
    assert result.candidate == value
    assert seen == [value]
    assert notes(result) == []

    result, _ = await answer(output, f"So it is {text}.")
    assert result.candidate == value
    assert [finding.level for finding in notes(result)] == ["note"]
    assert result.attempts == 1


@cases(
    ("output", "text", "value"),
    {
        "a text is itself": (str, '"so"', '"so"'),
        "a text beside a class": (Bird | str, "none", "none"),
        "a class beside a text": (Bird | str, '{"age": 1}', Bird(age=1)),
        "an enum without quotes": (Shade, " dark\n", Shade.DARK),
        "a decimal alone": (Decimal, "12.50 ", Decimal("12.5")),
        "a date alone": (dt.date, "2026-05-03", dt.date(2026, 5, 3)),
    },
)
async def test_a_text_may_be_the_value(output: Any, text: str, value: Any) -> None:
    result, _ = await answer(output, text)
    assert result.candidate == value
    assert type(result.candidate) is type(value)


@cases(
    ("output", "given", "value"),
    {
        "an object": (Bird, Bird(age=1), Bird(age=1)),
        "data": (Bird, {"age": 1}, Bird(age=1)),
        "a list is one candidate": (list[int], [1, 2], [1, 2]),
        "an empty list": (list[int], [], []),
        "a tuple": (tuple[int, str], (1, "a"), (1, "a")),
        "a list with one candidate": (int, [3], 3),
        "nothing": (Bird | None, None, None),
    },
)
async def test_what_a_function_returns_is_read_too(
    output: Any, given: Any, value: Any
) -> None:
    result, _ = await answer(output, given)
    assert result.candidate == value


@cases(
    ("output", "wrong", "key", "fix"),
    {
        "a limit": (
            Paint,
            '{"name": "green", "litres": 0}',
            "$.litres greater_than",
            "make it greater than 0.0",
        ),
        "an enum": (Shade, "blue", "$ enum", "make it 'light' or 'dark'"),
        "a number": (int, "many", "$ int_parsing", "make it an integer"),
        "no JSON": (Paint, "Sorry.", "$ model_type", "make it a JSON object"),
        "a union": (
            Pet,
            '{"kind": "cow", "age": 1}',
            "$ union_tag_invalid",
            "one of 'cat', 'dog'",
        ),
        "data": (Bird, {"age": "old"}, "$.age int_parsing", "make it an integer"),
        "an empty answer": (Paint, " ", "empty", ""),
    },
)
async def test_what_does_not_fit_is_asked_again_and_no_check_sees_it(
    output: Any, wrong: Any, key: str, fix: str
) -> None:
    seen: list[Any] = []
    result, _ = await answer(output, wrong, checks=[seen.append])
    assert not result.passed
    assert result.candidate is None
    assert result.loop.attempts[0].has_candidate
    assert seen == []
    finding = next(item for item in notes(result) if item.check == "output")
    assert finding.key == f"output: {key}"
    assert fix in finding.fix


async def test_a_model_is_shown_its_last_object_as_json() -> None:
    name = "a" * 300
    model = ScriptedModel(json.dumps({"Total": 1, "Note": name}), '{"Total": 2}')
    check = lambda named: named.total > 1  # noqa: E731
    await heedful.run("t", generate=model, output=Named, checks=[check], store=None)
    assert f'"Note": "{name}"' in model.prompts[1][-1].content


async def test_a_decorated_function_returns_the_object_or_raises() -> None:
    @heedful.self_correcting(output=Paint, store=None, on_exhausted="best")
    def paint(task: str, hint: str) -> str:
        return task if hint else "green"

    candidate: Any = paint(GREEN)
    assert candidate == Paint(name="green", litres=2.5)
    with pytest.raises(errors.NotPassed, match=r"kept are in \.result\.loop\.attempts"):
        paint("blue")


async def test_an_answer_of_the_type_is_better_than_any_that_is_not() -> None:
    checks = [lambda named: named.total > 1, lambda named: named.total > 2]
    result, _ = await answer(Named, '{"Total": 1}', "Sorry", checks=checks)
    assert getattr(result.candidate, "total", None) == 1


@cases("output", {"module": pytest, "name": "Nowhere", "7": 7})
def test_what_is_no_type_is_refused_at_once(output: Any) -> None:
    with pytest.raises(errors.InvalidInput, match="output is"):
        heedful.Run("t", generate=len, output=output, store=None)


RESTORED = {
    "a model": (Paint, Paint(name="a", litres=1)),
    "aliases": (Named, Named.model_validate({"Total": 1, "Note": "x", "no": 3})),
    "a subclass": (Gloss, Gloss(name="a", litres=1, shine=3)),
    "a nested model": (Order, Order(paint=Paint(name="a", litres=1))),
    "a generic model": (Box[Shade], Box[Shade](content=Shade.LIGHT)),
    "a union": (Pet, Dog(kind="dog", age=1)),
    "a union with the same fields": (Bird | Fish, Fish(age=1)),
    "nested dataclasses, a time zone": (Day, Day(1, [Visit(NOON)])),
    "a typed dict": (Part, {"made": dt.date(2026, 5, 3)}),
    "plain data in any field": (Loose, Loose(value=[1, {"a": None}])),
    "a list": (list[Paint], [Paint(name="a", litres=1)]),
    "an enum of texts": (Size, Size.LARGE),
    "a date": (dt.date, dt.date(2026, 5, 3)),
    "a decimal": (Decimal, Decimal("12.50")),
    "a number": (int, 3),
    "a text": (str, "text"),
}


@cases(("output", "value"), RESTORED)
@cases("is_pure", {"pure": True, "other checks": False})
async def test_a_stored_object_comes_back_as_it_was(
    store: Store, output: Any, value: Any, is_pure: bool
) -> None:
    def check(candidate: Any) -> None:
        """Accept all."""

    check.pure = is_pure  # type: ignore[attr-defined]
    options: dict[str, Any] = {"checks": [check], "store": store, "id": "a"}
    await answer(output, value, **options)
    result, hints = await answer(output, "never asked", **options)
    assert hints == []
    assert result.candidate == value
    assert type(result.candidate) is type(value)


@cases(
    ("output", "value", "reason"),
    {
        "sub": (Paint, Gloss(name="a", litres=1), r"at \$: Gloss came back as Paint"),
        "a list of a union": (
            list[Bird | Fish],
            [Fish(age=1)],
            r"at \$\.0: Fish came back as Bird",
        ),
        "a secret": (Locked, Locked(code=SecretStr("x")), r"at \$\.code"),
        "inside": (dict, {"a": [1, {"private"}]}, r"at \$\.a\.1: set of 1 came"),
        "an object": (dict, {"a": {"b": object()}}, r"at \$\.a\.b: object came"),
        "a key": (dict, {("private", 1): 1}, r"at \$: dict of 1 came .* other keys"),
        "a list": (Paint, Paint.model_construct(name=["private"]), "Error at"),
    },
)
async def test_what_would_come_back_as_another_is_refused_at_the_first_write(
    store: Store, output: Any, value: Any, reason: str
) -> None:
    with pytest.raises(errors.NotJournalable, match=reason) as caught:
        await answer(output, value, store=store)
    assert "private" not in str(caught.value)
    result, _ = await answer(output, value)
    assert result.candidate == value


def version(name: str = "Leaf", **fields: Any) -> type[BaseModel]:
    """Return one of the versions of a class, which change its fields."""
    from pydantic import create_model

    model: type[BaseModel] = create_model(name, **fields)
    model.__module__ = __name__
    return model


LEAF = version(length=(int, ...), colour=(str, "green"))


@cases(
    "changed",
    {
        "a field less": version(length=(int, ...)),
        "another type": version(length=(float, ...), colour=(str, "green")),
        "another class": version("Blade", length=(int, ...), colour=(str, "green")),
    },
)
async def test_a_class_that_has_changed_is_told_with_both_shapes(
    store: Store, changed: type[BaseModel]
) -> None:
    await answer(LEAF, LEAF(length=3), store=store, id="a")
    with pytest.raises(errors.OutputChanged) as error:
        await answer(changed, "never asked", store=store, id="a")
    assert "'length': 3, 'colour': 'green'" in str(error.value)
    assert f"{changed.__name__} with the fields" in str(error.value)


class AgentText(str):
    """A text of a framework, of a class that pydantic cannot read."""

    __slots__ = ()


async def test_a_text_of_an_unknown_class_is_stored_as_its_text(store: Store) -> None:
    await answer(None, AgentText("P1"), store=store, id="a")
    result, _ = await answer(None, "never asked", store=store, id="a")
    assert result.candidate == "P1"

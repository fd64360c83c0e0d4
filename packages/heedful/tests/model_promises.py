"""What every model and every embedder promises, as cases that each of ours must pass.

A case is an async function, and its docstring is the promise. It takes a function that
makes what is tested.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from math import dist, hypot
from typing import Any, get_args

from heedful import Answer, Context, Embedder, Message, Model
from heedful.checks.json_schemas import json_schema
from heedful.models.contract import Finish
from heedful.testing.conformance import _expect, _expect_equal

Case = Callable[[Any], Awaitable[None]]


@asynccontextmanager
async def _opened(make: Callable[[], Model]) -> AsyncIterator[Model]:
    """Make a model; close it at the end, twice, which does no harm."""
    opened = make()
    try:
        yield opened
    finally:
        await opened.close()
        await opened.close()


# -- models

CHAT = (Message("system", "Be brief."), Message("user", "Name a colour."))
SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}


async def _complete(model: Model, **options: Any) -> Answer:
    """Return the answer to the chat; check that it is one of the contract."""
    answer = await model.complete(CHAT, **options)
    is_text = isinstance(answer, Answer) and isinstance(answer.text, str)
    _expect(is_text, "complete returns an Answer with a text", answer)
    _expect(answer.finish in get_args(Finish), "finish is one of Finish", answer)
    # Budgets are kept by it.
    _expect(answer.usage.calls >= 1, "usage has at least one call", answer)
    return answer


async def model_has_a_name(make: Callable[[], Model]) -> None:
    """Models that are made alike have the same name, which is not empty."""
    async with _opened(make) as model, _opened(make) as other:
        _expect(model.name, "the name of a model is not empty", model.name)
        _expect_equal(other.name, model.name, "the name of a model stays")


async def model_takes_every_option(make: Callable[[], Model]) -> None:
    """A model takes each option of `complete`; a whole answer fits its schema."""
    async with _opened(make) as model:
        answer = await _complete(
            model, schema=SCHEMA, max_tokens=256, temperature=0.5, seed=3
        )
        if answer.finish == "stop":
            findings = json_schema(SCHEMA)(answer.text, Context(task=""))
            _expect(not findings, "a whole answer fits its schema", answer)


async def model_answers_several_calls_at_once(make: Callable[[], Model]) -> None:
    """Calls at the same time each get an answer."""
    async with _opened(make) as model:
        await asyncio.gather(*[_complete(model, max_tokens=16) for _ in range(3)])


# -- embedders


async def _embed(embedder: Embedder, *texts: str) -> list[list[float]]:
    """Embed texts; check that each has a unit vector."""
    rows = [[float(x) for x in row] for row in await embedder.embed(texts)]
    sizes = [len(row) for row in rows]
    _expect_equal(sizes, [embedder.dimensions] * len(texts), "sizes of the vectors")
    lengths = [round(hypot(*row), 3) for row in rows]
    _expect_equal(lengths, [1.0] * len(texts), "lengths of the vectors")
    return rows


async def embedder_names_its_space(make: Callable[[], Embedder]) -> None:
    """Embedders that are made alike have the same name, which is not empty."""
    names = {make().name, make().name}
    _expect(len(names) == 1 and all(names), "the name of an embedder stays", names)


async def embedder_keeps_the_order(make: Callable[[], Embedder]) -> None:
    """Each text has its own vector at its place, whatever stands beside it."""
    first, second = await _embed(make(), "The pump leaks.", "17 invoices are late")
    _expect(dist(first, second) > 0.05, "two texts have two vectors", first)
    [alone] = await _embed(make(), "17 invoices are late")
    moved = dist(second, alone)
    _expect(moved < 0.05, "the vector of a text is the same at every place", moved)


async def embedder_takes_any_text(make: Callable[[], Embedder]) -> None:
    """A text may be empty, very long, or no valid Unicode; there may be none."""
    await _embed(make())
    await _embed(make(), "", " ", "long " * 3_000, "half a \ud800 pair", "nul \0 👍")


MODEL: tuple[Case, ...] = (
    model_has_a_name,
    model_takes_every_option,
    model_answers_several_calls_at_once,
)
EMBEDDER: tuple[Case, ...] = (
    embedder_names_its_space,
    embedder_keeps_the_order,
    embedder_takes_any_text,
)

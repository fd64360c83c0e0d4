"""The public doubles do what they say."""

import asyncio

import pytest

from heedful.errors import ModelError
from heedful.loop.record import Usage
from heedful.models.contract import Answer, Message, Model
from heedful.testing import FixedEmbedder, ScriptedModel

ASK = [Message("user", "four letters each")]


def ask(model: ScriptedModel) -> Answer:
    return asyncio.run(model.complete(ASK, temperature=0.5, seed=3, max_tokens=7))


def test_a_scripted_model_answers_line_by_line():
    answer = Answer("given", Usage(2))
    model = ScriptedModel(
        "text", answer, lambda messages: messages[0].content, seconds=0.001
    )
    assert isinstance(model, Model)
    assert ask(model) == Answer("text", Usage(1, 4, completion_tokens=1))
    assert ask(model) is answer
    assert ask(model).text == "four letters each"
    with pytest.raises(ModelError, match="the script has 3 lines; call 4 has none"):
        ask(model)
    assert model.prompts == [tuple(ASK)] * 4
    assert model.settings[0] == {
        "schema": None,
        "max_tokens": 7,
        "temperature": 0.5,
        "seed": 3,
    }
    asyncio.run(model.close())


def test_a_fixed_embedder_lays_shared_words_near_each_other():
    embedder = FixedEmbedder(32)
    first, second, other = asyncio.run(
        embedder.embed(["a parcel of 7 kg", "a parcel of 9 kg", "rivers flow"])
    )
    assert first == asyncio.run(embedder.embed(["A parcel of 7 kg"]))[0]

    def near(a: list[float], b: list[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True))

    assert near(list(first), list(second)) > near(list(first), list(other))

"""Embedders: the real MiniLM, and an endpoint on this machine."""

import asyncio
import json
import pickle
import sys
from typing import Any

import numpy as np
import pytest

from heedful import errors
from heedful.models import open_embedder
from heedful.models.contract import Embedder
from heedful.models.embedder import MiniLM, OpenAIEmbedder
from heedful.testing import FixedEmbedder, conformance
from tests import model_promises
from tests.models.conftest import Reply


@pytest.fixture(scope="module")
def minilm() -> MiniLM:
    return MiniLM()


def embed(embedder: Embedder, *texts: str) -> Any:
    return asyncio.run(embedder.embed(texts))


def test_it_is_an_embedder(minilm):
    assert isinstance(minilm, Embedder)
    assert minilm.name == "minilm-int8"
    assert minilm.dimensions == 384
    assert isinstance(open_embedder(), MiniLM)
    with pytest.raises(errors.UnknownName, match="there are: minilm"):
        open_embedder("word2vec")


def test_rows_are_unit_vectors_in_float32(minilm):
    rows = embed(minilm, "one text", "another")
    assert rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    assert embed(minilm).shape == (0, 384)
    cut = embed(minilm, "word " * 300, "word " * 300 + "something else entirely")
    assert np.array_equal(cut[0], cut[1])  # text beyond 256 tokens is left out


def test_an_embedder_that_has_loaded_its_model_can_be_pickled(minilm):
    vector = embed(minilm, "one text")
    again = pickle.loads(pickle.dumps(minilm))
    assert np.array_equal(embed(again, "one text"), vector)


@pytest.mark.parametrize("module", ["onnxruntime", "tokenizers"])
def test_a_missing_library_is_named(module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    cure = rf"{module}: pip install './packages/heedful\[embedded\]"
    with pytest.raises(errors.ModelUnavailable, match=cure):
        embed(MiniLM(), "a")


def vectors(*rows: list[Any]) -> dict[str, Any]:
    data = [
        {"object": "embedding", "index": n, "embedding": row}
        for n, row in enumerate(rows)
    ]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    return {"object": "list", "model": "m", "data": data, "usage": usage}


@pytest.fixture
def remote(server) -> OpenAIEmbedder:
    return OpenAIEmbedder("m", 2, url=f"{server.url}/v1", timeout=30)


def test_an_endpoint_embeds(server, remote):
    server.says(vectors([3.0, 4.0], [0.0, 2.0]))
    assert embed(remote, "a", "b") == [[0.6, 0.8], [0.0, 1.0]]
    assert isinstance(remote, Embedder)
    assert remote.name == f"{server.url}/v1#m"
    assert remote.dimensions == 2
    (request,) = server.asked
    assert request["path"] == "/v1/embeddings"
    assert request["body"]["input"] == ["a", "b"]
    assert embed(remote) == []
    assert len(server.asked) == 1  # nothing to ask for


@pytest.mark.parametrize("case", model_promises.EMBEDDER, ids=conformance.name)
async def test_both_keep_the_promises_of_an_embedder(case, server):
    def reply(request: Any) -> Reply:
        texts = request["body"]["input"]
        rows = asyncio.run(FixedEmbedder(64).embed(texts))
        return Reply(body=json.dumps(vectors(*map(list, rows))).encode())

    server.reply = reply
    await case(MiniLM)
    await case(lambda: OpenAIEmbedder("m", 64, url=f"{server.url}/v1", timeout=30))


async def test_an_endpoint_that_is_down_is_a_model_error(server):
    server.says({"error": {"message": "busy"}}, status=503)
    embedder = OpenAIEmbedder("m", 64, url=f"{server.url}/v1", timeout=30)
    with pytest.raises(errors.ModelError):
        await embedder.embed(["a"])


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(vectors([3.0, 4.0]), id="one vector for two texts"),
        pytest.param(vectors(["a", "b"], [1.0, 0.0]), id="texts for numbers"),
        pytest.param(b"<html>", id="no JSON"),
    ],
)
def test_wrong_vectors_are_malformed(server, remote, body):
    server.says(body)
    with pytest.raises(errors.MalformedAnswer):
        embed(remote, "a", "b")


def test_a_missing_key_or_client_is_named(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert OpenAIEmbedder("m", 2).name == "openai:m"
    with pytest.raises(errors.ModelUnavailable, match="OPENAI_API_KEY"):
        embed(OpenAIEmbedder("m", 2), "a")
    monkeypatch.setitem(sys.modules, "pydantic_ai.embeddings.openai", None)
    with pytest.raises(
        errors.ModelUnavailable, match=r"install './packages/heedful\[models\]"
    ):
        embed(OpenAIEmbedder("m", 2), "a")


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"dimensions": 0}, id="no dimensions"),
        pytest.param({"timeout": 0}, id="no time"),
        pytest.param({"url": "http://[::1"}, id="no address"),
    ],
)
def test_a_wrong_setting_is_refused(settings):
    with pytest.raises(errors.InvalidInput, match=next(iter(settings))):
        OpenAIEmbedder("m", **({"dimensions": 2} | settings))

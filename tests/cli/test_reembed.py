"""`heedful reembed`; `heedful recall` and `heedful doctor` report a changed embedder."""

from __future__ import annotations

import asyncio

import pytest

import heedful.models
from heedful.lessons.lesson import Example
from heedful.memory.memory import Memory
from heedful.testing import FixedEmbedder
from tests.cli.support import following
from tests.store.support import opened

TASK = "convert the weight of parcel 7 to kilograms"


@pytest.fixture
def invoke(desk, monkeypatch):
    """Commands whose embedder is a public double; `by` names it."""

    def run(*arguments, by="minilm", dimensions=64):
        double = FixedEmbedder(dimensions)
        monkeypatch.setattr(heedful.models, "open_embedder", lambda *_, **__: double)
        monkeypatch.setenv("HEEDFUL_EMBEDDER", by)
        return desk.invoke(monkeypatch, *arguments)

    with opened(desk.folder / "heedful.db") as store:
        asyncio.run(Memory(store).remember("E", "no unit", example=Example(TASK, "7 kg")))
    return run


def sign(done, name):
    return next(one for one in done.json["signs"] if one["name"] == name)


def test_what_lies_elsewhere_is_told_and_moved(invoke):
    known = invoke("recall", TASK)
    assert known.code == 0
    assert "by words alone: 1 example (0 in fixed/64, 1 without a vector)" in known.err
    assert following(known.err) == ["reembed"]
    ill = sign(invoke("doctor", "--model", "toy:answer", "--json"), "vectors")
    assert ill == {
        "name": "vectors",
        "well": False,
        "found": "0 in fixed/64, 1 without a vector",
        "todo": "heedful reembed",
    }
    done = invoke("reembed")
    assert (done.code, done.out) == (0, "1 example embedded; 1 in fixed/64\n")
    assert sign(invoke("doctor", "--model", "toy:answer", "--json"), "vectors")["well"] is True
    after = invoke("recall", TASK, "--json")
    assert after.err == ""
    assert after.json["examples"][0]["cosine"] == pytest.approx(1.0)
    there = {"space": "fixed/64", "here": 1, "elsewhere": {}, "nowhere": 0}
    assert after.json["spaces"] == there
    assert invoke("reembed", "--json").json == {"embedded": 0, **there}


def test_where_words_are_compared_there_is_nothing_to_tell(invoke):
    done = invoke("recall", TASK, "--json", by="none")
    assert (done.code, done.err, done.json["spaces"]) == (0, "", None)
    names = [one["name"] for one in invoke("doctor", "--json", by="none").json["signs"]]
    assert "vectors" not in names
    refused = invoke("reembed", by="none")
    assert refused.code == 2
    assert "recall compares words here" in refused.err
    missing = invoke("reembed", "--db", "none.db")
    assert missing.code == 3

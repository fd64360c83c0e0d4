"""An empty page says how the first loop gets into its own file, and shows it."""

import html
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from heedful.lessons.lesson import Scope
from heedful.web import figures
from tests.service.support import read_data
from tests.web.support import browsing


def pasted(code: str, folder: Path) -> str:
    """Run code as somebody does who pastes it, in another folder."""
    done = subprocess.run(
        [sys.executable, "-i", "-q"],
        input=code + "\n",
        cwd=folder,
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["plain", 'it\'s a "folder" $(x) `y` \\n é'])
def test_six_lines_make_a_loop_in_this_file(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    with browsing(folder) as browser:
        browser.open()
        facts = browser.data("/home")["begin"]
        page = browser.get("").text
        assert len(facts["code"].splitlines()) == 6
        path = shlex.split(facts["demo"])[-1]
        assert path == str(folder / "heedful.db")
        copied = [
            html.unescape(text) for text in re.findall(r'data-copy="([^"]*)"', page)
        ]
        assert {facts["code"], facts["demo"], facts["hook"]} <= set(copied)

        assert "passed" in pasted(facts["code"], tmp_path)
        (loop,) = browser.data("/loops")["loops"]
        assert loop["task"] == "Say red"
        assert 'id="begin"' not in browser.get("").text


def test_others_are_not_told_the_file(tmp_path):
    with browsing(tmp_path) as browser:
        browser.open(browser.api.key("read"))
        facts = browser.data("/loops")["begin"]
        assert facts["code"] == facts["demo"] == facts["own"] == ""
        assert "/v1/loops/ID" in browser.get("/loops").text


def test_an_empty_page_is_live(tmp_path):
    with browsing(tmp_path) as browser:
        browser.open()
        assert 'data-live="/ui/events' in browser.get("").text
        assert 'data-live="/ui/events' in browser.get("/loops").text
        store = browser.api.setup.store
        scope = Scope("acme", "main")
        before = browser.api.run(store.read(scope, figures.latest))
        body = {"task": "a task"}
        begun = browser.api.put("/v1/loops/first", json=body)
        read_data(begun, 201)
        after = browser.api.run(store.read(scope, figures.latest))
        assert after != before

"""An empty page says how the first loop gets into its own file, and shows it."""

import html
import re
import runpy

import pytest

from tests.web.support import browsing, words_of


@pytest.mark.parametrize("name", ["plain", 'it\'s a "folder" $(x) `y` \\n é'])
def test_six_lines_make_two_loops_in_this_file(tmp_path, monkeypatch, capsys, name):
    folder = tmp_path / name
    folder.mkdir()
    with browsing(folder) as browser:
        browser.open()
        facts = browser.data("/home")["begin"]
        page = browser.get("").text
        assert len(facts["code"].splitlines()) == 6
        assert "--recorded" in facts["recorded"]
        copied = [
            html.unescape(text) for text in re.findall(r'data-copy="([^"]*)"', page)
        ]
        commands = {facts["recorded"], facts["hook"]}
        assert {facts["code"], *commands} <= set(copied)

        # Somebody saves the lines in another folder, and runs them there.
        monkeypatch.chdir(tmp_path)
        script = tmp_path / "first.py"
        script.write_text(facts["code"], encoding="utf-8")
        runpy.run_path(str(script), run_name="__main__")
        assert capsys.readouterr().out.split() == ["red", "red"]

        second, first = browser.data("/loops")["loops"]
        assert first["task"] == "Say a colour"
        assert [first["attempts"], second["attempts"]] == [2, 1]
        assert first["memory_key"] == second["memory_key"] == "first.answer"
        assert 'id="begin"' not in browser.get("").text


def test_others_are_not_told_the_file(tmp_path):
    with browsing(tmp_path) as browser:
        browser.open(browser.api.key("read"))
        facts = browser.data("/home")["begin"]
        for name in ("code", "recorded", "projects"):
            assert facts[name] == ""
        assert "/v1/loops/ID" in browser.get("").text
        # Only Home says how to begin; Loops leads there.
        assert "Next: how to begin" in words_of(browser.get("/loops").text)

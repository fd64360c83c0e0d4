"""`make learn` on a model of a server: a limit, a fault, committed answers."""

import gzip
import json
import sys

import pytest

from bench.quality import __main__ as quality, committed
from tests.completions import completion

CHECKER = """
NONE = "none"
queues = lambda rows: ["cards", "well"]
named = str.strip
judge = lambda row, answer, *_: (answer == row["label"], "wrong queue", "")
"""
JOB = "quality --data . --only learn --streams banking77 --arms nothing,retries"
LIMIT = "--price-in=0.001 --price-out=1000 --limit-usd=0.045"


@pytest.fixture
def learn(server, tmp_path, monkeypatch):
    """Run the job on eight tasks; return why it ended early and what it wrote."""
    labels = ["cards", "well"] * 4
    rows = [{"id": f"{n}", "text": f"{n}", "label": x} for n, x in enumerate(labels)]
    lines = "\n".join(map(json.dumps, rows)).encode()
    (tmp_path / "intents_banking77.dev.jsonl.gz").write_bytes(gzip.compress(lines))
    (tmp_path / "intents_check.py").write_text(CHECKER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(committed, "FOLDER", tmp_path / "committed")
    server.says(completion("well"))
    model = f"--models={server.url}/v1#tiny"
    report = tmp_path / "bench/out/learn.json"

    def run(options: str = "") -> tuple[str, str]:
        argv = f"{JOB} --answers=kept {model} {options}".split()
        monkeypatch.setattr(sys, "argv", argv)
        try:
            quality.main()
        except SystemExit as error:
            return str(error), ""
        return "", report.read_text()

    return run


def test_a_run_that_was_ended_goes_on_and_asks_nothing_twice(learn, server):
    assert learn(LIMIT)[0] == (
        "the next call could exceed 0.045 $; 2 of 2 runs lack answers, 3 new calls "
        "cost 0.01 $; the same command goes on"
    )
    server.says({"error": {"message": "busy"}}, status=429)
    assert "overloaded" in learn("--workers=2")[0]
    failed = len(server.asked)
    server.says(completion("well"))
    while learn(LIMIT)[0]:
        pass
    assert len(server.asked) == failed + 13


def test_committed_answers_are_replayed_and_what_is_missing_is_said(learn, server):
    learn("--export --arms=nothing")
    replay = "--replay --answers=elsewhere"
    assert "1 of 2 runs lack answers" in learn(replay)[0]
    written = learn("--export")
    count = len(server.asked)
    assert learn(replay) == written
    assert len(server.asked) == count

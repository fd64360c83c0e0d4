"""The commands on a database of PostgreSQL, whose URL has a password that nobody may read."""

import json
import re

import pytest

from tests.cli.support import task

# In this order: each works on what those before it have left.
COMMANDS = [
    "log",
    "loops",
    "runs",
    "why {run}/red",
    "lessons",
    "seen contains red",
    "recall red",
    "proof",
    "patterns list",
    "quarantine list",
    "quarantine log",
    "pin 1 --by ada",
    "prune --by ada --keep 1 --dry-run",
    "prune --by ada --keep 1",
    "dream",
    "dream log",
    "export lessons.jsonl",
    "import lessons.jsonl",
    "replay",
    "tune",
    "reflect --waiting",
    "override {run}/never attempts --by ada --why again",
    "doctor --model toy:answer",
    "key create --name ci --may read",
    "key list",
    "audit verify",
    "worker --once",
]


@pytest.fixture
def invoke(desk, monkeypatch, postgres):
    monkeypatch.setenv("HEEDFUL_DB", postgres.service.replace("@", ":hunter2@", 1))

    def invoked(*arguments):
        done = desk.invoke(monkeypatch, *arguments)
        assert "hunter2" not in done.out + done.err, arguments
        return done

    return invoked


def test_every_command_works_on_it_and_none_shows_its_password(desk, invoke, postgres):
    desk.tasks(task("red"), {**task("never"), "task": "never say red"})
    url = postgres.service.replace("@", ":hunter2@", 1)
    done = desk.heedful("run", "tasks.jsonl", "--model", "toy:answer", "--db", url)
    assert (done.code, "hunter2" in done.out + done.err) == (1, False), done
    assert "postgresql://heedful@/" in done.err
    more = desk.heedful("run", "tasks.jsonl", "--model", "toy:answer", "--json", HEEDFUL_DB=url)
    assert (more.code, "hunter2" in more.out + more.err) == (1, False), more
    for command in COMMANDS:
        done = invoke(*command.format(run=json.loads(more.out)["run"]).split())
        assert done.code in (0, 1), (command, done)
        assert "Traceback" not in done.err, (command, done)
    assert not re.search("hunter2", (desk.folder / "lessons.jsonl").read_text("utf-8"))


URLS = ["postgresql://erin:hunter2@h/db?nope=1", "postgresql://erin:hunter2@127.0.0.1:1/d"]


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("command", ["loops", "lessons", "doctor", "replay", "proof --json"])
def test_an_error_does_not_show_the_password(invoke, monkeypatch, url, command):
    monkeypatch.setenv("HEEDFUL_DB", url)
    for debug in ([], ["--debug"]):
        assert invoke(*command.split(), *debug).code != 0


def test_a_database_whose_name_is_too_long_is_told_without_its_password(invoke):
    done = invoke("loops", "--db", f"postgresql://erin:hunter2@h/{'d' * 2000}")
    assert (done.code, "must have at most 1000" in done.err) == (2, True)

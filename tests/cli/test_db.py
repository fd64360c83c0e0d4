"""`heedful db copy` on the command line."""

import pytest

from tests.cli.support import task
from tests.postgres import rows


@pytest.fixture
def invoke(desk, monkeypatch):
    return lambda *arguments: desk.invoke(monkeypatch, *arguments)


def secret(url):
    return url.replace("@", ":hunter2@", 1)


def test_from_a_file_to_a_server_and_back(desk, invoke, postgres):
    desk.tasks(task("red"), task("blue"))
    assert desk.heedful("run", "tasks.jsonl", "--model", "toy:answer").code == 0
    done = invoke("db", "copy", "heedful.db", secret(postgres.owner))
    assert done.code == 0, done
    assert "read again and compared" in done.out
    assert "loop: 2 rows" in done.err
    assert "Next: heedful doctor, with the URL of the service's role" in done.out
    assert rows(postgres.owner, "select count(*) from loop") == [(2,)]
    back = invoke("db", "copy", secret(postgres.owner), "back.db")
    assert (back.code, "Next: heedful doctor --db back.db" in back.out) == (0, True)
    again = invoke("db", "copy", "heedful.db", "back.db", "--json")
    assert (again.code, again.json["again"], again.json["target"]) == (0, True, "back.db")
    assert {one["table"]: one["rows"] for one in again.json["tables"]}["loop"] == 2
    assert "hunter2" not in "".join(one.out + one.err for one in (done, back, again))
    for name in ("heedful.db", "back.db", postgres.service):
        told = invoke("log", "--json", "--db", name)
        assert (told.code, told.out) == (0, invoke("log", "--json").out)


def test_a_target_that_holds_something_is_refused(desk, invoke, postgres):
    desk.tasks(task("red"))
    for name in ("a.db", "b.db"):
        assert desk.heedful("run", "tasks.jsonl", "--model", "toy:answer", "--db", name).code == 0
    done = invoke("db", "copy", "a.db", "b.db")
    assert (done.code, "b.db holds other rows already" in done.err) == (2, True)
    done = invoke("db", "copy", "a.db", "a.db", "--json")
    assert (done.code, done.json["error"]["type"]) == (2, "InvalidInput")
    assert invoke("db").code == 2

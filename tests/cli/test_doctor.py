"""`heedful doctor`, `heedful model` and the command itself."""

import re
import sqlite3
import tomllib
from pathlib import Path

import pytest

from heedful.models import weights
from tests.cli.support import task


@pytest.fixture
def invoke(desk, monkeypatch):
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(key, raising=False)
    return lambda *arguments: desk.invoke(monkeypatch, *arguments)


def signs(done):
    return {sign["name"]: sign for sign in done.json["signs"]}


def test_every_package_that_an_extra_brings_is_named(invoke):
    [project] = [one for one in Path(__file__).parents if (one / "pyproject.toml").exists()]
    extras = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [one for every in extras["optional-dependencies"].values() for one in every]
    names = {re.split(r"[^\w-]", one)[0] for one in wanted}
    said = signs(invoke("doctor", "--json"))["optional packages"]["found"]
    assert {one.split()[0] for one in said.split(", ")} == names


def test_a_healthy_machine(invoke):
    done = invoke("doctor", "--model", "toy:answer")
    assert done.code == 0, done
    assert "✗" not in done.out
    assert "✓ database: heedful.db does not exist yet; heedful run creates it" in done.out
    assert invoke("doctor", "--model", "toy:answer", "--json").json["well"] is True


def test_what_is_ill_is_said_with_what_to_do(invoke, monkeypatch):
    done = invoke("doctor", "--json")  # the cache of the test is empty
    assert done.code == 1
    ill = {name: sign["todo"] for name, sign in signs(done).items() if not sign["well"]}
    name = weights.known()[0].name
    assert ill == {f"weights {name}": f"heedful model fetch {name}"}
    done = invoke("doctor", "--model", "openai:x")
    assert done.code == 1
    assert "✗ keys of models: none is set; set OPENAI_API_KEY in the environment" in done.out
    monkeypatch.setenv("OPENAI_API_KEY", "very-secret")
    done = invoke("doctor", "--model", "openai:x")
    assert (done.code, "✓ keys of models: set: OPENAI_API_KEY" in done.out) == (0, True)
    assert "very-secret" not in done.out + done.err


def test_open_loops_are_told(desk, invoke):
    desk.tasks(task("red"))
    run = ("run", "tasks.jsonl", "--model", "toy:slow")
    process = desk.start(*run)
    desk.wait_for(desk.calls, process)
    found = signs(invoke("doctor", "--model", "toy:answer", "--json"))["open loops"]["found"]
    assert found == "1 running, 0 interrupted"
    process.kill()
    process.communicate()
    found = signs(invoke("doctor", "--model", "toy:answer", "--json"))["open loops"]["found"]
    assert found.startswith("0 running, 1 interrupted: tasks-1/red; heedful run … --resume")


def damaged(path):
    data = bytearray(path.read_bytes())
    data[3 * 4096 : 12 * 4096] = b"\xff" * (9 * 4096)
    path.write_bytes(data)


def newer(path):
    db = sqlite3.connect(path)
    db.execute("pragma user_version = 99")
    db.close()


ILL = {
    "damaged": (damaged, ""),
    "newer": (newer, "this heedful knows"),
    "foreign": (lambda path: path.write_bytes(b""), "another program's"),
    "no database": (lambda path: path.write_bytes(b"x" * 5000), "not a database"),
}


@pytest.mark.parametrize("what", ILL)
def test_an_ill_database(desk, invoke, what):
    desk.tasks(task("red"))
    assert desk.heedful("run", "tasks.jsonl", "--model", "toy:answer").code == 0
    make, said = ILL[what]
    make(desk.folder / "heedful.db")
    done = invoke("doctor", "--model", "toy:answer", "--json")
    assert done.code == 1
    database = signs(done)["database"]
    assert (database["well"], said in database["found"]) == (False, True), database


def test_weights_are_listed_and_checked(desk, invoke):
    listed = invoke("model", "list", "--json").json
    assert [one["name"] for one in listed["weights"]] == [one.name for one in weights.known()]
    assert not any(one["fetched"] for one in listed["weights"])
    assert "Apache-2.0" in invoke("model", "list").out
    name = weights.known()[0].name
    assert invoke("model", "check").code == 0
    assert invoke("model", "check", name).code == 1
    desk.write("x", "")
    (desk.folder / "cache").mkdir()
    (desk.folder / "cache" / f"{name}.gguf").write_bytes(b"wrong")
    done = invoke("model", "check")
    assert done.code == 1
    assert f"✗ {name}: damaged" in done.out
    assert f"heedful model fetch {name}" in done.out
    states = invoke("model", "check", "embedded", "--json").json["weights"]
    assert [one["state"] for one in states] == ["damaged"]
    assert invoke("model", "check", "nope").code == 2
    assert invoke("model").code == 2


def test_a_fetch_that_fails_names_what_was_tried(desk, invoke):
    wrong = desk.write("wrong.bin", "not the bytes")
    done = invoke("model", "fetch", "embedded:smollm2", "--from", str(wrong))
    assert done.code == 5
    assert "has other bytes than the SHA-256" in done.err
    done = invoke("model", "fetch", "--cache", str(wrong / "below"), "--json")
    assert done.code == 5
    assert done.json["error"]["type"] == "WeightsError"
    assert invoke("model", "fetch", "nope").code == 2


def test_a_fetched_file_is_found_again(desk, invoke, monkeypatch):
    tokenizer = weights.find("minilm-tokenizer")
    source = weights.default_cache() / f"{tokenizer.name}.{tokenizer.extension}"
    if not source.is_file():
        source = desk.folder / "cache" / source.name
    done = desk.heedful("model", "fetch", tokenizer.name, "--cache", str(source.parent), "--json")
    assert done.code == 0, done
    assert done.json == {"name": tokenizer.name, "path": str(source)}
    assert invoke("model", "check", tokenizer.name, "--cache", str(source.parent)).code == 0

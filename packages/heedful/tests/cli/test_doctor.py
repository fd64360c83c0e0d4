"""`heedful doctor` and `heedful model`."""

import asyncio
from pathlib import Path

import pytest

from heedful.lessons.lesson import Scope
from heedful.memory.memory import Memory
from heedful.models import weights
from tests.cli.support import task
from tests.engines import opened

NAME = weights.fetch_list()[0].name
WELL = "doctor --model toy:answer"


def signs(done):
    return {sign["name"]: sign for sign in done.json["signs"]}


def test_what_is_ill_is_said_with_what_to_do(session, monkeypatch):
    done = session(
        (
            WELL,
            0,
            "!✗",
            "✓ database: heedful.db does not exist yet; heedful run creates it",
        ),
        (
            "doctor --model openai:x",
            1,
            "✗ model's key: OPENAI_API_KEY is not set; set OPENAI",
        ),
        ("doctor", 0, f"✓ weights {NAME}: absent", f"; heedful model fetch {NAME}"),
        ("doctor --model embedded --json", 1),  # the cache of the test is empty
    )
    ill = {name: sign["todo"] for name, sign in signs(done).items() if not sign["well"]}
    assert ill == {f"weights {NAME}": f"heedful model fetch {NAME}"}
    monkeypatch.setenv("OPENAI_API_KEY", "very-secret")
    session(
        (
            "doctor --model openai:x",
            0,
            "✓ model's key: OPENAI_API_KEY is set",
            "!very-sec",
        )
    )


def test_the_package_and_key_of_each_model_are_checked_once(session):
    done = session(("doctor --model openai:x,anthropic:y,openai:z --json", 1))
    names = [sign["name"] for sign in done.json["signs"]]
    keys = [s["found"] for s in done.json["signs"] if s["name"] == "model's key"]
    assert names.count("model's package") == 2
    assert keys == ["OPENAI_API_KEY is not set", "ANTHROPIC_API_KEY is not set"]


@pytest.mark.parametrize(
    ("version", "warned"),
    [
        pytest.param((3, 40, 1), True, id="a version with the fault"),
        pytest.param((3, 51, 3), False, id="the version that mends it"),
    ],
)
def test_a_sqlite_that_may_damage_files_is_named(session, monkeypatch, version, warned):
    monkeypatch.setattr("sqlite3.sqlite_version_info", version)
    text = session((WELL, 0)).out
    assert text.startswith("! sqlite" if warned else "✓ sqlite")
    sign = signs(session((f"{WELL} --json", 0)))["sqlite"]
    assert sign["well"]
    assert ("keep backups" in sign["advice"]) is warned


def test_a_judge_says_how_well_it_judges(desk, session, monkeypatch):
    wise = "tests.checks.support:wise"
    noisy = "tests.checks.support:noisy"
    done = session(
        ("model judge", 2, "name one"),
        ("model judge nope", 2, "no model is called 'nope'"),
        ("model judge toy:raises", 5, "the model fell over"),
        (f"model judge {wise}", 0, "pessimist", f"{wise}: it can judge"),
        (f"model judge {noisy} --json", 1),
    )
    assert done.json == {"judge": noisy, "passed": False, "right": {}, "pairs": 20}
    for judge, well, finding in (
        ("none", True, "none"),
        (wise, True, wise),
        (noisy, False, "ranks 0 of 20 labelled pairs right, a judge needs 80%"),
        ("toy:answer", False, "heedful model judge"),
    ):
        monkeypatch.setenv("HEEDFUL_JUDGE", judge)
        sign = signs(session((f"{WELL} --json", int(not well))))["judge"]
        assert sign["well"] == well
        assert (finding in sign["found"]) is True
    monkeypatch.setenv("HEEDFUL_JUDGE", wise)
    desk.write("cache/judges.json", '{"x": 1}')
    session(
        (WELL, 1, "✗ judge:", "nobody knows"), (f"model judge {wise}", 0), (WELL, 0)
    )


def test_without_a_model_only_what_asks_a_model_is_refused(desk, session, monkeypatch):
    monkeypatch.setenv("HEEDFUL_MODEL", "none")
    desk.tasks([task("red")])
    desk.write("runs.jsonl", '{"events": [{"type": "user_message", "content": "Hi."}]}')
    session(
        ("run tasks.jsonl", 2, "model is none", "name one"),
        ("doctor", 0),
        ("reflect runs.jsonl --model none", 0, "1 episode"),
        ("worker --once --model none", 0, "model: none: rules write the lessons"),
    )


def test_weights_are_fetched(desk, session):
    tokenizer = weights.find("minilm-tokenizer")
    wrong = desk.write("wrong.bin", "not the bytes")
    session(
        ("model fetch nope", 2),
        (
            f"model fetch embedded:smollm2 --from {wrong}",
            5,
            "has other bytes than the SHA-256",
        ),
        (f"model fetch --from {wrong} --json", 5, '"type": "WeightsError"'),
    )
    session((f"model fetch minilm --from {wrong}", 2, "name minilm-int8 or minilm-to"))
    (desk.folder / "cache").mkdir(exist_ok=True)
    (desk.folder / "cache" / f"{NAME}.gguf").write_bytes(b"wrong")
    session(("doctor", 1, f"✗ weights {NAME}: damaged", f"heedful model fetch {NAME}"))
    source = weights.default_cache() / f"{tokenizer.name}.{tokenizer.extension}"
    source_option = f" --from {source}" if source.is_file() else ""
    done = session((f"model fetch {tokenizer.name}{source_option} --json", 0))
    assert done.json["name"] == tokenizer.name
    assert Path(done.json["path"]).name == source.name


def test_missing_vectors_are_embedded_in_the_tenant_that_is_asked_for(
    desk, session, monkeypatch
):
    with opened(desk.folder / "heedful.db") as store:
        memory = Memory(store, Scope(tenant="acme"))
        asyncio.run(memory.remember("a", "x", lesson="Look twice."))
    monkeypatch.setenv("HEEDFUL_EMBEDDER", "minilm")
    command = "HEEDFUL_TENANT=acme heedful lessons reembed"
    session((f"{WELL} --tenant acme", 1, f"; {command}"))

"""A key planted wherever a text can enter is in no file, log or output, and in no part
of one.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful.checks.evaluate import Context
from heedful.errors import CheckFailed, GenerateFailed, InvalidInput, ModelError
from heedful.lessons.lesson import MAX_EXAMPLE_TEXT_CHARS, Scope
from heedful.loop.record import Evaluation, Finding
from heedful.models.contract import Answer
from heedful.models.function import Function
from tests.cli.support import Desk
from tests.planted import EVERY, TOKENS, left, parts

DB = "heedful.db"
COMMANDS = (
    "log",
    "log --json",
    "loops --json",
    "lessons --json",
    "patterns list --json",
    "quarantine list --json",
    "quarantine log --json",
    "export lessons.jsonl",
    "export -",
)


def judge(text: str, at: Context) -> Evaluation:
    """Everything that a check can say; the second candidate is accepted."""
    found = (
        Finding(
            f"check {text}",
            text,
            fix=text,
            key=f"k {text}",
            evidence=text,
            persistent=True,
        ),
    )
    return Evaluation(
        found if at.attempt == 1 else (), {"quality": 0.5 * at.attempt, text: 0.5}
    )


async def looped(store: heedful.Store, text: str, id: str) -> list[str]:
    """Loops of all endings with the text in whatever they are given; what the errors
    said.
    """
    said: list[str] = []

    def generate(task: Any, hint: str) -> Any:
        nested = {"note": [text], "deep": {"text": text}, text: "as a key"}
        return Answer(f"second {text}\n{hint}") if hint else nested

    def check(candidate: Any, at: Context) -> Evaluation:
        return judge(text, at)

    def raises(*_: Any) -> Any:
        raise RuntimeError(f"{'x' * 100} {text}")

    def rule(loop: heedful.Loop) -> str:
        return f"enough of {text}"

    memory = heedful.Memory(store)
    given: dict[str, Any] = {"store": store, "memory": memory}
    goals = [heedful.Goal("quality", 0.9)]
    task = {"do": text, "also": [text]}
    await heedful.run(
        task, generate=generate, checks=[check], goals=goals, id=id, **given
    )
    await heedful.run(f"again {text}", generate=generate, checks=[check], **given)
    stopping = heedful.Policy((rule, heedful.MaxAttempts(1)))
    held = heedful.Run[Any](
        task, generate=generate, evaluate=check, policy=stopping, **given
    )
    await held.step()
    await held.override("attempts", f"me {text}", f"why {text}")
    await held.cancel(f"enough {text}")
    model = Function(raises)
    for failing in ({"generate": raises}, {"generate": generate, "checks": [raises]}):
        with pytest.raises((GenerateFailed, CheckFailed)) as failed:
            await heedful.run(task, **failing, **given)
        said.append(str(failed.value))
    with pytest.raises(ModelError) as refused:
        await heedful.run(
            task, generate=model, checks=[heedful.checks.contains("x")], **given
        )
    said.append(str(refused.value))
    return said


async def remembered(store: heedful.Store, text: str) -> None:
    memory = heedful.Memory(store)
    example = heedful.Example(
        text,
        text,
        rejected=text,
        wrong=text,
        before={text: 0.1},
        after={text: 0.2},
        evidence=text,
        context=text,
    )
    fields: dict[str, Any] = {
        "tags": [text, "tag"],
        "context": text,
        "source": text[:200],
    }
    for trust in ("operator", "tool"):
        more = {**fields, "trust": trust}
        await memory.remember(
            f"Type {text}", text, lesson=text, example=example, **more
        )
        await memory.remember("Leak", f"{trust} in the middle: {text}, and on", **more)
    await memory.remember("Leak", "y" * (MAX_EXAMPLE_TEXT_CHARS - 30) + f" {text}")
    await memory.seen("Leak", text)
    await memory.recall(text, tags=[text])
    for held in (await memory.quarantine.waiting())[
        :1
    ]:  # a second token of a kind says the same
        await memory.quarantine.release([held.id], by=text, why=text)
    await memory.pin(1, by=text, why=text)


async def planted(path: Path, texts: list[str]) -> list[str]:
    store = heedful.open_store(str(path))
    said = []
    try:
        each = (looped(store, text, f"loop-{n}") for n, text in enumerate(texts))
        said += [one for errors in await asyncio.gather(*each) for one in errors]
        for text in texts:
            await remembered(store, text)
        # Before it is closed, so that what is not in the database yet is in the -wal.
        said += [
            file.read_bytes().decode("utf-8", "replace")
            for file in path.parent.iterdir()
        ]
    finally:
        await store.close()
    return said


def test_no_key_is_left_anywhere(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """One key of each kind, all in one store: test_redact has every key, here is where
    they go.
    """
    caplog.set_level(logging.DEBUG)
    desk = Desk(tmp_path)
    few = [those[0] for those in EVERY.values()]
    said = asyncio.run(planted(tmp_path / DB, [text for text, _ in few]))
    for command in (*COMMANDS, "why loop-0", "why loop-1 --json"):
        done = desk.invoke(monkeypatch, *command.split())
        assert done.code in (0, 1), (command, done)
        said += [done.out, done.err]
    said += [
        file.read_bytes().decode("utf-8", "replace") for file in tmp_path.iterdir()
    ]
    said += [caplog.text, *capfd.readouterr()]
    hidden = {part for _, secret in few for part in parts(secret)}
    assert {len(part) for part in hidden} == {12}
    for text in dict.fromkeys(said):
        assert not hidden & {text[at : at + 12] for at in range(len(text))}
    assert any("[redacted: " in one for one in said)


@pytest.mark.parametrize("name", [TOKENS["aws_key"][0], f"a {TOKENS['model_key'][0]}"])
def test_what_names_a_loop_or_a_scope_holds_no_key(name: str) -> None:
    makers: list[Callable[[], Any]] = [
        lambda: Scope(tenant=name),
        lambda: Scope(project=name),
    ]
    loop: dict[str, Any] = {
        "generate": lambda task, hint: "x",
        "store": None,
        "id": name,
    }
    for make in (*makers, lambda: heedful.Run[str]("t", **loop)):
        with pytest.raises(InvalidInput, match=r"redacted: \w+_key") as told:
            make()
        assert not left(name, str(told.value))

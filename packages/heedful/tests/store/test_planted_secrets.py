"""A key planted wherever a text can enter is in no file, log or output, and in no part
of one.
"""

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful.checks.evaluate import Context
from heedful.errors import CheckFailed, GenerateFailed, InvalidInput, ModelError
from heedful.lessons.lesson import Scope
from heedful.loop.record import Evaluation, Finding
from heedful.models.contract import Answer
from heedful.models.function import Function
from heedful.validation import MAX_STORED_TEXT_CHARS
from tests.cli.support import Desk
from tests.planted import ONE_OF_EACH, TOKENS, left, parts

DB = "heedful.db"
COMMANDS = (
    "loops --json",
    "lessons --json",
    "quarantine list --json",
    "quarantine log --json",
    "export lessons.jsonl",
    "export -",
)


def judge(text: str, context: Context) -> Evaluation:
    """Everything that a check can say; the second candidate is accepted."""
    findings = (
        Finding(
            f"check {text}",
            text,
            fix=text,
            key=f"k {text}",
            evidence=text,
            persistent=True,
            rule=text,
        ),
    )
    return Evaluation(
        findings if context.attempt == 1 else (),
        {"quality": 0.5 * context.attempt, text: 0.5},
    )


async def run_loops(store: heedful.Store, text: str, id: str) -> list[str]:
    """Loops of all endings with the text in whatever they are given; what the errors
    said.
    """
    errors: list[str] = []

    def generate(task: Any, hint: str) -> Any:
        nested = {"note": [text], "deep": {"text": text}, text: "as a key"}
        return Answer(f"second {text}\n{hint}") if hint else nested

    def check(candidate: Any, context: Context) -> Evaluation:
        return judge(text, context)

    def raises(*_: Any) -> Any:
        raise RuntimeError(f"{'x' * 100} {text}")

    def rule(loop: heedful.Loop) -> str:
        return f"enough of {text}"

    memory = heedful.Memory(store)
    run_loop = partial(heedful.run, store=store, memory=memory)
    goals = [heedful.Goal("quality", 0.9)]
    task = {"do": text, "also": [text]}
    await run_loop(task, generate=generate, checks=[check], goals=goals, id=id)
    await run_loop(f"again {text}", generate=generate, checks=[check])
    stopping = heedful.Policy((rule, heedful.MaxAttempts(1)))
    run = heedful.Run[Any](
        task,
        generate=generate,
        evaluate=check,
        policy=stopping,
        store=store,
        memory=memory,
    )
    await run.step()
    await run.override("attempts", f"me {text}", f"why {text}")
    await run.cancel(f"enough {text}")
    model = Function(raises)
    with pytest.raises(GenerateFailed) as failed:
        await run_loop(task, generate=raises)
    errors.append(str(failed.value))
    with pytest.raises(CheckFailed) as unchecked:
        await run_loop(task, generate=generate, checks=[raises])
    errors.append(str(unchecked.value))
    with pytest.raises(ModelError) as refused:
        await run_loop(task, generate=model, checks=[heedful.checks.contains("x")])
    errors.append(str(refused.value))
    return errors


async def remember_everywhere(store: heedful.Store, text: str) -> None:
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
    for trust in ("user", "outside"):
        remember = partial(
            memory.remember,
            tags=[text, "tag"],
            context=text,
            source=text[:200],
            origin=trust,
        )
        await remember(f"Type {text}", text, lesson=text, example=example)
        await remember("Leak", f"{trust} in the middle: {text}, and on")
    await memory.remember("Leak", "y" * (MAX_STORED_TEXT_CHARS - 30) + f" {text}")
    await memory.seen("Leak", text)
    await memory.recall(text, tags=[text])
    # A second token of a kind says the same.
    for entry in (await memory.quarantine.waiting())[:1]:
        await memory.quarantine.release([entry.id], by=text, why=text)
    await memory.pin(1, by=text, why=text)


async def plant(path: Path, texts: list[str]) -> list[str]:
    store = heedful.open_store(str(path))
    outputs = []
    try:
        runs = (run_loops(store, text, f"loop-{n}") for n, text in enumerate(texts))
        outputs += [error for errors in await asyncio.gather(*runs) for error in errors]
        for text in texts:
            await remember_everywhere(store, text)
        # Before it is closed, so that what is not in the database yet is in the -wal.
        outputs += [
            file.read_bytes().decode("utf-8", "replace")
            for file in path.parent.iterdir()
        ]
    finally:
        await store.close()
    return outputs


# By its form, its place (over several lines), its name and its address.
TELLING_KINDS = ("aws_key", "private_key", "assigned", "password_in_url")


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(TELLING_KINDS, id="one of each sort"),
        pytest.param(ONE_OF_EACH, id="all", marks=pytest.mark.nightly),
    ],
)
def test_no_key_is_left_anywhere(
    kinds: Iterable[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A key of each kind, all in one store: test_redact has every key, here is where
    they go.
    """
    caplog.set_level(logging.DEBUG)
    desk = Desk(tmp_path)
    few = [ONE_OF_EACH[kind] for kind in kinds]
    outputs = asyncio.run(plant(tmp_path / DB, [text for text, _ in few]))
    for command in (*COMMANDS, "why loop-0", "why loop-1 --json"):
        done = desk.invoke(monkeypatch, command)
        assert done.code in (0, 1), (command, done)
        outputs += [done.out, done.err]
    outputs += [
        file.read_bytes().decode("utf-8", "replace") for file in tmp_path.iterdir()
    ]
    outputs += [caplog.text, *capfd.readouterr()]
    hidden = {part for _, secret in few for part in parts(secret)}
    assert {len(part) for part in hidden} == {12}
    for text in dict.fromkeys(outputs):
        assert not hidden & {text[start : start + 12] for start in range(len(text))}
    assert any("[redacted: " in output for output in outputs)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(TOKENS["aws_key"][0], id="a key alone"),
        pytest.param(f"a {TOKENS['model_key'][0]}", id="a key in a text"),
    ],
)
def test_what_names_a_loop_or_a_scope_holds_no_key(name: str) -> None:
    def make_run() -> Any:
        return heedful.Run[str]("t", generate=lambda *_: "x", store=None, id=name)

    for make in (lambda: Scope(tenant=name), lambda: Scope(project=name), make_run):
        with pytest.raises(InvalidInput, match=r"redacted: \w+_key") as refused:
            make()
        assert not left(name, str(refused.value))

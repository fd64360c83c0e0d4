"""Secrets planted wherever a text can enter: no piece of one is in a file, a log, an
output, a prompt or the words of a search.
"""

import asyncio
import logging
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful.checks.evaluate import Context
from heedful.episodes.episode import Ended, Episode, Event, Fault
from heedful.errors import CheckFailed, GenerateFailed, InvalidInput, ModelError
from heedful.lessons.lesson import Scope
from heedful.lessons.scope import MAX_SOURCE_NAME_CHARS
from heedful.loop.record import Evaluation, Finding
from heedful.models.contract import Answer
from heedful.models.function import Function
from heedful.validation import MAX_SHOWN_LINE_CHARS, MAX_STORED_TEXT_CHARS
from tests.cli.support import Desk
from tests.planted import (
    FORMS,
    TOKENS,
    bundles,
    everything_in,
    find_pieces,
    join,
    left,
    values_of,
)

DB = "heedful.db"
BUNDLE_SIZE = 40
OUTCOMES: tuple[Ended, ...] = ("success", "failure")
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
        Finding("whose key is made of its message", text),
        Finding("measured", text, off_by=0.1),
    )
    return Evaluation(
        findings if context.attempt == 1 else (),
        {"quality": 0.5 * context.attempt, text: 0.5},
    )


async def run_loops(memory: heedful.Memory, text: str, id: str) -> list[str]:
    """Loops of all endings with the text in whatever they are given; what the errors
    and the hints said.
    """
    store = memory.store
    errors: list[str] = []

    def generate(task: Any, hint: str) -> Any:
        errors.append(hint)
        nested = {"note": [text], "deep": {"text": text}, text: "as a key"}
        return Answer(f"second {text}\n{hint}") if hint else nested

    def check(candidate: Any, context: Context) -> Evaluation:
        return judge(text, context)

    def raises(*_: Any) -> Any:
        raise RuntimeError(f"{'x' * 100} {text}")

    def rule(loop: heedful.Loop) -> str:
        return f"enough of {text}"

    run_loop = partial(heedful.run, store=store, memory=memory)
    goals = [heedful.Goal("quality", 0.9)]
    task = {"do": text, "also": [text]}
    await run_loop(task, generate=generate, checks=[check], goals=goals, id=id)
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


async def remember_everywhere(memory: heedful.Memory, text: str) -> list[str]:
    """Lessons and sightings with the text in whatever they are given; what is recalled
    of them.
    """
    source = text if len(text) <= MAX_SOURCE_NAME_CHARS else "a document"
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
            source=source,
            origin=trust,
        )
        await remember(f"Type {text}", text, lesson=text, example=example)
        await remember("Leak", f"{trust} in the middle: {text}, and on")
    await memory.remember("Leak", "y" * (MAX_STORED_TEXT_CHARS - 30) + f" {text}")
    answers: list[Any] = [await memory.seen("Leak", text)]
    matches = await memory.recall(text, tags=[text])
    answers += [matches, memory.render(matches), memory.render(matches, form="text")]
    answers += [await memory.query(text), await memory.top(100)]
    in_the_middle = await memory.remember("Leak", f"in the middle: {text}, and on")
    # A second token of a kind says the same.
    for entry in (await memory.quarantine.waiting())[:1]:
        await memory.quarantine.release([entry.id], by=text, why=text)
    await memory.pin(in_the_middle.id, by=text, why=text)
    rule = f"Never use {text}"
    if len(rule) <= MAX_SHOWN_LINE_CHARS:
        await memory.user_rules.state(rule, by=text)
    return list(map(str, answers))


async def learn_everywhere(memory: heedful.Memory, text: str) -> list[str]:
    """Runs of agents with the text in whatever they are given; what they teach."""
    answers: list[Any] = []
    events = (
        Event("user_message", f"Never use {text}", meta={"note": text}),
        Event("tool_call", tool="sh", arguments={"command": f"send {text}"}),
        Event("tool_response", tool="sh", error=f"Error: cannot send {text}"),
        Event("tool_call", tool="sh", arguments={"command": f"send -f {text}"}),
        Event("tool_response", f"sent {text}", tool="sh"),
        Event("error_event", error=text, code="E1", agent=f"agent {text}"),
    )
    for outcome in OUTCOMES:
        episode = Episode(
            events,
            outcome,
            task=f"send {text}",
            goal=text,
            fault=Fault("error", text, text),
            id=f"{outcome} {text}",
            session=f"{outcome} {text}",
        )
        answers.append(await heedful.reflect(episode, memory=memory))
        answers.append(await heedful.learn_session(episode, memory=memory))
    answers.append(await memory.before("sh", {"command": f"send {text}"}))
    answers.append(await heedful.consolidate(memory))
    return list(map(str, answers))


async def plant(path: Path, texts: list[str]) -> list[str]:
    """Plant each text in a project of its own; return all that is said about it."""
    store = heedful.open_store(str(path))
    outputs = []
    try:
        for number, text in enumerate(texts):
            # The commands below read the default project.
            scope = Scope(project=f"project-{number}") if number else Scope()
            memory = heedful.Memory(store, scope, holdout=0)
            outputs += await run_loops(memory, text, f"loop-{number}")
            outputs += await remember_everywhere(memory, text)
            outputs += await learn_everywhere(memory, text)
        # Before it is closed, so that what is not in the database yet is in the -wal.
        outputs += [
            file.read_bytes().decode("utf-8", "replace")
            for file in path.parent.iterdir()
        ]
    finally:
        await store.close()
    return outputs


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(1, id="a value of each form"),
        pytest.param(40, id="40 values of each form", marks=pytest.mark.nightly),
    ],
)
def test_no_piece_of_a_secret_is_left_anywhere(
    count: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    desk = Desk(tmp_path)
    values = [value for form in FORMS for value in values_of(form, count)]
    texts = list(map(join, bundles(values, BUNDLE_SIZE)))
    outputs = asyncio.run(plant(tmp_path / DB, texts))
    for command in (*COMMANDS, "why loop-0", "why loop-0 --json"):
        done = desk.invoke(monkeypatch, command)
        assert done.code in (0, 1), (command, done)
        outputs += [done.out, done.err]
    outputs += [
        file.read_bytes().decode("utf-8", "replace") for file in tmp_path.iterdir()
    ]
    outputs += [caplog.text, *capfd.readouterr(), *everything_in(tmp_path / DB)]
    everything = "\n".join(dict.fromkeys(outputs))
    assert "[redacted: " in everything
    assert find_pieces(values, everything) == []


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

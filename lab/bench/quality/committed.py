"""Answers that are committed, so that everybody gets the published figures in minutes.

A model has one file: the name of the model with the build that ran it, and an answer a
line, under the beginning of its key. Prompts are not in it. The same answers give the
same bytes.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from heedful.loop.record import Usage
from heedful.models.contract import Answer, Finish

FOLDER = Path(__file__).parent / "learned_answers"
KEY_DIGITS = 16  # of a digest: enough for millions of answers


@dataclass(frozen=True, kw_only=True)
class Committed:
    """The answers of a model by the beginning of their keys; `name` has its build."""

    path: Path
    name: str = ""
    answers: Mapping[str, Answer] = field(default_factory=dict)


def read_committed(model: str) -> Committed:
    """Return what is committed of a model; without a file, nothing."""
    path = FOLDER / f"{re.sub(r'[^a-zA-Z0-9.]+', '-', model)}.jsonl.gz"
    if not path.exists():
        return Committed(path=path)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        name, *rows = map(json.loads, file)
    answers = {key: answer_of(*row) for key, *row in rows}
    return Committed(path=path, name=name, answers=answers)


def commit(committed: Committed, name: str, used: Mapping[str, Answer]) -> None:
    """Write answers beside those that are committed. Raises SystemExit for two builds.

    Their figures would be mixed.
    """
    if committed.name not in ("", name):
        raise SystemExit(
            f"{committed.path} has the answers of {committed.name}, not of {name}: "
            "delete it first"
        )
    answers = {**committed.answers, **used}
    rows: list[object] = [name]
    for key, answer in sorted(answers.items(), key=lambda entry: entry[0]):
        usage = answer.usage
        rows.append(
            [
                key,
                answer.text,
                usage.prompt_tokens,
                usage.completion_tokens,
                usage.seconds,
                answer.finish,
            ]
        )
    text = "\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    committed.path.parent.mkdir(exist_ok=True)
    committed.path.write_bytes(gzip.compress(text.encode("ascii"), mtime=0))


def answer_of(
    text: str,
    prompt_tokens: int,
    completion_tokens: int,
    seconds: float,
    finish: Finish,
) -> Answer:
    """Return an answer that was kept, with its time in hundredths of a second."""
    usage = Usage(1, prompt_tokens, completion_tokens=completion_tokens)
    return Answer(text, usage.lasting(round(seconds, 2)), finish)

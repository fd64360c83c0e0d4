"""Particulars: does what was true for one task alone reach the next task as a rule?

`particulars.json` has 60 streams of one function and one check each. In 38 of them the
finding names a particular of its own task: a queue, a figure, a name, a branch, a path,
a date. No such value may be told to the next task, whether one loop failed or all. In
the other 22 the fix is a rule of the house: 20 are declared by the check, as a
parameter or a literal of its code, or stand in no task and no answer, and are told
after one failure; 2 stand in an accepted answer alone and wait for a second task.

`written` says how the check has its words:

- `code`: f-strings of its code; `indexed`: with a digit in the code by accident;
- `parameter`, `constant`, `object`: f-strings with a bound argument, a constant of the
  module, or a field of the check;
- `bound`, `table`, `member`: f-strings with the right answer of this very task, bound,
  looked up in a table of the module, or one of a tuple in the code;
- `outside`: both texts come from a person or another program.

Worked examples and accepted answers are no rules and are not searched: they show a task
with its answer.

Written before the first run: rules quote their first finding, so that nearly all of the
38 tell a particular and all of the 22 rules are learnt. Expected of rules without
particulars: `told` 0, `learnt.once` and `learnt.twice` 1, `early` 0, `leaked` 0. The
first run: `told` .833 (50 of 60), `learnt` 1, `early` 1, `leaked` 0.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import make_dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import mean
from types import SimpleNamespace
from typing import Any

from bench.quality.answers import say
from bench.quality.rows import Row
from heedful import Context, Finding, Memory, run as run_loop

STREAMS = Path(__file__).with_name("particulars.json")
# How a stored object would show its punctuation in the middle of a text.
STORED = '"}, "'
EXAMPLE = re.compile(
    r"^task: .*?(?=^--- )|^--- (?:task|accepted answer) .*?(?=^--- end )",
    re.MULTILINE | re.DOTALL,
)
Stream = Mapping[str, Any]
Check = Callable[[Any, Context], Sequence[Finding]]

# The checks are compiled from texts as people write them, so that their literals,
# arguments and constants are really those of a check.
SOURCES = {
    "code": """
def {check}(answer, context):
    facts = find(context.task, answer)
    if facts is None:
        return []
    return [Finding({check!r}, {message}, fix={fix})]
""",
    "indexed": """
def {check}(answer, context):
    facts = find(context.task, answer)
    words = str(answer).split()
    if facts is None or len(words) < 2 or words[1] == words[-1]:
        return []
    return [Finding({check!r}, {message}, fix={fix})]
""",
    "parameter": """
def {check}(answer, context, *, {name}):
    facts = find(context.task, answer)
    if facts is None:
        return []
    return [Finding({check!r}, {message}, fix={fix})]
""",
    "object": """
def {check}(self, answer, context):
    facts = find(context.task, answer)
    if facts is None:
        return []
    return [Finding({check!r}, {message}, fix={fix})]
""",
    # A list of constants in a function is a tuple of its code.
    "member": """
def {check}(answer, context):
    facts = find(context.task, answer)
    owners = {members}
    if facts is None or context.task in owners:
        return []
    return [Finding({check!r}, {message}, fix={fix})]
""",
    "outside": """
def {check}(answer, context):
    facts = find(context.task, answer)
    if facts is None:
        return []
    return [Finding({check!r}, facts.message, fix=facts.fix)]
""",
}
SOURCES["constant"] = SOURCES["table"] = SOURCES["code"]
SOURCES["bound"] = SOURCES["parameter"]


def run(data: Path, split: str) -> Iterator[Row]:
    """Yield the rows. `data` and `split` play no part: the streams are ours."""
    streams = json.loads(STREAMS.read_text("utf-8"))
    hints = asyncio.run(_hint_all(streams))

    with_particulars = 0
    for stream in streams:
        values = _find_particulars(stream, hints[stream["id"]])
        if values:
            with_particulars += 1
            say(f"told: {stream['id']}: {', '.join(values)}")

    def share(chosen: Sequence[Stream], loops: int) -> float:
        """Return the share of streams with their rule after so many loops."""
        return mean(
            stream["rule"] in hints[stream["id"]][loops - 1] for stream in chosen
        )

    rules = [stream for stream in streams if "after" in stream]
    declared = [stream for stream in rules if stream["after"] == 1]
    waiting = [stream for stream in rules if stream["after"] == 2]
    masked = [stream for stream in streams if "rule" in stream and stream not in rules]
    all_hints = list(chain.from_iterable(hints.values()))

    yield Row(
        key="particulars.told",
        ours=with_particulars / len(streams),
        anchor=f"{with_particulars} of {len(streams)} streams",
    )
    yield Row(key="particulars.learnt.once", ours=share(declared, 1))
    yield Row(key="particulars.learnt.twice", ours=share(rules, 2))
    yield Row(key="particulars.early", ours=share(waiting, 1))
    yield Row(
        key="particulars.masked",
        ours=share(masked, 1),
        anchor="what is constant of a fix with a particular, after one failure",
    )
    yield Row(key="particulars.leaked", ours=mean(STORED in hint for hint in all_hints))


async def _hint_all(streams: Sequence[Stream]) -> dict[str, list[str]]:
    """Return the rules that the next task gets after one loop, two loops, and so on."""
    hints: dict[str, list[str]] = {}
    for stream in streams:
        hints[stream["id"]] = [
            await _tell(stream, count + 1) for count in range(len(stream["loops"]))
        ]
    return hints


async def _tell(stream: Stream, count: int) -> str:
    """Run this many loops, each rejected once, and return what the next task gets."""
    memory = Memory(":memory:", holdout=0)
    for loop in stream["loops"][:count]:
        answers = iter([loop["rejected"], loop["accepted"]])
        await run_loop(
            loop["task"],
            generate=lambda task, hint, answers=answers: next(answers),
            checks=[_build_check(stream, loop)],
            memory=memory,
            memory_key=stream["key"],
            store=memory.store,
        )
    hints: list[str] = []

    def answer_next(task: str, hint: str) -> str:
        hints.append(hint)
        return "an answer"

    await run_loop(
        stream["next"],
        generate=answer_next,
        checks=[_build_check(stream, stream["loops"][0])],
        memory=memory,
        memory_key=stream["key"],
        store=memory.store,
    )
    await memory.store.close()
    return EXAMPLE.sub("", hints[0])


def _find_particulars(stream: Stream, texts: Sequence[str]) -> list[str]:
    """Return the particulars of the stream that stand in one of the texts."""
    # Headings have numbers and names of ours.
    lines = chain.from_iterable(map(str.splitlines, texts))
    lessons = [line for line in lines if not line.startswith("---")]
    values = []
    for value in stream["particulars"]:
        pattern = re.compile(rf"(?<!\w){re.escape(value)}(?!\w)", re.IGNORECASE)
        if any(map(pattern.search, lessons)):
            values.append(value)
    return values


def _build_check(stream: Stream, loop: Stream) -> Check:
    """Return the check of a stream; only `bound` ones differ between its loops."""
    written, name = stream["written"], stream["check"]
    parameters = dict(stream.get("parameters", {}))
    if written == "bound":
        parameters = {"accepted": loop["accepted"]}

    place = {
        "parameter": "{name}",
        "bound": "{name}",
        "object": "self.{name}",
        "constant": "{name}",
        "table": "TABLE[context.task]",
    }
    places = {key: place[written].format(name=key) for key in parameters}
    if written == "table":
        places["queue"] = place["table"]
    for key, value in parameters.items():
        if isinstance(value, list):
            places[key] = f"', '.join({places[key]})"

    source = SOURCES[written].format(
        check=name,
        message=_as_f_string(stream["message"], places),
        fix=_as_f_string(stream["fix"], places),
        name=next(iter(parameters), ""),
        members=[row["accepted"] for row in stream["loops"]],
    )
    module: dict[str, Any] = {
        "Finding": Finding,
        "find": partial(_find_facts, stream),
        "TABLE": {row["task"]: row["accepted"] for row in stream["loops"]},
    }
    if written == "constant":
        module |= parameters
    exec(compile(source, f"<{name}>", "exec"), module)
    check: Check = module[name]
    if written in ("parameter", "bound"):
        return partial(check, **parameters)
    if written == "object":
        fields = list(parameters)
        kind = make_dataclass(name, fields, namespace={"__call__": check}, frozen=True)
        record: Check = kind(*parameters.values())
        return record
    return check


def _as_f_string(template: str, places: Mapping[str, str]) -> str:
    """Return the source of an f-string for a template with names in braces."""

    def place(match: re.Match[str]) -> str:
        name = match[1]
        return "{" + places.get(name, f"facts.{name}") + (match[2] or "") + "}"

    body = re.sub(r"\{(\w+)(![rs])?\}", place, template)
    return f'f"""{body}"""'


def _find_facts(stream: Stream, task: str, answer: Any) -> SimpleNamespace | None:
    """Return the facts of the loop whose rejected answer this is; None for others."""
    for loop in stream["loops"]:
        if loop["task"] == task and loop["rejected"] == answer:
            facts = dict(loop)
            values = facts | {
                key: ", ".join(value) if isinstance(value, list) else value
                for key, value in stream.get("parameters", {}).items()
            }
            facts["message"] = stream["message"].format_map(values)
            facts["fix"] = stream["fix"].format_map(values)
            namespace = SimpleNamespace()
            vars(namespace).update(facts)
            return namespace
    return None

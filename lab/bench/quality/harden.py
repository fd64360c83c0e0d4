"""Harden: checks made from lessons catch the repeats of a mistake and nothing else.

`harden.json` has what the embedded 0.5B model really answered: to the first tasks of
the demonstration's families with feedback (`demo`), and to the unlike tasks at the
first try (`unlike`). A family is a stream of loops with one memory key. A loop makes
the recorded answers, and then the right one. After each loop, the lessons that have two
rejected and two accepted answers are hardened and accepted. From then on, each recorded
answer that breaks the rule of a hardened lesson is a repeat; it is caught if the
lesson's check finds it, which asks no model. `data` are the labels and the SQL of the
open sets: their right answers are recorded ones, their mistakes are written here.

`prose` are answers that models wrote to questions, in whole sentences; ready-made
checks divide them into wrong and right ones. `fresh` are other answers with other
checks, among them names and dates, which have no form in common.

Each right answer of a family that comes after its check was made is judged by it: one
that is found is a false alarm. The rest of the right answers of a family, which no
loop had, is judged at the end.

The constructs were chosen on the families of the demonstration, so the figures to
report are those of the unlike tasks and of the data.

Expected before the code was written: repeats caught 0.95 on the demonstration, 0.90 on
the unlike tasks and on the data; false alarms 0 of more than 500; at least 0.7 of the
lessons with two examples can be hardened, since a wrong value is no wrong form. The
prose was added after the code: expected 0.9 and 0. A first run found 3 false alarms in
1,325 of its answers, because of two bounds that separate the narrower one was taken,
and one in 635 of the data, because "w2" was a word and a number. Of the fresh ones 0.9
and 0 were expected; a first run found 182 false alarms in 2,684 answers, because two
names were a form, and so a form has to be shown by the lesson's words now.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import heedful
from bench.quality import unlike
from bench.quality.rows import Row, read
from examples.house_rules import rules
from heedful import Finding, Memory
from heedful.checks.evaluate import Context
from heedful.cli.run import examples_folder
from heedful.errors import InvalidInput
from heedful.lessons.lesson_check import LessonCheck
from heedful.memory.hardening import LessonChecks

ANSWERS = Path(__file__).with_name("harden.json")
# Right answers of the last tasks, by family, where no answer is expected word by word.
SEVERITIES = ("P1", "P3", "P0", "P2")
TEAMS = ("@shipping", "@billing", "@support")
FLAGS = ("Y", "N")
# Loops that teach, in each family; the others are judged.
MAX_TAUGHT_CASES = 100
Judge = Callable[[str], list[Finding]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A task with its wrong answers in order, its right answer, and its check."""

    task: str
    wrong: tuple[str, ...]
    right: str
    judge: Judge


@dataclass(kw_only=True)
class Count:
    """What one family showed.

    `lessons` had two examples, and `hardened` are those of them that became a check.
    `others` are the repeats of lessons of which no check could be made.
    """

    repeats: int = 0
    caught: int = 0
    others: int = 0
    answers: int = 0
    alarms: int = 0
    lessons: int = 0
    hardened: int = 0
    missed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def run(data: Path, split: str) -> Iterator[Row]:
    """Yield the rows of each group of families, and those of all together."""
    yield from asyncio.run(_measure(data, split))


async def _measure(data: Path, split: str) -> list[Row]:
    groups = {
        "demo": demo_families(),
        "unlike": unlike_families(),
        "data": data_families(data, split),
        "prose": prose_families(data, split),
        "fresh": fresh_families(data, split),
    }
    rows: list[Row] = []
    everything: list[Count] = []
    for group, families in groups.items():
        counts = {name: await _stream(name, cases) for name, cases in families.items()}
        for name, count in counts.items():
            note = "; ".join([*count.missed[:2], *count.refused[:2]])
            share = count.caught / max(1, count.repeats)
            rows.append(Row(key=f"harden.{group}.{name}", ours=share, anchor=note))
        rows += _rows(f"harden.{group}", list(counts.values()))
        everything += counts.values()
    rows += _rows("harden", everything)
    return rows


def _rows(key: str, counts: Sequence[Count]) -> Iterator[Row]:
    """Yield the figures of several families together."""
    repeats = sum(count.repeats for count in counts)
    caught = sum(count.caught for count in counts)
    answers = sum(count.answers for count in counts)
    lessons = sum(count.lessons for count in counts)
    hardened = sum(count.hardened for count in counts)
    yield Row(
        key=f"{key}.caught",
        ours=caught / max(1, repeats),
        anchor=f"{caught} of {repeats} repeats, without a model call",
    )
    others = sum(count.others for count in counts)
    yield Row(
        key=f"{key}.caught_of_all",
        ours=caught / max(1, repeats + others),
        anchor=f"{others} repeats more are of lessons that no check separates",
    )
    yield Row(
        key=f"{key}.false_alarms",
        ours=sum(count.alarms for count in counts),
        anchor=f"of {answers} accepted answers that no check was made from",
    )
    yield Row(
        key=f"{key}.hardened",
        ours=hardened / max(1, lessons),
        anchor=f"{hardened} of {lessons} lessons with two examples",
    )


async def _stream(name: str, cases: Sequence[Case]) -> Count:
    """Run the loops of one family in order, and judge by its checks meanwhile."""
    count = Count()
    memory = Memory(":memory:", holdout=0)
    checks: dict[str, LessonCheck] = {}
    refusals: dict[str, str] = {}
    for place, case in enumerate(cases):
        for answer in case.wrong:
            for finding in case.judge(answer):
                rule = heedful.signature(finding.check, finding.key).digest
                if rule in refusals and rule not in checks:
                    count.others += 1
                if rule in checks:
                    count.repeats += 1
                    if checks[rule].refuses(answer):
                        count.caught += 1
                    else:
                        count.missed.append(f"missed {answer[:40]!r}")
        _judge_right(count, case, checks)
        # As in use, loops that were right at once are remembered, too.
        if case.wrong or place < MAX_TAUGHT_CASES:
            await _teach(name, case, memory)
        if case.wrong and place < MAX_TAUGHT_CASES:
            await _harden(memory, checks, refusals)
    count.hardened = len(checks)
    count.lessons = len(checks.keys() | refusals.keys())
    count.refused = [text for rule, text in refusals.items() if rule not in checks]
    return count


def _judge_right(count: Count, case: Case, checks: dict[str, LessonCheck]) -> None:
    """Judge an accepted answer that no check was made from."""
    if not checks:
        return
    count.answers += 1
    if any(check.refuses(case.right) for check in checks.values()):
        count.alarms += 1
        count.missed.append(f"false alarm {case.right[:40]!r}")


async def _teach(name: str, case: Case, memory: Memory) -> None:
    """Run a loop that makes the recorded answers, and then the right one."""
    answers = iter((*case.wrong, case.right))

    def generate(task: str, hint: str) -> str:
        return next(answers)

    def judged(candidate: str, context: Context) -> list[Finding]:
        return case.judge(candidate)

    attempts = len(case.wrong) + 1
    await heedful.run(
        case.task,
        generate=generate,
        checks=[judged],
        policy=heedful.Policy((heedful.MaxAttempts(attempts),), name="as recorded"),
        memory=memory,
        memory_key=name,
        store=None,
    )


async def _harden(
    memory: Memory, checks: dict[str, LessonCheck], refusals: dict[str, str]
) -> None:
    """Harden and accept the lessons that have become ripe."""
    for lesson in await memory.top(100):
        if lesson["kind"] != "check" or lesson["signature"] in checks:
            continue
        if lesson["seen"] < 2:
            continue
        try:
            check = await LessonChecks(memory).accept(lesson["id"], by="bench")
        except InvalidInput as error:
            refusals[lesson["signature"]] = str(error)
        else:
            checks[lesson["signature"]] = check


def demo_families() -> dict[str, list[Case]]:
    """Return the house rules: recorded answers first, then the other tasks."""
    folder = examples_folder() / "house_rules"
    recorded = json.loads(ANSWERS.read_text("utf-8"))["demo"]
    families: dict[str, list[Case]] = {}
    for line in (folder / "tasks.jsonl").read_text("utf-8").splitlines():
        task = json.loads(line)
        [spec_of_check] = task["checks"]
        family = spec_of_check.pop("name").removeprefix("rules:")
        check = getattr(rules, family)(**spec_of_check)

        def judge(answer: str, check: Any = check) -> list[Finding]:
            return list(check(answer, Context("")))

        answers = recorded[family].get(task["id"], ())
        wrong = tuple(answer for answer in answers if judge(answer))
        case = Case(task=task["task"], wrong=wrong, right=check.expected, judge=judge)
        families.setdefault(family, []).append(case)
    return families


def unlike_families() -> dict[str, list[Case]]:
    """Return the unlike tasks with the recorded first answers."""
    recorded = json.loads(ANSWERS.read_text("utf-8"))["unlike"]
    families: dict[str, list[Case]] = {}
    expected = json.loads(unlike.TASKS.read_text("utf-8"))
    for family in unlike.families():
        cases = []
        for place, task in enumerate(family.tasks):
            answer = recorded[family.name][task.text]
            right = expected[family.name]["tasks"][task.text]
            right = right or _right_answer(family.name, task.text, place)
            assert not task.judge(right), (family.name, right)
            wrong = (answer,) if task.judge(answer) else ()
            case = Case(
                task=task.text,
                wrong=wrong,
                right=right,
                judge=task.judge,
            )
            cases.append(case)
        families[family.name] = cases
    return families


def _right_answer(family: str, task: str, place: int) -> str:
    """Return an answer that the check of a family accepts."""
    words = task.split()
    if family == "severity":
        return SEVERITIES[place % len(SEVERITIES)]
    if family == "team":
        return TEAMS[place % len(TEAMS)]
    if family == "flag":
        return FLAGS[place % len(FLAGS)]
    if family == "keys":
        price = float(words[-1])
        item = " ".join(words[:2])
        return json.dumps({"item": item, "amount": int(price) if place % 2 else price})
    return " ".join(words[-1 - place % 2 :])


def data_families(data: Path, split: str) -> dict[str, list[Case]]:
    """Return the right answers of open sets, each twelfth with a written mistake."""
    statements = [row["gold_sql"] for row in read(data, "sql_spider", split)]
    statements += [row["gold_sql"] for row in read(data, "sql_defog", split)]
    families = {"sql": [_statement(text, n) for n, text in enumerate(statements)]}
    for name in ("intents_banking77", "intents_clinc150"):
        labels = [row["label"] for row in read(data, name, split)]
        cases = [_label(label, n) for n, label in enumerate(dict.fromkeys(labels))]
        families[name.partition("_")[2]] = cases
    return families


def _statement(text: str, place: int) -> Case:
    """Return a statement that a model puts into a code block, or explains."""

    def judge(answer: str) -> list[Finding]:
        if "```" not in answer:
            return []
        fix = "answer with the statement alone, without ``` around it"
        return [Finding("sql", "there is a code block", fix=fix)]

    fence = "```sql" if place % 24 else "Here is the query:\n```"
    wrong = (f"{fence}\n{text}\n```",) if place % 12 == 0 else ()
    return Case(task=f"statement {place}", wrong=wrong, right=text, judge=judge)


def _label(label: str, place: int) -> Case:
    """Return a label that a model writes as words."""

    def judge(answer: str) -> list[Finding]:
        if answer == answer.lower() and " " not in answer:
            return []
        fix = "write the label in lower case, with underscores"
        return [Finding("label", "this is no label of the list", fix=fix)]

    words = label.replace("_", " ")
    if not (place % 2 and " " in words):
        words = words.capitalize()
    wrong = () if place % 3 else (words,)
    return Case(task=f"message {place}", wrong=wrong, right=label, judge=judge)


def prose_families(data: Path, split: str) -> dict[str, list[Case]]:
    """Return the answers in sentences, divided by ready-made checks."""
    rows = read(data, "grounding_ragtruth_qa_test", split)
    texts = list(dict.fromkeys(row["response"].strip() for row in rows))
    checks = {
        "at_most_words": heedful.checks.words(at_most=120),
        "at_least_words": heedful.checks.words(at_least=60),
        "without_however": heedful.checks.excludes("however"),
        "without_colon": heedful.checks.excludes(":"),
        "with_passages": heedful.checks.contains("passage"),
    }
    return {name: _divide(texts, check) for name, check in checks.items()}


def fresh_families(data: Path, split: str) -> dict[str, list[Case]]:
    """Return reports about data, statements and names, divided by ready-made checks."""
    reports = [
        row["response"].strip() for row in read(data, "grounding_quintd1", split)
    ]
    statements = [row["gold_sql"] for row in read(data, "sql_lifelong_db", split)]
    names: list[str] = []
    for row in read(data, "episodes_hotpotqa", split):
        answers = [attempt["final_answer"] or "" for attempt in row["attempts"]]
        names += map(str.strip, answers)

    checks = heedful.checks
    divided = {
        "at_most_characters": (reports, checks.characters(at_most=600)),
        "at_least_characters": (reports, checks.characters(at_least=400)),
        "without_percent": (reports, checks.excludes("%")),
        "with_overall": (reports, checks.contains("overall")),
        "one_line": (reports, checks.regex(r"[^\n]*", fix="write one paragraph")),
        "select": (statements, checks.regex("SELECT .*", fix="begin with SELECT")),
        "capital": (names, checks.regex("[A-Z].*", fix="begin with a capital letter")),
        "no_dot": (names, checks.regex(r".*[^.]", fix="leave out the dot at the end")),
    }
    return {
        name: _divide(list(dict.fromkeys(filter(None, texts))), check)
        for name, (texts, check) in divided.items()
    }


def _divide(texts: Sequence[str], check: Any) -> list[Case]:
    """Return a case for each text, in their order; a wrong one is then put right.

    What puts it right is the next text that the check accepts.
    """

    def judge(answer: str) -> list[Finding]:
        return list(check(answer, Context("")))

    cases = []
    left: list[str] = []
    for place, text in enumerate(texts):
        wrong = (text,) if judge(text) else ()
        left += wrong
        if not wrong:
            before = (left.pop(0),) if left else ()
            case = Case(task=f"text {place}", wrong=before, right=text, judge=judge)
            cases.append(case)
    return cases

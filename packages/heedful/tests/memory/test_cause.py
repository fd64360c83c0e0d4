"""What loops of one key got wrong is told to the next loop of the key, whatever its
task.
"""

import datetime
import functools
import itertools
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, TypeAdapter

from heedful import errors
from heedful.checks.evaluate import Context, context, key_of
from heedful.drive.generate import Writer
from heedful.drive.portal import self_correcting
from heedful.drive.report import open_loop
from heedful.drive.run_loop import Run
from heedful.lessons.lesson import REMINDER_INTERVAL_LOOPS, Cause, Example, Scope
from heedful.lessons.ranking import (
    candidates_for_prompt,
    prompt_budget,
    tell_prompt,
)
from heedful.lessons.render import as_messages, as_text
from heedful.lessons.scope import MIN_UNBROKEN_CASES
from heedful.lessons.telling import Situation, Tell, tell
from heedful.loop.decide import Policy
from heedful.loop.record import Finding
from heedful.loop.stop import MaxAttempts
from heedful.memory.memory import Memory
from heedful.pipeline import Pipeline
from heedful.store import exposures, loops
from heedful.store.connection import Db
from heedful.store.search import MAX_RULE_EXAMPLE_CHARS, keys_of_rule, memory_keys
from heedful.store.store import Store
from heedful.testing import ScriptedModel
from tests.lessons.support import build_match
from tests.memory.loops import run_loop
from tests.store.support import in_memory
from tests.tables import cases

FIX = "answer with one of P0 to P3"
TASKS = (
    "checkout answers 500",
    "a typo on pricing",
    "login spins",
    "dark mode flickers",
    "oh",
)
NAME = "kind || '/' || signature as name"
TWO = Policy((MaxAttempts(2),), name="two")
Ask = Callable[[str], Awaitable[Any]]


def severity(answer: Any, at: Context) -> Sequence[Finding]:
    answer = answer.get("triage") if isinstance(answer, dict) else answer
    is_severity = answer in ("P0", "P1", "P2", "P3")
    return (
        []
        if is_severity
        else [Finding("severity", f"{answer!r} is no severity", fix=FIX)]
    )


class Agent:
    """Answers wrongly until it is told the rule; keeps what it was told before each
    answer.
    """

    def __init__(self, store: Store, obeys: bool = True) -> None:
        self.store = store
        self.obeys = obeys
        self.memory = Memory(store, holdout=0.0)
        self.hints: list[str] = []

    def answer(self, hint: str | None) -> str:
        self.hints.append(hint or "")
        if self.obeys and FIX in self.hints[-1]:
            return "P1"
        return f"bad {len(self.hints)}"

    async def run(self, task: str, generate: Any, memory_key: str | None = None) -> Any:
        """Run a loop of two attempts with this generator."""
        return await run_loop(
            self.memory, task, generate, [severity], memory_key=memory_key, policy=TWO
        )


def ask_decorated(agent: Agent) -> Ask:
    @self_correcting(
        checks=[severity],
        memory=agent.memory,
        store=agent.store,
        policy=TWO,
        on_exhausted="best",
    )
    async def triage(task: str, hint: str) -> str:
        return agent.answer(hint)

    return triage


def ask_function(agent: Agent) -> Ask:
    async def triage(task: str, hint: str) -> str:
        return agent.answer(hint)

    return lambda task: agent.run(task, triage)


def ask_nameless(agent: Agent) -> Ask:
    return lambda task: agent.run(
        task, lambda task, hint: agent.answer(hint), memory_key="triage"
    )


def ask_stage(agent: Agent) -> Ask:
    def triage(state: Any, feedback: str | None = None) -> str:
        return agent.answer(feedback)

    async def asked(task: str) -> None:
        pipeline = Pipeline(
            task, store=agent.store, memory=agent.memory, progress=False
        )
        pipeline.stage(checks=[severity], retries=1, name=task)(triage)
        await pipeline.run()

    return asked


def ask_outside(agent: Agent) -> Ask:
    async def asked(task: str) -> None:
        loop = await open_loop(
            task,
            task,
            memory=agent.memory,
            checks=[severity],
            policy=TWO,
            memory_key="triage",
        )
        while not loop.ended:
            await loop.report(agent.answer(loop.hint))

    return asked


HOSTS = [ask_decorated, ask_function, ask_nameless, ask_stage, ask_outside]


@cases("obeys", {"obeys": True, "disobeys": False})
@pytest.mark.parametrize(
    ("host", "engine"),
    [
        *(
            pytest.param(host, "sqlite", id=host.__name__.removeprefix("ask_"))
            for host in HOSTS
        ),
        pytest.param(
            ask_function,
            "postgres",
            id="function on PostgreSQL",
            marks=pytest.mark.nightly,
        ),
    ],
    indirect=["engine"],
)
async def test_a_rule_is_told_once_a_loop_mended_it_or_a_second_loop_broke_it(
    store, host, obeys
):
    agent = Agent(store, obeys)
    ask = host(agent)
    for task in TASKS:
        await ask(task)
    has_rule = [FIX in hint for hint in agent.hints]
    pauses = [True, True, True] + [False, True] * 2  # it was told in vain
    assert has_rule == (
        [False] + [True] * 5 if obeys else [False, True, False, *pauses]
    )
    assert "data, not instructions" in agent.hints[4]
    has_example = "not accepted: bad 1\naccepted: P1" in agent.hints[2]
    assert has_example is (
        obeys and host is not ask_stage
    )  # the outputs of a stage are not kept
    [state] = [
        lesson["state"]
        for lesson in (await agent.memory.top())
        if FIX in lesson["text"]
    ][:1]
    assert state == ("verified" if obeys else "unverified")


@pytest.mark.both_nightly
@cases(
    "task, output, has_example",
    {
        "another task gets one": (TASKS[1], "bad", True),
        "the same task has a nearer one": (TASKS[0], "bad", False),
        "the answer is too long": (TASKS[1], "bad" * MAX_RULE_EXAMPLE_CHARS, False),
    },
)
async def test_a_rule_has_a_short_worked_example_unless_a_nearer_one_is_told(
    store, task, output, has_example
):
    memory = Memory(store, holdout=0.0)
    hints = list[str]()

    async def triage(task: str, hint: str) -> str:
        hints.append(hint)
        return "P1" if FIX in hint else output

    for loop_task in (TASKS[0], task):
        await run_loop(memory, loop_task, triage, [severity], tell="both")
    assert (FIX in hints[2]) is True
    assert (f"not accepted: {output}" in hints[2]) == has_example


@cases(
    "fix, mended, same_key, examples, chosen_ids, has_example",
    {
        "three answers count as verified": (1, 1, True, 3, [9, 1, 2, 3], False),
        "a fixed rule and two answers": (1, 1, True, 2, [9, 1, 2], True),
        "answers of another key": (1, 1, False, 3, [9], True),
        "no fix, and no loop passed": (0, 2, True, 3, [1, 2, 3], False),
        "no rule": (0, None, True, 3, [1, 2, 3], False),
    },
)
def test_accepted_answers_of_the_key_are_told_however_unlike(
    fix, mended, same_key, examples, chosen_ids, has_example
):
    matches = [
        build_match(
            n, f"weigh it {n}", kind="example", verified=False, cosine=0.1, own=same_key
        )
        for n in range(1, examples + 1)
    ]
    if mended is not None:
        cause = Cause(memory_key="K", rule="r", fix=fix, loops=2, mended=mended)
        matches.append(
            build_match(
                9,
                "tell it",
                "",
                worked=Example("tell it", "7 kg", rejected="7"),
                cause=cause,
                verified=False,
                trust="local",
                lesson="say kg",
            )
        )
    telling = tell_prompt(matches, 0.0)
    chosen = [candidate.record for candidate in telling.told]
    assert sorted(match.id for match in chosen) == sorted(chosen_ids)
    assert ("not accepted: 7" in as_text(as_messages(chosen), 0, chosen)) is has_example
    refused_ids = {candidate.example for candidate, _ in telling.refused}
    assert refused_ids == {match.id for match in matches} - {*chosen_ids}


@pytest.mark.both_nightly
async def test_accepted_answers_are_told_once_loops_of_their_key_fail_and_to_no_other(
    store,
):
    memory = Memory(store, holdout=0.0)
    has_examples = []
    for task, answer in (("checkout is slow", "P1"), ("dark mode flickers", "bad")):
        generate = functools.partial(lambda answer, task, hint: answer, answer)
        await run_loop(memory, task, generate, [severity], memory_key="K")
        for key in "KJ":
            briefing = await memory.brief(
                "the page after checkout is blank", "", memory_key=key
            )
            has_examples.append(bool(briefing.examples))
    assert has_examples == [False, False, True, False]
    assert await store.read(memory.scope, memory_keys) == ["K"]
    (lesson,) = [row for row in await memory.top(9) if row["kind"] == "check"]
    assert await store.read(memory.scope, keys_of_rule, lesson) == ["K"]


def test_the_key_of_what_makes_candidates(monkeypatch):
    own_key = f"{__name__}.severity"
    partial = functools.partial(functools.partial(severity), at=None)
    store = in_memory()
    defaults: dict[Any, str] = {
        (severity,): own_key,
        (lambda *_: None,): "",
        (severity, len): "",
    }
    for checks, key in defaults.items():  # a model has the key of its checks
        loop = Run[Any](
            "t", generate=ScriptedModel(), checks=checks, memory=store, store=None
        )
        assert loop.memory_key == key
    bound = Agent.answer.__get__(object())
    model = ScriptedModel("text")
    keys: list[tuple[Any, str]] = [
        (severity, own_key),
        (partial, own_key),
        (functools.wraps(severity)(lambda *_: None), own_key),
        (bound, f"{__name__}.Agent.answer"),
        (lambda *_: None, ""),
        (model, ""),
        (Writer(model), ""),
        (
            functools.partial(Writer(model).messages, Context("t")),
            "heedful.drive.generate.Writer.messages",
        ),
    ]
    assert [key_of(generator) for generator, _ in keys] == [key for _, key in keys]
    session: dict[str, Any] = {"__name__": "__main__"}
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "ask.py", raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    exec(compile("def f(): ...", "<string>", "exec"), session)
    assert key_of(session["f"]) == ""
    exec(compile("def f(): ...", "ask.py", "exec"), session)
    assert key_of(session["f"]) == "ask.f"
    monkeypatch.delattr(sys.modules["__main__"], "__file__")
    for cell in ("<ipython-input-1>", "/tmp/ipykernel_7/2143117894.py"):
        exec(compile("def f(): ...\ng = lambda: 1", cell, "exec"), session)
        assert key_of(session["f"]) == "__main__.f"
        assert key_of(session["g"]) == ""


@cases("wrong", {"too long": "x" * 201, "a secret": "sk-proj-" + "a1B2" * 12})
async def test_a_wrong_key_or_form_is_refused_before_anything_is_written(store, wrong):
    with pytest.raises(errors.InvalidInput, match="memory_key"):
        Run("task", generate=severity, memory_key=wrong, store=store)
    with pytest.raises(errors.InvalidInput, match="memory_key"):
        await open_loop("a", "task", memory_key=wrong, store=store)
    with pytest.raises(errors.InvalidInput, match="memory_key"):
        Pipeline("p", store=store).stage(memory_key=wrong)(lambda state: 1)
    unknown_form: Any = "all"
    with pytest.raises(errors.InvalidInput, match="tell"):
        Run("task", generate=severity, tell=unknown_form, store=store)
    await open_loop("b", "task", memory_key="one", store=store)
    with pytest.raises(errors.Conflict, match="memory_key"):
        await open_loop("b", "task", memory_key="two", store=store)


class Breaking:
    """Loops of a key that break the rules of some checks, and then mend them."""

    def __init__(self, store: Store) -> None:
        self.memory = Memory(store, holdout=0.0)
        self.number = itertools.count()

    async def __call__(
        self,
        key: str,
        *names: str,
        checks: str = "abc",
        fix: str | None = None,
        tell: Tell = "both",
        id: str = "",
        is_stored: bool = True,
    ) -> list[str]:
        """Run a loop of `key`; return the rules that it was told before its first
        attempt.

        With a `fix`, findings have it, and the loop mends nothing.
        """
        rules: list[list[str]] = []

        def generate(task: str, hint: str) -> str:
            rules.append([match.error_type for match in context().advice])
            self.answers = [
                rule.worked.digest for rule in context().advice if rule.worked
            ]
            return "fine" if rules[1:] and fix is None else " ".join(names) or "fine"

        def check(name: str) -> Any:
            def judge(answer: str, at: Context) -> Sequence[Finding]:
                is_broken = name in answer.split()
                weight = 0.9 if name == "c" else 0.5
                finding = Finding(
                    name, f"rule {name} is broken", fix=fix or "", severity=weight
                )
                return [finding] if is_broken else []

            pure_check: Any = judge
            pure_check.__name__ = name
            pure_check.pure = True
            return pure_check

        await run_loop(
            self.memory,
            f"task{next(self.number)}",
            generate,
            list(map(check, checks)),
            memory_key=key,
            policy=TWO,
            tell=tell,
            id=id,
            store=self.memory.store if is_stored else None,
        )
        return rules[0]


def test_of_many_rules_those_that_the_task_names_come_first():
    cause = Cause(memory_key="K", rule="", fix=2, loops=2, mended=2)
    words = {n: f"book goods{n} under CODE{n} {'and so on' * 20}" for n in range(30)}
    rules = [build_match(n, "t", "", lesson=words[n], cause=cause) for n in words]
    situation = Situation(moment="first attempt", budget=prompt_budget())
    candidates = candidates_for_prompt(rules, "2 crates of goods27")
    telling = tell(situation, candidates)
    chosen = [candidate.record for candidate in telling.told]
    assert len(chosen) < len(rules)
    assert [match.id for match in chosen[:2]] == [27, 0]


@pytest.mark.both_nightly
async def test_all_rules_are_told_most_often_and_most_severely_broken_first(store):
    breaking = Breaking(store)
    for names in ("ab", "b", "bc"):
        await breaking("K", *names)
    assert await breaking("K") == ["b", "c", "a"]  # 3 × 0.5, 1 × 0.9, 1 × 0.5
    await breaking("K", "a", "c")
    assert await breaking("K") == ["c", "b", "a"]
    assert await breaking("K", checks="a") == ["a"]  # checks narrow the key
    assert await breaking("K", tell="examples") == []
    assert await breaking("L") == []
    await breaking("M", *"dfgh", checks="dfgh")
    assert sorted(await breaking("M", checks="dfgh")) == list("dfgh")
    assert len(breaking.answers) == 1  # one answer broke them all


@pytest.mark.parametrize(
    ("is_stored", "engine"),
    [
        pytest.param(True, "sqlite", id="one store"),
        pytest.param(False, "sqlite", id="no store for loops"),
        pytest.param(
            True, "postgres", id="one store in PostgreSQL", marks=pytest.mark.nightly
        ),
    ],
    indirect=["engine"],
)
async def test_a_rule_fades_after_it_was_kept_and_returns_when_it_is_broken(
    store, is_stored
):
    breaking = Breaking(store)
    await breaking("K", "a", is_stored=is_stored)
    rule_counts = [
        len(await breaking("K", is_stored=is_stored))
        for _ in range(MIN_UNBROKEN_CASES + REMINDER_INTERVAL_LOOPS)
    ]
    assert rule_counts == [1] * MIN_UNBROKEN_CASES + [1, 0, 0, 0, 0]
    assert await breaking("K", "a", is_stored=is_stored) == ["a"]
    assert [
        len(await breaking("K", is_stored=is_stored))
        for _ in range(REMINDER_INTERVAL_LOOPS)
    ] == [1] * REMINDER_INTERVAL_LOOPS


@pytest.mark.both_nightly
@cases("fix, turns", {"with a fix": ("say P1", [2, 6, 9]), "without a fix": ("", [])})
async def test_a_rule_that_no_loop_mends_is_told_seldom_and_without_a_fix_never(
    store, fix, turns
):
    breaking = Breaking(store)
    has_rule = [bool(await breaking("K", "a", fix=fix)) for _ in range(12)]
    assert [n for n, shows_rule in enumerate(has_rule) if shows_rule] == turns
    for _ in range(10):
        await breaking("K", "a")
    assert await breaking("K") == ["a"]  # 10 of 22 loops mended it


@pytest.mark.both_nightly
@pytest.mark.parametrize(
    "gone", ["retired", "quarantined", "superseded", "replaced", "revoked"]
)
async def test_a_rule_is_silent_without_a_lesson_in_force(store, gone):
    breaking = Breaking(store)
    await breaking("K", "a", id="first")
    await breaking("L", "b")

    def settled(db: Db, scope: Scope) -> None:
        state = "superseded" if gone == "replaced" else gone
        key = {"tenant": scope.tenant, "project": scope.project}
        names = [
            row["name"] for row in db.select(NAME, "lesson", key, "order by error_type")
        ]
        db.update("lesson", {"error_type": "a"}, {"state": state})
        if gone == "replaced":
            link = {"child": names[0], "relation": "became", "parent": names[1]}
            db.insert("link", {**key, **link})

    if gone == "revoked":
        await breaking.memory.quarantine.revoke("loop:first", by="ann")
    else:
        await store.write(Scope(), settled)
    # The lesson that replaced another has the words of its rule.
    assert await breaking("K") == (["b"] if gone == "replaced" else [])


@pytest.mark.both_nightly
@pytest.mark.parametrize("gone", ["revoked", "kept"])
async def test_words_of_a_lesson_leave_the_stored_briefings_with_it(store, gone):
    breaking = Breaking(store)
    await breaking("K", "a", id="first")
    await breaking("K", id="second")
    if gone == "revoked":
        await breaking.memory.quarantine.revoke("loop:first", by="ann")
    briefing = (await store.read(Scope(), loops.read, "second")).briefing
    texts = [choice.text for choice in briefing.choices] if briefing else []
    assert ["rule a is broken" in text for text in texts] == (
        [True] if gone == "kept" else []
    )


@cases("host", {"run here": ask_nameless, "reported from outside": ask_outside})
async def test_what_a_finding_quotes_from_the_output_is_no_part_of_the_rule(
    store, host
):
    agent = Agent(store, obeys=False)
    ask = host(agent)
    for task in TASKS[:2]:
        await ask(task)  # four other answers, and one rule
    [rule] = (await agent.memory.brief("x", "l", memory_key="triage")).found
    assert rule.cause is not None
    assert rule.cause.loops == 2
    assert rule.verified is False
    await ask(TASKS[2])  # told the rule, and breaks it in other words
    evidence = await store.read(Scope(), exposures.evidence)
    proof = evidence.cases_of()["check/" + rule.signature]
    assert [recurred for _, _, _, recurred, _, _ in proof] == [True]


def route(answer: Any, at: Context) -> Sequence[Finding]:
    """Find a wrong queue, and name the right one, which the task says."""
    queue = at.task.split()[-1]
    wrong = Finding("queue", f"{answer!r} is not the queue", fix=f"use queue {queue}")
    return [] if answer == queue else [wrong]


async def route_tasks(store: Store, *tasks: str, obeys: bool = True) -> list[str]:
    """Run a loop for each task, first with a wrong answer; return their first hints."""
    hints: list[str] = []
    for task in tasks:

        def answer(task: str, hint: str) -> str:
            is_retry = "last answer was not accepted" in hint
            if not is_retry:
                hints.append(hint)
            _, queue = task.split()
            return queue if is_retry and obeys else f"other_{task[0]}"

        await run_loop(
            Memory(store, holdout=0.0), task, answer, [route], memory_key="route"
        )
    return hints


def rules_in(hint: str) -> list[str]:
    """Return the rules of a hint, without the heading and the worked example."""
    parts = hint.split("how to put it right ")[1:]
    return [part.split("\n")[1] for part in parts]


@pytest.mark.both_nightly
async def test_a_particular_of_one_task_is_told_to_no_other(store):
    hints = await route_tasks(store, "a card", "b cash", "c loan")
    hints += await route_tasks(store, "d rent", "e visa", obeys=False)
    hints += await route_tasks(store, "f gift")
    rule = "___ is not the queue. use queue ___"
    assert list(map(rules_in, hints)) == [[], *[[rule]] * (len(hints) - 1)]


async def test_a_mistake_put_right_in_a_loop_that_fails_is_told_after_one_loop(store):
    def check(answer: Any) -> list[Finding]:
        return [Finding(answer, f"{answer} is wrong", fix="omit it")]

    answers = iter("abbbbbbbb")
    memory = Memory(store, holdout=0.0)
    await run_loop(memory, "x", lambda _, hint: next(answers), [check], memory_key="K")
    rules = (await memory.brief("y", "l", memory_key="K")).found
    assert [rule.error_type for rule in rules] == ["a"]


@pytest.mark.both_nightly
async def test_the_same_task_is_told_its_own_value(store):
    hints = await route_tasks(store, "a card", "b cash", "a card", "c loan")
    assert rules_in(hints[2]) == ["'other_a' is not the queue. use queue card"]
    assert rules_in(hints[3]) == ["___ is not the queue. use queue ___"]


LABELS = {"l": "LIT-", "kg": "KG:"}


def labelled(answer: str, at: Context) -> Sequence[Finding]:
    unit = at.task.split()[-1]
    prefix = LABELS[unit]
    if answer.startswith(prefix):
        return []
    fix = f"for {unit}, begin with {prefix!r}"
    return [Finding("form", f"{answer!r} is wrong", fix=fix, key=f"form {unit}")]


async def label_tasks(store: Store, *tasks: str, obeys: bool = True) -> list[str]:
    """Run the tasks; each is answered wrongly at first. Return what each was told."""
    first_hints = []
    for task in tasks:
        number, unit = task.split()[-2:]
        texts = [f"{number} {unit}"]
        if obeys:
            texts.append(f"{LABELS[unit]}{number}")
        hints: list[str] = []

        def answer(
            _: str, hint: str, hints: list[str] = hints, texts: list[str] = texts
        ) -> str:
            hints.append(hint)
            return texts[0] if len(hints) == 1 else texts[-1]

        memory = Memory(store, holdout=0.0)
        await run_loop(memory, task, answer, [labelled], memory_key="label", policy=TWO)
        first_hints.append(hints[0])
    return first_hints


async def test_a_fix_with_the_same_words_in_two_tasks_is_a_constant(store):
    tasks = ("label 853 l", "label 12 kg", "label 77 l", "label 5 kg", "label 9 l")
    hints = await label_tasks(store, *tasks)
    assert rules_in(hints[-1]) == [
        "'___ kg' is wrong. for kg, begin with 'KG:'",
        "'___ l' is wrong. for l, begin with 'LIT-'",
    ]


async def test_a_task_that_failed_before_and_after_another_is_told_to_no_other(store):
    await label_tasks(store, "label 853 l")
    await label_tasks(store, "label 12 l", obeys=False)
    hints = await label_tasks(store, "label 853 l", "label 9 l")
    assert rules_in(hints[-1]) == ["'___ l' is wrong. for l, begin with 'LIT-'"]


async def test_a_rule_with_more_blanks_than_words_says_why_it_is_not_told(store):
    await label_tasks(store, "label 853 l")
    memory = Memory(store, holdout=0.0)
    briefing = await memory.brief("label 3 kg", "l", memory_key="label", tell="rules")
    [choice] = briefing.choices
    assert choice.outcome == "missed"
    assert choice.code == "particulars"
    reason = choice.reason
    assert reason is not None
    assert reason.command == f"heedful lessons edit {choice.lesson} TEXT --by NAME"


def refuse_by_words(answer: str) -> str:
    if answer not in ("P0", "P1", "P2"):
        raise ValueError(f"{answer!r} is not one of P0, P1, P2")
    return answer


@cases(
    "read, wrong, right, rule",
    {
        "words of the function": (
            refuse_by_words,
            "high",
            "P1",
            "'high' is not one of P0, P1, P2",
        ),
        "values of a type": (
            TypeAdapter(Literal["P0", "P1", "P2"]).validate_python,
            "high",
            "P1",
            "at $: make it 'P0', 'P1' or 'P2'",
        ),
        "values of a field": (
            TypeAdapter(dict[str, Literal["P0", "P1"]]).validate_json,
            '{"priority": "high"}',
            '{"priority": "P1"}',
            "at $.priority: make it 'P0' or 'P1'",
        ),
        "an example that is like the answer": (
            TypeAdapter(datetime.date).validate_python,
            "soon",
            "2026-03-02",
            "at $: make it a date such as 2026-01-31",
        ),
        "a limit that is the answer": (
            TypeAdapter(Annotated[int, Field(le=5)]).validate_python,
            "7",
            "5",
            "at $: make it at most 5",
        ),
        "no JSON": (
            json.loads,
            "P1",
            '{"priority": "P1"}',
            "answer with the bare, complete JSON only: no ``` fences, no other words",
        ),
    },
)
async def test_what_an_exception_allows_is_told_whole_after_one_failure(
    store, read, wrong, right, rule
):
    hints: list[str] = []

    def answer(task: str, hint: str) -> Any:
        hints.append(hint)
        return read(wrong if len(hints) == 1 else right)

    for task in ("Acme cannot pay", "Globex is cross"):
        memory = Memory(store, holdout=0.0)
        await run_loop(memory, task, answer, [], memory_key="read")
    assert rules_in(hints[-1]) == [rule]


@pytest.mark.both_nightly
async def test_a_fix_that_differs_from_task_to_task_is_told_with_its_task(store):
    tasks = ("pay card", "pay cash", "pay loan")
    hints = await route_tasks(store, *tasks, "pay rent", obeys=False)
    for task in tasks:
        queue = task.split()[1]
        told = f"task: {task}\n'other_p' is not the queue\nuse queue {queue}\n"
        assert told in hints[3]
    assert "use queue ___" not in hints[3]

    memory = Memory(store, holdout=0.0)
    without_tasks = await memory.brief("pay", "l", memory_key="route", tell="rules")
    of_other = await memory.brief("pay", "l", memory_key="other")
    assert without_tasks.found + of_other.found == ()


@pytest.mark.both_nightly
async def test_a_rule_that_a_person_has_written_is_told_as_it_stands(store):
    await route_tasks(store, "a card", "b cash")
    memory = Memory(store, holdout=0.0)
    oldest = min(lesson["id"] for lesson in await memory.top())
    await memory.edit(oldest, "Use queue card on Mondays", by="ana")
    hints = await route_tasks(store, "c loan")
    assert rules_in(hints[0]) == ["Use queue card on Mondays"]

"""What several runs teach together: a mistake once, and what like runs did alike."""

from dataclasses import replace
from typing import Any

import pytest

from heedful import Episode, Event
from heedful.lessons import render
from heedful.lessons.identity import failing_tool
from heedful.lessons.mistake import Call, Fix, Mistake
from heedful.lessons.render import as_text
from heedful.memory import reflect as reflecting
from heedful.memory.memory import Memory
from heedful.testing import ScriptedModel
from tests.memory.reflections import answer
from tests.tables import cases

pytestmark = pytest.mark.both_nightly

# Any: each test knows whether there is a reflection, and a strategy.
reflect: Any = reflecting.reflect


def step(tool: str, arguments: Any, result: str = "ok", error: str = "") -> list[Event]:
    """Return a call and its result."""
    call = Event("tool_call", tool=tool, arguments=arguments)
    return [call, Event("tool_response", "" if error else result, error=error)]


def run_of(*steps: list[Event], outcome: Any = "success", **fields: Any) -> Episode:
    events = tuple(event for parts in steps for event in parts)
    return Episode(events, outcome, **{"task": "Book the room.", **fields})


def booking(guest: str, seats: int, outcome: Any = "success", give: int = 8) -> Episode:
    """Return a run in which a room was too small for a guest's seats."""
    wrong = {"guest": guest, "seats": seats}
    error = f"order A-{seats}: the room has too few seats"
    return run_of(
        step("book", wrong, error=error),
        step("book", {**wrong, "seats": give}),
        outcome=outcome,
        task=f"Book a room for {guest}.",
    )


async def texts_of(memory: Memory) -> list[str]:
    return [row["text"] for row in await memory.top(99)]


async def test_figures_that_vary_between_sightings_are_left_out(memory):
    for guest, seats in (("ann7", 20), ("bob8", 31)):
        await reflect(booking(guest, seats), memory=memory)
    texts = "\n".join(await texts_of(memory))
    assert "order A-…: the room has too few seats" in texts
    assert "with seats “…”" in texts
    for particular in ("ann7", "bob8", "20", "31"):
        assert particular not in texts
    # What was put there is the same in both runs.
    assert "with seats “8”" in texts


async def test_a_figure_of_a_run_that_failed_is_no_rule_until_one_succeeds(memory):
    failed = await reflect(booking("ann7", 20, "failure", give=9), memory=memory)
    assert "“9”" not in f"{failed.lessons}"
    await reflect(booking("bob8", 31), memory=memory)
    await reflect(booking("cay9", 44, "failure", give=9), memory=memory)
    texts = "\n".join(await texts_of(memory))
    assert "with seats “8”" in texts
    assert "“9”" not in texts


QUIET = run_of([Event("llm_response", "You're welcome, Ann of Elm Street.")])


async def test_a_run_without_a_mistake_teaches_nothing(memory):
    reflected = await reflect(QUIET, memory=memory)
    assert reflected.lesson is None
    assert reflected.lessons == ()
    assert reflected.text == ""
    assert await memory.count() == 0
    assert (await reflect(QUIET, memory=memory)).again


async def test_the_reflection_of_a_quiet_run_is_in_no_prompt(memory):
    reflected = await reflect(QUIET, memory=memory, of_quiet_runs=True)
    assert "Elm Street" in reflected.text
    assert await memory.count() == 1
    assert [match.lesson for match in await memory.query("", waiting=True)] == [
        reflected.text
    ]
    for recalled in (
        await memory.recall(QUIET.task),
        await memory.recall("Elm Street"),
    ):
        assert "Elm Street" not in as_text((), 3, recalled)
    assert (await memory.brief(QUIET.task, "loop")).advice == ()


NO_FILE = render.lesson(
    Mistake(
        action=Call(tool="find", arguments=(("path", "a.txt"),)), error="no such file"
    )
)


async def test_each_mistake_of_a_run_is_a_lesson(memory):
    run = run_of(
        step("find", {"path": "a.txt"}, error="no such file"),
        step("pay", {"order": "A-77", "card": "gift"}, error="the balance is too low"),
        step("pay", {"order": "A-77", "card": "visa"}),
        outcome="failure",
    )
    reflected = await reflect(run, memory=memory)
    (other,) = reflected.others
    texts = {other.text, reflected.text}
    assert NO_FILE in texts
    assert "card “visa”" in str(texts)
    assert texts <= {*await texts_of(memory)}
    assert len(reflected.stored) == len(reflected.lessons) == 3


async def test_a_run_that_grew_counts_once(memory):
    first = run_of(
        step("find", {"path": "a.txt"}, error="no such file"),
        outcome="failure",
        session="s1",
    )
    await reflect(first, memory=memory)
    more = step("find", {"path": "b.txt"}, error="the disk is broken")
    grown = replace(first, events=(*first.events, *more))
    reflected = await reflect(grown, memory=memory)
    seen = {row["text"]: row["seen"] for row in await memory.top(9)}
    assert seen[NO_FILE] == 1
    assert len(reflected.others) == 1


STEPS = (step("search", {"q": "x"}), step("open", {"id": 7}), step("mail", {"to": "y"}))
ORDER = "search, then open, then mail"


def done(task: str, **fields: Any) -> Episode:
    """Return a run with the three steps."""
    return run_of(*STEPS, task=task, **fields)


def refund(customer: str, outcome: Any = "success") -> Episode:
    return done(f"Refund the broken kettle of {customer}", outcome=outcome)


async def test_three_like_runs_are_a_procedure_until_one_fails(memory):
    taught = [await reflect(refund(name), memory=memory) for name in ("Ann", "Bob")]
    assert [reflected.strategy for reflected in taught] == [None, None]
    third = await reflect(refund("Cay"), memory=memory)
    assert ORDER in third.strategy.text
    assert "kettle" in third.strategy.text
    assert "Cay" not in third.strategy.text
    recalled = await memory.recall(refund("Dan").task)
    assert ORDER in as_text((), 3, recalled)

    await reflect(refund("Dan", "failure"), memory=memory)
    recalled = await memory.recall(refund("Eve").task)
    assert ORDER not in as_text((), 3, recalled)
    states = {row["kind"]: row["state"] for row in await memory.top(9)}
    assert states["strategy"] == "retired"


@cases(
    "task, subject",
    {
        "a name and an address": (
            "I am Ann Smith of 12 Elm Street. Cancel the long flight",
            "am, Cancel, long, flight",
        ),
        "nothing but names": ("I am Ann Smith of Elm Street", None),
    },
)
async def test_a_procedure_tells_no_names(memory, task, subject):
    runs = [done(task, session=name) for name in ("s1", "s2", "s3")]
    *_, reflected = [await reflect(run, memory=memory) for run in runs]
    text = reflected.strategy.text if reflected.strategy else ""
    assert text.removeprefix("Tasks about ").partition(" were")[0] == (subject or "")


@cases(
    "origins, state",
    {
        "it ends none": ((None, None, None, "outside"), "unverified"),
        "it is no sighting": (("outside", "outside", None), None),
    },
)
async def test_a_run_from_outside_tells_nothing_of_a_procedure(memory, origins, state):
    for name, origin in zip("ABCD", origins, strict=False):
        run = refund(name, "failure" if name == "D" else "success")
        await reflect(run, memory=memory, origin=origin)
    states = {row["kind"]: row["state"] for row in await memory.top(9)}
    assert states.get("strategy") == state


@cases(
    "steps, task",
    {
        "another task": (STEPS, "Translate one long poem"),
        "another order": (STEPS[::-1], refund("Cay").task),
        "one tool": (STEPS[:1], refund("Cay").task),
    },
)
async def test_unlike_runs_are_no_procedure(memory, steps, task):
    for name in ("Ann", "Bob"):
        await reflect(refund(name), memory=memory)
    run = run_of(*steps, task=task)
    reflected = await reflect(run, memory=memory)
    assert reflected.strategy is None


@cases(
    "prompt, task",
    {
        "typed": ("Read the lease.", "Book the room.\nRead the lease."),
        "the task itself": ("Book the room", "Book the room."),
        "perhaps pasted": ("See:\nall of it", "Book the room."),
    },
)
async def test_a_lesson_is_found_by_what_the_user_typed_first(memory, prompt, task):
    refused = step("pdf_text", {"file": "lease-98.pdf"}, error="no text layer")
    opening = [Event("system_event", "Be brief."), Event("user_message", prompt)]
    run = run_of(opening, refused)
    await reflect(run, memory=memory, origin="user")
    matches = await memory.query("Book the room.", waiting=True, importance=0.1)
    assert {match.example.task for match in matches} == {task}


# The same words of unlike tools: each is a failure of its own.
UNLIKE = {
    "permission denied": (
        ("sh", {"command": "docker ps"}, "List the running containers"),
        ("sql", {"q": "DROP VIEW v"}, "Remove the old view of sales"),
        "Remove the old view of stock",
    ),
    "404 Not Found": (
        ("crm_get", {"id": "A17"}, "Find the customer of order A17"),
        ("wiki_page", {"title": "Holidays"}, "Open the wiki page on holidays"),
        "Open the wiki page on travel",
    ),
    "Timeout": (
        ("sh", {"command": "make docs"}, "Build the manual of the press"),
        ("sh", {"command": "terraform plan"}, "Plan the network of the shop"),
        "Plan the network of the depot",
    ),
}


@pytest.mark.parametrize("error", UNLIKE)
async def test_a_general_error_of_another_tool_is_reflected_on(memory, error: str):
    *failures, next_task = UNLIKE[error]
    rules = ["Ask the first owner.", "Ask the second owner."]
    model = ScriptedModel(*(answer("It failed.", strategy=rule) for rule in rules))
    for tool, arguments, task in failures:
        run = run_of(step(tool, arguments, error=error), outcome="failure", task=task)
        reflected = await reflect(run, memory=memory, model=model)
        assert reflected.known == 0
    rows = await memory.top()
    assert [row["seen"] for row in rows if row["kind"] == "strategy"] == [1, 1]
    lessons = [match.lesson for match in await memory.recall(next_task)]
    assert rules[1] in lessons
    assert rules[0] not in lessons
    of_any_tool = await memory.seen(error)
    assert of_any_tool.count == 2
    assert {lesson["error_type"] for lesson in of_any_tool.lessons} >= {
        failing_tool(tool, arguments) for tool, arguments, _ in failures
    }


@cases(
    "error, is_found",
    {
        "the same error of other names": (
            'no matches for kind "Lake" in "lake.yaml"',
            True,
        ),
        "another error": ('no access to kind "Lake" in "lake.yaml"', False),
    },
)
async def test_an_error_of_other_names_is_seen_with_its_fix(memory, error, is_found):
    apply = {"command": "kubectl apply -f pool.yaml"}
    run = run_of(
        step("bash", apply, error='no matches for kind "Pool" in "pool.yaml"'),
        step("bash", {"command": "kubectl apply -f definitions"}),
        step("bash", apply),
    )
    await reflect(run, memory=memory)
    seen = await memory.seen("kubectl", error)
    assert bool(seen) == is_found
    assert ("kubectl apply -f definitions" in str(seen.told)) == is_found


ENDS = {
    "the same call works": (({"q": "SELECT * FROM stock"},), False),
    "another call works": (({"q": "SELECT * FROM orders"},), True),
    "it fails again": (({"q": "SELECT * FROM stock"}, None), True),
}


@cases("later_calls, is_told", ENDS)
async def test_that_a_call_failed_is_told_until_it_works(memory, later_calls, is_told):
    failed = {"q": "SELECT * FROM stock"}
    error = "relation stock is not known"
    task = "Count the stock of the depot"
    first = run_of(step("sql", failed, error=error), outcome="failure", task=task)
    await reflect(first, memory=memory)
    for number, arguments in enumerate(later_calls):
        steps = step("sql", arguments or failed, error="" if arguments else error)
        outcome = "success" if arguments else "failure"
        run = run_of(steps, outcome=outcome, task=task, id=str(number))
        await reflect(run, memory=memory)
    recalled = await memory.recall(task)
    rules = [match.lesson for match in recalled if match.kind == "strategy"]
    assert bool(rules) == is_told
    if not is_told:
        assert "the same call has worked since" in recalled.silence


# What says that a call did not run to its end.
UNFINISHED = {
    "it took too long": "Command timed out after 2m 0s",
    "a person stopped it": "Exit code 130\n^C",
    "it was terminated": "Exit code 143\nTerminated",
    "in Python": "Traceback (most recent call last):\n  File x\nKeyboardInterrupt",
    "it runs on": "Command running in background with ID: b7",
}


@cases("error", UNFINISHED)
async def test_a_call_that_did_not_end_is_neither_a_mistake_nor_a_fix(error):
    stopped = step("Bash", "make deploy", error=error)
    assert (await reflect(run_of(stopped, outcome="failure"))).lesson is None
    failed = step("Bash", "make deplo", error="make: no rule for 'deplo'")
    reflected = await reflect(run_of(failed, stopped, outcome="failure"))
    assert reflected.lesson.mistake.fix is None


async def test_what_worked_again_by_itself_teaches_to_wait():
    failed = step("Bash", "make push", error="error: the registry closed the stream")
    run = run_of(failed, step("Bash", "make push"), outcome="success")
    reflected = await reflect(run)
    assert reflected.lesson.mistake.fix.kind == "waiting"


async def test_what_never_worked_has_no_fix():
    failed = step("Bash", "make push", error="error: the registry closed the stream")
    reflected = await reflect(run_of(failed, outcome="failure"))
    assert reflected.lesson.mistake.fix is None


async def test_a_rule_that_did_not_help_is_reflected_on_with_what_was_tried(memory):
    first = "Log in again before you read a customer."
    second = "Ask for a token with the scope of customers."
    answers = [answer("The token was old.", strategy=rule) for rule in (first, second)]
    model = ScriptedModel(*answers, forever=True)
    told = []
    for number in range(4):
        call = step("crm_get", {"id": number}, error="403 Forbidden: no scope")
        run = run_of(call, outcome="failure", task="Read a customer", id=str(number))
        reflected = await reflect(run, memory=memory, model=model)
        told.append(reflected.strategy.text)
    assert told == [first, first, second, second]
    assert len(model.prompts) == 2
    assert first in "\n".join(message.content for message in model.prompts[1])
    [strategy] = [row for row in await memory.top() if row["kind"] == "strategy"]
    assert strategy["text"] == second
    assert strategy["seen"] == 4


async def test_the_words_of_a_person_are_not_reflected_on_again(memory):
    model = ScriptedModel(answer("It failed.", strategy="Try twice."), forever=True)
    for number in range(3):
        call = step("crm_get", {"id": number}, error="403 Forbidden: no scope")
        run = run_of(call, outcome="failure", task="Read a customer", id=str(number))
        reflected = await reflect(run, memory=memory, model=model)
        if not number:
            await memory.edit(reflected.stored[1].id, "Ask ada.", by="ada")
    assert len(model.prompts) == 1


LIKE_THE_FIX = {
    "another call": Fix(kind="command", calls=(Call(tool="book", text="book small"),)),
    "other arguments": Fix(kind="arguments", changes=(("cabin", "business"),)),
}


@cases("fix", LIKE_THE_FIX)
def test_what_put_it_right_was_not_tried_in_vain(fix):
    vain = Call(tool="book", arguments=(("cabin", "business"), ("id", "…")))
    mistake = Mistake(
        action=Call(tool="book", text="book big"),
        error="no room",
        vain=(vain, *fix.calls, Call(tool="book", text="book twice")),
        fix=fix,
    )
    text = render.lesson(mistake)
    assert "book twice" in text
    for line in render.fix_lines(mistake):
        assert text.count(line) == 1
    assert (vain in mistake.vain) == (not fix.changes)

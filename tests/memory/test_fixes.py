"""What a run that mended itself teaches: what failed, with what, and what works."""

from typing import Any

from heedful import Episode, Event
from heedful.memory.reflect import reflect
from tests.tables import cases


def step(
    tool: str, arguments: Any, result: str = "ok", error: str = "", **fields: Any
) -> tuple[Event, Event]:
    """Return a call and its result."""
    call = Event("tool_call", tool=tool, arguments=arguments)
    return call, Event("tool_response", result, tool=tool, error=error, **fields)


def run_of(*steps: tuple[Event, ...], outcome: Any = "success") -> Episode:
    events = [event for parts in steps for event in parts]
    return Episode(tuple(events), outcome, task="Get it done.")


async def rule_of(*steps: tuple[Event, ...], outcome: Any = "success") -> str:
    """Return the strategy that rules draw from a run; "" without one."""
    reflected = await reflect(run_of(*steps, outcome=outcome))
    assert reflected is not None
    return reflected.strategy.text if reflected.strategy else ""


SHAPES = {
    "a value that another call showed": (
        [
            step("open", {"doc": "wage rules"}, error="no document 'wage rules'"),
            step("search", {"text": "wages"}, '[{"id": "doc-77120"}]'),
            step("open", {"doc": "doc-77120"}),
        ],
        (
            "When open with doc “wage rules” fails with “no document 'wage rules'”, do "
            "this first: search with text “wages”; then call it with doc “doc-77120”."
        ),
    ),
    "a wait": (
        [
            step("geo", {"of": "shops"}, error="Too Many Requests. Retry-After: 40"),
            step("sleep", {"seconds": 40}),
            step("geo", {"of": "shops"}),
        ],
        (
            "When geo with of “shops” fails with “Too Many Requests. Retry-After: 40”, "
            "wait first (sleep with seconds “40”), then repeat the same call."
        ),
    ),
    "another tool": (
        [
            step("pdf_text", {"file": "lease-98.pdf"}, error="no text layer"),
            step("ocr", {"file": "lease-98.pdf"}, "The deposit is 2,400."),
        ],
        (
            "When pdf_text with file “lease-98.pdf” fails with “no text layer”, call "
            "ocr with file “lease-98.pdf” instead."
        ),
    ),
    "a corrected answer": (
        [
            (Event("llm_response", "It is 12.", agent="writer"),),
            (Event("error_event", "The table is in thousands.", agent="checker"),),
            (Event("llm_response", "It is 12000.", agent="writer"),),
        ],
        (
            "When answer `It is 12.` fails with “The table is in thousands.”, call "
            "answer `It is 12000.` instead."
        ),
    ),
}

DOWN = step("sh", "db up", error="Is the daemon running?")
CURL = step("bash", "curl http://a.test", "Exit code 22\ncurl: (22) obey me")
CLOSED = {
    "what may pass": ([DOWN], "wait, then repeat"),
    "what did not pass when repeated": ([DOWN, DOWN], "Do not repeat"),
}


@cases("steps, words", CLOSED)
async def test_a_failure_that_nothing_put_right(steps, words):
    assert words in await rule_of(*steps, outcome="failure")


async def test_an_error_from_outside_is_not_told():
    reflected = await reflect(run_of(CURL, outcome="failure"))
    assert reflected is not None
    assert reflected.text == "bash `curl http://a.test` failed."


@cases("steps, rule", SHAPES)
async def test_the_rule_says_what_works(steps, rule):
    assert await rule_of(*steps) == rule


@cases(
    "says, answers, is_asked",
    {
        "the agent asked": ("Shall I pay by Visa?", "Yes.", True),
        "the user said so": ("It is declined.", "Use Visa.", False),
    },
)
async def test_a_fix_that_the_user_agreed_to_asks_first(says, answers, is_asked):
    rule = await rule_of(
        step("pay", {"order": "A-77", "card": "gift"}, error="not enough balance"),
        (Event("llm_response", says), Event("user_message", answers)),
        step("pay", {"order": "A-77", "card": "visa"}),
    )
    assert "call it with card “visa” instead." in rule
    assert rule.endswith("Ask the user first, as this run did.") is is_asked


NOTHING_LEARNT = {
    "a failure that the agent wanted to see": [
        step("enter", {"card": "old", "door": "7"}, error="refused"),
        (Event("llm_response", "It is refused, as it should be."),),
        step("enter", {"card": "new", "door": "7"}),
    ],
    "a failure that did not keep the run from its success": [
        step("book", {"hotel": "Oak"}, error="full")
    ],
}


@cases("steps", NOTHING_LEARNT)
async def test_a_run_that_shows_no_fix_teaches_no_rule(steps):
    assert await rule_of(*steps) == ""


async def test_a_rate_limit_without_a_fix_asks_to_wait_and_repeat():
    limited = step("get", {"page": 2}, error="429 Too Many Requests. Retry-After: 37")
    rule = await rule_of(limited, outcome="error")
    assert rule.endswith("wait 37 seconds, as it asks, then repeat the same call.")


@cases(
    "waited, ending",
    {
        "long": (40, "wait 37 seconds, as it asks, then repeat the same call."),
        "too short": (5, ""),
    },
)
async def test_the_time_between_two_calls_is_a_wait(waited, ending):
    first, refused = step("get", {"page": 2}, error="429. Retry-After: 37")
    again = Event("tool_call", tool="get", arguments={"page": 2}, at=1000.0 + waited)
    refused = Event("tool_response", error="429. Retry-After: 37", at=1000.0)
    done = Event("tool_response", "ok")
    rule = await rule_of((first, refused, again, done))
    assert rule.endswith(ending)
    assert bool(rule) == bool(ending)


@cases("error", {"timed out": "local_engine: timed out after 30 seconds"})
async def test_a_call_that_ran_out_of_time_is_not_to_be_repeated_as_it_is(error):
    rule = await rule_of(step("solve", {"depth": 9}, error=error), outcome="failure")
    assert rule.startswith("Do not repeat solve with depth “9” without a change")


async def test_a_wait_that_no_run_saw_is_no_fix_that_worked():
    reflected = await reflect(run_of(DOWN, outcome="failure"))
    assert reflected is not None
    assert "What may help:\nwait, then repeat the same call" in reflected.text


@cases(
    "prompt, task",
    {
        "typed": ("Read the lease.", "Get it done.\nRead the lease."),
        "the task itself": ("Get it done", "Get it done."),
        "perhaps pasted": ("See:\nall of it", "Get it done."),
    },
)
async def test_a_lesson_is_found_by_what_the_user_typed_first(memory, prompt, task):
    prompts = (Event("user_message", prompt),)
    refused = step("pdf_text", {"file": "lease-98.pdf"}, error="no text layer")
    await reflect(run_of(prompts, refused), memory=memory, origin="user")
    matches = await memory.query("Get it done.", waiting=True, importance=0.1)
    assert {match.example.task for match in matches} == {task}

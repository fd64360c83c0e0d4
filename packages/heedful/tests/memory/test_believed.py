"""What a model is shown of a run, and which of its words are kept."""

import json
from pathlib import Path
from typing import Any

import pytest

import heedful
from bench.quality.believed import SmallModel, read_answers
from heedful import Episode, Event
from heedful.episodes import read
from heedful.memory.citations import RunFacts
from heedful.memory.excerpt import excerpt, excerpt_tokens
from heedful.memory.study import Study
from heedful.models.contract import tokens
from heedful.testing import ScriptedModel
from tests.memory.reflections import answer
from tests.tables import cases


async def reflected_on(run: Episode, **options: Any) -> Any:
    return await heedful.reflect(run, **options)


def called(number, tool, result="", error="", **arguments):
    """A call and its result."""
    name = f"c{number}"
    return (
        Event("tool_call", tool=tool, arguments=arguments, call=name, id=name),
        Event("tool_response", result, tool=tool, call=name, error=error),
    )


def read_run(name: str) -> Episode:
    """Return the run of a file."""
    path = Path(__file__).parent / "runs" / f"{name}.json"
    [run] = read(path.read_bytes())
    return run


BUILD = read_run("build")
NO_PAGE = read_run("no_page")
NO_COLUMN = read_run("no_column")
LATER = read_run("later")


# What is shown


def build_quiet_run(steps: int, middle: str, size: int = 40) -> Episode:
    """A run of calls that all work, with one in the middle."""
    events = [*called(0, "sql", "ok", query=middle)]
    for number in range(1, steps):
        pair = called(number, "sql", "row " * size, query=f"SELECT {number}")
        events = [*pair, *events] if number % 2 else [*events, *pair]
    return Episode(tuple(events), "success", task="How many rows are there?")


def test_a_call_in_the_middle_of_a_long_run_is_shown():
    ends = [build_quiet_run(125, "SELECT 0", size=60).events for _ in "ab"]
    dropped = called(999, "sql", "ok", query="DROP TABLE customers")
    run = Episode((*ends[0], *dropped, *ends[1]), "success", task="Clean up")
    _, texts = excerpt(Study.of(run), 12_000)
    assert "DROP TABLE customers" in texts["events"]


def test_what_failed_comes_first_and_what_is_left_out_is_counted():
    quiet = build_quiet_run(200, "SELECT 0")
    failed = called(999, "shell", error="make: *** no rule", command="make all")
    run = Episode(
        (*quiet.events, *failed, *quiet.events),
        "failure",
        task="Build it",
    )
    positions, texts = excerpt(Study.of(run), 2_000)
    assert {400, 401} <= set(positions)
    assert {0, 2, 4, 6, 801} <= set(positions)
    assert list(texts).index("signals") < list(texts).index("events")
    omitted = len(run.events) - len(positions)
    assert texts["events"].endswith(f"… {omitted} events left out …")
    assert sum(map(tokens, texts.values())) <= 2_050


def test_a_long_event_loses_its_middle_so_that_the_others_fit():
    run = build_quiet_run(60, "DROP TABLE customers", size=2_000)
    positions, texts = excerpt(Study.of(run), 12_000)
    assert len(positions) == len(run.events)
    assert "characters are left out" in texts["events"]
    assert "DROP TABLE customers" in texts["events"]


TIMEOUT = Event(
    "tool_response",
    tool="sql",
    error="Timeout",
    code="QUERY_TIMEOUT",
    meta={
        "stack_trace": "db.py line 77 in fetch_orders",
        "inputs": {"batch": 9_000},
        "token": "AKIAIOSFODNN7EXAMPLE",
    },
)
CACHED = Event("tool_response", "10 results", tool="find", meta={"latency_ms": 50})


def shown_events(events: list[Event], budget: int = 12_000) -> str:
    """Return the events that a model is shown of a run."""
    _, texts = excerpt(Study.of(Episode(tuple(events), "failure")), budget)
    return texts["events"]


@cases(
    "event, words",
    {
        "the code of an error": (TIMEOUT, "QUERY_TIMEOUT"),
        "a stack trace": (TIMEOUT, "fetch_orders"),
        "inputs": (TIMEOUT, '{"batch": 9000}'),
        "metadata of what worked": (CACHED, '"latency_ms": 50'),
    },
)
def test_the_data_of_an_event_are_shown_after_its_text(event, words):
    text = shown_events([Event("tool_call", tool=event.tool), event])
    assert text.index(event.content or event.error) < text.index(words)


def test_no_secret_in_the_data_of_an_event_is_shown():
    text = shown_events([Event("tool_call", tool="sql"), TIMEOUT])
    assert "AKIAIOSFODNN7EXAMPLE" not in text


def test_data_are_shown_of_what_failed_and_of_the_rest_while_they_fit():
    events = list(build_quiet_run(200, "SELECT 0").events)
    events[201] = CACHED
    run = [*events, Event("tool_call", tool="sql"), TIMEOUT, *events]
    text = shown_events(run, 4_000)
    assert "fetch_orders" in text
    assert "latency_ms" not in text


def test_a_figure_in_the_data_of_an_event_is_one_of_the_run():
    run = Episode((Event("tool_call", tool="find"), CACHED, TIMEOUT), "failure")
    facts = RunFacts.of(Study.of(run).course)
    text = "It took 50 ms, and db.py failed in line 77 with 9,000 rows, not 9,001."
    assert list(facts.missing(text)) == ["9,001"]


@cases(
    "context, budget",
    {"an embedded model": (4_096, 1_947), "a context without room": (512, 0)},
)
def test_the_context_of_a_model_is_its_budget(context, budget):
    model: Any = ScriptedModel()
    if context is not None:
        model.context_tokens = context
    assert excerpt_tokens(model) == budget


# What a capable model says is believed

ANSWERS = [
    pytest.param(run, pair, id=f"{run.task[:30]} {number % 2}")
    for number, (run, pair) in enumerate(read_answers())
]


@pytest.mark.parametrize(("run", "pair"), ANSWERS)
async def test_a_true_answer_is_kept_as_it_is_beside_the_record(run, pair):
    rules = await reflected_on(run)
    reply = json.dumps({"reflection": pair["reflection"], "strategy": pair["strategy"]})
    reflected = await reflected_on(run, model=ScriptedModel(reply))
    assert reflected.error == ""
    assert reflected.text == pair["reflection"]
    assert reflected.strategy.text == pair["strategy"]
    assert reflected.dropped == ()
    assert reflected.trust == "local"
    assert reflected.state == "unverified"
    record = reflected.lesson.mistake
    if rules.lesson is None:
        assert record is None
    else:
        assert record.action == rules.lesson.mistake.action
        assert record.fix == rules.lesson.mistake.fix


@pytest.mark.parametrize(("run", "pair"), ANSWERS)
async def test_an_invented_sentence_is_dropped_and_the_others_stay(run, pair):
    text = f"{pair['reflection']} {pair['invented']}"
    strategy = f"{pair['strategy']} {pair['invented']}"
    reflected = await reflected_on(
        run, model=ScriptedModel(answer(text, strategy=strategy))
    )
    assert reflected.text == pair["reflection"]
    assert pair["invented"] not in str(reflected.strategy)
    assert [claim.part for claim in reflected.dropped] == ["reflection", "strategy"]
    assert all(claim.why for claim in reflected.dropped)


async def test_its_words_wait_if_it_was_shown_an_event_from_outside():
    page = Event("user_message", "Use --fast.", origin="outside")
    run = Episode((page, *NO_COLUMN.events), "success", task=NO_COLUMN.task)
    reply = answer("Region lives in regions.", strategy="Join regions.")
    reflected = await reflected_on(run, model=ScriptedModel(reply))
    assert reflected.trust == "outside"
    assert reflected.state == "quarantined"


FACTS = read_run("facts")


@cases(
    "text, missing",
    {
        "a separator and decimals": ("It found 1200.0 rows.", []),
        "another number": ("It found 1300 rows.", ["1300"]),
        "a percentage as a share": ("0.12 of them were late.", []),
        "a number with its unit": ("It failed within 30 s.", []),
        "counts of like events": ("2 of 3 calls failed.", []),
        "a wrong count": ("All 8 calls failed.", ["8"]),
        "names": ("Read it as utf-8, 0xe9, 5xx, ISO 8601.", []),
        "a quotation": ('It said "fatal: can\'t reach db-1."', []),
        "an invented quotation": ("It said 'no such host'.", ["no such host"]),
        "a single word": ("Set the mode to “strict” for Debian.", []),
        "code of its own": ("Run `pg_isready` and `ping` first.", []),
    },
)
def test_only_figures_and_quotations_that_the_run_lacks_are_missing(text, missing):
    facts = RunFacts.of(Study.of(FACTS).course)
    assert list(facts.missing(text)) == missing


# A strategy is advice, and may report

ADVICE = {
    "its own waits and limits": "Back off (1 s, 2 s, 4 s), give up after 3 retries.",
    "a percentage": "Stay below 80 % of the documented rate limit.",
    "codes": "Treat 429 and 503 as signals to slow down.",
    "a clause of SQL": "Read in pages with LIMIT 1000.",
    "a question": "Ask yourself “has anything changed since then?”",
    "a condition in the past": "If it failed 13 times, stop.",
    "a participle": "Retry failed calls 13 times, then use cached pages.",
    "a demand": "The page size should be 250, as documented.",
    "what may be": "A client may send 13 delayed calls.",
    "what must be": "The query must skip 13 deleted rows.",
    "what can be": "A page can hold 250 cached rows.",
    "a need": "An import needs 13 locked rows at most.",
    "needs": "Two imports need 13 locked rows at most.",
    "limits": "The limits are shared: 13 allowed calls.",
    "a rule in the present": "It is best to stop after 13 failed calls.",
    "a step after others": "Then read the 13 cached pages.",
    "steps": "1. Read the header.\n2. Wait 13 s.\n3. Page by 250.",
    "another language": "Nach 13 Fehlern warten, dann mit LIMIT 1000 lesen.",
}
REPORTS = {
    "a duration": "The third install took 940 s.",
    "a loss": "It lost 170 contacts on the way.",
    "a passive": "It was told to retry in 940 seconds.",
    "an effect": "This raised the cost by 940 %.",
    "things": "These had 940 lines.",
    "persons": "They repeated 940 calls.",
    "a number of things": "Two earlier flights, HN118 at 09:40, still had seats.",
    "a figure": "940 calls were refused.",
    "those": "Those had 940 lines.",
    "an article": "A page took 940 s.",
    "another article": "An upload took 940 s.",
    "its": "Its log had 940 lines.",
    "later": "Afterwards 94.3 % of the rows were lost.",
    "a log's words": "The log said “could not link against libssl”.",
    "a program's words": "PostgreSQL hinted “set lock_timeout higher”.",
    "a person's words": "Ann said “never on a Friday before noon”.",
    "several": "The first 13 were late.",
}


@cases("sentence", ADVICE)
async def test_advice_keeps_its_own_figures_and_quotations(sentence):
    reply = answer("Region lives in regions.", strategy=sentence)
    reflected = await reflected_on(NO_COLUMN, model=ScriptedModel(reply))
    assert reflected.strategy.text == sentence
    assert reflected.dropped == ()


@cases("sentence", REPORTS)
async def test_of_a_strategy_only_a_report_that_the_run_lacks_is_dropped(sentence):
    strategy = f"Join regions. {sentence} Give up after 3 retries."
    reply = answer("Region lives in regions.", strategy=strategy)
    reflected = await reflected_on(NO_COLUMN, model=ScriptedModel(reply))
    assert reflected.strategy.text == "Join regions. Give up after 3 retries."
    assert [claim.text for claim in reflected.dropped] == [sentence]


@cases(
    "strategy, text",
    {
        "a list": (["Join regions.", "Wait 13 s."], "Join regions.\nWait 13 s."),
        "an object": ({"first": "Join.", "then": ["Wait."]}, "Join.\nWait."),
    },
)
async def test_a_strategy_in_parts_has_a_line_for_each(strategy, text):
    reply = json.dumps({"reflection": {"what": "It failed."}, "strategy": strategy})
    reflected = await reflected_on(NO_COLUMN, model=ScriptedModel(reply))
    assert reflected.text == "It failed."
    assert reflected.strategy.text == text


# Of a small model, the words must keep what the rules found

KEEPS = {
    "a wait": (
        LATER,
        "http_get got 429 Too Many Requests for page 2 of v2/invoices.",
        "Wait the 37 seconds of Retry-After, then repeat the same request.",
    ),
    "a possessive and plurals": (
        NO_PAGE,
        (
            "The API's page 2 of v2/invoices was refused: 429, too many requests in a "
            "minute, Retry-After 37."
        ),
        "Wait for the 37 seconds of Retry-After, then repeat the request.",
    ),
}


@pytest.mark.parametrize("kind", [ScriptedModel, SmallModel])
@cases("run, text, rule", KEEPS)
async def test_a_text_that_keeps_what_the_rules_found_is_taken(run, text, rule, kind):
    reflected = await reflected_on(run, model=kind(answer(text, strategy=rule)))
    assert reflected.error == ""
    assert reflected.text == text
    assert reflected.strategy.text == rule
    assert reflected.importance == 0.9


# What the embedded model wrote of such runs: true of any run, false, or beside it.
REFUSED = {
    "without the wait": (
        LATER,
        (
            "http_get got 429 Too Many Requests for page 2 of v2/invoices, so the rate "
            "limit of the API should be higher."
        ),
        "the fix “wait",
    ),
    "false, and of any run": (
        BUILD,
        "This error was not related to the task.",
        "it leaves out the failed call",
    ),
    "the task told again": (
        NO_PAGE,
        "The agent failed at the task of downloading all invoices due to a rate limit.",
        "the failed call “http_get with url",
    ),
}


@cases("run, text, reason", REFUSED)
async def test_a_text_without_it_is_refused_with_the_reason(run, text, reason):
    rules = await reflected_on(run)
    reflected = await reflected_on(run, model=SmallModel(answer(text)))
    assert reflected.by == "rules"
    assert reflected.text == rules.text
    assert reason in reflected.error
    assert reflected.usage.calls == 1


KEPT = (
    "cargo build --release failed to run the custom build command of openssl-sys, "
    "until apt-get install had put libssl-dev and pkg-config there."
)


@pytest.mark.parametrize("kind", [ScriptedModel, SmallModel])
async def test_without_a_strategy_of_its_own_a_text_has_that_of_the_rules(kind):
    rules = await reflected_on(BUILD)
    reflected = await reflected_on(BUILD, model=kind(answer(KEPT, importance=1.0)))
    assert reflected.text == KEPT
    assert reflected.strategy.text == rules.strategy.text
    # An importance of 1.0 for everything is not believed.
    assert reflected.importance == rules.importance


async def test_a_text_of_a_small_model_that_invents_something_is_not_used():
    reply = answer(KEPT, "It took 900 s.")
    reflected = await reflected_on(BUILD, model=SmallModel(reply))
    assert reflected.by == "rules"
    assert "the run does not contain “900”" in reflected.error


async def test_without_a_mistake_a_small_model_is_not_asked():
    model = SmallModel(answer("It counted the rows."))
    reflected = await reflected_on(build_quiet_run(3, "SELECT 0"), model=model)
    assert model.prompts == []
    assert reflected.error == ""


async def test_the_marks_around_the_run_are_no_words_of_it():
    def reply(messages):
        mark = messages[0].content.partition("<name ")[2].partition(">")[0]
        return answer(KEPT, f"The run {mark} went well.")

    reflected = await reflected_on(BUILD, model=ScriptedModel(reply))
    assert reflected.text == KEPT


# Answers with words around them


@cases(
    "frame",
    {
        "thoughts": '<think>{{"reflection": 1}}</think>\n{}',
        "a sentence": "Analysis: {}",
        "the last object": 'First {{"a": 1}}, then: {}. Done.',
        "a list": "[{}]",
        "an outer key": '{{"analysis": {}}}',
        "an outer key beside others": '```\n{{"result": {}, "status": "ok"}}\n```',
        "an outer list": '{{"lessons": [{}]}}',
    },
)
async def test_an_answer_is_read_wherever_it_stands(frame):
    model = ScriptedModel(frame.format(answer(KEPT)))
    reflected = await reflected_on(BUILD, model=model)
    assert reflected.usage.calls == 1
    assert reflected.text == KEPT


@cases(
    "old, new",
    {
        "a comma before the end": ("}", ", }"),
        "a comma before the end of a list": ("]", ",]"),
        "a line break in a text": ("to run", "to run\n"),
        "a tab in a text": ("to run ", "to run\t"),
        "keys in capitals": ('"reflection"', '"REFLECTION"'),
    },
)
@pytest.mark.parametrize("frame", ["{}", '<think>5" {{</think>It “is”:\n{}'])
async def test_an_answer_that_is_nearly_json_is_read(old, new, frame):
    reply = frame.format(answer(KEPT).replace(old, new))
    reflected = await reflected_on(BUILD, model=ScriptedModel(reply))
    assert reflected.usage.calls == 1
    assert reflected.error == ""
    assert reflected.text.split() == KEPT.split()

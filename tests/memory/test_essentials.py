"""What a model's words must keep of a run: the failed call, the error, the cure."""

from typing import Any

import pytest

import heedful
from heedful import Episode, Event, Fault
from heedful.memory.citations import find_unsupported
from heedful.testing import ScriptedModel
from tests.memory.reflections import answer


async def reflected_on(run: Episode, **options: Any) -> Any:
    return await heedful.reflect(run, **options)


def called(number, tool, result="", error="", **arguments):
    """A call and its result."""
    name = f"c{number}"
    return (
        Event("tool_call", tool=tool, arguments=arguments, call=name, id=name),
        Event("tool_response", result, tool=tool, call=name, error=error),
    )


SSL = "error: failed to run custom build command for `openssl-sys v0.9.102`"
BUILD = Episode(
    (
        *called(1, "shell", error=SSL, command="cargo build --release"),
        *called(2, "shell", "done", command="apt-get install -y libssl-dev pkg-config"),
        *called(3, "shell", "Finished in 41.20s", command="cargo build --release"),
        Event("llm_response", "The binary is in target/release/service."),
    ),
    "success",
    task="Build the service in release mode",
)
NO_PAGE = Episode(
    (
        *called(
            1,
            "http_get",
            error="429 Too Many Requests: 60 per minute. Retry-After: 37",
            url="https://api.example.com/v2/invoices?page=2",
        ),
        Event("llm_response", "I could not download the invoices."),
    ),
    "failure",
    task="Download all invoices",
    fault=Fault("rate_limit_error", "429 Too Many Requests"),
)
SLOW = Episode(
    (
        Event("tool_call", "Called database query with complex JOIN", id="1"),
        Event("error_event", "", error="Timeout", code="504", id="2"),
    ),
    "timeout",
    task="Optimize the reports page",
)
NO_COLUMN = Episode(
    (
        *called(
            1,
            "sql",
            error='ERROR: column "region" does not exist',
            query="SELECT region, SUM(amount) FROM orders GROUP BY region",
        ),
        *called(
            2,
            "sql",
            "EMEA | 81400",
            query="SELECT r.name, SUM(o.amount) FROM orders o JOIN regions r "
            "ON r.id = o.region_id GROUP BY r.name",
        ),
        Event("llm_response", "EMEA made 81,400."),
    ),
    "success",
    task="What was the revenue by region?",
)
PAGE = {"url": "https://api.example.com/v2/invoices?page=2"}
LATER = Episode(
    (
        Event("tool_call", tool="http_get", arguments=PAGE, call="1", at=100.0),
        Event(
            "tool_response",
            tool="http_get",
            call="1",
            error="429 Too Many Requests: Retry-After: 37",
            at=101.0,
        ),
        Event("tool_call", tool="http_get", arguments=PAGE, call="2", at=140.0),
        Event("tool_response", "[4]", tool="http_get", call="2", at=141.0),
        Event("llm_response", "All invoices are there."),
    ),
    "success",
    task="Download all invoices",
)
KEEPS = [
    pytest.param(
        LATER,
        "http_get got 429 Too Many Requests for page 2 of v2/invoices.",
        "Wait the 37 seconds of Retry-After, then repeat the same request.",
        id="a wait",
    ),
    pytest.param(
        NO_COLUMN,
        "Selecting region from orders failed: that column does not exist there. "
        "Grouping by the name that regions has worked.",
        "Join regions r on r.id = o.region_id and group by r.name.",
        id="a rewording with few words of the error",
    ),
    pytest.param(
        BUILD,
        "cargo build failed because openssl-sys did not find OpenSSL.",
        "Install libssl-dev and pkg-config first.",
        id="a name of the error and a short cure",
    ),
    pytest.param(
        BUILD,
        "cargo build --release failed to run the custom build command of openssl-sys.",
        "Before cargo build, run apt-get install libssl-dev and pkg-config.",
        id="error and cure in other words",
    ),
    pytest.param(
        NO_PAGE,
        "The API's page 2 of v2/invoices was refused: 429, too many requests in a "
        "minute, Retry-After 37.",
        "Wait for the 37 seconds of Retry-After, then repeat the request.",
        id="a possessive and plurals",
    ),
    pytest.param(
        SLOW,
        "The database query with a complex JOIN timed out because no index was used.",
        "Use indexed columns in each JOIN.",
        id="a time-out in other words, and a rule of the model's own",
    ),
]


@pytest.mark.parametrize(("run", "text", "rule"), KEEPS)
async def test_a_text_that_keeps_what_the_rules_found_is_taken(run, text, rule):
    reflected = await reflected_on(
        run, model=ScriptedModel(answer(text, strategy=rule))
    )
    assert reflected.error == ""
    assert reflected.text == text
    assert reflected.strategy.text == rule
    assert reflected.importance == 0.9


# What the embedded model wrote of such runs: true of any run, false, or beside it.
REFUSED = [
    pytest.param(
        LATER,
        "http_get got 429 Too Many Requests for page 2 of v2/invoices, so the rate "
        "limit of the API should be higher.",
        "the cure “wait 37 seconds",
        id="without the wait",
    ),
    pytest.param(
        NO_COLUMN,
        "The revenue by region was EMEA 81400. The column region exists.",
        "the cure “sql SELECT r.name",
        id="the answer told again",
    ),
    pytest.param(
        BUILD,
        "The agent built the service in release mode, which means it ran the `cargo "
        "build --release` command. The agent also ran the `apt-get install -y "
        "libssl-dev pkg-config` command.",
        "the error “error: failed to run custom build command",
        id="without the error",
    ),
    pytest.param(
        BUILD,
        "This error was not related to the task.",
        "it says nothing about this run",
        id="false, and of any run",
    ),
    pytest.param(
        BUILD,
        "The custom build command of openssl-sys failed to run in cargo build.",
        "the cure",
        id="without the cure",
    ),
    pytest.param(
        NO_PAGE,
        "The agent failed at the task of downloading all invoices due to a rate limit.",
        "the failed call “http_get https://api.example.com/v2/invoices?page=2”",
        id="the task told again",
    ),
]


@pytest.mark.parametrize(("run", "text", "reason"), REFUSED)
async def test_a_text_without_it_is_refused_with_the_reason(run, text, reason):
    rules = await reflected_on(run)
    reflected = await reflected_on(run, model=ScriptedModel(answer(text)))
    assert reflected.by == "rules"
    assert reflected.text == rules.text
    assert reason in reflected.error
    assert reflected.usage.calls == 1


CORRECTED = Episode(
    (
        Event("llm_response", "The bridge was opened in 1931."),
        Event("error_event", error="The year is not that of the plaque."),
        Event("llm_response", "Its plaque says 1934."),
    ),
    "success",
    task="When was the bridge opened?",
)


@pytest.mark.parametrize(
    ("rule", "by"),
    [
        pytest.param("For the bridge, the plaque says 1934.", "scripted", id="kept"),
        pytest.param("The year of the bridge is 1931.", "rules", id="left out"),
    ],
)
async def test_the_cure_of_a_correction_is_the_accepted_answer(rule, by):
    text = (
        "The answer that the bridge was opened in 1931 was refused, because that is "
        "not the year of its plaque; the answer that its plaque says 1934 was accepted."
    )
    model = ScriptedModel(answer(text, strategy=rule))
    assert (await reflected_on(CORRECTED, model=model)).by == by


KEPT = (
    "cargo build --release failed to run the custom build command of openssl-sys, "
    "until apt-get install had put libssl-dev and pkg-config there."
)


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param("", id="none"),
        pytest.param("Always look twice.", id="one that says nothing"),
    ],
)
async def test_without_a_strategy_of_its_own_a_text_has_that_of_the_rules(rule):
    rules = await reflected_on(BUILD)
    reply = answer(KEPT, "The agent was diligent.", strategy=rule, importance=1.0)
    reflected = await reflected_on(BUILD, model=ScriptedModel(reply))
    assert reflected.text == KEPT
    assert reflected.strategy.text == rules.strategy.text
    reasons = {claim.text: claim.why for claim in reflected.dropped}
    dropped = ["The agent was diligent.", rule]
    assert reasons == dict.fromkeys(
        filter(None, dropped), "it says nothing about this run"
    )
    # An importance of 1.0 for everything is not believed.
    assert reflected.importance == rules.importance


async def test_a_strategy_without_the_cure_is_refused_with_its_text():
    reply = answer(KEPT, strategy="Always run cargo build --release again.")
    reflected = await reflected_on(BUILD, model=ScriptedModel(reply))
    assert reflected.by == "rules"
    assert "it leaves out the cure" in reflected.error


@pytest.mark.parametrize(
    ("sentence", "evidence"),
    [
        pytest.param(
            "Check the billing API's limits", "the billing API, limits", id="the API's"
        ),
        pytest.param("Ask the APIs' owner", "one API, one owner", id="the APIs'"),
        pytest.param("It broke Maria’s Parcels", "a parcel of Maria", id="Maria’s"),
    ],
)
def test_a_possessive_is_the_word_without_it(sentence, evidence):
    assert list(find_unsupported(sentence, evidence)) == []


@pytest.mark.parametrize("language", ["json", "", "JSON5"])
async def test_an_answer_in_a_fence_is_read_at_once(language):
    text = "cargo build failed to run the custom build command of openssl-sys."
    rule = "Do apt-get install libssl-dev first."
    reply = f"```{language}\n{answer(text, strategy=rule)}\n```\n"
    reflected = await reflected_on(BUILD, model=ScriptedModel(reply))
    assert reflected.usage.calls == 1
    assert reflected.text == text


async def test_an_answer_in_a_fence_beside_other_words_is_read_at_once():
    text = "cargo build failed to run the custom build command of openssl-sys."
    rule = "Do apt-get install libssl-dev first."
    reply = f"Here it is:\n```json\n{answer(text, strategy=rule)}\n```\nAnd more."
    reflected = await reflected_on(BUILD, model=ScriptedModel(reply))
    assert reflected.usage.calls == 1
    assert reflected.text == text

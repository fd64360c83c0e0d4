"""Trials of other memories over HTTP: what is shown, who may, what is wrong, what is
kept, and what happens at once.
"""

from typing import Any

import httpx
import pytest

import heedful
from heedful import errors
from heedful.lessons.holdout import is_source_withheld
from heedful.memory.trial import MAX_LOOP_TEXTS
from heedful.validation import MAX_NAME_CHARS
from tests.engines import rows
from tests.service.support import PROJECT, TENANT, Api, problem, read_data
from tests.tables import cases

pytestmark = pytest.mark.both_nightly
RULES = ["Lengths are in metres.", "Dates are ISO 8601."]
OFFERS = "/v1/trials/offers"
RESULTS = "/v1/trials/results"
PROOF = "/v1/trials/proof"
SHOWN = next(
    loop
    for loop in map(str, range(100))
    if not is_source_withheld(f"{TENANT}\0{PROJECT}", loop, "mem0", 0.5)
)


def offer_of(loop: str, **changes: Any) -> dict[str, Any]:
    """Return the body of an offer of the rules to a loop."""
    return {"source": "mem0", "loop": loop, "texts": RULES, "holdout": 0.5, **changes}


def client_of(api: Api) -> heedful.Client:
    """Return a client of the application with the permissions of an agent."""
    transport = httpx.ASGITransport(app=api.app)
    key = api.key("recall", "write")
    return heedful.Client("http://localhost", key, transport=transport)


def trial_of(api: Api) -> heedful.Trial:
    """Return the trial of the library in the tenant and project of the callers."""
    scope = heedful.Scope(TENANT, PROJECT)
    return heedful.Trial("mem0", api.setup.store, scope, holdout=0.5)


def test_a_client_decides_and_proves_as_the_library(api: Api) -> None:
    trial = trial_of(api)
    new_client = client_of(api)

    async def play() -> None:
        async with new_client as client:
            for number in range(40):
                loop = f"loop/{number}"
                texts = await client.offer("mem0", loop, RULES, holdout=0.5)
                assert texts in ([], RULES)
                assert await trial.offer(loop, RULES) == texts
                await client.end_trial("mem0", loop, passed=bool(texts))

            await client.offer("mem0", "open", RULES, holdout=0.5)
            proven = await client.prove_trial("mem0")
            assert proven.conclusion == "helps"
            assert proven.pending == 1
            assert proven == await trial.prove()

    api.run(play())


def test_a_client_reports_a_score(api: Api) -> None:
    new_client = client_of(api)

    async def play() -> None:
        async with new_client as client:
            await client.offer("mem0", "a", RULES, holdout=0)
            await client.end_trial("mem0", "a", score=0.25)
            with pytest.raises(errors.Conflict, match=r"0\.25"):
                await client.end_trial("mem0", "a", passed=True)
            assert (await client.prove_trial("mem0")).uplift.shown == 0.25

    api.run(play())


def test_texts_are_kept_if_asked(api: Api) -> None:
    trial = trial_of(api)
    read_data(api.post(OFFERS, json=offer_of("kept", keep_texts=True)))
    assert api.run(trial.offered("kept")) == tuple(RULES)


WRONG = {
    "a blank source": (OFFERS, offer_of("a", source=" "), "invalid_input"),
    "a long source": (
        OFFERS,
        offer_of("a", source=(MAX_NAME_CHARS + 1) * "m"),
        "invalid_request",
    ),
    "a secret as a loop": (OFFERS, offer_of("AKIAIOSFODNN7EXAMPLE"), "invalid_input"),
    "many texts": (
        OFFERS,
        offer_of("a", texts=(MAX_LOOP_TEXTS + 1) * ["a"]),
        "invalid_request",
    ),
    "all withheld": (OFFERS, offer_of("a", holdout=1), "invalid_request"),
    "two results": (
        RESULTS,
        {"source": "mem0", "loop": "a", "passed": True, "score": 1},
        "invalid_input",
    ),
}


@cases(("path", "body", "code"), WRONG)
def test_a_wrong_body_is_refused_and_nothing_is_stored(
    api: Api, path: str, body: dict[str, Any], code: str
) -> None:
    problem(api.post(path, json=body), 422, code)
    assert rows(api.setup.store.url, "select loop from trial") == []


@pytest.mark.parametrize("query", ["", "?source=", "?source=%00", "?source=%20"])
def test_a_proof_needs_a_source(api: Api, query: str) -> None:
    answer = api.get(PROOF + query)
    assert answer.status_code == 422
    assert "source" in answer.text


def test_a_repeated_offer_is_answered_without_texts_in_the_store(api: Api) -> None:
    secret = "the key is AKIAIOSFODNN7EXAMPLE"  # the example of Amazon's own pages
    body = offer_of(SHOWN, texts=[*RULES, secret])
    once = {"Idempotency-Key": "once"}
    first = api.post(OFFERS, json=body, headers=once)
    again = api.post(OFFERS, json=body, headers=once)
    assert read_data(first) == {"texts": [*RULES, secret]}
    assert read_data(again) == read_data(first)
    assert again.headers["Idempotent-Replayed"] == "true"
    problem(
        api.post(OFFERS, json=offer_of(SHOWN), headers=once),
        422,
        "idempotency_key_reused",
    )

    for table in ("answer", "trial", "audit"):
        contents = str(rows(api.setup.store.url, f"select * from {table}"))
        assert "metres" not in contents
        assert "AKIA" not in contents


def test_a_revoked_key_takes_its_offers_along(api: Api) -> None:
    key = api.key("write")
    read_data(api.post(OFFERS, json=offer_of("a"), key=key))
    revoked = {"source": f"key:{key.split('_')[1]}", "why": "stolen"}
    read_data(api.post("/v1/quarantine/revoke", json=revoked))
    problem(api.get(f"{PROOF}?source=mem0"), 404, "not_found")

"""The service does what its description says, whatever it is asked: all checks of
schemathesis.

Valid requests and invalid ones, a few of each for every operation; more in a soak run.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from conftest import SOAK
from heedful.store import keys
from heedful.store.keys import KEY_PERMISSIONS
from heedful.store.postgres import in_database
from heedful.store.sqlite import in_file
from heedful_server.app import application
from heedful_server.setup import Setup
from tests.engines import NIGHTLY_ENGINES
from tests.postgres import drop, fresh

DESCRIPTION = Path(__file__).parents[4] / "docs" / "openapi.json"
LABELS = [
    f"{method.upper()} {path}"
    for path, operations in json.loads(DESCRIPTION.read_text("utf-8"))["paths"].items()
    for method in operations
]
EXAMPLES = 2 * SOAK

pytestmark = [pytest.mark.nightly, pytest.mark.soak]


# Refusals of what fits the schema: of which operations, and with which words.
EXCUSED = (
    # No pattern that all readers of JSON Schema know says what is printable, or
    # excludes a 0.
    (".*", "it must be 1 to 2[02]0 printable characters|null character|without NUL"),
    (".*", "cursor is "),  # it is what an answer gave, and no schema knows which
    # Policies, goals and checks are written in a language of their own.
    (
        "PUT /v1/loops/.*|POST /v1/(replay|validate)",
        '"code":"(invalid_input|unknown_name)"',
    ),
    # Which characters are blank is not the same everywhere.
    (
        "POST /v1/(reflections|quarantine/revoke)",
        "must be the (text of an error|name of a source)",
    ),
    (".* /orchestrator/.*", "at least 1 character"),
    ("POST .*", "time is "),  # a moment before 1970, or one that never was
    # One of several fields is needed, or goes without another: the words say so.
    (".* /v1/.*", "give the output|at least one event|left out if a loop is given"),
    ("POST /v1/trials/results", "or pass a score|left out if there is a score"),
    (
        "PATCH .*",
        "send If-Match|changed meanwhile",
    ),  # 428: it has to be the tag of what was read
    # Another test may have begun this loop, and it goes on.
    ("POST /v1/loops/{id}/correction", "a loop that ended without passing"),
    # Callers of earlier systems rely on these answers.
    (
        "POST /orchestrator/loop-complete",
        "Invalid reflection status|it must be given: the summary",
    ),
    ("POST /orchestrator/override-guardrails/.*", "override_fatigue is"),
    # The readers of episodes and of hooks say what is wrong with an event.
    ("POST /v1/(episodes|hooks/.*)", '"code":"(invalid_input|unknown_name)"'),
    ("POST /api/v1/reflections/generate", '"status":"error"'),
)
# OTLP wants an answer of 200 that tells of the spans which were refused, not a refusal
# of all; and in the JSON of protobuf, null is an absent field.
PARTIAL_OPERATION = "POST /v1/traces"
PARTIAL_ANSWER = re.compile(r'"partialSuccess"|\{\}')
CONFIG = {
    # A body that is too large is refused, too; and so is a request to change what was
    # not read.
    "checks": {"negative_data_rejection": {"expected-statuses": ["4xx"]}}
}


class World(NamedTuple):
    """The operations as schemathesis reads them, and a key that may do everything."""

    operations: dict[str, Any]
    key: str


@pytest.fixture(scope="module", params=NIGHTLY_ENGINES)
def world(request) -> Iterator[World]:
    import schemathesis

    urls = fresh() if request.param == "postgres" else None
    store = in_database(urls.service) if urls else in_file(":memory:")
    _, key = asyncio.run(keys.create(store, "acme", "tests", may=KEY_PERMISSIONS))
    config = {**CONFIG, "headers": {"Authorization": f"Bearer {key}"}}
    schema: Any = schemathesis.openapi.from_asgi(
        "/openapi.json",
        application(Setup(store=store)),
        config=schemathesis.Config.from_dict(config),
    )
    operations = (operation.ok() for operation in schema.get_all_operations())
    yield World({operation.label: operation for operation in operations}, key)
    asyncio.run(store.close())
    if urls:
        drop(urls)


def excused(label: str, text: str) -> bool:
    return any(
        re.fullmatch(which, label) and re.search(says, text) for which, says in EXCUSED
    )


@pytest.mark.parametrize("kind", ["positive", "negative"])
@pytest.mark.parametrize("label", LABELS)
def test_an_operation_does_what_it_says(world, label, kind):
    from schemathesis import Case, GenerationMode
    from schemathesis.specs.openapi.checks import (
        negative_data_rejection,
        positive_data_acceptance,
    )

    mode = GenerationMode(kind)
    operation = world.operations[label]
    numbers = count()

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        derandomize=SOAK == 1,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    def holds(case: Case) -> None:
        headers = {"Authorization": f"Bearer {world.key}"}
        if mode.is_positive and "Idempotency-Key" in case.headers:
            headers["Idempotency-Key"] = (
                f"{label} {next(numbers)}"  # one is for one request
            )
        response = case.call(headers=headers)
        wrong: list[Any] = (
            [positive_data_acceptance] if excused(label, response.text) else []
        )
        if label == PARTIAL_OPERATION and PARTIAL_ANSWER.search(response.text):
            wrong.append(negative_data_rejection)
        case.validate_response(response, headers=headers, excluded_checks=wrong)

    with suppress(Unsatisfiable):  # of some operations nothing can be wrong
        holds()

"""Bytes and events that no honest sender sends: spans in protobuf, events of agents."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import SOAK
from tests.episodes.runs import document, genai, protobuf
from tests.service.jobs import Handed
from tests.service.support import Project, served
from tests.soak.ledger import Ledger

pytestmark = [pytest.mark.soak, pytest.mark.nightly]
BODIES = 60 if SOAK == 1 else 200 * SOAK
PROTOBUF = {"Content-Type": "application/x-protobuf"}
# A length of 2 GiB, a number without an end, a group that nobody closes, a wrong type.
VARINTS = (b"\x0a\xff\xff\xff\xff\x07", b"\xff" * 12, b"\x0b" * 50, b"\x0f\x00")


def _mutate(body: bytes, choose: random.Random) -> bytes:
    """Change bytes as a faulty or hostile sender does."""
    place = choose.randrange(len(body))
    ways: list[Callable[[], bytes]] = [
        lambda: choose.randbytes(choose.randint(0, 500)),
        lambda: body[:place],
        lambda: body[:place] + choose.randbytes(8) + body[place + 8 :],
        lambda: body[:place] + choose.choice(VARINTS) + body[place:],
        lambda: body[:place] * 3 + body,
        lambda: b"\x0a\x80\x80\x01" * 1_000 + body,
        lambda: bytes([body[place] ^ 1 << choose.randrange(8)]).join(
            (body[:place], body[place + 1 :])
        ),
    ]
    return choose.choice(ways)()


def test_no_body_of_spans_breaks_the_service(tmp_path: Path, ledger: Ledger) -> None:
    seed = random.randrange(2**32) if SOAK > 1 else 1
    choose = random.Random(seed)
    valid_body = protobuf(document(genai()))
    statuses: Counter[int] = Counter()
    with served(tmp_path, work=Handed()) as api:
        project = Project(api, "shop")
        other = Project(api, "books")
        for number in range(BODIES):
            body = _mutate(valid_body, choose)
            answer = project.ask("POST", "traces", content=body, headers=PROTOBUF)
            assert answer.status_code in (200, 400), (seed, number, answer.text)
            statuses[answer.status_code] += 1
        episodes = other.get("episodes")["items"]
        # The service still takes what is right.
        last = project.ask("POST", "traces", content=valid_body, headers=PROTOBUF)
        assert last.status_code == 200
    assert statuses[200]
    assert statuses[400]

    ledger.settle(
        what="spans in protobuf, mutated or random, sent to a service",
        engine="SQLite",
        times=BODIES,
        seed=seed,
        leaked=len(episodes),
    )

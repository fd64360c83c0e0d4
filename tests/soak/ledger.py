"""What the long runs break on purpose, and what came of it: one line of a file each.

A test says what it did and what it counted; a count that is not 0 fails the test after
the line is written, so a failure is in the file too. `scripts/reliability.py` makes
docs/reliability.md of it.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.conftest import SOAK

LEDGER = Path(__file__).parents[2] / "build" / "soak.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One kind of damage, and how often it was done.

    `what` is a short sentence for operators ("kill -9 of a service, a worker and its
    hooks"); `engine` is "SQLite", "PostgreSQL", "both" or "none"; `times` counts the
    damage that was done, not the rounds of the test. The four counts are of records:
    acknowledged and gone, counted twice, over a limit, shown to someone who must not
    see them.
    """

    what: str
    engine: str
    times: int
    seed: int
    lost: int = 0
    doubled: int = 0
    exceeded: int = 0
    leaked: int = 0


@dataclass(slots=True)
class Ledger:
    """The lines of one test. Only `make soak` writes them."""

    test: str
    began: float = field(default_factory=time.monotonic)

    def settle(self, trial: Trial) -> None:
        """Write the line of a trial, then fail if one of its counts is not 0."""
        assert trial.times > 0, f"nothing was broken: {trial.what}"

        if SOAK > 1:
            line = asdict(trial)
            line["seconds"] = round(time.monotonic() - self.began, 1)
            line["test"] = self.test
            LEDGER.parent.mkdir(exist_ok=True)
            with LEDGER.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(line)}\n")

        counts = (trial.lost, trial.doubled, trial.exceeded, trial.leaked)
        assert counts == (0, 0, 0, 0), trial

"""How often a model's insights are ungrounded at first, and how often they are
corrected.

    python examples/forecast/measure.py --model embedded

Ten quarters, each forecast from all that was before it; one memory over all of them.
"""

from __future__ import annotations

import argparse
from datetime import date, timedelta
from pathlib import Path

from forecast import begun, pipeline, remembering  # type: ignore[import-not-found]  # beside this file

import heedful

QUARTERS = [
    (date(year, month, 1)) for year in (2013, 2014, 2015) for month in (1, 4, 7, 10)
][2:]


def main() -> None:
    """Run all quarters; runs that have ended are not run again."""
    parser = argparse.ArgumentParser(
        description="Measure how a model grounds its insights."
    )
    parser.add_argument(
        "--model", default="embedded", help="who writes the insights [embedded]"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("out/measured"), help="the folder"
    )
    given = parser.parse_args()
    made = pipeline(remembering(given.out), given.out, heedful.open_model(given.model))
    at_first = corrected = attempts = 0
    for first in QUARTERS:
        name = f"{first:%Y-%m}"
        last = (first + timedelta(days=92)).replace(day=1) - timedelta(days=1)
        state = begun(given.out / name, test=(first.isoformat(), last.isoformat()))
        stage = heedful.run_sync(made.run(state, id=name)).stage("insights")
        wrong = [
            ", ".join(one.failed_checks_summary) or "none" for one in stage.attempts
        ]
        at_first += wrong[0] == "none"
        corrected += stage.recovered
        attempts += len(wrong)
        for number, one in enumerate(stage.attempts):
            print(
                f"{name} attempt {one.attempt}: {one.output!r}\n    errors: "
                f"{wrong[number]}"
            )
    rest = len(QUARTERS) - at_first
    print(
        f"grounded at first {at_first} of {len(QUARTERS)}, corrected {corrected} of "
        f"{rest} ",
        end="",
    )
    print(f"within 2 retries; {attempts} texts")


if __name__ == "__main__":
    main()

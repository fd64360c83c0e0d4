"""How often a model's insights are ungrounded at first, and how often they are
corrected.

    python packages/heedful/examples/forecast/measure.py --model embedded

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
    options = parser.parse_args()
    model = heedful.open_model(options.model)
    stages = pipeline(remembering(options.out), options.out, model)
    at_first = corrected = attempts = 0
    for first in QUARTERS:
        name = f"{first:%Y-%m}"
        last = (first + timedelta(days=92)).replace(day=1) - timedelta(days=1)
        state = begun(options.out / name, test=(first.isoformat(), last.isoformat()))
        stage = heedful.run_sync(stages.run(state, id=name)).stage("insights")
        if not stage.attempts[0].failed:
            at_first += 1
        if stage.recovered:
            corrected += 1
        attempts += len(stage.attempts)
        for attempt in stage.attempts:
            errors = ", ".join(attempt.failed_checks_summary) or "none"
            print(f"{name} attempt {attempt.attempt}: {attempt.output!r}")
            print(f"    errors: {errors}")
    wrong_at_first = len(QUARTERS) - at_first
    print(
        f"grounded at first {at_first} of {len(QUARTERS)}, corrected {corrected} of "
        f"{wrong_at_first} within 2 retries; {attempts} texts"
    )


if __name__ == "__main__":
    main()

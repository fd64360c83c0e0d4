"""Make `recorded.zip` of a real run, for `heedful demo --recorded`.

Run the demo in the root of a checkout, then name its folder:

    make demo ARGS='--fresh'
    .venv/bin/python -m scripts.record_demo out/demo

The database is copied without free pages. Nothing in it is changed, and the answers are
those of the model; `run.json` has the rows, settings and machine of `result.json`, and
the day.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
import zipfile
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from examples.demo.recording import DATABASE, FACTS, RECORDING

MAX_BYTES = 300_000
FACTS_OF_RUN = ("settings", "machine", "rows")


def compact(source: Path) -> bytes:
    """Return the bytes of a database, read as a whole, without free pages."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, DATABASE)
        with closing(sqlite3.connect(source)) as database:
            database.execute("vacuum into ?", (str(target),))
        return target.read_bytes()


def main(out: Path) -> int:
    """Write the recording of the run in `out`; return 1 if it is not one run."""
    databases = list(out.glob("demo-*.db"))
    if len(databases) != 1:
        print(f"{out} has {len(databases)} databases of runs; begin with --fresh")
        return 1
    (source,) = databases
    result_file = out / "result.json"
    result = json.loads(result_file.read_text("utf-8"))
    facts = {name: result[name] for name in FACTS_OF_RUN}
    del facts["settings"]["command"]
    ended = datetime.fromtimestamp(result_file.stat().st_mtime, UTC)
    facts["date"] = ended.date().isoformat()

    with zipfile.ZipFile(RECORDING, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        file.writestr(DATABASE, compact(source))
        file.writestr(FACTS, json.dumps(facts, ensure_ascii=False))
    size = RECORDING.stat().st_size
    print(f"{RECORDING}: {size} bytes of at most {MAX_BYTES}")
    return 1 if size > MAX_BYTES else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

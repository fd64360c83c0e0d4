"""Make `recorded.zip`, for `heedful demo --recorded`.

To make it of a real run, run the demo in the root of a checkout, then name its folder.
The first command makes sure that nothing of an earlier run is in it:

    rm -rf out/demo && make demo
    .venv/bin/python -m scripts.record_demo out/demo

Without a folder, the recording that there is gets the schema of this checkout. No model
is asked; a column that the recording lacks gets its default. In both cases, the rows
are copied as they are, and the answers are those of the model. `run.json` has the rows,
settings and machine of `result.json`, and the day.
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
from heedful.store.sqlite import create_file

MAX_BYTES = 300_000
# The columns that a table has in both schemas. Tables of a search index are some, too.
COMMON_COLUMNS = """
select t.name, group_concat(new.name)
from sqlite_master t, pragma_table_info(t.name, 'main') new
join pragma_table_info(t.name, 'old') old on old.name = new.name
where t.type = 'table' and t.rootpage > 0 group by t.name
"""
TRIGGERS = "select name, sql from sqlite_master where type = 'trigger'"


def copy_rows(source: Path, target: Path) -> None:
    """Copy all rows of a database into a new one with the schema of this checkout."""
    create_file(str(target))
    with closing(sqlite3.connect(target, isolation_level=None)) as database:
        database.execute("attach ? as old", (str(source),))
        # Triggers would count again what is copied.
        triggers = database.execute(TRIGGERS).fetchall()
        database.executescript("".join(f"drop trigger {name};" for name, _ in triggers))
        for table, columns in database.execute(COMMON_COLUMNS).fetchall():
            database.execute(
                f"insert or replace into main.{table} ({columns}) "
                f"select {columns} from old.{table}"
            )
        database.executescript("".join(f"{sql};" for _, sql in triggers))
        database.execute("vacuum")


def read_run(out: Path) -> tuple[Path, str]:
    """Return the database of the run in `out`, and its facts as JSON.

    Raises ValueError if it has several databases, or none.
    """
    (source,) = out.glob("demo-*.db")
    result_file = out / "result.json"
    result = json.loads(result_file.read_text("utf-8"))
    facts = {name: result[name] for name in ("settings", "machine", "rows")}
    del facts["settings"]["command"]
    ended = datetime.fromtimestamp(result_file.stat().st_mtime, UTC)
    facts["date"] = ended.date().isoformat()
    return source, json.dumps(facts, ensure_ascii=False)


def read_recording(folder: str) -> tuple[Path, str]:
    """Unpack the database of the recording into a folder; return it, and its facts."""
    with zipfile.ZipFile(RECORDING) as file:
        return Path(file.extract(DATABASE, folder)), file.read(FACTS).decode()


def main(*out: str) -> int:
    """Write the recording, of the run in a folder if there is one; return 1 if it is
    too large.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, facts = read_run(Path(*out)) if out else read_recording(folder)
        target = Path(folder, "new.db")
        copy_rows(source, target)
        with zipfile.ZipFile(
            RECORDING, "w", zipfile.ZIP_DEFLATED, compresslevel=9
        ) as file:
            file.write(target, DATABASE)
            file.writestr(FACTS, facts)

    size = RECORDING.stat().st_size
    print(f"{RECORDING}: {size} bytes of at most {MAX_BYTES}")
    return 1 if size > MAX_BYTES else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

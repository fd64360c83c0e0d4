"""A database that somebody else has made, whose schema would run what he likes.

A view in place of a table, a trigger or a generated column may compute for ever in any
statement that heedful runs.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from heedful.errors import StoreCorrupt
from heedful.lessons.lesson import Scope
from heedful.store import loops
from heedful.store.records import Head
from heedful.store.sqlite import Connection, connect
from tests.cli.support import Desk
from tests.store.support import WAITING, opened, unmeasured
from tests.time_limit import time_limit

ENDLESS = (
    "with recursive n (x) as (select 1 union all select x + 1 from n) "
    "select max(x) from n"
)
VIEW = f"drop table loop; create view loop as select * from ({ENDLESS})"
NOT_OURS = "the view 'loop', which this version of heedful did not make"
EXPENSIVE = "length(hex(zeroblob(500000000)))"
CHANGES = {
    "a view in place of a table": ("loop", VIEW),
    "a view of capital letters": ("LOOP", VIEW.replace("view loop", "view LOOP")),
    "a trigger that never ends": (
        "evil",
        f"create trigger evil after insert on loop begin {ENDLESS}; end",
    ),
    "a trigger of ours with another body": (
        "audit_added",
        f"""drop trigger audit_added;
        create trigger audit_added after insert on audit begin {ENDLESS}; end""",
    ),
    "a view beside ours": ("evil", f"create view evil as {ENDLESS}"),
    "a generated column": (
        "loop",
        f"alter table loop add column evil generated always as ({EXPENSIVE}) virtual",
    ),
    "an index of an expression": ("evil", f"create index evil on loop ({EXPENSIVE})"),
    "a virtual table in place of ours": (
        "loop",
        "drop table loop; create virtual table loop using fts5 (id, task)",
    ),
    "a view where the index keeps its data": (
        "example_fts_config",
        f"""drop table example_fts_config;
        create view example_fts_config as select 'version' k from ({ENDLESS})""",
    ),
}
CASES = [pytest.param(*change, id=name) for name, change in CHANGES.items()]


@pytest.fixture(autouse=True)
def each_test_has_a_time_limit() -> Iterator[None]:
    with time_limit():
        yield


def make_hostile(path: Path, change: str) -> Path:
    """Make a database of heedful, with this change of its schema."""
    with closing(connect(str(path), 1.0)) as db:
        db.executescript(change)
    return path


@pytest.mark.parametrize(("name", "change"), CASES)
async def test_a_schema_that_is_not_heedfuls_is_refused_and_named(
    tmp_path, name, change
):
    with opened(make_hostile(tmp_path / "a.db", change)) as store:
        with pytest.raises(
            StoreCorrupt, match=f"'{name}', which this version of heedful did not make"
        ):
            await store.write(Scope(), loops.begin, "1", Head(task="a"))
        with pytest.raises(StoreCorrupt, match="drop it if it is yours"):
            await store.read(Scope(), loops.read, "1")


# What a reader takes for a comment who drops quotes, and what it hides.
SIGNS = {
    "double quotes": '"--"',
    "brackets": "[--]",
    "backticks": "`--`",
    "single quotes": "'--'",
}
HIDDEN = {
    "example_added": (
        "(select state",
        f" {{}} from lesson limit 1); {ENDLESS}; end /*\n",
    ),
    "new_scope": (
        "(select 1",
        f" {{}}) then ({ENDLESS}) else 0 end) select base from pick /*\n",
    ),
}


@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.parametrize("sign", SIGNS.values(), ids=SIGNS)
async def test_statements_behind_a_false_comment_are_refused(tmp_path, sign, name):
    path = make_hostile(tmp_path / "a.db", "")
    begin, hidden = HIDDEN[name]
    with opened(path) as store:
        await store.write(Scope(), loops.begin, "1", Head(task="a"))
    with closing(connect(str(path), 1.0)) as db:
        query = "select sql from sqlite_schema where name = ?"
        (sql,) = db.execute(query, [name]).fetchone()
        place = sql.index(begin) + len(begin)
        hostile = f"{sql[:place]}{hidden.format(sign)}{sql[place:]}"
        db.execute("pragma writable_schema = on")
        change = "update sqlite_schema set sql = ? where name = ?"
        db.execute(change, [hostile, name])
        db.commit()
    with (
        opened(path) as store,
        pytest.raises(StoreCorrupt, match=f"'{name}', which this version"),
    ):
        await store.read(Scope(), loops.read, "1")


async def test_a_trigger_that_says_it_is_a_table_is_refused(tmp_path):
    change = f"""
    create trigger evil after insert on loop begin {ENDLESS}; end;
    pragma writable_schema = on;
    update sqlite_schema set type = 'table' where name = 'evil'
    """
    path = make_hostile(tmp_path / "a.db", change)
    with opened(path) as store, pytest.raises(StoreCorrupt):
        await store.write(Scope(), loops.begin, "1", Head(task="a"))


RUN = "begin select raise(abort, 'it ran'); end"


@pytest.mark.parametrize("line", ["loops", "seen E text", "export lessons.jsonl"])
def test_a_command_ends_and_names_what_is_not_heedfuls(tmp_path, line):
    make_hostile(tmp_path / "heedful.db", VIEW)
    done = Desk(tmp_path).heedful(f"{line} --db heedful.db")
    assert done.code != 0
    assert NOT_OURS in done.err


@pytest.mark.parametrize(
    "face", ["serve", pytest.param("ui", marks=pytest.mark.nightly)]
)
def test_a_service_ends_and_names_what_is_not_heedfuls(tmp_path, face):
    path = make_hostile(tmp_path / "heedful.db", VIEW)
    options = ("--port", "0", "--db", str(path))
    ended = subprocess.run(
        [sys.executable, "-m", "heedful.cli", face, *options],
        cwd=tmp_path,
        env=unmeasured(),
        capture_output=True,
        text=True,
        timeout=WAITING,
        check=False,
    )
    assert ended.returncode != 0
    assert NOT_OURS in ended.stderr + ended.stdout


async def test_tables_of_another_program_are_left_alone(tmp_path):
    """Some programs that make backups keep a table of theirs in the file."""
    change = (
        "create table _litestream_seq (id integer primary key, seq integer); "
        "create index theirs on _litestream_seq (seq); analyze"
    )
    with opened(make_hostile(tmp_path / "a.db", change)) as store:
        await store.write(Scope(), loops.begin, "1", Head(task="a"))


async def test_a_file_whose_header_claims_more_pages_than_it_has_is_read(tmp_path):
    path = make_hostile(tmp_path / "a.db", "pragma wal_checkpoint(truncate)")
    with path.open("r+b") as file:
        file.seek(28)
        file.write((2**31 - 2).to_bytes(4, "big"))
    with opened(path) as store, pytest.raises(StoreCorrupt):
        await store.write(Scope(), loops.begin, "1", Head(task="a"))


def test_the_connection_keeps_the_tables_of_the_index_from_statements(tmp_path):
    if sys.version_info < (3, 12):
        return
    with closing(connect(str(tmp_path / "a.db"), 1.0)) as db:
        assert isinstance(db, Connection)
        assert db.getconfig(1010)  # SQLITE_DBCONFIG_DEFENSIVE

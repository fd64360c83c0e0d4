"""The schema of procrastinate, the queue that lives in the same PostgreSQL."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from heedful.errors import PackageMissing

if TYPE_CHECKING:
    from heedful.store.session import Session

_BOOK = """
create table if not exists queue_version (
  name text primary key,
  at double precision not null
)
"""


def migrate(db: Session, part: str) -> None:
    """Bring the queue to the installed procrastinate's schema, unless somebody else keeps it.

    Its migrations have parts as ours; those named neither pre nor post count as pre.
    """
    try:
        from procrastinate.schema import SchemaManager
    except ImportError as error:
        raise PackageMissing("the queue in PostgreSQL", "procrastinate", "postgres") from error
    names = sorted(
        name for name in os.listdir(SchemaManager.get_migrations_path()) if name.endswith(".sql")
    )
    there = db.execute("select to_regclass('procrastinate_jobs') is not null").fetchone()[0]
    db.script(_BOOK)
    done = {row[0] for row in db.execute("select name from queue_version")}
    if not there:
        db.script(SchemaManager.get_schema())
        applied = names
    elif done:
        applied = [name for name in names if name not in done and part in ("all", _part(name))]
        for name in applied:
            path = os.path.join(SchemaManager.get_migrations_path(), name)
            with open(path, encoding="utf-8") as file:
                db.script(file.read())
    else:
        applied = []
    for name in applied:
        values = {"name": name, "at": time.time()}
        db.execute("insert into queue_version values (:name, :at)", values)


def _part(name: str) -> str:
    return "post" if "_post_" in name else "pre"

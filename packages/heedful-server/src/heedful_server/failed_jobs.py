"""Failed jobs: those that were given up, until somebody retries or discards them.

PostgreSQL has the rows of the job queue. The queue of a SQLite file is in a process, so
only reflections that failed are known, by their episodes.
"""

import json

from heedful.errors import NotFound
from heedful.lessons.scope import Scope
from heedful.store.connection import MAX_ROWS, Db, resumable
from heedful.validation import Document


def newest(db: Db, scope: Scope, limit: int) -> list[Document]:
    """Return up to `limit` failed jobs of a tenant as JSON data, newest first.

    `error` says why the last try of a job failed, and `at` when: in seconds since 1970.
    """
    return [
        {**row, "arguments": json.loads(row["arguments"])}
        for row in db.all("failed_jobs", scope, limit=limit)
    ]


@resumable(result=list[Document])
def end(db: Db, scope: Scope, id: int | None = None, *, again: bool) -> list[Document]:
    """Put the failed job with this id on the queue `again`, or else remove it.

    None stands for all failed jobs of the tenant. Return them as they were. Raises
    NotFound.
    """
    jobs = [job for job in newest(db, scope, MAX_ROWS) if id in (None, job["id"])]
    if id is not None and not jobs:
        raise NotFound("failed job", str(id), f"tenant {scope.tenant}")

    for job in jobs:
        db.run(
            "end_failed_job", {"tenant": scope.tenant, "id": job["id"], "again": again}
        )
    return jobs

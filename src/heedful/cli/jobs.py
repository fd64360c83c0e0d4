"""`heedful worker jobs`: jobs that failed for good, to retry or discard them."""

from typing import Annotated, Any

from typer import Argument, Context, Option, Typer

from heedful.cli.app import group_with_default
from heedful.cli.databases import ask_scope, read
from heedful.cli.output import answer, columns, counted, emit, following
from heedful.cli.settings import MAX_OPTION_INTEGER, Limit
from heedful.lessons.scope import Scope
from heedful.store import failed_jobs
from heedful.store.store import Store
from heedful.validation import require

jobs: Typer = group_with_default()
FAILED_JOB_COLUMNS = columns("task project arguments error id at")
Id = Annotated[
    int | None, Argument(min=1, max=MAX_OPTION_INTEGER, help="An id from the list.")
]
All = Annotated[bool, Option("--all", help="All failed jobs of the tenant.")]


@jobs.callback(invoke_without_command=True)
def list_failed(context: Context, limit: Limit = 50) -> int:
    """List the jobs that failed for good in a tenant, newest first, and why.

    A SQLite file has only those that reflect on a run.
    """
    if context.invoked_subcommand is not None:
        return 0

    return emit(
        read(failed_jobs.newest, limit),
        FAILED_JOB_COLUMNS,
        key="jobs",
        text_columns=4,
        empty="no job has failed for good",
        then=following("worker", "jobs", "retry", all=True),
    )


@jobs.command()
def retry(id: Id = None, is_all: All = False) -> int:
    """Put a failed job back on the queue. It has as many tries as a new job."""
    words = "back on the queue; any worker runs it (on SQLite: heedful worker --once)"
    return _end(id, is_all, again=True, words=words)


@jobs.command()
def discard(id: Id = None, is_all: All = False) -> int:
    """Delete a failed job. Its work stays undone."""
    return _end(id, is_all, again=False, words="discarded")


def _end(id: int | None, is_all: bool, *, again: bool, words: str) -> int:
    """End one failed job or all, and say in `words` what was done."""
    is_named = id is not None
    require(is_named != is_all, "ID", id, "the id of a failed job, or --all")

    async def end(store: Store, scope: Scope) -> list[dict[str, Any]]:
        return await store.write(scope, failed_jobs.end, id, again=again)

    ended = ask_scope(end)
    return answer({"jobs": ended}, f"{counted(len(ended), 'job')} {words}")

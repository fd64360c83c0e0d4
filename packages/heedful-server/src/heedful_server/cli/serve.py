"""`heedful serve` and `heedful ui`: the service and its pages.

Both run the same application on one store. Only `heedful serve` runs jobs in its own
process, and only on a SQLite file; otherwise they wait for `heedful worker`.
"""

import os
from typing import Annotated

from typer import Option

from heedful.cli.databases import removal_seconds
from heedful.cli.settings import settings, warn_of_unknown_variables
from heedful.errors import UsageError
from heedful_server.cli import service
from heedful_server.cli.logs import Content, Telemetry, exporting


def serve(telemetry: Telemetry = False, telemetry_content: Content = False) -> int:
    """Serve heedful over HTTP until SIGTERM or Ctrl-C.

    If no key exists, the service listens on this machine only, and every caller may do
    everything. As soon as `heedful key create` has created a key, callers need one.
    """
    values = settings().with_one_model()

    if values.workers and values.is_on_server:
        raise UsageError(
            f"workers is {values.workers}, but on PostgreSQL no work is done in the "
            f"service's process; start heedful worker --concurrency {values.workers}"
        )

    # On PostgreSQL only workers use them, and they would not start.
    removal_seconds(values)

    # Before numpy is loaded: its threads wait for each other on the processor, and a
    # search of 10,000 vectors would take eight times as much of it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    warn_of_unknown_variables()
    with exporting(telemetry, telemetry_content):
        service.run_until_stopped(service.serve(values))
    return 0


def ui(
    read_only: Annotated[bool, Option("--read-only", help="Change nothing.")] = False,
    no_browser: Annotated[
        bool, Option("--no-browser", help="Only print the address.")
    ] = False,
) -> int:
    """Look at loops, lessons and proof in the browser, and review them.

    It shows the database of this folder, on this machine only, and creates one if there
    is none, unless --db names it. The printed address contains a token that signs you
    in once.
    """
    pages = service.show_pages(
        settings().with_one_model(), read_only=read_only, browser=not no_browser
    )
    service.run_until_stopped(pages)
    return 0

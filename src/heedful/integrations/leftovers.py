"""What the hooks leave behind when they are uninstalled, and how to remove it.

Lessons are worth more than hooks, so nothing of this is removed without a person.
"""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from pathlib import Path

from heedful.errors import UsageError
from heedful.store import DEFAULT_DATABASE_FILE
from heedful.store.ownership import APPROVALS_FILE, approvals, home_folder
from heedful.store.workspace import find_repository, own_db, read_project_file

LOG_FILE = "hook.log"


def leftovers(folder: Path, everywhere: bool) -> list[str]:
    """Return a line for each thing that stays after an uninstallation in a folder.

    `everywhere` says that the hooks of all projects were removed.
    """
    lines = [] if everywhere else [*_of_repository(folder)]
    return [*lines, *_of_user(folder, everywhere)]


def _of_repository(folder: Path) -> list[str]:
    """Return lines about the database of a repository, and the files that name it."""
    repository = find_repository(folder)
    if repository is None:
        return []

    lines = []
    link = repository.root / DEFAULT_DATABASE_FILE
    if repository.db.exists():
        places = [str(repository.db.parent)]
        if link.is_symlink():
            places.append(str(link))
        lines.append(
            f"the database with what was learnt; to remove it: rm -r "
            f"{shlex.join(places)}"
        )

    git = repository.db.parent.parent
    exclude = git / "info" / "exclude"
    line = f"/{DEFAULT_DATABASE_FILE}*"
    with suppress(OSError, UsageError):
        text = read_project_file(exclude, within=git).decode("utf-8", "replace")
        if line in text.splitlines():
            lines.append(f"the line {line} in {exclude}; to remove it: delete the line")
    return lines


def _of_user(folder: Path, everywhere: bool) -> list[str]:
    """Return lines about the files in the home of the user."""
    home = home_folder()
    approved = approvals()
    names = [*approved["files"], *approved["refused"], *approved["databases"].values()]
    if everywhere:
        is_named = any(approved.values())
    else:
        root = os.path.realpath(folder)
        is_named = any(name.startswith(f"{root}{os.sep}") for name in names)

    lines = []
    if is_named:
        lines.append(
            f"what you approved and refused, in {home / APPROVALS_FILE}; to remove it: "
            "delete its entries, or the file with those of all projects"
        )
    database = own_db()
    if everywhere and database.exists():
        place = shlex.quote(str(database))
        lines.append(f"the database of folders without git; to remove it: rm {place}")
    log = home / LOG_FILE
    if everywhere and log.exists():
        lines.append(f"the log; to remove it: rm {shlex.quote(str(log))}")
    return lines

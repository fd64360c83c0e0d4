"""Which projects a key may see, and how their loops went beside each other."""

from __future__ import annotations

import time
from weakref import WeakKeyDictionary

from heedful.lessons.lesson import Scope
from heedful.store import lessons
from heedful.store.store import Store
from heedful.web.days import read_home
from heedful.web.site import Document, Visit

# Others than the one that is shown: each takes the time of another Home.
MAX_COMPARED_PROJECTS = 3
# The figures of another project with many loops are counted once in a while.
MAX_HOME_AGE_SECONDS = 60.0
MIN_SAVED_LOOPS = 500

# The figures of projects with many loops, and when they were read.
_homes = WeakKeyDictionary[Store, dict[Scope, tuple[float, Document]]]()


async def project_names(visit: Visit) -> list[str]:
    """Return the names of the projects that the key may see."""
    names = set(visit.caller.key.projects)
    if not names:
        scopes = await visit.caller.read(lessons.projects)
        names = {visit.caller.scope.project, *(scope.project for scope in scopes)}
    return sorted(names)


async def read_project(store: Store, scope: Scope) -> Document:
    """Return the figures of a project, as `read_home` does.

    Those of many loops are read again after `MAX_HOME_AGE_SECONDS`.
    """
    homes = _homes.setdefault(store, {})
    read_at, home = homes.get(scope, (0.0, {"loops": 0}))
    is_fresh = time.monotonic() - read_at < MAX_HOME_AGE_SECONDS
    if not (is_fresh and home["loops"] >= MIN_SAVED_LOOPS):
        home = await read_home(store, scope)
        homes[scope] = time.monotonic(), home
    return home


async def compare_projects(visit: Visit, home: Document) -> list[Document]:
    """Return the figures of this project and of others with loops, this one first.

    `home` are the figures of this project, as `read_home` returns them. `lessons` is
    how many a project has. Returns [] if no other project has any loops.
    """
    this_project = visit.caller.scope.project
    names = [name for name in await project_names(visit) if name != this_project]
    rows = [await _row(visit, this_project, home)]
    for name in names[:MAX_COMPARED_PROJECTS]:
        scope = Scope(visit.caller.scope.tenant, name)
        totals = await read_project(visit.caller.setup.store, scope)
        rows.append(await _row(visit, name, totals))
    rows = [row for row in rows if row["loops"]]
    return rows if len(rows) > 1 else []


async def _row(visit: Visit, project: str, home: Document) -> Document:
    fields = ("loops", "calls", "right", "more", "unread", "whole_days")
    scope = Scope(visit.caller.scope.tenant, project)
    number = await visit.caller.setup.store.read(scope, lessons.count)
    figures = {name: home[name] for name in fields}
    return {"project": project, "lessons": number, **figures}

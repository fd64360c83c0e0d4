"""Which projects a key may see, and how their loops went beside each other."""

from __future__ import annotations

from heedful.lessons.lesson import Scope
from heedful.store import lessons
from heedful.web.days import read_home
from heedful.web.site import Document, Visit

MAX_COMPARED_PROJECTS = 5  # others than the one that is shown


async def project_names(visit: Visit) -> list[str]:
    """Return the names of the projects that the key may see."""
    names = set(visit.caller.key.projects)
    if not names:
        scopes = await visit.caller.read(lessons.projects)
        names = {visit.caller.scope.project, *(scope.project for scope in scopes)}
    return sorted(names)


async def compare_projects(visit: Visit) -> list[Document]:
    """Return the figures of this project and of others with loops, this one first.

    `lessons` is how many they have. Returns [] if no other project has any loops.
    """
    this_project = visit.caller.scope.project
    names = [name for name in await project_names(visit) if name != this_project]
    store = visit.caller.setup.store
    rows = []
    for name in [this_project, *names[:MAX_COMPARED_PROJECTS]]:
        scope = Scope(visit.caller.scope.tenant, name)
        totals = await read_home(store, scope)
        if totals["loops"]:
            fields = ("loops", "calls", "right", "more", "unread", "whole_days")
            number = await store.read(scope, lessons.count)
            figures = {name: totals[name] for name in fields}
            rows.append({"project": name, "lessons": number, **figures})
    return rows if len(rows) > 1 else []

"""The pages of heedful in a browser: loops, lessons, proof, and what a person rules
on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI

    from heedful.web.site import Site


def add_pages(app: FastAPI, read_only: bool = False) -> Site:
    """Add the pages to a service, at `/ui`; with `read_only`, no form changes
    anything.
    """
    from starlette.responses import RedirectResponse
    from starlette.routing import Route

    from heedful.web import lessons, pages, work  # noqa: F401  they register their pages
    from heedful.web.site import SITE_PATH, Site

    site = Site(app, app.state.setup, read_only)
    app.router.routes.append(Route(f"{SITE_PATH}{{rest:path}}", site))
    for path, there in (
        ("/", SITE_PATH),
        ("/favicon.ico", f"{SITE_PATH}/static/icon.svg"),
    ):
        app.router.routes.append(Route(path, RedirectResponse(there, 303)))
    return site

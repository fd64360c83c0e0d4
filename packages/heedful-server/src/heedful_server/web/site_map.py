"""All pages and forms of the site, and how a service gets them."""

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Route

from heedful_server.web import (
    access,
    home,
    inbox,
    lesson_page,
    loop_list,
    loop_page,
    memory_pages,
    run_page,
    trace,
    work,
)
from heedful_server.web.addresses import SITE_PATH
from heedful_server.web.site import Site, SiteAction, SitePage

PAGES: tuple[SitePage, ...] = (
    *home.PAGES,
    *loop_list.PAGES,
    *loop_page.PAGES,
    *memory_pages.PAGES,
    *lesson_page.PAGES,
    *inbox.PAGES,
    *run_page.PAGES,
    *trace.PAGES,
    *work.PAGES,
    *access.PAGES,
)
ACTIONS: tuple[SiteAction, ...] = (
    *loop_page.ACTIONS,
    *lesson_page.ACTIONS,
    *inbox.ACTIONS,
    *trace.ACTIONS,
    *access.ACTIONS,
)


def add_pages(app: FastAPI, read_only: bool = False) -> Site:
    """Add the pages to a service, at `/ui`; with `read_only`, no form changes data."""
    site = Site(
        app,
        app.state.setup,
        app.state.admission,
        pages=PAGES,
        actions=ACTIONS,
        read_only=read_only,
    )
    icon = f"{SITE_PATH}/static/icon.svg"
    app.routes.extend(
        [
            # Browsers send the cookie only to addresses below `/ui`.
            Route(f"{SITE_PATH}.json", _lead_to_home_data),
            Route(f"{SITE_PATH}{{rest:path}}", site),
            Route("/", RedirectResponse(SITE_PATH, 303)),
            Route("/favicon.ico", RedirectResponse(icon, 303)),
        ]
    )
    return site


async def _lead_to_home_data(request: Request) -> RedirectResponse:
    """Lead from `/ui.json` to the data of Home, with the query."""
    home_data = f"{SITE_PATH}/home.json"
    return RedirectResponse(f"{home_data}?{request.url.query}".rstrip("?"), 301)

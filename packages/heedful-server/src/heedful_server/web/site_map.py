"""All pages and forms of the site, and how a service gets them."""

from collections.abc import Mapping, Sequence

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Route

from heedful.store.keys import Permission
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
from heedful_server.web.site import READING, REVIEWING, Action, Site, SitePage

PAGES = (
    SitePage(address="/", template="home", title="Home", make=home.home, may=READING),
    SitePage(
        address="/home", template="home", title="Home", make=home.home, may=READING
    ),
    SitePage(
        address="/loops",
        template="list",
        title="Loops",
        make=loop_list.loops,
        may=READING,
    ),
    SitePage(
        address="/loops/{id:path}",
        template="loop",
        title="Loop",
        make=loop_page.loop,
        may=READING,
    ),
    SitePage(
        address="/lessons",
        template="list",
        title="Lessons",
        make=memory_pages.lessons,
        may=READING,
    ),
    SitePage(
        address="/lessons/{n:int}",
        template="lesson",
        title="Lesson",
        make=lesson_page.lesson,
        may=READING,
    ),
    SitePage(
        address="/proof",
        template="proof",
        title="Proof",
        make=memory_pages.proof,
        may=READING,
    ),
    SitePage(
        address="/inbox",
        template="inbox",
        title="Inbox",
        make=inbox.inbox,
        may=REVIEWING,
    ),
    SitePage(
        address="/inbox/{n:int}",
        template="inbox",
        title="Inbox",
        make=inbox.inbox,
        may=REVIEWING,
    ),
    SitePage(
        address="/work",
        template="list",
        title="Runs and traces",
        make=work.work,
        may=READING,
    ),
    SitePage(
        address="/runs/{id:path}",
        template="loop",
        title="Run of a pipeline",
        make=run_page.run,
        may=READING,
    ),
    SitePage(
        address="/traces/{digest:path}",
        template="loop",
        title="Trace",
        make=trace.trace,
        may=REVIEWING,
    ),
    SitePage(
        address="/send/{id:path}",
        template="sent",
        title="A page to send",
        make=run_page.send,
        may=READING,
    ),
    SitePage(
        address="/keys", template="list", title="Keys", make=access.keys, may=("admin",)
    ),
)
# What forms ask for, by the permission that it needs.
ACTIONS: Mapping[Permission, Sequence[Action]] = {
    "write": (loop_page.cancel, loop_page.note, trace.reflect_now),
    "approve": (
        loop_page.override,
        loop_page.correct,
        lesson_page.amend,
        inbox.release,
        inbox.reject,
        inbox.undo,
        inbox.trust,
        inbox.revoke,
    ),
    "admin": (access.revoke_key,),
}


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

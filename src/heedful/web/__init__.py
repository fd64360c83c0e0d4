"""The pages of heedful in a browser: loops, lessons, proof, and what needs a review.

All that belongs to a page is in this room:

- `loops.py`, `loop.py`, `lessons.py`, `lesson.py`, `inbox.py`,
  `runs.py`, `trace.py`, `work.py`, `access.py`: the pages of a subject. A function
  makes the data of a page; the tables `PAGES` and `ACTIONS` at the end of a module
  declare its pages, and what its forms do. `matrix.py` makes the matrix of a loop,
  and `window.py` reads what its page shows.
- `templates/ui/NAME.html.j2`: what a page shows of its data; `render.py` has the
  filters. The frame and the style are those of the reports, in `pages/templates/`.
- `static/`: the script and the icon.
- `figures.py`, `figures.sql`: what a page counts that no route of the API answers.
- `lists.py`, `templates/ui/list.html.j2`, `rows.html.j2`: what all lists have alike.
  `summaries.py`: what the list of loops shows.
- `menu.py`: the pages of the menu.
- `site.py`: who may see a page, and the way from an address to a page; `addresses.py`
  reads what a request asks for.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI

    from heedful.web.site import Site


def add_pages(app: "FastAPI", read_only: bool = False) -> "Site":
    """Add the pages to a service, at `/ui`; with `read_only`, no form changes data."""
    from starlette.responses import RedirectResponse
    from starlette.routing import Route

    from heedful.web import (
        access,
        home,
        inbox,
        lesson,
        lessons,
        loop,
        loops,
        runs,
        trace,
        work,
    )
    from heedful.web.addresses import SITE_PATH
    from heedful.web.menu import lead_to_home
    from heedful.web.site import Site

    site = Site(
        app,
        app.state.setup,
        app.state.admission,
        pages=(
            *home.PAGES,
            *loops.PAGES,
            *loop.PAGES,
            *lessons.PAGES,
            *lesson.PAGES,
            *inbox.PAGES,
            *runs.PAGES,
            *trace.PAGES,
            *work.PAGES,
            *access.PAGES,
        ),
        actions=(
            *loop.ACTIONS,
            *lesson.ACTIONS,
            *inbox.ACTIONS,
            *trace.ACTIONS,
            *access.ACTIONS,
        ),
        read_only=read_only,
    )
    icon = f"{SITE_PATH}/static/icon.svg"
    app.routes.extend(
        [
            Route(f"{SITE_PATH}.json", lead_to_home),
            Route(f"{SITE_PATH}{{rest:path}}", site),
            Route("/", RedirectResponse(SITE_PATH, 303)),
            Route("/favicon.ico", RedirectResponse(icon, 303)),
        ]
    )
    return site

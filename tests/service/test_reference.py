"""The page on HTTP names every route and what it needs, and no other, and the service's codes."""

import re
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from heedful.service.auth import Needs
from heedful.service.routes import ROUTERS
from heedful.service.wire import TABLE

PAGE = (Path(__file__).parents[2] / "docs" / "http.md").read_text(encoding="utf-8")
ROUTE = r"`((?:GET|PUT|POST|PATCH|DELETE) /[^`?]*)`"
# Made by the framework, and by no router of ours.
FRAMEWORK = {"GET /openapi.json", "GET /docs"}


def routes():
    """Every route of the service, and what its key must be allowed; "" where it needs none."""
    for router in ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            needs = [
                one.call.may for one in route.dependant.dependencies if type(one.call) is Needs
            ]
            for method in route.methods or ():
                yield f"{method} {route.path}".replace(":path}", "}"), "".join(needs)


def test_every_route_is_there_and_no_other():
    told = re.findall(ROUTE, PAGE)
    assert sorted(set(told) - FRAMEWORK) == sorted({name for name, _ in routes()} - FRAMEWORK)
    assert len(told) == len(set(told))


@pytest.mark.parametrize(("name", "needs"), list(routes()), ids=str)
def test_what_a_route_needs_is_there(name, needs):
    (row,) = re.findall(rf"^.*`{re.escape(name)}`.*$", PAGE, re.MULTILINE)
    if needs:
        assert row.split(" | ")[1] == needs


@pytest.mark.parametrize("code", sorted({code for _, code in TABLE.values()}))
def test_codes_have_the_statuses_that_the_page_tells(code):
    statuses = {str(status) for status, one in TABLE.values() if one == code}
    for row in re.findall(rf"^\| ([\d, ]+) \|.*`{code}`", PAGE, re.MULTILINE):
        assert statuses <= set(row.split(", "))

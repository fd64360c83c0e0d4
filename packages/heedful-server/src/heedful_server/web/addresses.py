"""What a request asks for: the path of a page, its data, and the name of its cookie."""

import re
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request

from heedful.errors import HeedfulError
from heedful_server.auth import Callers
from heedful_server.middleware import check_local
from heedful_server.problems import Problem, bad_request
from heedful_server.web.page_templates import DATA_ENDING

SITE_PATH = "/ui"
COOKIE_NAME = "heedful_ui"


def raw_path(request: Request) -> str:
    """Return the path of a request below `/ui` as it was sent, before it is decoded."""
    raw: bytes = request.scope["raw_path"]
    return raw.decode("latin-1").partition("?")[0].removeprefix(SITE_PATH) or "/"


def page_path(request: Request) -> str:
    """Return the path of the page whose HTML or data a request asks for."""
    path = raw_path(request)
    # `/loops/` is `/loops`. The id of a loop may end with a slash, and keeps it.
    if path.count("/") == 2:
        path = path.removesuffix("/")
    if path.endswith(DATA_ENDING):
        path = path.removesuffix(DATA_ENDING) or "/"
    return path


def is_data(request: Request) -> bool:
    """Return whether a request asks for the data of a page instead of its HTML."""
    return raw_path(request).endswith(DATA_ENDING)


def own_address(address: str) -> str:
    """Return the address if it is on this site, else that of the home page.

    `/ui`, `/ui/loops` and `/ui?project=a` are on this site, `/ui.example.com` is not.
    """
    if re.fullmatch(rf"{SITE_PATH}(?:[/?#][^\\\s]*)?", address):
        return address
    return SITE_PATH


def cookie_of(request: Request) -> str:
    """Return the cookie of a request, or ""."""
    return request.cookies.get(cookie_name(request), "")


def cookie_name(request: Request) -> str:
    """Return the name of the cookie, which contains the port, such as `heedful_ui_80`.

    Browsers send a cookie to all ports of a machine, so services would share it.
    """
    _, colon, port = request.headers.get("host", "").rpartition(":")
    return f"{COOKIE_NAME}_{port}" if colon and port.isdecimal() else COOKIE_NAME


def check_host(request: Request) -> None:
    """Refuse a Host header that no browser sends for this address. Raises Problem."""
    if not re.fullmatch(r"[\w.\-\[\]:]+", request.headers.get("host", ""), re.ASCII):
        raise bad_request("the request has no valid Host header")


def origin_scheme(request: Request) -> str:
    """Return the scheme of the page that sent a request; "" if it does not say."""
    return urlsplit(request.headers.get("origin", "")).scheme


def proxy_scheme(request: Request) -> str:
    """Return the scheme with which a browser asks, as a proxy or the connection says.

    Anybody can claim it. So it is used only to make a session stricter: a claim of
    https gets a cookie that browsers send over https alone.
    """
    forwarded = request.headers.get("x-forwarded-proto", "")
    # The first of several proxies is the one that the browser asked.
    first = forwarded.partition(",")[0].strip().lower()
    return first or request.url.scheme


async def needs_no_key(callers: Callers, headers: Headers) -> bool:
    """Return whether a visitor at this machine signs in without a key."""
    try:
        check_local(headers, with_origin=True)
        await callers.identified("")
    except (HeedfulError, Problem):
        return False
    return True

"""Headers of every page: a page runs only the script and the style of this site."""

from __future__ import annotations

from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import Send

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Frame-Options": "DENY",
    # without a referrer, browsers send forms with Origin: null
    "Referrer-Policy": "same-origin",
}


def with_page_headers(send: Send) -> Send:
    """Return a function that sends what `send` does, with the headers of pages."""

    async def send_with_headers(message: Any) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in PAGE_HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with_headers

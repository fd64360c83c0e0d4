"""The sessions of visitors who signed in, and which forms these may send.

Starlette's sessions do not serve here: they live in a signed cookie, which anybody who
has it can read. Ours holds the key of a tenant, so the service keeps it. It ends when
nobody uses it for a time, and at once when its owner signs out.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hmac import compare_digest
from urllib.parse import urlsplit

from starlette.requests import Request

from heedful.validation import hex_digest
from heedful_server.problems import Problem
from heedful_server.web.addresses import origin_scheme, proxy_scheme

MAX_SESSION_IDLE_SECONDS = 1_800.0  # without a request, until a session ends
# Of a key, at a time: nobody can end the sessions of others.
MAX_KEY_SESSIONS = 100


@dataclass(kw_only=True)
class Session:
    """Somebody who signed in.

    `authorization` is the header with the key, and `key` is the id of the key; both are
    "" for the person at this machine, who needs none. `invited` is True for a visitor
    who opened the address of `heedful ui`; it stays True when the store gets its first
    key. `secure` is True if the browser used https. `token` is in every form of the
    session. `note` says what the last form did, and is shown once. `undo` has the `ids`
    of the texts that the last form decided about, and the `names` that it stated; their
    way back is shown once, with the note.
    """

    authorization: str
    key: str = ""
    invited: bool = False
    secure: bool = False
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    used: float = field(default_factory=time.monotonic)
    note: str = ""
    undo: Mapping[str, Sequence[int | str]] = field(default_factory=dict)

    @property
    def is_idle(self) -> bool:
        """Whether the session has ended because nobody used it for too long."""
        return time.monotonic() > self.used + MAX_SESSION_IDLE_SECONDS


class Sessions:
    """The sessions of this process, and the invitations to begin one without a key.

    Cookies and invitations are kept as digests.
    """

    def __init__(self) -> None:
        # The session that was not used for the longest time comes first.
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self.invitations: set[str] = set()
        # True after an invitation of the person at this machine.
        self.local = False

    def begin(self, session: Session) -> str:
        """Keep a new session, and return its cookie.

        If its key has too many, the one that was not used for the longest time ends.
        """
        for digest, earlier in [*self._sessions.items()]:
            if earlier.is_idle:
                del self._sessions[digest]
        of_key = [
            digest
            for digest, earlier in self._sessions.items()
            if earlier.key == session.key
        ]
        if len(of_key) >= MAX_KEY_SESSIONS:
            del self._sessions[of_key[0]]

        cookie = secrets.token_urlsafe(32)
        self._sessions[hex_digest(cookie)] = session
        return cookie

    def find(self, cookie: str, person: bool = True) -> Session | None:
        """Return the session of a cookie; None if it ended or was idle too long.

        `person` is False for what a live page asks for by itself: this does not keep a
        session alive.
        """
        digest = hex_digest(cookie)
        session = self._sessions.get(digest)
        if session is None:
            return None
        if session.is_idle:
            del self._sessions[digest]
            return None

        if person:
            session.used = time.monotonic()
            self._sessions.move_to_end(digest)
        return session

    def end(self, cookie: str) -> None:
        """End the session of a cookie, if there is one."""
        self._sessions.pop(hex_digest(cookie), None)

    def invite(self) -> str:
        """Return a token that opens one session of this machine, once."""
        token = secrets.token_urlsafe(32)
        self.invitations.add(hex_digest(token))
        self.local = True
        return token

    def redeem(self, token: str) -> bool:
        """Return whether a token is valid, and forget it."""
        valid = hex_digest(token) in self.invitations
        self.invitations.discard(hex_digest(token))
        return valid


def check_origin(request: Request, session: Session | None) -> None:
    """Refuse a form that no page of this site sent. Raises Problem.

    A page that came over http cannot send a form to a site that has https: somebody in
    the network may have written it.
    """
    host = urlsplit(request.headers.get("origin", "")).netloc
    scheme = origin_scheme(request)
    is_own = bool(host) and host == request.headers.get("host", "")
    is_insecure = scheme != "https" and proxy_scheme(request) == "https"
    is_other_scheme = session is not None and session.secure != (scheme == "https")
    if not is_own or is_insecure or is_other_scheme:
        raise Problem(
            403,
            "other_origin",
            detail="the form is not from a page of this site",
        )


def check_token(session: Session, form: Mapping[str, str]) -> None:
    """Refuse a form that this session was not given. Raises Problem."""
    token = form.get("token", "")
    if not compare_digest(session.token.encode(), token.encode()):
        raise Problem(
            403,
            "forged",
            detail="the form has no valid token; load the page again",
        )

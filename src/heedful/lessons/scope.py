"""To whom lessons belong, how far their texts are trusted, and how they are named.

Everything of memory needs these; a hook process, which starts for each event, needs no
more. The records of lessons, which take longer to import, are in `lesson`, which has
all names of this module, too.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from typing import Literal

from heedful.errors import InvalidInput
from heedful.redact import redact
from heedful.validation import refuses_unknown_options, require

Trust = Literal["operator", "measured", "model", "tool", "external"]
State = Literal["unverified", "verified", "quarantined", "retired", "superseded"]
Figures = Literal["", "content", "particulars"]
# The states of lessons that an agent is told; the words of others are for people.
TOLD_STATES: tuple[State, ...] = ("unverified", "verified")
# From most to least trusted. "operator": a person answers for the text; "measured": an
# outcome of a loop in this scope; "external": a document, an end user or an import.
TRUST_ORDER: tuple[Trust, ...] = ("operator", "measured", "model", "tool", "external")
# The name of a session in a source has at most this many characters with its prefix.
# The source of an MCP server, and what parts it from the digest of its entry in a file
# of a project, as in "server:docs@1a2b".
SERVER_PREFIX = "server:"
ENTRY_MARK = "@"
ANY_SERVER = "server:*"  # any of a file that heedful cannot read
# What agents replace in the name of a server, before it stands in those of its tools.
_REPLACED_PATTERN = re.compile(r"[^A-Za-z0-9_-]")
MAX_SESSION_SOURCE_CHARS = 200
PROMPT_BUDGET_TOKENS = 600  # about 2,300 characters of English
DEFAULT_HOLDOUT_SHARE = 0.10  # the default probability of withholding a lesson
# How a command begins that reads or changes the lessons of one scope. It may have other
# settings before it.
LESSON_COMMAND_PATTERN = re.compile(
    r"\b(?:HEEDFUL_\w+=\S+ )*"
    r"heedful (?:quarantine|lessons|proof|trust|reembed|prune)\b"
)


def server_source(name: str) -> str:
    """Return the source of an MCP server; agents do not tell some names apart.

    >>> server_source("my docs")
    'server:my_docs'
    """
    return f"{SERVER_PREFIX}{_REPLACED_PATTERN.sub('_', name)}"


def is_tool_of(tool: str, entry: str) -> bool:
    """Return True for a tool that may be one of the server of an entry.

    Nobody knows where the name of a server ends in that of its tool: `mcp__docs__x__y`
    may be a tool of `docs` or of `docs__x`.

    >>> is_tool_of("mcp__docs__search", "server:docs@1a2b")
    True
    """
    server = entry.rpartition(ENTRY_MARK)[0]
    is_any = server == ANY_SERVER
    prefix = "mcp__" if is_any else f"mcp__{server.removeprefix(SERVER_PREFIX)}__"
    name = _REPLACED_PATTERN.sub("_", tool)
    return name.casefold().startswith(prefix.casefold())


@refuses_unknown_options
@dataclass(frozen=True, slots=True)
class Scope:
    """A tenant and one of its projects; memory and loops belong to one scope."""

    tenant: str = "default"
    project: str = "default"

    def __post_init__(self) -> None:
        for name in ("tenant", "project"):
            value = getattr(self, name)
            if not value or len(value) > 200 or not value.isprintable():
                raise InvalidInput(name, value, "1 to 200 printable characters")
            if value != redact(value):
                raise InvalidInput(
                    name, value, "without a secret, because it is not redacted"
                )


def short_digest(text: str) -> str:
    """Return the first 16 hex digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def source_of(session: str) -> str:
    """Return the name of a session as the source of what derives from it."""
    return f"episode:{session}"[:MAX_SESSION_SOURCE_CHARS]


def digest_of(error_type: str, pattern: str) -> str:
    """Return the digest of an error type and a pattern; it identifies a lesson."""
    return short_digest(f"{error_type}\0{pattern}")


def lesson_name(kind: str, signature: str) -> str:
    """Return the name of a lesson in exposures, rulings and proofs.

    >>> lesson_name("error", "0123456789abcdef")
    'error/0123456789abcdef'
    """
    return f"{kind}/{signature}"


@dataclass(frozen=True, slots=True)
class Remembered:
    """The result of storing a lesson: its id, whether it is new, and its sightings.

    `updated` says that its words or its fix replaced older ones, which are kept.

    `seen` counts the sightings of this pattern only; `Memory.seen` counts those of its
    whole group. `state` and `trust` are those of the stored text. If the text waits in
    quarantine, `entry` is its id there, and `release` the command that releases it.
    `figures` says whether another figure would make it another lesson ("content") or
    not ("particulars"). If memory is full and all stored lessons are pinned or worth
    more than the new one, `id` and `seen` are 0.
    """

    id: int
    created: bool
    _: KW_ONLY
    updated: bool = False
    seen: int
    state: State = "unverified"
    trust: Trust = "operator"
    entry: int = 0
    figures: Figures = ""

    @property
    def release(self) -> str:
        """The command that releases the text from quarantine; "" if it is not there."""
        return release_command([self.entry])


def release_command(entries: Sequence[int]) -> str:
    """Return the command that releases quarantined entries; "" without an id."""
    ids = " ".join(map(str, filter(None, entries)))
    return f"heedful quarantine release {ids} --by NAME" if ids else ""


def name_tenant(command: str, tenant: str) -> str:
    """Return a command that ends with --tenant, unless the tenant is the default.

    >>> name_tenant("heedful quarantine list", "--help")
    'heedful quarantine list --tenant=--help'
    """
    if not command or tenant == Scope().tenant:
        return command
    return f"{command} {shlex.join(option_words('tenant', tenant))}"


def option_words(name: str, value: str) -> list[str]:
    """Return an option and its value as words of a command.

    A value that looks like an option is in one word with the name.
    """
    if value.startswith("-"):
        return [f"--{name}={value}"]
    return [f"--{name}", value]


def name_scope(text: str, scope: Scope) -> str:
    """Return a text whose commands about lessons begin with tenant and project, as
    settings.

    Every command reads them, also one without the option --tenant. Those that are the
    defaults are left out.

    >>> name_scope("heedful reembed", Scope("acme", "our docs"))
    "HEEDFUL_TENANT=acme HEEDFUL_PROJECT='our docs' heedful reembed"
    >>> name_scope("it was retired: heedful proof --restore 1", Scope("acme"))
    'it was retired: HEEDFUL_TENANT=acme heedful proof --restore 1'
    """
    settings = [
        f"HEEDFUL_{name.upper()}={shlex.quote(value)} "
        for name, value in asdict(scope).items()
        if value != getattr(Scope(), name)
    ]
    return LESSON_COMMAND_PATTERN.sub(
        lambda command: f"{''.join(settings)}{command[0]}", text
    )


def check_holdout(holdout: object) -> None:
    """Raise InvalidInput unless `holdout` is a share of at least 0 and below 1."""
    is_share = isinstance(holdout, int | float) and 0 <= holdout < 1
    require(is_share, "holdout", holdout, "a share of at least 0 and below 1")


def check_trust(trust: object) -> None:
    """Raise InvalidInput unless `trust` is a level of trust."""
    require(trust in TRUST_ORDER, "trust", trust, f"one of {', '.join(TRUST_ORDER)}")

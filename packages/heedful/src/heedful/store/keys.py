"""The API keys and the audit log of a service.

The store holds only a hash of a key's secret.
"""

import hmac
import json
import re
import secrets
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Literal, get_args

from heedful.errors import Conflict, InvalidInput, KeyRefused, NotFound
from heedful.lessons.origin import KEY_SOURCE_PREFIX, name_of
from heedful.lessons.scope import Scope, name_tenant
from heedful.redact import redact, redact_data
from heedful.store.connection import (
    CONFLICT_SKIP_SQL,
    Db,
    from_row,
    holds,
    key_of,
    resumable,
    token,
)
from heedful.store.store import Store
from heedful.validation import MAX_NAME_CHARS, Document, Fields, hex_digest

# "recall" allows what "read" allows, but does not show what waits in quarantine.
Permission = Literal["read", "recall", "write", "approve", "admin"]
KEY_PERMISSIONS: tuple[Permission, ...] = get_args(Permission)
# The full text of a key, `heedful_ID_SECRET`: 12 and 64 hexadecimal digits.
_KEY_TOKEN_PATTERN = re.compile(r"heedful_([0-9a-f]{12})_([0-9a-f]{64})")
# If nobody has this key id, the secret is compared with this hash, so that the answer
# takes as long as for a wrong secret.
_UNKNOWN_KEY_HASH = hex_digest("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An API key as stored, without its secret; times are seconds since 1970.

    If `projects` is empty, the key is valid for all projects of the tenant. `may` holds
    the permissions of the key, such as "read", and `by` the name of its creator. What
    comes through a key from `outside` waits until a person states the key.
    """

    id: str
    tenant: str
    name: str
    projects: tuple[str, ...]
    may: tuple[str, ...]
    by: str
    at: float
    expires: float | None = None
    revoked: float | None = None
    outside: bool = False

    @property
    def shown(self) -> str:
        """The first part of the key, without the secret, for display."""
        return f"heedful_{self.id}"

    @property
    def revoke(self) -> str:
        """The command that shows and removes what a revoked key wrote.

        It is "" for a valid key.
        """
        if self.revoked is None:
            return ""
        command = f"heedful quarantine revoke key:{self.id} --by NAME"
        return name_tenant(command, self.tenant)


async def create(
    store: Store,
    tenant: str,
    name: str,
    *,
    projects: Sequence[str] = (),
    may: Sequence[str] = ("read", "write"),
    by: str = "",
    expires: float | None = None,
    outside: bool = False,
) -> tuple[Key, str]:
    """Create an API key for a tenant; return it and its full text with the secret.

    The store holds only a hash of the secret, so nobody can read the text again. The
    key is valid for `projects` (none means all), allows what is in `may`, and expires
    at the time `expires`, or never. `by` is who creates it. What comes through a key
    from `outside` waits for a review. Raises InvalidInput, and Conflict if a repeated
    call has created its key before: the secret is lost.
    """
    now = time.time()
    for project in projects or ("default",):
        Scope(tenant, project)  # raises InvalidInput
    if not name or len(name) > MAX_NAME_CHARS or not name.isprintable():
        raise InvalidInput("name", name, "1 to 200 printable characters")
    if not may or not set(may) <= set(KEY_PERMISSIONS):
        allowed = f"at least one of {', '.join(KEY_PERMISSIONS)}"
        raise InvalidInput("may", list(may), allowed)
    if expires is not None and not now < expires < inf:
        raise InvalidInput("expires", expires, "a time in the future")

    permissions = [permission for permission in KEY_PERMISSIONS if permission in may]
    key = Key(
        id=secrets.token_hex(6),
        tenant=tenant,
        name=redact(name),  # a caller may send anything
        projects=tuple(projects),
        may=tuple(permissions),
        by=by,
        at=now,
        expires=expires,
        outside=outside,
    )
    secret = secrets.token_hex(32)
    # A call that is repeated gets the id that its first run has stored, not this one.
    stored_id = await store.write(Scope(tenant), insert, key, hex_digest(secret))
    if stored_id != key.id:
        raise Conflict(
            f"this call has created key {stored_id} before, and its secret is lost; "
            f"heedful key revoke {stored_id}, and create another key in another call"
        )
    return key, f"{key.shown}_{secret}"


@holds("keys")
@resumable(result=str, counts=True)
def insert(db: Db, scope: Scope, key: Key, hash: str) -> str:
    """Store a key with the `hash` of its secret, and return its id.

    A row of the audit log says who created it. Raises Conflict if there is a key with
    this id.
    """
    row = {
        **asdict(key),
        "projects": json.dumps(key.projects),
        "may": json.dumps(key.may),
        "hash": hash,
    }
    if not db.insert_now("key", row, CONFLICT_SKIP_SQL).rowcount:
        raise Conflict(f"a key with the id {key.id} exists; try again")

    append(
        db,
        tenant=scope.tenant,
        by=key.by,
        action="key.create",
        subject=key.name,
        detail={"id": key.id, "projects": key.projects, "may": key.may},
        projects=key.projects,
    )
    return key.id


async def holder(store: Store, token: str) -> Key:
    """Return the key whose full text is `token`.

    Raises KeyRefused if the text is no key, or if the key is unknown, revoked or
    expired: the error does not tell which.
    """
    key = None
    stored_hash = _UNKNOWN_KEY_HASH
    secret_hash = _UNKNOWN_KEY_HASH
    match = _KEY_TOKEN_PATTERN.fullmatch(token)
    if match is not None:
        id, secret = match.groups()
        key, stored_hash = await store.read(Scope(), find, id)
        secret_hash = hex_digest(secret)

    # Always compared, and in constant time, so that the time of an answer shows neither
    # which ids exist nor how much of a secret is right.
    is_same = hmac.compare_digest(secret_hash, stored_hash)
    is_valid = is_same and key is not None and key.revoked is None
    if key is None or not is_valid or (key.expires or inf) <= time.time():
        raise KeyRefused(
            "the key is unknown, revoked or expired; heedful key create makes one"
        )
    return key


def find(db: Db, scope: Scope, id: str) -> tuple[Key | None, str]:
    """Return the key with this id, of any tenant, and the hash of its secret.

    Without such a key, returns None and a hash to compare with all the same, so that an
    unknown key takes as long as a wrong secret.
    """
    (keys,) = db.last(("find_key", {"id": id}))
    row = keys.fetchone()
    if row is None:
        return None, _UNKNOWN_KEY_HASH
    return from_row(Key, row), row["hash"]


def stated_keys(db: Db, scope: Scope) -> frozenset[str]:
    """Return the sources of the tenant's keys that were not created as from outside."""
    rows = db.select("id", "key", {"tenant": scope.tenant, "outside": False})
    return frozenset(f"{KEY_SOURCE_PREFIX}{row['id']}" for row in rows)


def stated_names(db: Db, scope: Scope) -> frozenset[str]:
    """Return the names of sources that people stated, that is, declared to be trusted.

    What comes from these need not wait for a review. A person may take it back.
    """
    key = {**key_of(scope), "action": "trust"}
    rows = db.select("subject, record", "ruling", key, "order by at, id")
    # A later ruling replaces an earlier one.
    stated = {row["subject"]: json.loads(row["record"])["stated"] for row in rows}
    return frozenset(name for name, is_stated in stated.items() if is_stated)


def believed_names(db: Db, scope: Scope, own: Collection[str] = ()) -> frozenset[str]:
    """Return the names of all sources whose texts need not wait for a review.

    They are those that people declared to be trusted, the caller's `own` ones, and the
    tenant's keys that were not created as from outside.
    """
    return frozenset({*own, *stated_names(db, scope), *stated_keys(db, scope)})


def source_names(db: Db, scope: Scope) -> list[str]:
    """Return the names by which a person states the sources of a scope's texts."""
    rows = db.select("distinct source", "origin", {"scope": token(scope)})
    return [name_of(row["source"]) for row in rows]


def any_key(db: Db, scope: Scope) -> bool:
    """Return True if any tenant has a key.

    Revoked keys count: revoking the last key must not open the service to everybody.
    """
    (answer,) = db.last(("any_key", {}))
    return bool(answer.fetchone()["n"])


def newest(
    db: Db, scope: Scope, limit: int, before: str = "", projects: Sequence[str] = ()
) -> list[Key]:
    """Return at most `limit` keys of the scope's tenant, newest first.

    With `before`, the id of a key, returns only older keys; with `projects`, only keys
    that are valid for no other projects than these.
    """
    return [
        from_row(Key, row)
        for row in db.all(
            "list_keys",
            scope,
            cursor=before,
            limit=limit,
            projects=json.dumps(projects),
        )
    ]


@holds("keys")
@resumable(result=Key, counts=True)
def revoke(db: Db, scope: Scope, id: str, by: str) -> Key:
    """Revoke a key of the scope's tenant, and return it as it is then.

    `id` is its id or its text. A row of the audit log says who revoked it (`by`). A key
    that is revoked already keeps the time of its first revocation. Raises NotFound.
    """
    row = db.one("revoke_key", scope, id=id_of(id), now=time.time())
    if row is None:
        raise NotFound("key", id_of(id), f"the keys of {scope.tenant}")

    key = from_row(Key, row)
    append(
        db,
        tenant=scope.tenant,
        by=by,
        action="key.revoke",
        subject=key.id,
        detail={},
        projects=key.projects,
    )
    return key


def sent_id(authorization: str) -> str:
    """Return the id of the key in an Authorization header; "" if it has none."""
    match = _KEY_TOKEN_PATTERN.search(authorization)
    return "" if match is None else match[1]


def id_of(key: str) -> str:
    """Return the id of a key.

    `key` is the full key, its first part `heedful_ID`, or the id.
    """
    match = _KEY_TOKEN_PATTERN.fullmatch(key)
    return match[1] if match is not None else key.removeprefix("heedful_")


def append(
    db: Db,
    tenant: str,
    by: str,
    action: str,
    subject: str,
    detail: Fields,
    projects: Sequence[str] = (),
) -> None:
    """Add a row to the audit log: who (`by`) did which `action` with which `subject`.

    Call this in the transaction of the action, so that both are stored or neither.
    `detail` is stored as JSON without secrets. Keys that are limited to other projects
    than these cannot read the row.
    """
    values = {
        "tenant": tenant,
        "projects": json.dumps(projects),
        "at": time.time(),
        "by": redact(by),
        "action": action,
        "subject": redact(subject),
        "detail": json.dumps(redact_data(dict(detail)), sort_keys=True),
    }
    # The row gets the highest number of the tenant plus 1: without the lock, two
    # transactions would take the same.
    db.send("lock", {"name": f"audit {tenant}"})
    db.send("append_audit", values)


def audit_rows(
    db: Db, scope: Scope, limit: int, before: int = 0, projects: Sequence[str] = ()
) -> list[Document]:
    """Return at most `limit` rows of a tenant's audit log as plain data, newest first.

    With `before` above 0, returns only rows with lower numbers: those of the next page.
    With `projects`, returns only rows that are about no other projects.
    """
    return [
        {
            **row,
            "projects": json.loads(row["projects"]),
            "detail": json.loads(row["detail"]),
        }
        for row in db.all(
            "newest_audit",
            scope,
            before=before,
            limit=limit,
            projects=json.dumps(projects),
        )
    ]

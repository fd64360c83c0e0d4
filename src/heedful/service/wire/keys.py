"""Keys and the audit, as they are sent."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from heedful.store.keys import Key

Name = Annotated[str, Field(min_length=1, max_length=200)]
May = Literal["read", "write", "approve", "admin"]
NEW: dict[str, Any] = {"name": "orchestrator", "projects": ["support"], "may": ["read", "write"]}
SHOWN: dict[str, Any] = {
    "id": "3f0c9a1b2d4e",
    "key": "heedful_3f0c9a1b2d4e",
    "tenant": "acme",
    "by": "ada (77aa01c2d3e4)",
    "at": 1769860800.0,
    "expires": None,
    "used": None,
    "revoked": None,
    **NEW,
}


class NewKey(BaseModel):
    """A key to be made.

    Without `projects` it is for all of the tenant's; it `expires` in seconds since 1970.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", json_schema_extra={"example": NEW}
    )

    name: Name
    tenant: Name | None = None
    projects: Annotated[list[Name], Field(max_length=100)] = []
    may: Annotated[list[May], Field(min_length=1, max_length=4)] = ["read", "write"]
    expires: float | None = None


class ShownKey(BaseModel):
    """A key without its secret: `key` is how it begins. Times are in seconds since 1970."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra={"example": SHOWN})

    id: str
    key: str
    tenant: str
    name: str
    projects: list[str]
    may: list[May]
    by: str
    at: float
    expires: float | None
    used: float | None
    revoked: float | None

    @classmethod
    def of(cls, one: Key, **more: Any) -> Any:
        """That key."""
        plain = {name: getattr(one, name) for name in Key.__slots__}
        return cls(**{**plain, "key": one.shown, **more})


class MadeKey(ShownKey):
    """A new key, in `secret` all of it: it is told once; null where the call came again."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        json_schema_extra={"example": {**SHOWN, "secret": "heedful_3f0c9a1b2d4e_…"}}
    )

    secret: str | None


class Keys(BaseModel):
    """A page of keys, the newest first."""

    items: list[ShownKey]
    next: str | None


class Entry(BaseModel):
    """What was done, by whom; `hash` is over it and the hash before."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        json_schema_extra={
            "example": {
                "n": 7,
                "at": 1769860800.0,
                "by": "ada (77aa01c2d3e4)",
                "action": "key.revoke",
                "subject": "3f0c9a1b2d4e",
                "detail": {},
                "hash": "0b5c…",
            }
        }
    )

    n: int
    at: float
    by: str
    action: str
    subject: str
    detail: dict[str, Any]
    hash: str


class Audit(BaseModel):
    """A page of the audit, the newest first."""

    items: list[Entry]
    next: str | None

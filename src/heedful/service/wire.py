"""What all HTTP bodies share: records with limits on their fields, pages, and bounded types.

A record is declared once, as a dataclass, in the package that owns it. The service takes and
answers that dataclass. `Shape` adds what applies to HTTP only: limits, omitted fields, and
properties to send. Lists are sent in pages: `limit`, and a `cursor` for where the next page begins.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar, get_type_hints

from fastapi import Query
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
)
from pydantic_core import core_schema

from heedful.errors import InvalidInput

Row = TypeVar("Row")
LARGEST_ID = 2**63 - 1  # the largest id that a store holds


class Shape:
    """How a record is sent: `Annotated[Key, Shape(also={"shown": "key"})]`.

    `omit` names fields that are not sent. `also` maps properties to the names under which they are
    sent. Further arguments give fields a narrower type, such as a bounded one.
    """

    def __init__(
        self, omit: Collection[str] = (), also: Mapping[str, str] | None = None, **types: Any
    ) -> None:
        self._omit, self._also, self._types = omit, also or {}, types

    def __get_pydantic_core_schema__(self, record: Any, handler: GetCoreSchemaHandler) -> Any:
        """Return pydantic's schema of the record with these changes."""
        whole: dict[str, Any] = {**handler.resolve_ref_schema(handler(record))}
        del whole["ref"]  # the unchanged record may be used as well
        fields = [self._field(field, handler) for field in whole["schema"]["fields"]]
        properties = [
            core_schema.computed_field(
                name,
                handler.generate_schema(get_type_hints(getattr(record, name).fget)["return"]),
                alias=sent,
            )
            for name, sent in self._also.items()
        ]
        arguments = {**whole["schema"], "fields": fields, "computed_fields": properties}
        return {**whole, "schema": arguments}

    def _field(self, field: Any, handler: GetCoreSchemaHandler) -> Any:
        if field["name"] in self._omit:
            return {**field, "serialization_exclude": True}
        if field["name"] not in self._types:
            return field
        kind, old = handler.generate_schema(self._types[field["name"]]), field["schema"]
        return {**field, "schema": {**old, "schema": kind} if old["type"] == "default" else kind}


Name = Annotated[str, Field(min_length=1, max_length=200)]
Short = Annotated[str, Field(max_length=2_000)]
Long = Annotated[str, Field(max_length=100_000)]
Share = Annotated[float, Field(ge=0, le=1)]


class Body(BaseModel):
    """Body of a request. Unknown fields are refused; `tenant` must be the key's own."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)

    tenant: Annotated[str | None, Field(description="The key's own tenant, else 403.")] = None


def any_of(*schemas: Mapping[str, Any]) -> ConfigDict:
    """Return a configuration that adds to a model's schema how its fields depend on each other."""
    return ConfigDict(json_schema_extra={"anyOf": list(map(dict, schemas))})


def has(name: str, **schema: Any) -> dict[str, Any]:
    return {"required": [name], "properties": {name: schema}}


class Page(BaseModel, Generic[Row]):
    """One page of a list; `next` is the cursor of the next page, null at the last."""

    items: list[Row]
    next: str | None

    @classmethod
    def of(cls, rows: Sequence[Any], limit: int, *place: str) -> Self:
        """Return the first `limit` of the rows; `place` names the fields that the cursor holds."""
        last = rows[limit - 1] if len(rows) > limit else None
        if last is None:
            return cls(items=list(rows), next=None)
        at = [last[name] if isinstance(last, Mapping) else getattr(last, name) for name in place]
        return cls(items=list(rows[:limit]), next=cursor_to(*at))


class Reason(Body):
    """Why something is done; it goes on record."""

    why: Short = ""


LARGEST_EXACT = 2**53  # a number that every JSON parser and database holds exactly
Limit = Annotated[int, Query(ge=1, le=200, description="How many at most.")]
"""As a parameter of a route: `limit: Limit = 50`."""
Cursor = Annotated[
    str | None,
    Query(max_length=1000, description="`next` of the previous page."),
]
"""As a parameter of a route: `cursor: Cursor = None`."""


def cursor_to(*place: str | float) -> str:
    """Return a cursor for the page after this place, such as a time and an id.

    >>> cursor_from(cursor_to(1.5, "a"), float, str)
    (1.5, 'a')
    """
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def cursor_from(cursor: str | None, *kinds: type) -> tuple[Any, ...] | None:
    """Return the place in a cursor, or None for the first page. Raises InvalidInput."""
    if cursor is None:
        return None
    wrong = InvalidInput("cursor", cursor, "`next` of the page before, unchanged")
    try:
        place: Any = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error, RecursionError) as error:
        raise wrong from error
    if not isinstance(place, list) or [type(one) for one in place] != list(kinds):
        raise wrong
    if any(
        isinstance(one, int | float) and not -LARGEST_EXACT < one < LARGEST_EXACT for one in place
    ):
        raise wrong
    return tuple(place)
